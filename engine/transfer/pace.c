/* SPDX-License-Identifier: Apache-2.0 */
/* Two allowances of waiting time, which progress fills up again. Pure; any thread. */
#include "base/gp_base.h"

#include "engine/transfer/pace.h"

#define MS_MOST ((uint64_t)1 << 60)

/* Of all work so far, so that no remainder is lost. */
static uint64_t stall_worth_ms(const struct tree_work *w) {
    return w->bytes * (PACE_STALL_MS / PACE_STALL_BYTES) + w->entries * 2000 + w->hashed / 512;
}

static uint64_t end_worth_ms(const struct tree_work *w) {
    return w->bytes / PACE_END_RATE + w->entries + w->hashed / 16000;
}

static int64_t more(uint64_t now, uint64_t before) { return now > before ? (int64_t)GP_MIN(now - before, MS_MOST) : 0; }

void pace_init(struct pace *p, bool endless) {
    *p = (struct pace){.stall_ms = PACE_STALL_MS, .end_ms = endless ? GP_NEVER : PACE_END_MS};
}

void pace_begin(struct pace *p) {
    p->stall_ms = PACE_STALL_MS;
    p->seen = (struct tree_work){0};
}

enum pace_fate pace_take(struct pace *p, int64_t waited_ms, const struct tree_work *so_far) {
    waited_ms = GP_MAX(waited_ms, (int64_t)0);
    int64_t fresh_ms = more(stall_worth_ms(so_far), stall_worth_ms(&p->seen));
    p->stall_ms = GP_MIN((int64_t)PACE_STALL_MS, p->stall_ms + fresh_ms) - waited_ms;
    if (p->end_ms != GP_NEVER) {
        int64_t end_ms = more(end_worth_ms(so_far), end_worth_ms(&p->seen));
        p->end_ms = GP_MIN((int64_t)MS_MOST, p->end_ms + end_ms) - waited_ms;
    }
    p->seen = *so_far;
    if (p->end_ms <= 0) return PACE_OVER;
    return p->stall_ms <= 0 ? PACE_STALLED : PACE_GOES_ON;
}

bool pace_progressed(const struct pace *p) { return stall_worth_ms(&p->seen) >= PACE_STALL_MS; }
