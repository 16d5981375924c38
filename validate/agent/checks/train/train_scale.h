/* SPDX-License-Identifier: Apache-2.0 */
/* Dynamic loss scaling: fp16 gradients are computed times a power of two, so that small ones are not
 * lost; if one overflows, the step is left out and the scale halved. The decision depends only on the sum that all
 * ranks share, so all ranks decide alike. Pure. */
#ifndef GP_AGENT_TRAIN_SCALE_H
#define GP_AGENT_TRAIN_SCALE_H

#include <stdbool.h>

struct loss_scale {
    float scale; /* always 1 with bf16 */
    bool dynamic;
    int good, grow_after; /* steps since the last change; it grows after so many */
    int skipped;          /* steps left out so far */
    int streak;           /* of these, the current run without a step between */
};

#define LOSS_SCALE_FIRST 16777216.0f /* 2^24: too large on purpose, so that it falls in every run */
#define LOSS_SCALE_MAX 16777216.0f

void loss_scale_init(struct loss_scale *s, bool dynamic, int grow_after);
/* finite: the summed gradient is. True: take the step; false: leave it out. */
bool loss_scale_step(struct loss_scale *s, bool finite);
/* True if the scale cannot be halved further: a value that is not finite is then a fault. */
bool loss_scale_spent(const struct loss_scale *s);

#endif
