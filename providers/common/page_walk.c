/* SPDX-License-Identifier: Apache-2.0 */
/* The limits of a list of pages. Pure but for the clock; any thread. */
#include "base/gp_base.h"

#include "providers/common/page_walk.h"

#include "base/clock.h"

#define EARLY_MS 50                    /* a request that its deadline ends returns a moment before it */
#define HASH_BEGIN 0xcbf29ce484222325U /* FNV-1a; two pages of one hash only make the list look poorer */

static uint64_t hash(uint64_t h, const char *s) {
    for (; *s != '\0'; s++) h = (h ^ (unsigned char)*s) * 0x100000001b3U;
    return (h ^ 1) * 0x100000001b3U; /* "ab", "c" is not "a", "bc" */
}

void page_walk_begin(struct page_walk *w, int64_t limit_ms) {
    w->limit_ms = limit_ms > 0 ? limit_ms : PAGE_WALK_MS;
    w->deadline_ms = clock_deadline(w->limit_ms);
}

void page_walk_clear(struct page_walk *w) {
    page_mark_clear(&w->mark);
    vec_free(&w->seen);
    *w = (struct page_walk){0};
}

static uint64_t hash_json(uint64_t h, const json_t *part) {
    GP_AUTO_FREE char *text = json_text(part, 0);
    return text != NULL ? hash(h, text) : h;
}

uint64_t page_walk_json(json_t *reply) {
    uint64_t h = HASH_BEGIN;
    const char *key = NULL;
    json_t *part = NULL;
    if (!json_is_object(reply)) return hash_json(h, reply);
    json_object_foreach(reply, key, part) {
        if (json_is_array(part) || json_is_object(part)) h = hash_json(h, part);
    }
    return h;
}

/* xml.h limits the depth. */
static uint64_t hash_xml(uint64_t h, const struct xml_node *node) {
    h = hash(hash(h, node->name), node->text);
    for (size_t i = 0; i < node->children.len; i++) h = hash_xml(h, node->children.items[i]);
    return hash(h, "/");
}

uint64_t page_walk_xml(const struct xml_node *set) { return hash_xml(HASH_BEGIN, set); }

static bool is_new(struct page_walk *w, uint64_t entries) {
    for (size_t i = 0; i < w->seen.len; i++)
        if (w->seen.items[i] == entries) return false;
    vec_push(&w->seen, entries);
    return true;
}

static int late(const struct page_walk *w, const char *what, struct gp_error *err) {
    char limit[32];
    duration_format(limit, sizeof limit, w->limit_ms);
    return gp_fail(err, GP_EENDPOINT,
                   "%s: the list did not end within %s (%d whole page%s): check the endpoint and the cloud's status",
                   what, limit, w->mark.pages, w->mark.pages == 1 ? "" : "s");
}

int page_walk_next(struct page_walk *w, const char *what, uint64_t entries, const char *next, struct gp_error *err) {
    w->empty = is_new(w, entries) ? 0 : w->empty + 1;
    if (page_mark_repeats(&w->mark, next)) return gp_fail(err, GP_EPROTO, "%s: the reply repeats a page", what);
    if (w->empty > PAGE_WALK_EMPTY_MAX)
        return gp_fail(err, GP_EPROTO, "%s: %d pages in a row bring nothing new: check the endpoint", what, w->empty);
    if (w->mark.pages >= PAGE_WALK_MAX) return gp_fail(err, GP_EPROTO, "%s: the reply has too many pages", what);
    return clock_left_ms(w->deadline_ms) == 0 ? late(w, what, err) : 0;
}

int page_walk_failed(const struct page_walk *w, const char *what, int r, struct gp_error *err) {
    if (r == 0 || r == -GP_ECANCELLED || clock_left_ms(w->deadline_ms) > EARLY_MS) return r;
    gp_error_clear(err);
    return late(w, what, err);
}
