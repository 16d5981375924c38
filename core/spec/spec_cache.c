/* SPDX-License-Identifier: Apache-2.0 */
/* The values of the key bootstrap.cache. Only data. */
#include "base/gp_base.h"

#include "spec/spec_cache.h"

const char *const spec_cache_names[] = {[CACHE_NONE] = "none", [CACHE_FIRST_NODE] = "first-node", NULL};
