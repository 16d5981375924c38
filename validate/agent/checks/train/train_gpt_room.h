/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by train_gpt.c and train_gpt_room.c: sizes of the scratch memory. */
#ifndef GP_AGENT_TRAIN_GPT_ROOM_H
#define GP_AGENT_TRAIN_GPT_ROOM_H

#include <stdint.h>

enum {
    MX_CHUNK = 128 /* rows that one partial column sum covers */,
    MX_FIGURES = 1 << 17 /* floats of scratch for sums and hashes */
};
static inline int64_t mx_chunks(int64_t rows) { return (rows + MX_CHUNK - 1) / MX_CHUNK; }

#endif
