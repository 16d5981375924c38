/* SPDX-License-Identifier: Apache-2.0 */
/* RunPod's replies as a hostile or broken server could send them: GPU types, prices, pods, errors. */
#include "base/gp_base.h"

#include "tests/fuzz/cloud_replies.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (home[0] == '\0') {
        fuzz_home();
        setenv("RUNPOD_API_KEY", "rpa_TEST", 1);
        setenv("RUNPOD_API_BASE_URL", "http://127.0.0.1:1", 1);
    }
    fuzz_provider(&provider_runpod,
                  "{name: far, nodes: 2, gpu: 'RTX 4090:1', limits: {ttl: 1h, unattended: accept}, "
                  "offers: [{provider: runpod}]}",
                  data, size);
    return 0;
}
