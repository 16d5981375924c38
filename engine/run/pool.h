/* SPDX-License-Identifier: Apache-2.0 */
/* A bounded pool of threads: over the nodes of a run, or over any numbered work. */
#ifndef GP_ENGINE_POOL_H
#define GP_ENGINE_POOL_H

#include "engine/run/run.h"

struct run_node;

/* work(n) for every node that is not skipped, at most `jobs` at once; returns when all are done. */
int pool_run(struct run *run, void (*work)(struct run_node *n), struct gp_error *err);
/* work(ctx, i) for every i below n, all at once; returns when all are done. Where no thread can be started, that of the
 * caller does the work. */
void pool_each(size_t n, void (*work)(void *ctx, size_t i), void *ctx);
/* The same, at most `most` at once. */
void pool_some(size_t n, size_t most, void (*work)(void *ctx, size_t i), void *ctx);
/* The same as pool_each for work whose results are used one by one, so that a slow piece delays no other. What the work
 * has written before its end is visible to `over`. */
struct pool_follow {
    void (*work)(void *ctx, size_t i);
    void (*over)(void *ctx, size_t i); /* in the caller's thread, once each, in the order of their ends */
    void (*waiting)(void *ctx);        /* likewise, after every_ms without an end */
    int64_t every_ms;
};
void pool_each_followed(size_t n, const struct pool_follow *by, void *ctx);

#endif
