// Thousands of damaged files, the same ones each time, in little memory: an error or an index, never anything else.
#include <random>

#include <sys/resource.h>

#include <gtest/gtest.h>

#include "files.h"
#include "items.h"

namespace shale::test {
namespace {

// Whoever asks for much more than the process has now gets std::bad_alloc, which the plugin reports as such.
class MemoryCap {
 public:
  explicit MemoryCap(rlim_t more) {
    getrlimit(RLIMIT_DATA, &before_);
    rlimit now = before_;
    now.rlim_cur = more;
    setrlimit(RLIMIT_DATA, &now);
    EXPECT_THROW(std::string(2 * more, 'x'), std::bad_alloc) << "the cap does not hold";
  }
  ~MemoryCap() { setrlimit(RLIMIT_DATA, &before_); }

 private:
  rlimit before_{};
};

std::string sample() {
  FormatOnFolder folder(SHALE_PLUGIN_FILE);
  const std::string data(24, 'd');
  folder.save({{SHALE_ITEM_TENSOR, SHALE_ROLE_WEIGHT, SHALE_F32, "a.weight", "weight", "", "", {2, 3}, data},
               {SHALE_ITEM_TENSOR, SHALE_ROLE_WEIGHT, SHALE_F32, "b.weight", "weight", "a.weight", "", {2, 3}, ""},
               {SHALE_ITEM_TENSOR, SHALE_ROLE_OPTIMIZER, SHALE_F32, "a.weight", "exp_avg", "", "", {2, 3}, data},
               {SHALE_ITEM_VALUE, SHALE_ROLE_OPTIMIZER, 0, "a.weight", "step", "", "int 7", {}, ""},
               {SHALE_ITEM_BYTES, SHALE_ROLE_RUN, SHALE_U8, "run", "rng", "", "", {5}, "hello"},
               {SHALE_ITEM_VALUE, SHALE_ROLE_RUN, 0, "run", "lr", "", "float 0.5", {}, ""}});
  return folder.files().at("checkpoint.pt");
}

void mutate(std::string& text, std::mt19937& random) {
  static constexpr const char* kOpcodes = "(.0123tube}])\x85\x86\x87sacNKMJXqrhjQRb\x80\x81\x8a\x8c\x93\x94\x95";
  const std::size_t at = random() % text.size();
  switch (random() % 6) {
    case 0:
      text[at] = static_cast<char>(random());
      break;
    case 1:
      text[at] = static_cast<char>(text[at] ^ (1 << random() % 8));
      break;
    case 2:
      text[at] = kOpcodes[random() % std::char_traits<char>::length(kOpcodes)];
      break;
    case 3:
      text.erase(at, random() % 20);
      break;
    case 4:
      text.insert(at, text.substr(random() % text.size(), random() % 40));
      break;
    default:
      text.replace(at, 4, little(random() % 2 ? random() : 0xffffffff, 4));
      break;
  }
}

struct Count {
  int opened = 0, refused = 0;
};

void attempt(FormatOnFolder& folder, const std::string& file, Count& count) {
  folder.files()["checkpoint.pt"] = file;
  folder.probe();
  try {
    folder.describe();
    ++count.opened;
  } catch (const std::runtime_error& bad) {
    ++count.refused;
    const std::string text = bad.what();
    EXPECT_EQ(text.find('\n'), std::string::npos) << text;
    EXPECT_EQ(text.find("host memory"), std::string::npos) << "asked for more memory than such a file may need";
    EXPECT_LT(text.size(), 400u) << text;
  }
  ASSERT_EQ(folder.live(), 0);
}

TEST(TorchFuzz, WholeFiles) {
  const std::string good = sample();
  FormatOnFolder folder(SHALE_PLUGIN_FILE);
  const MemoryCap cap(rlim_t{64} << 20);
  std::mt19937 random(5);
  Count count;
  for (int round = 0; round < 6000; ++round) {
    std::string file = good;
    for (unsigned k = 0; k < 1 + random() % 3; ++k) mutate(file, random);
    attempt(folder, file, count);
  }
  EXPECT_GT(count.opened, 0);
  EXPECT_GT(count.refused, 0);
}

// In a zip file that is right, so that the pickle gets all of the damage.
TEST(TorchFuzz, Pickles) {
  const std::string good = tensor_pickle({});
  FormatOnFolder folder(SHALE_PLUGIN_FILE);
  const MemoryCap cap(rlim_t{64} << 20);
  std::mt19937 random(6);
  Count count;
  for (int round = 0; round < 20000; ++round) {
    std::string pickle = good;
    for (unsigned k = 0; k < 1 + random() % 3; ++k) mutate(pickle, random);
    attempt(folder, torch_file_of(pickle), count);
  }
  EXPECT_GT(count.opened, 0);
  EXPECT_GT(count.refused, 0);
}

}  // namespace
}  // namespace shale::test
