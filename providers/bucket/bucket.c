/* SPDX-License-Identifier: Apache-2.0 */
/* The table of object stores, and what their implementations share. The keys of a bucket are foreign: they become
 * paths only here. Any thread. */
#include "base/gp_base.h"

#include "providers/bucket/bucket.h"

#include <errno.h>
#include <unistd.h>

#define PATH_MAX_BYTES 1024 /* a key has at most as many */
#define NAME_MAX_BYTES 255
#define NOTES_MAX 20
#define PARTS_MAX 9000 /* S3 takes 10000 */
#define MIB ((uint64_t)1 << 20)

const struct bucket_ops *const bucket_registry[] = {&bucket_s3, &bucket_gs, NULL};

int bucket_open(const char *to, const struct gp_cancel *cancel, const struct http_watch *watch, struct bucket **ret,
                struct gp_error *err) {
    GP_AUTO_BUCKET_URL struct bucket_url where = {0};
    int r = bucket_url_decode(to, &where, err);
    if (r != 0) return r;
    for (size_t i = 0; bucket_registry[i] != NULL; i++) {
        if (strcmp(bucket_registry[i]->scheme, where.scheme) != 0) continue;
        r = bucket_registry[i]->open(&where, cancel, watch, ret, err);
        if (r != 0) return r;
        (*ret)->cancel = cancel;
        (*ret)->watch = watch;
        return 0;
    }
    return gp_fail(err, GP_EINTERNAL, "'%s': no implementation has the scheme", to);
}

void bucket_close(struct bucket *b) {
    if (b != NULL) b->ops->close(b);
}

void bucket_cleanup(struct bucket **b) {
    bucket_close(*b);
    *b = NULL;
}

void bucket_init(struct bucket *b, const struct bucket_ops *ops, const struct bucket_url *where) {
    bool all = where->prefix[0] == '\0';
    b->ops = ops;
    b->name = xstrdup(where->name);
    b->prefix = xstrdup(where->prefix);
    b->text = xasprintf("%s://%s%s%s", where->scheme, where->name, all ? "" : "/", where->prefix);
}

void bucket_clear(struct bucket *b) {
    free(b->name);
    free(b->prefix);
    free(b->text);
}

char *bucket_key(const struct bucket *b, const char *path) {
    return b->prefix[0] != '\0' ? xasprintf("%s/%s", b->prefix, path) : xstrdup(path);
}

/* --- keys --- */

static bool text_valid(const char *s, size_t n) {
    for (size_t i = 0; i < n;) {
        uint32_t c = 0;
        size_t bytes = str_utf8(s + i, n - i, &c);
        if (bytes == 0 || c < 0x20 || (c >= 0x7f && c < 0xa0)) return false;
        i += bytes;
    }
    return true;
}

bool bucket_path_valid(const char *path, size_t n) {
    if (n == 0 || n > PATH_MAX_BYTES || !text_valid(path, n)) return false;
    for (size_t at = 0; at <= n;) {
        const char *part = path + at, *slash = memchr(part, '/', n - at);
        size_t len = slash != NULL ? (size_t)(slash - part) : n - at;
        bool dots = (len == 1 && part[0] == '.') || (len == 2 && memcmp(part, "..", 2) == 0);
        if (len == 0 || len > NAME_MAX_BYTES || dots || (len >= 9 && memcmp(part, ".gpuprov-", 9) == 0)) return false;
        at += len + 1;
    }
    return true;
}

bool bucket_sha256_valid(const char *s) { return strlen(s) == 64 && strspn(s, "0123456789abcdef") == 64; }

int bucket_objects_add(const struct bucket *b, struct bucket_objects *o, const char *key, size_t n, uint64_t size,
                       const char *sha256, struct gp_error *err) {
    size_t skip = b->prefix[0] != '\0' ? strlen(b->prefix) + 1 : 0;
    if (n > 0 && key[n - 1] == '/' && size == 0) return 0;
    bool below = n > skip && (skip == 0 || (memcmp(key, b->prefix, skip - 1) == 0 && key[skip - 1] == '/'));
    if (!below || !bucket_path_valid(key + skip, n - skip)) {
        GP_AUTO_FREE char *shown = xstrndup(key, GP_MIN(n, (size_t)200));
        str_one_line(shown);
        if (o->notes.n < NOTES_MAX)
            strv_addf(&o->notes, "'%s': not the name of a file that can be created here", shown);
        o->left_out++;
        return 0;
    }
    o->bytes += sizeof(struct bucket_object) + n - skip + 1;
    if (o->bytes > BUCKET_LIST_MAX)
        return gp_fail(err, GP_EPROTO,
                       "'%s': its list of objects has more than %zu MiB, after %zu of them: use a prefix with fewer",
                       b->text, BUCKET_LIST_MAX >> 20, o->list.len);
    struct bucket_object one = {.path = xstrndup(key + skip, n - skip), .size = size};
    if (sha256 != NULL && bucket_sha256_valid(sha256)) str_put(one.sha256, sizeof one.sha256, sha256);
    vec_push(&o->list, one);
    return 0;
}

static int compare(const void *a, const void *b) {
    const struct bucket_object *x = a, *y = b;
    return strcmp(x->path, y->path);
}

void bucket_objects_sort(struct bucket_objects *o) {
    size_t n = 0;
    if (o->list.len == 0) return;
    qsort(o->list.items, o->list.len, sizeof *o->list.items, compare);
    for (size_t i = 0; i < o->list.len; i++) {
        if (n > 0 && strcmp(o->list.items[n - 1].path, o->list.items[i].path) == 0) free(o->list.items[i].path);
        else o->list.items[n++] = o->list.items[i];
    }
    o->list.len = n;
}

void bucket_objects_clear(struct bucket_objects *o) {
    for (size_t i = 0; i < o->list.len; i++) free(o->list.items[i].path);
    vec_free(&o->list);
    strv_clear(&o->notes);
    *o = (struct bucket_objects){0};
}

const struct bucket_object *bucket_objects_find(const struct bucket_objects *o, const char *path) {
    const struct bucket_object key = {.path = (char *)(uintptr_t)path};
    return o->list.len > 0 ? bsearch(&key, o->list.items, o->list.len, sizeof key, compare) : NULL;
}

/* --- files --- */

int bucket_read(int fd, uint64_t at, void *ret, size_t n, struct gp_error *err) {
    for (size_t done = 0; done < n;) {
        ssize_t got = pread(fd, (char *)ret + done, n - done, (off_t)(at + done));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return gp_fail_errno(err, GP_EIO, errno, "a file could not be read");
        if (got == 0) return gp_fail(err, GP_EBUSY, "the file became shorter while it was read");
        done += (size_t)got;
    }
    return 0;
}

int bucket_write(int fd, uint64_t at, const void *p, size_t n, struct gp_error *err) {
    for (size_t done = 0; done < n;) {
        ssize_t put = pwrite(fd, (const char *)p + done, n - done, (off_t)(at + done));
        if (put < 0 && errno == EINTR) continue;
        if (put < 0) return gp_fail_errno(err, GP_EIO, errno, "a file could not be written");
        done += (size_t)put;
    }
    return 0;
}

uint64_t bucket_part_size(uint64_t size) {
    uint64_t least = (size / PARTS_MAX + MIB) / MIB * MIB;
    return GP_MAX(least, BUCKET_PART);
}

uint32_t bucket_crc32c(uint32_t crc, const void *p, size_t n) {
    uint32_t table[256];
    const unsigned char *s = p;
    for (uint32_t i = 0; i < 256; i++) {
        table[i] = i;
        for (int k = 0; k < 8; k++) table[i] = (table[i] >> 1) ^ (0x82f63b78U & (0U - (table[i] & 1U)));
    }
    crc = ~crc;
    for (size_t i = 0; i < n; i++) crc = table[(crc ^ s[i]) & 0xffU] ^ (crc >> 8);
    return ~crc;
}
