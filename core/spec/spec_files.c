/* SPDX-License-Identifier: Apache-2.0 */
/* Walks the files and folders of bootstrap.files within limits. Links inside a folder and special files are refused:
 * what is copied is what is seen. Any thread. */
#include "base/gp_base.h"

#include "spec/spec_files.h"

#include "base/fs.h"
#include "base/hash.h"

#include <dirent.h>
#include <errno.h>

#define DEPTH_MAX 32

static int walk_any(struct spec_files_walk *w, const struct spec_file *entry, const char *from, const char *to,
                    int depth, struct gp_error *err);

/* Names go to the node one per line. */
static bool name_fits(const char *name) {
    for (const unsigned char *p = (const unsigned char *)name; *p; p++)
        if (*p < 0x20 || *p == 0x7f || *p == '\\') return false;
    return true;
}

static int by_name(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static int walk_folder(struct spec_files_walk *w, const struct spec_file *entry, const char *from, const char *to,
                       int depth, struct gp_error *err) {
    if (depth == DEPTH_MAX) return gp_fail(err, GP_EUSAGE, "'%s' is more than %d folders deep", from, DEPTH_MAX);
    DIR *d = opendir(from);
    if (!d) return gp_fail(err, GP_EIO, "cannot read the folder '%s': %s", from, strerror(errno));
    GP_AUTO_STRV struct strv names = {0};
    for (struct dirent *e = NULL; (e = readdir(d)) != NULL && names.n <= SPEC_FILES_MAX;)
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0) strv_add(&names, e->d_name);
    closedir(d);
    if (names.n > 1) qsort(names.v, names.n, sizeof *names.v, by_name);
    int rc = 0;
    for (size_t i = 0; i < names.n && !rc; i++) {
        GP_AUTO_FREE char *inner = xasprintf("%s/%s", from, names.v[i]);
        GP_AUTO_FREE char *there = xasprintf("%s/%s", to, names.v[i]);
        if (name_fits(names.v[i])) rc = walk_any(w, entry, inner, there, depth + 1, err);
        else rc = gp_fail(err, GP_EUSAGE, "a name in '%s' has a control character or a backslash: rename it", from);
    }
    return rc;
}

static int walk_file(struct spec_files_walk *w, const struct spec_file *entry, const char *from, const char *to,
                     const struct stat *st, struct gp_error *err) {
    w->bytes += (size_t)st->st_size;
    if (w->files++ == SPEC_FILES_MAX || w->bytes > SPEC_FILES_BYTES)
        return gp_fail(err, GP_EUSAGE,
                       "'%s' exceeds the limit of %d files and %zu MiB in all: use bootstrap.mounts or a step for "
                       "large data",
                       from, SPEC_FILES_MAX, SPEC_FILES_BYTES >> 20);
    unsigned mode = st->st_mode & 0111 ? 0755u : 0644u;
    if (entry->mode) mode = (unsigned)strtoul(entry->mode, NULL, 8) & 0777u;
    return w->each(w->ctx, from, to, mode, st, err);
}

static int walk_any(struct spec_files_walk *w, const struct spec_file *entry, const char *from, const char *to,
                    int depth, struct gp_error *err) {
    struct stat st;
    /* the path in the spec itself may be a link */
    if ((depth > 0 ? lstat(from, &st) : stat(from, &st)) != 0)
        return gp_fail(err, GP_EIO, "could not read '%s': %s%s", from, strerror(errno),
                       depth == 0 ? "; 'from' is relative to the spec" : "");
    if (S_ISDIR(st.st_mode)) return walk_folder(w, entry, from, to, depth, err);
    if (S_ISREG(st.st_mode)) return walk_file(w, entry, from, to, &st, err);
    if (depth == 0) return gp_fail(err, GP_EUSAGE, "'%s' is neither a file nor a folder", from);
    return gp_fail(err, GP_EUSAGE, "'%s' is %s: only files and folders are copied; remove it from the folder", from,
                   S_ISLNK(st.st_mode) ? "a symbolic link" : "a special file");
}

int spec_files_walk(struct spec_files_walk *w, const struct spec_file *entry, struct gp_error *err) {
    return walk_any(w, entry, entry->from, "", 0, err);
}

static int add_sum(void *ctx, const char *from, const char *to, unsigned mode, const struct stat *st,
                   struct gp_error *err) {
    struct str text = {.max = SPEC_FILES_BYTES + 1};
    char sum[65];
    int rc = fs_read(from, (size_t)st->st_size, &text, err);
    if (!rc) {
        sha256_hex(text.s, text.len, sum);
        str_addf(ctx, "%s %o %s\n", to, mode, sum);
    }
    str_clear(&text);
    return rc;
}

int spec_files_sum(struct spec_files_walk *w, const struct spec_file *entry, char ret[65], struct gp_error *err) {
    GP_AUTO_STR struct str all = {0};
    struct spec_files_walk own = {.each = add_sum, .ctx = &all, .files = w->files, .bytes = w->bytes};
    int rc = spec_files_walk(&own, entry, err);
    w->files = own.files;
    w->bytes = own.bytes;
    if (!rc) sha256_hex(all.s, all.len, ret);
    return rc;
}
