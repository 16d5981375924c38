/* SPDX-License-Identifier: Apache-2.0 */
/* The cloud's clock, as its replies show it: signatures and deadlines are made by it. One thread per provider. */
#ifndef GP_COMMON_CLOUD_CLOCK_H
#define GP_COMMON_CLOUD_CLOCK_H

#include "providers/http.h"
#include "providers/provider.h"

int64_t cloud_now_s(const struct provider *p); /* wall */
/* Takes over what a reply's Date shows; a difference of two seconds or less is none. */
void cloud_clock_set(struct provider *p, const struct http_resp *resp);
/* Whether the difference has changed so much since it was skew_s that a refusal of our clock may pass now. */
bool cloud_clock_moved(const struct provider *p, int64_t skew_s);

#endif
