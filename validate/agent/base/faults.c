/* SPDX-License-Identifier: Apache-2.0 */
/* Faults on request, for tests only: this file is empty without -DGPUPROV_FAULTS, and the program that
 * has it is never embedded or installed. GPUPROV_FAULT="kind:rank:first step", several
 * joined by "+". */
#include "base/gp_base.h"

#include "validate/agent/agent.h"

#ifdef GPUPROV_FAULTS
static bool fault_is(const char *want, const char *kind, int rank, int step) {
    GP_AUTO_STRV struct strv parts = {0};
    int64_t at_rank = 0, at_step = 0;
    strv_split(&parts, want, ":");
    return parts.n == 3 && str_eq(parts.v[0], kind) && str_to_i64(parts.v[1], 0, 4096, &at_rank) &&
           str_to_i64(parts.v[2], 0, 1 << 20, &at_step) && rank == at_rank && step >= at_step;
}

bool agent_fault(const char *kind, int rank, int step) {
    const char *want = getenv("GPUPROV_FAULT");
    GP_AUTO_STRV struct strv all = {0};
    strv_split(&all, want != NULL ? want : "", "+");
    for (size_t i = 0; i < all.n; i++)
        if (fault_is(all.v[i], kind, rank, step)) return true;
    return false;
}
#else
typedef int agent_has_no_faults; /* a translation unit must not be empty */
#endif
