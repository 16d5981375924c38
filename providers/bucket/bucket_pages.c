/* SPDX-License-Identifier: Apache-2.0 */
/* The pages of the list of a bucket. A store decides how many there are, so each one must bring something. One
 * thread. */
#include "base/gp_base.h"

#include "providers/bucket/bucket.h"

#define PAGES_MAX 10000
#define LOOK_EACH 4096 /* keys; a store decides how many a page has */
#define EMPTY_MAX 100  /* in a row: versions that were removed take the place of keys */

void bucket_pages_clear(struct bucket_pages *p) {
    page_mark_clear(&p->mark);
    free(p->token);
    free(p->keys);
    *p = (struct bucket_pages){0};
}

/* Two keys of one hash only make a page look poorer. */
static uint64_t key_hash(const struct bucket_pages *p, const char *s) {
    uint64_t h = hash_keyed(&p->key, s, strlen(s));
    return h != 0 ? h : 1;
}

/* False: it was there. keys has room. */
static bool add_hash(struct bucket_pages *p, uint64_t h) {
    size_t i = (size_t)h & (p->room - 1);
    for (p->looks++; p->keys[i] != 0; i = (i + 1) & (p->room - 1), p->looks++)
        if (p->keys[i] == h) return false;
    p->keys[i] = h;
    p->len++;
    return true;
}

static void make_room(struct bucket_pages *p) {
    struct bucket_pages old = *p;
    if (2 * (p->len + 1) <= p->room) return;
    if (p->room == 0) hash_key_init(&p->key);
    p->room = GP_MAX(2 * p->room, (size_t)2048);
    p->keys = xcalloc(p->room, sizeof *p->keys);
    p->len = 0;
    for (size_t i = 0; i < old.room; i++)
        if (old.keys[i] != 0) (void)add_hash(p, old.keys[i]);
    free(old.keys);
}

static int goes_on(const struct bucket *b, struct gp_error *err) {
    const struct http_watch *w = b->watch;
    if (gp_cancelled(b->cancel)) return gp_fail(err, GP_ECANCELLED, "cancelled");
    if (w == NULL || w->waited(w->ctx, 0, 0) != HTTP_WAIT_OVER) return 0;
    return gp_fail(err, GP_ETIMEOUT, "'%s': its list did not end in time: use a prefix with fewer objects", b->text);
}

/* How many keys of the page no page before it had. */
static int count_new(const struct bucket *b, struct bucket_pages *p, const struct bucket_objects *o, size_t *ret,
                     struct gp_error *err) {
    size_t before = p->len;
    for (size_t n = 1; p->at < o->list.len; p->at++, n++) {
        int r = n % LOOK_EACH == 0 ? goes_on(b, err) : 0;
        if (r != 0) return r;
        make_room(p);
        (void)add_hash(p, key_hash(p, o->list.items[p->at].path));
    }
    *ret = p->len - before;
    return 0;
}

int bucket_pages_next(struct bucket *b, struct bucket_pages *p, struct bucket_objects *o, const char *next,
                      struct gp_error *err) {
    size_t listed = o->list.len - p->at, fresh = 0;
    int r = count_new(b, p, o, &fresh, err);
    if (r != 0) return r;
    bool some = listed > 0 || o->left_out > p->left_out;
    p->left_out = o->left_out;
    b->so_far.keys += fresh;
    free(p->token);
    p->token = NULL;
    if (next == NULL) {
        bucket_objects_sort(o);
        return 0;
    }
    p->empty = some ? 0 : p->empty + 1;
    if ((listed > 0 && fresh == 0) || page_mark_repeats(&p->mark, next))
        return gp_fail(err, GP_EPROTO, "'%s': the store repeats a page of its list: check the endpoint", b->text);
    if (p->empty > EMPTY_MAX || p->mark.pages >= PAGES_MAX)
        return gp_fail(err, GP_EPROTO, "'%s': its list has more than %d %spages: use a prefix with fewer objects",
                       b->text, p->empty > EMPTY_MAX ? EMPTY_MAX : PAGES_MAX, p->empty > EMPTY_MAX ? "empty " : "");
    p->token = xstrdup(next);
    return 0;
}
