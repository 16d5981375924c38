/* SPDX-License-Identifier: Apache-2.0 */
/* Alibaba Cloud's replies as a hostile or broken server could send them: regions, types, prices, machines, networks, errors. */
#include "base/gp_base.h"

#include "tests/fuzz/cloud_replies.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (home[0] == '\0') {
        fuzz_home();
        setenv("ALIBABA_CLOUD_ACCESS_KEY_ID", "LTAItest", 1);
        setenv("ALIBABA_CLOUD_ACCESS_KEY_SECRET", "secret", 1);
        setenv("ALIBABA_CLOUD_REGION_ID", "ap-southeast-1", 1);
        setenv("ALIBABA_CLOUD_ECS_METADATA_DISABLED", "true", 1);
        setenv("GPUPROV_ALIBABA_ENDPOINT", "http://127.0.0.1:1", 1);
        setenv("GPUPROV_ALIBABA_METADATA", "http://127.0.0.1:1", 1);
    }
    fuzz_provider(&provider_alibaba,
                  "{name: far, nodes: 2, gpu: 'T4:1', limits: {ttl: 1h, unattended: accept}, "
                  "offers: [{provider: alibaba, regions: [ap-southeast-1]}]}",
                  data, size);
    return 0;
}
