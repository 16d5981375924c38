/* SPDX-License-Identifier: Apache-2.0 */
/* The clock that gc compares deadlines with: the cloud's, if this machine's or another cloud's agrees with it; else
 * the earlier of the two. Nothing is destroyed before its deadline then, and a node is kept at most by the difference.
 */
#include "base/gp_base.h"

#include "engine/gc/gc_clock.h"

#include "base/str.h"

void gc_clocks_add(struct gc_clocks *c, const char *provider, int64_t skew_s) {
    for (size_t i = 0; i < c->list.len; i++)
        if (str_eq(c->list.items[i].provider, provider)) return;
    struct gc_clock one = {.provider = provider, .skew_s = skew_s};
    vec_push(&c->list, one);
}

static bool agree(int64_t a_s, int64_t b_s) {
    int64_t early_s = GP_MIN(a_s, b_s), late_s = GP_MAX(a_s, b_s);
    return late_s <= early_s + GC_CLOCKS_AGREE_S;
}

bool gc_clock_is_sure(const struct gc_clocks *c, const char *provider, int64_t skew_s) {
    bool sure = agree(skew_s, 0);
    for (size_t i = 0; i < c->list.len && !sure; i++) {
        const struct gc_clock *other = &c->list.items[i];
        sure = !str_eq(other->provider, provider) && agree(skew_s, other->skew_s);
    }
    return sure;
}

struct gc_time gc_time_of(const struct gc_clocks *c, const char *provider, int64_t skew_s, int64_t local_s) {
    int64_t cloud_s = local_s + skew_s;
    if (gc_clock_is_sure(c, provider, skew_s)) return (struct gc_time){cloud_s, cloud_s};
    return (struct gc_time){GP_MIN(cloud_s, local_s), GP_MAX(cloud_s, local_s)};
}
