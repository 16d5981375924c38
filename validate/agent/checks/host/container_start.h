/* SPDX-License-Identifier: Apache-2.0 */
/* Starts one container on this node for host.container. One thread. */
#ifndef GP_AGENT_CONTAINER_START_H
#define GP_AGENT_CONTAINER_START_H

#include "validate/agent/base/engine.h"

struct container_try {
    int gpus;      /* /dev/nvidiaN in the container; -1: none started */
    char why[240]; /* the reason, if none started */
    bool no_root;  /* because its root folder could not be made */
};
/* engine: "docker", "podman" or "containerd". */
void container_start(const char *engine, enum container_gpus how, int64_t deadline_ms, struct container_try *ret);

#endif
