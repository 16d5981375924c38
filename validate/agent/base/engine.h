/* SPDX-License-Identifier: Apache-2.0 */
/* Container engines of the node: how their programs are called, and how a container gets the GPUs. Linux; any
 * thread. */
#ifndef GP_AGENT_ENGINE_H
#define GP_AGENT_ENGINE_H

#include "base/str.h"

#include <stdbool.h>
#include <stdint.h>

/* An engine is "docker", "podman" or "containerd". */
enum container_gpus {
    CONTAINER_PLAIN,   /* no GPU */
    CONTAINER_CDI,     /* the device nvidia.com/gpu=all */
    CONTAINER_RUNTIME, /* the NVIDIA runtime */
    CONTAINER_HOOK     /* docker run --gpus all */
};
/* The beginning of a command line: the path of the engine's program, behind sudo where this process is not root. False:
 * there is no such program. */
bool engine_program(struct strv *to, const char *engine);
/* Options of `run` for the GPUs. */
void engine_gpu_words(struct strv *to, const char *engine, enum container_gpus how);
/* A CDI file that describes nvidia.com/gpu; caller frees. NULL: none. */
char *engine_cdi_file(void);
/* Whether containers of this engine can have GPUs at all; by which way. */
bool engine_way_to_gpus(const char *engine, bool cdi_file, int64_t deadline_ms, enum container_gpus *ret);

#endif
