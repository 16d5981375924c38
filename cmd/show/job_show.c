/* SPDX-License-Identifier: Apache-2.0 */
/* Prints the log of a job as it comes, and its result as JSON. The verb's thread. */
#include "base/gp_base.h"

#include "job_show.h"

#include "base/json.h"

static void text_line(struct job_printer *p, int rank, const char *line, size_t n) {
    char head[24] = "";
    if (!p->one) snprintf(head, sizeof head, "[%d] ", rank);
    fputs(head, stdout);
    fwrite(line, 1, n, stdout);
    putchar('\n');
}

/* One write, so that it stays one line among those of progress. */
static void json_line(int rank, const char *line, size_t n) {
    GP_AUTO_STR struct str out = {0};
    str_addf(&out, "{\"rank\": %d, \"line\": \"", rank);
    str_add_json(&out, line, n);
    str_add(&out, "\"}\n");
    fwrite(out.s, 1, out.len, stderr);
}

static void job_text(void *ctx, int rank, const char *line, size_t n) {
    struct job_printer *p = ctx;
    const struct common_opts *c = p->inv->common;
    if (!c->json) text_line(p, rank, line, n);
    else if (!c->quiet) json_line(rank, line, n);
}

static void print_pause(void *ctx) {
    const struct job_printer *p = ctx;
    if (!p->inv->common->json) fflush(stdout);
}

/* A failure is an event of its own. The last stage comes when the outputs are here, and before nodes are destroyed. */
static void tell_end(const struct job_printer *p) {
    const struct job_result *res = p->res;
    const char *how = res->stopped ? "was stopped" : "has succeeded";
    if (res->id[0] == '\0' || res->running || res->outcome.failed >= 0 || (!res->stopped && res->outcome.len == 0))
        return;
    GP_AUTO_FREE char *text = xasprintf("job %s %s", res->id, how);
    engine_job_ended(p->work->e, p->work->name, text);
}

static void print_stage(void *ctx, enum job_stage stage) {
    struct job_printer *p = ctx;
    if (stage == JOB_STAGE_END && !p->logging && p->res != NULL) tell_end(p);
    p->logging = stage == JOB_STAGE_LOG;
    struct app_work *w = p->work;
    struct gp_error ignored = {0};
    bool plain = stage == JOB_STAGE_LOG;
    print_pause(ctx);
    if (w == NULL || w->p == NULL || p->inv->app->plain == plain) return;
    app_progress_end(w->e, &w->p);
    p->inv->app->plain = plain;
    (void)app_progress(p->inv, w->e, w->name, w->spec != NULL ? w->spec->nodes : 0, &w->p, &ignored);
}

void job_print_to(struct job_printer *p, struct job_opts *opts) {
    opts->text = job_text;
    opts->pause = print_pause;
    opts->stage = print_stage;
    opts->ctx = p;
}

/* --- the result --- */

static const char *state_of(const struct job_result *res, int r) {
    if (res->id[0] == '\0') return "none";
    if (res->running) return "running";
    if (res->stopped) return "stopped";
    if (res->deadline) return "deadline";
    if (res->outcome.failed >= 0) return "failed";
    return r == 0 || res->outcome.len > 0 ? "succeeded" : "unknown";
}

static json_t *text_or_null(const char *text) { return text[0] != '\0' ? json_any_text(text) : json_null(); }

static json_t *ranks_json(const struct job_outcome *o) {
    json_t *list = json_array();
    for (size_t i = 0; i < o->len; i++) {
        const struct job_rank_end *e = &o->ranks[i];
        if (!e->ended && !e->lost) continue;
        json_t *j = e->ended ? job_state_json(&e->state) : json_pack("{s:s}", "state", "lost");
        json_object_set_new(j, "rank", json_integer((json_int_t)i));
        json_object_set_new(j, "why", e->why[0] != '\0' ? json_any_text(e->why) : json_null());
        json_array_append_new(list, j);
    }
    return list;
}

static json_t *notes_json(const struct strv *notes) {
    json_t *list = json_array();
    for (size_t i = 0; i < notes->n; i++) json_array_append_new(list, json_any_text(notes->v[i]));
    return list;
}

static json_t *fetched_json(const struct job_result *res) {
    json_t *list = json_array();
    for (size_t i = 0; i < res->fetched.len; i++) {
        const struct job_fetched *f = &res->fetched.items[i];
        json_array_append_new(list, json_pack("{s:i, s:o, s:o, s:I, s:I, s:I, s:I, s:I, s:o, s:o}", "rank", f->rank,
                                              "path", json_any_text(f->path), "to", json_any_text(f->to), "files",
                                              (json_int_t)f->files, "bytes", (json_int_t)f->bytes, "files_sent",
                                              (json_int_t)f->files_sent, "bytes_sent", (json_int_t)f->bytes_sent,
                                              "left_out", (json_int_t)f->left_out, "notes", notes_json(&f->notes),
                                              "error", f->error != NULL ? json_any_text(f->error) : json_null()));
    }
    return list;
}

static json_t *stored_json(const struct job_result *res) {
    json_t *list = json_array();
    for (size_t i = 0; i < res->stored.len; i++) {
        const struct job_stored *f = &res->stored.items[i];
        json_array_append_new(list,
                              json_pack("{s:o, s:I, s:I, s:I, s:I, s:I, s:o, s:o}", "to", json_any_text(f->to), "files",
                                        (json_int_t)f->files, "bytes", (json_int_t)f->bytes, "files_sent",
                                        (json_int_t)f->files_sent, "bytes_sent", (json_int_t)f->bytes_sent, "left_out",
                                        (json_int_t)f->left_out, "notes", notes_json(&f->notes), "error",
                                        f->error != NULL ? json_any_text(f->error) : json_null()));
    }
    return list;
}

static json_t *health_json(const struct job_result *res) {
    json_t *list = json_array();
    for (size_t i = 0; i < res->health.len; i++) {
        const struct job_rank_health *k = &res->health.items[i];
        const struct job_health *h = &k->found;
        json_array_append_new(list, json_pack("{s:s, s:i, s:i, s:s, s:o, s:o, s:o, s:o, s:o}", "job", k->id, "rank",
                                              k->rank, "n", h->n, "watch", job_health_name(h->kind), "gpu",
                                              h->gpu >= 0 ? json_integer(h->gpu) : json_null(), "severity",
                                              text_or_null(h->severity), "code", text_or_null(h->code), "text",
                                              text_or_null(h->text), "advice", text_or_null(h->advice)));
    }
    return list;
}

static json_t *replaced_json(const struct job_result *res) {
    json_t *list = json_array();
    for (size_t i = 0; i < res->replaced.len; i++) {
        const struct job_replaced *k = &res->replaced.items[i];
        json_array_append_new(list, json_pack("{s:s, s:i, s:s}", "job", k->id, "rank", k->rank, "why", k->why));
    }
    return list;
}

static json_t *job_json(const struct job_result *res, int r) {
    const struct job_outcome *o = &res->outcome;
    const struct job_rank_end *bad = o->failed >= 0 ? &o->ranks[o->failed] : NULL;
    if (res->id[0] == '\0') return json_null();
    bool code = bad != NULL && bad->ended && bad->state.exit >= 0;
    bool ok = strcmp(state_of(res, r), "succeeded") == 0;
    return json_pack(
        "{s:s, s:s, s:s, s:b, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:i, s:o}", "id", res->id, "key", res->key,
        "state", state_of(res, r), "attached", (int)res->attached, "exit",
        code ? json_integer(bad->state.exit)
        : ok ? json_integer(0)
             : json_null(),
        "signal", bad != NULL && bad->state.signal[0] != '\0' ? json_any_text(bad->state.signal) : json_null(), "rank",
        bad != NULL ? json_integer(o->failed) : json_null(), "why", bad != NULL ? json_any_text(bad->why) : json_null(),
        "ranks", ranks_json(o), "fetched", fetched_json(res), "stored", stored_json(res), "health", health_json(res),
        "recovered", res->recovered, "replaced", replaced_json(res));
}

void job_show_result(struct invocation *inv, const char *stack, const struct job_result *res, json_t *plan, int r,
                     const struct gp_error *err) {
    if (!inv->common->json) return;
    bool seen = res->up.view.stack.name != NULL, proven = res->up.report.nodes.len > 0;
    json_t *j = json_pack("{s:s, s:o}", "name", stack, "job", job_json(res, r));
    json_object_set_new(j, "stack", seen ? stack_view_json(&res->up.view) : json_null());
    json_object_set_new(j, "report", proven ? report_to_json(&res->up.report) : json_null());
    json_object_set(j, "plan", plan != NULL ? plan : json_null());
    json_object_set_new(j, "destroyed", res->destroyed ? json_integer(res->down.destroyed) : json_null());
    json_object_set_new(j, "left", resources_json(&res->down.left));
    if (r != 0) result_error(inv, j, err);
    print_json(j);
}
