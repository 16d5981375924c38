/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the files and folders of bootstrap.files. The newest set stays in memory, so that the nodes of a stack
 * share one copy; a file that changed here makes a new set. Any thread. */
#include "base/gp_base.h"

#include "bootstrap/files.h"

#include "base/hash.h"
#include "spec/spec_files.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

static struct {
    pthread_mutex_t lock;
    struct boot_files *newest; /* counted as a user */
} cache = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void set_free(struct boot_files *f) {
    for (size_t i = 0; i < f->items.len; i++) {
        struct boot_file_item *it = &f->items.items[i];
        free(it->from);
        free(it->to);
        free(it->owner);
        free(it->data);
    }
    vec_free(&f->items);
    free(f);
}

static void drop_locked(struct boot_files *f) {
    if (f && --f->users == 0) set_free(f);
}

void boot_files_release(struct boot_files *f) {
    pthread_mutex_lock(&cache.lock);
    drop_locked(f);
    pthread_mutex_unlock(&cache.lock);
}

struct walk {
    struct boot_files *set;
    const struct spec_file *entry;
};

static int add_file(void *ctx, const char *from, const char *to, unsigned mode, const struct stat *st,
                    struct gp_error *err GP_UNUSED) {
    const struct walk *w = ctx;
    struct boot_file_item it = {.from = xstrdup(from),
                                .to = xasprintf("%s%s", w->entry->to, to),
                                .st = *st,
                                .owner = xstrdup(w->entry->owner ? w->entry->owner : "-")};
    snprintf(it.mode, sizeof it.mode, "%o", mode & 0777u); /* as "stat -c %a" prints it */
    vec_push(&w->set->items, it);
    return 0;
}

static bool same_stat(const struct stat *a, const struct stat *b) {
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_size == b->st_size &&
           a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec &&
           a->st_ctim.tv_sec == b->st_ctim.tv_sec && a->st_ctim.tv_nsec == b->st_ctim.tv_nsec;
}

static bool same_set(const struct boot_files *a, const struct boot_files *b) {
    if (!a || a->items.len != b->items.len) return false;
    for (size_t i = 0; i < a->items.len; i++) {
        const struct boot_file_item *x = &a->items.items[i], *y = &b->items.items[i];
        if (!str_eq(x->from, y->from) || !str_eq(x->to, y->to) || strcmp(x->mode, y->mode) != 0 ||
            !str_eq(x->owner, y->owner) || !same_stat(&x->st, &y->st))
            return false;
    }
    return true;
}

static int item_read(struct boot_file_item *it, struct gp_error *err) {
    int fd = open(it->from, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) != 0) {
        int no = errno;
        if (fd >= 0) close(fd);
        return gp_fail(err, GP_EIO, "cannot read '%s': %s", it->from, strerror(no));
    }
    size_t want = (size_t)it->st.st_size;
    it->data = xmalloc(want + 1); /* one more, to notice a file that grows */
    ssize_t got = 0;
    while (it->n <= want && (got = read(fd, (char *)it->data + it->n, want + 1 - it->n)) > 0) it->n += (size_t)got;
    int no = errno;
    close(fd);
    if (got < 0) return gp_fail(err, GP_EIO, "cannot read '%s': %s", it->from, strerror(no));
    if (it->n != want)
        return gp_fail(err, GP_EIO, "'%s' changes while it is read: run gpuprov again afterwards", it->from);
    sha256_hex(it->data, it->n, it->sha256);
    return 0;
}

static int set_make(const struct spec_storage *s, struct boot_files *set, struct gp_error *err) {
    struct walk w = {.set = set};
    struct spec_files_walk walk = {.each = add_file, .ctx = &w};
    int rc = 0;
    for (size_t i = 0; i < s->files.len && !rc; i++) {
        w.entry = &s->files.items[i];
        rc = spec_files_walk(&walk, w.entry, err);
    }
    return rc;
}

int boot_files_get(const struct spec_storage *s, struct boot_files **ret, struct gp_error *err) {
    struct boot_files *set = xcalloc(1, sizeof *set);
    set->users = 1;
    int rc = set_make(s, set, err);
    pthread_mutex_lock(&cache.lock); /* the others wait for the one that reads */
    if (!rc && same_set(cache.newest, set)) {
        set_free(set);
        set = cache.newest;
        set->users++;
    } else {
        for (size_t i = 0; i < set->items.len && !rc; i++) rc = item_read(&set->items.items[i], err);
        if (!rc) {
            drop_locked(cache.newest);
            cache.newest = set;
            set->users++;
        }
    }
    pthread_mutex_unlock(&cache.lock);
    if (rc) boot_files_release(set);
    else *ret = set;
    return rc;
}
