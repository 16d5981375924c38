/* SPDX-License-Identifier: Apache-2.0 */
/* A received list in little memory: each entry has its own name and the index of the folder that it is in. A list is
 * in order, so that folder is the last entry or one above it. */
#include "base/gp_base.h"

#include "tree/catalog.h"

#include "tree/side.h"

/* Of an entry without its name: the record, and what the taker keeps of a folder. */
#define ENTRY_BYTES (sizeof(struct catalog_record) + sizeof(size_t))

void catalog_clear(struct catalog *c) {
    vec_free(&c->all);
    vec_free(&c->near);
    tree_buf_clear(&c->names);
    *c = (struct catalog){0};
}

size_t catalog_bytes(const struct catalog *c) { return c->all.len * ENTRY_BYTES + c->names.len; }

/* Drops from `near` what is not above an entry in the folder of len bytes of path. False: that folder is not there. */
static bool go_up(struct catalog *c, const char *path, size_t len) {
    while (c->near.len > 0) {
        const struct catalog_above *a = &c->near.items[c->near.len - 1];
        if (a->len == len && memcmp(c->last, path, len) == 0) return true;
        c->near.len--;
    }
    return len == 0;
}

static void keep(struct catalog *c, const struct tree_entry *e, size_t path_len, const char *name) {
    struct catalog_record r = {.size = e->size,
                               .held = e->held,
                               .mtime_s = e->mtime_s,
                               .mtime_ns = e->mtime_ns,
                               .parent = c->near.len > 0 ? c->near.items[c->near.len - 1].index : CATALOG_NO_PARENT,
                               .name_at = (uint32_t)c->names.len,
                               .path_len = (uint16_t)path_len,
                               .mode = (uint16_t)e->mode,
                               .name_len = (uint8_t)strlen(name),
                               .type = (uint8_t)e->type,
                               .racy = e->racy,
                               .state = ENTRY_NEW};
    const struct catalog_above a = {.index = (uint32_t)c->all.len, .len = path_len};
    tree_buf_add(&c->names, name, (size_t)r.name_len + 1);
    if (e->link != NULL) tree_buf_add(&c->names, e->link, strlen(e->link) + 1);
    vec_push(&c->all, r);
    vec_push(&c->near, a);
    memcpy(c->last, e->path, path_len + 1);
}

int catalog_add(struct catalog *c, const struct tree_entry *e, struct gp_error *err) {
    size_t len = strlen(e->path);
    const char *slash = strrchr(e->path, '/'), *name = slash != NULL ? slash + 1 : e->path;
    size_t more = ENTRY_BYTES + strlen(name) + 1 + (e->link != NULL ? strlen(e->link) + 1 : 0);
    if (c->all.len > 0 && tree_path_compare(c->last, e->path) >= 0)
        return side_nonsense(err, "a list that is not in order");
    if (!go_up(c, e->path, slash != NULL ? (size_t)(slash - e->path) : 0))
        return side_nonsense(err, "an entry without its folder");
    if (c->all.len >= TREE_ENTRIES_MAX || catalog_bytes(c) + more > CATALOG_BYTES_MAX)
        return gp_fail(err, GP_EPROTO,
                       "its list is longer than %u files and folders or %zu MiB of names, after %zu of them: copy its "
                       "folders one by one",
                       TREE_ENTRIES_MAX, CATALOG_BYTES_MAX >> 20, c->all.len);
    if (e->size > INT64_MAX - c->bytes) return side_nonsense(err, "more bytes than a disk can have");
    c->files += e->type == 'f';
    c->bytes += e->size;
    keep(c, e, len, name);
    return 0;
}

const struct tree_entry *catalog_at(struct catalog *c, size_t i) {
    const struct catalog_record *r = &c->all.items[i];
    char *name = (char *)c->names.p + r->name_at;
    c->shown = (struct tree_entry){.type = (char)r->type,
                                   .racy = r->racy != 0,
                                   .mode = r->mode,
                                   .size = r->size,
                                   .held = r->held,
                                   .mtime_s = r->mtime_s,
                                   .mtime_ns = r->mtime_ns,
                                   .path = c->path,
                                   .link = r->type == 'l' ? name + r->name_len + 1 : NULL};
    c->path[r->path_len] = '\0';
    for (size_t at = r->path_len;;) { /* from its end to its front */
        at -= r->name_len;
        memcpy(c->path + at, c->names.p + r->name_at, r->name_len);
        if (r->parent == CATALOG_NO_PARENT) return &c->shown;
        c->path[--at] = '/';
        r = &c->all.items[r->parent];
    }
}

bool catalog_find(struct catalog *c, const char *path) {
    size_t low = 0, high = c->all.len;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        int order = tree_path_compare(path, catalog_at(c, mid)->path);
        if (order == 0) return true;
        if (order < 0) high = mid;
        else low = mid + 1;
    }
    return false;
}
