/* One option of every type, and what create and plan do with them: fails as `fail` says. */
#include "shale/sharding.h"
#define O(type, key, unit, fallback, min, max, choices) \
  { sizeof(shale_option), type, key, "help of " key, unit, fallback, min, max, choices }
static const shale_option options[] = {
    O(SHALE_OPT_BOOL, "flag", "", "true", NULL, NULL, NULL),
    O(SHALE_OPT_INT, "shard_size", "ranks", "8", "1", "64", NULL),
    O(SHALE_OPT_FLOAT, "ratio", "", "0.5", "0", "1.0", NULL),
    O(SHALE_OPT_TEXT, "name", "", "some text", NULL, NULL, NULL),
    O(SHALE_OPT_CHOICE, "when", "", "always", NULL, NULL, "never|always|at_boundary"),
    O(SHALE_OPT_BYTES, "bucket", "", "4MiB", "1KiB", "1GiB", NULL),
    O(SHALE_OPT_SECONDS, "wait", "", "30s", "1s", "5min", NULL),
    O(SHALE_OPT_PATH, "file", "", "", NULL, NULL, NULL),
    O(SHALE_OPT_TEXTS, "skip", "", "[\"norm\", \"bias\"]", NULL, NULL, NULL),
    O(SHALE_OPT_CHOICE, "fail", "", "no", NULL, NULL, "no|create|create_other|plan|plan_other"),
};
#define ID "options"
#define OPTIONS options, sizeof options / sizeof *options, sizeof(shale_option)
#define DESCS \
  { &sharding_desc }
#define N_DESCS 1
#define CREATE create_or_fail
#define SHARDING_PLAN plan_or_fail
static shale_status* create_or_fail(const shale_host*, const shale_desc*, const shale_config*, void**);
static shale_status* plan_or_fail(void*, const shale_model*, const shale_topology*, const shale_sharding_builder*);
#include "good.h"

static shale_status* create_or_fail(const shale_host* h, const shale_desc* d, const shale_config* c, void** self) {
  if (c->values[9].i == 1)
    return shale_fail(h, SHALE_BAD_OPTION, "shard_size", "must divide 8 (got %lld)", (long long)c->values[1].i);
  if (c->values[9].i == 2) return shale_fail(h, SHALE_OUT_OF_MEMORY, "a table", "of\n%d bytes", 12);
  return create(h, d, c, self);
}
static shale_status* plan_or_fail(void* self, const shale_model* m, const shale_topology* t,
                                  const shale_sharding_builder* b) {
  SHALE_VAR(shale_unit_plan, u);
  (void)self, (void)m, (void)t;
  if (config->values[9].i == 3)
    return shale_fail(host, SHALE_BAD_OPTION, "shard_size", "must divide %u (got %lld)", t->world,
                      (long long)config->values[1].i);
  if (config->values[9].i == 4) return shale_fail(host, SHALE_NOT_FINITE, "layer 3", "is not finite");
  return b->set_unit(b->ctx, SHALE_ALL_UNITS, &u);
}
