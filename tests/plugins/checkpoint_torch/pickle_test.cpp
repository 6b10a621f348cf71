// The pickle side: opcodes, names, tensors; and what saving refuses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "files.h"
#include "items.h"

namespace shale::test {
namespace {

using ::testing::HasSubstr;

std::string problem(const std::string& pickle) {
  FormatOnFolder folder(SHALE_PLUGIN_FILE);
  folder.files()["checkpoint.pt"] = torch_file_of(pickle);
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

// Opcodes of one pickle of protocol 2.
std::string ops(const std::string& text) { return problem("\x80\x02" + text); }
std::string tensor(const TensorOps& ops) { return problem(tensor_pickle(ops)); }

TEST(TorchPickle, StreamsThatBreakOff) {
  EXPECT_EQ(problem(""), "data.pkl: byte 0: does not begin as a pickle of protocol 2 to 5");
  EXPECT_EQ(problem("}."), "data.pkl: byte 0: does not begin as a pickle of protocol 2 to 5");
  EXPECT_EQ(problem("\x80\x06}."), "data.pkl: byte 0: protocol 6 cannot be read, only 2 to 5");
  EXPECT_EQ(problem("\x80\x01}."), "data.pkl: byte 0: protocol 1 cannot be read, only 2 to 5");
  EXPECT_EQ(ops("}"), "data.pkl: byte 3: the pickle ends too early");
  const std::string good = tensor_pickle({});
  ASSERT_EQ(problem(good), "");
  for (std::size_t n = 0; n < good.size(); ++n) EXPECT_NE(problem(good.substr(0, n)), "") << n;
  EXPECT_EQ(ops("}.x"), "data.pkl: byte 3: bytes follow the end of the pickle");
  EXPECT_EQ(ops("\x80\x02}."), "data.pkl: byte 2: a second beginning");
  EXPECT_EQ(ops("\x95" + little(9, 8) + "}."), "data.pkl: byte 2: a frame reaches past the end");
}

TEST(TorchPickle, LengthsBeyondTheFileAllocateNothing) {
  const std::string early = "data.pkl: byte 2: the pickle ends too early";
  EXPECT_EQ(ops("X\xff\xff\xff\x7f."), early);
  EXPECT_EQ(ops("\x8d" + little(~std::uint64_t{0}, 8) + "."), early);
  EXPECT_EQ(ops("B\xff\xff\xff\xff."), early);
  EXPECT_EQ(ops("\x8e" + little(std::uint64_t{1} << 62, 8) + "."), early);
  EXPECT_EQ(ops("}r\xff\xff\xff\xff."), "data.pkl: byte 3: memo 4294967295 is out of range");
  EXPECT_EQ(ops("j\xff\xff\xff\xff."), "data.pkl: byte 2: memo 4294967295 is empty");
  EXPECT_EQ(ops("}q\x05h\x04."), "data.pkl: byte 5: memo 4 is empty");
}

TEST(TorchPickle, StacksThatDoNotFit) {
  for (const char* text : {".", "}}.", "(}.", "}(."})
    EXPECT_THAT(ops(text), HasSubstr("the stack does not end with one value")) << text;
  for (const char* text : {"0.", "\x85.", "R.", "Q.", "b.", "a.", "s.", "q\x01.", "\x94.", "(0."})
    EXPECT_THAT(ops(text), HasSubstr("takes a value from an empty stack")) << text;
  for (const char* text : {"t.", "e.", "u.", "1."})
    EXPECT_THAT(ops(text), HasSubstr("there is no mark on the stack")) << text;
  EXPECT_THAT(ops("}K\x01\x61."), HasSubstr("appends to what is no list"));
  EXPECT_THAT(ops("](K\x01K\x02u."), HasSubstr("puts pairs into what is no dict"));
  EXPECT_THAT(ops("}(K\x01u."), HasSubstr("puts pairs into what is no dict"));
}

TEST(TorchPickle, OnlyKnownNamesAndOpcodes) {
  EXPECT_EQ(ops("cos\nsystem\n" + text_op("true") + "\x85R."),
            "data.pkl: byte 2: names 'os.system', which is not allowed");
  EXPECT_THAT(problem("\x80\x04\x8c\x05posix\x8c\x06system\x93."), HasSubstr("names 'posix.system', which is not"));
  EXPECT_THAT(ops("c" + std::string(500, 'a') + "\n\x1b[31m\n."), HasSubstr("aaa...', which is not allowed"));
  EXPECT_THAT(ops("ctorch\n\x01\n."), HasSubstr("'torch.?'"));
  EXPECT_EQ(ops("P1\n."), "data.pkl: byte 2: the opcode 0x50 is not among those that can be read");
  EXPECT_THAT(ops("ios\nsystem\n."), HasSubstr("the opcode 0x69"));
  EXPECT_THAT(ops("\x82\x01."), HasSubstr("the opcode 0x82"));
  EXPECT_THAT(ops("K\x01)R."), HasSubstr("calls what is no known name"));
  EXPECT_THAT(ops("ctorch\nSize\nK\x01R."), HasSubstr("the arguments of a call are no tuple"));
  EXPECT_THAT(ops("]}b."), HasSubstr("gives state to what takes none"));
  EXPECT_THAT(ops("\x8a\x09" + std::string(9, 'x') + "."), HasSubstr("an integer of more than 64 bits"));
}

TEST(TorchPickle, StructuresThatTurnInOnThemselves) {
  EXPECT_THAT(ops("}q\x01" + text_op("a") + "h\x01s."), HasSubstr("is nested too deep, or holds itself"));
  std::string deep;
  for (int k = 0; k < 100; ++k) deep = "}" + text_op("a") + deep;
  EXPECT_THAT(ops(deep + "}" + std::string(100, 's') + "."), HasSubstr("is nested too deep"));
  // Each of 25 dicts holds the one before twice: 2^25 leaves of a few hundred bytes.
  std::string bomb = "}" + text_op("x") + "K\x01sq" + little(0, 1) + "0";
  for (int k = 1; k < 26; ++k)
    bomb += "}(" + text_op("a") + "h" + little(k - 1, 1) + text_op("b") + "h" + little(k - 1, 1) + "uq" + little(k, 1) +
            (k < 25 ? "0" : "");
  EXPECT_THAT(ops(bomb + "."), HasSubstr("is nested too deep, or holds itself"));
  EXPECT_EQ(ops("}(" + text_op("a") + "K\x01" + text_op("a") + "K\x02u."), "data.pkl: a dict has the key 'a' twice");
  EXPECT_THAT(ops("}(" + text_op(std::string(300, 'n')) + "K\x01u."), HasSubstr("is too long"));
  EXPECT_THAT(ops("}N]s."), HasSubstr("a key that is neither text nor an integer"));
  EXPECT_EQ(ops("]."), "data.pkl: holds no dict of tensors");
}

TEST(TorchPickle, TensorsStayInsideTheirStorage) {
  ASSERT_EQ(tensor({}), "");
  EXPECT_EQ(tensor({.numel = "J\x40\x42\x0f" + std::string(1, '\0')}),
            "data.pkl: 'data/0' has 24 bytes, not 1000000 elements of 4");
  EXPECT_EQ(tensor({.numel = "K\x05"}), "data.pkl: 'data/0' has 24 bytes, not 5 elements of 4");
  EXPECT_EQ(tensor({.numel = "\x8a\x08" + little(std::uint64_t{1} << 62 | 6, 8)}),
            "data.pkl: 'data/0' has 24 bytes, not 4611686018427387910 elements of 4");
  EXPECT_EQ(tensor({.numel = "J\xff\xff\xff\xff"}), "data.pkl: the length of a storage is no size");
  const std::string outside = "data.pkl: a tensor reaches outside the 6 elements of 'data/0'";
  EXPECT_EQ(tensor({.offset = "K\x01"}), outside);
  EXPECT_EQ(tensor({.shape = "K\x03K\x03\x86"}), outside);
  EXPECT_EQ(tensor({.strides = "K\x04K\x01\x86"}), outside);
  EXPECT_EQ(tensor({.shape = "K\x07K\x01\x86", .strides = std::string("K\0K\0\x86", 5)}), outside);
  const std::string large = "\x8a\x08" + little(INT64_MAX, 8);
  EXPECT_EQ(tensor({.offset = large}), outside);
  EXPECT_EQ(tensor({.shape = large + large + "\x86"}), outside);
  EXPECT_EQ(tensor({.strides = large + large + "\x86"}), outside);
  EXPECT_EQ(tensor({.shape = "K\x02J\xff\xff\xff\xff\x86"}), "data.pkl: a dimension of a tensor is no size");
  EXPECT_EQ(tensor({.strides = "K\x01\x85"}), "data.pkl: a tensor has other strides than dimensions");
  EXPECT_EQ(tensor({.shape = "(" + std::string(9, 'N') + "t"}), "data.pkl: a tensor of more than 8 dimensions");
  EXPECT_EQ(tensor({.type = "ctorch\nfloat32\n"}), "data.pkl: the storage of a tensor has no type of storage");
  EXPECT_EQ(tensor({.type = "ctorch.storage\nUntypedStorage\n", .numel = "K\x18"}), "data.pkl: a tensor without dtype");
  EXPECT_EQ(tensor({.key = "../0"}), "the record 'data/../0' is missing");
}

// The same range of the pickle is a tensor only if it is called as one.
TEST(TorchPickle, ThingsThatAreNoTensors) {
  EXPECT_EQ(ops("}" + text_op("w") + text_op("0") + "Qs."),
            "data.pkl: 'w' is neither a tensor nor a number, a text or a list of such");
  EXPECT_EQ(ops("}" + text_op("w") + "ctorch._utils\n_rebuild_tensor_v2\n)Rs."), "data.pkl: a tensor of 0 arguments");
  EXPECT_EQ(ops("}" + text_op("w") + "ctorch._utils\n_rebuild_parameter\nK\x01\x85Rs."),
            "data.pkl: a parameter that is no tensor");
}

TEST(TorchPickle, ParametersOfParametersAreRefused) {
  const std::string inner = "ctorch._utils\n_rebuild_parameter\n";
  EXPECT_EQ(ops("}" + text_op("w") + inner + inner + "K\x01\x85R\x85Rs."), "data.pkl: a parameter that is no tensor");
}

TEST(TorchPickle, FilesOfThisFormatKeepToIt) {
  const auto own = [](const std::string& rest) { return ops("}(" + text_op("shale") + "}(" + rest + "u."); };
  const std::string version = text_op("version") + "K\x01", lists = text_op("buffers") + "]" + text_op("bytes") + "]";
  EXPECT_EQ(own(version + lists + "u"), "");
  EXPECT_EQ(own(text_op("version") + "K\x02u"), "was written in a version of this format that is not known");
  EXPECT_EQ(own(version + "u"), "data.pkl: has no list of buffers");
  EXPECT_EQ(own(version + lists + "u" + text_op("other") + "}"),
            "data.pkl: has the section 'other', which is not known");
  EXPECT_EQ(own(version + lists + "u" + text_op("run") + "N"), "data.pkl: a section of the file is no dict");
  EXPECT_EQ(own(version + lists + "u" + text_op("run") + "}" + text_op("a") + "Ns"),
            "data.pkl: '3/run/a' is neither a tensor nor a value");
}

TEST(TorchSave, RefusesWhatOneFileOfOneRankCannotHold) {
  const auto refusal = [](const Stored& item, std::uint32_t writers = 1) -> std::string {
    try {
      FormatOnFolder(SHALE_PLUGIN_FILE).save({item}, writers);
    } catch (const std::runtime_error& bad) {
      return bad.what();
    }
    return "";
  };
  const Stored good{SHALE_ITEM_TENSOR, SHALE_ROLE_WEIGHT, SHALE_F32, "w", "weight", "", "", {2}, "12345678"};
  EXPECT_EQ(refusal(good), "");
  EXPECT_EQ(refusal(good, 2), "checkpoint: this format is one file, which one rank writes");
  Stored bad = good;
  bad.bytes = "1234";
  EXPECT_EQ(refusal(bad), "1/w/weight: this format holds whole tensors and this is a part of one");
  bad = good;
  bad.key = "other";
  EXPECT_EQ(refusal(bad), "1/w/other: this format has no place for it");
  bad = good;
  bad.alias_of = "nothing";
  EXPECT_EQ(refusal(bad), "1/w/weight: is tied to what is not saved with it");
}

}  // namespace
}  // namespace shale::test
