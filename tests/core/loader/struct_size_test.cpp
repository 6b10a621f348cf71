// A struct_size of any value must end in a plugin or in an Error, never in a read past what is there: tables are made
// in blocks of exactly the size they claim, which the address sanitizer and the guard bytes below watch.
#include <random>

#include "core/loader/descriptor.h"
#include "core/loader/plugin_library.h"
#include "support.h"

namespace shale {
namespace {

shale_status* create(const shale_host*, const shale_desc*, const shale_config*, void**) { return nullptr; }
void destroy(void*) {}
const void* get_interface(void*, const char*) { return nullptr; }

// A copy in a block of `size` bytes (at least 4, so that the size itself can be read) whose first member says so.
template <class T>
struct Cut {
  Cut(const T& from, std::uint32_t size) : bytes(new char[std::max<std::size_t>(size, 4)]) {
    std::fill_n(bytes.get(), std::max<std::size_t>(size, 4), '\x5a');
    std::memcpy(bytes.get(), &from, std::min<std::size_t>(size, sizeof from));
    std::memcpy(bytes.get(), &size, sizeof size);
  }
  const T* get() const { return reinterpret_cast<const T*>(bytes.get()); }
  std::unique_ptr<char[]> bytes;
};

const char* const kInterfaces[] = {SHALE_SHARDING, nullptr};
const shale_option kOption = {sizeof(shale_option), SHALE_OPT_INT, "size", "help", "", "8", "1", "64", nullptr};

shale_desc desc(const shale_option* options, std::uint32_t stride) {
  return {sizeof(shale_desc),
          SHALE_KIND_SHARDING,
          "mine",
          "1.0.0",
          "",
          "",
          "",
          "",
          1,
          kInterfaces,
          nullptr,
          options,
          1,
          stride};
}

// Did the handshake succeed?
bool shake(std::uint32_t table_size, std::uint32_t desc_size, std::uint32_t option_size) {
  const Cut<shale_option> option(kOption, option_size);
  const Cut<shale_desc> d(desc(option.get(), std::max(option_size / 8 * 8, 8u)), desc_size);
  const shale_desc* const descs[] = {d.get()};
  const shale_plugin table = {sizeof(shale_plugin), SHALE_ABI_MAJOR, 1, SHALE_ABI_MINOR, 0, 1, descs, create, destroy,
                              get_interface};
  const Cut<shale_plugin> cut(table, table_size);
  PluginLibrary library;
  try {
    shake_hands(cut.get(), library);
    return true;
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Code::config);
    return false;
  }
}

TEST(StructSize, EverySizeOfEveryStruct) {
  for (std::uint32_t size = 0; size < 300; ++size) {
    EXPECT_EQ(shake(size, sizeof(shale_desc), sizeof(shale_option)), size >= kBaseline<shale_plugin>) << size;
    EXPECT_EQ(shake(sizeof(shale_plugin), size, sizeof(shale_option)), size >= kBaseline<shale_desc>) << size;
    if (size % 8 == 0) {
      EXPECT_EQ(shake(sizeof(shale_plugin), sizeof(shale_desc), size), size >= kBaseline<shale_option>) << size;
    }
  }
}

TEST(StructSize, RandomSizes) {
  std::mt19937 random(7);
  const auto size = [&] {
    return static_cast<std::uint32_t>(random() % 4 == 0 ? random() % (1u << 20) : random() % 256);
  };
  for (int k = 0; k < 3000; ++k) shake(size(), size(), size());
}

TEST(StructSize, AKindOfALaterShaleIsPassedOver) {
  shale_desc later = desc(&kOption, sizeof kOption);
  later.kind = 17, later.id = "?";
  const shale_desc mine = desc(&kOption, sizeof kOption);
  const shale_desc* const descs[] = {&later, &mine};
  const shale_plugin table = {sizeof(shale_plugin), SHALE_ABI_MAJOR, 1, SHALE_ABI_MINOR, 0, 2, descs, create, destroy,
                              get_interface};
  PluginLibrary library;
  shake_hands(&table, library);
  ASSERT_EQ(library.descriptors.size(), 1u);
  EXPECT_EQ(library.descriptors[0].id, "mine");
}

TEST(StructSize, TakeCutsAndFills) {
  const shale_unit_plan full = {sizeof(shale_unit_plan), 1, 2, 3, 0, 0, 0, 4, 5, 0, 0, 0, 6, 1, 0};
  shale_unit_plan mine;
  EXPECT_TRUE(take(Cut<shale_unit_plan>(full, sizeof full + 64).get(), mine));
  EXPECT_EQ(mine.struct_size, sizeof full);
  EXPECT_EQ(mine.scratch_bytes, 6u);
  EXPECT_TRUE(take(Cut<shale_unit_plan>(full, kBaseline<shale_unit_plan>).get(), mine));  // older than `join`
  EXPECT_EQ(mine.scratch_bytes, 6u);
  EXPECT_EQ(mine.join, 0u);
  EXPECT_FALSE(take(Cut<shale_unit_plan>(full, kBaseline<shale_unit_plan> - 8).get(), mine));
  EXPECT_FALSE(take(static_cast<const shale_unit_plan*>(nullptr), mine));
}

TEST(Descriptor, EndlessListsAndStrangeTextsAreRefused) {
  std::vector<const char*> endless(1000, SHALE_SHARDING);
  shale_desc d = desc(&kOption, sizeof kOption);
  d.interfaces = endless.data();
  test::expect_error(Code::config, {"list of interfaces", "has no end"}, [&] { read_descriptor(&d); });
  for (const char* id : {"", ".", "a..b", ".a", "a b", "a/b", static_cast<const char*>(nullptr)}) {
    d = desc(&kOption, sizeof kOption);
    d.id = id;
    test::expect_error(Code::config, {"no plugin id"}, [&] { read_descriptor(&d); });
  }
  for (const char* version : {"", "1", "1.2", "1.2.", "a.b.c", "1.2.3.4", static_cast<const char*>(nullptr)}) {
    d = desc(&kOption, sizeof kOption);
    d.version = version;
    test::expect_error(Code::config, {"not x.y.z"}, [&] { read_descriptor(&d); });
  }
  d = desc(&kOption, sizeof kOption);
  d.id = "org.team.hybrid", d.version = "1.2.3-rc1", d.summary = nullptr, d.vendor = "two\nlines";
  EXPECT_EQ(read_descriptor(&d).vendor, "two lines");
}

}  // namespace
}  // namespace shale
