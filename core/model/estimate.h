/* SPDX-License-Identifier: Apache-2.0 */
/* GPU hours, time and cost of a training. Computed by engine/estimate. */
#ifndef GP_MODEL_ESTIMATE_H
#define GP_MODEL_ESTIMATE_H

#include "base/gp_base.h"

struct estimate {
    const char *missing; /* what is not known, static; then the numbers are 0. NULL: all is known */
    char gpu[80];        /* the model whose rate counts; "": not known */
    int gpus;            /* of the whole stack */
    double operations, mfu, tflops;
    const char *source; /* of the MFU, static; NULL: the spec */
    double gpu_hours, hours;
    double usd; /* negative: not known */
};

#endif
