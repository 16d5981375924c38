/* SPDX-License-Identifier: Apache-2.0 */
/* agent_kind.watch of gpuprov-agent-cuda. */
#ifndef GP_AGENT_WATCH_CUDA_H
#define GP_AGENT_WATCH_CUDA_H

#include "base/gp_base.h"

struct watch_opts;

/* Sends struct watch_msg (watch.h) to `out` once a period until nobody reads them, or one WATCH_BLIND. When `in` has
 * something it looks once more and returns. Blocks; runs in a worker process. */
void watch_gpu_cuda(int gpu, const struct watch_opts *opts, int in, int out);

#endif
