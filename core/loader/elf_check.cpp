#include "core/loader/elf_check.h"

#include <elf.h>

#include <cerrno>
#include <cstring>
#include <fstream>

#include "core/base/error.h"

namespace shale {
namespace {

#if defined(__x86_64__)
constexpr unsigned kMachine = EM_X86_64;
#elif defined(__aarch64__)
constexpr unsigned kMachine = EM_AARCH64;
#else
#error "add the ELF machine number of this processor"
#endif

bool read_at(std::ifstream& in, std::uint64_t offset, void* to, std::size_t n) {
  in.clear();
  in.seekg(static_cast<std::streamoff>(offset));
  in.read(static_cast<char*>(to), static_cast<std::streamsize>(n));
  return in.gcount() == static_cast<std::streamsize>(n);
}

std::string header_problem(const Elf64_Ehdr& h) {
  if (std::memcmp(h.e_ident, ELFMAG, SELFMAG) != 0) return "it is not a shared library";
  if (h.e_ident[EI_CLASS] != ELFCLASS64 || h.e_ident[EI_DATA] != ELFDATA2LSB || h.e_machine != kMachine)
    return str("it was built for another kind of machine (ELF machine ", h.e_machine, ", here ", kMachine, ")");
  if (h.e_type != ET_DYN) return "it is an ELF file, but not a shared library";
  if (h.e_phentsize != sizeof(Elf64_Phdr) || h.e_phnum == 0 || h.e_phnum == PN_XNUM) return "its ELF header is damaged";
  return "";
}

std::string segment_problem(std::ifstream& in, const Elf64_Ehdr& h, std::uint64_t size) {
  bool dynamic = false;
  for (unsigned k = 0; k < h.e_phnum; ++k) {
    Elf64_Phdr p;
    const std::uint64_t at = k * sizeof p;
    if (h.e_phoff > size || size - h.e_phoff < at + sizeof p || !read_at(in, h.e_phoff + at, &p, sizeof p))
      return str("it is cut off: its program headers end beyond its ", size, " bytes");
    if (p.p_type == PT_DYNAMIC) dynamic = true;
    if (p.p_type != PT_LOAD && p.p_type != PT_DYNAMIC) continue;
    if (p.p_offset > size || size - p.p_offset < p.p_filesz)
      return str("it is cut off: it has ", size, " bytes, its segment ", k, " needs more: copy it again");
  }
  return dynamic ? "" : "it is an ELF file, but not a shared library";
}

}  // namespace

std::string elf_problem(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) fail(Code::io, path, ": cannot be opened: ", std::strerror(errno));
  in.seekg(0, std::ios::end);
  const auto end = in.tellg();
  if (end < 0) fail(Code::io, path, ": cannot be read; is it a folder?");
  const auto size = static_cast<std::uint64_t>(end);
  if (size == 0) return "it is empty";
  Elf64_Ehdr header;
  if (!read_at(in, 0, &header, sizeof header)) return "it is not a shared library";
  const std::string problem = header_problem(header);
  return problem.empty() ? segment_problem(in, header, size) : problem;
}

}  // namespace shale
