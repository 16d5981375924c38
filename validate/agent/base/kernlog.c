/* SPDX-License-Identifier: Apache-2.0 */
/* Reads and judges the kernel log. The Xid policy is NVIDIA's catalogue of immediate actions for a node that
 * nobody uses yet. */
#include "base/gp_base.h"

#include "validate/agent/base/kernlog.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

/* --- policy --- */

static const short xid_memory[] = {63, 64, 94, 0};
static const short xid_reset[] = {46, 62, 95, 109, 110, 119, 120, 136, 140, 143, 155, 156, 158, 0};
static const short xid_workflow[] = {48, 74, 144, 145, 146, 147, 148, 149, 150, 171, 172, 0};
static const short xid_application[] = {8,   11,  13,  25,  31,  32,  39,  40,  41,  60,  68,  69,  70,  71,  72,  75,
                                        76,  77,  80,  82,  83,  84,  85,  86,  88,  89,  96,  97,  98,  99,  100, 101,
                                        102, 103, 104, 105, 126, 127, 128, 129, 130, 131, 132, 133, 134, 135, 139, 0};
static const short xid_information[] = {37,  38,  43,  44,  45,  66,  67,  92,  93,  106,
                                        107, 121, 137, 141, 152, 153, 157, 160, 161, 0};
static const struct {
    short xid;
    enum kern_action action;
    const char *advice;
} xid_single[] = {
    {79, KERN_FAIL, "the GPU fell off the bus: reboot, replace the node if it comes again"},
    {54, KERN_FAIL, "auxiliary power is not connected: replace the node"},
    {78, KERN_FAIL, "update the driver and firmware"},
    {151, KERN_FAIL, "restart the machine"},
    {159, KERN_DEGRADED, "look at nvidia-uvm: it reported an error"},
    {167, KERN_DEGRADED, "new, without an action in the catalogue: look it up before trusting the GPU"},
    {168, KERN_FAIL, "reboot the node, replace it if it comes again"},
    {169, KERN_DEGRADED, "new, without an action in the catalogue: look it up before trusting the GPU"},
};

static bool in_list(const short *list, int64_t xid) {
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

static struct kern_finding xid_finding(enum kern_action a, enum xid_kind kind, int64_t xid, const char *advice) {
    struct kern_finding f = {.action = a, .xid = kind};
    snprintf(f.code, sizeof f.code, "xid_%lld", (long long)xid);
    str_put(f.advice, sizeof f.advice, advice);
    return f;
}

/* 154 says in words what is to be done from now on. */
static struct kern_finding judge_154(const char *line) {
    static const struct {
        const char *text, *advice;
    } actions[] = {
        {"Node Reboot Required", "reboot the node, replace it if it comes again"},
        {"Drain and Reset", "end what uses the GPU and its NVLink peers, reset it; replace the node if it "
                            "comes again"},
        {"Drain P2P", "end what uses NVLink peers of this GPU"},
        {"Reset Required", "reset the GPU, replace the node if it comes again"},
    };
    /* "changed from 0x1 (GPU Reset Required) to 0x0 (None)" */
    const char *to = strstr(line, " to ") != NULL ? strstr(line, " to ") : line;
    for (size_t i = 0; i < GP_ARRAY_LEN(actions); i++)
        if (strstr(to, actions[i].text) != NULL) return xid_finding(KERN_FAIL, XID_HARDWARE, 154, actions[i].advice);
    if (strstr(to, "None") != NULL)
        return xid_finding(KERN_NOTE, XID_INFORMATION, 154, "the GPU's recovery action is none again");
    return xid_finding(KERN_DEGRADED, XID_UNKNOWN, 154,
                       "the GPU's recovery action changed: see 'GPU Recovery Action' of nvidia-smi -q");
}

struct kern_finding kernlog_judge_xid(int64_t xid) {
    for (size_t i = 0; i < GP_ARRAY_LEN(xid_single); i++)
        if (xid_single[i].xid == xid)
            return xid_finding(xid_single[i].action, xid_single[i].action == KERN_FAIL ? XID_HARDWARE : XID_UNKNOWN,
                               xid, xid_single[i].advice);
    if (xid == 154) return judge_154("");
    if (in_list(xid_memory, xid))
        return xid_finding(KERN_FAIL, XID_MEMORY, xid, "reset the GPU before use, replace the node if it comes again");
    if (in_list(xid_reset, xid))
        return xid_finding(KERN_FAIL, XID_HARDWARE, xid,
                           "reset the GPU before use, replace the node if it comes again");
    if (in_list(xid_workflow, xid))
        return xid_finding(KERN_FAIL, XID_HARDWARE, xid, "drain and reset; memory or NVLink is damaged if it repeats");
    if (in_list(xid_application, xid))
        return xid_finding(KERN_NOTE, XID_APPLICATION, xid, "a program's fault, not the GPU's");
    if (in_list(xid_information, xid)) return xid_finding(KERN_NOTE, XID_INFORMATION, xid, "informational");
    return xid_finding(KERN_DEGRADED, XID_UNKNOWN, xid, "not in the catalogue: look it up before trusting the GPU");
}

/* The address in "Xid (PCI:0000:3b:00): 79, ..." and the number after it; false: there is none. */
static bool take_xid(const char *at, struct kern_finding *f, int64_t *ret_number) {
    const char *pci = strchr(at, '('), *colon = strstr(at, "): ");
    if (pci == NULL || colon == NULL || pci > colon) return false;
    pci += str_starts(pci, "(PCI:") ? 5 : 1;
    size_t n = GP_MIN((size_t)(colon - pci), sizeof f->pci - 1);
    memcpy(f->pci, pci, n);
    f->pci[n] = '\0';
    if (strchr(f->pci, '.') != NULL) *strchr(f->pci, '.') = '\0'; /* a switch's has its function */
    *ret_number = strtoll(colon + 3, NULL, 10);
    return *ret_number > 0;
}

static bool judge_nvidia(const char *line, struct kern_finding *ret) {
    struct kern_finding at = {0};
    int64_t number = 0;
    const char *sxid = strstr(line, "SXid (");
    const char *xid = strstr(line, "NVRM: Xid (");
    if (sxid != NULL && take_xid(sxid, &at, &number)) {
        bool survived = strstr(sxid, "Non-fatal") != NULL;
        *ret = finding(survived ? KERN_DEGRADED : KERN_FAIL, "",
                       survived ? "an NVSwitch reported an error that it survived"
                                : "an NVSwitch reported an error: restart nvidia-fabricmanager or reboot, "
                                  "replace the node if it comes again");
        snprintf(ret->code, sizeof ret->code, "sxid_%lld", (long long)number);
        ret->nvswitch = true;
    } else if (xid != NULL && take_xid(xid, &at, &number)) {
        *ret = number == 154 ? judge_154(line) : kernlog_judge_xid(number);
    } else {
        return false;
    }
    memcpy(ret->pci, at.pci, sizeof ret->pci);
    return true;
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
    struct kern_finding f = {0};
    if (judge_nvidia(line, &f)) return f;
    for (size_t i = 0; i < GP_ARRAY_LEN(rules); i++)
        if (strstr(line, rules[i].a) != NULL && (rules[i].b == NULL || strstr(line, rules[i].b) != NULL))
            return finding(rules[i].action, rules[i].code, rules[i].advice);
    return f;
}

/* --- reading --- */

#define RECORD_MAX ((size_t)8192)

int kernlog_open(struct kern_log *k, bool from_end) {
    *k = (struct kern_log)KERN_LOG_NONE;
    str_init(&k->buf, 2 * RECORD_MAX);
    k->fd = open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (k->fd < 0) return -errno;
    if (from_end && lseek(k->fd, 0, SEEK_END) < 0) {
        int e = errno;
        kernlog_close(k);
        return -e;
    }
    k->begun = from_end;
    return 0;
}

void kernlog_close(struct kern_log *k) {
    if (k->fd >= 0) close(k->fd);
    str_clear(&k->buf);
    k->fd = -1;
    k->at = 0;
}

/* Records count from 0 since boot: the first one that is still there tells how many are not. */
static void note_first(struct kern_log *k, const char *record) {
    const char *comma = strchr(record, ',');
    if (k->begun || comma == NULL) return;
    k->begun = true;
    k->lost += strtoll(comma + 1, NULL, 10);
}

/* The next whole line that is in the buffer: "prio,seq,usec,flags;text", or " KEY=value" of the record
 * before it. */
static char *take_line(struct kern_log *k) {
    char *line = k->buf.s != NULL ? k->buf.s + k->at : NULL;
    char *end = line != NULL ? strchr(line, '\n') : NULL;
    if (end == NULL) return NULL;
    *end = '\0';
    k->at = (size_t)(end + 1 - k->buf.s);
    return line;
}

/* The device gives a record with each read. 1: there is more in the buffer; 0: no more now. */
static int fill(struct kern_log *k) {
    char some[RECORD_MAX];
    char *s = k->buf.s;
    size_t left = s != NULL ? k->buf.len - k->at : 0;
    for (size_t i = 0; i < left; i++) s[i] = s[k->at + i];
    if (s != NULL) s[left] = '\0';
    k->buf.len = left;
    k->at = 0;
    for (;;) {
        ssize_t n = read(k->fd, some, sizeof some);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == EAGAIN) return 0;
        if (n < 0 && errno == EPIPE) {
            k->lost++; /* overwritten while we read: go on with what is there */
            continue;
        }
        if (n <= 0) return n < 0 ? -errno : 0;
        if (left >= RECORD_MAX) str_reset(&k->buf); /* a line without end: not the kernel's */
        str_add_mem(&k->buf, some, (size_t)n);
        return 1;
    }
}

int kernlog_next(struct kern_log *k, const char **ret_text) {
    for (;;) {
        char *line = take_line(k);
        if (line == NULL) {
            int rc = fill(k);
            if (rc <= 0) return rc;
            continue;
        }
        char *text = strchr(line, ';');
        if (line[0] == ' ' || text == NULL) continue;
        note_first(k, line);
        if (strtol(line, NULL, 10) >= 8) continue; /* a program wrote it: not the kernel's own words */
        k->lines++;
        *ret_text = text + 1;
        return 1;
    }
}
