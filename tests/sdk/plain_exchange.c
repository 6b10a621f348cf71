/* The smallest strategy with hooks: full shard, a gather by all_gather, a reduction by all_to_all and sums. */
#include <stdlib.h>

#include "shale/sharding.h"

struct plain {
  const shale_host* host;
  const shale_lane_service* lanes;
  const shale_collectives* coll;
  const shale_math* math;
};

static shale_status* plan(void* self, const shale_model* m, const shale_topology* t, const shale_sharding_builder* b) {
  uint64_t most = 0; /* bytes of the widest unit, padded for any number of ranks */
  (void)self;
  for (uint32_t k = 0; k < m->n_units; ++k)
    if (m->units[k]->numel > most) most = m->units[k]->numel;
  SHALE_VAR(shale_unit_plan, u);
  u.shard_group = u.reshard_group = SHALE_GROUP_WORLD;
  u.scratch_bytes = 8 * (most + t->world) + 256; /* blocks are rounded up to 256 bytes */
  return b->set_unit(b->ctx, SHALE_ALL_UNITS, &u);
}
static const shale_sharding sharding = {sizeof sharding, 0, plan};

static shale_status* gather(void* self, const shale_exchange_call* c, const shale_tensor* shard,
                            const shale_tensor* full) {
  const struct plain* p = self;
  const uint64_t piece = (uint64_t)full->shape[0] / c->ways, have = (uint64_t)shard->shape[0];
  const shale_tensor mine = shale_range(full, p->coll->rank(p->coll->ctx, c->group) * piece, piece);
  const shale_tensor used = shale_range(&mine, 0, have), padding = shale_range(&mine, have, piece - have);
  shale_status* bad = p->math->copy(p->math->ctx, c->lane, &used, shard);
  if (!bad) bad = p->math->axpby(p->math->ctx, c->lane, 0, &padding, 0, &padding);
  return bad ? bad : p->coll->all_gather(p->coll->ctx, c->lane, c->group, &mine, full);
}

static shale_status* reduce(void* self, const shale_exchange_call* c, const shale_tensor* full,
                            const shale_tensor* shard) {
  const struct plain* p = self;
  const uint64_t piece = (uint64_t)full->shape[0] / c->ways, mine = (uint64_t)shard->shape[0];
  shale_tensor all = *full;
  const uint64_t bytes = (uint64_t)full->shape[0] * SHALE_DTYPE_BITS(full->dtype) / 8;
  shale_status* bad = p->lanes->scratch(p->lanes->ctx, c->lane, bytes, &all.data);
  if (!bad) bad = p->coll->all_to_all(p->coll->ctx, c->lane, c->group, full, &all);
  for (uint32_t k = 0; k < c->ways && !bad; ++k) {
    const shale_tensor from = shale_range(&all, k * piece, mine);
    bad = p->math->axpby(p->math->ctx, c->lane, 1, &from, 1, shard);
  }
  return bad;
}
#if defined PLAIN_HIDDEN
__attribute__((unused))
#endif
static const shale_exchange exchange = {sizeof exchange, 0, gather, reduce, NULL, NULL};

static shale_status* create(const shale_host* h, const shale_desc* d, const shale_config* c, void** self) {
  struct plain* p = malloc(sizeof *p);
  (void)d, (void)c;
  *p = (struct plain){h, h->get_service(h->ctx, SHALE_LANE_SERVICE), h->get_service(h->ctx, SHALE_COLLECTIVES_SERVICE),
                      h->get_service(h->ctx, SHALE_MATH_SERVICE)};
  *self = p;
  return NULL;
}
static const void* get_interface(void* self, const char* id) {
  (void)self;
  if (!strcmp(id, SHALE_SHARDING)) return &sharding;
#if defined PLAIN_HIDDEN
  return NULL;
#else
  return strcmp(id, SHALE_EXCHANGE) ? NULL : &exchange;
#endif
}

static const char* const interfaces[] = {SHALE_SHARDING, SHALE_EXCHANGE, NULL};
static const char* const needs[] = {SHALE_LANE_SERVICE, SHALE_COLLECTIVES_SERVICE, SHALE_MATH_SERVICE, NULL};
static const shale_desc desc = {.struct_size = sizeof desc,
                                .kind = SHALE_KIND_SHARDING,
                                .id = "plain_exchange",
                                .version = "0.1.0",
                                .summary = "for tests: full shard with its own gather and reduction",
                                .caps = SHALE_CAP_CPU,
                                .interfaces = interfaces,
                                .needs = needs,
                                .option_stride = sizeof(shale_option)};
static const shale_desc* const descs[] = {&desc};
static const shale_plugin plugin = {sizeof plugin, SHALE_ABI_MAJOR, 1,    SHALE_ABI_MINOR, 0, 1,
                                    descs,         create,          free, get_interface};
const shale_plugin* shale_plugin_entry_v1(const shale_host* host) {
  (void)host;
  return &plugin;
}
