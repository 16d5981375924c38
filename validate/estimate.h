/* SPDX-License-Identifier: Apache-2.0 */
/* GPU hours, time and cost of the training that the spec's `estimate` names: 6 x params x tokens operations at the
 * share of the GPU's dense BF16 rate (MFU) that the spec or the model table names. No limit follows from it. */
#ifndef GP_ENGINE_ESTIMATE_H
#define GP_ENGINE_ESTIMATE_H

#include "base/str.h"
#include "model/estimate.h"
#include "model/offer.h"
#include "spec/spec.h"

/* first: the offer of the nodes; NULL: none is needed, the spec's `gpu` counts. usd_per_h: of the stack; negative: not
 * known. False: the spec has no estimate. Pure. */
bool estimate_of(const struct spec *spec, const struct offer *first, double usd_per_h, struct estimate *ret);
/* One or two lines for the plan. ttl_ms: time until the deadline. */
void estimate_notes(const struct estimate *e, int64_t ttl_ms, struct strv *notes);

#endif
