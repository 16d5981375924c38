/* SPDX-License-Identifier: Apache-2.0 */
/* The files of a job: its working folder, its outputs, its checkpoint. Nodes side by side, WIDTH at once. */
#include "base/gp_base.h"

#include "engine/job/job_files.h"

#include "engine/job/job_bucket.h"
#include "engine/job/job_checkpoint.h"
#include "engine/job/job_follow.h"

#include "base/fs.h"
#include "engine/run/pool.h"
#include "engine/run/run_event.h"
#include "engine/transfer/transfer.h"

#include <pthread.h>

#define WIDTH ((size_t)32) /* nodes at once */
#define REACH_MS 20000
#define BUSY_MS ((int64_t)5 * 60000) /* how long a folder here may be in use by another copy */
#define AGAIN_MS 2000
#define SAY_MS 10000
#define QUERY_MS 30000 /* between two looks whether a machine still exists */

/* "results" is below the working folder; an absolute path stays. Caller frees. */
static char *node_path(const char *path) { return path[0] == '/' ? xstrdup(path) : xasprintf("%s/%s", JOB_CWD, path); }

static bool several(const struct job_nodes *all) {
    size_t n = 0;
    for (size_t i = 0; i < all->len; i++) n += all->items[i].used;
    return n > 1;
}

char *job_files_place(const char *to, int rank, bool more) { return more ? xasprintf("%s/%d", to, rank) : xstrdup(to); }

/* One transfer of one node. */
struct one {
    struct node_link *link;
    const struct run *run;
    int rank;
    bool up, ignore;
    const struct strv *omit;
    bool checkpoint; /* sent to a node that has none, and only if it is here */
    bool kept;       /* the node has one of its own */
    bool skip;       /* of a batch that is repeated: this one is done */
    char *there, *here;
    char *shown; /* where it goes, as the spec has it */
    struct tree_stats stats;
    int rc;
    struct gp_error err;
};
struct batch {
    VEC_OF(struct one) list;
    size_t first;
};

static void batch_clear(struct batch *b) {
    for (size_t i = 0; i < b->list.len; i++) {
        free(b->list.items[i].there);
        free(b->list.items[i].here);
        free(b->list.items[i].shown);
        tree_stats_clear(&b->list.items[i].stats);
    }
    vec_free(&b->list);
}

/* While much is copied: what of it is here, or there, already. */
static void tell_progress(void *ctx, const struct tree_stats *so_far) {
    const struct one *o = ctx;
    char done[24], all[24];
    bytes_format(done, sizeof done, so_far->bytes_sent);
    bytes_format(all, sizeof all, so_far->bytes);
    run_event(o->run, o->rank, NODE_READY, EVENT_PROGRESS, o->up ? "sending" : "fetching", "%s: %s of %s", o->there,
              done, all);
}

/* The phase of the node is "fetching" or "sending" meanwhile, not "ready". */
static void tell_begin(const struct batch *b) {
    for (size_t i = 0; i < b->list.len; i++) {
        const struct one *o = &b->list.items[i];
        run_event(o->run, o->rank, NODE_READY, EVENT_PROGRESS, o->up ? "sending" : "fetching", "%s", o->there);
    }
}

static void transfer(void *ctx, size_t i) {
    struct batch *b = ctx;
    struct one *o = &b->list.items[b->first + i];
    if (o->skip) return;
    gp_error_clear(&o->err);
    o->link->sink = &o->run->e->sink; /* else a node that hangs is not named */
    o->rc = node_link_ensure(o->link, &o->err);
    if (o->rc != 0) return;
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
    up.progress = down.progress = tell_progress;
    up.ctx = down.ctx = o;
    o->rc = o->up ? tree_up(o->link, &up, &o->stats, &o->err) : tree_down(o->link, &down, &o->stats, &o->err);
    if (o->rc == 0 && o->checkpoint) o->rc = job_checkpoint_sent(o->link, uid, o->there, &o->err);
}

/* Transfers of one node must not be in one batch. */
static void batch_run(struct batch *b) {
    for (b->first = 0; b->first < b->list.len; b->first += WIDTH)
        pool_each(GP_MIN(WIDTH, b->list.len - b->first), transfer, b);
    for (size_t i = 0; i < b->list.len; i++) {
        const struct one *o = &b->list.items[i];
        for (size_t k = 0; o->run != NULL && !o->skip && k < o->stats.notes.n; k++)
            run_event(o->run, o->rank, NODE_READY, EVENT_WARN, "files", "%s", o->stats.notes.v[k]);
    }
}

static void say_done(const struct one *o, const char *what) {
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

/* --- to the nodes --- */

/* Where results come to, here. They are not sent with the working folder: each job would give them back, one level
 * deeper. */
static void add_places(struct strv *list, const char *to, size_t ranks) {
    if (bucket_url_is(to)) return;
    strv_add(list, to);
    for (size_t i = 0; i < ranks; i++) strv_take(list, job_files_place(to, (int)i, true));
}

static void find_places(const struct spec_job *job, size_t ranks, struct strv *ret) {
    for (size_t i = 0; i < job->outputs.len; i++) add_places(ret, job->outputs.items[i].to, ranks);
    if (job->checkpoint.path != NULL) add_places(ret, job->checkpoint.to, ranks);
}

/* A checkpoint has a folder for each rank, no rules apply, and omit is NULL. */
static int send(struct job_nodes *all, const char *from, bool checkpoint, const char *to, const struct strv *omit,
                struct gp_error *err) {
    GP_CLEANUP(batch_clear) struct batch b = {0};
    size_t kept = 0;
    int r = 0;
    for (size_t i = 0; i < all->len; i++) {
        struct job_node *j = &all->items[i];
        if (!j->used) continue;
        struct one o = {.link = &j->n->link, .run = all->run, .rank = (int)i, .up = true, .checkpoint = checkpoint};
        o.ignore = omit != NULL;
        o.omit = omit;
        o.here = checkpoint ? job_files_place(from, (int)i, several(all)) : xstrdup(from);
        o.there = xstrdup(to);
        if (checkpoint || fs_exists(o.here)) {
            vec_push(&b.list, o);
        } else {
            free(o.here);
            free(o.there);
        }
    }
    tell_begin(&b);
    batch_run(&b);
    for (size_t i = 0; i < b.list.len; i++) {
        const struct one *o = &b.list.items[i];
        if (o->rc == 0) say_done(o, checkpoint ? "checkpoint" : "working folder");
        kept += o->kept;
        if (o->rc == 0 || r != 0) continue;
        r = o->rc;
        if (err != NULL) *err = o->err;
    }
    if (kept > 0)
        run_event(all->run, -1, NODE_READY, EVENT_INFO, "files",
                  "checkpoint: %zu node%s its own, and the copy that is here is not sent there", kept,
                  kept == 1 ? " keeps" : "s keep");
    return r;
}

int job_files_send(struct job_nodes *all, const struct spec_job *job, struct gp_error *err) {
    const struct spec_job_checkpoint *c = &job->checkpoint;
    GP_AUTO_STRV struct strv places = {0};
    find_places(job, several(all) ? all->len : 0, &places);
    int r = job->workdir != NULL ? send(all, job->workdir, false, JOB_CWD, &places, err) : 0;
    if (r != 0 || c->path == NULL) return r;
    GP_AUTO_FREE char *there = node_path(c->path);
    GP_AUTO_FREE char *here = job_bucket_folder(all->run->e, all->run->stack.name, c->to);
    return send(all, here, true, there, NULL, err);
}

/* --- from the nodes --- */

/* The trailing slash: a file keeps its name in that folder. */
static void add_fetch(struct batch *b, struct node_link *l, const struct run *run, int rank, const char *path,
                      const char *to, bool more) {
    struct one o = {.link = l, .run = run, .rank = rank, .there = node_path(path)};
    GP_AUTO_FREE char *folder = job_bucket_folder(run->e, run->stack.name, to);
    GP_AUTO_FREE char *place = job_files_place(folder, rank, more), *shown = job_files_place(to, rank, more);
    o.here = xasprintf("%s/", place);
    o.shown = xasprintf("%s/", shown);
    vec_push(&b->list, o);
}

static void note(struct job_result *ret, struct one *o) {
    struct job_fetched f = {.rank = o->rank,
                            .path = xstrdup(o->there),
                            .to = xstrdup(o->shown),
                            .files = o->stats.files,
                            .bytes = o->stats.bytes,
                            .files_sent = o->stats.files_sent,
                            .bytes_sent = o->stats.bytes_sent,
                            .left_out = o->stats.left_out,
                            .error = o->rc != 0 ? xstrdup(o->err.msg) : NULL};
    strv_copy(&f.notes, &o->stats.notes);
    vec_push(&ret->fetched, f);
}

/* Of one fetch of all outputs. Times are monotonic; 0: no such trouble. */
struct patience {
    int64_t away_by_ms, busy_by_ms, query_at_ms, say_at_ms;
    bool said_away, said_busy, cancelled, left;
    const struct job_outcome *outcome;
};

/* It did not answer before the job was given up: it was waited for. */
static bool was_lost(const struct patience *p, int rank) {
    return (size_t)rank < p->outcome->len && p->outcome->ranks[rank].lost;
}

static bool is_away(int rc) { return rc == -GP_EREACH || rc == -GP_ELOST || rc == -GP_ETIMEOUT; }

/* Nodes that are away because their machines have ended: their files are lost. */
static void find_gone(struct job_nodes *all, const struct batch *b, struct patience *p) {
    struct stack_view_list found = {0};
    struct gp_error ignored = {0};
    struct run *run = all->run;
    bool any = false, seen = false, reboots = run->spec != NULL && run->spec->job.restart > 0;
    for (size_t i = 0; i < b->list.len; i++) {
        int rc = b->list.items[i].rc;
        any = any || (rc != 0 && rc != -GP_ENOTFOUND && rc != -GP_EBUSY && rc != -GP_EIO);
    }
    if (!any || (p->query_at_ms != 0 && clock_left_ms(p->query_at_ms) > 0)) return;
    int r = engine_status(run->e, run->stack.name, run->spec, true, &found, &ignored);
    p->query_at_ms = clock_deadline(QUERY_MS);
    for (size_t v = 0; v < found.list.len; v++) {
        const struct stack_view *view = &found.list.items[v];
        bool same = str_eq(view->stack.uid, run->stack.uid);
        seen = seen || same;
        for (size_t i = 0; same && i < view->nodes.len; i++) {
            const struct node_view *n = &view->nodes.items[i];
            bool ended =
                str_eq(n->state, "gone") || (!reboots && (str_eq(n->state, "stopping") || str_eq(n->state, "stopped")));
            if (ended && n->slot >= 0 && (size_t)n->slot < all->len) all->items[n->slot].gone = true;
        }
    }
    for (size_t i = 0; r == 0 && !seen && i < all->len; i++)
        all->items[i].gone = true; /* destroyed by another gpuprov */
    stack_view_list_clear(&found);
}

/* Whether a failed transfer may succeed later; begins the time of its trouble. */
static bool may_pass(const struct job_nodes *all, const struct one *o, struct patience *p) {
    bool away = is_away(o->rc), busy = o->rc == -GP_EBUSY;
    int64_t *by_ms = busy ? &p->busy_by_ms : &p->away_by_ms;
    if ((!away && !busy) || (away && (all->items[o->rank].gone || was_lost(p, o->rank)))) return false;
    if (*by_ms == 0) *by_ms = clock_deadline(busy ? BUSY_MS : JOB_AWAY_MS);
    return clock_left_ms(*by_ms) > 0;
}

/* Sets o->skip of all transfers but those to repeat, and reports one of these. *ret_n: how many they are. */
static void choose_again(struct job_nodes *all, struct batch *b, struct patience *p, size_t *ret_n) {
    const struct one *first = NULL;
    *ret_n = 0;
    for (size_t i = 0; i < b->list.len; i++) {
        struct one *o = &b->list.items[i];
        o->skip = !may_pass(all, o, p);
        *ret_n += !o->skip;
        if (first == NULL && !o->skip) first = o;
    }
    if (first == NULL) return;
    bool busy = first->rc == -GP_EBUSY, *said = busy ? &p->said_busy : &p->said_away;
    if (*said && clock_left_ms(p->say_at_ms) > 0) return;
    enum event_status status = *said ? EVENT_PROGRESS : EVENT_WARN;
    *said = true;
    p->say_at_ms = clock_deadline(SAY_MS);
    char left[32];
    duration_format(left, sizeof left, clock_left_ms(busy ? p->busy_by_ms : p->away_by_ms) / 1000 * 1000);
    run_event(all->run, first->rank, NODE_READY, status, "files", "could not fetch '%s' yet, trying again for %s: %s",
              first->there, left, first->err.msg);
}

/* Repeats what failed in a way that may pass. Ctrl-C ends it: the nodes still have the files. */
static void fetch_again(struct job_nodes *all, struct batch *b, struct patience *p) {
    for (size_t i = 0; i < b->list.len; i++) p->cancelled = p->cancelled || b->list.items[i].rc == -GP_ECANCELLED;
    for (size_t n = 0; !p->cancelled;) {
        find_gone(all, b, p);
        choose_again(all, b, p, &n);
        if (n == 0) break;
        p->cancelled = gp_sleep(AGAIN_MS, &all->run->e->cancel, NULL) != 0;
        if (p->cancelled) break;
        batch_run(b);
        for (size_t i = 0; i < b->list.len; i++) {
            const struct one *o = &b->list.items[i];
            if (o->rc == -GP_ECANCELLED) p->cancelled = true;
            if (!o->skip && o->rc == 0) p->away_by_ms = p->busy_by_ms = 0; /* it was of use */
        }
    }
    for (size_t i = 0; i < b->list.len; i++) b->list.items[i].skip = false;
}

/* One line for all nodes: where the files are now. */
static void say_where(const struct run *run, const struct batch *b, const char *path, const char *to) {
    uint64_t files = 0, bytes = 0;
    size_t nodes = 0;
    char size[24];
    for (size_t i = 0; i < b->list.len; i++) {
        const struct one *o = &b->list.items[i];
        if (o->rc != 0 || o->stats.files == 0) continue;
        files += o->stats.files;
        bytes += o->stats.bytes;
        nodes++;
    }
    if (nodes == 0) return;
    bytes_format(size, sizeof size, bytes);
    run_event(run, -1, NODE_READY, EVENT_DONE, "files", "%s: %llu file%s of %zu node%s (%s) %s in %s", path,
              (unsigned long long)files, files == 1 ? "" : "s", nodes, nodes == 1 ? "" : "s", size,
              files == 1 ? "is" : "are", to);
}

static struct job_bucket_of bucket_of(const struct run *run) {
    return (struct job_bucket_of){.e = run->e, .sink = &run->sink, .stack = run->stack.name};
}

/* Whether any transfer may have brought something. */
static bool any_came(const struct batch *b) {
    for (size_t i = 0; i < b->list.len; i++)
        if (b->list.items[i].rc != -GP_ENOTFOUND) return true;
    return false;
}

/* One output of all nodes. */
static int fetch(struct job_nodes *all, const char *path, const char *to, struct job_result *ret, struct patience *p,
                 struct gp_error *err) {
    GP_CLEANUP(batch_clear) struct batch b = {0};
    const struct job_bucket_of of = bucket_of(all->run);
    size_t absent = 0;
    bool new = false;
    int r = job_bucket_mark(&of, to, &new, err);
    if (r != 0) {
        p->left = true;
        return r;
    }
    for (size_t i = 0; i < all->len; i++)
        if (all->items[i].used && !all->items[i].away && !all->items[i].gone)
            add_fetch(&b, &all->items[i].n->link, all->run, (int)i, path, to, several(all));
    tell_begin(&b);
    batch_run(&b);
    fetch_again(all, &b, p);
    if (new && !any_came(&b)) job_bucket_unmark(&of, to);
    for (size_t i = 0; i < b.list.len; i++) {
        struct one *o = &b.list.items[i];
        absent += o->rc == -GP_ENOTFOUND;
        note(ret, o);
        if (o->rc == 0) say_done(o, path);
        if (o->rc == 0 || o->rc == -GP_ENOTFOUND) continue;
        if (o->rc == -GP_ECANCELLED) {
            r = o->rc;
            continue;
        }
        run_event(all->run, o->rank, NODE_READY, EVENT_WARN, "files", "could not fetch '%s': %s", path, o->err.msg);
        /* after Ctrl-C a node that does not answer keeps nothing */
        p->left = p->left || !(all->items[o->rank].gone || (ret->stopped && was_lost(p, o->rank)));
        if (r == 0 || (r != -GP_ECANCELLED && o->rc == -GP_EIO)) {
            r = o->rc;
            if (err != NULL) *err = o->err;
        }
    }
    if (!bucket_url_is(to)) say_where(all->run, &b, path, to); /* else they are only on their way */
    if (absent > 0 && absent == b.list.len)
        run_event(all->run, -1, NODE_READY, EVENT_WARN, "files", "no node has '%s': nothing was fetched", path);
    return r;
}

int job_files_fetch(struct job_nodes *all, const struct spec_job *job, struct job_result *ret, bool *ret_left,
                    struct gp_error *err) {
    const struct spec_job_checkpoint *c = &job->checkpoint;
    struct patience p = {.outcome = &ret->outcome};
    GP_AUTO_STR struct str left = {0};
    struct gp_error why = {0};
    int r = 0;
    for (size_t i = 0; i <= job->outputs.len; i++) {
        bool last = i == job->outputs.len;
        const char *path = last ? c->path : job->outputs.items[i].path;
        if (path == NULL) continue;
        gp_error_clear(&why);
        int one =
            p.cancelled ? -GP_ECANCELLED : fetch(all, path, last ? c->to : job->outputs.items[i].to, ret, &p, &why);
        if (p.cancelled) {
            str_addf(&left, "%s'%s'", left.len > 0 ? ", " : "", path);
            continue;
        }
        if (one == 0 || r == -GP_EIO || (r != 0 && one != -GP_EIO)) continue;
        r = one;
        if (err != NULL) *err = why;
    }
    *ret_left = p.left || p.cancelled;
    if (!p.cancelled) return r;
    if (err != NULL) gp_error_clear(err);
    return gp_fail(
        err, GP_ECANCELLED,
        "'%s': cancelled while outputs were fetched, and the nodes still have %s: repeat this command to fetch them",
        all->run->stack.name, left.s);
}

/* --- while it runs --- */

/* A path that is fetched while the job runs. Borrowed from the spec. */
struct backup_item {
    const char *path, *to;
    int64_t every_ms, next_ms; /* next_ms: monotonic */
};
struct job_backup {
    struct job_nodes *all;
    VEC_OF(struct backup_item) items;
    pthread_t thread;
    struct gp_cancel quit;
    struct node_link *links; /* of its own, by rank */
};

static void add_item(struct job_backup *b, const char *path, const char *to, int64_t every_ms) {
    struct backup_item item = {.path = path, .to = to, .every_ms = every_ms, .next_ms = clock_deadline(every_ms)};
    vec_push(&b->items, item);
}

/* What came goes on to its bucket. */
static void store(const struct job_backup *b, const struct backup_item *item) {
    const struct run *run = b->all->run;
    const struct job_bucket_of of = bucket_of(run);
    GP_AUTO_TREE_STATS struct tree_stats stats = {0};
    struct gp_error why = {0};
    int r = job_bucket_put(&of, item->to, &b->quit, &stats, &why);
    if (r != 0 && r != -GP_ECANCELLED)
        run_event(run, -1, NODE_READY, EVENT_WARN, "files", "could not send '%s' yet: %s", item->path, why.msg);
}

static void backup_one(struct job_backup *b, const struct backup_item *item) {
    GP_CLEANUP(batch_clear) struct batch batch = {0};
    const struct job_bucket_of of = bucket_of(b->all->run);
    struct gp_error why = {0};
    bool came = false, new = false;
    if (job_bucket_mark(&of, item->to, &new, &why) != 0) {
        run_event(b->all->run, -1, NODE_READY, EVENT_WARN, "files", "could not fetch '%s' yet: %s", item->path,
                  why.msg);
        return;
    }
    for (size_t i = 0; i < b->all->len; i++)
        if (b->all->items[i].used)
            add_fetch(&batch, &b->links[i], b->all->run, (int)i, item->path, item->to, several(b->all));
    batch_run(&batch);
    if (new && !any_came(&batch)) job_bucket_unmark(&of, item->to);
    for (size_t i = 0; i < batch.list.len; i++) {
        const struct one *o = &batch.list.items[i];
        node_link_close(o->link); /* an idle connection would not be missed until the next time */
        came = came || o->rc == 0;
        if (o->rc == 0) say_done(o, item->path);
        else if (o->rc != -GP_ENOTFOUND && o->rc != -GP_ECANCELLED)
            run_event(b->all->run, o->rank, NODE_READY, EVENT_WARN, "files", "could not fetch '%s' yet: %s", item->path,
                      o->err.msg);
    }
    if (came && !gp_cancelled(&b->quit)) store(b, item);
}

static void *backup_main(void *arg) {
    struct job_backup *b = arg;
    for (;;) {
        struct backup_item *first = &b->items.items[0];
        for (size_t i = 1; i < b->items.len; i++)
            if (b->items.items[i].next_ms < first->next_ms) first = &b->items.items[i];
        if (gp_sleep(clock_left_ms(first->next_ms), &b->quit, NULL) != 0) return NULL;
        backup_one(b, first);
        first->next_ms = clock_deadline(first->every_ms);
    }
}

static void backup_free(struct job_backup *b) {
    for (size_t i = 0; b->links != NULL && i < b->all->len; i++) {
        node_link_close(&b->links[i]);
        ssh_target_clear(&b->links[i].target);
    }
    gp_cancel_clear(&b->quit);
    vec_free(&b->items);
    free(b->links);
    free(b);
}

int job_backup_start(struct job_nodes *all, const struct spec_job *job, struct job_backup **ret, struct gp_error *err) {
    const struct spec_job_checkpoint *c = &job->checkpoint;
    struct job_backup *b = xcalloc(1, sizeof *b);
    *b = (struct job_backup){.all = all, .quit = {.efd = -1}};
    if (c->path != NULL) add_item(b, c->path, c->to, c->every_ms > 0 ? c->every_ms : SPEC_JOB_EVERY_MS);
    for (size_t i = 0; i < job->outputs.len; i++) {
        const struct spec_job_output *o = &job->outputs.items[i];
        if (o->every_ms > 0) add_item(b, o->path, o->to, o->every_ms);
    }
    if (b->items.len == 0) {
        free(b);
        return 0;
    }
    b->links = xcalloc(all->len + 1, sizeof *b->links);
    int r = gp_cancel_init(&b->quit, err);
    for (size_t i = 0; i < all->len; i++) {
        struct node_link *l = &b->links[i];
        ssh_target_copy(&l->target, &all->items[i].n->link.target);
        l->slot = (int)i;
        l->reach_timeout_ms = REACH_MS;
        l->cancel = &b->quit;
    }
    int e = r == 0 ? pthread_create(&b->thread, NULL, backup_main, b) : 0;
    if (e != 0) r = gp_fail_errno(err, GP_EENV, e, "could not start a thread");
    if (r != 0) backup_free(b);
    else *ret = b;
    return r;
}

void job_backup_stop(struct job_backup *b) {
    if (b == NULL) return;
    gp_cancel_set(&b->quit);
    pthread_join(b->thread, NULL);
    backup_free(b);
}
