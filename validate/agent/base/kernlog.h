/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel log: its lines, and what each of them means for a node. */
#ifndef GP_AGENT_KERNLOG_H
#define GP_AGENT_KERNLOG_H

#include "base/str.h"

enum kern_action { KERN_NONE, KERN_NOTE, KERN_DEGRADED, KERN_FAIL };
enum xid_kind {
    XID_NONE,        /* the line is no Xid */
    XID_INFORMATION, /* NVIDIA's catalogue asks for nothing */
    XID_APPLICATION, /* a program's fault, the GPU stays */
    XID_MEMORY,      /* contained memory errors and remapped rows: after a reset the GPU's counters decide */
    XID_HARDWARE,    /* reset, reboot, replace, update */
    XID_UNKNOWN      /* not in the catalogue */
};
struct kern_finding {
    enum kern_action action;
    char code[40];    /* "xid_79", "sxid_24007", "machine_check" */
    char advice[120]; /* what to do: "reset the GPU", ... */
    enum xid_kind xid;
    bool nvswitch; /* an SXid */
    char pci[24];  /* Xid, SXid: which GPU or switch, "0000:3b:00"; else "" */
};
/* What one line of the kernel log means for a node that nobody uses yet. Pure. */
struct kern_finding kernlog_judge(const char *line);
/* The same of an Xid number without its line (NVML tells only that). Pure. */
struct kern_finding kernlog_judge_xid(int64_t xid);

/* The kernel's own lines of /dev/kmsg, one after the other, without blocking. */
struct kern_log {
    int fd;         /* -1: not open */
    int64_t lines;  /* read so far */
    int64_t lost;   /* overwritten before they were read, since boot */
    bool begun;     /* the first record was seen */
    struct str buf; /* read, and not yet taken */
    size_t at;
};
#define KERN_LOG_NONE \
    { .fd = -1 }
/* from_end: only what comes from now on. -errno when it may not be read. */
int kernlog_open(struct kern_log *k, bool from_end);
/* 1: *ret_text is the next line, good until the next call; 0: there are no more now; -errno. */
int kernlog_next(struct kern_log *k, const char **ret_text);
void kernlog_close(struct kern_log *k);

#endif
