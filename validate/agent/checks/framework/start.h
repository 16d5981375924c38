/* SPDX-License-Identifier: Apache-2.0 */
/* The command of a rank's Python: that of the node, or that of a container image. One thread. */
#ifndef GP_AGENT_FRAMEWORK_START_H
#define GP_AGENT_FRAMEWORK_START_H

#include "validate/agent/agent.h"

struct start {
    const char *python; /* the interpreter; NULL: the node has none */
    const char *image;  /* NULL: none */
    struct strv argv;   /* argv[0] is a path; ended by NULL */
    struct strv env;
    char *container;  /* its name; NULL: none */
    char scratch[40]; /* what torch would keep in /tmp for the next program; "": none */
    char why[200];    /* why it cannot be started; "": it can */
};
/* Python is limited to limit_ms for each wait on another rank. */
void start_make(const struct check_ctx *c, const char *program, const char *image, int64_t limit_ms, struct start *ret);
/* Removes the container, if one is left. start_clear removes the scratch folder: call it after the end of Python. */
void start_end(const struct check_ctx *c, const struct start *s);
void start_clear(struct start *s);
int start_ranks_here(const struct check_ctx *c);
int start_nodes_before(const struct check_ctx *c, int rank); /* nodes whose first rank is lower */

#endif
