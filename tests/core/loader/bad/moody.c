/* Plans badly in the way the option `mood` says. */
#include "shale/checkpoint.h"
#include "shale/offload.h"
#include "shale/precision.h"
#include "shale/sharding.h"
static const shale_option options[] = {
    {sizeof(shale_option), SHALE_OPT_TEXT, "mood", "", "", "good", NULL, NULL, NULL}};
#define ID "moody"
#define OPTIONS options, 1, sizeof(shale_option)
#define SHARDING_PLAN moody_sharding
#define PRECISION_PLAN moody_precision
#define OFFLOAD_PLAN moody_offload
static shale_status* moody_sharding(void*, const shale_model*, const shale_topology*, const shale_sharding_builder*);
static shale_status* moody_precision(void*, const shale_model*, const shale_topology*, const shale_precision_builder*);
static shale_status* moody_offload(void*, const shale_model*, const shale_topology*, const shale_offload_ask*,
                                   const shale_offload_builder*);
#include "good.h"

static int mood(const char* is) {
  const shale_str s = config->values[0].s;
  return s.len == strlen(is) && memcmp(s.ptr, is, s.len) == 0;
}

/* Blocks of 2 with replicas across, its groups checked, and the dtypes of the precision plan too. */
static shale_status* hybrid(const shale_model* m, const shale_topology* t, const shale_sharding_builder* b) {
  SHALE_VAR(shale_unit_plan, u);
  uint32_t again = 0;
  shale_status* bad = b->add_blocks(b->ctx, 2, &u.shard_group);
  if (!bad) bad = b->add_strides(b->ctx, 2, &u.replica_group);
  if (!bad) bad = b->add_colors(b->ctx, t->node_of_rank, t->world, &again);
  if (!bad) bad = b->set_slots(b->ctx, 3, 2);
  if (bad) return bad;
  u.reshard_group = u.shard_group, u.replica_at = SHALE_AT_BOUNDARY, u.align = 16;
  if (again != u.shard_group)
    return shale_fail(host, SHALE_INTERNAL, "", "equal groups have ids %u %u", again, u.shard_group);
  if (m->units[0]->params[0]->compute_dtype != SHALE_F32) return shale_fail(host, SHALE_INTERNAL, "", "no dtypes");
  return b->set_unit(b->ctx, SHALE_ALL_UNITS, &u);
}

/* One good state and one that is wrong in one way. */
static shale_status* states(const shale_model* m, const shale_sharding_builder* b) {
  uint32_t id = 7;
  SHALE_VAR(shale_state, s);
  s.scope = SHALE_STATE_SHARD, s.unit = SHALE_ALL_UNITS, s.dtype = SHALE_F32, s.name = shale_text("good_1");
  s.first = SHALE_STATE_MASTER, s.on_host = 1;
  shale_status* bad = b->add_state(b->ctx, &s, &id);
  if (bad) return bad;
  if (id != 0) return shale_fail(host, SHALE_INTERNAL, "", "the first state is %u", id);
  s.name = shale_text("next");
  if (mood("state twice")) s.name = shale_text("good_1");
  if (mood("state Name")) s.name = shale_text("Next");
  if (mood("state null name")) s.name.ptr = NULL;
  if (mood("state scope")) s.scope = 4;
  if (mood("state unit")) s.unit = m->n_units;
  if (mood("state dtype")) s.dtype = SHALE_BOOL;
  if (mood("state first")) s.first = 3;
  if (mood("state master")) s.scope = SHALE_STATE_RANK, s.numel = 5;
  if (mood("state normal")) s.first = SHALE_STATE_NORMAL, s.dtype = SHALE_I32;
  if (mood("state reshape")) s.on_reshape = 2;
  if (mood("state host")) s.on_host = 2;
  if (mood("state numel")) s.numel = 5;
  if (mood("state no numel")) s.scope = SHALE_STATE_GLOBAL, s.first = SHALE_STATE_FILL;
  if (mood("state fill")) s.first = SHALE_STATE_FILL, s.dtype = SHALE_I8, s.fill = 128;
  if (mood("state part")) s.first = SHALE_STATE_FILL, s.dtype = SHALE_U8, s.fill = 0.5;
  if (mood("state short")) s.struct_size = offsetof(shale_state, name);
  return b->add_state(b->ctx, &s, mood("state null") ? NULL : &id);
}

static shale_status* moody_sharding(void* self, const shale_model* m, const shale_topology* t,
                                    const shale_sharding_builder* b) {
  uint32_t group = 0;
  SHALE_VAR(shale_unit_plan, u);
  (void)self, (void)m, (void)t;
  if (mood("says nothing")) return host->status_make(host->ctx, SHALE_INTERNAL, shale_text(""), shale_text(""));
  if (mood("unknown code")) return shale_fail(host, 4711, "somewhere", "went wrong");
  if (mood("cancelled")) return shale_fail(host, SHALE_CANCELLED, "", "the run is ending");
  if (mood("no unit")) return NULL;
  if (mood("one unit")) return b->set_unit(b->ctx, 0, &u);
  if (mood("wrong unit")) return b->set_unit(b->ctx, m->n_units, &u);
  if (mood("null unit")) return b->set_unit(b->ctx, 0, NULL);
  if (mood("short unit")) u.struct_size = offsetof(shale_unit_plan, scratch_bytes);
  if (mood("bad group")) u.shard_group = 9;
  if (mood("bad gather")) u.gather_at = 2;
  if (mood("bad reduce")) u.reduce_at = 2;
  if (mood("bad replica")) u.replica_at = 3;
  if (mood("far prefetch")) u.prefetch = 0xffffffffu;
  if (mood("never")) u.replica_at = SHALE_NEVER;
  if (mood("outer")) u.outer_every = 10;
  if (mood("delay")) u.outer_delay = 3;
  if (mood("bad join")) u.join = 2;
  if (mood("much scratch")) u.scratch_bytes = ~0ull;
  if (config->values[0].s.len > 6 && memcmp(config->values[0].s.ptr, "state ", 6) == 0) {
    shale_status* bad = states(m, b);
    if (bad) return bad;
  }
  if (mood("bad block")) return b->add_blocks(b->ctx, 3, &group);
  if (mood("no block")) return b->add_blocks(b->ctx, 0, &group);
  if (mood("bad stride")) return b->add_strides(b->ctx, 5, &group);
  if (mood("short colors")) return b->add_colors(b->ctx, t->node_of_rank, t->world - 1, &group);
  if (mood("null colors")) return b->add_colors(b->ctx, NULL, t->world, &group);
  if (mood("null group")) return b->add_blocks(b->ctx, 2, NULL);
  if (mood("many slots")) return b->set_slots(b->ctx, 0xffffffffu, 0);
  if (mood("ignores")) host->status_free(b->add_blocks(b->ctx, 3, &group)); /* and goes on as if it were fine */
  if (mood("not the world")) u.shard_group = u.replica_group = SHALE_GROUP_WORLD;
  if (mood("hybrid")) return hybrid(m, t, b);
  if (!mood("not the world")) u.replica_group = SHALE_GROUP_WORLD;
  return b->set_unit(b->ctx, SHALE_ALL_UNITS, &u);
}

static shale_status* moody_precision(void* self, const shale_model* m, const shale_topology* t,
                                     const shale_precision_builder* b) {
  uint32_t id = 0;
  SHALE_VAR(shale_param_precision, p);
  SHALE_VAR(shale_loss_scale, s);
  SHALE_VAR(shale_linear_recipe, r);
  SHALE_VAR(shale_state, state);
  (void)self, (void)m, (void)t;
  p.master = p.compute = p.gather = p.grad = p.reduce = p.accumulate = p.moments = SHALE_F32;
  s.growth_steps = 100, s.initial = 65536, s.growth = 2, s.backoff = 0.5, s.min = 1, s.max = 65536;
  s.hysteresis = 2, s.max_skips = 20;
  if (m->units[0]->params[0]->compute_dtype != 0) return shale_fail(host, SHALE_INTERNAL, "", "dtypes are there");
  if (mood("no param")) return NULL;
  if (mood("one param")) return b->set_param(b->ctx, 0, &p);
  if (mood("wrong param")) return b->set_param(b->ctx, 1000, &p);
  if (mood("short param")) p.struct_size = offsetof(shale_param_precision, moments_block);
  if (mood("no grad")) p.grad = 0;
  if (mood("odd dtype")) p.compute = 0x1099;
  if (mood("refused dtype")) p.accumulate = SHALE_BF16;
  if (mood("rounding")) p.master_rounding = SHALE_ROUND_STOCHASTIC;
  if (mood("bad rounding")) p.master_rounding = 5;
  if (mood("8 bit")) p.moments_block = 128;
  if (mood("linear")) return b->set_linear(b->ctx, SHALE_ALL_PARAMS, &r);
  if (mood("state")) return b->add_state(b->ctx, &state, &id);
  if (mood("short scale")) s.struct_size = 16;
  if (mood("odd scale")) s.initial = 1000;
  if (mood("large scale")) s.initial = 131072;
  if (mood("shrinking")) s.growth = 0.5;
  if (mood("growing")) s.backoff = 2;
  if (mood("many skips")) s.max_skips = 0xffffffffu;
  if (mood("scaled") || mood("short scale") || mood("odd scale") || mood("large scale") || mood("shrinking") ||
      mood("growing") || mood("many skips")) {
    shale_status* bad = b->set_loss_scale(b->ctx, &s);
    if (bad) return bad;
  }
  return b->set_param(b->ctx, SHALE_ALL_PARAMS, &p);
}

static shale_status* moody_offload(void* self, const shale_model* m, const shale_topology* t,
                                   const shale_offload_ask* a, const shale_offload_builder* b) {
  (void)self, (void)t;
  if (a->n_units != m->n_units || a->n_classes != SHALE_N_CLASSES || a->bytes[SHALE_N_CLASSES + 1] != 77)
    return shale_fail(host, SHALE_INTERNAL, "", "the figures are wrong");
  if (mood("host")) return b->place(b->ctx, 1, SHALE_CLASS_MOMENTS, SHALE_TIER_HOST);
  if (mood("wrong unit")) return b->place(b->ctx, 99, SHALE_CLASS_MOMENTS, SHALE_TIER_HOST);
  if (mood("wrong class")) return b->place(b->ctx, SHALE_ALL_UNITS, SHALE_N_CLASSES, SHALE_TIER_HOST);
  if (mood("wrong tier")) return b->place(b->ctx, SHALE_ALL_UNITS, SHALE_CLASS_MASTER, 4);
  if (mood("store")) return b->place(b->ctx, SHALE_ALL_UNITS, SHALE_CLASS_MASTER, SHALE_TIER_STORE);
  if (mood("pipeline")) return b->set_pipeline(b->ctx, 1 << 20, 2, 1);
  return b->set_pipeline(b->ctx, 0, 0, 1);
}
