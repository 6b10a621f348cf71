/* split: a unit is split over `ways` neighbouring ranks; the groups of `ways` hold copies of each other. */
#include <stdlib.h>

#include "shale/sharding.h"

struct split {
  const shale_host* host;
  const shale_config* config;
};
static const shale_option options[] = {
    {sizeof(shale_option), SHALE_OPT_INT, "ways", "ranks that split a unit", "ranks", "2", "1", "65536", NULL}};

static shale_status* plan(void* self, const shale_model* m, const shale_topology* t, const shale_sharding_builder* b) {
  const struct split* p = self;
  const uint32_t ways = (uint32_t)p->config->values[0].i;
  if (t->world % ways)
    return shale_fail(p->host, SHALE_BAD_OPTION, "ways", "must divide the %u ranks (got %u)", t->world, ways);
  SHALE_VAR(shale_unit_plan, u);
  shale_status* bad = b->add_blocks(b->ctx, ways, &u.shard_group);
  if (!bad) bad = b->add_strides(b->ctx, ways, &u.replica_group);
  u.reshard_group = u.shard_group;
  u.replica_at = SHALE_AT_BOUNDARY;
  u.prefetch = 1;
  if (!bad) bad = b->set_unit(b->ctx, SHALE_ALL_UNITS, &u);
  u.reshard_group = SHALE_GROUP_SELF; /* its backward follows its forward at once: keep its weights */
  return bad ? bad : b->set_unit(b->ctx, shale_last_unit(m), &u);
}

static shale_status* create(const shale_host* host, const shale_desc* d, const shale_config* config, void** self) {
  struct split* p = malloc(sizeof *p);
  if (!p) return shale_fail(host, SHALE_OUT_OF_MEMORY, d->id, "%zu bytes", sizeof *p);
  *p = (struct split){host, config};
  *self = p;
  return NULL;
}
static const shale_sharding sharding = {sizeof sharding, 0, plan};
static const void* get_interface(void* self, const char* id) {
  (void)self;
  return strcmp(id, SHALE_SHARDING) ? NULL : &sharding;
}

static const char* const interfaces[] = {SHALE_SHARDING, NULL};
static const shale_desc desc = {.struct_size = sizeof desc,
                                .kind = SHALE_KIND_SHARDING,
                                .id = "split",
                                .version = "1.0.0",
                                .summary = "units split over neighbouring ranks",
                                .caps = SHALE_CAP_CPU | SHALE_CAP_CUDA,
                                .interfaces = interfaces,
                                .options = options,
                                .n_options = 1,
                                .option_stride = sizeof *options};
static const shale_desc* const descs[] = {&desc};
static const shale_plugin plugin = {sizeof plugin, SHALE_ABI_MAJOR, 1,    SHALE_ABI_MINOR, 0, 1,
                                    descs,         create,          free, get_interface};
const shale_plugin* shale_plugin_entry_v1(const shale_host* host) {
  (void)host;
  return &plugin;
}
