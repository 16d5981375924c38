/* SPDX-License-Identifier: Apache-2.0 */
/* Finds figures out of line with their peers' of the same run, by the median and the median absolute deviation: one
 * bad GPU of eight cannot move these. Shared by controller and agents; core/base only. Pure; any thread. */
#ifndef GP_PEERS_H
#define GP_PEERS_H

#include "base/gp_base.h"

#define PEERS_MIN 4      /* with fewer a median means little */
#define PEERS_SHARE 0.08 /* sound GPUs of one node differ by little more than 5 % (binning, cooling) */
#define PEERS_MADS \
    3.5 /* and by this many deviations, each 1.4826 * MAD (a normal one's sigma): the usual
                           * bound of the modified z-score (Iglewicz and Hoaglin 1993) */

struct peers {
    double median, mad;
    size_t outliers;
};
/* Marks the values that are worse (below, with ceiling above) than the median by more than PEERS_SHARE of it
 * and PEERS_MADS deviations; better ones are never marked. False, with nothing marked: fewer than PEERS_MIN
 * values, or a median that is not positive. */
bool peers_compare(const double *v, size_t n, bool ceiling, bool *ret_outlier, struct peers *ret);

#endif
