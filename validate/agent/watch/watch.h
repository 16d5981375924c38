/* SPDX-License-Identifier: Apache-2.0 */
/* The verb `watch`: new faults of a node while a job runs on it. One worker process for each GPU reads its counters,
 * another one the notices of the cloud; the parent reads the kernel log and reports a worker that hangs. Nothing
 * is measured and no GPU is loaded. */
#ifndef GP_AGENT_WATCH_H
#define GP_AGENT_WATCH_H

#include "base/gp_base.h"

enum watch_severity {
    WATCH_NOTE,     /* the job's own fault, or a sign that is no proof */
    WATCH_DEGRADED, /* the node works, but should be serviced */
    WATCH_FAIL      /* results from here on cannot be trusted, or the GPU is gone */
};
struct watch_finding {
    enum watch_severity severity;
    char code[48];    /* "xid_79", "ecc_uncorrected" */
    char text[240];   /* one line, without the GPU's number */
    char advice[200]; /* "": none */
};
struct kern_finding;
/* Of a line of the kernel log, or of an Xid, while a job runs. Pure. */
enum watch_severity watch_severity(const struct kern_finding *k);

/* What a worker sends to its parent (MSG_LINE, as it is in memory: both are the same program). */
struct watch_msg {
    enum { WATCH_ALIVE, WATCH_IS_AT, WATCH_FOUND, WATCH_BLIND, WATCH_PREEMPTED } kind;
    char pci[24];           /* WATCH_IS_AT: "0000:3b:00", the address in the kernel log */
    int64_t when_s;         /* WATCH_PREEMPTED: wall; 0: not stated */
    struct watch_finding f; /* WATCH_FOUND; WATCH_BLIND: text is the reason */
};

#endif
