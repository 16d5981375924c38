/* SPDX-License-Identifier: Apache-2.0 */
/* Figures of a long load: decay of the rate, dips of the clock, reasons for lower clocks. Uses no GPU. Pure. */
#include "base/gp_base.h"

#include "stress.h"

#include "base/stats.h"

static double mean_rate(const struct stress_sample *s, size_t n) {
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += s[i].rate;
    return n ? sum / (double)n : 0;
}

static double median_rate(const struct stress_sample *s, size_t n) {
    GP_AUTO_FREE double *v = xcalloc(n, sizeof *v);
    for (size_t i = 0; i < n; i++) v[i] = s[i].rate;
    return stats_median(v, n);
}

static void clocks(const struct stress_sample *s, size_t n, struct stress_figures *ret) {
    double *v = xcalloc(n, sizeof *v);
    size_t told = 0, dips = 0;
    for (size_t i = 0; i < n; i++)
        if (s[i].clock_mhz > 0) v[told++] = s[i].clock_mhz;
    ret->clocks_told = told > 0;
    if (told) {
        ret->clock = stats_median(v, told);
        for (size_t i = 0; i < told; i++) dips += v[i] < 0.8 * ret->clock;
        ret->dips = 100.0 * (double)dips / (double)told;
    }
    free(v);
}

void stress_figures(const struct stress_sample *s, size_t n, const struct stress_reasons *why,
                    struct stress_figures *ret) {
    *ret = (struct stress_figures){.hottest = -1, .power = -1};
    size_t warm = GP_MAX(n / 10, (size_t)2);
    if (n < warm + 4) return;
    const struct stress_sample *w = s + warm;
    size_t counted = n - warm, quarter = counted / 4;
    ret->told = true;
    ret->counted = counted;
    ret->rate = mean_rate(w, counted);
    size_t tenth = GP_MAX(counted / 10, (size_t)2);
    double first = mean_rate(w, quarter), second = mean_rate(w + quarter, quarter);
    double last = mean_rate(w + counted - quarter, quarter), end = mean_rate(w + counted - tenth, tenth);
    ret->decay = first > 0 ? GP_MIN(last, end) / first : 0;
    ret->late_fall = second > end ? 100 * (second - end) / second : 0;
    ret->settled = median_rate(w + counted / 2, counted - counted / 2);
    clocks(w, counted, ret);
    for (size_t i = 0; i < counted; i++) {
        ret->hottest = GP_MAX(ret->hottest, w[i].temperature_c);
        ret->power = GP_MAX(ret->power, w[i].power_w);
        if (w[i].reasons < 0) continue;
        ret->reasons_told = true;
        bool again = i > 0 && w[i - 1].reasons > 0 && (w[i - 1].reasons & why->hw) != 0;
        if ((w[i].reasons & why->hw_certain) != 0 || (again && (w[i].reasons & why->hw) != 0)) {
            ret->hw++;
            ret->hw_seen |= w[i].reasons & why->hw;
        }
        ret->sw_thermal += (w[i].reasons & why->sw_thermal) != 0;
        ret->power_cap += (w[i].reasons & why->power_cap) != 0;
    }
}

static void fold(struct stress_sample *to, const struct stress_sample *s, size_t n) {
    struct stress_sample all = s[0];
    double rate = 0, power = 0;
    for (size_t i = 0; i < n; i++) {
        rate += s[i].rate;
        power += s[i].power_w;
        all.clock_mhz = GP_MIN(all.clock_mhz, s[i].clock_mhz);
        all.temperature_c = GP_MAX(all.temperature_c, s[i].temperature_c);
        if (all.reasons >= 0 && s[i].reasons >= 0) all.reasons |= s[i].reasons;
    }
    all.rate = rate / (double)n;
    all.power_w = power / (double)n;
    *to = all;
}

size_t stress_thin(struct stress_sample *s, size_t n, size_t max) {
    size_t group = max ? (n + max - 1) / max : n, out = 0;
    for (size_t i = 0; group && i < n; i += group) fold(&s[out++], s + i, GP_MIN(group, n - i));
    return out;
}
