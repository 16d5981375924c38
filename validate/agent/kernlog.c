/* SPDX-License-Identifier: Apache-2.0 */
/* host.kernlog: what the kernel has seen since boot. The Xid policy is NVIDIA's catalogue of immediate
 * actions for a node that nobody uses yet. A log that may not be read is skipped, never a pass. */
#include "base/gp_base.h"

#include "host.h"

#include "base/clock.h"
#include "base/vec.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/klog.h>
#include <unistd.h>

/* --- policy --- */

static const short xid_reset[] = {46,  62,  63,  64,  94,  95,  109, 110, 119, 120,
                                  136, 140, 143, 155, 156, 158, 0};
static const short xid_workflow[] = {48, 74, 144, 145, 146, 147, 148, 149, 150, 171, 172, 0};
static const short xid_application[] = {
    8,   11,  13,  25,  31,  32,  39,  40,  41,  60,  68,  69,  70,  71,  72,  75,  76,  77,
    80,  82,  83,  84,  85,  86,  88,  89,  96,  97,  98,  99,  100, 101, 102, 103, 104, 105,
    126, 127, 128, 129, 130, 131, 132, 133, 134, 135, 139, 0};
static const short xid_ignore[] = {37,  38,  43,  44,  45,  66,  67,  92,  93,  106,
                                   107, 121, 137, 141, 152, 153, 157, 160, 161, 0};

static bool in_list(const short *list, long xid) {
    for (; *list != 0; list++)
        if (*list == xid) return true;
    return false;
}

static struct kern_finding finding(enum kern_action a, const char *code, const char *advice) {
    struct kern_finding f = {.action = a};
    str_put(f.code, sizeof f.code, code);
    str_put(f.advice, sizeof f.advice, advice);
    return f;
}

static struct kern_finding judge_xid(const char *line, long xid) {
    char code[40];
    snprintf(code, sizeof code, "xid_%ld", xid);
    if (xid == 79) return finding(KERN_FAIL, code, "the GPU fell off the bus: replace the node");
    if (xid == 154) {
        if (strstr(line, "Node Reboot Required") != NULL)
            return finding(KERN_FAIL, code, "reboot the node, replace it if it comes again");
        if (strstr(line, "Reset Required") != NULL || strstr(line, "Drain") != NULL)
            return finding(KERN_FAIL, code, "reset the GPU, replace the node if it comes again");
        return finding(KERN_NOTE, code, "the GPU's recovery action changed");
    }
    if (xid == 151) return finding(KERN_FAIL, code, "restart the machine");
    if (xid == 54) return finding(KERN_FAIL, code, "auxiliary power is not connected: replace the node");
    if (xid == 78) return finding(KERN_FAIL, code, "update the driver and firmware");
    if (xid == 168) return finding(KERN_FAIL, code, "reboot the node, replace it if it comes again");
    if (in_list(xid_reset, xid))
        return finding(KERN_FAIL, code, "reset the GPU before use, replace the node if it comes again");
    if (in_list(xid_workflow, xid))
        return finding(KERN_FAIL, code, "drain and reset; memory or NVLink is damaged if it repeats");
    if (in_list(xid_application, xid))
        return finding(KERN_NOTE, code, "a program's fault, not the GPU's");
    if (in_list(xid_ignore, xid)) return finding(KERN_NOTE, code, "informational");
    return finding(KERN_DEGRADED, code, "not in the catalogue: look it up before trusting the GPU");
}

static const struct {
    const char *a, *b; /* both must be in the line; b may be NULL */
    enum kern_action action;
    const char *code, *advice;
} rules[] = {
    {"SXid", "Non-fatal", KERN_DEGRADED, "sxid", "an NVSwitch reported an error that it survived"},
    {"SXid", NULL, KERN_FAIL, "sxid", "an NVSwitch reported an error: replace the node"},
    {"NVRM:", "fallen off the bus", KERN_FAIL, "gpu_lost", "replace the node"},
    {"NVRM:", "RmInitAdapter failed", KERN_FAIL, "gpu_init", "the driver cannot start the GPU: replace"},
    {"[Hardware Error]", "Corrected error", KERN_DEGRADED, "machine_check", "corrected; watch it"},
    {"[Hardware Error]", "corrected", KERN_DEGRADED, "machine_check", "corrected; watch it"},
    {"[Hardware Error]", NULL, KERN_FAIL, "machine_check", "replace the node"},
    {"mce:", "Uncorrected", KERN_FAIL, "machine_check", "replace the node"},
    {"Machine check events logged", NULL, KERN_DEGRADED, "machine_check", "corrected; watch it"},
    {"EDAC", " UE ", KERN_FAIL, "memory_uncorrected", "replace the node"},
    {"EDAC", " CE ", KERN_DEGRADED, "memory_corrected", "a memory module reports corrected errors"},
    {"AER:", "Uncorrect", KERN_FAIL, "pcie_uncorrected", "a PCIe link reports errors: replace the node"},
    {"AER:", "orrected", KERN_DEGRADED, "pcie_corrected", "a PCIe link reports corrected errors"},
    {"Out of memory: Kill", NULL, KERN_DEGRADED, "out_of_memory", "something used up the memory"},
    {"oom-kill:constraint=CONSTRAINT_NONE", NULL, KERN_DEGRADED, "out_of_memory", "as above"},
    {"I/O error, dev loop", NULL, KERN_NOTE, "loop_io", "a loop device, not a disk"},
    {"I/O error, dev sr", NULL, KERN_NOTE, "cdrom_io", "an empty drive, not a disk"},
    {"I/O error, dev fd", NULL, KERN_NOTE, "floppy_io", "an empty drive, not a disk"},
    {"I/O error, dev ", NULL, KERN_FAIL, "disk_io", "a disk fails: replace the node"},
    {"Buffer I/O error", NULL, KERN_FAIL, "disk_io", "a disk fails: replace the node"},
    {"EXT4-fs error", NULL, KERN_FAIL, "file_system", "the file system is damaged: replace the node"},
    {"XFS", "orruption", KERN_FAIL, "file_system", "the file system is damaged: replace the node"},
    {"Remounting filesystem read-only", NULL, KERN_FAIL, "file_system", "replace the node"},
    {"nvme", "controller is down", KERN_FAIL, "disk_io", "an NVMe disk fails: replace the node"},
    {"soft lockup", NULL, KERN_DEGRADED, "lockup", "a core stood still: host overcommitted or sick"},
    {"hard LOCKUP", NULL, KERN_FAIL, "lockup", "a core stood still: replace the node"},
    {"blocked for more than", "seconds", KERN_DEGRADED, "hung_task", "a process waits on a device"},
    {"Kernel panic", NULL, KERN_FAIL, "panic", "replace the node"},
};

struct kern_finding kernlog_judge(const char *line) {
    const char *xid = strstr(line, "NVRM: Xid (");
    const char *colon = xid != NULL ? strstr(xid, "): ") : NULL;
    if (colon != NULL) {
        long n = strtol(colon + 3, NULL, 10);
        if (n > 0) return judge_xid(line, n);
    }
    for (size_t i = 0; i < GP_ARRAY_LEN(rules); i++)
        if (strstr(line, rules[i].a) != NULL && (rules[i].b == NULL || strstr(line, rules[i].b) != NULL))
            return finding(rules[i].action, rules[i].code, rules[i].advice);
    return finding(KERN_NONE, "", "");
}

/* --- reading --- */

struct kern_seen {
    struct kern_finding f;
    char first[160];
    int64_t count;
};
struct kern_log {
    VEC_OF(struct kern_seen) seen;
    int64_t lines;
    int64_t lost;  /* overwritten before they were read */
    bool begun;    /* the first record was seen */
    bool unread;   /* the time was over before the last one */
};

static void take_line(struct kern_log *k, const char *text) {
    k->lines++;
    struct kern_finding f = kernlog_judge(text);
    if (f.action == KERN_NONE) return;
    for (size_t i = 0; i < k->seen.len; i++) {
        if (!str_eq(k->seen.items[i].f.code, f.code) || k->seen.items[i].f.action != f.action) continue;
        k->seen.items[i].count++;
        return;
    }
    struct kern_seen s = {.f = f, .count = 1};
    str_put(s.first, sizeof s.first, text);
    vec_push(&k->seen, s);
}

/* Records count from 0 since boot: the first one that is still there tells how many are not. */
static void note_first(struct kern_log *k, const char *record) {
    const char *comma = strchr(record, ',');
    if (k->begun || comma == NULL) return;
    k->begun = true;
    k->lost += strtoll(comma + 1, NULL, 10);
}

/* /dev/kmsg: one record per read, "prio,seq,usec,flags;text\n tags". */
static int read_kmsg(struct kern_log *k, int64_t deadline_ms) {
    GP_AUTO_FD int fd = open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) return -errno;
    char buf[8192];
    for (;;) {
        if (clock_left_ms(deadline_ms) == 0 || agent_fault("kernlog", 0, 0)) {
            k->unread = true;
            return 0;
        }
        ssize_t n = read(fd, buf, sizeof buf - 1);
        if (n < 0 && errno == EAGAIN) return 0;
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == EPIPE) {
            k->lost++; /* overwritten while we read: go on with what is there */
            continue;
        }
        if (n <= 0) return n < 0 ? -errno : 0;
        buf[n] = '\0';
        note_first(k, buf);
        /* records that a program wrote (facility above 0) are not the kernel's own words */
        if (strtol(buf, NULL, 10) >= 8) continue;
        char *text = strchr(buf, ';');
        if (text == NULL) continue;
        char *end = strchr(++text, '\n');
        if (end != NULL) *end = '\0';
        take_line(k, text);
    }
}

static int read_klog(struct kern_log *k) {
    int size = klogctl(10 /* SYSLOG_ACTION_SIZE_BUFFER */, NULL, 0);
    if (size <= 0) return -errno;
    GP_AUTO_FREE char *buf = xmalloc((size_t)size + 1);
    int n = klogctl(3 /* SYSLOG_ACTION_READ_ALL */, buf, size);
    if (n < 0) return -errno;
    buf[n] = '\0';
    GP_AUTO_STRV struct strv lines = {0};
    strv_split(&lines, buf, "\n");
    for (size_t i = 0; i < lines.n; i++)
        if (strtol(lines.v[i][0] == '<' ? lines.v[i] + 1 : "0", NULL, 10) < 8) take_line(k, lines.v[i]);
    return 0;
}

static void report_seen(struct kern_log *k, struct agent_result *r) {
    double counts[4] = {0};
    GP_AUTO_STR struct str all = {0};
    str_init(&all, 4096);
    for (size_t i = 0; i < k->seen.len; i++) {
        const struct kern_seen *s = &k->seen.items[i];
        counts[s->f.action] += (double)s->count;
        str_addf(&all, "%s%s x%lld", i > 0 ? ", " : "", s->f.code, (long long)s->count);
        if (s->f.action < KERN_DEGRADED) continue;
        enum agent_verdict v = s->f.action == KERN_FAIL ? AGENT_FAIL : AGENT_DEGRADED;
        if (v > r->verdict) agent_suggest(r, "%s", s->f.advice);
        agent_set(r, v, s->f.code, "kernel log, %lld times: %s", (long long)s->count, s->first);
    }
    agent_metric(r, "failures", counts[KERN_FAIL]);
    agent_metric(r, "warnings", counts[KERN_DEGRADED]);
    agent_data_str(r, "seen", all.len > 0 ? all.s : "");
    agent_data_int(r, "lines", k->lines);
    agent_data_int(r, "overwritten", k->lost);
}

void kernlog_run(struct check_ctx *c, struct agent_result *r) {
    struct kern_log k = {0};
    int rc = read_kmsg(&k, c->deadline_ms);
    if (rc != 0 && k.lines == 0) rc = read_klog(&k);
    if (rc != 0)
        agent_set(r, AGENT_SKIPPED, "unreadable", "the kernel log may not be read here: %s",
                  strerror(-rc));
    else if (k.lines == 0)
        agent_set(r, AGENT_SKIPPED, "empty", "the kernel log is empty: it says nothing about this node");
    else
        report_seen(&k, r);
    if (rc == 0 && k.unread)
        agent_set(r, AGENT_ERROR, "not_read", "the time was over before the kernel log was read to its end "
                  "(%lld lines read)", (long long)k.lines);
    if (k.lost > 0)
        agent_say(r, "%lld lines, nothing that speaks against the node; %lld older ones since boot were "
                  "overwritten", (long long)k.lines, (long long)k.lost);
    else
        agent_say(r, "%lld lines since boot, nothing that speaks against the node", (long long)k.lines);
    vec_free(&k.seen);
}
