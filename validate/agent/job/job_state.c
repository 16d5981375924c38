/* SPDX-License-Identifier: Apache-2.0 */
/* A job's state as JSON and back. */
#include "base/gp_base.h"

#include "validate/agent/job/job_state.h"

#include "validate/agent/job/job_json.h"
#include "validate/agent/job/job_request.h"

#include <signal.h>
#include <sys/wait.h>

static const char *const phases[] = {"setup", "running", "ended"};

static void add_number(struct str *s, const char *name, int64_t v, bool there) {
    if (there) str_addf(s, ",\"%s\":%lld", name, (long long)v);
    else str_addf(s, ",\"%s\":null", name);
}

static void add_text(struct str *s, const char *name, const char *text) {
    str_addf(s, ",\"%s\":", name);
    if (text[0] == '\0') {
        str_add(s, "null");
        return;
    }
    str_addc(s, '"');
    str_add_json(s, text, strlen(text));
    str_addc(s, '"');
}

void job_state_json(const struct job_state *st, int64_t log_bytes, struct str *ret) {
    str_addf(ret, "{\"id\":\"%s\",\"key\":\"%s\",\"rank\":%lld,\"ranks\":%lld,\"state\":\"%s\",\"in\":\"%s\"", st->id,
             st->key, (long long)st->rank, (long long)st->ranks, phases[st->phase], st->in);
    add_number(ret, "number", st->number, true);
    add_number(ret, "started_s", st->started_s, true);
    add_number(ret, "attempt_s", st->attempt_s, true);
    add_number(ret, "ended_s", st->ended_s, st->phase == JOB_ENDED);
    add_number(ret, "attempt", st->attempt, true);
    add_number(ret, "restart", st->restart, true);
    add_number(ret, "exit", st->exit, st->exit >= 0);
    add_text(ret, "signal", st->signal);
    add_text(ret, "reason", st->reason);
    str_add(ret, ",\"text\":\"");
    str_add_json(ret, st->text, strlen(st->text));
    str_addf(ret, "\",\"collected\":%s,\"unit\":%s", st->collected ? "true" : "false", st->unit ? "true" : "false");
    add_number(ret, "left", st->left, true);
    add_number(ret, "unhealthy", st->unhealthy, true);
    str_addf(ret, ",\"preempted\":%s", st->preempted ? "true" : "false");
    add_text(ret, "boot", st->boot);
    if (log_bytes >= 0) {
        add_number(ret, "log_bytes", log_bytes, true);
        str_addf(ret, ",\"again\":%s", job_state_again(st) ? "true" : "false");
    }
    str_addc(ret, '}');
}

/* --- decoding --- */

static bool get_text(const struct jmap *m, const char *name, char *dst, size_t size) {
    const struct jmap_item *it = jmap_find(m, name);
    if (it == NULL) return false;
    if (it->kind == JMAP_NULL) {
        dst[0] = '\0';
        return true;
    }
    return it->kind == JMAP_TEXT && str_put(dst, size, it->text);
}

static bool get_number(const struct jmap *m, const char *name, int64_t min, int64_t max, int64_t *ret) {
    const struct jmap_item *it = jmap_find(m, name);
    if (it == NULL || it->kind != JMAP_INT || it->number < min || it->number > max) return false;
    *ret = it->number;
    return true;
}

static bool get_bool(const struct jmap *m, const char *name, bool *ret) {
    const struct jmap_item *it = jmap_find(m, name);
    *ret = it != NULL && it->number != 0;
    return it != NULL && it->kind == JMAP_BOOL;
}

/* A state that an earlier version wrote has neither. */
static bool get_health(const struct jmap *m, struct job_state *st) {
    return (jmap_find(m, "unhealthy") == NULL || get_number(m, "unhealthy", 0, INT32_MAX, &st->unhealthy)) &&
           (jmap_find(m, "preempted") == NULL || get_bool(m, "preempted", &st->preempted));
}

static bool is_null(const struct jmap *m, const char *name) {
    const struct jmap_item *it = jmap_find(m, name);
    return it != NULL && it->kind == JMAP_NULL;
}

static bool get_phase(const struct jmap *m, enum job_phase *ret) {
    char text[16];
    if (!get_text(m, "state", text, sizeof text)) return false;
    for (size_t i = 0; i < GP_ARRAY_LEN(phases); i++)
        if (str_eq(phases[i], text)) {
            *ret = (enum job_phase)i;
            return true;
        }
    return false;
}

static bool decode(const struct jmap *m, struct job_state *st) {
    return get_text(m, "id", st->id, sizeof st->id) && job_id_ok(st->id) &&
           get_text(m, "key", st->key, sizeof st->key) && strlen(st->key) == 64 &&
           get_number(m, "rank", 0, INT32_MAX, &st->rank) && get_number(m, "ranks", 1, INT32_MAX, &st->ranks) &&
           get_phase(m, &st->phase) && get_text(m, "in", st->in, sizeof st->in) &&
           get_number(m, "number", 1, INT32_MAX, &st->number) &&
           get_number(m, "started_s", 0, INT64_MAX, &st->started_s) &&
           get_number(m, "attempt_s", 0, INT64_MAX, &st->attempt_s) &&
           (is_null(m, "ended_s") || get_number(m, "ended_s", 0, INT64_MAX, &st->ended_s)) &&
           get_number(m, "attempt", 1, 1000, &st->attempt) && get_number(m, "restart", 0, 1000, &st->restart) &&
           (is_null(m, "exit") || get_number(m, "exit", 0, 255, &st->exit)) &&
           get_text(m, "signal", st->signal, sizeof st->signal) &&
           get_text(m, "reason", st->reason, sizeof st->reason) && get_text(m, "text", st->text, sizeof st->text) &&
           get_bool(m, "collected", &st->collected) && get_bool(m, "unit", &st->unit) &&
           get_number(m, "left", 0, INT32_MAX, &st->left) && get_text(m, "boot", st->boot, sizeof st->boot) &&
           get_health(m, st) && (st->phase != JOB_ENDED || st->reason[0] != '\0');
}

int job_state_parse(const char *text, size_t n, struct job_state *ret, struct gp_error *err) {
    GP_CLEANUP(jmap_clear) struct jmap m = {0};
    *ret = (struct job_state){.exit = -1};
    int r = jmap_parse(text, n, &m, err);
    if (r == 0 && !decode(&m, ret)) r = gp_fail(err, GP_EPROTO, "a member of the state is missing or wrong");
    return r;
}

/* --- what it means --- */

bool job_state_again(const struct job_state *st) {
    return st->phase == JOB_ENDED && str_eq(st->reason, "lost") && st->attempt <= st->restart && st->left == 0;
}

static void signal_name(char *dst, size_t n, int sig) {
    static const struct {
        int sig;
        const char *name;
    } names[] = {{SIGHUP, "SIGHUP"},   {SIGINT, "SIGINT"},   {SIGQUIT, "SIGQUIT"}, {SIGILL, "SIGILL"},
                 {SIGTRAP, "SIGTRAP"}, {SIGABRT, "SIGABRT"}, {SIGBUS, "SIGBUS"},   {SIGFPE, "SIGFPE"},
                 {SIGKILL, "SIGKILL"}, {SIGUSR1, "SIGUSR1"}, {SIGSEGV, "SIGSEGV"}, {SIGUSR2, "SIGUSR2"},
                 {SIGPIPE, "SIGPIPE"}, {SIGALRM, "SIGALRM"}, {SIGTERM, "SIGTERM"}, {SIGXCPU, "SIGXCPU"},
                 {SIGXFSZ, "SIGXFSZ"}, {SIGSYS, "SIGSYS"}};
    snprintf(dst, n, "signal %d", sig);
    for (size_t i = 0; i < GP_ARRAY_LEN(names); i++)
        if (names[i].sig == sig) str_put(dst, n, names[i].name);
}

void job_state_status(struct job_state *st, int status) {
    if (WIFSIGNALED(status)) {
        signal_name(st->signal, sizeof st->signal, WTERMSIG(status));
        if (st->reason[0] == '\0') str_put(st->reason, sizeof st->reason, "signaled");
    } else {
        st->exit = WEXITSTATUS(status);
        if (st->reason[0] == '\0') str_put(st->reason, sizeof st->reason, "exited");
    }
    if (st->text[0] != '\0') return;
    if (st->signal[0] != '\0') snprintf(st->text, sizeof st->text, "%s was ended by %s", st->in, st->signal);
    else snprintf(st->text, sizeof st->text, "%s ended with status %d", st->in, (int)st->exit);
}

void job_state_lost(struct job_state *st, int64_t now_s, const char *text) {
    st->phase = JOB_ENDED;
    st->ended_s = now_s;
    st->exit = -1;
    st->signal[0] = '\0';
    str_put(st->reason, sizeof st->reason, "lost");
    str_put(st->text, sizeof st->text, text);
}
