/* A plugin with all four kinds that does its job. A bad plugin is a file that defines what it gets wrong and includes
 * this; what it does not define is right. */
#pragma once
#include "shale/checkpoint.h"
#include "shale/offload.h"
#include "shale/precision.h"
#include "shale/sharding.h"

#ifndef MAJOR
#define MAJOR SHALE_ABI_MAJOR
#endif
#ifndef MINOR_MIN
#define MINOR_MIN 1
#endif
#ifndef MINOR_BUILT
#define MINOR_BUILT SHALE_ABI_MINOR
#endif
#ifndef TABLE_SIZE
#define TABLE_SIZE sizeof(shale_plugin)
#endif
#ifndef DESC_SIZE
#define DESC_SIZE sizeof(shale_desc)
#endif
#ifndef INTERFACE_SIZE
#define INTERFACE_SIZE sizeof(shale_sharding)
#endif
#ifndef ID
#define ID "good"
#endif
#ifndef VERSION
#define VERSION "1.2.3"
#endif
#ifndef MORE_INTERFACES
#define MORE_INTERFACES NULL
#endif
#ifndef DECLARED
#define DECLARED SHALE_SHARDING
#endif
#ifndef NEEDS
#define NEEDS NULL
#endif
#ifndef CAPS
#define CAPS (SHALE_CAP_CPU | SHALE_CAP_CUDA)
#endif
#ifndef OPTIONS
#define OPTIONS NULL, 0, sizeof(shale_option)
#endif
#ifndef CREATE
#define CREATE create
#endif
#ifndef SHARDING_TABLE
#define SHARDING_TABLE &sharding
#endif
#ifndef DESCS
#define DESCS \
  { &sharding_desc, &precision_desc, &offload_desc, &checkpoint_desc }
#define N_DESCS 4
#endif

static const shale_host* host;
static const shale_config* config;

#ifndef SHARDING_PLAN
#define SHARDING_PLAN sharding_plan
static shale_status* sharding_plan(void* self, const shale_model* m, const shale_topology* t,
                                   const shale_sharding_builder* b) {
  SHALE_VAR(shale_unit_plan, u);
  (void)self, (void)m, (void)t;
  u.shard_group = u.reshard_group = SHALE_GROUP_WORLD, u.prefetch = 1;
  return b->set_unit(b->ctx, SHALE_ALL_UNITS, &u);
}
#endif
#ifndef PRECISION_PLAN
#define PRECISION_PLAN precision_plan
static shale_status* precision_plan(void* self, const shale_model* m, const shale_topology* t,
                                    const shale_precision_builder* b) {
  SHALE_VAR(shale_param_precision, p);
  (void)self, (void)m, (void)t;
  p.master = p.compute = p.gather = p.grad = p.reduce = p.accumulate = p.moments = SHALE_F32;
  return b->set_param(b->ctx, SHALE_ALL_PARAMS, &p);
}
#endif
#ifndef OFFLOAD_PLAN
#define OFFLOAD_PLAN offload_plan
static shale_status* offload_plan(void* self, const shale_model* m, const shale_topology* t, const shale_offload_ask* a,
                                  const shale_offload_builder* b) {
  (void)self, (void)m, (void)t, (void)a, (void)b;
  return NULL;
}
#endif
#ifndef CHECKPOINT_HOOKS
#define CHECKPOINT_HOOKS format_of, write_part, NULL, NULL, describe, NULL, NULL
static shale_status* format_of(void* self, shale_format* out) {
  static const uint32_t dtypes[] = {SHALE_F32, 0};
  (void)self;
  out->flags = SHALE_FORMAT_BOXES, out->dtypes = dtypes;
  return NULL;
}
static shale_status* write_part(void* self, const shale_save* s) { return (void)self, (void)s, NULL; }
static shale_status* describe(void* self, shale_folder* f, const shale_index* i) {
  return (void)self, (void)f, (void)i, NULL;
}
#endif

static const shale_sharding sharding = {INTERFACE_SIZE, 0, SHARDING_PLAN};
static const shale_precision precision = {sizeof(shale_precision), 0, PRECISION_PLAN};
static const shale_offload offload = {sizeof(shale_offload), 0, OFFLOAD_PLAN};
static const shale_checkpoint checkpoint = {sizeof(shale_checkpoint), 0, CHECKPOINT_HOOKS};

static inline shale_status* create(const shale_host* h, const shale_desc* d, const shale_config* c, void** self) {
  host = h, config = c, *self = (void*)d;
  return NULL;
}
static void destroy(void* self) { (void)self; }
static const void* get_interface(void* self, const char* id) {
  (void)self;
  if (strcmp(id, SHALE_SHARDING) == 0) return SHARDING_TABLE;
  if (strcmp(id, SHALE_PRECISION) == 0) return &precision;
  if (strcmp(id, SHALE_OFFLOAD) == 0) return &offload;
  return strcmp(id, SHALE_CHECKPOINT) == 0 ? &checkpoint : NULL;
}

static const char* const sharding_ids[] = {DECLARED, MORE_INTERFACES, NULL};
static const char* const precision_ids[] = {SHALE_PRECISION, NULL};
static const char* const offload_ids[] = {SHALE_OFFLOAD, NULL};
static const char* const checkpoint_ids[] = {SHALE_CHECKPOINT, NULL};
static const char* const needs[] = {NEEDS, NULL};
#define DESC(kind, ids) DESC_SIZE, kind, ID, VERSION, "", "", "", "", CAPS, ids, needs, OPTIONS
static const shale_desc sharding_desc = {DESC(SHALE_KIND_SHARDING, sharding_ids)};
static const shale_desc precision_desc = {DESC(SHALE_KIND_PRECISION, precision_ids)};
static const shale_desc offload_desc = {DESC(SHALE_KIND_OFFLOAD, offload_ids)};
static const shale_desc checkpoint_desc = {DESC(SHALE_KIND_CHECKPOINT, checkpoint_ids)};
static const shale_desc* const descs[4] = DESCS;

/* Longer than the struct of this SDK, as a newer one would be. */
static const struct {
  shale_plugin known;
  void* appended;
} table = {{TABLE_SIZE, MAJOR, MINOR_MIN, MINOR_BUILT, 0, N_DESCS, descs, CREATE, destroy, get_interface}, NULL};

#ifndef ENTRY
#define ENTRY return &table.known
#endif
#ifndef NO_ENTRY
SHALE_EXPORT const shale_plugin* shale_plugin_entry_v1(const shale_host* h) {
  (void)h, (void)&sharding_desc, (void)&precision_desc, (void)&offload_desc, (void)&checkpoint_desc;
  ENTRY;
}
#endif
