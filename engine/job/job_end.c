/* SPDX-License-Identifier: Apache-2.0 */
/* Writes and reads the result of a job whose nodes are being destroyed. Decodes strictly: a file that is damaged, or of
 * another gpuprov, is refused, because a guess could run the job a second time or destroy nodes that are in use. */
#include "base/gp_base.h"

#include "engine/job/job_end.h"

#include "base/form.h"
#include "base/fs.h"
#include "engine/job/job_recover.h"
#include "engine/run/stack_dir.h"

#define VERSION 3
#define FILE_MAX_BYTES ((size_t)64 << 20)
#define RANKS_MAX 65536
#define COUNT_MAX (INT64_MAX / 2)

void job_owed_add(struct job_owed_list *to, int rank, const char *machine) {
    struct job_owed one = {.rank = rank, .machine = xstrdup(machine)};
    vec_push(&to->list, one);
}

void job_owed_clear(struct job_owed_list *owed) {
    for (size_t i = 0; i < owed->list.len; i++) free(owed->list.items[i].machine);
    vec_free(&owed->list);
}

void job_end_clear(struct job_end *end) {
    job_result_clear(&end->job);
    job_owed_clear(&end->owed);
    strv_clear(&end->machines);
    *end = (struct job_end){0};
}

/* --- write --- */

static json_t *text_or_null(const char *text) {
    return text != NULL && text[0] != '\0' ? json_any_text(text) : json_null();
}

static json_t *ranks_json(const struct job_outcome *o) {
    json_t *list = json_array();
    for (size_t i = 0; i < o->len; i++) {
        const struct job_rank_end *k = &o->ranks[i];
        json_array_append_new(list, json_pack("{s:b, s:b, s:o, s:o}", "lost", (int)k->lost, "gone", (int)k->gone, "why",
                                              text_or_null(k->why), "end",
                                              k->ended ? job_state_json(&k->state) : json_null()));
    }
    return list;
}

static json_t *notes_json(const struct strv *notes) {
    json_t *list = json_array();
    for (size_t i = 0; i < notes->n; i++) json_array_append_new(list, json_any_text(notes->v[i]));
    return list;
}

static json_t *fetched_json(const struct job_result *job) {
    json_t *list = json_array();
    for (size_t i = 0; i < job->fetched.len; i++) {
        const struct job_fetched *f = &job->fetched.items[i];
        json_array_append_new(list, json_pack("{s:i, s:o, s:o, s:I, s:I, s:I, s:I, s:I, s:o, s:o}", "rank", f->rank,
                                              "path", json_any_text(f->path), "to", json_any_text(f->to), "files",
                                              (json_int_t)f->files, "bytes", (json_int_t)f->bytes, "files_sent",
                                              (json_int_t)f->files_sent, "bytes_sent", (json_int_t)f->bytes_sent,
                                              "left_out", (json_int_t)f->left_out, "notes", notes_json(&f->notes),
                                              "error", text_or_null(f->error)));
    }
    return list;
}

static json_t *stored_json(const struct job_result *job) {
    json_t *list = json_array();
    for (size_t i = 0; i < job->stored.len; i++) {
        const struct job_stored *f = &job->stored.items[i];
        json_array_append_new(list, json_pack("{s:o, s:I, s:I, s:I, s:I, s:I, s:o, s:o}", "to", json_any_text(f->to),
                                              "files", (json_int_t)f->files, "bytes", (json_int_t)f->bytes,
                                              "files_sent", (json_int_t)f->files_sent, "bytes_sent",
                                              (json_int_t)f->bytes_sent, "left_out", (json_int_t)f->left_out, "notes",
                                              notes_json(&f->notes), "error", text_or_null(f->error)));
    }
    return list;
}

static json_t *health_json(const struct job_result *job) {
    json_t *list = json_array();
    for (size_t i = 0; i < job->health.len; i++) {
        const struct job_rank_health *h = &job->health.items[i];
        json_array_append_new(
            list, json_pack("{s:s, s:i, s:o}", "job", h->id, "rank", h->rank, "found", job_health_json(&h->found)));
    }
    return list;
}

static json_t *replaced_json(const struct job_result *job) {
    json_t *list = json_array();
    for (size_t i = 0; i < job->replaced.len; i++) {
        const struct job_replaced *k = &job->replaced.items[i];
        json_array_append_new(list, json_pack("{s:s, s:i, s:s}", "job", k->id, "rank", k->rank, "why", k->why));
    }
    return list;
}

static json_t *owed_json(const struct job_owed_list *owed) {
    json_t *list = json_array();
    for (size_t i = 0; i < owed->list.len; i++)
        json_array_append_new(list, json_pack("{s:i, s:o}", "rank", owed->list.items[i].rank, "machine",
                                              json_any_text(owed->list.items[i].machine)));
    return list;
}

static json_t *machines_json(const struct strv *machines) {
    json_t *list = json_array();
    for (size_t i = 0; i < machines->n; i++) json_array_append_new(list, json_any_text(machines->v[i]));
    return list;
}

json_t *job_end_json(const struct stack *stack, const struct job_result *job, const struct gp_error *why,
                     const struct job_owed_list *owed, const struct strv *machines) {
    const struct job_outcome *o = &job->outcome;
    json_t *error = why->code == GP_OK
                        ? json_null()
                        : json_pack("{s:s, s:o}", "code", gp_code_name(why->code), "text", json_any_text(why->msg));
    json_t *j = json_pack("{s:s, s:s, s:b, s:b, s:b, s:o, s:o, s:o, s:o, s:o, s:i, s:o}", "id", job->id, "key",
                          job->key, "attached", (int)job->attached, "stopped", (int)job->stopped, "deadline",
                          (int)job->deadline, "failed", o->failed >= 0 ? json_integer(o->failed) : json_null(), "ranks",
                          ranks_json(o), "fetched", fetched_json(job), "stored", stored_json(job), "health",
                          health_json(job), "recovered", job->recovered, "replaced", replaced_json(job));
    return json_pack("{s:i, s:s, s:s, s:o, s:o, s:o, s:o}", "version", VERSION, "stack", stack->name, "uid", stack->uid,
                     "error", error, "job", j, "owed", owed_json(owed), "machines", machines_json(machines));
}

int job_end_write(const struct run *run, const struct job_result *job, const struct gp_error *why,
                  const struct job_owed_list *owed, struct gp_error *err) {
    GP_AUTO_FREE char *dir = NULL;
    GP_AUTO_STRV struct strv machines = {0};
    for (int i = 0; i < run->n_nodes; i++)
        if (run->nodes[i].exists) strv_add(&machines, run->nodes[i].res.id);
    int r = stack_dir_path(run->e, run->stack.uid, &dir, err);
    if (r == 0) r = fs_mkdirs(dir, 0700, err);
    if (r != 0) return r;
    GP_AUTO_FREE char *path = fs_join(dir, STACK_DIR_JOB_END);
    GP_AUTO_JSON json_t *j = job_end_json(&run->stack, job, why, owed, &machines);
    GP_AUTO_FREE char *text = json_text(j, 1);
    return fs_write_atomic(path, text, strlen(text), 0600, err);
}

/* --- read --- */

/* One object of the file. The first member that is wrong sets `bad`; reads after it return nothing. */
struct reader {
    const json_t *j;
    const char *where; /* "job." */
    struct gp_error *err;
    bool bad;
};

static void refuse(struct reader *in, const char *member, const char *what) {
    if (!in->bad) (void)gp_fail(in->err, GP_EPROTO, "'%s%.60s' %s", in->where, member, what);
    in->bad = true;
}

static bool is_one_of(const char *name, const char *names) {
    size_t n = strlen(name);
    for (const char *p = names; *p != '\0';) {
        size_t len = strcspn(p, " ");
        if (len == n && strncmp(p, name, n) == 0) return true;
        p += len + (p[len] == ' ');
    }
    return false;
}

/* An object with exactly these members, separated by single spaces. */
static struct reader reader_of(const json_t *j, const char *where, const char *names, struct gp_error *err) {
    struct reader in = {.j = j, .where = where, .err = err};
    size_t wanted = 1;
    for (const char *p = names; *p != '\0'; p++) wanted += *p == ' ';
    if (!json_is_object(j)) {
        refuse(&in, "", "is no object");
        return in;
    }
    const char *name = NULL;
    json_t *v = NULL;
    json_object_foreach((json_t *)(uintptr_t)j, name, v) {
        if (!is_one_of(name, names)) refuse(&in, name, "is not known");
    }
    if (!in.bad && json_object_size(j) != wanted) refuse(&in, "", "lacks a member");
    return in;
}

static int64_t number(struct reader *in, const char *member, int64_t min, int64_t max) {
    const json_t *v = json_object_get(in->j, member);
    if (json_is_integer(v) && json_integer_value(v) >= min && json_integer_value(v) <= max)
        return json_integer_value(v);
    refuse(in, member, "is no sound number");
    return min;
}

static bool truth(struct reader *in, const char *member) {
    const json_t *v = json_object_get(in->j, member);
    if (!json_is_boolean(v)) refuse(in, member, "is neither true nor false");
    return json_is_true(v);
}

/* Borrowed; "" after a failure. */
static const char *text(struct reader *in, const char *member) {
    const json_t *v = json_object_get(in->j, member);
    if (json_is_string(v) && strlen(json_string_value(v)) == json_string_length(v)) return json_string_value(v);
    refuse(in, member, "is no text");
    return "";
}

/* NULL: null. */
static const char *text_opt(struct reader *in, const char *member) {
    return json_is_null(json_object_get(in->j, member)) ? NULL : text(in, member);
}

static const json_t *list(struct reader *in, const char *member, size_t max) {
    const json_t *v = json_object_get(in->j, member);
    if (json_is_array(v) && json_array_size(v) <= max) return v;
    refuse(in, member, "is no sound list");
    return NULL;
}

static void take_id(struct reader *in, const char *member, char ret[17]) {
    const char *id = text(in, member);
    if (!in->bad && !form_uid(id)) refuse(in, member, "is no id");
    str_put(ret, 17, id);
}

/* The members of job_state_json. The agent's decoder also needs id and key. */
static bool take_state(const json_t *j, const struct job_result *job, struct job_state *ret, struct gp_error *err) {
    struct reader in =
        reader_of(j, "job.ranks.end.",
                  "state exit signal reason text attempt started_s ended_s log_bytes unhealthy preempted", err);
    if (in.bad) return false;
    static const char *const texts[] = {"state", "signal", "reason", "text"};
    for (size_t i = 0; i < GP_ARRAY_LEN(texts); i++) (void)text_opt(&in, texts[i]);
    GP_AUTO_JSON json_t *whole = json_deep_copy(j);
    (void)truth(&in, "preempted");
    if (in.bad) return false;
    json_object_set_new(whole, "id", json_string(job->id));
    json_object_set_new(whole, "key", json_string(job->key));
    GP_AUTO_FREE char *line = json_text(whole, 0);
    if (job_state_parse(line, strlen(line), ret, err) != 0) return false;
    if (!in.bad && ret->phase != JOB_ENDED) refuse(&in, "state", "is not 'ended'");
    return !in.bad;
}

static bool take_rank(const json_t *j, const struct job_result *job, struct job_rank_end *ret, struct gp_error *err) {
    struct reader in = reader_of(j, "job.ranks.", "lost gone why end", err);
    ret->lost = truth(&in, "lost");
    ret->gone = truth(&in, "gone");
    const char *why = text_opt(&in, "why");
    if (why != NULL) str_put(ret->why, sizeof ret->why, why);
    str_one_line(ret->why);
    const json_t *end = json_object_get(in.j, "end");
    if (in.bad || json_is_null(end)) return !in.bad;
    ret->ended = true;
    return take_state(end, job, &ret->state, err);
}

static bool take_outcome(struct reader *in, struct job_result *ret) {
    struct job_outcome *o = &ret->outcome;
    const json_t *ranks = list(in, "ranks", RANKS_MAX);
    o->failed = -1;
    if (in->bad) return false;
    o->len = json_array_size(ranks);
    o->ranks = xcalloc(o->len + 1, sizeof *o->ranks);
    for (size_t i = 0; i < o->len; i++)
        if (!take_rank(json_array_get(ranks, i), ret, &o->ranks[i], in->err)) return false;
    if (json_is_null(json_object_get(in->j, "failed"))) return true;
    o->failed = (int)number(in, "failed", 0, RANKS_MAX);
    if (!in->bad && ((size_t)o->failed >= o->len || (!o->ranks[o->failed].ended && !o->ranks[o->failed].lost)))
        refuse(in, "failed", "is no rank that has failed");
    return !in->bad;
}

static void take_notes(struct reader *in, struct strv *ret) {
    const json_t *notes = list(in, "notes", 4096);
    for (size_t k = 0; !in->bad && k < json_array_size(notes); k++) {
        const char *note = json_string_value(json_array_get(notes, k));
        if (note == NULL) refuse(in, "notes", "has something that is no text");
        else strv_add(ret, note);
    }
}

static bool take_fetched(struct reader *in, struct job_result *ret) {
    const json_t *all = list(in, "fetched", (size_t)RANKS_MAX * 16);
    for (size_t i = 0; !in->bad && i < json_array_size(all); i++) {
        struct reader one = reader_of(json_array_get(all, i), "job.fetched.",
                                      "rank path to files bytes files_sent bytes_sent left_out notes error", in->err);
        struct job_fetched f = {.rank = (int)number(&one, "rank", 0, RANKS_MAX),
                                .files = (uint64_t)number(&one, "files", 0, COUNT_MAX),
                                .bytes = (uint64_t)number(&one, "bytes", 0, COUNT_MAX),
                                .files_sent = (uint64_t)number(&one, "files_sent", 0, COUNT_MAX),
                                .bytes_sent = (uint64_t)number(&one, "bytes_sent", 0, COUNT_MAX),
                                .left_out = (uint64_t)number(&one, "left_out", 0, COUNT_MAX)};
        f.path = xstrdup(text(&one, "path"));
        f.to = xstrdup(text(&one, "to"));
        f.error = xstrdup(text_opt(&one, "error"));
        take_notes(&one, &f.notes);
        vec_push(&ret->fetched, f); /* freed with the rest, also when it is refused */
        in->bad = one.bad;
    }
    return !in->bad;
}

static bool take_stored(struct reader *in, struct job_result *ret) {
    const json_t *all = list(in, "stored", RANKS_MAX);
    for (size_t i = 0; !in->bad && i < json_array_size(all); i++) {
        struct reader one = reader_of(json_array_get(all, i), "job.stored.",
                                      "to files bytes files_sent bytes_sent left_out notes error", in->err);
        struct job_stored f = {.files = (uint64_t)number(&one, "files", 0, COUNT_MAX),
                               .bytes = (uint64_t)number(&one, "bytes", 0, COUNT_MAX),
                               .files_sent = (uint64_t)number(&one, "files_sent", 0, COUNT_MAX),
                               .bytes_sent = (uint64_t)number(&one, "bytes_sent", 0, COUNT_MAX),
                               .left_out = (uint64_t)number(&one, "left_out", 0, COUNT_MAX)};
        f.to = xstrdup(text(&one, "to"));
        f.error = xstrdup(text_opt(&one, "error"));
        take_notes(&one, &f.notes);
        vec_push(&ret->stored, f);
        in->bad = one.bad;
    }
    return !in->bad;
}

static bool take_health(struct reader *in, struct job_result *ret) {
    const json_t *all = list(in, "health", (size_t)RANKS_MAX * JOB_HEALTH_MAX);
    for (size_t i = 0; !in->bad && i < json_array_size(all); i++) {
        struct reader one = reader_of(json_array_get(all, i), "job.health.", "job rank found", in->err);
        struct job_rank_health h = {.rank = (int)number(&one, "rank", 0, RANKS_MAX)};
        take_id(&one, "job", h.id);
        in->bad = one.bad || job_health_decode(json_object_get(one.j, "found"), &h.found, in->err) != 0;
        vec_push(&ret->health, h);
    }
    return !in->bad;
}

static bool take_replaced(struct reader *in, struct job_result *ret) {
    const json_t *all = list(in, "replaced", (size_t)RANKS_MAX * 64);
    for (size_t i = 0; !in->bad && i < json_array_size(all); i++) {
        struct reader one = reader_of(json_array_get(all, i), "job.replaced.", "job rank why", in->err);
        struct job_replaced k = {.rank = (int)number(&one, "rank", 0, RANKS_MAX)};
        take_id(&one, "job", k.id);
        k.why = job_recover_why(text(&one, "why"));
        if (k.why == NULL) refuse(&one, "why", "is no reason that is known");
        in->bad = one.bad;
        vec_push(&ret->replaced, k);
    }
    return !in->bad;
}

static bool take_job(const json_t *j, struct job_result *ret, struct gp_error *err) {
    struct reader in = reader_of(
        j, "job.", "id key attached stopped deadline failed ranks fetched stored health recovered replaced", err);
    take_id(&in, "id", ret->id);
    const char *key = text(&in, "key");
    if (!in.bad && !form_spec_hash(key)) refuse(&in, "key", "is no hash");
    str_put(ret->key, sizeof ret->key, key);
    ret->attached = truth(&in, "attached");
    ret->stopped = truth(&in, "stopped");
    ret->deadline = truth(&in, "deadline");
    ret->recovered = (int)number(&in, "recovered", 0, INT32_MAX);
    return !in.bad && take_outcome(&in, ret) && take_fetched(&in, ret) && take_stored(&in, ret) &&
           take_health(&in, ret) && take_replaced(&in, ret);
}

static bool take_error(const json_t *j, struct gp_error *ret, struct gp_error *err) {
    if (json_is_null(j)) return true;
    struct reader in = reader_of(j, "error.", "code text", err);
    const char *name = text(&in, "code"), *msg = text(&in, "text");
    int code = GP_OK + 1;
    while (code <= GP_CODE_MAX && strcmp(gp_code_name((enum gp_code)code), name) != 0) code++;
    if (code > GP_CODE_MAX) refuse(&in, "code", "is no code of an error");
    if (!in.bad) (void)gp_fail(ret, (enum gp_code)code, "%s", msg);
    return !in.bad;
}

static bool take_owed(struct reader *in, struct job_owed_list *ret) {
    const json_t *all = list(in, "owed", RANKS_MAX);
    for (size_t i = 0; !in->bad && i < json_array_size(all); i++) {
        struct reader one = reader_of(json_array_get(all, i), "owed.", "rank machine", in->err);
        int rank = (int)number(&one, "rank", 0, RANKS_MAX);
        job_owed_add(ret, rank, text(&one, "machine"));
        in->bad = one.bad;
    }
    return !in->bad;
}

static bool take_machines(struct reader *in, struct strv *ret) {
    const json_t *all = list(in, "machines", RANKS_MAX);
    for (size_t i = 0; !in->bad && i < json_array_size(all); i++) {
        const char *id = json_string_value(json_array_get(all, i));
        if (id == NULL) refuse(in, "machines", "has something that is no text");
        else strv_add(ret, id);
    }
    return !in->bad;
}

static bool take_whole(const json_t *j, const struct stack *stack, struct job_end *ret, struct gp_error *err) {
    struct reader in = {.j = j, .where = "", .err = err};
    if (!json_is_object(j)) refuse(&in, "", "is no object");
    else if (number(&in, "version", 1, INT32_MAX) != VERSION)
        refuse(&in, "version", "is that of another version of gpuprov");
    if (!in.bad) in = reader_of(j, "", "version stack uid error job owed machines", err);
    if (strcmp(text(&in, "stack"), stack->name) != 0) refuse(&in, "stack", "is another stack");
    if (strcmp(text(&in, "uid"), stack->uid) != 0) refuse(&in, "uid", "is that of another stack");
    return !in.bad && take_error(json_object_get(j, "error"), &ret->why, err) &&
           take_job(json_object_get(j, "job"), &ret->job, err) && take_owed(&in, &ret->owed) &&
           take_machines(&in, &ret->machines);
}

int job_end_decode(const char *text, size_t n, const struct stack *stack, struct job_end *ret, struct gp_error *err) {
    GP_AUTO_JSON json_t *j = NULL;
    struct gp_error why = {0};
    *ret = (struct job_end){.job.outcome.failed = -1};
    int r = json_parse(text, n, "the result of a job", &j, &why);
    if (r == 0 && take_whole(j, stack, ret, &why)) return 0;
    job_end_clear(ret);
    return gp_fail(err, GP_EPROTO, "%s", why.msg);
}

int job_end_read(const struct engine *e, const struct stack *stack, struct job_end *ret, bool *ret_there,
                 struct gp_error *err) {
    GP_AUTO_FREE char *dir = NULL;
    GP_AUTO_STR struct str bytes = {0};
    struct gp_error why = {0};
    *ret_there = false;
    if (stack->uid == NULL) return 0;
    int r = stack_dir_path(e, stack->uid, &dir, err);
    if (r != 0) return r;
    GP_AUTO_FREE char *path = fs_join(dir, STACK_DIR_JOB_END);
    r = fs_read(path, FILE_MAX_BYTES, &bytes, &why);
    if (r == -GP_ENOTFOUND) return 0;
    if (r == 0) r = job_end_decode(bytes.s != NULL ? bytes.s : "", bytes.len, stack, ret, &why);
    *ret_there = r == 0;
    if (r == 0) return 0;
    return gp_fail(
        err, GP_EENV,
        "'%s': whether its job has ended is not known, and nothing was changed: '%s' cannot be used: %.200s: "
        "'gpuprov down %s' destroys the stack, then this command runs the job anew",
        stack->name, path, why.msg, stack->name);
}

int job_end_check_same(const struct job_end *end, const struct run *run, struct gp_error *err) {
    for (int i = 0; i < run->n_nodes; i++) {
        const struct run_node *n = &run->nodes[i];
        if (!n->exists || strv_has(&end->machines, n->res.id)) continue;
        return gp_fail(err, GP_EBUSY,
                       "'%s': job %s has ended, and node %d was launched after it: the stack is in use again: 'gpuprov "
                       "cp' fetches what is left there, then 'gpuprov down %s' destroys it",
                       run->stack.name, end->job.id, i, run->stack.name);
    }
    return 0;
}
