/* SPDX-License-Identifier: Apache-2.0 */
/* Copies of a job's files while it runs: one thread per node, and one that sends to buckets. What they share is guarded
 * by the lock. */
#include "base/gp_base.h"

#include "engine/job/job_backup.h"

#include "engine/job/copy/job_batch.h"
#include "engine/job/job_bucket.h"
#include "engine/job/job_files.h"

#include "engine/run/run_event.h"

#include <pthread.h>

#define WIDTH 32 /* transfers at once */
#define REACH_MS 20000
#define STORE_WAIT_MS 60000 /* after the first copy that came: for those of the other nodes */
#define LOOK_MS 1000
#define HOLD_MIN_MS 10000 /* how long nodes wait for the store: their next copy is left out, not more */
#define STACK_BYTES ((size_t)2 << 20)

/* A path that is fetched while the job runs. Texts are borrowed from the spec. */
struct backup_item {
    const char *path, *to;
    int64_t every_ms;
    bool bucket;
    /* guarded by the lock */
    size_t working; /* nodes whose copy is on its way */
    bool new_mark, any_came, storing;
    bool late;           /* files come while it is sent */
    int64_t hold_end_ms; /* while storing: monotonic */
    int64_t store_at_ms; /* monotonic; 0: nothing has come since it was sent */
};
struct backup_node {
    struct job_backup *b;
    int rank;
    struct node_link link;
    int64_t *next_ms; /* monotonic, by item */
    pthread_t thread;
    bool started;
};
struct job_backup {
    struct job_nodes *all;
    VEC_OF(struct backup_item) items;
    struct backup_node *nodes; /* by rank */
    struct gp_cancel quit;
    pthread_t store_thread;
    bool stores;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int slots; /* guarded by the lock: transfers that may begin */
};

static struct job_bucket_of bucket_of(const struct job_backup *b) {
    const struct run *run = b->all->run;
    return (struct job_bucket_of){.e = run->e, .sink = &run->sink, .stack = run->stack.name};
}

/* Waits for a change, for a moment at most. Under the lock. */
static void wait_change(struct job_backup *b) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    t.tv_sec += LOOK_MS / 1000;
    pthread_cond_timedwait(&b->changed, &b->lock, &t);
}

/* --- a node --- */

/* The store has what the nodes copied at one time, unless it takes longer than they can wait. */
static bool holds(const struct backup_item *item) { return item->storing && clock_left_ms(item->hold_end_ms) > 0; }

/* False: it is stopped. */
static bool may_begin(struct job_backup *b, struct backup_item *item) {
    pthread_mutex_lock(&b->lock);
    while ((b->slots == 0 || holds(item)) && !gp_cancelled(&b->quit)) wait_change(b);
    bool on = !gp_cancelled(&b->quit);
    if (on) b->slots--;
    if (on) item->working++;
    if (on) item->late = true;
    pthread_mutex_unlock(&b->lock);
    return on;
}

static void has_ended(struct job_backup *b, struct backup_item *item, bool came, bool any, bool new_mark) {
    const struct job_bucket_of of = bucket_of(b);
    pthread_mutex_lock(&b->lock);
    b->slots++;
    item->working--;
    item->new_mark = item->new_mark || new_mark;
    item->any_came = item->any_came || any;
    if (item->working == 0 && item->new_mark && !item->any_came) {
        job_bucket_unmark(&of, item->to);
        item->new_mark = false;
    }
    if (came && item->bucket && item->store_at_ms == 0) item->store_at_ms = clock_deadline(STORE_WAIT_MS);
    pthread_cond_broadcast(&b->changed);
    pthread_mutex_unlock(&b->lock);
}

static void copy_one(struct backup_node *n, struct backup_item *item) {
    struct job_backup *b = n->b;
    const struct run *run = b->all->run;
    const struct job_bucket_of of = bucket_of(b);
    struct job_copy o = {.link = &n->link, .run = run, .rank = n->rank};
    struct gp_error why = {0};
    bool new_mark = false;
    if (!may_begin(b, item)) return;
    if (job_bucket_mark(&of, item->to, &new_mark, &why) != 0) {
        run_event(run, -1, NODE_READY, EVENT_WARN, "files", "could not fetch '%s' yet: %s", item->path, why.msg);
        has_ended(b, item, false, false, false);
        return;
    }
    job_files_from(&o, item->path, item->to, job_nodes_several(b->all));
    job_copy_run(&o, NULL);
    job_copy_say_notes(&o);
    node_link_close(o.link); /* an idle connection would not be missed until the next time */
    if (o.rc == 0) job_copy_say_done(&o, item->path);
    else if (o.rc != -GP_ENOTFOUND && o.rc != -GP_ECANCELLED)
        run_event(run, o.rank, NODE_READY, EVENT_WARN, "files", "could not fetch '%s' yet: %s", item->path, o.err.msg);
    has_ended(b, item, o.rc == 0, o.rc != -GP_ENOTFOUND, new_mark);
    job_copy_clear(&o);
}

static void *node_main(void *arg) {
    struct backup_node *n = arg;
    for (;;) {
        size_t first = 0;
        for (size_t i = 1; i < n->b->items.len; i++)
            if (n->next_ms[i] < n->next_ms[first]) first = i;
        if (gp_sleep(clock_left_ms(n->next_ms[first]), &n->b->quit, NULL) != 0) return NULL;
        copy_one(n, &n->b->items.items[first]);
        n->next_ms[first] = clock_deadline(n->b->items.items[first].every_ms);
    }
}

/* --- buckets --- */

/* What came and is to be sent now: all nodes have brought theirs, or some take too long. NULL: nothing. Under the
 * lock. */
static struct backup_item *due(struct job_backup *b) {
    for (size_t i = 0; i < b->items.len; i++) {
        struct backup_item *item = &b->items.items[i];
        if (item->store_at_ms != 0 && (item->working == 0 || clock_left_ms(item->store_at_ms) == 0)) return item;
    }
    return NULL;
}

/* True: the bucket has all that was here. */
static bool store(const struct job_backup *b, const struct backup_item *item) {
    const struct job_bucket_of of = bucket_of(b);
    GP_AUTO_TREE_STATS struct tree_stats stats = {0};
    struct gp_error why = {0};
    struct bucket_pace pace;
    bool whole = false;
    bucket_pace_init(&pace, 0);
    int r = job_bucket_put(&of, item->to, &pace, &b->quit, &stats, &whole, &why);
    if (r != 0 && r != -GP_ECANCELLED)
        run_event(b->all->run, -1, NODE_READY, EVENT_WARN, "files", "could not send '%s' yet: %s", item->path, why.msg);
    return whole;
}

static void *store_main(void *arg) {
    struct job_backup *b = arg;
    const struct job_bucket_of of = bucket_of(b);
    pthread_mutex_lock(&b->lock);
    while (!gp_cancelled(&b->quit)) {
        struct backup_item *item = due(b);
        if (item == NULL) {
            wait_change(b);
            continue;
        }
        item->late = item->working > 0;
        item->hold_end_ms = clock_deadline(GP_MAX(item->every_ms, (int64_t)HOLD_MIN_MS));
        item->storing = true;
        item->store_at_ms = 0;
        item->new_mark = item->any_came = false; /* of the next copies, if the mark goes */
        pthread_mutex_unlock(&b->lock);
        bool whole = store(b, item);
        pthread_mutex_lock(&b->lock);
        item->storing = false;
        if (whole && !item->late) job_bucket_unmark(&of, item->to);
        pthread_cond_broadcast(&b->changed);
    }
    pthread_mutex_unlock(&b->lock);
    return NULL;
}

/* --- all --- */

static void add_item(struct job_backup *b, const char *path, const char *to, int64_t every_ms) {
    struct backup_item item = {.path = path, .to = to, .every_ms = every_ms, .bucket = bucket_url_is(to)};
    vec_push(&b->items, item);
}

static void find_items(struct job_backup *b, const struct spec_job *job) {
    const struct spec_job_checkpoint *c = &job->checkpoint;
    if (c->path != NULL) add_item(b, c->path, c->to, c->every_ms > 0 ? c->every_ms : SPEC_JOB_EVERY_MS);
    for (size_t i = 0; i < job->outputs.len; i++) {
        const struct spec_job_output *o = &job->outputs.items[i];
        if (o->every_ms > 0) add_item(b, o->path, o->to, o->every_ms);
    }
}

static void find_nodes(struct job_backup *b) {
    b->nodes = xcalloc(b->all->len + 1, sizeof *b->nodes);
    for (size_t i = 0; i < b->all->len; i++) {
        struct backup_node *n = &b->nodes[i];
        *n = (struct backup_node){.b = b, .rank = (int)i, .next_ms = xcalloc(b->items.len, sizeof *n->next_ms)};
        ssh_target_copy(&n->link.target, &b->all->items[i].n->link.target);
        n->link.slot = (int)i;
        n->link.reach_timeout_ms = REACH_MS;
        n->link.cancel = &b->quit;
        for (size_t k = 0; k < b->items.len; k++) n->next_ms[k] = clock_deadline(b->items.items[k].every_ms);
    }
}

static int start_threads(struct job_backup *b, struct gp_error *err) {
    bool buckets = false;
    int e = 0;
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, STACK_BYTES);
    for (size_t i = 0; i < b->items.len; i++) buckets = buckets || b->items.items[i].bucket;
    if (buckets) e = pthread_create(&b->store_thread, &attr, store_main, b);
    b->stores = buckets && e == 0;
    for (size_t i = 0; e == 0 && i < b->all->len; i++) {
        if (!b->all->items[i].used) continue;
        e = pthread_create(&b->nodes[i].thread, &attr, node_main, &b->nodes[i]);
        b->nodes[i].started = e == 0;
    }
    pthread_attr_destroy(&attr);
    return e == 0 ? 0 : gp_fail_errno(err, GP_EENV, e, "could not start a thread");
}

int job_backup_start(struct job_nodes *all, const struct spec_job *job, struct job_backup **ret, struct gp_error *err) {
    struct job_backup *b = xcalloc(1, sizeof *b);
    *b = (struct job_backup){.all = all, .quit = {.efd = -1}, .slots = WIDTH};
    pthread_mutex_init(&b->lock, NULL);
    pthread_cond_init(&b->changed, NULL);
    find_items(b, job);
    int r = b->items.len > 0 ? gp_cancel_init(&b->quit, err) : 0;
    if (r == 0 && b->items.len > 0) {
        find_nodes(b);
        r = start_threads(b, err);
    }
    if (r == 0 && b->items.len > 0) *ret = b;
    else job_backup_stop(b);
    return r;
}

void job_backup_stop(struct job_backup *b) {
    if (b == NULL) return;
    if (b->quit.efd >= 0) gp_cancel_set(&b->quit);
    pthread_mutex_lock(&b->lock);
    pthread_cond_broadcast(&b->changed);
    pthread_mutex_unlock(&b->lock);
    if (b->stores) pthread_join(b->store_thread, NULL);
    for (size_t i = 0; b->nodes != NULL && i < b->all->len; i++) {
        if (b->nodes[i].started) pthread_join(b->nodes[i].thread, NULL);
        node_link_close(&b->nodes[i].link);
        ssh_target_clear(&b->nodes[i].link.target);
        free(b->nodes[i].next_ms);
    }
    if (b->quit.efd >= 0) gp_cancel_clear(&b->quit);
    vec_free(&b->items);
    free(b->nodes);
    pthread_cond_destroy(&b->changed);
    pthread_mutex_destroy(&b->lock);
    free(b);
}
