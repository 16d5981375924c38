/* SPDX-License-Identifier: Apache-2.0 */
/* What an agent may send: the input is cut into lines and fed to a stream. Whatever comes, every check
 * ends with a result, and one without a complete result line of its own is not a pass. */
#include "base/gp_base.h"

#include "base/json.h"
#include "spec/spec.h"
#include "validate/lines.h"
#include "validate/validate.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static size_t results_told;

static void told(void *ctx, const struct check_info *info, struct check_result *r) {
    const struct spec *spec = ctx;
    (void)info;
    if (!r) return;
    results_told++;
    validate_apply_floors(spec, r);
    GP_AUTO_JSON json_t *j = check_result_to_json(r);
    if (!j) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const struct spec spec = {0};
    const struct check_info *checks[] = {check_find("host.disk"), check_find("host.clock"), check_find("train.ddp")};
    struct agent_stream s;
    agent_stream_init(&s, checks, GP_ARRAY_LEN(checks));
    s.told = told;
    s.ctx = (void *)(uintptr_t)&spec;
    results_told = 0;
    const char *p = (const char *)data, *end = p + size;
    while (p < end) {
        const char *nl = memchr(p, '\n', (size_t)(end - p));
        size_t n = (size_t)((nl ? nl : end) - p);
        if (!agent_stream_line(&s, false, p, n)) break;
        p += n + 1;
    }
    size_t had = results_told;
    agent_stream_finish(&s, "the input ended");
    size_t passed = 0;
    for (size_t i = 0; i < s.checks.len; i++) {
        if (s.checks.items[i].state != AGENT_CHECK_DONE) abort();
        passed += s.checks.items[i].result.verdict == VERDICT_PASS;
    }
    if (passed > had || results_told < s.checks.len || (passed && (!s.ended || s.bad.code))) abort();
    agent_stream_clear(&s);
    return 0;
}
