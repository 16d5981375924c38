/* SPDX-License-Identifier: Apache-2.0 */
/* OpenStack's replies as a hostile or broken server could send them: token and catalogue, flavors, images, networks,
 * servers, key pairs, groups, addresses, errors. */
#include "base/gp_base.h"

#include "tests/fuzz/cloud_replies.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (home[0] == '\0') {
        fuzz_home();
        setenv("OS_AUTH_URL", "http://127.0.0.1:1/v3", 1);
        setenv("OS_USERNAME", "gpu", 1);
        setenv("OS_PASSWORD", "secret", 1);
        setenv("OS_USER_DOMAIN_NAME", "Default", 1);
        setenv("OS_PROJECT_DOMAIN_NAME", "Default", 1);
        setenv("OS_PROJECT_NAME", "project", 1);
        setenv("OS_REGION_NAME", "one", 1);
    }
    fuzz_provider(&provider_openstack,
                  "{name: far, nodes: 2, gpu: 'H100:1', limits: {ttl: 1h, unattended: accept}, "
                  "offers: [{provider: openstack, image: {id: tiny}}]}",
                  data, size);
    return 0;
}
