/* SPDX-License-Identifier: Apache-2.0 */
/* The values of the key bootstrap.fabric. Only data. */
#include "base/gp_base.h"

#include "spec/spec_fabric.h"

const char *const spec_fabric_names[] = {
    [FABRIC_NONE] = "none", [FABRIC_AUTO] = "auto", [FABRIC_EFA] = "efa", [FABRIC_INFINIBAND] = "infiniband", NULL};
