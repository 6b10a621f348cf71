// dcp: a folder of torch.distributed.checkpoint. Each rank writes the boxes it owns, rank 0 the .metadata.
#include "metadata.h"
#include "save.h"
#include "tensors.h"

using namespace shale::sdk;

class Dcp : public Checkpoint {
 public:
  static constexpr Info info{
      .id = "dcp",
      .version = "0.1.0",
      .summary = "a folder that torch.distributed.checkpoint loads; reads folders written by it"};
  using Checkpoint::Checkpoint;

  void format(shale_format& out) override {
    out.flags = SHALE_FORMAT_BOXES | SHALE_FORMAT_BYTES | SHALE_FORMAT_VALUES | SHALE_FORMAT_OPTIMIZER;
    out.dtypes = kHeld.data();
    out.file_bytes = 0;
  }
  void write(const shale_save& save) override { dcp::write(*this, save); }
  void finish(const shale_finish& all) override { dcp::finish(*this, all); }

  std::uint32_t probe(shale_folder* folder) override {
    const shale_files& files = service<shale_files>(SHALE_FILES_SERVICE);
    shale_str name{};
    for (std::uint32_t k = 0;; ++k) {
      ok(files.list(files.ctx, folder, k, &name));
      if (name.len == 0) return 0;
      if (view(name) == dcp::kMetadata) return 2;
    }
  }

  void describe(shale_folder* folder, const shale_index& index) override { dcp::describe(*this, folder, index); }

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
};
SHALE_PLUGIN(Dcp)
