/* SPDX-License-Identifier: Apache-2.0 */
/* Statistics of measured values: the only definitions in this program. None changes v; values are finite.
 * Pure; any thread. */
#ifndef GP_STATS_H
#define GP_STATS_H

#include "base/gp_base.h"

/* The median: the middle sorted value; for an even number of values the mean of the middle two. 0 when n is 0. */
double stats_median(const double *v, size_t n);
/* The median absolute deviation: the median of the values' distances from `median`. 0 when n is 0. */
double stats_mad(const double *v, size_t n, double median);
/* The measured value at a share (0 to 1) of the sorted values: index floor(share * (n - 1)).
 * 0 is the least, 1 the greatest; 0.5 is the lower one of the middle two where the median is their mean.
 * 0 when n is 0. */
double stats_quantile(const double *v, size_t n, double share);

#endif
