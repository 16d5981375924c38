/* SPDX-License-Identifier: Apache-2.0 */
/* The state of a job: what the supervisor keeps on the disk and every verb prints. No I/O; any thread. */
#ifndef GP_AGENT_JOB_STATE_H
#define GP_AGENT_JOB_STATE_H

#include "base/error.h"
#include "base/str.h"

enum job_phase { JOB_SETUP, JOB_RUNNING, JOB_ENDED };

struct job_state {
    char id[17], key[65];
    int64_t number; /* 1, 2 ...: the order of the jobs of this node */
    int64_t rank, ranks;
    enum job_phase phase;
    char in[8];                            /* "setup" or "run": the text that ran last */
    int64_t started_s, attempt_s, ended_s; /* since the epoch, by the node's clock; 0: not yet */
    int64_t attempt, restart;              /* attempt counts from 1; restart: further ones that are allowed */
    int64_t exit;                          /* 0 to 255; -1: none */
    char signal[16];                       /* "SIGKILL"; "": none */
    char reason[16];                       /* "" until it ended; see docs/agent-protocol.md */
    char text[300];                        /* one line for people; may be "" */
    int64_t unhealthy;                     /* findings of severity fail, over all attempts */
    bool preempted;                        /* in this attempt the cloud announced that it takes the node back */
    bool collected;
    bool unit;    /* this node starts it again by itself after a reboot */
    int64_t left; /* processes that could not be ended */
    char boot[40];
};
/* One object, without a newline. log_bytes -1: the form of the disk, without members that follow from others. */
void job_state_json(const struct job_state *st, int64_t log_bytes, struct str *ret);
/* Takes the form of the disk; members of later versions are ignored. -GP_EPROTO: no state. */
int job_state_parse(const char *text, size_t n, struct job_state *ret, struct gp_error *err);
/* Whether `start` would run it again. */
bool job_state_again(const struct job_state *st);
/* Ends it by waitpid's status. */
void job_state_status(struct job_state *st, int status);
/* Makes it lost, whatever ended meanwhile. */
void job_state_lost(struct job_state *st, int64_t now_s, const char *text);

#endif
