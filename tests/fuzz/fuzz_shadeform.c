/* SPDX-License-Identifier: Apache-2.0 */
/* Shadeform's replies as a hostile or broken server could send them: types, instances, keys, errors. */
#include "base/gp_base.h"

#include "tests/fuzz/cloud_replies.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (home[0] == '\0') {
        fuzz_home();
        setenv("SHADEFORM_API_KEY", "key", 1);
        setenv("GPUPROV_SHADEFORM_ENDPOINT", "http://127.0.0.1:1", 1);
        setenv("GPUPROV_SHADEFORM_PACE_MS", "0", 1);
    }
    fuzz_provider(&provider_shadeform,
                  "{name: far, nodes: 2, gpu: 'A6000:1', limits: {ttl: 1h, unattended: accept}, "
                  "offers: [{provider: shadeform, regions: [hyperstack.canada-1]}]}",
                  data, size);
    return 0;
}
