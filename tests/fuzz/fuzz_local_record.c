/* SPDX-License-Identifier: Apache-2.0 */
/* What lies in the state folder of the local provider, what its holder answers and what it is asked: the same JSON for
 * each decoder. Words become paths and numbers pids, so both have their form. */
#include "base/gp_base.h"

#include "base/clock.h"
#include "base/form.h"
#include "providers/local/decode.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool holds) {
    if (!holds) abort();
}

static bool is_time(int64_t s) { return s > 0 && s <= CLOCK_WALL_MAX_S; }

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    GP_AUTO_JSON json_t *j = json_loadb((const char *)data, size, JSON_DECODE_ANY, NULL);
    struct gp_error err = {0};
    struct local_claim claim = {0};
    if (local_decode_claim(j, "claim.json", &claim, &err) == 0)
        must(form_uid(claim.uid) && form_stack(claim.name) && is_time(claim.created_s) && is_time(claim.expires_s));
    local_claim_clear(&claim);
    gp_error_clear(&err);
    struct local_record record = {0};
    (void)local_decode_record(j, &record);
    struct holder_config start = {0};
    if (local_decode_start(j, &start, &err) == 0)
        must(start.base[0] == '/' && form_uid(start.uid) && is_time(start.created_s) && is_time(start.expires_s));
    free(start.base);
    free(start.uid);
    free(start.name);
    strv_clear(&start.indexes);
    gp_error_clear(&err);
    struct local_seen seen = {0};
    if (local_decode_node(j, "0123456789abcdef", &seen, &err) == 0)
        must(str_starts(seen.id, "local-0123456789abcdef-") && strchr(seen.id, '/') == NULL && seen.slot >= 0);
    gp_error_clear(&err);
    struct local_wanted wanted = {0};
    if (local_decode_wanted(j, &wanted, &err) == 0)
        must(wanted.slot_first >= 0 && wanted.slot_count > 0 && wanted.gpus >= 0 && wanted.attempt >= 0);
    return 0;
}
