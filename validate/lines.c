/* SPDX-License-Identifier: Apache-2.0 */
/* Decodes the agent's JSON lines and keeps one agent's results. Does no I/O and does not judge (judge.c does). Any
 * thread; one agent_stream belongs to one thread at a time. */
#include "base/gp_base.h"

#include "validate/lines.h"

#include "base/json.h"
#include "validate/judge.h"

#include <inttypes.h>

#define NUMBER_MAX ((int64_t)1 << 53) /* of any number in a line: sums of some stay below 2^63 */

static int line_fail(struct gp_error *err, const char *text) {
    int rc = gp_fail(err, GP_EPROTO, "the agent's line %s", text);
    if (err) err->domain = GP_D_AGENT;
    return rc;
}

static int take_text(const json_t *j, const char *key, char *dst, size_t n, struct gp_error *err) {
    const char *v = json_str(j, key, NULL);
    if (!v || !*v) return line_fail(err, "lacks a name or an address");
    if (!str_put(dst, n, v)) return line_fail(err, "has a name or an address that is too long");
    return 0;
}

static int take_int(const json_t *j, const char *key, int64_t *ret, struct gp_error *err) {
    const json_t *v = json_object_get(j, key);
    if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) > NUMBER_MAX)
        return line_fail(err, "lacks a whole number");
    *ret = json_integer_value(v);
    return 0;
}

/* One that may be absent. */
static int take_int_opt(const json_t *j, const char *key, int64_t def, int64_t *ret, struct gp_error *err) {
    *ret = def;
    return json_object_get(j, key) != NULL ? take_int(j, key, ret, err) : 0;
}

static int take_hello(const json_t *j, struct agent_line *l, struct gp_error *err) {
    int64_t v = 0;
    int rc = take_int(j, "v", &v, err);
    if (rc < 0) return rc;
    if (v != AGENT_PROTOCOL)
        return gp_fail(err, GP_EPROTO, "the agent uses protocol %" PRId64 ", this program uses %d", v, AGENT_PROTOCOL);
    if ((rc = take_int_opt(j, "pid", 0, &l->pid, err)) < 0) return rc;
    if ((rc = take_int_opt(j, "size", 0, &l->size, err)) < 0) return rc;
    str_put(l->agent, sizeof l->agent, json_str(j, "agent", ""));
    str_put(l->host, sizeof l->host, json_str(j, "host", ""));
    str_put(l->boot_id, sizeof l->boot_id, json_str(j, "boot_id", ""));
    return 0;
}

static int take_result(const json_t *j, struct agent_line *l, struct gp_error *err) {
    int rc = take_text(j, "check", l->check, sizeof l->check, err);
    return rc < 0 ? rc : check_result_from_json(j, &l->result, err);
}

static int take_end(const json_t *j, struct agent_line *l, struct gp_error *err) {
    const char *v = json_str(j, "verdict", NULL);
    str_put(l->reason, sizeof l->reason, json_str(j, "reason", ""));
    return v && verdict_parse(v, &l->verdict) ? 0 : line_fail(err, "has no known verdict");
}

static int take_at(const json_t *j, struct agent_line *l, struct gp_error *err) {
    if (!json_is_boolean(json_object_get(j, "alive"))) return line_fail(err, "lacks 'alive'");
    l->alive = json_bool(j, "alive", false);
    return take_int(j, "offset", &l->offset, err);
}

static int take_start(const json_t *j, struct agent_line *l, struct gp_error *err) {
    return take_text(j, "check", l->check, sizeof l->check, err);
}

static int take_started(const json_t *j, struct agent_line *l, struct gp_error *err) {
    return take_int(j, "pid", &l->pid, err);
}

static int take_loaded(const json_t *j, struct agent_line *l, struct gp_error *err) {
    return take_int(j, "load_ms", &l->load_ms, err);
}

static int take_listen(const json_t *j, struct agent_line *l, struct gp_error *err) {
    return take_text(j, "addr", l->addr, sizeof l->addr, err);
}

static const struct line_kind {
    const char *name;
    enum agent_line_type type;
    int (*take)(const json_t *j, struct agent_line *l, struct gp_error *err);
} line_kinds[] = {
    {"hello", AGENT_HELLO, take_hello},    {"loaded", AGENT_LOADED, take_loaded},
    {"start", AGENT_START, take_start},    {"result", AGENT_RESULT, take_result},
    {"end", AGENT_END, take_end},          {"started", AGENT_STARTED, take_started},
    {"listen", AGENT_LISTEN, take_listen}, {"at", AGENT_AT, take_at},
};

int agent_line_decode(const char *line, size_t len, struct agent_line *ret, struct gp_error *err) {
    *ret = (struct agent_line){0};
    if (len > AGENT_LINE_MAX) return line_fail(err, "is longer than 60 KiB");
    GP_AUTO_JSON json_t *j = NULL;
    int rc = json_parse(line, len, "the agent's line", &j, err);
    if (rc < 0) return rc;
    ret->rank = -1;
    if (json_is_object(j)) rc = take_int_opt(j, "rank", -1, &ret->rank, err);
    if (rc < 0) return rc;
    const char *type = json_is_object(j) ? json_str(j, "type", NULL) : NULL;
    if (!type) return line_fail(err, "is not an object with a type");
    ret->type = AGENT_OTHER;
    for (size_t i = 0; i < GP_ARRAY_LEN(line_kinds); i++) {
        if (!str_eq(type, line_kinds[i].name)) continue;
        ret->type = line_kinds[i].type;
        rc = line_kinds[i].take(j, ret, err);
        if (rc < 0) agent_line_clear(ret);
        return rc;
    }
    return 0;
}

void agent_line_clear(struct agent_line *l) {
    check_result_clear(&l->result);
    *l = (struct agent_line){0};
}

void check_result_make(struct check_result *r, const char *check, enum verdict v, const char *code,
                       const char *message) {
    *r = (struct check_result){.check = xstrdup(check),
                               .verdict = v,
                               .code = xstrdup(code),
                               .message = xstrdup(message),
                               .suggestion = xstrdup("")};
}

/* --- one agent's stream --- */

void agent_stream_init(struct agent_stream *s, const struct check_info *const *checks, size_t n) {
    *s = (struct agent_stream){.load_ms = -1};
    for (size_t i = 0; i < n; i++) {
        struct agent_check c = {.info = checks[i], .state = AGENT_CHECK_WAITING};
        vec_push(&s->checks, c);
    }
}

void agent_stream_clear(struct agent_stream *s) {
    for (size_t i = 0; i < s->checks.len; i++) check_result_clear(&s->checks.items[i].result);
    vec_free(&s->checks);
    *s = (struct agent_stream){0};
}

static struct agent_check *stream_check(struct agent_stream *s, const char *id) {
    for (size_t i = 0; i < s->checks.len; i++)
        if (str_eq(s->checks.items[i].info->id, id)) return &s->checks.items[i];
    return NULL;
}

static void stream_bad(struct agent_stream *s, const char *text, const char *id) {
    gp_fail(&s->bad, GP_EPROTO, "%s '%s'", text, id);
    s->bad.domain = GP_D_AGENT;
}

static void stream_start(struct agent_stream *s, const char *id) {
    struct agent_check *c = stream_check(s, id);
    if (!c) {
        stream_bad(s, "the agent began a check that was not requested:", id);
        return;
    }
    if (c->state != AGENT_CHECK_WAITING) {
        stream_bad(s, "the agent began a check twice:", id);
        return;
    }
    c->state = AGENT_CHECK_RUNNING;
    if (s->told) s->told(s->ctx, c->info, NULL);
}

static void stream_result(struct agent_stream *s, struct agent_line *l) {
    struct agent_check *c = stream_check(s, l->check);
    if (!c) {
        stream_bad(s, "the agent sent a result that was not requested:", l->check);
        return;
    }
    bool good = l->result.verdict == VERDICT_PASS || l->result.verdict == VERDICT_DEGRADED;
    if (c->state == AGENT_CHECK_WAITING && good) {
        stream_bad(s, "the agent sent a result of a check that it had not begun:", l->check);
        return;
    }
    if (c->state == AGENT_CHECK_DONE) {
        check_result_worsen(&c->result, VERDICT_ERROR, "two_results", "the agent sent two results for it",
                            NULL); /* neither counts */
        stream_bad(s, "the agent sent two results for", l->check);
        return;
    }
    c->state = AGENT_CHECK_DONE;
    c->result = l->result;
    s->worst = GP_MAX(s->worst, c->result.verdict);
    l->result = (struct check_result){0};
    if (s->told) s->told(s->ctx, c->info, &c->result);
}

static void stream_hello(struct agent_stream *s, const struct agent_line *l) {
    if (s->hello) {
        stream_bad(s, "the agent sent two hello lines: two agents write as", l->host);
    } else if (s->want_size && (l->rank != s->want_rank || l->size != s->want_size)) {
        gp_fail(&s->bad, GP_EPROTO, "received rank %" PRId64 " of %" PRId64 ", expected rank %" PRId64 " of %" PRId64,
                l->rank, l->size, s->want_rank, s->want_size);
        s->bad.domain = GP_D_AGENT;
    } else if (l->agent[0] && !str_eq(l->agent, GP_VERSION)) {
        gp_fail(&s->bad, GP_EPROTO,
                "the node's agent is of gpuprov %s, this is %s: run 'gpuprov up' to install its own agent", l->agent,
                GP_VERSION);
        s->bad.domain = GP_D_AGENT;
    } else if (s->want_boot_id[0] && l->boot_id[0] && !str_eq(s->want_boot_id, l->boot_id)) {
        stream_bad(s, "the node has rebooted since its own checks; its boot is now", l->boot_id);
    }
    s->hello = true;
    s->pid = l->pid ? l->pid : s->pid;
    str_put(s->host, sizeof s->host, l->host);
    str_put(s->boot_id, sizeof s->boot_id, l->boot_id);
}

/* The end line has the agent's own verdict: when it is worse than the results, a result was lost or something failed
 * after them. */
static void stream_end(struct agent_stream *s, const struct agent_line *l) {
    s->ended = true;
    if (l->reason[0] || (l->verdict >= VERDICT_ERROR && l->verdict > s->worst))
        agent_stream_doubt(s, l->reason[0] ? l->reason : "the agent's end line has a worse verdict");
}

static bool stream_is_hello_due(const struct agent_stream *s, enum agent_line_type type) {
    return !s->hello && (type == AGENT_START || type == AGENT_LOADED || type == AGENT_RESULT || type == AGENT_LISTEN ||
                         type == AGENT_END);
}

bool agent_stream_take(struct agent_stream *s, struct agent_line *l) {
    if (s->bad.code) return false;
    if (s->ended && l->type != AGENT_AT && l->type != AGENT_OTHER)
        stream_bad(s, "the agent sent lines after its end:", l->check);
    else if (stream_is_hello_due(s, l->type))
        stream_bad(s, "the agent did not send hello before its first line, of", l->check);
    else if (l->type == AGENT_LOADED) s->load_ms = l->load_ms;
    else if (l->type == AGENT_START) stream_start(s, l->check);
    else if (l->type == AGENT_RESULT) stream_result(s, l);
    else if (l->type == AGENT_END) stream_end(s, l);
    else if (l->type == AGENT_LISTEN) str_put(s->addr, sizeof s->addr, l->addr);
    else if (l->type == AGENT_HELLO) stream_hello(s, l);
    else if (l->type == AGENT_STARTED) {
        s->started = true;
        s->pid = l->pid;
    } else if (l->type == AGENT_AT) {
        s->at = true;
        s->offset = l->offset;
        s->alive = l->alive;
    }
    return !s->bad.code;
}

bool agent_stream_line(struct agent_stream *s, bool is_stderr, const char *line, size_t len) {
    if (is_stderr) {
        size_t n = GP_MIN(len, sizeof s->last_err - 1);
        memcpy(s->last_err, line, n);
        s->last_err[n] = 0;
        return true;
    }
    if (s->bad.code) return false;
    if (!len) return true;
    struct agent_line l = {0};
    bool more = agent_line_decode(line, len, &l, &s->bad) == 0 && agent_stream_take(s, &l);
    agent_line_clear(&l);
    return more;
}

bool agent_stream_complete(const struct agent_stream *s) {
    for (size_t i = 0; i < s->checks.len; i++)
        if (s->checks.items[i].state != AGENT_CHECK_DONE) return false;
    return true;
}

bool agent_stream_began(const struct agent_stream *s) {
    for (size_t i = 0; i < s->checks.len; i++)
        if (s->checks.items[i].state != AGENT_CHECK_WAITING) return true;
    return false;
}

void agent_stream_doubt(struct agent_stream *s, const char *reason) {
    GP_AUTO_FREE char *text = xasprintf("its result was received, but then: %s", reason);
    for (size_t i = 0; i < s->checks.len; i++) {
        struct agent_check *c = &s->checks.items[i];
        bool good = c->result.verdict == VERDICT_PASS || c->result.verdict == VERDICT_DEGRADED;
        if (c->state != AGENT_CHECK_DONE || !good) continue;
        check_result_worsen(&c->result, VERDICT_ERROR, "not_ended", text, "run validate again");
        if (s->told) s->told(s->ctx, c->info, &c->result);
    }
}

void agent_stream_finish(struct agent_stream *s, const char *reason) {
    if (!s->ended || s->bad.code) agent_stream_doubt(s, reason);
    for (size_t i = 0; i < s->checks.len; i++) {
        struct agent_check *c = &s->checks.items[i];
        if (c->state == AGENT_CHECK_DONE) continue;
        bool ran = c->state == AGENT_CHECK_RUNNING;
        GP_AUTO_FREE char *text = xasprintf(ran ? "no result: %s" : "not run: %s", reason);
        check_result_make(&c->result, c->info->id, ran ? VERDICT_ERROR : VERDICT_SKIPPED, ran ? "no_result" : "not_run",
                          text);
        c->state = AGENT_CHECK_DONE;
        if (s->told) s->told(s->ctx, c->info, &c->result);
    }
}

void agent_stream_fail(struct agent_stream *s, const char *reason) {
    for (size_t i = 0; i < s->checks.len; i++) {
        struct agent_check *c = &s->checks.items[i];
        if (c->state == AGENT_CHECK_DONE) continue;
        check_result_make(&c->result, c->info->id, VERDICT_ERROR, "agent", reason);
        c->state = AGENT_CHECK_DONE;
        if (s->told) s->told(s->ctx, c->info, &c->result);
    }
}
