/* SPDX-License-Identifier: Apache-2.0 */
/* Compute Engine's replies as a hostile or broken server could send them: tokens, zones, types, quotas, machines, disks, firewall rules, errors. */
#include "base/gp_base.h"

#include "tests/fuzz/cloud_replies.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A user's: no key that signs, so that an input costs no signature. */
static void make_credentials(void) {
    static const char text[] = "{\"type\": \"authorized_user\", \"client_id\": \"c\", \"client_secret\": \"s\", "
                               "\"refresh_token\": \"r\"}";
    GP_AUTO_FREE char *path = fs_join(home, "adc.json");
    must(fs_write_atomic(path, text, sizeof text - 1, 0600, NULL) == 0, "no credentials", path);
    setenv("GOOGLE_APPLICATION_CREDENTIALS", path, 1);
    setenv("CLOUDSDK_CONFIG", home, 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (home[0] == '\0') {
        fuzz_home();
        setenv("CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE", "http://127.0.0.1:1/compute/v1/", 1);
        setenv("GOOGLE_CLOUD_PROJECT", "proj-1", 1);
        make_credentials();
    }
    fuzz_provider(&provider_google,
                  "{name: far, nodes: 2, gpu: 'L4:1', limits: {ttl: 1h, unattended: accept}, "
                  "offers: [{provider: google, regions: [us-central1]}]}",
                  data, size);
    return 0;
}
