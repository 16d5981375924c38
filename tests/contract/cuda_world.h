/* SPDX-License-Identifier: Apache-2.0 */
/* What contract tests of the CUDA device share: the parts of the agent that are not linked, and the stand-ins for
 * NVIDIA's libraries. Each test program is one file, so the definitions are here. */
#ifndef GP_TESTS_CUDA_WORLD_H
#define GP_TESTS_CUDA_WORLD_H

#include "validate/agent/cuda/cuda.h"

#include "base/clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

/* What the stand-in takes for a fatbin: its magic number. A build with a toolkit links the real ones. */
#ifdef NO_FATBINS
static const _Alignas(16) unsigned char image[16] = {0x50, 0xed, 0x55, 0xba};
const struct cuda_fatbin cuda_fatbins[] = {{13000, image}, {0, NULL}};
#endif

/* The agent's main.c is not linked: the checks' own needs. */
const struct agent_kind agent_kind = {
    .name = "test", .device = &device_cuda, .identify = cuda_identify, .device_kind = cuda_device_kind};

/* B/tests/contract/NAME uses B/tests/standin, unless GPUPROV_LIBRARY_PATH is set. */
static inline void use_standins(const char *program) {
    GP_AUTO_FREE char *folder = xasprintf("%.*s/../standin", (int)(strrchr(program, '/') - program), program);
    setenv("GPUPROV_LIBRARY_PATH", folder, 0);
}

#endif
