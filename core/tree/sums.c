/* SPDX-License-Identifier: Apache-2.0 */
/* Hashes of one root's files for several givers, so that each file is read once for all nodes. Any thread. */
#include "base/gp_base.h"

#include "tree/side.h"

#include <pthread.h>

struct sum {
    char *path; /* NULL: not known */
    uint64_t size;
    int64_t mtime_s;
    uint32_t mtime_ns;
    unsigned char hash[TREE_HASH];
};
struct tree_sums {
    pthread_mutex_t lock;
    VEC_OF(struct sum) all; /* by index in the list: all givers list the same root */
};

struct tree_sums *tree_sums_new(void) {
    struct tree_sums *s = xcalloc(1, sizeof *s);
    pthread_mutex_init(&s->lock, NULL);
    return s;
}

void tree_sums_free(struct tree_sums *s) {
    if (s == NULL) return;
    for (size_t i = 0; i < s->all.len; i++) free(s->all.items[i].path);
    vec_free(&s->all);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

bool sums_find(struct tree_sums *s, size_t index, const struct tree_entry *e, unsigned char ret[TREE_HASH]) {
    bool found = false;
    if (s == NULL) return false;
    pthread_mutex_lock(&s->lock);
    const struct sum *k = index < s->all.len ? &s->all.items[index] : NULL;
    if (k != NULL && str_eq(k->path, e->path) && k->size == e->size && k->mtime_s == e->mtime_s &&
        k->mtime_ns == e->mtime_ns) {
        memcpy(ret, k->hash, TREE_HASH);
        found = true;
    }
    pthread_mutex_unlock(&s->lock);
    return found;
}

void sums_keep(struct tree_sums *s, size_t index, const struct tree_entry *e, const unsigned char hash[TREE_HASH]) {
    if (s == NULL) return;
    struct sum none = {0};
    pthread_mutex_lock(&s->lock);
    while (s->all.len <= index) vec_push(&s->all, none);
    struct sum *k = &s->all.items[index];
    free(k->path);
    *k = (struct sum){.path = xstrdup(e->path), .size = e->size, .mtime_s = e->mtime_s, .mtime_ns = e->mtime_ns};
    memcpy(k->hash, hash, TREE_HASH);
    pthread_mutex_unlock(&s->lock);
}
