/* SPDX-License-Identifier: Apache-2.0 */
/* Azure's replies as a hostile or broken server could send them: tokens, sizes, prices, quotas, machines, networks, errors. */
#include "base/gp_base.h"

#include "tests/fuzz/cloud_replies.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (home[0] == '\0') {
        fuzz_home();
        setenv("AZURE_TENANT_ID", "11111111-1111-1111-1111-111111111111", 1);
        setenv("AZURE_CLIENT_ID", "22222222-2222-2222-2222-222222222222", 1);
        setenv("AZURE_CLIENT_SECRET", "secret", 1);
        setenv("AZURE_SUBSCRIPTION_ID", "33333333-3333-3333-3333-333333333333", 1);
        setenv("AZURE_AUTHORITY_HOST", "http://127.0.0.1:1", 1);
        setenv("GPUPROV_AZURE_ENDPOINT", "http://127.0.0.1:1", 1);
        setenv("GPUPROV_AZURE_PRICES_ENDPOINT", "http://127.0.0.1:1", 1);
    }
    fuzz_provider(&provider_azure,
                  "{name: far, nodes: 2, gpu: 'T4:1', limits: {ttl: 1h, unattended: accept}, "
                  "offers: [{provider: azure, regions: [eastus]}]}",
                  data, size);
    return 0;
}
