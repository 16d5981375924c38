/* SPDX-License-Identifier: Apache-2.0 */
/* Variables of the steps of the network between nodes: EFA, and GPUs with InfiniBand or RoCE. No I/O; the node's own
 * thread. */
#include "base/gp_base.h"

#include "bootstrap/steps.h"

#define EFA_URL "https://efa-installer.amazonaws.com"
/* AWS publishes it in the EC2 user guide, "Get started with EFA and NCCL". */
#define EFA_FINGERPRINT "4E9091BCBB97A96B26B15E59A05480B1DD2D3CCC"

bool boot_wants_efa(const struct boot *b) {
    enum spec_fabric f = b->req->spec->fabric;
    return f == FABRIC_EFA || f == FABRIC_AUTO;
}

bool boot_wants_rdma(const struct boot *b) {
    enum spec_fabric f = b->req->spec->fabric;
    return f == FABRIC_INFINIBAND || f == FABRIC_AUTO;
}

void boot_fabric_vars(const struct boot *b, const struct boot_item *it GP_UNUSED, struct str *out) {
    boot_var(out, "FABRIC", spec_fabric_names[b->req->spec->fabric]);
    boot_var(out, "URL", EFA_URL);
    boot_var(out, "FINGERPRINT", EFA_FINGERPRINT);
}
