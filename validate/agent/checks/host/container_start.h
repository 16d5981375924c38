/* SPDX-License-Identifier: Apache-2.0 */
/* Starts one container on this node for host.container. One thread. */
#ifndef GP_AGENT_CONTAINER_START_H
#define GP_AGENT_CONTAINER_START_H

#include <stdbool.h>
#include <stdint.h>

enum container_gpus {
    CONTAINER_PLAIN,   /* no GPU */
    CONTAINER_CDI,     /* the device nvidia.com/gpu=all */
    CONTAINER_RUNTIME, /* the NVIDIA runtime */
    CONTAINER_HOOK     /* docker run --gpus all */
};
struct container_try {
    int gpus;      /* /dev/nvidiaN in the container; -1: none started */
    char why[240]; /* the reason, if none started */
    bool no_root;  /* because its root folder could not be made */
};
/* engine: "docker", "podman" or "containerd". */
void container_start(const char *engine, enum container_gpus how, int64_t deadline_ms, struct container_try *ret);
/* Whether the engine's program takes CDI devices: by its version, and docker by what it reports. containerd has CDI for
 * Kubernetes since 1.7, but its program ctr only since 2.0. */
bool container_has_cdi(const char *engine, int64_t deadline_ms);
bool container_has_runtime(const char *engine, int64_t deadline_ms); /* the NVIDIA runtime */

#endif
