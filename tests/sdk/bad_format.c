/* A checkpoint format in one file, records of a 128-byte header and data; wrong in the one way its macro names. */
#include <stdlib.h>

#include "shale/checkpoint.h"

enum { kHeader = 128 };
/* An instance is nothing but its host. */
static const shale_files* files_of(void* self) {
  const shale_host* host = self;
  return host->get_service(host->ctx, SHALE_FILES_SERVICE);
}

static shale_status* format(void* self, shale_format* out) {
  static const uint32_t dtypes[] = {SHALE_F32, 0};
  (void)self;
  out->flags = SHALE_FORMAT_ONE_WRITER;
  out->dtypes = dtypes;
#if defined BAD_FORMAT
  memset(out + 1, 0, 8); /* as a newer plugin would that forgets to ask */
#endif
  out->file_bytes = 0;
  return NULL;
}

static shale_status* write_entry(const shale_files* f, const shale_save* s, uint32_t k, shale_file* file) {
  const shale_item* i = s->entries[k]->item;
  char header[kHeader] = {0};
  const void* bytes = NULL;
  snprintf(header, sizeof header, "%.*s %.*s %u %d %d", (int)i->name.len, i->name.ptr, (int)i->key.len, i->key.ptr,
           i->role, (int)i->shape[0], (int)i->shape[1]);
  shale_status* bad = s->data(s->ctx, k, &bytes);
  if (!bad) bad = f->append(f->ctx, file, header, sizeof header);
#if defined BAD_ROUND_TRIP
  if (!bad) bad = f->append(f->ctx, file, "", 1);
  return bad ? bad : f->append(f->ctx, file, bytes, s->entries[k]->bytes - 1);
#else
  return bad ? bad : f->append(f->ctx, file, bytes, s->entries[k]->bytes);
#endif
}
static shale_status* write(void* self, const shale_save* s) {
  const shale_files* f = files_of(self);
  shale_file* file = NULL;
  shale_status* bad = f->create(f->ctx, s->folder, shale_text("data"), &file);
  for (uint32_t k = 0; !bad && k < s->n_entries; ++k) bad = write_entry(f, s, k, file);
  return bad ? bad : f->close(f->ctx, file);
}

static shale_status* damaged(const shale_host* host) {
#if defined BAD_DAMAGE
  abort();
#endif
  return shale_fail(host, SHALE_CORRUPT, "data", "a record is damaged");
}

static shale_status* describe(void* self, shale_folder* folder, const shale_index* index) {
  const shale_files* f = files_of(self);
  shale_file* file = NULL;
  uint64_t size = 0, at = 0;
  shale_status* bad = f->open(f->ctx, folder, shale_text("data"), &file, &size);
  while (!bad && at < size) {
    char header[kHeader + 1] = {0}, name[64], key[64];
    unsigned role;
    int rows, columns;
    uint32_t id;
    if ((bad = f->read(f->ctx, file, at, header, kHeader))) break;
    if (sscanf(header, "%63s %63s %u %d %d", name, key, &role, &rows, &columns) != 5 || rows < 1 || rows > 1000 ||
        columns < 1 || columns > 1000)
      return damaged(self);
    SHALE_VAR(shale_item, i);
    SHALE_VAR(shale_box, box);
    i.kind = SHALE_ITEM_TENSOR, i.role = role, i.dtype = SHALE_F32, i.name = shale_text(name), i.key = shale_text(key);
    i.ndim = box.ndim = 2, i.shape[0] = box.extent[0] = rows, i.shape[1] = box.extent[1] = columns;
    bad = index->add_item(index->ctx, &i, &id);
    if (!bad) bad = index->add_raw(index->ctx, id, &box, shale_text("data"), at + kHeader);
    at += kHeader + (uint64_t)rows * (uint64_t)columns * 4;
  }
  return bad;
}
static const shale_checkpoint table = {sizeof table, 0, format, write, NULL, NULL, describe, NULL, NULL};

static shale_status* create(const shale_host* h, const shale_desc* d, const shale_config* c, void** self) {
  (void)d, (void)c;
  *self = (void*)(uintptr_t)h;
  return NULL;
}
static void destroy(void* self) { (void)self; }
static const void* get_interface(void* self, const char* id) {
  (void)self;
  return strcmp(id, SHALE_CHECKPOINT) ? NULL : &table;
}

static const char* const interfaces[] = {SHALE_CHECKPOINT, NULL};
static const char* const needs[] = {SHALE_FILES_SERVICE, NULL};
static const shale_desc desc = {.struct_size = sizeof desc,
                                .kind = SHALE_KIND_CHECKPOINT,
                                .id = "bad_format",
                                .version = "0.1.0",
                                .summary = "for tests",
                                .interfaces = interfaces,
                                .needs = needs,
                                .option_stride = sizeof(shale_option)};
static const shale_desc* const descs[] = {&desc};
static const shale_plugin plugin = {sizeof plugin, SHALE_ABI_MAJOR, 1,       SHALE_ABI_MINOR, 0, 1,
                                    descs,         create,          destroy, get_interface};
const shale_plugin* shale_plugin_entry_v1(const shale_host* h) {
  (void)h;
  return &plugin;
}
