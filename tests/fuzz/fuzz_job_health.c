/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as a line of the health watch, and of the file that keeps its findings: what is taken is kept and read
 * again as it is. */
#include "base/gp_base.h"

#include "validate/agent/job/job_health.c"
#include "validate/agent/job/job_json.c"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void line(const char *data, size_t size, bool numbered) {
    struct finding f, again;
    GP_AUTO_STR struct str s = {0}, second = {0};
    if (finding_parse(data, size, numbered, &f, NULL) != 0 || f.kind == FINDING_NONE) return;
    if (!numbered) f.n = 1;
    finding_json(&f, &s);
    if (s.len >= HEALTH_LINE_MAX || memchr(s.s, '\n', s.len) != NULL) abort();
    if (finding_parse(s.s, s.len, true, &again, NULL) != 0 || again.n != f.n) abort();
    finding_json(&again, &second);
    if (!str_eq(s.s, second.s)) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    line((const char *)data, size, false);
    line((const char *)data, size, true);
    return 0;
}
