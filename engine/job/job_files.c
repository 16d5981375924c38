/* SPDX-License-Identifier: Apache-2.0 */
/* The files of a job: its working folder, its outputs, its checkpoint. */
#include "base/gp_base.h"

#include "engine/job/job_files.h"

#include "engine/job/copy/job_batch.h"
#include "engine/job/job_bucket.h"
#include "engine/job/job_follow.h"

#include "base/fs.h"
#include "engine/run/run_event.h"

#define BUSY_MS ((int64_t)5 * 60000) /* how long a folder here may be in use by another copy */
#define AGAIN_MS 2000
#define SAY_MS 10000
#define QUERY_MS 30000 /* between two looks whether a machine still exists */

/* "results" is below the working folder; an absolute path stays. Caller frees. */
static char *node_path(const char *path) { return path[0] == '/' ? xstrdup(path) : xasprintf("%s/%s", JOB_CWD, path); }

char *job_files_place(const char *to, int rank, bool more) { return more ? xasprintf("%s/%d", to, rank) : xstrdup(to); }

/* The trailing slash: a file keeps its name in that folder. */
void job_files_from(struct job_copy *o, const char *path, const char *to, bool more) {
    GP_AUTO_FREE char *folder = job_bucket_folder(o->run->e, o->run->stack.name, to);
    GP_AUTO_FREE char *place = job_files_place(folder, o->rank, more), *shown = job_files_place(to, o->rank, more);
    o->there = node_path(path);
    o->here = xasprintf("%s/", place);
    o->shown = xasprintf("%s/", shown);
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
    GP_CLEANUP(job_batch_clear) struct job_batch b = {0};
    size_t kept = 0;
    int r = 0;
    for (size_t i = 0; i < all->len; i++) {
        struct job_node *j = &all->items[i];
        if (!j->used) continue;
        struct job_copy o = {
            .link = &j->n->link, .run = all->run, .rank = (int)i, .up = true, .checkpoint = checkpoint};
        o.ignore = omit != NULL;
        o.omit = omit;
        o.here = checkpoint ? job_files_place(from, (int)i, job_nodes_several(all)) : xstrdup(from);
        o.there = xstrdup(to);
        if (checkpoint || fs_exists(o.here)) {
            vec_push(&b.list, o);
        } else {
            free(o.here);
            free(o.there);
        }
    }
    job_batch_run(&b);
    for (size_t i = 0; i < b.list.len; i++) {
        const struct job_copy *o = &b.list.items[i];
        if (o->rc == 0) job_copy_say_done(o, checkpoint ? "checkpoint" : "working folder");
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
    find_places(job, job_nodes_several(all) ? all->len : 0, &places);
    int r = job->workdir != NULL ? send(all, job->workdir, false, JOB_CWD, &places, err) : 0;
    if (r != 0 || c->path == NULL) return r;
    GP_AUTO_FREE char *there = node_path(c->path);
    GP_AUTO_FREE char *here = job_bucket_folder(all->run->e, all->run->stack.name, c->to);
    return send(all, here, true, there, NULL, err);
}

/* --- from the nodes --- */

static void note(struct job_result *ret, struct job_copy *o) {
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

/* A path that the job has on each node. Borrowed from the spec. */
struct place {
    const char *path, *to;
    bool new_mark; /* of its bucket */
};
/* One fetch of all outputs. Times are monotonic; 0: no such trouble. */
struct fetch {
    struct job_nodes *all;
    struct job_batch b;
    VEC_OF(struct place) places;
    int64_t query_at_ms, say_at_ms;
    bool said_away, said_busy, cancelled, left;
    struct job_result *ret;
};

static void fetch_clear(struct fetch *f) {
    job_batch_clear(&f->b);
    vec_free(&f->places);
}

/* It did not answer before the job was given up: it was waited for. */
static bool was_lost(const struct fetch *f, int rank) {
    const struct job_outcome *o = &f->ret->outcome;
    return (size_t)rank < o->len && o->ranks[rank].lost;
}

/* Nodes that are away because their machines have ended: their files are lost. */
static void find_gone(struct fetch *f) {
    struct stack_view_list found = {0};
    struct gp_error ignored = {0};
    struct job_nodes *all = f->all;
    struct run *run = all->run;
    bool any = false, seen = false, reboots = run->spec != NULL && run->spec->job.restart > 0;
    for (size_t i = 0; i < f->b.list.len; i++) {
        int rc = f->b.list.items[i].rc;
        any = any || (rc != 0 && rc != -GP_ENOTFOUND && rc != -GP_EBUSY && rc != -GP_EIO);
    }
    if (!any || (f->query_at_ms != 0 && clock_left_ms(f->query_at_ms) > 0)) return;
    int r = engine_status(run->e, run->stack.name, run->spec, true, &found, &ignored);
    f->query_at_ms = clock_deadline(QUERY_MS);
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
static bool may_pass(const struct fetch *f, struct job_copy *o) {
    bool away = job_copy_away(o), busy = o->rc == -GP_EBUSY;
    int64_t *by_ms = busy ? &o->busy_by_ms : &o->away_by_ms;
    if ((!away && !busy) || job_batch_over(&f->b, o)) return false;
    if (away && (f->all->items[o->rank].gone || was_lost(f, o->rank))) return false;
    if (*by_ms == 0) *by_ms = clock_deadline(busy ? BUSY_MS : JOB_AWAY_MS);
    return clock_left_ms(*by_ms) > 0;
}

/* Sets o->skip of all transfers but those to repeat, and reports one of these. *ret_n: how many they are. */
static void choose_again(struct fetch *f, size_t *ret_n) {
    const struct job_copy *first = NULL;
    *ret_n = 0;
    for (size_t i = 0; i < f->b.list.len; i++) {
        struct job_copy *o = &f->b.list.items[i];
        o->skip = !may_pass(f, o);
        *ret_n += !o->skip;
        if (first == NULL && !o->skip) first = o;
    }
    if (first == NULL) return;
    bool busy = first->rc == -GP_EBUSY, *said = busy ? &f->said_busy : &f->said_away;
    if (*said && clock_left_ms(f->say_at_ms) > 0) return;
    enum event_status status = *said ? EVENT_PROGRESS : EVENT_WARN;
    *said = true;
    f->say_at_ms = clock_deadline(SAY_MS);
    char left[32];
    duration_format(left, sizeof left, clock_left_ms(busy ? first->busy_by_ms : first->away_by_ms) / 1000 * 1000);
    run_event(f->all->run, first->rank, NODE_READY, status, "files",
              "could not fetch '%s' yet, trying again for %s: %s", first->there, left, first->err.msg);
}

static void note_cancelled(struct fetch *f) {
    for (size_t i = 0; i < f->b.list.len; i++) f->cancelled = f->cancelled || f->b.list.items[i].rc == -GP_ECANCELLED;
}

/* Repeats what failed in a way that may pass. Ctrl-C ends it: the nodes still have the files. */
static void fetch_again(struct fetch *f) {
    note_cancelled(f);
    for (size_t n = 0; !f->cancelled;) {
        find_gone(f);
        choose_again(f, &n);
        if (n == 0) break;
        f->cancelled = gp_sleep(AGAIN_MS, &f->all->run->e->cancel, NULL) != 0;
        if (f->cancelled) break;
        job_batch_run(&f->b);
        note_cancelled(f);
    }
    for (size_t i = 0; i < f->b.list.len; i++) f->b.list.items[i].skip = false;
}

/* One line for all nodes: where the files are now. */
static void say_where(const struct fetch *f, size_t path) {
    const struct place *p = &f->places.items[path];
    uint64_t files = 0, bytes = 0;
    size_t nodes = 0;
    char size[24];
    for (size_t i = 0; i < f->b.list.len; i++) {
        const struct job_copy *o = &f->b.list.items[i];
        if (o->path != path || o->rc != 0 || o->stats.files == 0) continue;
        files += o->stats.files;
        bytes += o->stats.bytes;
        nodes++;
    }
    if (nodes == 0) return;
    bytes_format(size, sizeof size, bytes);
    run_event(f->all->run, -1, NODE_READY, EVENT_DONE, "files", "%s: %llu file%s of %zu node%s (%s) %s in %s", p->path,
              (unsigned long long)files, files == 1 ? "" : "s", nodes, nodes == 1 ? "" : "s", size,
              files == 1 ? "is" : "are", p->to);
}

static struct job_bucket_of bucket_of(const struct run *run) {
    return (struct job_bucket_of){.e = run->e, .sink = &run->sink, .stack = run->stack.name};
}

static int keep_first(int r, int new, const struct gp_error *why, struct gp_error *err) {
    if (new == 0 || r == -GP_EIO || (r != 0 && new != -GP_EIO)) return r; /* a trouble of this machine comes first */
    if (err != NULL) *err = *why;
    return new;
}

/* Adds a path of all nodes. */
static int add_place(struct fetch *f, const char *path, const char *to, struct gp_error *err) {
    const struct job_bucket_of of = bucket_of(f->all->run);
    struct place p = {.path = path, .to = to};
    int r = job_bucket_mark(&of, to, &p.new_mark, err);
    if (r != 0) {
        f->left = true;
        for (size_t i = 0; i < f->all->len; i++) f->all->items[i].owes = true;
        return r;
    }
    for (size_t i = 0; i < f->all->len; i++) {
        const struct job_node *j = &f->all->items[i];
        if (!j->used || j->away || j->gone) continue;
        struct job_copy o = {.link = &j->n->link, .run = f->all->run, .rank = (int)i, .path = f->places.len};
        job_files_from(&o, path, to, job_nodes_several(f->all));
        vec_push(&f->b.list, o);
    }
    vec_push(&f->places, p);
    return 0;
}

/* Reports what became of one path. */
static int report_place(struct fetch *f, size_t path, struct gp_error *err) {
    const struct place *p = &f->places.items[path];
    const struct job_bucket_of of = bucket_of(f->all->run);
    size_t absent = 0, n = 0;
    int r = 0;
    for (size_t i = 0; i < f->b.list.len; i++) {
        struct job_copy *o = &f->b.list.items[i];
        if (o->path != path) continue;
        n++;
        absent += o->rc == -GP_ENOTFOUND;
        struct job_node *j = &f->all->items[o->rank];
        note(f->ret, o);
        if (o->rc == 0) job_copy_say_done(o, p->path);
        j->owes = j->owes || o->stats.left_out > 0 || o->rc == -GP_ECANCELLED;
        if (o->rc == 0 || o->rc == -GP_ENOTFOUND || o->rc == -GP_ECANCELLED) continue;
        run_event(f->all->run, o->rank, NODE_READY, EVENT_WARN, "files", "could not fetch '%s': %s", p->path,
                  o->err.msg);
        /* after Ctrl-C a node that does not answer keeps nothing */
        bool left = !(j->gone || (f->ret->stopped && was_lost(f, o->rank)));
        f->left = f->left || left;
        j->owes = j->owes || left;
        r = keep_first(r, o->rc, &o->err, err);
    }
    if (p->new_mark && absent == n) job_bucket_unmark(&of, p->to); /* nothing can have come */
    if (!bucket_url_is(p->to)) say_where(f, path);                 /* else they are only on their way */
    if (absent > 0 && absent == n)
        run_event(f->all->run, -1, NODE_READY, EVENT_WARN, "files", "no node has '%s': nothing was fetched", p->path);
    return r;
}

/* "'out', 'checkpoints'": the paths that are not here. */
static void say_missing(const struct fetch *f, struct str *to) {
    for (size_t path = 0; path < f->places.len; path++) {
        bool here = true;
        for (size_t i = 0; i < f->b.list.len; i++) {
            const struct job_copy *o = &f->b.list.items[i];
            here = here && (o->path != path || o->rc == 0 || o->rc == -GP_ENOTFOUND);
        }
        if (!here) str_addf(to, "%s'%s'", to->len > 0 ? ", " : "", f->places.items[path].path);
    }
}

static int fetch_all(struct fetch *f, const struct spec_job *job, struct gp_error *err) {
    const struct spec_job_checkpoint *c = &job->checkpoint;
    int r = 0;
    for (size_t i = 0; i <= job->outputs.len; i++) {
        bool last = i == job->outputs.len;
        const char *path = last ? c->path : job->outputs.items[i].path;
        struct gp_error why = {0};
        if (path != NULL)
            r = keep_first(r, add_place(f, path, last ? c->to : job->outputs.items[i].to, &why), &why, err);
    }
    job_batch_run(&f->b);
    fetch_again(f);
    for (size_t path = 0; path < f->places.len; path++) {
        struct gp_error why = {0};
        r = keep_first(r, report_place(f, path, &why), &why, err);
    }
    return r;
}

int job_files_fetch(struct job_nodes *all, const struct spec_job *job, int64_t limit_ms, struct job_result *ret,
                    bool *ret_left, struct gp_error *err) {
    GP_CLEANUP(fetch_clear) struct fetch f = {.all = all, .ret = ret, .b.limit_ms = limit_ms};
    GP_AUTO_STR struct str missing = {0};
    for (size_t i = 0; i < all->len; i++) all->items[i].owes = false;
    int r = fetch_all(&f, job, err);
    *ret_left = f.left || f.cancelled;
    if (!f.cancelled) return r;
    say_missing(&f, &missing);
    if (err != NULL) gp_error_clear(err);
    return gp_fail(
        err, GP_ECANCELLED,
        "'%s': cancelled while outputs were fetched, and the nodes still have %s: repeat this command to fetch them",
        all->run->stack.name, missing.s);
}
