#define _GNU_SOURCE
/* A small format: all data of a part in one file, an index of lines `kind role dtype name key rank shape.. begin..
 * extent.. file offset`. The option `mood` makes it misbehave. */
#include <stdlib.h>
#include "shale/checkpoint.h"
#include "shale/offload.h"
#include "shale/precision.h"
#include "shale/sharding.h"
static const shale_option options[] = {
    {sizeof(shale_option), SHALE_OPT_TEXT, "mood", "", "", "good", NULL, NULL, NULL}};
#define ID "format"
#define OPTIONS options, 1, sizeof(shale_option)
#define CHECKPOINT_HOOKS format_of, write_part, finish_all, probe_it, describe_it, locate_it, NULL
static shale_status* format_of(void*, shale_format*);
static shale_status* write_part(void*, const shale_save*);
static shale_status* finish_all(void*, const shale_finish*);
static uint32_t probe_it(void*, shale_folder*);
static shale_status* describe_it(void*, shale_folder*, const shale_index*);
static shale_status* locate_it(void*, shale_folder*, shale_str, shale_str*, uint64_t*);
#include "good.h"

static int mood(const char* is) {
  const shale_str s = config->values[0].s;
  return s.len == strlen(is) && memcmp(s.ptr, is, s.len) == 0;
}
static const shale_files* files(void) { return host->get_service(host->ctx, SHALE_FILES_SERVICE); }

static shale_status* format_of(void* self, shale_format* out) {
  static const uint32_t dtypes[] = {SHALE_F32, SHALE_F64, 0x7777u, SHALE_U8, 0};
  static const uint32_t none[] = {0x7777u, 0};
  (void)self;
  out->flags = SHALE_FORMAT_BOXES | SHALE_FORMAT_BYTES | SHALE_FORMAT_OPTIMIZER;
  out->dtypes = mood("no dtypes") ? none : dtypes, out->file_bytes = 4096;
  return NULL;
}

static shale_status* misuse(const shale_files* f, const shale_save* s) {
  shale_file* file = NULL;
  const void* bytes = NULL;
  uint64_t size = 0;
  if (mood("escapes")) return f->create(f->ctx, s->folder, shale_text("../outside"), &file);
  if (mood("no name")) return f->create(f->ctx, s->folder, shale_text(""), &file);
  if (mood("null out")) return f->create(f->ctx, s->folder, shale_text("x"), NULL);
  if (mood("not a file")) return f->append(f->ctx, (shale_file*)s, "x", 1);
  if (mood("not a folder")) return f->create(f->ctx, (shale_folder*)s, shale_text("x"), &file);
  if (mood("renames")) return f->rename(f->ctx, s->folder, shale_text("a"), shale_text("b"));
  if (mood("missing")) return f->open(f->ctx, s->folder, shale_text("missing"), &file, &size);
  if (mood("wrong entry")) return s->data(s->ctx, s->n_entries, &bytes);
  if (mood("null report")) return s->report(s->ctx, NULL, 3);
  return NULL;
}

static shale_status* write_part(void* self, const shale_save* s) {
  const shale_files* f = files();
  shale_file* file = NULL;
  char name[32], line[512];
  uint64_t offset = 0;
  shale_status* bad = misuse(f, s);
  (void)self;
  snprintf(name, sizeof name, "part-%u", s->first_part + s->part);
  if (!bad) bad = f->create(f->ctx, s->folder, shale_text(name), &file);
  if (!bad && mood("closes twice")) {
    bad = f->close(f->ctx, file);
    return bad ? bad : f->close(f->ctx, file);
  }
  for (uint32_t k = 0; !bad && k < s->n_entries; ++k) {
    const shale_entry* e = s->entries[k];
    const void* bytes = NULL;
    int n = snprintf(line, sizeof line, "%u %u %u %.*s %.*s %u", e->item->kind, e->item->role, e->item->dtype,
                     (int)e->item->name.len, e->item->name.ptr, (int)e->item->key.len, e->item->key.ptr, e->item->ndim);
    for (uint32_t d = 0; d < e->item->ndim; ++d)
      n += snprintf(line + n, sizeof line - n, " %lld %lld %lld", (long long)e->item->shape[d],
                    (long long)(e->box ? e->box->begin[d] : 0),
                    (long long)(e->box ? e->box->extent[d] : e->item->shape[d]));
    n += snprintf(line + n, sizeof line - n, " %s %llu\n", name, (unsigned long long)offset);
    if (!(bad = s->data(s->ctx, k, &bytes))) bad = f->append(f->ctx, file, bytes, e->bytes);
    if (!bad) bad = s->report(s->ctx, line, (uint64_t)n);
    offset += e->bytes;
  }
  return bad ? bad : mood("leaves open") ? NULL : f->close(f->ctx, file);
}

static shale_status* finish_all(void* self, const shale_finish* s) {
  const shale_files* f = files();
  shale_file* file = NULL;
  shale_status* bad = f->create(f->ctx, s->folder, shale_text("index.new"), &file);
  (void)self;
  for (uint32_t k = 0; !bad && k < s->n_reports; ++k)
    bad = f->append(f->ctx, file, s->reports[k].ptr, s->reports[k].len);
  if (!bad) bad = f->close(f->ctx, file);
  return bad ? bad : f->rename(f->ctx, s->folder, shale_text("index.new"), shale_text("index"));
}

static uint32_t probe_it(void* self, shale_folder* folder) {
  const shale_files* f = files();
  shale_str name;
  (void)self;
  for (uint32_t k = 0;; ++k) {
    shale_status* bad = f->list(f->ctx, folder, k, &name);
    if (bad) return host->status_free(bad), 0;
    if (name.len == 0) return 0;
    if (name.len == 5 && memcmp(name.ptr, "index", 5) == 0) return 7;
  }
}

static shale_status* item_of_line(char* line, const shale_index* i) {
  SHALE_VAR(shale_item, item);
  SHALE_VAR(shale_box, box);
  uint32_t id = 0;
  char* at = line;
  item.kind = (uint32_t)strtoul(at, &at, 10), item.role = (uint32_t)strtoul(at, &at, 10);
  item.dtype = (uint32_t)strtoul(at, &at, 10);
  item.name = shale_text(strtok_r(at, " ", &at)), item.key = shale_text(strtok_r(NULL, " ", &at));
  item.ndim = box.ndim = (uint32_t)strtoul(at, &at, 10);
  for (uint32_t d = 0; d < item.ndim && d < SHALE_MAX_DIMS; ++d)
    item.shape[d] = strtoll(at, &at, 10), box.begin[d] = strtoll(at, &at, 10), box.extent[d] = strtoll(at, &at, 10);
  while (*at == ' ') ++at;
  if (mood("no kind")) item.kind = 9;
  if (mood("no role")) item.role = 0;
  if (mood("odd dtype")) item.dtype = 0x7777;
  if (mood("many dims")) item.ndim = 9;
  if (mood("negative")) item.shape[0] = -4;
  if (mood("long name")) item.name.len = 100000;
  if (mood("value")) item.kind = SHALE_ITEM_VALUE;
  if (mood("short item")) item.struct_size = 12;
  shale_status* bad = i->add_item(i->ctx, &item, &id);
  if (bad && mood("ignores")) bad = NULL;
  if (bad) return bad;
  if (mood("wrong item")) id += 5;
  if (mood("box dims")) box.ndim = 9;
  if (mood("box below 0")) box.begin[0] = -1;
  if (mood("no file")) return i->add_raw(i->ctx, id, &box, shale_text(""), 0);
  if (mood("no token")) return i->add_coded(i->ctx, id, &box, shale_text(""), 4);
  if (mood("coded")) return i->add_coded(i->ctx, id, item.kind == SHALE_ITEM_BYTES ? NULL : &box, shale_text(at), 16);
  char* file = strtok_r(at, " ", &at);
  return i->add_raw(i->ctx, id, item.kind == SHALE_ITEM_BYTES ? NULL : &box, shale_text(file), strtoull(at, &at, 10));
}

static shale_status* describe_it(void* self, shale_folder* folder, const shale_index* i) {
  const shale_files* f = files();
  shale_file* file = NULL;
  uint64_t size = 0;
  char text[4096], *line, *rest = text;
  shale_status* bad = f->open(f->ctx, folder, shale_text("index"), &file, &size);
  (void)self;
  if (bad) return bad;
  if (mood("reads too far")) return f->read(f->ctx, file, size - 1, text, 2);
  if (mood("reads nowhere")) return f->read(f->ctx, file, UINT64_MAX, text, 2);
  if (mood("writes")) return f->append(f->ctx, file, "x", 1);
  if (mood("creates")) return f->create(f->ctx, folder, shale_text("x"), &file);
  if (size >= sizeof text) return shale_fail(host, SHALE_CORRUPT, "index", "is too long");
  if ((bad = f->read(f->ctx, file, 0, text, size))) return bad;
  text[size] = 0;
  while (!bad && (line = strtok_r(rest, "\n", &rest))) bad = item_of_line(line, i);
  return bad;
}

static shale_status* locate_it(void* self, shale_folder* folder, shale_str token, shale_str* file, uint64_t* offset) {
  const char* blank = memchr(token.ptr, ' ', token.len);
  (void)self, (void)folder;
  if (!blank) return shale_fail(host, SHALE_CORRUPT, "token", "has no blank");
  file->ptr = token.ptr, file->len = mood("locates nothing") ? 0 : (uint64_t)(blank - token.ptr);
  *offset = strtoull(blank, NULL, 10);
  return NULL;
}
