/* One plugin per case of the conformance kit, each wrong in the one way its macro names. */
#include <stdlib.h>

#include "shale/sharding.h"

struct bad {
  const shale_host* host;
  const shale_config* config;
};
static const shale_option options[] = {
#if defined BAD_OPTIONS
    {sizeof(shale_option), SHALE_OPT_INT, "size", "a number", "", "9", "1", "8", NULL},
#else
    {sizeof(shale_option), SHALE_OPT_INT, "size", "a number", "", "2", "1", "8", NULL},
#endif
};

static shale_status* plan(void* self, const shale_model* m, const shale_topology* t, const shale_sharding_builder* b) {
  const struct bad* p = self;
  (void)m, (void)p, (void)t;
  SHALE_VAR(shale_unit_plan, u);
  u.shard_group = u.reshard_group = SHALE_GROUP_WORLD;
#if defined BAD_BOUNDS
  if (p->config->values[0].i == 8) abort();
#elif defined BAD_NEWER_HOST
  if (t->struct_size != sizeof *t) return shale_fail(p->host, SHALE_UNSUPPORTED, "topology", "size %u", t->struct_size);
#elif defined BAD_HANG
  for (volatile int forever = 1; forever;) continue;
#elif defined BAD_REFUSALS
  shale_status* bad = b->set_unit(b->ctx, SHALE_ALL_UNITS, &u);
  if (bad) p->host->status_free(bad);
  return NULL;
#elif defined BAD_PLANS
  return b->set_unit(b->ctx, 0, &u);
#endif
  return b->set_unit(b->ctx, SHALE_ALL_UNITS, &u);
}
static const shale_sharding sharding = {sizeof sharding, 0, plan};

static shale_status* create(const shale_host* host, const shale_desc* d, const shale_config* config, void** self) {
  struct bad* p = malloc(sizeof *p);
  (void)d;
  *p = (struct bad){host, config};
  *self = p;
#if defined BAD_QUIET
  char variable[] = "SHALE_TEST_BAD_PLUGIN=1";
  putenv(strdup(variable));
#elif defined BAD_LIFECYCLE
  (void)shale_fail(host, SHALE_INTERNAL, "create", "made and forgotten");
#endif
  return NULL;
}
static const void* get_interface(void* self, const char* id) {
  (void)self;
#if defined BAD_INTERFACES
  return strncmp(id, SHALE_SHARDING, strlen(SHALE_SHARDING)) ? NULL : &sharding;
#else
  return strcmp(id, SHALE_SHARDING) ? NULL : &sharding;
#endif
}

static const char* const interfaces[] = {SHALE_SHARDING, NULL};
static const shale_desc desc = {.struct_size = sizeof desc,
                                .kind = SHALE_KIND_SHARDING,
#if defined BAD_DESCRIPTORS
                                .id = "Bad Id",
#else
                                .id = "bad",
#endif
                                .version = "0.1.0",
                                .summary = "for tests",
                                .interfaces = interfaces,
                                .options = options,
                                .n_options = 1,
                                .option_stride = sizeof *options};
static const shale_desc* const descs[] = {&desc};
#if defined BAD_VERSIONS
enum { kOldest = SHALE_ABI_MINOR + 1 };
#else
enum { kOldest = 1 };
#endif
static const shale_plugin plugins[] = {
    {sizeof(shale_plugin), SHALE_ABI_MAJOR, kOldest, SHALE_ABI_MINOR, 0, 1, descs, create, free, get_interface},
    {sizeof(shale_plugin), SHALE_ABI_MAJOR, kOldest, SHALE_ABI_MINOR, 0, 1, descs, create, free, get_interface}};

#if defined BAD_EXPORTS
SHALE_EXPORT int shale_test_leaked_symbol(void);
int shale_test_leaked_symbol(void) { return 0; }
#endif
const shale_plugin* shale_plugin_entry_v1(const shale_host* host) {
#if defined BAD_ENTRY
  static int calls;
  return &plugins[calls++ % 2];
#elif defined BAD_OTHER_MAJOR
  return host->get_service(host->ctx, "shale.log/1") ? NULL : plugins;
#else
  (void)host;
  return plugins;
#endif
}
