/* SPDX-License-Identifier: Apache-2.0 */
/* A folder to a bucket and back, file by file. The folder holds what nodes wrote: no link below it is followed but to
 * files inside it. One thread. */
#include "base/gp_base.h"

#include "engine/transfer/bucket_copy.h"

#include "base/fs.h"
#include "base/hash.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#define NOTES_MAX 20
#define DEPTH_MAX 200
#define BLOCK ((size_t)1 << 20)
#define NOTE_MAX ((size_t)16 << 10)

struct job {
    struct bucket *b;
    struct bucket_pace *pace; /* NULL: no limits */
    const char *folder, *note;
    char *real; /* the folder without links */
    struct bucket_objects there;
    struct tree_stats *stats;
    uint64_t links; /* to folders, left out */
};

static void left_out(struct job *j, const char *path, const char *why) {
    GP_AUTO_STR struct str clean = {0};
    str_add_clean(&clean, path);
    j->stats->left_out++;
    if (j->stats->notes.n < NOTES_MAX) strv_addf(&j->stats->notes, "'%s': %s", clean.s, why);
}

/* The hashes of a whole file. */
static int hash_file(int fd, uint64_t size, char hex[65], uint32_t *crc32c, struct gp_error *err) {
    GP_AUTO_SHA256_SUM struct sha256_sum sum = {0};
    GP_AUTO_FREE unsigned char *block = xmalloc(BLOCK);
    unsigned char bytes[SHA256_BYTES];
    *crc32c = 0;
    sha256_sum_begin(&sum);
    for (uint64_t at = 0; at < size; at += BLOCK) {
        size_t n = (size_t)GP_MIN((uint64_t)BLOCK, size - at);
        int r = bucket_read(fd, at, block, n, err);
        if (r != 0) return r;
        sha256_sum_add(&sum, block, n);
        *crc32c = bucket_crc32c(*crc32c, block, n);
    }
    sha256_sum_end(&sum, bytes);
    str_hex(hex, bytes, sizeof bytes);
    return 0;
}

/* --- up --- */

/* The store has this content already. */
static int is_there(struct job *j, const struct bucket_put *put, bool *ret, struct gp_error *err) {
    const struct bucket_object *o = bucket_objects_find(&j->there, put->path);
    *ret = false;
    if (o == NULL || o->size != put->size) return 0;
    struct bucket_object known = *o;
    struct gp_error why = {0};
    int r = known.sha256[0] == '\0' ? j->b->ops->stat(j->b, &known, &why) : 0;
    if (r == -GP_ENOTFOUND) return 0; /* removed since it was listed */
    if (r != 0 && err != NULL) *err = why;
    *ret = r == 0 && strcmp(known.sha256, put->sha256) == 0;
    return r;
}

static int send_file(struct job *j, int fd, const char *path, uint64_t size, struct gp_error *err) {
    char hex[65];
    bool there = false;
    struct bucket_put put = {.path = path, .fd = fd, .size = size, .sha256 = hex, .note = j->note};
    struct gp_error why = {0};
    int r = hash_file(fd, size, hex, &put.crc32c, &why);
    if (r != 0) {
        left_out(j, path, why.msg);
        return 0;
    }
    j->stats->files++;
    j->stats->bytes += size;
    r = is_there(j, &put, &there, err);
    if (r != 0 || there) return r;
    r = j->b->ops->put(j->b, &put, &why);
    if (r == -GP_EBUSY) {
        left_out(j, path, why.msg);
        return 0;
    }
    if (r == 0) {
        j->stats->files_sent++;
        j->stats->bytes_sent += size;
    } else if (err != NULL) {
        *err = why;
    }
    return r;
}

/* The file that a link leads to, if it is inside the folder. -1: it is not. */
static int open_linked(const struct job *j, int dir, const char *name) {
    char text[4096], place[64];
    int fd = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) return -1;
    snprintf(place, sizeof place, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(place, text, sizeof text - 1);
    size_t real = strlen(j->real);
    if (n > 0 && (size_t)n > real && strncmp(text, j->real, real) == 0 && text[real] == '/') return fd;
    close(fd);
    return -1;
}

static int send_entry(struct job *j, int dir, const char *name, const char *path, int depth, struct gp_error *err);

static int compare(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static int names_in(int dir, struct strv *ret, struct gp_error *err) {
    int own = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = own >= 0 ? fdopendir(own) : NULL;
    if (d == NULL) {
        int e = errno;
        if (own >= 0) close(own);
        return gp_fail_errno(err, GP_EIO, e, "a folder could not be read");
    }
    for (const struct dirent *e = NULL; (e = readdir(d)) != NULL;)
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0) strv_add(ret, e->d_name);
    closedir(d);
    if (ret->n > 1) qsort(ret->v, ret->n, sizeof *ret->v, compare);
    return 0;
}

static int send_folder(struct job *j, int dir, const char *path, int depth, struct gp_error *err) {
    GP_AUTO_STRV struct strv names = {0};
    int r = names_in(dir, &names, err);
    for (size_t i = 0; r == 0 && i < names.n; i++) {
        if (str_starts(names.v[i], ".gpuprov-")) continue; /* a transfer's own */
        GP_AUTO_FREE char *below = path[0] != '\0' ? xasprintf("%s/%s", path, names.v[i]) : xstrdup(names.v[i]);
        r = send_entry(j, dir, names.v[i], below, depth, err);
    }
    return r;
}

static int send_entry(struct job *j, int dir, const char *name, const char *path, int depth, struct gp_error *err) {
    GP_AUTO_FD int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    bool link = fd < 0 && errno == ELOOP;
    struct stat st;
    if (link) fd = open_linked(j, dir, name);
    if (fd < 0 || fstat(fd, &st) != 0) {
        left_out(j, path, link ? "the link leads to no file inside the folder" : "it cannot be read");
        return 0;
    }
    if (S_ISDIR(st.st_mode) && !link && depth < DEPTH_MAX) return send_folder(j, fd, path, depth + 1, err);
    if (!S_ISREG(st.st_mode)) {
        j->links += link && S_ISDIR(st.st_mode);
        left_out(j, path, link ? "a link to a folder cannot be kept in a bucket" : "neither a file nor a folder");
        return 0;
    }
    if (!bucket_path_valid(path, strlen(path))) {
        left_out(j, path, "no object can have this name");
        return 0;
    }
    int r = send_file(j, fd, path, (uint64_t)st.st_size, err);
    bucket_pace_object(j->pace);
    return r;
}

/* Ends the upload of a gpuprov that was killed: its parts are billed. */
static int end_unfinished(struct job *j, struct gp_error *err) {
    GP_AUTO_STR struct str text = {0};
    struct gp_error why = {0};
    int r = fs_read(j->note, NOTE_MAX, &text, &why);
    if (r == -GP_ENOTFOUND) return 0;
    if (r == 0 && j->b->ops->abandon != NULL) r = j->b->ops->abandon(j->b, text.s != NULL ? text.s : "", &why);
    if (r == -GP_EPROTO) {
        gp_error_clear(&why);
        r = 0;
    }
    if (r == 0) unlink(j->note);
    else if (err != NULL) *err = why;
    return r;
}

int bucket_up(struct bucket *b, struct bucket_pace *pace, const char *folder, const char *note, struct tree_stats *ret,
              uint64_t *ret_links, struct gp_error *err) {
    struct job j = {.b = b, .pace = pace, .folder = folder, .note = note, .stats = ret};
    *ret_links = 0;
    int r = end_unfinished(&j, err);
    if (r != 0) return r;
    GP_AUTO_FD int dir = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0 && errno == ENOENT) return 0;
    if (dir < 0) return gp_fail_errno(err, GP_EIO, errno, "'%s' could not be read", folder);
    j.real = realpath(folder, NULL);
    if (j.real == NULL) return gp_fail_errno(err, GP_EIO, errno, "'%s' could not be read", folder);
    r = b->ops->list(b, &j.there, err);
    if (r == 0) r = send_folder(&j, dir, "", 0, err);
    *ret_links = j.links;
    free(j.real);
    bucket_objects_clear(&j.there);
    return r;
}

/* --- down --- */

/* The file is here with the content that the store has. */
static bool is_here(const char *path, const struct bucket_object *o) {
    GP_AUTO_FD int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    struct stat st;
    char hex[65];
    uint32_t crc = 0;
    if (fd < 0 || fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || (uint64_t)st.st_size != o->size) return false;
    return o->sha256[0] != '\0' && hash_file(fd, o->size, hex, &crc, NULL) == 0 && strcmp(hex, o->sha256) == 0;
}

static int fetch_content(struct job *j, int fd, const struct bucket_object *o, struct gp_error *err) {
    struct bucket_get get = {.path = o->path, .fd = fd, .size = o->size};
    char hex[65];
    uint32_t crc = 0;
    int r = j->b->ops->get(j->b, &get, err);
    if (r == 0) r = hash_file(fd, o->size, hex, &crc, err);
    if (r == 0 && o->sha256[0] != '\0' && strcmp(hex, o->sha256) != 0)
        r = gp_fail(err, GP_EPROTO, "'%s/%s': its content does not have the hash that was stored with it: remove it",
                    j->b->text, o->path);
    return r;
}

/* The size comes from the store. */
static int check_room(const struct job *j, const struct bucket_object *o, struct gp_error *err) {
    GP_AUTO_FD int dir = open(j->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    uint64_t left = 0, disk = 0;
    char need[24], there[24];
    if (dir < 0 || !fs_room(dir, &left, &disk) || o->size <= left) return 0;
    bytes_format(need, sizeof need, o->size);
    bytes_format(there, sizeof there, left);
    return gp_fail(err, GP_EIO, "'%s/%s' needs %s and '%s' has %s: free some space and repeat the command", j->b->text,
                   o->path, need, j->folder, there);
}

static int fetch_file(struct job *j, struct bucket_object *o, struct gp_error *err) {
    GP_AUTO_FREE char *path = fs_join(j->folder, o->path);
    GP_AUTO_FREE char *parent = xstrdup(path);
    *strrchr(parent, '/') = '\0';
    int r = o->sha256[0] == '\0' ? j->b->ops->stat(j->b, o, err) : 0;
    if (r != 0) return r;
    j->stats->files++;
    j->stats->bytes += o->size;
    if (is_here(path, o)) return 0;
    struct gp_error why = {0};
    if (fs_mkdirs(parent, 0700, &why) != 0) { /* "a" and "a/b" */
        left_out(j, o->path, "a file of the bucket has the name of its folder");
        return 0;
    }
    r = check_room(j, o, err);
    if (r != 0) return r;
    GP_AUTO_FD int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0 && (errno == EISDIR || errno == ENOTDIR)) {
        left_out(j, o->path, "a folder of the bucket has its name");
        return 0;
    }
    if (fd < 0) return gp_fail_errno(err, GP_EIO, errno, "'%s' could not be created", path);
    r = fetch_content(j, fd, o, err);
    if (r == 0 && fsync(fd) != 0) r = gp_fail_errno(err, GP_EIO, errno, "'%s' could not be written", path);
    if (r != 0) {
        unlink(path);
        return r;
    }
    j->stats->files_sent++;
    j->stats->bytes_sent += o->size;
    return 0;
}

/* The folder of some object. */
static bool is_parent(const struct job *j, const char *path) {
    GP_AUTO_FREE char *head = xasprintf("%s/", path);
    size_t from = 0, to = j->there.list.len;
    while (from < to) { /* the first object that is not before it */
        size_t mid = from + (to - from) / 2;
        if (strcmp(j->there.list.items[mid].path, head) < 0) from = mid + 1;
        else to = mid;
    }
    return from < j->there.list.len && str_starts(j->there.list.items[from].path, head);
}

/* Removes what is no object, and no folder of one; so no link is left that a file would be written through. */
static int prune(const struct job *j, int dir, const char *path, struct gp_error *err) {
    GP_AUTO_STRV struct strv names = {0};
    int r = names_in(dir, &names, err);
    for (size_t i = 0; r == 0 && i < names.n; i++) {
        GP_AUTO_FREE char *below = path[0] != '\0' ? xasprintf("%s/%s", path, names.v[i]) : xstrdup(names.v[i]);
        GP_AUTO_FREE char *whole = fs_join(j->folder, below);
        struct stat st;
        if (fstatat(dir, names.v[i], &st, AT_SYMLINK_NOFOLLOW) != 0)
            return gp_fail_errno(err, GP_EIO, errno, "'%s' could not be read", whole);
        if (S_ISREG(st.st_mode) && bucket_objects_find(&j->there, below) != NULL) continue;
        if (!S_ISDIR(st.st_mode) || !is_parent(j, below)) {
            r = fs_remove_tree(whole, err);
            continue;
        }
        GP_AUTO_FD int fd = openat(dir, names.v[i], O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0) return gp_fail_errno(err, GP_EIO, errno, "'%s' could not be read", whole);
        r = prune(j, fd, below, err);
    }
    return r;
}

static int prune_all(const struct job *j, struct gp_error *err) {
    GP_AUTO_FD int dir = open(j->folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (dir < 0) return gp_fail_errno(err, GP_EIO, errno, "'%s' could not be read", j->folder);
    return prune(j, dir, "", err);
}

int bucket_down(struct bucket *b, struct bucket_pace *pace, const char *folder, struct tree_stats *ret,
                struct gp_error *err) {
    struct job j = {.b = b, .pace = pace, .folder = folder, .stats = ret};
    int r = b->ops->list(b, &j.there, err);
    if (r == 0) r = fs_mkdirs(folder, 0700, err);
    if (r == 0) r = prune_all(&j, err);
    ret->left_out += j.there.left_out;
    strv_copy(&ret->notes, &j.there.notes);
    for (size_t i = 0; r == 0 && i < j.there.list.len; i++) {
        r = fetch_file(&j, &j.there.list.items[i], err);
        bucket_pace_object(pace);
    }
    bucket_objects_clear(&j.there);
    return r;
}
