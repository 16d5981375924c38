/* SPDX-License-Identifier: Apache-2.0 */
/* Lambda's replies as a hostile or broken server could send them: regions, types, images, instances, keys, errors. */
#include "base/gp_base.h"

#include "tests/fuzz/cloud_replies.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (home[0] == '\0') {
        fuzz_home();
        setenv("LAMBDA_API_KEY", "secret-key", 1);
        setenv("GPUPROV_LAMBDA_ENDPOINT", "http://127.0.0.1:1", 1);
        setenv("GPUPROV_LAMBDA_PACE_MS", "0", 1);
    }
    fuzz_provider(&provider_lambda,
                  "{name: far, nodes: 2, gpu: 'A10:1', limits: {ttl: 1h, unattended: accept}, "
                  "offers: [{provider: lambda, regions: [us-east-1]}]}",
                  data, size);
    return 0;
}
