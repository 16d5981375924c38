/* SPDX-License-Identifier: Apache-2.0 */
/* Median, median absolute deviation, quantiles. Pure; any thread. */
#include "base/gp_base.h"

#include "base/stats.h"

#include <math.h>

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* n > 0. Caller frees. */
static double *sorted(const double *v, size_t n) {
    double *s = xcalloc(n, sizeof *s);
    memcpy(s, v, n * sizeof *s);
    qsort(s, n, sizeof *s, by_value);
    return s;
}

double stats_median(const double *v, size_t n) {
    if (n == 0) return 0;
    GP_AUTO_FREE double *s = sorted(v, n);
    return n % 2 ? s[n / 2] : (s[n / 2 - 1] + s[n / 2]) / 2;
}

double stats_mad(const double *v, size_t n, double median) {
    if (n == 0) return 0;
    GP_AUTO_FREE double *away = xcalloc(n, sizeof *away);
    for (size_t i = 0; i < n; i++) away[i] = fabs(v[i] - median);
    return stats_median(away, n);
}

double stats_quantile(const double *v, size_t n, double share) {
    if (n == 0) return 0;
    GP_AUTO_FREE double *s = sorted(v, n);
    return s[(size_t)(share * (double)(n - 1))];
}
