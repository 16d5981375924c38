/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of bootstrap.files, bootstrap.mounts and bootstrap.limits, and their rules. Files of this machine are
 * looked at only when a user's spec is checked. Any thread. */
#include "base/gp_base.h"

#include "base/fs.h"
#include "spec/spec_files.h"
#include "spec/spec_internal.h"

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
        spec_complain(c, at, "'%.100s' has '.' or '..' as a folder: write the path that is meant",
                      spec_shown(at, at->value));
        return;
    }
}

/* --- files --- */

static void file_duplicate(struct spec_ctx *c, const struct yaml_node *to, const struct spec_file *f) {
    for (size_t i = 0; i < c->spec->storage.files.len; i++) {
        const struct spec_file *other = &c->spec->storage.files.items[i];
        if (other == f) return; /* the later ones complain themselves */
        if (!str_eq(other->to, f->to)) continue;
        spec_complain(c, to, "two entries of 'files' go to '%s'", spec_shown(to, f->to));
        return;
    }
}

/* The content is part of the spec: nodes get a file that changed although no key did. */
static void file_sum(struct spec_ctx *c, const struct yaml_node *map, const struct yaml_node *from,
                     struct spec_file *f) {
    struct spec_storage *s = &c->spec->storage;
    struct spec_files_walk w = {.files = s->files_found, .bytes = s->bytes_found};
    struct gp_error why = {0};
    char sum[65] = "";
    int rc = spec_files_sum(&w, f, sum, &why);
    s->files_found = w.files;
    s->bytes_found = w.bytes;
    const struct yaml_node *wanted = own(c, map, "sha256");
    if (rc) spec_complain(c, from, "%s", why.msg);
    else if (wanted != NULL && !str_eq(f->sha256, sum))
        spec_complain(c, wanted, "'%.200s' has another content: its sum is %s; correct 'sha256' or the file",
                      spec_shown(from, f->from), sum);
    free(f->sha256);
    f->sha256 = rc ? NULL : xstrdup(sum);
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
    /* a journal's spec is as it was when a user's was loaded */
    if (c->names != NULL && from != NULL) file_sum(c, map, from, f);
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
    {.name = "sha256", .type = SPEC_TEXT, .offset = offsetof(struct spec_file, sha256),
     .def_doc = "computed", .doc = "the content's sum: gpuprov computes it when it reads the spec, so that `up` sends "
            "a file that changed; another sum here is an error that names the right one",
     .example = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
     .pattern = "^[0-9a-f]{64}$", .pattern_doc = "64 hexadecimal digits", .effect = SPEC_REPEATED},
    {0}};
const struct spec_block spec_file_block = {
    .path = "bootstrap.files[]",
    .doc = "Files and folders that are copied to every node, before your own steps. A file is sent when its content "
            "differs on the node; it is replaced as a whole.",
    .fields = file_fields, .size = sizeof(struct spec_file), .rules = rule_file};
/* clang-format on */

/* --- mounts --- */

static const char *const mount_kinds[] = {"nvme", "volume", "nfs", "lustre", "bucket", NULL};
static const char *const mount_modes[] = {[MOUNT_WRITE] = "write", [MOUNT_READ] = "read", NULL};
static const char *const nvme_choices[] = {"auto", NULL};
static const char *const fs_choices[] = {"ext4", "xfs", NULL};

/* Folders without which a node does not run. */
static void check_mount_point(struct spec_ctx *c, const struct yaml_node *at) {
    static const char *const no[] = {"/bin",  "/boot", "/dev",  "/etc", "/home", "/lib", "/lib64", "/opt", "/proc",
                                     "/root", "/run",  "/sbin", "/sys", "/tmp",  "/usr", "/var",   NULL};
    check_node_path(c, at);
    for (size_t i = 0; no[i] != NULL && !spec_is_bad(c, at); i++)
        if (strcmp(no[i], at->value) == 0)
            spec_complain(c, at,
                          "a mount at '%s' would hide the system's own files: use a folder of its own, such as "
                          "/data",
                          spec_shown(at, at->value));
}

static void only_with(struct spec_ctx *c, const struct yaml_node *map, const char *key, const char *kinds, bool fits) {
    const struct yaml_node *at = own(c, map, key);
    if (at != NULL && !fits) spec_complain(c, at, "'%s' is only for %s", key, kinds);
}

static void rule_mount(struct spec_ctx *c, const struct yaml_node *map, void *to) {
    const struct spec_mount *m = to;
    const struct yaml_node *first = NULL;
    if (map == NULL || c->names == NULL) return; /* a journal's spec was checked once */
    for (size_t i = 0; mount_kinds[i] != NULL; i++) {
        const struct yaml_node *at = yaml_get(map, mount_kinds[i]);
        if (at == NULL) continue;
        if (first != NULL && !spec_is_bad(c, at))
            spec_complain(c, at, "a mount has one source: remove '%s' or the other one", mount_kinds[i]);
        first = at;
    }
    if (first == NULL)
        spec_complain(c, map, "a mount needs one of nvme, volume, nfs, lustre and bucket, such as nvme: auto");
    /* one with a wrong value is there, too */
    bool bucket = yaml_get(map, "bucket") != NULL;
    only_with(c, map, "fs", "nvme and volume", yaml_get(map, "nvme") != NULL || yaml_get(map, "volume") != NULL);
    only_with(c, map, "endpoint", "bucket", bucket);
    only_with(c, map, "region", "bucket", bucket);
    only_with(c, map, "secrets", "bucket", bucket);
    if (m->bucket != NULL && str_starts(m->bucket, "oss://") && m->endpoint == NULL && own(c, map, "bucket") != NULL)
        spec_complain(c, own(c, map, "bucket"),
                      "an oss:// bucket needs 'endpoint', such as "
                      "https://oss-cn-hangzhou.aliyuncs.com");
    if (m->bucket != NULL && str_starts(m->bucket, "gs://")) only_with(c, map, "endpoint", "s3:// and oss://", false);
    for (size_t i = 0; i < c->spec->storage.mounts.len; i++) {
        const struct spec_mount *other = &c->spec->storage.mounts.items[i];
        if (other == m) break;
        if (other->at != NULL && str_eq(other->at, m->at) && own(c, map, "at") != NULL)
            spec_complain(c, own(c, map, "at"), "two mounts are at '%s'", m->at);
        if (other->nvme != NULL && m->nvme != NULL)
            spec_complain(c, own(c, map, "nvme"), "there is one mount of nvme already: it has all local disks");
    }
}

void spec_rule_mount_secrets(struct spec_ctx *c, const struct yaml_node *root) {
    const struct yaml_node *boot = c->names != NULL ? yaml_get(root, "bootstrap") : NULL;
    const struct yaml_node *list = boot != NULL && boot->kind == YAML_MAP ? yaml_get(boot, "mounts") : NULL;
    for (size_t i = 0; list != NULL && list->kind == YAML_LIST && i < list->items.len; i++) {
        const struct yaml_node *item = list->items.items[i];
        const struct yaml_node *names = item->kind == YAML_MAP ? yaml_get(item, "secrets") : NULL;
        for (size_t k = 0; names != NULL && names->kind == YAML_LIST && k < names->items.len; k++) {
            const struct yaml_node *at = names->items.items[k];
            bool known = at->kind != YAML_SCALAR || spec_is_bad(c, at);
            for (size_t n = 0; n < c->spec->secrets.len && !known; n++)
                known = str_eq(c->spec->secrets.items[n].env, at->value);
            if (!known)
                spec_complain(c, at, "'secrets' of the spec has no '%.60s': add {env: %.60s, from: ...} there",
                              spec_shown(at, at->value), spec_shown(at, at->value));
        }
    }
}

/* clang-format off */
static const struct spec_field mount_fields[] = {
    {.name = "at", .type = SPEC_TEXT, .offset = offsetof(struct spec_mount, at), .required = true,
     .doc = "the folder of the node; created where it is missing", .example = "/data", .pattern = NODE_PATH,
     .pattern_doc = NODE_PATH_DOC, .check = check_mount_point, .effect = SPEC_REPEATED},
    {.name = "nvme", .type = SPEC_TEXT, .offset = offsetof(struct spec_mount, nvme), .choices = nvme_choices,
     .doc = "all local NVMe disks that are blank: one is formatted, several are striped. A disk with a file system, "
            "partitions or other data is never formatted", .example = "auto", .effect = SPEC_REPEATED},
    {.name = "volume", .type = SPEC_TEXT, .offset = offsetof(struct spec_mount, volume),
     .doc = "a disk by its device or its id at the provider; formatted only when it is blank",
     .example = "vol-0123456789abcdef0",
     .pattern = "^(/dev(/[A-Za-z0-9._:+@=-]+)+|[A-Za-z0-9][A-Za-z0-9-]{2,62})$",
     .pattern_doc = "a device such as /dev/nvme1n1, or an id", .effect = SPEC_REPEATED},
    {.name = "nfs", .type = SPEC_TEXT, .offset = offsetof(struct spec_mount, nfs),
     .doc = "a folder of an NFS server: server:/path", .example = "10.0.0.5:/export",
     .pattern = "^([A-Za-z0-9][A-Za-z0-9.-]{0,253}|\\[[0-9A-Fa-f:]+\\]):/[A-Za-z0-9._/+@=-]*$",
     .pattern_doc = "server:/path", .effect = SPEC_REPEATED},
    {.name = "lustre", .type = SPEC_TEXT, .offset = offsetof(struct spec_mount, lustre),
     .doc = "a Lustre file system: server@network:/name", .example = "fs-1.example@tcp:/abc",
     .pattern = "^[A-Za-z0-9][A-Za-z0-9.@:,-]{0,253}:/[A-Za-z0-9._/-]+$", .pattern_doc = "server@network:/name",
     .effect = SPEC_REPEATED},
    {.name = "bucket", .type = SPEC_TEXT, .offset = offsetof(struct spec_mount, bucket),
     .doc = "an object store's bucket: s3://, gs:// or oss://, with or without a folder in it",
     .example = "s3://data/train", .pattern = "^(s3|gs|oss)://[a-z0-9][a-z0-9._-]{1,61}[a-z0-9](/[A-Za-z0-9._=+@-]+)*$",
     .pattern_doc = "s3://, gs:// or oss:// and a bucket's name of 3 to 63 characters", .effect = SPEC_REPEATED},
    {.name = "fs", .type = SPEC_TEXT, .offset = offsetof(struct spec_mount, fs), .choices = fs_choices,
     .def_doc = "ext4 for a blank disk, else what it has", .doc = "the file system of nvme and volume",
     .example = "xfs", .effect = SPEC_REPEATED},
    {.name = "options", .type = SPEC_TEXT, .offset = offsetof(struct spec_mount, options), .def_doc = "none",
     .doc = "mount options, separated by commas; for buckets options of `rclone mount` without their dashes",
     .example = "noatime", .pattern = "^[A-Za-z0-9._=:/+@%-]+(,[A-Za-z0-9._=:/+@%-]+)*$",
     .pattern_doc = "options separated by commas", .effect = SPEC_REPEATED},
    {.name = "mode", .type = SPEC_ENUM, .offset = offsetof(struct spec_mount, mode), .choices = mount_modes,
     .def = "write", .doc = "`write` is tried by writing a file", .example = "read", .effect = SPEC_REPEATED},
    {.name = "endpoint", .type = SPEC_TEXT, .offset = offsetof(struct spec_mount, endpoint),
     .def_doc = "the one of the store", .doc = "where the bucket is served", .example = "https://s3.example",
     .pattern = "^https?://[][A-Za-z0-9.:-]+(/[A-Za-z0-9._/-]*)?$", .pattern_doc = "http:// or https:// and a host",
     .effect = SPEC_REPEATED},
    {.name = "region", .type = SPEC_TEXT, .offset = offsetof(struct spec_mount, region), .def_doc = "the tool's own",
     .doc = "the bucket's region", .example = "eu-west-1", .pattern = "^[a-z0-9-]{2,40}$",
     .pattern_doc = "a region's name", .effect = SPEC_REPEATED},
    {.name = "secrets", .type = SPEC_TEXTS, .offset = offsetof(struct spec_mount, secrets),
     .def_doc = "the node's own permissions",
     .doc = "names of entries of the spec's `secrets` that the mount has in its environment",
     .example = "[S3_KEY]", .pattern = "^[A-Za-z_][A-Za-z0-9_]{0,99}$",
     .pattern_doc = "a variable's name", .effect = SPEC_REPEATED},
    {0}};
const struct spec_block spec_mount_block = {
    .path = "bootstrap.mounts[]",
    .doc = "File systems of every node. They are mounted again after a reboot. A mount has one source: nvme, volume, "
            "nfs, lustre or bucket.",
    .fields = mount_fields, .size = sizeof(struct spec_mount), .rules = rule_mount};
/* clang-format on */

/* --- limits --- */

void spec_limits_from_text(struct spec_ctx *c, const struct yaml_node *at, void *to) {
    struct spec_node_limits *l = to;
    if (strcmp(at->value, "auto") != 0) {
        spec_complain(c, at, "'limits' must be auto or a map such as {memlock: unlimited}, not '%.60s'",
                      spec_shown(at, at->value));
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
