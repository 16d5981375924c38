/* SPDX-License-Identifier: Apache-2.0 */
/* Opens the engine, reads STACK and SPEC arguments, shows progress. Runs in the verb's thread; app_cancel and
 * app_left_text run in main's. */
#include "base/gp_base.h"

#include "app.h"

#include "base/form.h"
#include "base/fs.h"
#include "base/json.h"
#include "base/log.h"
#include "engine/plan_file.h"
#include "model/event.h"
#include "model/tags.h"
#include "ssh/ssh.h"
#include "validate/validate.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#define DEFAULT_SPEC "gpuprov.yaml"
#define SPEC_FILE_MAX SPEC_TEXT_MAX

/* For verbs without progress, and until progress starts: warnings go to stderr, all events to --log. */
static int hear_warnings(struct invocation *inv, struct engine *e, struct gp_error *err) {
    const struct common_opts *c = inv->common;
    enum output_mode mode = c->json ? OUTPUT_WARNINGS_JSON : OUTPUT_WARNINGS;
    if (c->quiet) mode = OUTPUT_QUIET;
    struct progress *p = NULL;
    int r = progress_open(mode, stderr, inv->verb->name, 0, c->log, &p, err);
    if (r != 0) return r;
    inv->app->warnings = p;
    e->sink = *progress_sink(p);
    if (form_url_clear() != NULL)
        event_emit(&e->sink, -1, NODE_PLANNED, EVENT_WARN, "clear-text",
                   FORM_URL_CLEAR_ENV " is set: requests to '%.200s' may go without TLS, and everybody on the way can "
                                      "read their secrets",
                   form_url_clear());
    return 0;
}

/* Without its state gpuprov looks nowhere. For a verb that destroys this is no matter of this machine only. */
static int open_engine(const struct invocation *inv, struct engine **ret, struct gp_error *err) {
    struct gp_error why = {0};
    int r = engine_open(&inv->app->engine_opts, ret, &why);
    if (r == 0) return 0;
    if ((inv->verb->flags & VERB_ENDS) == 0 || r == -GP_ECANCELLED) {
        *err = why;
        return r;
    }
    r = gp_fail(err, GP_EBILLED,
                "nothing was looked at or destroyed, and something may still be billed: %.300s: repair it, or set "
                "GPUPROV_STATE_DIR to another folder, and repeat this command",
                why.msg);
    str_put(err->detail, sizeof err->detail, why.detail);
    err->domain = why.domain;
    return r;
}

int app_engine(struct invocation *inv, struct engine **ret, struct gp_error *err) {
    struct app *app = inv->app;
    if (app->engine != NULL) {
        *ret = app->engine;
        return 0;
    }
    const struct common_opts *c = inv->common;
    gp_error_filter(log_redacted); /* also without a registered secret: URLs */
    int r = c->trace != NULL ? log_enable(c->trace, err) : 0;
    if (r != 0) return gp_wrap(err, "--trace");
    const char *owner = c->owner != NULL ? c->owner : getenv("GPUPROV_OWNER");
    if (owner != NULL && owner[0] == '\0') owner = NULL;
    if (owner != NULL && !form_owner(owner))
        return gp_fail(err, GP_EUSAGE, "the owner '%.140s' (%s) must be " FORM_OWNER_TEXT, owner,
                       c->owner != NULL ? "--owner" : "GPUPROV_OWNER");
    app->engine_opts.owner = owner;
    app->engine_opts.jobs = c->jobs > 0 ? c->jobs : 64;
    struct engine *e = NULL;
    if ((r = open_engine(inv, &e, err)) != 0) return r;
    if ((r = hear_warnings(inv, e, err)) != 0) {
        engine_close(e);
        return r;
    }
    e->notifies = (inv->verb->flags & VERB_NOTIFIES) != 0;
    e->shows_plan = (inv->verb->flags & VERB_PLANS) != 0;
    pthread_mutex_lock(&app->lock);
    app->engine = e;
    if (app->cancelled) engine_cancel(e);
    pthread_mutex_unlock(&app->lock);
    *ret = e;
    return 0;
}

int app_engine_more(struct invocation *inv, int jobs, struct engine **ret, struct gp_error *err) {
    struct app *app = inv->app;
    struct engine_opts opts = app->engine->opts;
    struct engine *e = NULL;
    opts.jobs = jobs;
    int r = engine_open(&opts, &e, err);
    if (r != 0) return r;
    e->notifies = (inv->verb->flags & VERB_NOTIFIES) != 0;
    e->shows_plan = (inv->verb->flags & VERB_PLANS) != 0;
    pthread_mutex_lock(&app->lock);
    vec_push(&app->more, e);
    if (app->cancelled) engine_cancel(e);
    pthread_mutex_unlock(&app->lock);
    *ret = e;
    return 0;
}

/* Warnings come after the verb's own output, where nothing else is shown any more. */
static void settle(struct invocation *inv, struct engine *e) {
    const struct common_opts *c = inv->common;
    struct progress *p = NULL;
    if (!e->notifies) return;
    if (e->sink.emit == NULL) {
        enum output_mode mode = c->quiet ? OUTPUT_QUIET : c->json ? OUTPUT_WARNINGS_JSON : OUTPUT_WARNINGS;
        fflush(stdout); /* the result does not wait */
        if (progress_open(mode, stderr, inv->verb->name, 0, c->log, &p, NULL) == 0) e->sink = *progress_sink(p);
    }
    engine_settle(e);
    if (p != NULL) app_progress_end(e, &p);
}

void app_settle(struct invocation *inv) {
    if (inv->app->engine != NULL) settle(inv, inv->app->engine);
}

void app_engine_done(struct invocation *inv, struct engine *e) {
    struct app *app = inv->app;
    settle(inv, e);
    pthread_mutex_lock(&app->lock);
    size_t kept = 0;
    for (size_t i = 0; i < app->more.len; i++)
        if (app->more.items[i] != e) app->more.items[kept++] = app->more.items[i];
    app->more.len = kept;
    pthread_mutex_unlock(&app->lock);
    engine_close(e); /* the signal thread does not know it any more */
}

void app_cancel(struct app *app) {
    pthread_mutex_lock(&app->lock);
    app->cancelled = true;
    for (size_t i = 0; i < app->more.len; i++) engine_cancel(app->more.items[i]);
    if (app->engine != NULL) engine_cancel(app->engine);
    pthread_mutex_unlock(&app->lock);
    progress_hub_lines(&app->hub);
}

char *app_left_text(struct app *app, bool *ret_billed) {
    GP_AUTO_STR struct str all = {0};
    *ret_billed = false;
    pthread_mutex_lock(&app->lock);
    for (size_t i = 0; app->engine != NULL && i <= app->more.len; i++) {
        struct engine *e = i == 0 ? app->engine : app->more.items[i - 1];
        GP_AUTO_FREE char *text = engine_left_text(e), *ids = engine_billed_ids(e);
        str_add(&all, text);
        *ret_billed = *ret_billed || ids[0] != '\0';
    }
    pthread_mutex_unlock(&app->lock);
    return all.len > 0 ? str_steal(&all) : xstrdup("");
}

void app_clear(struct app *app) {
    engine_close(app->engine);
    app->engine = NULL;
    vec_free(&app->more);
    progress_close(app->warnings);
    app->warnings = NULL;
    strv_clear(&app->only);
    strv_clear(&app->problems);
    log_close();
    if (app->libraries) ssh_global_exit();
    pthread_mutex_destroy(&app->hub.lock);
    pthread_mutex_destroy(&app->lock);
}

static bool is_file(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 && !S_ISDIR(st.st_mode);
}

bool arg_is_spec(const char *arg) {
    if (arg == NULL || strcmp(arg, "-") == 0) return true;
    if (str_ends(arg, ".yaml") || str_ends(arg, ".yml")) return true;
    if (form_stack(arg)) return false; /* a file of that name is "./NAME" */
    if (is_file(arg)) return true;
    /* "llm/3" is a node of a stack, not a path. */
    const char *slash = strrchr(arg, '/');
    int64_t slot = 0;
    return slash != NULL && !(strchr(arg, '/') == slash && slash != arg && str_to_i64(slash + 1, 0, INT64_MAX, &slot));
}

static json_t *problems_json(const struct spec_problems *p) {
    json_t *list = json_array();
    for (size_t i = 0; i < p->list.len; i++) {
        const struct spec_problem *x = &p->list.items[i];
        json_array_append_new(list, json_pack("{s:I, s:I, s:o}", "line", (json_int_t)x->pos.line, "column",
                                              (json_int_t)x->pos.column, "message", json_any_text(x->message)));
    }
    return list;
}

void app_keep_problem(struct invocation *inv, const char *path, const struct spec_pos *pos, const char *text) {
    const char *slash = strrchr(path, '/'), *name = slash != NULL ? slash + 1 : path;
    strv_take(&inv->app->problems, pos != NULL ? xasprintf("%s:%u:%u: %s", name, pos->line, pos->column, text)
                                               : xasprintf("%s: %s", name, text));
}

static void show_problems(struct invocation *inv, const struct spec_problems *p, const char *path, const char *text,
                          const struct gp_error *err) {
    inv->error_shown = true;
    for (size_t i = 0; i < p->list.len; i++)
        app_keep_problem(inv, path, &p->list.items[i].pos, p->list.items[i].message);
    if (inv->common->json) {
        print_error_json(err, problems_json(p));
        return;
    }
    GP_AUTO_STR struct str out = {0};
    spec_problems_format(p, path, text, output_colour(stderr), &out);
    if (out.s != NULL) fputs(out.s, stderr);
    fprintf(stderr, "gpuprov: %s\n", err->msg);
}

enum no_spec { NO_SPEC_INIT, NO_SPEC_NAME }; /* the advice if the file is missing */

static int no_spec(const char *path, enum no_spec advice, struct gp_error *err) {
    gp_error_clear(err);
    if (advice == NO_SPEC_NAME)
        return gp_fail(
            err, GP_ENOTFOUND,
            "there is no spec '%s': correct the path, or give the stack's name ('gpuprov status' lists the stacks)",
            path);
    return gp_fail(err, GP_ENOTFOUND, "there is no spec '%s': correct the path, or let 'gpuprov init %s' write one",
                   path, path);
}

/* The text of a spec. *ret_path: its name in messages. */
static int read_spec(const struct invocation *inv, const char *arg, enum no_spec advice, const char **ret_path,
                     struct str *ret, struct gp_error *err) {
    bool in = arg != NULL && strcmp(arg, "-") == 0;
    *ret_path = in ? "stdin" : arg != NULL ? arg : DEFAULT_SPEC;
    if (arg == NULL && !fs_exists(DEFAULT_SPEC))
        return gp_fail(err, GP_EUSAGE,
                       "%s: no SPEC was given, and this folder has no " DEFAULT_SPEC ": 'gpuprov init' writes one",
                       inv->verb->name);
    int r = fs_read(in ? "/dev/stdin" : *ret_path, SPEC_FILE_MAX, ret, err);
    if (r == -GP_ENOTFOUND) return no_spec(*ret_path, advice, err);
    return r != 0 ? gp_wrap(err, "the spec") : 0;
}

static void check_notify(const struct spec *spec, struct spec_problems *problems) {
    for (size_t i = 0; i < spec->notify.len; i++) {
        const struct spec_notify *n = &spec->notify.items[i];
        GP_AUTO_SECRET struct secret url = {0}, key = {0};
        struct gp_error why = {0};
        int r = n->url != NULL ? spec_notify_read_url(n, &url, &why) : 0;
        if (r == 0 && n->secret != NULL) r = spec_notify_read_secret(n, &key, &why);
        if (r == 0) continue;
        struct spec_problem p = {.pos = {n->line, n->column}, .message = xstrdup(why.msg)};
        vec_push(&problems->list, p);
    }
}

int app_check_secrets(const struct spec *spec, struct spec_problems *problems, struct gp_error *err) {
    for (size_t i = 0; i < spec->secrets.len; i++) {
        const struct spec_secret *s = &spec->secrets.items[i];
        struct secret value = {0};
        struct gp_error why = {0};
        int r = spec_secret_read(s, spec->path, &value, &why);
        secret_clear(&value);
        if (r == 0) continue;
        struct spec_problem p = {.pos = s->pos, .message = xstrdup(why.msg)};
        vec_push(&problems->list, p);
    }
    check_notify(spec, problems);
    if (problems->list.len == 0) return 0;
    return gp_fail(err, GP_EENV, "%s: %zu secret%s cannot be read", spec->path, problems->list.len,
                   problems->list.len == 1 ? "" : "s");
}

static int load_spec(struct invocation *inv, const char *arg, enum no_spec advice, bool secrets, struct spec **ret,
                     struct gp_error *err) {
    GP_AUTO_STR struct str text = {.max = SPEC_FILE_MAX + 1};
    GP_AUTO_SPEC struct spec *spec = NULL;
    struct spec_problems problems = {0};
    const char *path = NULL;
    int r = read_spec(inv, arg, advice, &path, &text, err);
    const char *s = text.s != NULL ? text.s : "";
    if (r == 0 && arg != NULL && strcmp(arg, "-") != 0 && plan_file_is(arg))
        r = gp_fail(
            err, GP_EUSAGE,
            "'%s' is a plan that 'gpuprov plan -o' wrote, not a spec: 'gpuprov up %s' applies it, and its member "
            "'plan' has what was planned",
            arg, arg);
    if (r == 0) r = spec_load_text(path, s, text.len, validate_names(), &spec, &problems, err);
    if (r == 0 && secrets) r = app_check_secrets(spec, &problems, err);
    if (r != 0 && problems.list.len > 0) show_problems(inv, &problems, path, s, err);
    spec_problems_clear(&problems);
    if (r == 0) *ret = GP_STEAL(spec);
    return r;
}

int app_spec(struct invocation *inv, const char *arg, struct spec **ret, struct gp_error *err) {
    return load_spec(inv, arg, NO_SPEC_INIT, false, ret, err);
}

int app_spec_secrets(struct invocation *inv, const char *arg, struct spec **ret, struct gp_error *err) {
    return load_spec(inv, arg, NO_SPEC_INIT, true, ret, err);
}

int app_self_exe(char **ret, struct gp_error *err) {
    char buf[4096];
    ssize_t n = readlink("/proc/self/exe", buf, sizeof buf - 1);
    if (n < 0) return gp_fail_errno(err, GP_EENV, errno, "could not read /proc/self/exe");
    *ret = xstrndup(buf, (size_t)n);
    return 0;
}

int app_stack_name(const char *name, struct gp_error *err) {
    if (form_stack(name)) return 0;
    return gp_fail(err, GP_EUSAGE,
                   "'%s' is neither an existing spec file nor a stack name (a-z, 0-9, '-', "
                   "at most 40 characters)",
                   name);
}

/* A name that a file has, too, is a stack's only if the journal has that stack: 'down' of a spec without .yaml must not
 * report that nothing was found. */
static int app_name(struct invocation *inv, const char *name, struct gp_error *err) {
    int r = app_stack_name(name, err);
    if (r != 0 || !is_file(name)) return r;
    struct engine *e = NULL;
    bool known = false;
    r = app_engine(inv, &e, err);
    if (r == 0) r = engine_knows(e, name, &known, err);
    if (r != 0 || known) return r;
    return gp_fail(
        err, GP_EUSAGE,
        "'%s' is a file here, and the journal has no stack of that name: give './%s' for the file, or repeat "
        "this in another folder for the stack",
        name, name);
}

int app_target(struct invocation *inv, const char *arg, struct spec **ret_spec, const char **ret_name,
               struct gp_error *err) {
    *ret_spec = NULL;
    *ret_name = arg;
    if (!arg_is_spec(arg)) {
        const char *slash = strchr(arg, '/');
        GP_AUTO_FREE char *name = slash != NULL ? xstrndup(arg, (size_t)(slash - arg)) : NULL;
        struct gp_error ignored = {0};
        if (name != NULL && app_stack_name(name, &ignored) == 0)
            return gp_fail(err, GP_EUSAGE, "'%s' is one node: %s takes a whole stack, '%s'", arg, inv->verb->name,
                           name);
        return app_name(inv, arg, err);
    }
    int r = load_spec(inv, arg, NO_SPEC_NAME, false, ret_spec, err);
    if (r == 0) *ret_name = (*ret_spec)->name;
    return r;
}

/* "SPEC" or "SPEC/N" with a file that ends in .yaml or .yml: *ret is the file, *ret_slot -1 without N. */
static bool is_spec_slot(const char *arg, char **ret, int *ret_slot) {
    const char *slash = strrchr(arg, '/');
    int64_t slot = -1;
    bool numbered = slash != NULL && str_to_i64(slash + 1, 0, TAGS_SLOTS_MAX - 1, &slot);
    GP_AUTO_FREE char *path = numbered ? xstrndup(arg, (size_t)(slash - arg)) : xstrdup(arg);
    bool yaml = str_ends(path, ".yaml") || str_ends(path, ".yml");
    if (!yaml && (numbered || !fs_exists(arg) || !arg_is_spec(arg))) return false;
    *ret = GP_STEAL(path);
    *ret_slot = (int)slot;
    return true;
}

/* The name in a spec. Its other contents do not matter to verbs that only need the name, but it must be sound.
 * ret_spec: may be NULL. */
static int name_in_spec(const char *path, char **ret_name, struct spec **ret_spec, struct gp_error *err) {
    GP_AUTO_SPEC struct spec *spec = NULL;
    struct spec_problems problems = {0};
    if (!fs_exists(path)) return no_spec(path, NO_SPEC_NAME, err);
    int r = spec_load(path, validate_names(), &spec, &problems, err);
    if (r != 0 && problems.list.len > 0) gp_wrap(err, "'gpuprov check %s' lists them", path);
    spec_problems_clear(&problems);
    if (r == 0) *ret_name = xstrdup(spec->name);
    if (r == 0 && ret_spec != NULL) *ret_spec = GP_STEAL(spec);
    return r;
}

int app_stack_slot(struct invocation *inv, const char *arg, char **ret_name, int *ret_slot, struct spec **ret_spec,
                   struct gp_error *err) {
    GP_AUTO_FREE char *path = NULL;
    if (is_spec_slot(arg, &path, ret_slot)) return name_in_spec(path, ret_name, ret_spec, err);
    const char *slash = strchr(arg, '/');
    int64_t slot = -1;
    if (slash != NULL && !str_to_i64(slash + 1, 0, TAGS_SLOTS_MAX - 1, &slot))
        return gp_fail(err, GP_EUSAGE, "'%s': the node number after '/' must be from 0 to %d", arg, TAGS_SLOTS_MAX - 1);
    GP_AUTO_FREE char *name = slash ? xstrndup(arg, (size_t)(slash - arg)) : xstrdup(arg);
    int r = slash != NULL ? app_stack_name(name, err) : app_name(inv, name, err);
    if (r != 0) return r;
    *ret_name = GP_STEAL(name);
    *ret_slot = (int)slot;
    return 0;
}

int app_progress(struct invocation *inv, struct engine *e, const char *stack, int nodes, struct progress **ret,
                 struct gp_error *err) {
    const struct common_opts *c = inv->common;
    enum output_mode mode = c->json ? OUTPUT_JSON : c->quiet ? OUTPUT_QUIET : OUTPUT_AUTO;
    if (c->json && c->quiet) mode = OUTPUT_QUIET;
    /* Trace lines and a live area would overwrite each other. */
    if (mode == OUTPUT_AUTO && (c->trace != NULL || inv->app->plain)) mode = OUTPUT_PLAIN;
    int r = progress_open_in(&inv->app->hub, mode, stderr, stack, nodes, c->log, ret, err);
    if (r != 0) return r;
    e->sink = *progress_sink(*ret);
    progress_collect_failures(*ret, &inv->app->failed);
    progress_close(inv->app->warnings);
    inv->app->warnings = NULL;
    return 0;
}

void app_progress_end(struct engine *e, struct progress **p) {
    e->sink = (struct event_sink){0};
    progress_close(*p);
    *p = NULL;
}

int app_begin(struct invocation *inv, bool spec_only, struct app_work *ret, struct gp_error *err) {
    const char *arg = inv->n_args > 0 ? inv->args[0] : NULL;
    int r = spec_only ? app_spec_secrets(inv, arg, &ret->spec, err) : app_target(inv, arg, &ret->spec, &ret->name, err);
    if (r == 0 && ret->spec != NULL) ret->name = ret->spec->name;
    if (r == 0) r = app_engine(inv, &ret->e, err);
    int nodes = ret->spec != NULL ? ret->spec->nodes : 0;
    return r == 0 ? app_progress(inv, ret->e, ret->name, nodes, &ret->p, err) : r;
}

void app_work_clear(struct app_work *w) {
    if (w->p != NULL) app_progress_end(w->e, &w->p);
    spec_free(w->spec);
    *w = (struct app_work){0};
}
