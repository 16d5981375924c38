/* SPDX-License-Identifier: Apache-2.0 */
/* host.kernlog: what the kernel has seen since boot. A log that may not be read is skipped, never a pass. */
#include "base/gp_base.h"

#include "host.h"

#include "base/clock.h"
#include "base/vec.h"
#include "validate/agent/base/kernlog.h"

#include <errno.h>
#include <sys/klog.h>

struct kern_seen {
    struct kern_finding f;
    char first[160];
    int64_t count;
};
struct kern_all {
    struct kern_log log;
    VEC_OF(struct kern_seen) seen;
    int64_t lines, xids; /* xids: other than 45 */
    bool unread;         /* the time was over before the last one */
};

static void take_text(struct kern_all *k, const char *text) {
    k->lines++;
    struct kern_finding f = kernlog_judge(text);
    if (f.action == KERN_NONE) return;
    if (f.xid == XID_MEMORY && agent_kind.gpu_count != NULL) f.action = KERN_NOTE; /* gpu.health has the counters */
    k->xids += f.xid != XID_NONE && !str_eq(f.code, "xid_45");
    for (size_t i = 0; i < k->seen.len; i++) {
        if (!str_eq(k->seen.items[i].f.code, f.code) || k->seen.items[i].f.action != f.action) continue;
        k->seen.items[i].count++;
        return;
    }
    struct kern_seen s = {.f = f, .count = 1};
    str_put(s.first, sizeof s.first, text);
    vec_push(&k->seen, s);
}

static int read_kmsg(struct kern_all *k, int64_t deadline_ms) {
    const char *text = NULL;
    int rc = kernlog_open(&k->log, false);
    while (rc >= 0) {
        if (clock_left_ms(deadline_ms) == 0 || agent_fault("kernlog", 0, 0)) {
            k->unread = true;
            break;
        }
        rc = kernlog_next(&k->log, &text);
        if (rc <= 0) break;
        take_text(k, text);
    }
    kernlog_close(&k->log);
    return rc < 0 ? rc : 0;
}

static int read_klog(struct kern_all *k) {
    int size = klogctl(10 /* SYSLOG_ACTION_SIZE_BUFFER */, NULL, 0);
    if (size <= 0) return -errno;
    GP_AUTO_FREE char *buf = xmalloc((size_t)size + 1);
    int n = klogctl(3 /* SYSLOG_ACTION_READ_ALL */, buf, size);
    if (n < 0) return -errno;
    buf[n] = '\0';
    GP_AUTO_STRV struct strv lines = {0};
    strv_split(&lines, buf, "\n");
    for (size_t i = 0; i < lines.n; i++)
        if (strtol(lines.v[i][0] == '<' ? lines.v[i] + 1 : "0", NULL, 10) < 8) take_text(k, lines.v[i]);
    return 0;
}

/* 45 follows another error; alone it means that the fabric's manager lost its hold. */
static void judge_alone(struct kern_all *k) {
    for (size_t i = 0; k->xids == 0 && i < k->seen.len; i++) {
        struct kern_finding *f = &k->seen.items[i].f;
        if (!str_eq(f->code, "xid_45")) continue;
        f->action = KERN_DEGRADED;
        str_put(f->advice, sizeof f->advice,
                "no other Xid explains it: restart nvidia-fabricmanager where "
                "there is one, and validate again");
    }
}

static void report_seen(struct kern_all *k, struct agent_result *r) {
    double counts[4] = {0};
    GP_AUTO_STR struct str all = {0};
    str_init(&all, 4096);
    for (size_t i = 0; i < k->seen.len; i++) {
        const struct kern_seen *s = &k->seen.items[i];
        counts[s->f.action] += (double)s->count;
        str_addf(&all, "%s%s x%lld", i > 0 ? ", " : "", s->f.code, (long long)s->count);
        if (s->f.action < KERN_DEGRADED) continue;
        enum verdict v = s->f.action == KERN_FAIL ? VERDICT_FAIL : VERDICT_DEGRADED;
        if (v > r->verdict) agent_suggest(r, "%s", s->f.advice);
        agent_set(r, v, s->f.code, "kernel log, %lld times: %s", (long long)s->count, s->first);
    }
    agent_metric(r, "failures", counts[KERN_FAIL]);
    agent_metric(r, "warnings", counts[KERN_DEGRADED]);
    agent_data_str(r, "seen", all.len > 0 ? all.s : "");
    agent_data_int(r, "lines", k->lines);
    agent_data_int(r, "overwritten", k->log.lost);
}

void kernlog_run(struct check_ctx *c, struct agent_result *r) {
    struct kern_all k = {.log = KERN_LOG_NONE};
    int rc = read_kmsg(&k, c->deadline_ms);
    if (rc != 0 && k.lines == 0) rc = read_klog(&k);
    if (rc != 0) agent_set(r, VERDICT_SKIPPED, "unreadable", "the kernel log may not be read here: %s", strerror(-rc));
    else if (k.lines == 0)
        agent_set(r, VERDICT_SKIPPED, "empty", "the kernel log is empty: it says nothing about this node");
    else {
        judge_alone(&k);
        report_seen(&k, r);
    }
    if (rc == 0 && k.unread)
        agent_set(r, VERDICT_ERROR, "not_read",
                  "the time was over before the kernel log was read to its end "
                  "(%lld lines read)",
                  (long long)k.lines);
    if (k.log.lost > 0)
        agent_say(r,
                  "%lld lines, nothing that speaks against the node; %lld older ones since boot were "
                  "overwritten",
                  (long long)k.lines, (long long)k.log.lost);
    else agent_say(r, "%lld lines since boot, nothing that speaks against the node", (long long)k.lines);
    vec_free(&k.seen);
}
