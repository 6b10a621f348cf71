#include "core/base/error.h"

namespace shale {

const char* code_name(Code code) {
  switch (code) {
    case Code::config: return "E-config";
    case Code::input: return "E-input";
    case Code::checkpoint: return "E-ckpt";
    case Code::dist: return "E-dist";
    case Code::io: return "E-io";
    case Code::numeric: return "E-num";
    case Code::internal: return "E-bug";
  }
  return "E-bug";
}

}  // namespace shale
