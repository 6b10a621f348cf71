/* For the compatibility tests. Puts a late member of a host struct into a late member of its own. */
#include "shale/sharding.h"

static shale_status* plan(void* self, const shale_model* m, const shale_topology* t, const shale_sharding_builder* b) {
  (void)self, (void)m;
  SHALE_VAR(shale_unit_plan, u);
  u.shard_group = u.reshard_group = SHALE_GROUP_WORLD;
#if defined PROBE_CARELESS
  u.scratch_bytes = t->device_bytes;
#else
  u.scratch_bytes = SHALE_HAS(t, device_bytes) ? t->device_bytes : 7;
#endif
#if defined PROBE_OLD /* as if built before scratch_bytes: what follows is not part of the struct */
  u.struct_size = offsetof(shale_unit_plan, scratch_bytes);
  u.scratch_bytes = 0x5a5a5a5a5a5a5a5au;
#endif
  return b->set_unit(b->ctx, SHALE_ALL_UNITS, &u);
}
static const shale_sharding sharding = {sizeof sharding, 0, plan};

static shale_status* create(const shale_host* h, const shale_desc* d, const shale_config* c, void** self) {
  (void)h, (void)d, (void)c;
  *self = NULL;
  return NULL;
}
static void destroy(void* self) { (void)self; }
static const void* get_interface(void* self, const char* id) {
  (void)self;
  return strcmp(id, SHALE_SHARDING) ? NULL : &sharding;
}

static const char* const interfaces[] = {SHALE_SHARDING, NULL};
static const shale_desc desc = {.struct_size = sizeof desc,
                                .kind = SHALE_KIND_SHARDING,
                                .id = "probe",
                                .version = "0.1.0",
                                .summary = "for tests",
                                .caps = SHALE_CAP_CPU,
                                .interfaces = interfaces,
                                .option_stride = sizeof(shale_option)};
static const shale_desc* const descs[] = {&desc};
static const shale_plugin plugin = {sizeof plugin, SHALE_ABI_MAJOR, 1,       SHALE_ABI_MINOR, 0, 1,
                                    descs,         create,          destroy, get_interface};
const shale_plugin* shale_plugin_entry_v1(const shale_host* h) {
  (void)h;
  return &plugin;
}
