/* SPDX-License-Identifier: Apache-2.0 */
/* Outliers by the median absolute deviation. Does not judge checks: the agent does over the GPUs of a
 * node (agent/gpu_peers.c), the controller over all nodes (peers_nodes.c). Pure; any thread. */
#include "base/gp_base.h"

#include "peers.h"

#include <math.h>

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

double peers_median(const double *v, size_t n) {
    GP_AUTO_FREE double *sorted = xcalloc(n, sizeof *sorted);
    memcpy(sorted, v, n * sizeof *sorted);
    qsort(sorted, n, sizeof *sorted, by_value);
    return n % 2 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2;
}

double peers_mad(const double *v, size_t n, double median) {
    GP_AUTO_FREE double *away = xcalloc(n, sizeof *away);
    for (size_t i = 0; i < n; i++) away[i] = fabs(v[i] - median);
    return peers_median(away, n);
}

bool peers_compare(const double *v, size_t n, bool ceiling, bool *ret_outlier, struct peers *ret) {
    for (size_t i = 0; i < n; i++) ret_outlier[i] = false;
    if (n < PEERS_MIN) return false;
    double median = peers_median(v, n), mad = peers_mad(v, n, median);
    if (!(median > 0)) return false;
    double bound = GP_MAX(PEERS_SHARE * median, PEERS_MADS * 1.4826 * mad);
    *ret = (struct peers){.median = median, .mad = mad};
    for (size_t i = 0; i < n; i++) {
        ret_outlier[i] = (ceiling ? v[i] - median : median - v[i]) > bound;
        ret->outliers += ret_outlier[i];
    }
    return true;
}
