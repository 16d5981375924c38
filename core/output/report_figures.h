/* SPDX-License-Identifier: Apache-2.0 */
/* Inside core/output: the plots of a report, from the checks' data. */
#ifndef GP_OUTPUT_REPORT_FIGURES_H
#define GP_OUTPUT_REPORT_FIGURES_H

#include "base/str.h"
#include "model/report.h"

/* Appends one <figure> per plot that the report has data for: rates per GPU beside the model's
 * reference, bus bandwidth over message size, loss, time per step and rank, rates under stress. Data of
 * another shape than expected is left out of the plots; the tables have every figure. */
void report_figures(const struct report *r, struct str *out);

#endif
