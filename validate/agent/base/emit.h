/* SPDX-License-Identifier: Apache-2.0 */
/* The agent's output: JSON lines (one write each) or text for people, to stdout or to a rank's file. */
#ifndef GP_AGENT_EMIT_H
#define GP_AGENT_EMIT_H

#include "validate/agent/agent.h"

struct emit {
    int fd;
    bool text;   /* for people instead of JSON lines */
    bool ranked; /* several ranks write here: every line says whose it is */
    int rank;
    bool broken;        /* a write failed: nobody listens, or the disk is full */
    enum verdict worst; /* of what counts: skipped counts only for required checks */
    size_t ran;         /* results that were not skipped */
    size_t failed, degraded, skipped, errors;
    int64_t began_ms, load_ms; /* monotonic; load_ms 0: nothing was loaded */
};
/* One GPU of the line "loaded". */
struct emit_gpu {
    int gpu;
    int64_t load_ms;
    const struct gpu_identity *id;
    const struct gpu_model *model; /* NULL: not in the table */
    const char *code, *message;    /* "" when it can be used */
};
void emit_hello(struct emit *e, int rank, int size);
/* The driver is loaded and the clock starts: how long it took (load_ms), and which GPUs it found. */
void emit_loaded(struct emit *e, const struct emit_gpu *gpus, size_t n);
void emit_start(struct emit *e, const struct check_info *check);
void emit_result(struct emit *e, const struct agent_result *r);
void emit_line(struct emit *e, const char *line, size_t n); /* ends with '\n' already */
/* The end line; returns the exit code in the node-check language: 0 pass, 1 degraded, 2 fail, 3 could
 * not tell. reason: "" or why it ended early (then never 0). */
int emit_end(struct emit *e, const char *reason);

#endif
