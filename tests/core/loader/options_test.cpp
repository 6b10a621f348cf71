#include "core/loader/options.h"

#include <cmath>
#include <random>

#include "core/loader/option_text.h"
#include "support.h"

namespace shale {
namespace {

using test::expect_error;
using test::option;

shale_option row(std::uint32_t type, const char* key, const char* fallback, const char* min = nullptr,
                 const char* max = nullptr) {
  return {sizeof(shale_option),
          type,
          key,
          "help",
          "ranks",
          fallback,
          min,
          max,
          type == SHALE_OPT_CHOICE ? "a|bc|d" : nullptr};
}

std::vector<OptionSpec> table(const std::vector<shale_option>& rows) {
  return read_option_table(rows.data(), static_cast<std::uint32_t>(rows.size()), sizeof(shale_option));
}

// What is wrong with a value, or "".
std::string complaint(const shale_option& r, RawValue value, OptionValue* out = nullptr) {
  OptionValue mine;
  return convert_option(table({r}).at(0), value, "/configs", out ? *out : mine).value_or("");
}

using Texts = std::vector<std::string>;

TEST(Options, RightValues) {
  OptionValue v;
  EXPECT_EQ(complaint(row(SHALE_OPT_BOOL, "x", "true"), false, &v), "");
  EXPECT_EQ(v.i, 0);
  EXPECT_EQ(complaint(row(SHALE_OPT_INT, "x", "8", "1", "64"), std::int64_t{64}, &v), "");
  EXPECT_EQ(v.i, 64);
  EXPECT_EQ(complaint(row(SHALE_OPT_FLOAT, "x", "0.5", "0", "1"), std::int64_t{1}, &v), "");
  EXPECT_EQ(v.f, 1.0);
  EXPECT_EQ(complaint(row(SHALE_OPT_TEXT, "x", ""), std::string("\"quoted\""), &v), "");
  EXPECT_EQ(v.s, "\"quoted\"");
  EXPECT_EQ(complaint(row(SHALE_OPT_CHOICE, "x", "a"), std::string("bc"), &v), "");
  EXPECT_EQ(v.i, 1);
  EXPECT_EQ(v.s, "bc");
  EXPECT_EQ(complaint(row(SHALE_OPT_BYTES, "x", "0"), std::string("4GiB"), &v), "");
  EXPECT_EQ(v.i, std::int64_t{4} << 30);
  EXPECT_EQ(complaint(row(SHALE_OPT_SECONDS, "x", "1"), std::string("5min"), &v), "");
  EXPECT_EQ(v.f, 300.0);
  EXPECT_EQ(complaint(row(SHALE_OPT_PATH, "x", ""), std::string("../data/a.bin"), &v), "");
  EXPECT_EQ(v.s, "/data/a.bin");
  EXPECT_EQ(complaint(row(SHALE_OPT_PATH, "x", ""), std::string("/b"), &v), "");
  EXPECT_EQ(v.s, "/b");
  EXPECT_EQ(complaint(row(SHALE_OPT_TEXTS, "x", "[]"), Texts{"a", "b"}, &v), "");
  EXPECT_EQ(v.list, (Texts{"a", "b"}));
}

TEST(Options, WrongTypes) {
  EXPECT_EQ(complaint(row(SHALE_OPT_BOOL, "x", "true"), std::int64_t{1}), "must be true or false (got 1)");
  EXPECT_EQ(complaint(row(SHALE_OPT_INT, "x", "8"), 8.0), "must be an integer (got 8.0)");
  EXPECT_EQ(complaint(row(SHALE_OPT_INT, "x", "8"), std::string("8")), "must be an integer (got \"8\")");
  EXPECT_EQ(complaint(row(SHALE_OPT_INT, "x", "8"), true), "must be an integer (got true)");
  EXPECT_EQ(complaint(row(SHALE_OPT_FLOAT, "x", "1"), std::string("1")), "must be a number (got \"1\")");
  EXPECT_EQ(complaint(row(SHALE_OPT_FLOAT, "x", "1"), std::nan("")), "must be a number (got nan)");
  EXPECT_EQ(complaint(row(SHALE_OPT_TEXT, "x", ""), std::int64_t{3}), "must be a text (got 3)");
  EXPECT_EQ(complaint(row(SHALE_OPT_CHOICE, "x", "a"), std::string("bd")),
            "must be one of a | bc | d (got \"bd\"); did you mean \"bc\"?");
  EXPECT_EQ(complaint(row(SHALE_OPT_BYTES, "x", "0"), std::string("4 gigs")),
            "must be a number of bytes, such as 4096 or \"4GiB\" (got \"4 gigs\")");
  EXPECT_EQ(complaint(row(SHALE_OPT_BYTES, "x", "0"), std::int64_t{-1}),
            "must be a number of bytes, such as 4096 or \"4GiB\" (got -1)");
  EXPECT_EQ(complaint(row(SHALE_OPT_SECONDS, "x", "1"), std::string("soon")),
            "must be a duration, such as 30 or \"5min\" (got \"soon\")");
  EXPECT_EQ(complaint(row(SHALE_OPT_PATH, "x", ""), Texts{"a"}), "must be a path (got [\"a\"])");
  EXPECT_EQ(complaint(row(SHALE_OPT_PATH, "x", ""), std::string("a\0b", 3)), "must be a path (got \"a\\u0000b\")");
  EXPECT_EQ(complaint(row(SHALE_OPT_TEXTS, "x", "[]"), std::string("a")), "must be a list of texts (got \"a\")");
}

TEST(Options, Ranges) {
  EXPECT_EQ(complaint(row(SHALE_OPT_INT, "x", "8", "1", "64"), std::int64_t{65}), "must be 1..64 ranks (got 65)");
  EXPECT_EQ(complaint(row(SHALE_OPT_INT, "x", "8", "1"), std::int64_t{0}), "must be at least 1 ranks (got 0)");
  EXPECT_EQ(complaint(row(SHALE_OPT_FLOAT, "x", "0", nullptr, "1"), 1.5), "must be at most 1 ranks (got 1.5)");
  EXPECT_EQ(complaint(row(SHALE_OPT_BYTES, "x", "1MiB", "1KiB", "1GiB"), std::string("2GiB")),
            "must be 1KiB..1GiB ranks (got \"2GiB\")");
  EXPECT_EQ(complaint(row(SHALE_OPT_SECONDS, "x", "30s", "1s"), 0.5), "must be at least 1s ranks (got 0.5)");
}

TEST(Options, WrongTables) {
  const auto wrong = [](const shale_option& r, const std::string& part) {
    expect_error(Code::config, {"option table is wrong", part, "a bug of the plugin"}, [&] { table({r}); });
  };
  wrong(row(SHALE_OPT_INT, "Size", "1"), "not [a-z][a-z0-9_]*");
  wrong(row(SHALE_OPT_INT, "", "1"), "not [a-z][a-z0-9_]*");
  wrong(row(SHALE_OPT_INT, nullptr, "1"), "not [a-z][a-z0-9_]*");
  wrong(row(SHALE_OPT_INT, "x", "one"), "default \"one\", which is not an integer");
  wrong(row(SHALE_OPT_INT, "x", "1.5"), "has a default that must be an integer");
  wrong(row(SHALE_OPT_INT, "x", "9", "1", "8"), "has a default that must be 1..8");
  wrong(row(SHALE_OPT_INT, "x", "9", "10", "8"), "the minimum 10 above the maximum 8");
  wrong(row(SHALE_OPT_INT, "x", "9", "ten"), "the minimum \"ten\"");
  wrong(row(SHALE_OPT_FLOAT, "x", "0", "2", "1"), "above the maximum");
  wrong(row(SHALE_OPT_TEXT, "x", "", "a"), "which is no bound for a text");
  wrong(row(SHALE_OPT_BOOL, "x", "1"), "has a default that must be true or false");
  wrong(row(SHALE_OPT_CHOICE, "x", "e"), "has a default that must be one of");
  wrong(row(SHALE_OPT_BYTES, "x", "lots"), "has a default that must be a number of bytes");
  wrong(row(SHALE_OPT_TEXTS, "x", "norm"), "which is not a list of texts");
  shale_option none = row(SHALE_OPT_CHOICE, "x", "a");
  none.choices = nullptr;
  wrong(none, "has no choices");
  expect_error(Code::config, {"option x has type 77", "newer shale"}, [] { table({row(77, "x", "1")}); });
  expect_error(Code::config, {"x is there twice"}, [] {
    table({row(SHALE_OPT_INT, "x", "1"), row(SHALE_OPT_INT, "x", "1")});
  });
  const shale_option good = row(SHALE_OPT_INT, "x", "1");
  for (const auto& [n, stride] : {std::pair{1u, 8u}, {1u, 71u}, {100000u, 72u}})
    expect_error(Code::config, {"rows of"}, [&, n = n, stride = stride] { read_option_table(&good, n, stride); });
  expect_error(Code::config, {"rows of"}, [] { read_option_table(nullptr, 1, sizeof(shale_option)); });
  EXPECT_TRUE(read_option_table(nullptr, 0, 0).empty());
}

TEST(Options, ALongerStrideIsFollowed) {
  struct Newer {
    shale_option known;
    const char* appended;
  };
  const Newer rows[] = {{row(SHALE_OPT_INT, "a", "1"), ""}, {row(SHALE_OPT_INT, "b", "2"), ""}};
  const auto specs = read_option_table(&rows[0].known, 2, sizeof(Newer));
  ASSERT_EQ(specs.size(), 2u);
  EXPECT_EQ(specs[1].key, "b");
}

TEST(CheckedOptions, AllErrorsOfAFileAtOnce) {
  shale_option required = row(SHALE_OPT_INT, "must", nullptr);
  const PluginChoice choice{"sharding",
                            "mine",
                            {"run.toml:2:10"},
                            {{"shard_siz", std::int64_t{4}, {"run.toml:5:1"}, {"run.toml:5:13"}},
                             {"flag", std::string("yes"), {"run.toml:6:1"}, {"run.toml:6:8"}}}};
  ConfigErrors errors;
  const CheckedOptions checked(
      table({row(SHALE_OPT_INT, "shard_size", "8"), row(SHALE_OPT_BOOL, "flag", "true"), required}), choice, "/",
      errors);
  const Error e = test::error_of([&] { errors.raise(); });
  EXPECT_EQ(e.code(), Code::config);
  test::expect_contains(
      e.what(), {"run.toml:5:1: [sharding.options] shard_siz is no option of the plugin mine; did you mean shard_size?",
                 "run.toml:6:8: [sharding.options] flag must be true or false (got \"yes\")",
                 "run.toml:2:10: [sharding.options] must must be given: help"});
}

TEST(CheckedOptions, ValuesDefaultsAndTexts) {
  const PluginChoice choice{
      "sharding",
      "mine",
      {"run.toml:2:10"},
      {option("size", std::int64_t{4}), option("size", std::int64_t{5}), option("skip", Texts{"a\"b"})}};
  ConfigErrors errors;
  const CheckedOptions checked(table({row(SHALE_OPT_INT, "size", "8"), row(SHALE_OPT_SECONDS, "wait", "2min"),
                                      row(SHALE_OPT_TEXTS, "skip", "[]")}),
                               choice, "/", errors);
  EXPECT_TRUE(errors.empty());
  const shale_config& c = *checked.config();
  ASSERT_EQ(c.n_values, 3u);
  EXPECT_EQ(c.struct_size, sizeof c);
  EXPECT_EQ(c.values[0].i, 5);  // the later layer
  EXPECT_EQ(c.values[0].is_set, 1u);
  EXPECT_EQ(c.values[1].f, 120.0);
  EXPECT_EQ(c.values[1].is_set, 0u);
  ASSERT_EQ(c.values[2].n_list, 1u);
  EXPECT_EQ(to_text(c.values[2].list[0]), "a\"b");
  const auto texts = checked.texts();
  EXPECT_EQ(texts[0].value, "5");
  EXPECT_EQ(texts[1].value, "120.0");
  EXPECT_FALSE(texts[1].given);
  EXPECT_EQ(texts[2].value, "[\"a\\\"b\"]");
  EXPECT_EQ(checked.origin("size").text, "run.toml:12:9");
  EXPECT_EQ(checked.origin("wait").text, "run.toml:2:10");
}

TEST(OptionText, Quantities) {
  EXPECT_EQ(parse_bytes("4096"), 4096);
  EXPECT_EQ(parse_bytes("1.5 KiB"), 1536);
  EXPECT_EQ(parse_bytes("2GB"), 2000000000);
  EXPECT_EQ(parse_seconds("250ms"), 0.25);
  EXPECT_EQ(parse_seconds("2h"), 7200.0);
  for (const char* wrong : {"", "GiB", "-1", "4gib", "4 GiB x", "1e30", "nan", "inf", "0.5", "4  KiB", "0x10"})
    EXPECT_FALSE(parse_bytes(wrong)) << wrong;
  for (const char* wrong : {"", "s", "-1s", "1 year", "nan", "inf s", "1e999"})
    EXPECT_FALSE(parse_seconds(wrong)) << wrong;
}

TEST(OptionText, TomlGoesBothWays) {
  for (const char* text : {"true", "-7", "0.1", "\"a\\\"\\\\b\"", "[\"x\", \"y\"]", "[]"}) {
    const auto value = parse_toml(text);
    ASSERT_TRUE(value) << text;
    EXPECT_EQ(to_toml(*value), text);
  }
  for (const char* wrong : {"", "1\ny = 2", "[1]", "{a = 1}", "1979-05-27", "[", "\"", "x"})
    EXPECT_FALSE(parse_toml(wrong)) << wrong;
}

TEST(OptionText, RandomTextsNeverCrash) {
  std::mt19937 random(11);
  const std::string letters = "0123456789.eE+-_xinfaKMGTBs \"'[]{}=\n\\u\t\xff";
  for (int k = 0; k < 5000; ++k) {
    std::string text;
    for (std::size_t n = random() % 24; n > 0; --n) text += letters[random() % letters.size()];
    (void)parse_bytes(text);
    (void)parse_seconds(text);
    if (const auto value = parse_toml(text)) (void)to_toml(*value);
  }
}

}  // namespace
}  // namespace shale
