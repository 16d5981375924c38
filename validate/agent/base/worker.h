/* SPDX-License-Identifier: Apache-2.0 */
/* Worker processes: code that can hang or crash runs in one, watched by its parent. They exchange messages {kind,
 * length, bytes} over pipes; both are the same program, so a result is sent as it is in memory. */
#ifndef GP_AGENT_WORKER_H
#define GP_AGENT_WORKER_H

#include "validate/agent/agent.h"

#include <sys/types.h>

enum worker_msg_kind {
    MSG_START = 1, /* uint32: a check's index in check_table */
    MSG_RESULT,    /* a result, worker_put_result's form */
    MSG_LINE,      /* text: one JSON line to pass on */
    MSG_DONE,      /* the request is done */
    MSG_LISTEN     /* text: the address of rank 0 of a gang */
};
struct worker_msg {
    enum worker_msg_kind kind;
    struct str body;
};

/* in: requests (EOF: end). out: messages. Runs in the child, which exits when it returns. */
typedef void worker_fn(void *arg, int in, int out);

struct worker {
    pid_t pid;      /* 0: none */
    int to, from;   /* pipes; -1: closed */
    struct str buf; /* bytes read, not yet a whole message */
};
#define WORKER_NONE \
    { .to = -1, .from = -1 }

/* Forks. The child has its own process group and dies with its parent. */
int worker_start(struct worker *w, worker_fn *fn, void *arg, struct gp_error *err);
/* The next message. -GP_ETIMEOUT at the deadline, -GP_ELOST when the worker ended without one. */
int worker_next(struct worker *w, int64_t deadline_ms, struct worker_msg *ret, struct gp_error *err);
/* The next message if it is there already; never waits. *ret_got false: not yet. -GP_ELOST when the
 * worker ended without one. */
int worker_take(struct worker *w, struct worker_msg *ret, bool *ret_got, struct gp_error *err);
/* Ends the worker (SIGKILL to its group) and waits two seconds. False: it was not reaped, because the kernel or a
 * driver holds it. *ret_status: waitpid's. Safe when none is running. */
bool worker_kill(struct worker *w, int *ret_status);
/* Lets workers end by themselves: closes their requests and waits until deadline_ms. Does not reap those that have
 * not ended by then: worker_kill does. */
void worker_dismiss(struct worker *w, size_t n, int64_t deadline_ms);
void worker_msg_clear(struct worker_msg *m);

/* In the child. False: the parent is gone. */
bool worker_put(int out, enum worker_msg_kind kind, const void *p, size_t n);
bool worker_put_result(int out, const struct agent_result *r);
/* ret must be cleared with agent_result_clear. */
int worker_get_result(const struct worker_msg *m, struct agent_result *ret, struct gp_error *err);

/* waitpid's status as text: "was killed by SIGSEGV", "ended with status 3". */
void worker_status_text(char *dst, size_t n, int status);

#endif
