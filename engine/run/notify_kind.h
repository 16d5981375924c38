/* SPDX-License-Identifier: Apache-2.0 */
/* Which events are worth a notification. Pure. */
#ifndef GP_ENGINE_NOTIFY_KIND_H
#define GP_ENGINE_NOTIFY_KIND_H

#include "model/event.h"
#include "spec/spec_notify.h"

/* The kind of an event, by the one table of them; NOTIFY_NONE: it is not sent. Ready nodes, the end of a
 * job that succeeded, money and the deadline have no event: notify_fact, engine_job_ended and notify_limits send
 * those. */
enum notify_kind notify_kind_of(const struct event *e);

/* Whether the deadline is near: a tenth of the ttl is left, or 15 minutes where that is more, but not before half of
 * the stack's life is over. Times in wall seconds; expires_s 0: there is none. False once it has passed. */
bool notify_deadline_near(int64_t ttl_s, int64_t created_s, int64_t expires_s, int64_t now_s);
/* Whether 80 % of the limit are spent. usd negative: not known; limit in millionths of a USD, 0: none. */
bool notify_spent_most(double usd, int64_t limit);

#endif
