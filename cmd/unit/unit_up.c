/* SPDX-License-Identifier: Apache-2.0 */
/* up DIR: takes down the stacks that left the folder, then brings up all others side by side. Each worker thread has an
 * engine of its own and takes one stack after another; what they print is behind one mutex. */
#include "base/gp_base.h"

#include "unit.h"

#include "cmd/ask/confirm.h"
#include "cmd/show/plan_show.h"
#include "cmd/show/up_show.h"

#include <unistd.h>

#define WORKERS_MAX 8 /* stacks side by side: each has threads, connections and a journal of its own */

struct work;
/* One spec of the folder. */
struct job {
    struct work *work;
    const struct unit_file *file;
    struct up_result res;
    json_t *plan; /* for --json */
    struct gp_error err;
    bool done;
};
/* One stack that left the folder. */
struct pruned {
    const struct stack_view *view;
    struct down_result res;
    struct gp_error err;
};
struct worker {
    struct work *work;
    struct engine *e;
    pthread_t thread;
    bool started;
};
struct work {
    struct invocation *inv;
    struct engine *e;
    struct unit_folder folder;
    struct unit_left left;
    struct gp_error left_err;
    VEC_OF(struct pruned) pruned;
    struct job *jobs;
    size_t next;
    pthread_mutex_t lock; /* next, and both outputs */
};

/* --- one stack --- */

static int open_progress(struct invocation *inv, struct engine *e, const char *stack, int nodes, struct progress **ret,
                         struct gp_error *err) {
    const struct common_opts *c = inv->common;
    enum output_mode mode = c->quiet ? OUTPUT_QUIET : c->json ? OUTPUT_JSON : OUTPUT_PLAIN;
    int r = progress_open(mode, stderr, stack, nodes, c->log, ret, err);
    if (r == 0) e->sink = *progress_sink(*ret);
    return r;
}

static int approve(void *ctx, const struct plan *plan, struct gp_error *err) {
    struct job *job = ctx;
    const struct common_opts *c = job->work->inv->common;
    (void)err;
    if (c->json) job->plan = plan_json(job->file->spec, plan);
    if (c->json || c->quiet || !plan->changes) return 0;
    pthread_mutex_lock(&job->work->lock);
    fprintf(stderr, "%s:\n", job->file->path);
    plan_show(job->file->spec, plan, stderr);
    pthread_mutex_unlock(&job->work->lock);
    return 0;
}

static void run_job(struct engine *e, struct job *job) {
    struct invocation *inv = job->work->inv;
    const struct spec *spec = job->file->spec;
    struct progress *p = NULL;
    int r = open_progress(inv, e, spec->name, spec->nodes, &p, &job->err);
    e->approve = approve;
    e->approve_ctx = job;
    if (r == 0) (void)engine_up(e, spec, &job->res, &job->err);
    e->approve = NULL;
    if (p != NULL) app_progress_end(e, &p);
    job->done = true;
    if (inv->common->json) return;
    pthread_mutex_lock(&job->work->lock);
    printf("%s:\n", job->file->path);
    up_show(&job->res, &job->err);
    if (job->err.code != GP_OK) printf("failed: %s\n", job->err.msg);
    putchar('\n');
    fflush(stdout);
    pthread_mutex_unlock(&job->work->lock);
}

static void *worker_main(void *arg) {
    struct worker *w = arg;
    struct work *work = w->work;
    for (;;) {
        pthread_mutex_lock(&work->lock);
        size_t i = gp_cancelled(&w->e->cancel) ? work->folder.files.len : work->next++;
        pthread_mutex_unlock(&work->lock);
        if (i >= work->folder.files.len) return NULL;
        run_job(w->e, &work->jobs[i]);
    }
}

/* At least one worker starts; the verb's thread is the first. */
static int run_jobs(struct work *work, struct gp_error *err) {
    struct worker all[WORKERS_MAX] = {0};
    int jobs = work->inv->common->jobs > 0 ? work->inv->common->jobs : 64;
    size_t n = GP_MIN(GP_MIN((size_t)WORKERS_MAX, (size_t)jobs), work->folder.files.len);
    int r = 0;
    for (size_t i = 0; i < n; i++) {
        all[i].work = work;
        struct gp_error why = {0};
        int one = app_engine_more(work->inv, GP_MAX(1, jobs / (int)n), &all[i].e, &why);
        if (one == 0 && i > 0) all[i].started = pthread_create(&all[i].thread, NULL, worker_main, &all[i]) == 0;
        if (one == 0 || i > 0) continue;
        r = one;
        *err = why;
        break;
    }
    if (r == 0) worker_main(&all[0]);
    for (size_t i = 1; i < n; i++)
        if (all[i].started) pthread_join(all[i].thread, NULL);
    for (size_t i = 0; i < n; i++)
        if (all[i].e != NULL) app_engine_done(work->inv, all[i].e);
    return r;
}

/* --- prune --- */

static int prune_one(struct work *work, const struct stack_view *v) {
    struct pruned one = {.view = v};
    struct progress *p = NULL;
    struct down_req req = {.name = v->stack.name, .unit = work->folder.name, .yes = true};
    int r = open_progress(work->inv, work->e, v->stack.name, 0, &p, &one.err);
    if (r == 0) r = engine_down(work->e, &req, &one.res, &one.err);
    if (p != NULL) app_progress_end(work->e, &p);
    if (!work->inv->common->json) {
        if (r == 0 && one.res.left.list.len > 0)
            printf("%s: destroyed; %zu unbilled resources are not gone yet: run 'gpuprov gc' later\n\n", v->stack.name,
                   one.res.left.list.len);
        else if (r == 0) printf("%s: destroyed, nothing is left\n\n", v->stack.name);
        else printf("%s: it was not destroyed, or not wholly: %s\n\n", v->stack.name, one.err.msg);
    }
    vec_push(&work->pruned, one);
    return r;
}

static void prune(struct work *work) {
    for (size_t i = 0; i < work->left.list.len; i++)
        if (prune_one(work, work->left.list.items[i]) == -GP_ECANCELLED) return;
}

/* --- the whole --- */

static json_t *job_json(const struct job *job) {
    json_t *j = up_json(&job->res, job->plan);
    json_object_set_new(j, "name", json_string(job->file->spec->name));
    json_object_set_new(j, "file", json_any_text(job->file->path));
    json_object_set_new(j, "exit_code", job->done ? json_integer(gp_exit_code(job->err.code)) : json_null());
    if (job->err.code != GP_OK) json_object_set_new(j, "error", error_json(&job->err));
    return j;
}

static void show_json(const struct work *work, const struct gp_error *worst) {
    json_t *stacks = json_array(), *pruned = json_array();
    for (size_t i = 0; i < work->folder.files.len; i++) json_array_append_new(stacks, job_json(&work->jobs[i]));
    for (size_t i = 0; i < work->pruned.len; i++) {
        const struct pruned *p = &work->pruned.items[i];
        bool gone = p->err.code == GP_OK && p->res.left.list.len == 0;
        json_array_append_new(pruned, json_pack("{s:s, s:o, s:o, s:i, s:o}", "name", p->view->stack.name, "gone",
                                                gone ? json_true() : json_null(), "left", resources_json(&p->res.left),
                                                "exit_code", gp_exit_code(p->err.code), "error",
                                                p->err.code != GP_OK ? error_json(&p->err) : json_null()));
    }
    json_t *j = json_pack("{s:o, s:o, s:o, s:o}", "folder", json_any_text(work->folder.dir), "unit",
                          json_any_text(work->folder.name), "stacks", stacks, "pruned", pruned);
    if (worst->code != GP_OK) result_error(work->inv, j, worst);
    print_json(j);
}

static void show_summary(const struct work *work) {
    size_t failed = 0, skipped = 0, kept = 0;
    for (size_t i = 0; i < work->folder.files.len; i++) {
        failed += work->jobs[i].err.code != GP_OK;
        skipped += !work->jobs[i].done;
    }
    for (size_t i = 0; i < work->pruned.len; i++) kept += work->pruned.items[i].err.code != GP_OK;
    size_t n = work->folder.files.len;
    printf("%s: %zu of %zu stack%s ready", work->folder.dir, n - failed - skipped, n, n == 1 ? "" : "s");
    if (skipped > 0) printf(", %zu not begun", skipped);
    if (work->left.list.len > 0) printf(", %zu of %zu destroyed", work->pruned.len - kept, work->left.list.len);
    putchar('\n');
}

/* On a terminal the plan of all stacks is shown before the question. */
static int ask(struct work *work, struct gp_error *err) {
    for (size_t i = 0; i < work->folder.files.len; i++) {
        const struct unit_file *f = &work->folder.files.items[i];
        struct plan plan = {0};
        struct gp_error why = {0};
        fprintf(stderr, "%s:\n", f->path);
        int r = engine_plan(work->e, f->spec, &plan, &why);
        if (r == 0) plan_show(f->spec, &plan, stderr);
        else fprintf(stderr, "  the plan failed: %s\n", why.msg);
        plan_clear(&plan);
        if (r == -GP_ECANCELLED) return gp_fail(err, GP_ECANCELLED, "cancelled: nothing was changed");
    }
    GP_AUTO_FREE char *question = xasprintf("Do this for %zu stack%s?", work->folder.files.len + work->left.list.len,
                                            work->folder.files.len + work->left.list.len == 1 ? "" : "s");
    return confirm_ask(work->e, question, err);
}

static int find_left(struct work *work, struct gp_error *err) {
    int r = unit_find_left(work->e, &work->folder, &work->left, &work->left_err);
    if (r == -GP_ECANCELLED) return gp_fail(err, GP_ECANCELLED, "cancelled: nothing was changed");
    if (work->inv->common->json || work->inv->common->quiet) return 0;
    if (work->left_err.code != GP_OK)
        fprintf(stderr, "gpuprov: not every place could be searched for stacks of the unit '%s': %s\n",
                work->folder.name, work->left_err.msg);
    fprintf(stderr, "stacks of the unit '%s' that are no longer in %s:%s\n", work->folder.name, work->folder.dir,
            work->left.list.len == 0 ? " none" : "");
    unit_show_left(&work->left, stderr);
    return 0;
}

static int run(struct work *work, const struct unit_up_opts *o, struct gp_error *err) {
    struct invocation *inv = work->inv;
    bool terminal = isatty(STDIN_FILENO) == 1 && isatty(STDERR_FILENO) == 1;
    if (inv->common->json && !o->yes && terminal)
        return gp_fail(err, GP_EUSAGE,
                       "--json requests no confirmation on a terminal: add --yes, or run 'gpuprov plan' first");
    work->e->opts.unit = work->folder.name;
    int r = o->prune ? find_left(work, err) : 0;
    if (r == 0 && !o->yes && confirm_can_ask(inv)) {
        bool notifies = work->e->notifies;
        work->e->notifies = false; /* a command of a spec would run before a person has agreed to it */
        r = ask(work, err);
        if (r == 0) work->e->notifies = notifies;
    }
    if (r != 0) return r;
    work->jobs = xcalloc(work->folder.files.len, sizeof *work->jobs);
    for (size_t i = 0; i < work->folder.files.len; i++) {
        work->jobs[i].work = work;
        work->jobs[i].file = &work->folder.files.items[i];
    }
    struct gp_error worst = work->left_err;
    prune(work);
    r = gp_cancelled(&work->e->cancel) ? gp_fail(err, GP_ECANCELLED, "cancelled") : run_jobs(work, err);
    for (size_t i = 0; i < work->folder.files.len; i++) {
        struct gp_error named = work->jobs[i].err;
        if (named.code != GP_OK) gp_wrap(&named, "%s", work->jobs[i].file->path);
        unit_keep_worst(&worst, &named);
    }
    for (size_t i = 0; i < work->pruned.len; i++) unit_keep_worst(&worst, &work->pruned.items[i].err);
    if (r != 0) unit_keep_worst(&worst, err);
    if (gp_cancelled(&work->e->cancel)) {
        struct gp_error cancelled = {0};
        gp_fail(&cancelled, GP_ECANCELLED, "cancelled: not every stack of '%s' was begun or is ready",
                work->folder.dir);
        unit_keep_worst(&worst, &cancelled);
    }
    if (inv->common->json) show_json(work, &worst);
    else show_summary(work);
    *err = worst;
    return -(int)worst.code;
}

int unit_up(struct invocation *inv, const char *dir, const struct unit_up_opts *o, struct gp_error *err) {
    struct work work = {.inv = inv, .lock = PTHREAD_MUTEX_INITIALIZER};
    int r = unit_open(inv, dir, o->prune, &work.folder, err);
    if (r == 0) r = app_engine(inv, &work.e, err);
    if (r == 0) r = run(&work, o, err);
    if (work.e != NULL) work.e->opts.unit = NULL;
    for (size_t i = 0; work.jobs != NULL && i < work.folder.files.len; i++) {
        up_result_clear(&work.jobs[i].res);
        json_decref(work.jobs[i].plan);
    }
    for (size_t i = 0; i < work.pruned.len; i++) down_result_clear(&work.pruned.items[i].res);
    vec_free(&work.pruned);
    free(work.jobs);
    unit_left_clear(&work.left);
    unit_folder_clear(&work.folder);
    pthread_mutex_destroy(&work.lock);
    return r;
}
