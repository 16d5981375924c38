/* SPDX-License-Identifier: Apache-2.0 */
/* Buckets of the gradient: large enough that a sum over the ranks outweighs its start, small enough that the first
 * is sent long before the last layer is done. Pure. */
#include "base/gp_base.h"

#include "train_bucket.h"

int bucket_plan(const struct mx_segment *segments, int n, size_t least, struct bucket *ret) {
    int count = 0;
    struct bucket b = {0};
    for (int i = 0; i < n; i++) {
        b.at = segments[i].at;
        b.n += segments[i].n;
        b.after = i;
        if (b.n < least && i + 1 < n) continue;
        ret[count++] = b;
        b.n = 0;
    }
    return count;
}
