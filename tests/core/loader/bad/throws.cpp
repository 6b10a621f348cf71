// Throws where the option says, as no plugin may.
#include <stdexcept>

#include "shale/sharding.h"

namespace {

const shale_option kOptions[] = {
    {sizeof(shale_option), SHALE_OPT_CHOICE, "at", "where", "", "plan", nullptr, nullptr, "create|interface|plan|int"}};
const char* const kInterfaces[] = {SHALE_SHARDING, nullptr};
const shale_desc kDesc = {
    sizeof(shale_desc),  SHALE_KIND_SHARDING, "throws", "1.0.0", "", "", "", "", 1, kInterfaces, nullptr, kOptions, 1,
    sizeof(shale_option)};
const shale_desc* const kDescs[] = {&kDesc};
int at = 0;

shale_status* create(const shale_host*, const shale_desc*, const shale_config* config, void**) {
  at = static_cast<int>(config->values[0].i);
  if (at == 0) throw std::runtime_error("thrown in create");
  return nullptr;
}
const shale_sharding kTable = {
    sizeof(shale_sharding), 0,
    [](void*, const shale_model*, const shale_topology*, const shale_sharding_builder*) -> shale_status* {
      if (at == 3) throw 7;
      throw std::runtime_error("thrown in plan");
    }};
const void* get_interface(void*, const char*) {
  if (at == 1) throw std::runtime_error("thrown in get_interface");
  return &kTable;
}
const shale_plugin kPlugin = {sizeof(shale_plugin),
                              SHALE_ABI_MAJOR,
                              1,
                              SHALE_ABI_MINOR,
                              0,
                              1,
                              kDescs,
                              create,
                              [](void*) { throw std::runtime_error("thrown in destroy"); },
                              get_interface};

}  // namespace

extern "C" SHALE_EXPORT const shale_plugin* shale_plugin_entry_v1(const shale_host*) { return &kPlugin; }
