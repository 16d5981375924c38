/* SPDX-License-Identifier: Apache-2.0 */
/* Host checks that have a file of their own, and the kernel log's policy, which is pure. */
#ifndef GP_AGENT_HOST_H
#define GP_AGENT_HOST_H

#include "validate/agent/agent.h"

void disk_run(struct check_ctx *c, struct agent_result *r);
void kernlog_run(struct check_ctx *c, struct agent_result *r);
void stream_run(struct check_ctx *c, struct agent_result *r);
void limits_run(struct check_ctx *c, struct agent_result *r);
void rdma_run(struct check_ctx *c, struct agent_result *r);
void container_run(struct check_ctx *c, struct agent_result *r);

int64_t agent_memory_available(void); /* bytes that can be had without swapping */
int host_rdma_devices(void);          /* InfiniBand, RoCE and EFA devices with a driver */

enum kern_action { KERN_NONE, KERN_NOTE, KERN_DEGRADED, KERN_FAIL };
enum xid_kind {
    XID_NONE,        /* the line is no Xid */
    XID_INFORMATION, /* NVIDIA's catalogue asks for nothing */
    XID_APPLICATION, /* a program's fault, the GPU stays */
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
