// torch: one file as torch.save writes it. Whole tensors, one writer; read without executing anything.
#include <optional>

#include "save.h"
#include "state.h"

using namespace shale::sdk;

class Torch : public Checkpoint {
 public:
  static constexpr Info info{.id = "torch",
                             .version = "0.1.0",
                             .summary = "one file for torch.load(weights_only=True); reads files of torch.save"};
  using Checkpoint::Checkpoint;

  void format(shale_format& out) override {
    out.flags = SHALE_FORMAT_BYTES | SHALE_FORMAT_VALUES | SHALE_FORMAT_OPTIMIZER | SHALE_FORMAT_ALIASES |
                SHALE_FORMAT_ONE_WRITER;
    out.dtypes = kHeld.data();
    out.file_bytes = 0;
  }

  void write(const shale_save& save) override { torch_file::write(*this, save); }

  std::uint32_t probe(shale_folder* folder) override {
    const std::optional<std::string> name = file_in(folder);
    if (!name) return 0;
    torch_file::FileSource file(*this, folder, *name);
    if (file.size() < 4 || file.bytes(0, 4) != std::string_view("PK\3\4", 4)) return 0;
    return *name == torch_file::kFile ? 2 : 1;
  }

  void describe(shale_folder* folder, const shale_index& index) override {
    const std::optional<std::string> name = file_in(folder);
    if (!name)
      throw Error(SHALE_NOT_FOUND, torch_file::kFile, "is not in the folder, nor is one single file .pt, .pth or .bin");
    torch_file::FileSource file(*this, folder, *name);
    torch_file::Archive archive(file);
    torch_file::describe(*this, archive, index);
  }

  void read(shale_folder* folder, shale_str token, void* to, std::uint64_t n) {
    torch_file::FileSource file(*this, folder, torch_file::file_of(token));
    torch_file::read_strided(file, token, to, n);
  }

 private:
  static constexpr auto kHeld = [] {
    std::array<std::uint32_t, std::size(torch_file::kTypes) + 1> out{};
    for (std::size_t k = 0; k + 1 < out.size(); ++k) out[k] = torch_file::kTypes[k].dtype;
    return out;
  }();

  // Our own file, else the only one that looks like one of torch.save.
  std::optional<std::string> file_in(shale_folder* folder) const {
    const shale_files& files = service<shale_files>(SHALE_FILES_SERVICE);
    std::optional<std::string> found;
    bool several = false;
    shale_str name{};
    for (std::uint32_t k = 0;; ++k) {
      ok(files.list(files.ctx, folder, k, &name));
      if (name.len == 0) return several ? std::nullopt : found;
      const std::string_view text = view(name);
      if (text == torch_file::kFile) return std::string(text);
      if (!text.ends_with(".pt") && !text.ends_with(".pth") && !text.ends_with(".bin")) continue;
      several = several || found.has_value();
      found = text;
    }
  }
};
SHALE_PLUGIN(Torch)
