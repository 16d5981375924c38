/* SPDX-License-Identifier: Apache-2.0 */
/* The pages of the list of a bucket. A store decides how many there are, so each one must bring something. One
 * thread. */
#include "base/gp_base.h"

#include "providers/bucket/bucket.h"

#define PAGES_MAX 10000
#define EMPTY_MAX 100 /* in a row: versions that were removed take the place of keys */

void bucket_pages_clear(struct bucket_pages *p) {
    page_mark_clear(&p->mark);
    free(p->token);
    free(p->keys);
    *p = (struct bucket_pages){0};
}

static uint64_t key_hash(const char *s) {
    uint64_t h = 0xcbf29ce484222325U; /* FNV-1a; two keys of one hash only make a page look poorer */
    for (; *s != '\0'; s++) h = (h ^ (unsigned char)*s) * 0x100000001b3U;
    return h != 0 ? h : 1;
}

/* False: it was there. keys has room. */
static bool add_hash(struct bucket_pages *p, uint64_t h) {
    size_t i = (size_t)(h >> 7) & (p->room - 1);
    for (; p->keys[i] != 0; i = (i + 1) & (p->room - 1))
        if (p->keys[i] == h) return false;
    p->keys[i] = h;
    p->len++;
    return true;
}

static void make_room(struct bucket_pages *p) {
    struct bucket_pages old = *p;
    if (2 * (p->len + 1) <= p->room) return;
    p->room = GP_MAX(2 * p->room, (size_t)2048);
    p->keys = xcalloc(p->room, sizeof *p->keys);
    p->len = 0;
    for (size_t i = 0; i < old.room; i++)
        if (old.keys[i] != 0) (void)add_hash(p, old.keys[i]);
    free(old.keys);
}

/* How many keys of the page no page before it had. */
static size_t count_new(struct bucket_pages *p, const struct bucket_objects *o) {
    size_t before = p->len;
    for (; p->at < o->list.len; p->at++) {
        make_room(p);
        (void)add_hash(p, key_hash(o->list.items[p->at].path));
    }
    return p->len - before;
}

int bucket_pages_next(struct bucket *b, struct bucket_pages *p, struct bucket_objects *o, const char *next,
                      struct gp_error *err) {
    size_t listed = o->list.len - p->at, fresh = count_new(p, o);
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
