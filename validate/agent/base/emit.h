/* SPDX-License-Identifier: Apache-2.0 */
/* The agent's output: JSON lines (one write each) or text, to stdout or to a rank's file. */
#ifndef GP_AGENT_EMIT_H
#define GP_AGENT_EMIT_H

#include "validate/agent/agent.h"

struct emit {
    int fd;
    bool text;   /* text instead of JSON lines */
    bool ranked; /* several ranks write here: every line has its rank */
    int rank;
    bool broken;        /* a write failed: no reader, or the disk is full */
    enum verdict worst; /* of all results; skipped counts only for required checks */
    size_t ran;         /* results that were not skipped */
    size_t failed, degraded, skipped, errors;
    int64_t began_ms, load_ms; /* monotonic; load_ms: duration, 0 if nothing was loaded */
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
/* Reports that the driver is loaded and the time begins: the duration (load_ms) and the GPUs. */
void emit_loaded(struct emit *e, const struct emit_gpu *gpus, size_t n);
void emit_start(struct emit *e, const struct check_info *check);
void emit_result(struct emit *e, const struct agent_result *r);
void emit_line(struct emit *e, const char *line, size_t n); /* ends with '\n' already */
/* Writes the end line; returns the exit code of node checks: 0 pass, 1 degraded, 2 fail, 3 unknown. reason:
 * "" or why it ended early (then never 0). */
int emit_end(struct emit *e, const char *reason);

#endif
