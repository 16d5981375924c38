/* SPDX-License-Identifier: Apache-2.0 */
/* Exchange rates for prices of clouds that bill in another currency than USD. A converted price is used only for the
 * order of offers and for limits; the original is always shown beside it. Static data; any thread. */
#ifndef GP_MODEL_CURRENCY_H
#define GP_MODEL_CURRENCY_H

#include "base/gp_base.h"

extern const char *const currency_date;   /* of all rates: "2026-10-05" */
extern const char *const currency_source; /* "euro reference rates of the European Central Bank" */

/* USD for one unit of the currency of this ISO code; 1 for NULL, "" and "USD"; negative: not in the table. */
double currency_usd(const char *iso);
/* Code i of the table, and its units for one euro; NULL after the last. */
const char *currency_at(size_t i, double *ret_per_euro);

#endif
