/* SPDX-License-Identifier: Apache-2.0 */
/* Decoding of what `gpuprov-agent job` prints: the state of a job on one node, and the lines that follow its log. The
 * other side is a node, which may print anything. Pure; any thread. */
#ifndef GP_ENGINE_JOB_STATE_H
#define GP_ENGINE_JOB_STATE_H

#include "base/error.h"
#include "base/json.h"
#include "base/str.h"

enum job_phase { JOB_NONE, JOB_SETUP, JOB_RUNNING, JOB_ENDED };
const char *job_phase_name(enum job_phase p); /* "none", "setup", "running", "ended" */

/* The state of one job on one node. Plain data, copied by assignment. */
struct job_state {
    enum job_phase phase;
    bool busy;       /* reply of `start`: another job runs on the node, and the rest is that one's */
    char id[17];     /* "": JOB_NONE */
    char key[65];    /* of its definition */
    int rank, ranks; /* of the run */
    int attempt;     /* 1: the first */
    int exit;        /* -1: none */
    char signal[16]; /* "SIGSEGV"; "": none */
    char reason
        [24]; /* of JOB_ENDED: "exited", "signaled", "stopped", "max_duration", "lost", "unhealthy", "preempted" */
    char text[200];             /* one line about the end; "" */
    char in[8];                 /* "setup" or "run": the text that ran last */
    int64_t started_s, ended_s; /* wall clock of the node */
    int64_t log_bytes;          /* printed so far */
    bool collected;             /* its outputs were fetched */
    bool again;                 /* ended by a reboot, and may be started again */
    bool unit;                  /* the node starts it again by itself */
    int unhealthy;              /* faults of the node that were found while it ran */
    bool preempted;             /* the cloud has announced that it takes the node back */
};
/* Decodes a line of JSON. -GP_EPROTO names the member that is wrong. */
int job_state_parse(const char *line, size_t n, struct job_state *ret, struct gp_error *err);
bool job_state_ok(const struct job_state *s); /* ended, and the command exited with 0 */
/* "exited with code 3", "killed by SIGSEGV", "stopped: rank 1 failed". */
void job_state_why(const struct job_state *s, char *dst, size_t n);
json_t *job_state_json(const struct job_state *s); /* new reference */

enum job_health_kind { JOB_UNHEALTHY, JOB_BLIND, JOB_PREEMPTED };
#define JOB_HEALTH_MAX 1024 /* findings of one job on one node; more are no sound reply */
/* What the watch of a node found while the job ran. Plain data; texts are one clean line. */
struct job_health {
    enum job_health_kind kind;
    int n;             /* 1, 2, ... on its node */
    int gpu;           /* -1: none */
    char severity[12]; /* of JOB_UNHEALTHY: "note", "degraded", "fail" */
    char code[48];     /* likewise: "xid_79" */
    char text[240];    /* JOB_PREEMPTED: when, UTC; "": not stated */
    char advice[200];  /* "": none */
};
/* One finding, in the form that agents print. -GP_EPROTO names the member that is wrong. */
int job_health_decode(const json_t *j, struct job_health *ret, struct gp_error *err);
json_t *job_health_json(const struct job_health *h); /* the same form; new reference */
const char *job_health_name(enum job_health_kind k); /* "unhealthy", "blind", "preempted" */
/* "GPU 3: fell off the bus (xid_79, fail): replace the node". */
void job_health_text(const struct job_health *h, char *dst, size_t n);

#define JOB_LINE_MAX ((size_t)32 << 10) /* bytes of a line of the log; a longer one is passed in pieces */

/* The log of one job on one node as it arrives. Zero-initialise with `offset` set; job_stream_clear frees it. */
struct job_stream {
    int64_t offset;  /* as the node says it: where to go on after a lost connection */
    int64_t came;    /* bytes of the log that were received */
    struct str part; /* a line without its end, at most JOB_LINE_MAX */
    int64_t dropped; /* bytes that the node had dropped before they were sent */
    int attempt;     /* 0: the first one */
    int health_n;    /* the last finding that was passed on */
    bool ended;      /* `end` is set */
    struct job_state end;
};
struct job_sink {
    /* A line without its newline, or a piece of one that is too long; may have any bytes. */
    void (*text)(void *ctx, const char *line, size_t n);
    void (*note)(void *ctx, const char *text); /* about the stream, such as dropped bytes; one line */
    /* A finding that was not passed on before. May be NULL. */
    void (*health)(void *ctx, const struct job_health *h);
    void *ctx;
};
/* Takes one line of the reply of `job follow`. -GP_EPROTO: it is none. */
int job_stream_line(struct job_stream *s, const struct job_sink *to, const char *line, size_t n, struct gp_error *err);
/* Passes on a last line that has no newline. */
void job_stream_flush(struct job_stream *s, const struct job_sink *to);
void job_stream_clear(struct job_stream *s);

#endif
