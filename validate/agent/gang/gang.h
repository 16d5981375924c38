/* SPDX-License-Identifier: Apache-2.0 */
/* What the gang checks share: gathering small records, and how a broken communicator is told. */
#ifndef GP_AGENT_GANG_H
#define GP_AGENT_GANG_H

#include "validate/agent/agent.h"

void net_pair_run(struct check_ctx *c, struct agent_result *r);
void train_run(struct check_ctx *c, struct agent_result *r);
void framework_torch_run(struct check_ctx *c, struct agent_result *r);
void framework_images_run(struct check_ctx *c, struct agent_result *r);
void framework_deepspeed_run(struct check_ctx *c, struct agent_result *r);
void framework_horovod_run(struct check_ctx *c, struct agent_result *r);
void train_conclude(struct check_ctx *c, struct agent_result *r);

/* The communicator (or this rank's device) failed: verdict fail, blaming whom err blames, or this rank
 * when `own`; at the deadline error. The check must return; the rank aborts the communicator with this reason. */
void gang_broken(struct check_ctx *c, struct agent_result *r, const struct gp_error *err, bool own);
/* Error: the deadline passed; done: how far the check came. */
void gang_too_late(struct check_ctx *c, struct agent_result *r, const char *done);
/* Error, if a peer was silent for once as long as would be a fault the second time. */
void gang_stalled(struct check_ctx *c, struct agent_result *r);
/* All ranks' records of n bytes, in rank order. False: gang_broken was called. */
bool gang_gather(struct check_ctx *c, struct agent_result *r, const void *own, void *all, size_t n);
bool gang_broadcast(struct check_ctx *c, struct agent_result *r, void *p, size_t n, int root);
bool gang_barrier(struct check_ctx *c, struct agent_result *r);
double gang_now_s(void);
/* All ranks tell each other where they are (c->who). False: c->comm_err is set. */
bool gang_meet(struct check_ctx *c, int node);
/* Before the first check that is about GPUs: opens this rank's GPU and meets the others over NCCL, when
 * all have both; else sets c->no_gpu, and device and communicator stay the host's. All ranks call it. */
void gang_open_gpus(struct check_ctx *c);
void gang_close_gpus(struct check_ctx *c, const char *reason, int culprit);
bool gang_has_gpus(const struct check_ctx *c); /* some rank was given a GPU */
/* "rank 5 (node-b, gpu 3)" */
void gang_name(const struct check_ctx *c, int rank, char *dst, size_t n);
/* Where a check computed, for people: "the CPU, no GPU took part" or "cuda". */
const char *gang_device_text(const struct device_ops *ops);
/* The same for programs: data.device is "host" or "cuda". */
void gang_say_device(struct agent_result *r, const struct device_ops *ops);
/* 64 bits that any change of a bit changes with near certainty. Not against malice. */
uint64_t gang_hash(const void *p, size_t n);

/* Known-answer all-reduce over several sizes (known_answer.c). False: the check must return. */
bool known_answer_run(struct check_ctx *c, struct agent_result *r);

#endif
