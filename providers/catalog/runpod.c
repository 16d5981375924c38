/* SPDX-License-Identifier: Apache-2.0 */
/* GPUs that RunPod rents, by the names that a spec may have: GPU types of its API on 2026-02-12 and short names of
 * those with a common form. The API has their ids, prices and stock; this list serves 'gpuprov check', which asks no
 * cloud. Pure. */
#include "base/gp_base.h"

#include "providers/catalog/catalog.h"

const char *const catalog_runpod_gpus[] = {
    "A100",        "A100 PCIe",      "A100 SXM",     "A100-80GB",    "A30",
    "A40",         "B200",           "B300",         "H100",         "H100 NVL",
    "H100 PCIe",   "H100 SXM",       "H200",         "H200 NVL",     "L4",
    "L40",         "L40S",           "RTX 2000 Ada", "RTX 3070",     "RTX 3080",
    "RTX 3080 Ti", "RTX 3090",       "RTX 3090 Ti",  "RTX 4000 Ada", "RTX 4070 Ti",
    "RTX 4080",    "RTX 4080 SUPER", "RTX 4090",     "RTX 5000 Ada", "RTX 5080",
    "RTX 5090",    "RTX 6000 Ada",   "RTX A2000",    "RTX A4000",    "RTX A4500",
    "RTX A5000",   "RTX A6000",      "RTX PRO 4500", "RTX PRO 6000", "V100",
    NULL};
