/* SPDX-License-Identifier: Apache-2.0 */
/* Findings of the health watch: its lines decoded strictly, and the file `health` of a job's folder, which keeps them
 * over attempts. Its space is allocated when it is made, so that a full disk costs none of them. One writer, any number
 * of readers; one thread. */
#ifndef GP_AGENT_JOB_HEALTH_H
#define GP_AGENT_JOB_HEALTH_H

#include "base/error.h"
#include "base/str.h"

#define HEALTH_MAX 256                 /* findings that are kept */
#define HEALTH_LINE_MAX ((size_t)4096) /* bytes of a line of the watch, and of the file */

enum finding_kind {
    FINDING_NONE, /* the watch lives: "begin", "alive", "end" */
    FINDING_UNHEALTHY,
    FINDING_BLIND,    /* something is not watched */
    FINDING_PREEMPTED /* the cloud announced that it takes the node back */
};
enum finding_severity { SEVERITY_NOTE, SEVERITY_DEGRADED, SEVERITY_FAIL };
struct finding {
    enum finding_kind kind;
    int64_t n;   /* 1, 2 ...: its line in the file; 0: in none */
    int64_t gpu; /* -1: the node */
    enum finding_severity severity;
    char code[48];               /* "xid_79" */
    char text[320], advice[208]; /* one line each, without characters that steer a terminal; advice may be "" */
    int64_t when_s;              /* FINDING_PREEMPTED: wall seconds; 0: not stated */
};
/* One line without its newline. numbered: of the file, with "n"; else of the watch. Longer texts are cut. -GP_EPROTO:
 * it is no such line. */
int finding_parse(const char *line, size_t n, bool numbered, struct finding *ret, struct gp_error *err);
/* As a line of the file, without a newline. At most HEALTH_LINE_MAX - 1 bytes. */
void finding_json(const struct finding *f, struct str *ret);
/* FINDING_BLIND of the node. */
void finding_blind(struct finding *ret, const char *reason);

struct health {
    int fd;     /* -1: not open */
    int64_t n;  /* lines that were read or written */
    int64_t at; /* the offset behind them */
};
#define HEALTH_NONE \
    { .fd = -1 }
/* Makes the file of a new job. -GP_EIO: the disk has no space for it, or cannot be written. */
int health_create(const char *dir, struct gp_error *err);
/* For health_add: behind the last valid line. */
int health_open(struct health *h, const char *dir, struct gp_error *err);
/* Adds a finding and sets its number. The last lines are kept for preemptions and
 * for one that tells that no more are kept; what has no place keeps the number 0. 0 or -errno. */
int health_add(struct health *h, struct finding *f);
/* For health_next. False: the job has no such file. */
bool health_open_read(struct health *h, const char *dir);
/* Appends the next line to ret, without a newline. False: there is none now. */
bool health_next(struct health *h, struct str *ret);
void health_close(struct health *h);

#endif
