/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of bootstrap.files and bootstrap.limits, and their rules. Files of this machine are
 * looked at only when a user's spec is checked. Any thread. */
#include "base/gp_base.h"

#include "base/fs.h"
#include "spec/spec_internal.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#define NODE_PATH "^(/[A-Za-z0-9._+@=,:~-]+)+$"
#define NODE_PATH_DOC "an absolute path of letters, digits and ._+@=,:~-"

static const struct yaml_node *own(const struct spec_ctx *c, const struct yaml_node *map, const char *key) {
    const struct yaml_node *at = map != NULL ? yaml_get(map, key) : NULL;
    return at != NULL && !spec_is_bad(c, at) ? at : NULL;
}

static void check_node_path(struct spec_ctx *c, const struct yaml_node *at) {
    for (const char *p = at->value; (p = strstr(p, "/.")) != NULL; p++) {
        const char *rest = p + 2;
        if (*rest == '.') rest++;
        if (*rest != '/' && *rest != '\0') continue;
        spec_complain(c, at, "'%.100s' has '.' or '..' as a folder: write the path that is meant", at->value);
        return;
    }
}

/* --- files --- */

static void file_duplicate(struct spec_ctx *c, const struct yaml_node *to, const struct spec_file *f) {
    for (size_t i = 0; i < c->spec->storage.files.len; i++) {
        const struct spec_file *other = &c->spec->storage.files.items[i];
        if (other == f) return; /* the later ones complain themselves */
        if (!str_eq(other->to, f->to)) continue;
        spec_complain(c, to, "two entries of 'files' go to '%s'", f->to);
        return;
    }
}

static void rule_file(struct spec_ctx *c, const struct yaml_node *map, void *to_) {
    struct spec_file *f = to_;
    const struct yaml_node *from = own(c, map, "from"), *to = own(c, map, "to");
    if (f->to != NULL && to != NULL) file_duplicate(c, to, f);
    if (f->from == NULL) return;
    for (size_t n = strlen(f->from); n > 1 && f->from[n - 1] == '/'; n--) f->from[n - 1] = '\0';
    GP_AUTO_FREE char *expanded = fs_expand_home(f->from);
    free(f->from);
    f->from = GP_STEAL(expanded);
    spec_absolute(c, &f->from);
    struct stat st;
    if (c->names == NULL || from == NULL) return; /* a journal's spec: its machine may be another one */
    if (stat(f->from, &st) != 0) spec_complain(c, from, "'%.200s': %s", f->from, strerror(errno));
    else if (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode))
        spec_complain(c, from, "'%.200s' is neither a file nor a folder", f->from);
    else if (access(f->from, R_OK) != 0) spec_complain(c, from, "'%.200s': %s", f->from, strerror(errno));
}

/* Rows read as rows. */
/* clang-format off */
static const struct spec_field file_fields[] = {
    {.name = "from", .type = SPEC_TEXT, .offset = offsetof(struct spec_file, from), .required = true,
     .doc = "a file or folder of this machine, relative to the spec; all `files` together have at most 2,000 files "
            "and 256 MiB", .example = "train.py", .basename_in_hash = true, .effect = SPEC_REPEATED},
    {.name = "to", .type = SPEC_TEXT, .offset = offsetof(struct spec_file, to), .required = true,
     .doc = "its path on the node; missing folders are created, and files of a folder that are only on the node stay",
     .example = "/opt/train/train.py", .pattern = NODE_PATH, .pattern_doc = NODE_PATH_DOC, .check = check_node_path,
     .effect = SPEC_REPEATED},
    {.name = "mode", .type = SPEC_TEXT, .offset = offsetof(struct spec_file, mode),
     .def_doc = "0755 for files that are executable here, else 0644",
     .doc = "the permissions of the file, or of each file in the folder", .example = "\"0600\"",
     .pattern = "^0?[0-7][0-7][0-7]$", .pattern_doc = "three octal digits such as 0640", .effect = SPEC_REPEATED},
    {.name = "owner", .type = SPEC_TEXT, .offset = offsetof(struct spec_file, owner),
     .def_doc = "the login user", .doc = "user or user:group of the node", .example = "root:root",
     .pattern = "^[a-z_][a-z0-9_-]{0,31}(:[a-z_][a-z0-9_-]{0,31})?$", .pattern_doc = "user or user:group",
     .effect = SPEC_REPEATED},
    {0}};
const struct spec_block spec_file_block = {
    .path = "bootstrap.files[]",
    .doc = "Files and folders that are copied to every node, before your own steps. A file is sent when its content "
            "differs on the node; it is replaced as a whole.",
    .fields = file_fields, .size = sizeof(struct spec_file), .rules = rule_file};
/* clang-format on */

/* --- limits --- */

void spec_limits_from_text(struct spec_ctx *c, const struct yaml_node *at, void *to) {
    struct spec_node_limits *l = to;
    if (strcmp(at->value, "auto") != 0) {
        spec_complain(c, at, "'limits' must be auto or a map such as {memlock: unlimited}, not '%.60s'", at->value);
        return;
    }
    free(l->memlock);
    *l = (struct spec_node_limits){.memlock = xstrdup("unlimited"), .nofile = SPEC_NOFILE_AUTO};
}

static void rule_limits(struct spec_ctx *c, const struct yaml_node *map, void *to GP_UNUSED) {
    if (map != NULL && map->items.len == 0)
        spec_complain(c, map, "'limits' is empty: write 'limits: auto', or one of memlock, nofile, hugepages");
}

/* clang-format off */
static const struct spec_field limits_fields[] = {
    {.name = "memlock", .type = SPEC_TEXT, .offset = offsetof(struct spec_node_limits, memlock),
     .def_doc = "left alone", .doc = "memory that a process may lock, for RDMA and pinned buffers: `unlimited` or a "
     "size", .example = "unlimited", .pattern = "^(unlimited|[1-9][0-9]{0,5}(MiB|GiB))$",
     .pattern_doc = "unlimited or a size such as 64GiB", .effect = SPEC_REPEATED},
    {.name = "nofile", .type = SPEC_INT, .offset = offsetof(struct spec_node_limits, nofile),
     .def_doc = "left alone", .doc = "files that a process may have open", .example = "1048576",
     .min = 1024, .max = 1 << 30, .effect = SPEC_REPEATED},
    {.name = "hugepages", .type = SPEC_INT, .offset = offsetof(struct spec_node_limits, hugepages),
     .def_doc = "left alone", .doc = "huge pages of the node's default size, usually 2 MiB, to reserve",
     .example = "2048", .min = 1, .max = 1 << 26, .effect = SPEC_REPEATED},
    {0}};
const struct spec_block spec_node_limits_block = {
    .path = "bootstrap.limits",
    .doc = "Limits of the processes on every node, for logins and services; in short `limits: auto`: unlimited "
            "memlock and 1048576 open files.",
    .fields = limits_fields, .rules = rule_limits};
/* clang-format on */
