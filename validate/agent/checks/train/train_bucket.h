/* SPDX-License-Identifier: Apache-2.0 */
/* Buckets: the parts of the gradient that are summed over the ranks in one call. Pure. */
#ifndef GP_AGENT_TRAIN_BUCKET_H
#define GP_AGENT_TRAIN_BUCKET_H

#include "train_gpt.h"

struct bucket {
    size_t at, n; /* elements */
    int after;    /* complete with this segment */
};

/* segments: in the order of completion, each ending where the one before it began. A bucket is a run of them with at
 * least `least` elements (the last may have fewer). ret has room for n; returns the number of buckets. */
int bucket_plan(const struct mx_segment *segments, int n, size_t least, struct bucket *ret);

#endif
