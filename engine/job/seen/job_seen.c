/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps what this machine last saw of a stack's newest job. A file that is not exactly as written is refused. */
#include "base/gp_base.h"

#include "engine/job/seen/job_seen.h"

#include "base/form.h"
#include "base/fs.h"
#include "base/json.h"
#include "engine/run/stack_dir.h"

#define FILE_NAME "job_seen.json"
#define FILE_MAX_BYTES ((size_t)64 << 10)
#define NODES_MAX 65536

static const char *const states[] = {"running", "succeeded", "failed", "stopped", "lost"};

static int path_of(const struct engine *e, const char *uid, char **ret_dir, char **ret, struct gp_error *err) {
    int r = stack_dir_path(e, uid, ret_dir, err);
    if (r == 0) *ret = fs_join(*ret_dir, FILE_NAME);
    return r;
}

int job_seen_write(const struct engine *e, const char *uid, const struct job_seen *seen, struct gp_error *err) {
    GP_AUTO_FREE char *dir = NULL, *path = NULL;
    int r = path_of(e, uid, &dir, &path, err);
    if (r == 0) r = fs_mkdirs(dir, 0700, err);
    if (r != 0) return r;
    GP_AUTO_JSON json_t *j =
        json_pack("{s:i, s:s, s:s, s:I, s:I, s:i, s:b, s:o}", "version", 1, "id", seen->id, "state", seen->state,
                  "started_s", (json_int_t)seen->started_s, "seen_s", (json_int_t)clock_wall_s(), "nodes", seen->nodes,
                  "fetched", (int)seen->fetched, "why", json_any_text(seen->why));
    GP_AUTO_FREE char *text = json_text(j, 0);
    return fs_write_atomic(path, text, strlen(text), 0600, err);
}

static bool is_state(const char *s) {
    for (size_t i = 0; i < GP_ARRAY_LEN(states); i++)
        if (strcmp(states[i], s) == 0) return true;
    return false;
}

/* -1: it is none from 0 to max. */
static int64_t number(const json_t *j, const char *member, int64_t max) {
    const json_t *v = json_at(j, member);
    if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) > max) return -1;
    return json_integer_value(v);
}

int job_seen_decode(const char *text, size_t n, struct job_seen *ret, struct gp_error *err) {
    GP_AUTO_JSON json_t *j = NULL;
    struct job_seen s = {0};
    int r = json_parse(text, n, "the record of a job", &j, err);
    if (r != 0) return r;
    const char *bad = NULL;
    int64_t nodes = number(j, "nodes", NODES_MAX);
    s.started_s = number(j, "started_s", INT64_MAX);
    s.seen_s = number(j, "seen_s", INT64_MAX);
    s.nodes = (int)nodes;
    if (!json_is_object(j) || json_object_size(j) != 8) bad = "number of members";
    else if (number(j, "version", 1) != 1) bad = "version";
    else if (!form_uid(json_str(j, "id", ""))) bad = "id";
    else if (!is_state(json_str(j, "state", ""))) bad = "state";
    else if (s.started_s < 0) bad = "started_s";
    else if (s.seen_s < 0) bad = "seen_s";
    else if (nodes < 1) bad = "nodes";
    else if (!json_is_boolean(json_at(j, "fetched"))) bad = "fetched";
    else if (!json_is_string(json_at(j, "why"))) bad = "why";
    if (bad != NULL) return gp_fail(err, GP_EPROTO, "the record of a job has no sound '%s'", bad);
    str_put(s.id, sizeof s.id, json_str(j, "id", ""));
    str_put(s.state, sizeof s.state, json_str(j, "state", ""));
    str_put(s.why, sizeof s.why, json_str(j, "why", ""));
    str_one_line(s.why);
    s.fetched = json_is_true(json_at(j, "fetched"));
    *ret = s;
    return 0;
}

int job_seen_read(const struct engine *e, const char *uid, struct job_seen *ret, struct gp_error *err) {
    GP_AUTO_FREE char *dir = NULL, *path = NULL;
    GP_AUTO_STR struct str text = {0};
    struct gp_error why = {0};
    *ret = (struct job_seen){0};
    if (uid == NULL || e->opts.scratch || !form_uid(uid)) return 0;
    int r = path_of(e, uid, &dir, &path, err);
    if (r != 0) return r;
    r = fs_read(path, FILE_MAX_BYTES, &text, &why);
    if (r == -GP_ENOTFOUND) return 0;
    if (r == 0) r = job_seen_decode(text.s != NULL ? text.s : "", text.len, ret, &why);
    return r == 0 ? 0 : gp_fail(err, why.code, "what is known of its job cannot be read: '%s': %.200s", path, why.msg);
}

void job_seen_text(const struct job_seen *s, const char *stack, struct str *out) {
    char started[32], seen[32];
    bool runs = strcmp(s->state, "running") == 0;
    time_format_utc(started, sizeof started, s->started_s);
    time_format_utc(seen, sizeof seen, s->seen_s);
    str_addf(out, "job %s ", s->id);
    if (runs) str_addf(out, "runs on %d node%s", s->nodes, s->nodes == 1 ? "" : "s");
    else if (strcmp(s->state, "stopped") == 0) str_add(out, "was stopped");
    else if (strcmp(s->state, "lost") == 0) str_addf(out, "is lost: %s", s->why);
    else if (strcmp(s->state, "failed") == 0) str_addf(out, "has failed: %s", s->why);
    else str_addf(out, "has %s", s->state);
    if (!runs) str_add(out, s->fetched ? ", its files were fetched" : ", its files were not fetched");
    str_addf(out, " (started %s; as this machine saw it at %s)", started, seen);
    if (runs) str_addf(out, ": 'gpuprov attach %s' follows it, 'gpuprov cancel %s' ends it", stack, stack);
}
