/* SPDX-License-Identifier: Apache-2.0 */
/* Dynamic loss scaling. Pure. */
#include "base/gp_base.h"

#include "train_scale.h"

void loss_scale_init(struct loss_scale *s, bool dynamic, int grow_after) {
    *s = (struct loss_scale){.scale = dynamic ? LOSS_SCALE_FIRST : 1.0f, .dynamic = dynamic, .grow_after = grow_after};
}

bool loss_scale_step(struct loss_scale *s, bool finite) {
    if (!finite) {
        s->good = 0;
        s->skipped++;
        s->streak++;
        if (s->dynamic && s->scale > 1.0f) s->scale = s->scale * 0.5f;
        return false;
    }
    s->streak = 0;
    if (s->dynamic && ++s->good >= s->grow_after) {
        s->good = 0;
        s->scale = GP_MIN(s->scale * 2.0f, LOSS_SCALE_MAX);
    }
    return true;
}

bool loss_scale_spent(const struct loss_scale *s) { return !s->dynamic || s->scale <= 1.0f; }
