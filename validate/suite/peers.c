/* SPDX-License-Identifier: Apache-2.0 */
/* Outliers by the median absolute deviation. Does not judge checks: limits.c does over the GPUs of a
 * node, the controller over all nodes (peers_nodes.c). Pure; any thread. */
#include "base/gp_base.h"

#include "peers.h"

#include "base/stats.h"

bool peers_compare(const double *v, size_t n, bool ceiling, bool *ret_outlier, struct peers *ret) {
    for (size_t i = 0; i < n; i++) ret_outlier[i] = false;
    if (n < PEERS_MIN) return false;
    double median = stats_median(v, n), mad = stats_mad(v, n, median);
    if (!(median > 0)) return false;
    double bound = GP_MAX(PEERS_SHARE * median, PEERS_MADS * 1.4826 * mad);
    *ret = (struct peers){.median = median, .mad = mad};
    for (size_t i = 0; i < n; i++) {
        ret_outlier[i] = (ceiling ? v[i] - median : median - v[i]) > bound;
        ret->outliers += ret_outlier[i];
    }
    return true;
}
