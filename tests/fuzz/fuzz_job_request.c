/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as a job's request and as its state on the disk: what is taken is within its limits, and
 * written again it is the same. */
#include "base/gp_base.h"

#include "validate/agent/job/job_json.c"
#include "validate/agent/job/job_request.c"
#include "validate/agent/job/job_state.c"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void request(const char *data, size_t size) {
    GP_CLEANUP(job_request_clear) struct job_request q = {0}, again = {0};
    GP_AUTO_STR struct str s = {0}, second = {0};
    if (job_request_parse(data, size, &q, NULL) != 0) return;
    if (!job_id_ok(q.id) || q.rank >= q.ranks || q.run == NULL || q.env.n % 2 != 0) abort();
    job_request_json(&q, &s);
    if (job_request_parse(s.s, s.len, &again, NULL) != 0) abort();
    job_request_json(&again, &second);
    if (!str_eq(s.s, second.s)) abort();
}

static void kept_state(const char *data, size_t size) {
    struct job_state st, again;
    GP_AUTO_STR struct str s = {0}, second = {0};
    if (job_state_parse(data, size, &st, NULL) != 0) return;
    job_state_json(&st, -1, &s);
    if (job_state_parse(s.s, s.len, &again, NULL) != 0) abort();
    job_state_json(&again, -1, &second);
    if (!str_eq(s.s, second.s)) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    request((const char *)data, size);
    kept_state((const char *)data, size);
    return 0;
}
