/* SPDX-License-Identifier: Apache-2.0 */
/* Lines out: hello, start, result, end. Counts what was said so that the end is honest. One thread. */
#include "base/gp_base.h"

#include "emit.h"

#include "base/fs.h"

#include <sys/utsname.h>
#include <unistd.h>

void emit_line(struct emit *e, const char *line, size_t n) {
    if (n == 0 || n > AGENT_LINE_MAX || line[n - 1] != '\n') return;
    if (fs_write_all(e->fd, line, n) != 0) e->broken = true;
}

static void member(struct str *s, const char *key, const char *value) {
    str_addf(s, ",\"%s\":\"", key);
    str_add_json(s, value, strlen(value));
    str_addc(s, '"');
}

void emit_hello(struct emit *e, int rank, int size) {
    struct utsname u = {0};
    uname(&u);
    int online = 0;
    double cores = agent_cores(&online);
    int64_t machine = 0;
    int64_t memory = agent_memory_bytes(&machine);
    GP_AUTO_STR struct str boot = {0};
    if (fs_read("/proc/sys/kernel/random/boot_id", 64, &boot, NULL) != 0) str_reset(&boot);
    GP_AUTO_STR struct str s = {0};
    str_addf(&s, "{\"v\":%d,\"type\":\"hello\"", AGENT_PROTOCOL);
    member(&s, "agent", GP_VERSION);
    member(&s, "kind", agent_kind.name);
    member(&s, "host", u.nodename);
    member(&s, "kernel", u.release);
    member(&s, "arch", u.machine);
    member(&s, "boot_id", boot.s != NULL ? str_trim(boot.s) : "");
    str_addf(&s, ",\"pid\":%d,\"uid\":%d,\"cores\":%.4g,\"cores_online\":%d", (int)getpid(),
             (int)getuid(), cores, online);
    str_addf(&s, ",\"memory_bytes\":%lld,\"dev_nvidia\":%d", (long long)memory,
             agent_dev_nvidia_count());
    if (rank >= 0) str_addf(&s, ",\"rank\":%d,\"size\":%d", rank, size);
    if (agent_kind.hello != NULL) agent_kind.hello(&s);
    str_add(&s, "}\n");
    if (!e->text) {
        emit_line(e, s.s, s.len);
        return;
    }
    GP_AUTO_FREE char *t =
        xasprintf("%s: gpuprov-agent %s (%s), %s, %.4g of %d cores, %.1f GiB, %d nvidia device files\n",
                  u.nodename, GP_VERSION, agent_kind.name, u.machine, cores, online,
                  (double)memory / (1 << 30), agent_dev_nvidia_count());
    emit_line(e, t, strlen(t));
}

void emit_start(struct emit *e, const struct check_info *check) {
    if (e->text) return;
    GP_AUTO_STR struct str s = {0};
    str_addf(&s, "{\"type\":\"start\",\"check\":\"%s\"", check->id);
    if (e->ranked) str_addf(&s, ",\"rank\":%d", e->rank);
    str_add(&s, "}\n");
    emit_line(e, s.s, s.len);
}

static void result_text(const struct agent_result *r, struct str *s) {
    str_addf(s, "%-9s %-14s", agent_verdict_name(r->verdict), r->check->id);
    for (size_t i = 0; i < r->n_metrics; i++)
        str_addf(s, " %s %.4g %s;", r->metrics[i].info->name, r->metrics[i].value,
                 r->metrics[i].info->unit);
    str_addf(s, " %s\n", r->message);
    bool blamed = r->verdict == AGENT_DEGRADED || r->verdict == AGENT_FAIL;
    if (blamed)
        str_addf(s, "%-9s %-14s to do: %s\n", "", "",
                 r->suggestion[0] != '\0' ? r->suggestion : r->check->suggestion);
}

void emit_result(struct emit *e, const struct agent_result *r) {
    if (r->verdict != AGENT_SKIPPED) e->ran++;
    e->failed += r->verdict == AGENT_FAIL;
    e->errors += r->verdict == AGENT_ERROR;
    e->degraded += r->verdict == AGENT_DEGRADED;
    e->skipped += r->verdict == AGENT_SKIPPED;
    bool counts = r->verdict != AGENT_SKIPPED || r->check->required;
    if (counts && r->verdict > e->worst) e->worst = r->verdict;
    GP_AUTO_STR struct str s = {0};
    if (e->text) result_text(r, &s);
    else agent_result_line(r, &s);
    emit_line(e, s.s, s.len);
}

int emit_end(struct emit *e, const char *reason) {
    enum agent_verdict v = e->worst;
    if (v < AGENT_ERROR && (e->ran == 0 || reason[0] != '\0')) v = AGENT_ERROR;
    if (e->ran == 0 && reason[0] == '\0') reason = "no check ran";
    GP_AUTO_STR struct str s = {0};
    if (e->text) {
        str_addf(&s, "%s: %zu failed, %zu degraded, %zu errors, %zu skipped%s%s\n",
                 agent_verdict_name(v), e->failed, e->degraded, e->errors, e->skipped,
                 reason[0] != '\0' ? "; " : "", reason);
    } else {
        str_addf(&s, "{\"type\":\"end\",\"verdict\":\"%s\"", agent_verdict_name(v));
        if (reason[0] != '\0') member(&s, "reason", reason);
        if (e->ranked) str_addf(&s, ",\"rank\":%d", e->rank);
        str_add(&s, "}\n");
    }
    emit_line(e, s.s, s.len);
    static const int exits[] = {[AGENT_PASS] = 0, [AGENT_DEGRADED] = 1, [AGENT_SKIPPED] = 3,
                                [AGENT_ERROR] = 3, [AGENT_FAIL] = 2};
    return exits[v];
}
