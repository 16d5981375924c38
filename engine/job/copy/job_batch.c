/* SPDX-License-Identifier: Apache-2.0 */
/* Transfers of many nodes: WIDTH nodes at once, each in a thread of the pool. */
#include "base/gp_base.h"

#include "engine/job/copy/job_batch.h"

#include "engine/job/copy/job_checkpoint.h"

#include "base/fs.h"
#include "engine/run/pool.h"
#include "engine/run/run_event.h"

#define WIDTH ((size_t)32) /* nodes at once */

void job_copy_clear(struct job_copy *o) {
    free(o->there);
    free(o->here);
    free(o->shown);
    tree_stats_clear(&o->stats);
}

void job_batch_clear(struct job_batch *b) {
    for (size_t i = 0; i < b->list.len; i++) job_copy_clear(&b->list.items[i]);
    vec_free(&b->list);
    vec_free(&b->nodes);
}

bool job_copy_away(const struct job_copy *o) {
    return o->rc == -GP_EREACH || o->rc == -GP_ELOST || o->rc == -GP_ETIMEOUT;
}

/* --- one transfer --- */

/* While much is copied: what of it is here, or there, already. */
static void tell_progress(void *ctx, const struct tree_stats *so_far) {
    const struct job_copy *o = ctx;
    char done[24], all[24];
    bytes_format(done, sizeof done, so_far->bytes_sent);
    bytes_format(all, sizeof all, so_far->bytes);
    run_event(o->run, o->rank, NODE_READY, EVENT_PROGRESS, o->up ? "sending" : "fetching", "%s: %s of %s", o->there,
              done, all);
}

/* Nothing of it can be fetched any more in this call. */
static void limit_over(struct job_copy *o, int64_t limit_ms) {
    char limit[32], done[24], all[24];
    duration_format(limit, sizeof limit, limit_ms);
    bytes_format(done, sizeof done, o->stats.bytes_sent);
    bytes_format(all, sizeof all, o->stats.bytes);
    gp_error_clear(&o->err);
    o->rc = gp_fail(&o->err, GP_ETIMEOUT,
                    "%s: not fetched within %s (--fetch-timeout), %s of %s came: repeat this command, which continues, "
                    "with more time",
                    o->link->target.label, limit, done, all);
    str_put(o->err.detail, sizeof o->err.detail, TREE_LIMIT);
}

static void transfer(struct job_copy *o, struct job_batch_node *node) {
    bool some = !o->checkpoint || fs_exists(o->here);
    const char *uid = o->run->stack.uid;
    if (o->checkpoint) {
        bool none = false;
        o->rc = job_checkpoint_claim(o->link, uid, o->there, some, &none, &o->err);
        o->kept = some && o->rc == 0 && !none;
        if (o->rc != 0 || !some || o->kept) return;
    }
    struct tree_up_req up = {.from = o->here, .to = o->there, .ignore = o->ignore, .omit = o->omit};
    struct tree_down_req down = {.from = o->there, .to = o->here, .durable = true};
    if (node != NULL) down.pace = &node->pace;
    if (node != NULL) down.deadline_ms = node->end_ms;
    up.progress = down.progress = tell_progress;
    up.ctx = down.ctx = o;
    o->rc = o->up ? tree_up(o->link, &up, &o->stats, &o->err) : tree_down(o->link, &down, &o->stats, &o->err);
    if (o->rc == 0 && o->checkpoint) o->rc = job_checkpoint_sent(o->link, uid, o->there, &o->err);
}

void job_copy_run(struct job_copy *o, struct job_batch_node *node) {
    gp_error_clear(&o->err);
    o->link->sink = &o->run->e->sink; /* else a node that hangs is not named */
    /* the phase of the node is "fetching" or "sending" meanwhile, not "ready" */
    run_event(o->run, o->rank, NODE_READY, EVENT_PROGRESS, o->up ? "sending" : "fetching", "%s", o->there);
    o->rc = node_link_ensure(o->link, &o->err);
    if (o->rc == 0) transfer(o, node);
}

void job_copy_say_notes(const struct job_copy *o) {
    for (size_t k = 0; o->run != NULL && k < o->stats.notes.n; k++)
        run_event(o->run, o->rank, NODE_READY, EVENT_WARN, "files", "%s", o->stats.notes.v[k]);
}

void job_copy_say_done(const struct job_copy *o, const char *what) {
    const struct tree_stats *t = &o->stats;
    GP_AUTO_STR struct str text = {0};
    char size[24];
    if (t->files == 0) return;
    bytes_format(size, sizeof size, t->bytes_sent);
    if (t->files_sent > 0)
        str_addf(&text, "%llu file%s %s, %s", (unsigned long long)t->files_sent, t->files_sent == 1 ? "" : "s",
                 o->up ? "sent" : "fetched", size);
    uint64_t same = t->files - GP_MIN(t->files, t->files_sent);
    if (same > 0 && t->files_sent > 0) str_addf(&text, "; %llu unchanged", (unsigned long long)same);
    else if (same > 0) str_addf(&text, "%llu file%s, unchanged", (unsigned long long)same, same == 1 ? "" : "s");
    run_event(o->run, o->rank, NODE_READY, EVENT_INFO, "files", "%s: %s", what, text.s);
}

/* --- all of them --- */

static struct job_batch_node *node_of(const struct job_batch *b, int rank) {
    for (size_t i = 0; i < b->nodes.len; i++)
        if (b->nodes.items[i].rank == rank) return &b->nodes.items[i];
    return NULL;
}

bool job_batch_over(const struct job_batch *b, const struct job_copy *o) {
    const struct job_batch_node *node = node_of(b, o->rank);
    bool late = node != NULL && node->end_ms != 0 && clock_left_ms(node->end_ms) == 0;
    return late || strcmp(o->err.detail, TREE_LIMIT) == 0;
}

static void copy_of_node(struct job_batch *b, struct job_copy *o, struct job_batch_node *node) {
    if (!node->begun) {
        node->end_ms = b->limit_ms > 0 ? clock_deadline(b->limit_ms) : 0;
        pace_init(&node->pace, b->limit_ms > 0);
        node->begun = true;
    }
    if (node->end_ms == 0 || clock_left_ms(node->end_ms) > 0) job_copy_run(o, node);
    else o->rc = -GP_ETIMEOUT;
    if (b->limit_ms > 0 && job_copy_away(o) && clock_left_ms(node->end_ms) == 0) limit_over(o, b->limit_ms);
}

static void work(void *ctx, size_t i) {
    struct job_batch *b = ctx;
    struct job_batch_node *node = &b->nodes.items[i];
    const struct job_copy *bad = NULL;
    for (size_t k = 0; k < b->list.len; k++) {
        struct job_copy *o = &b->list.items[k];
        if (o->rank != node->rank || o->skip) continue;
        if (bad != NULL) {
            o->rc = bad->rc;
            o->err = bad->err;
            continue;
        }
        copy_of_node(b, o, node);
        if (job_copy_away(o) || o->rc == -GP_ECANCELLED) bad = o;
    }
}

void job_batch_run(struct job_batch *b) {
    for (size_t i = 0; i < b->list.len; i++) {
        struct job_batch_node node = {.rank = b->list.items[i].rank};
        if (node_of(b, node.rank) == NULL) vec_push(&b->nodes, node);
    }
    pool_some(b->nodes.len, WIDTH, work, b);
    for (size_t i = 0; i < b->list.len; i++)
        if (!b->list.items[i].skip) job_copy_say_notes(&b->list.items[i]);
}
