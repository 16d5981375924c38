// SPDX-License-Identifier: Apache-2.0
/* Clock skew between this machine and a cloud. */
#include "base/gp_base.h"

#include "providers/common/cloud_clock.h"

#include "base/clock.h"

#define SKEW_MIN_S 2    /* less is the latency of the reply */
#define MOVED_MIN_S 120 /* clouds refuse a signature from 5 minutes on */

int64_t cloud_now_s(const struct provider *p) { return clock_wall_s() + p->clock_skew_s; }

void cloud_clock_set(struct provider *p, const struct http_resp *resp) {
    if (resp->has_date) p->clock_skew_s = llabs(resp->date_skew_s) > SKEW_MIN_S ? resp->date_skew_s : 0;
}

bool cloud_clock_moved(const struct provider *p, int64_t skew_s) {
    return llabs(p->clock_skew_s - skew_s) > MOVED_MIN_S;
}
