/* SPDX-License-Identifier: Apache-2.0 */
/* A program of the node that reports in lines on file descriptor 3, waits for a line on its stdin, and is killed with
 * its process group. One thread. */
#ifndef GP_AGENT_FRAMEWORK_CHILD_H
#define GP_AGENT_FRAMEWORK_CHILD_H

#include "base/error.h"
#include "base/str.h"

#include <sys/types.h>

struct child {
    pid_t pid;           /* 0: none */
    int to, report, log; /* its stdin; its descriptor 3; its stdout and stderr. -1: closed */
    struct str part;     /* of the report: an unfinished line */
    struct str words;    /* the end of its stdout and stderr */
    bool on_stdout;      /* set before child_start: its report is its stdout, not descriptor 3 */
    bool ended;          /* it has closed its report */
    int status;          /* waitpid's, after child_end */
};

/* argv[0] is a path. env: "NAME=value" of this program and these. -GP_EENV: not started. */
int child_start(struct child *c, const char *const *argv, const struct strv *env, struct gp_error *err);
/* Waits at most wait_ms for lines of the report, and passes each on without its newline. take returns false to stop.
 * -GP_EPROTO: a line that is too long or has a byte that is no text. */
int child_read(struct child *c, int wait_ms, bool (*take)(void *ctx, char *line), void *ctx, struct gp_error *err);
bool child_tell(struct child *c, const char *line); /* writes it to its stdin, and closes that */
/* Kills what is left of it and collects it; safe when none runs. Fills status. */
void child_end(struct child *c);
/* The last line of its stdout and stderr, cleaned; "" if there is none. word: rather the last line that has it; NULL:
 * any. Caller frees. */
char *child_last_words(const struct child *c, const char *word);

#endif
