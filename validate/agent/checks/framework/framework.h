/* SPDX-License-Identifier: Apache-2.0 */
/* A framework of Python that is checked by one step of training over all ranks. One thread; ranks call in lock-step. */
#ifndef GP_AGENT_FRAMEWORK_H
#define GP_AGENT_FRAMEWORK_H

#include "validate/agent/agent.h"

struct framework {
    const char *module;  /* "torch": of Python, and the name of its version in data */
    const char *program; /* its part after common.py */
    const char *trains;  /* "one step of training": for the message of a pass */
    const char *absent;  /* advice where there is none */
    const char *import;  /* advice where its import fails */
    const char *pin;     /* advice where nodes have different versions */
};
extern const struct framework framework_torch;

/* image: a container image of the context's engine; NULL: the context's Python. Skipped where no rank has the
 * framework. A verdict of each kind has the same code on all ranks. */
void framework_run(const struct framework *f, const char *image, struct check_ctx *c, struct agent_result *r);

/* The text of a file of this folder, ended by a zero. */
#define FRAMEWORK_FILE(name, file)                                   \
    extern const char name[];                                        \
    __asm__(".section .rodata\n"                                     \
            ".globl " #name "\n" #name ":\n"                         \
            ".incbin \"validate/agent/checks/framework/" file "\"\n" \
            ".byte 0\n"                                              \
            ".previous\n")

#endif
