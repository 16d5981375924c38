/* SPDX-License-Identifier: Apache-2.0 */
/* The table of exchange rates. A new table replaces all rows and the date, because rates of different days do not
 * belong together. */
#include "base/gp_base.h"

#include "model/currency.h"

/* The ECB publishes them each working day at about 16:00 CET, for information:
 * https://www.ecb.europa.eu/stats/eurofxref/eurofxref-daily.xml; the file of this day was read on 2026-11-23 from the
 * public archive github.com/vane/ecb-fx, data/2026/2026-10-05.xml. */
const char *const currency_date = "2026-10-05";
const char *const currency_source = "euro reference rates of the European Central Bank";

/* Units for one euro, as published. */
static const struct rate {
    const char *iso;
    double per_euro;
} rates[] = {
    {"EUR", 1},       {"USD", 1.1204},   {"JPY", 177.28}, {"CZK", 24.456},   {"DKK", 7.4745},  {"GBP", 0.84720},
    {"HUF", 367.80},  {"PLN", 4.3795},   {"RON", 5.3363}, {"SEK", 11.2525},  {"CHF", 0.9311},  {"ISK", 137.00},
    {"NOK", 10.7575}, {"TRY", 55.0755},  {"AUD", 1.6097}, {"BRL", 5.5849},   {"CAD", 1.5969},  {"CNY", 7.5118},
    {"HKD", 8.7925},  {"IDR", 20069.89}, {"ILS", 3.4310}, {"INR", 107.8915}, {"KRW", 1505.80}, {"MXN", 20.3348},
    {"MYR", 4.5791},  {"NZD", 2.0038},   {"PHP", 70.219}, {"SGD", 1.4344},   {"THB", 37.752},  {"ZAR", 18.6263},
};

static double per_euro(const char *iso) {
    for (size_t i = 0; i < GP_ARRAY_LEN(rates); i++)
        if (strcmp(rates[i].iso, iso) == 0) return rates[i].per_euro;
    return -1;
}

double currency_usd(const char *iso) {
    if (iso == NULL || iso[0] == '\0' || strcmp(iso, "USD") == 0) return 1;
    double units = per_euro(iso);
    return units > 0 ? per_euro("USD") / units : -1;
}

const char *currency_at(size_t i, double *ret_per_euro) {
    if (i >= GP_ARRAY_LEN(rates)) return NULL;
    *ret_per_euro = rates[i].per_euro;
    return rates[i].iso;
}
