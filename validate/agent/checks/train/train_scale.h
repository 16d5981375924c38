/* SPDX-License-Identifier: Apache-2.0 */
/* Dynamic loss scaling: fp16 gradients are computed times a power of two, so that small ones are not
 * lost; where one overflows, the step is left out and the scale halved. The decision is made of the sum
 * that all ranks share, so all ranks make the same one. Pure. */
#ifndef GP_AGENT_TRAIN_SCALE_H
#define GP_AGENT_TRAIN_SCALE_H

#include <stdbool.h>

struct loss_scale {
    float scale; /* 1 with bf16, for good */
    bool dynamic;
    int good, grow_after; /* steps since the last change; how many make it grow */
    int skipped;          /* steps left out so far */
    int streak;           /* of them, without a step between */
};

#define LOSS_SCALE_FIRST 16777216.0f /* 2^24: too large on purpose, so that every run sees it fall */
#define LOSS_SCALE_MAX 16777216.0f

void loss_scale_init(struct loss_scale *s, bool dynamic, int grow_after);
/* finite: the summed gradient is. True: take the step; false: leave it out. */
bool loss_scale_step(struct loss_scale *s, bool finite);
/* Nothing is left to halve: what is not finite now is a fault. */
bool loss_scale_spent(const struct loss_scale *s);

#endif
