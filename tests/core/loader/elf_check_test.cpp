#include "core/loader/elf_check.h"

#include <elf.h>

#include <cstring>
#include <random>

#include "core/loader/inspect.h"
#include "support.h"

namespace shale {
namespace {

using test::bad;

TEST(ElfCheck, AcceptsPluginsAndRefusesPrograms) {
  EXPECT_EQ(elf_problem(bad("good")), "");
  EXPECT_EQ(elf_problem(bad("throws")), "");
  const test::TempFolder folder;
  std::string other = test::content_of(bad("good"));
  other[offsetof(Elf64_Ehdr, e_machine)] = 2;  // SPARC
  test::expect_contains(elf_problem(folder.write("other.so", other)), {"another kind of machine"});
  std::string object = test::content_of(bad("good"));
  object[offsetof(Elf64_Ehdr, e_type)] = ET_REL;
  test::expect_contains(elf_problem(folder.write("object.so", object)), {"not a shared library"});
}

TEST(ElfCheck, MissingAndUnreadable) {
  test::expect_error(Code::io, {"/nowhere/x.so", "cannot be opened"}, [] { elf_problem("/nowhere/x.so"); });
}

TEST(ElfCheck, DamageNeverCrashes) {
  const test::TempFolder folder;
  const std::string whole = test::content_of(bad("good"));
  std::mt19937 random(3);
  for (int k = 0; k < 3000; ++k) {
    std::string damaged = whole.substr(0, random() % 3 == 0 ? random() % whole.size() : whole.size());
    for (int n = 0; n < 4 && !damaged.empty(); ++n)
      damaged[random() % std::min<std::size_t>(damaged.size(), 600)] = static_cast<char>(random());
    try {
      elf_problem(folder.write("damaged.so", damaged));
    } catch (const Error&) {
    }
  }
}

// Whatever its length, a file that was cut off is reported, not mapped: mapping it would end in SIGBUS.
TEST(ElfCheck, EveryTruncationIsReported) {
  const test::TempFolder folder;
  const std::string whole = test::content_of(bad("good"));
  std::size_t needed = 0;  // bytes the loader maps
  const auto* header = reinterpret_cast<const Elf64_Ehdr*>(whole.data());
  for (int k = 0; k < header->e_phnum; ++k) {
    const auto* p = reinterpret_cast<const Elf64_Phdr*>(whole.data() + header->e_phoff) + k;
    if (p->p_type == PT_LOAD) needed = std::max<std::size_t>(needed, p->p_offset + p->p_filesz);
  }
  for (std::size_t size = 0; size < whole.size(); size += 501) {
    const std::string path = folder.write("cut.so", whole.substr(0, size));
    if (size < needed) {
      EXPECT_NE(elf_problem(path), "") << size;
    } else {
      EXPECT_EQ(plugin_info(path).problem, "") << size;
    }
  }
}

}  // namespace
}  // namespace shale
