/* SPDX-License-Identifier: Apache-2.0 */
/* gpu.stress without a GPU: samples of a long load to figures and a verdict. Pure. */
#ifndef GP_AGENT_STRESS_H
#define GP_AGENT_STRESS_H

#include "validate/agent/agent.h"

/* One stretch of the load, about a quarter of a second. A value that was not reported is negative. */
struct stress_sample {
    double at_s, rate; /* since the load began; TFLOP/s */
    double clock_mhz, temperature_c, power_w;
    int64_t reasons; /* why clocks are lower, as NVML's bits (nvml_cuda.h); -1 */
};
/* The bits of `reasons` that fail, degrade, or are only reported. A bit of hw outside hw_certain counts only in a
 * sample that follows another with a hw reason. */
struct stress_reasons {
    int64_t hw, hw_certain, sw_thermal, power_cap;
};
struct stress_figures {
    bool told; /* there are samples after the warm-up */
    bool clocks_told, reasons_told;
    double rate, settled;          /* mean after the warm-up; median of its second half */
    double decay, late_fall;       /* last quarter (or tenth, if lower) over first; % from the second quarter to the
                                    * last tenth, 0 if it did not fall */
    double clock, dips;            /* median MHz; % of samples whose clock is under 80 % of it */
    double hottest, power;         /* max; negative: not reported */
    int hw, sw_thermal, power_cap; /* samples with such a reason */
    int64_t hw_seen;               /* which bits */
    size_t counted;                /* samples after the warm-up */
};
void stress_figures(const struct stress_sample *s, size_t n, const struct stress_reasons *why,
                    struct stress_figures *ret);
/* Averages neighbours until at most max are left (rates, powers: mean; clock: lowest; temperature:
 * highest; reasons: all). Returns how many. */
size_t stress_thin(struct stress_sample *s, size_t n, size_t max);

#endif
