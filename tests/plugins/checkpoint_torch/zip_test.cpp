// The zip side: every number of a file may be wrong.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "files.h"
#include "items.h"

namespace shale::test {
namespace {

using ::testing::HasSubstr;

const std::string kPickle = tensor_pickle({});
const std::string kEnd = "PK\5\6", kEntry = "PK\1\2", kHeader = "PK\3\4";

// "" when the folder with this one file can be read, else the message, which names the file.
std::string problem(const std::string& file) {
  FormatOnFolder folder(SHALE_PLUGIN_FILE);
  folder.files()["checkpoint.pt"] = file;
  std::string out;
  try {
    folder.describe();
  } catch (const std::runtime_error& bad) {
    out = bad.what();
    EXPECT_TRUE(out.starts_with("checkpoint.pt: ")) << out;
    EXPECT_EQ(out.find('\n'), std::string::npos) << out;
    out = out.substr(15);
  }
  EXPECT_EQ(folder.live(), 0);
  return out;
}

std::string with(const std::vector<ZipRecord>& more) {
  std::vector<ZipRecord> all = {{"a/data.pkl", kPickle}, {"a/data/0", std::string(24, 'x')}, {"a/version", "3\n"}};
  all.insert(all.end(), more.begin(), more.end());
  return zip_of(all);
}

TEST(TorchZip, PlainFilesInAnyOrderAreRead) {
  EXPECT_EQ(problem(with({})), "");
  EXPECT_EQ(problem(zip_of({{"x/version", "10"}, {"x/data/0", std::string(24, 'x')}, {"x/data.pkl", kPickle}})), "");
  EXPECT_EQ(problem(with({{"a/byteorder", "little"}, {"a/.data/serialization_id", "1"}})), "");
}

TEST(TorchZip, CutAndLengthenedFiles) {
  const std::string good = with({});
  EXPECT_EQ(problem(""), "0 bytes are too few for a zip file");
  const std::string cut = "does not end in the end record of a zip file: it was cut, or something was added";
  for (std::size_t n = 22; n < good.size(); ++n) EXPECT_EQ(problem(good.substr(0, n)), cut) << n;
  EXPECT_EQ(problem(good + "x"), cut);
  EXPECT_EQ(problem(good.substr(1)), "byte " + std::to_string(good.size() - 23) +
                                         ": the directory of the zip file does not lie before its end record");
}

TEST(TorchZip, NumbersOfTheEndRecord) {
  const std::string good = with({});
  EXPECT_THAT(problem(patched(good, kEnd, 4, little(1, 2))), HasSubstr("a zip file of several parts"));
  EXPECT_THAT(problem(patched(good, kEnd, 8, little(2, 2))), HasSubstr("a zip file of several parts"));
  EXPECT_THAT(problem(patched(good, kEnd, 8, little(2, 2) + little(2, 2))), HasSubstr("more zip entries than"));
  EXPECT_THAT(problem(patched(good, kEnd, 8, little(4, 2) + little(4, 2))),
              HasSubstr("4 records do not fit the directory"));
  EXPECT_THAT(problem(patched(good, kEnd, 8, little(65535, 4) + little(65535, 2))), HasSubstr("several parts"));
  EXPECT_THAT(problem(patched(good, kEnd, 8, std::string(4, '\xff'))), HasSubstr("65535 records do not fit"));
  EXPECT_THAT(problem(patched(good, kEnd, 12, std::string(4, '\xff'))), HasSubstr("does not lie before"));
  EXPECT_THAT(problem(patched(good, kEnd, 16, little(0, 4))), HasSubstr("does not lie before"));
}

TEST(TorchZip, WideEndRecord) {
  const std::string good = with({}), end = good.substr(good.size() - 22), rest = good.substr(0, good.size() - 22);
  const auto wide = [&](std::uint64_t entries, std::uint64_t at, std::uint64_t locator) {
    const std::uint64_t bytes = rest.size() - at;
    return rest + "PK\6\6" + little(44, 8) + little(45, 4) + little(0, 8) + little(entries, 8) + little(entries, 8) +
           little(bytes, 8) + little(at, 8) + "PK\6\7" + little(0, 4) + little(locator, 8) + little(1, 4) + end;
  };
  const std::uint64_t at = rest.find(kEntry);
  EXPECT_EQ(problem(wide(3, at, rest.size())), "");
  EXPECT_THAT(problem(wide(3, at, rest.size() - 1)), HasSubstr("points to no zip64 end record"));
  EXPECT_THAT(problem(wide(3, at, ~std::uint64_t{0})), HasSubstr("points to no zip64 end record"));
  EXPECT_EQ(problem(wide(4, at, rest.size())), "the two end records of the zip file differ");
  EXPECT_EQ(problem(wide(3, at - 1, rest.size())), "the two end records of the zip file differ");
}

TEST(TorchZip, NumbersOfTheDirectory) {
  const std::string good = with({});
  EXPECT_THAT(problem(patched(good, kEntry, 8, little(1, 2))), HasSubstr("'a/version' is encrypted"));
  EXPECT_EQ(problem(patched(good, kEntry, 10, little(8, 2))),
            "'a/version' is compressed; only stored records can be read");
  EXPECT_THAT(problem(patched(good, kEntry, 20, little(1, 4))), HasSubstr("'a/version' is stored in another size"));
  EXPECT_THAT(problem(patched(good, kEntry, 20, little(9000, 4) + little(9000, 4))),
              HasSubstr("'a/version' reaches past the records of the zip file"));
  EXPECT_THAT(problem(patched(good, kEntry, 28, little(900, 2))), HasSubstr("reaches past the zip directory"));
  EXPECT_THAT(problem(patched(good, kEntry, 42, little(1, 4))), HasSubstr("no header of a zip record"));
  EXPECT_THAT(problem(patched(good, kEntry, 42, little(1u << 30, 4))), HasSubstr("lies outside the file"));
  EXPECT_THAT(problem(patched(good, kEntry, 42, little(0, 4))), HasSubstr("differs from that in the zip directory"));
}

TEST(TorchZip, WideEntries) {
  const std::string good = with({}), name = "a/version";
  const std::size_t entry = good.rfind(kEntry);
  const std::string end = good.substr(entry + 46 + name.size());
  const auto wide = [&](const std::string& extra) {
    std::string head = good.substr(entry, 46 + name.size());
    head.replace(20, 8, std::string(8, '\xff'));
    head.replace(30, 2, little(extra.size(), 2));
    const std::uint64_t bytes = entry - good.find(kEntry) + head.size() + extra.size();
    return good.substr(0, entry) + head + extra + patched(end, kEnd, 12, little(bytes, 4));
  };
  const std::string sizes = little(2, 8) + little(2, 8);
  EXPECT_EQ(problem(wide(little(1, 2) + little(16, 2) + sizes)), "");
  EXPECT_EQ(problem(wide(little(7, 2) + little(1, 2) + "x" + little(1, 2) + little(16, 2) + sizes)), "");
  EXPECT_EQ(problem(wide(little(1, 2) + little(8, 2) + little(2, 8))), "the zip64 sizes of 'a/version' are cut");
  EXPECT_THAT(problem(wide("")), HasSubstr("'a/version' reaches past the records"));
  EXPECT_THAT(problem(wide(little(1, 2) + little(99, 2) + sizes)), HasSubstr("'a/version' reaches past the records"));
  EXPECT_THAT(problem(wide(little(1, 2) + little(16, 2) + little(3, 8) + little(2, 8))), HasSubstr("in another size"));
  EXPECT_THAT(problem(wide(little(1, 2) + little(16, 2) + std::string(16, '\xff'))), HasSubstr("reaches past"));
}

TEST(TorchZip, HeadersOfRecords) {
  const std::string good = with({});
  EXPECT_THAT(problem(patched(good, kHeader, 8, little(8, 2))), HasSubstr("the size of 'a/version' differs"));
  EXPECT_THAT(problem(patched(good, kHeader, 22, little(3, 4))), HasSubstr("the size of 'a/version' differs"));
  EXPECT_THAT(problem(patched(good, kHeader, 28, little(60000, 2))), HasSubstr("reaches past the records"));
  EXPECT_THAT(problem(patched(good, kHeader, 30, "b")), HasSubstr("the name of 'a/version' differs"));
}

TEST(TorchZip, RecordsThatShareBytes) {
  // data/0 grows over the header of the record behind it, in both of its sizes.
  std::string file = patched(with({}), kHeader, 0, kHeader);
  const std::size_t entry = file.find("a/data/0", file.find(kEntry)) - 46, head = file.find("a/data/0") - 30;
  file.replace(entry + 20, 8, little(25, 4) + little(25, 4));
  file.replace(head + 18, 8, little(25, 4) + little(25, 4));
  EXPECT_THAT(problem(file), HasSubstr("two records of the zip file overlap"));
}

TEST(TorchZip, NamesOfRecords) {
  EXPECT_THAT(problem(with({{"a/data/0", ""}})), HasSubstr("'a/data/0' is there twice"));
  EXPECT_THAT(problem(with({{"b/data/1", ""}})), HasSubstr("is not under the one root folder of torch.save"));
  EXPECT_THAT(problem(with({{"x", ""}})), HasSubstr("is not under the one root folder of torch.save"));
  EXPECT_EQ(problem(with({{"a/constants.pkl", ""}})), "is a TorchScript archive, not a file of torch.save");
  EXPECT_EQ(problem(zip_of({})), "the record 'version' is missing");
  EXPECT_EQ(problem(zip_of({{"a/version", "3"}})), "the record 'data.pkl' is missing");
  EXPECT_EQ(problem(zip_of({{"a/data.pkl", kPickle}})), "the record 'version' is missing");
  EXPECT_EQ(problem(zip_of({{"a/data.pkl", kPickle}, {"a/version", "3"}})), "the record 'data/0' is missing");
}

TEST(TorchZip, VersionsAndByteOrder) {
  for (const char* version : {"0", "11", "", "x", "-1"})
    EXPECT_EQ(problem(zip_of({{"a/version", version}})),
              "version '" + std::string(version) + "' of torch.save is not known");
  EXPECT_THAT(problem(zip_of({{"a/version", std::string(99, '3')}})), HasSubstr("'version' has 99 bytes, too many"));
  EXPECT_EQ(problem(with({{"a/byteorder", "big"}})), "byte order 'big' cannot be read, only 'little'");
}

}  // namespace
}  // namespace shale::test
