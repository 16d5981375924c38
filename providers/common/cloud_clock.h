/* SPDX-License-Identifier: Apache-2.0 */
/* The cloud's clock, from the Date of its replies: signatures and deadlines use it. One thread per provider. */
#ifndef GP_COMMON_CLOUD_CLOCK_H
#define GP_COMMON_CLOUD_CLOCK_H

#include "providers/http.h"
#include "providers/provider.h"

int64_t cloud_now_s(const struct provider *p); /* wall */
/* Sets the skew from the Date of a reply that is known to be the cloud's own; a difference of two seconds or less
 * counts as none. */
void cloud_clock_set(struct provider *p, const struct http_resp *resp);
/* True if the skew has changed so much since skew_s that a request refused for its time may now succeed. */
bool cloud_clock_moved(const struct provider *p, int64_t skew_s);

#endif
