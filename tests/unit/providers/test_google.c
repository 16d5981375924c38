/* SPDX-License-Identifier: Apache-2.0 */
/* Pure parts of the google provider: error codes and the forms that carry them, addresses that may get a secret, names,
 * GPUs, prices. */
#include "base/gp_base.h"

#include "providers/catalog/catalog.h"
#include "providers/google/google_int.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static const struct cloud_error *row(const char *code, const char *message) {
    struct cloud_said said = {code, message, ""};
    return cloud_error_find(google_errors, google_error_count, &said);
}

static void test_codes(void **state) {
    (void)state;
    static const struct {
        const char *code, *message;
        enum gp_code gp;
        enum gp_scope scope;
        enum cloud_class class;
    } want[] = {
        {"ZONE_RESOURCE_POOL_EXHAUSTED", "", GP_ECAPACITY, GP_SCOPE_ZONE, CLOUD_NO},
        {"ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS", "", GP_ECAPACITY, GP_SCOPE_ZONE, CLOUD_NO},
        {"NEW_CODE", "The zone does not have enough resources available", GP_ECAPACITY, GP_SCOPE_ZONE, CLOUD_NO},
        {"QUOTA_EXCEEDED", "Quota 'NVIDIA_L4_GPUS' exceeded", GP_EQUOTA, GP_SCOPE_REGION, CLOUD_NO},
        {"QUOTA_EXCEEDED", "Quota 'GPUS_ALL_REGIONS' exceeded", GP_EQUOTA, GP_SCOPE_PROVIDER, CLOUD_NO},
        {"quotaExceeded", "does not have enough resources", GP_EQUOTA, GP_SCOPE_REGION, CLOUD_NO},
        {"rateLimitExceeded", "", GP_ETHROTTLED, GP_SCOPE_REGION, CLOUD_SLOW},
        {"authError", "", GP_EAUTH, GP_SCOPE_PROVIDER, CLOUD_STALE},
        {"forbidden", "", GP_EAUTH, GP_SCOPE_PROVIDER, CLOUD_NO},
        {"forbidden", "The billing account for the owning project is disabled in state absent", GP_EMONEY,
         GP_SCOPE_PROVIDER, CLOUD_NO},
        {"invalid_grant", "Token must be a short-lived token (60 minutes)", GP_EAUTH, GP_SCOPE_PROVIDER, CLOUD_CLOCK},
        {"invalid_grant", "Invalid JWT Signature", GP_EAUTH, GP_SCOPE_PROVIDER, CLOUD_NO},
        {"alreadyExists", "", GP_EEXISTS, GP_SCOPE_NONE, CLOUD_NO},
        {"notFound", "The resource 'projects/p/zones/z/instances/i' was not found", GP_ENOTFOUND, GP_SCOPE_NONE,
         CLOUD_NO},
        {"notFound", "The resource 'projects/p/global/networks/default' was not found", GP_EUSAGE, GP_SCOPE_PROVIDER,
         CLOUD_NO},
        {"backendError", "", GP_EPROTO, GP_SCOPE_REGION, CLOUD_TROUBLE},
        {"NeverHeardOf", "", GP_EPROTO, GP_SCOPE_OFFER, CLOUD_NO},
    };
    for (size_t i = 0; i < GP_ARRAY_LEN(want); i++) {
        const struct cloud_error *is = row(want[i].code, want[i].message);
        if (is->gp != want[i].gp || is->scope != want[i].scope || is->class != want[i].class)
            fail_msg("%s: %s", want[i].code, want[i].message);
    }
}

static void test_forms_of_errors(void **state) {
    (void)state;
    static const struct {
        int status;
        const char *text, *code, *message;
    } want[] = {
        {403, "{\"error\":{\"code\":403,\"message\":\"m\",\"errors\":[{\"reason\":\"forbidden\"}]}}", "forbidden", "m"},
        {403, "{\"error\":{\"status\":\"PERMISSION_DENIED\",\"message\":\"m\"}}", "PERMISSION_DENIED", "m"},
        {403, "{\"error\":{\"status\":\"X\",\"details\":[{\"reason\":\"SERVICE_DISABLED\"}]}}", "SERVICE_DISABLED", ""},
        {400, "{\"error\":\"invalid_grant\",\"error_description\":\"d\"}", "invalid_grant", "d"},
        {500, "{\"error\":[]}", "", ""},
        {500, "[1]", "", ""},
        {400, "{\"error\":{\"errors\":5,\"message\":6}}", "", ""},
        /* that of an operation, in a reply that succeeded */
        {200, "{\"error\":{\"errors\":[{\"code\":\"QUOTA_EXCEEDED\"}]}}", "", ""},
    };
    for (size_t i = 0; i < GP_ARRAY_LEN(want); i++) {
        GP_AUTO_JSON json_t *json = json_loads(want[i].text, 0, NULL);
        struct http_resp resp = {.status = want[i].status};
        struct cloud_said said = {"", "", ""};
        assert_non_null(json);
        google_said(&resp, json, &said);
        assert_string_equal(said.code, want[i].code);
        assert_string_equal(said.message, want[i].message);
    }
}

static void test_addresses(void **state) {
    (void)state;
    static const char *const good[] = {
        "https://oauth2.googleapis.com/token", "http://127.0.0.1:8080/token", "http://localhost/x", "http://[::1]:1/",
        "https://iamcredentials.googleapis.com/v1/projects/-/serviceAccounts/a@p.example.com:generateAccessToken"};
    static const char *const bad[] = {"",
                                      "https://",
                                      "https:///x",
                                      "http://example.com/",
                                      "http://127.0.0.1.example.com/",
                                      "http://127.0.0.1@example.com/",
                                      "https://a@example.com/serviceAccounts/",
                                      "https://example.com/a b",
                                      "https://example.com/\r\nX: y",
                                      "file:///etc/passwd",
                                      "ftp://127.0.0.1/",
                                      "HTTPS://example.com/"};
    for (size_t i = 0; i < GP_ARRAY_LEN(good); i++)
        if (!google_url_trusted(good[i])) fail_msg("%s", good[i]);
    for (size_t i = 0; i < GP_ARRAY_LEN(bad); i++)
        if (google_url_trusted(bad[i])) fail_msg("%s", bad[i]);
    GP_AUTO_FREE char *email = google_email_in(good[4]);
    assert_string_equal(email, "a@p.example.com");
    assert_null(google_email_in("https://x/serviceAccounts/"));
    assert_null(google_email_in("https://x/other"));
}

static void test_names(void **state) {
    (void)state;
    char uuid[37], again[37];
    static const char *const bad[] = {"", "A", "-a", "a-", "a/b", "a_b", "a.b", "1a"};
    for (size_t i = 0; i < GP_ARRAY_LEN(bad); i++) assert_false(google_name_valid(bad[i]));
    assert_false(google_name_valid(NULL));
    assert_true(google_name_valid("gpuprov-0123456789abcdef-0-1-4174"));
    GP_AUTO_FREE char *region = google_region_of("europe-west4-a");
    assert_string_equal(region, "europe-west4");
    assert_null(google_region_of("europe"));
    assert_null(google_region_of("europe-west4"));
    assert_null(google_region_of("us-central1-a/../b"));
    static const char *const no_ids[] = {"",      "/1",   "a/",  "a/0", "a/01",
                                         "a/1/2", "a/-1", "a/b", "A/1", "a/123456789012345678901"};
    for (size_t i = 0; i < GP_ARRAY_LEN(no_ids); i++) assert_null(google_id_name(no_ids[i]));
    GP_AUTO_FREE char *whole = google_id_name("gpuprov-0-0-1-4174/12345678901234567890");
    GP_AUTO_FREE char *older = google_id_name("gpuprov-0-0-1-4174");
    assert_string_equal(whole, older);
    assert_true(google_project_valid("example.com:old-project"));
    assert_false(google_project_valid("a/b"));
    google_uuid("x", uuid);
    google_uuid("x", again);
    assert_string_equal(uuid, again);
    assert_int_equal(strlen(uuid), 36);
    assert_true(uuid[14] == '4' && uuid[19] == '8' && uuid[8] == '-' && uuid[23] == '-');
    /* the longest names fit */
    GP_AUTO_FREE char *claim = google_claim_name("owner", "s234567890123456789012345678901234567890");
    GP_AUTO_FREE char *node =
        google_instance_name("0123456789abcdef", 4095, 1000000, "0123456789abcdef0123456789abcdef");
    GP_AUTO_FREE char *members = google_members_name("0123456789abcdef");
    assert_true(google_name_valid(claim) && google_name_valid(node) && google_name_valid(members));
    GP_AUTO_FREE char *other = google_claim_name("owne", "r/s");
    GP_AUTO_FREE char *one = google_claim_name("owne/r", "s");
    assert_string_not_equal(other, one);
}

static void test_gpus(void **state) {
    (void)state;
    static const struct {
        const char *wanted, *accelerator;
        bool fits;
    } want[] = {{"H100", "nvidia-h100-80gb", true},
                {"H100", "nvidia-h100-mega-80gb", true},
                {"H100-80GB", "nvidia-h100-80gb", true},
                {"H200", "nvidia-h100-80gb", false},
                {"A100", "nvidia-tesla-a100", true},
                {"A100-40GB", "nvidia-tesla-a100", true},
                {"A100-80GB", "nvidia-tesla-a100", false},
                {"A100-80GB", "nvidia-a100-80gb", true},
                {"T4", "nvidia-tesla-t4", true},
                {"L4", "nvidia-l4", true},
                {"L40", "nvidia-l4", false},
                {"GB200", "nvidia-b200", false},
                {"B200", "nvidia-b200", true},
                {"X9", "nvidia-x9", true},
                {"RTX PRO 6000", "nvidia-rtx-pro-6000", true}};
    for (size_t i = 0; i < GP_ARRAY_LEN(want); i++)
        if (google_gpu_matches(want[i].wanted, want[i].accelerator) != want[i].fits)
            fail_msg("%s, %s", want[i].wanted, want[i].accelerator);
    size_t n = 0;
    while (google_gpu_at(n) != NULL) n++;
    assert_true(n >= 13);
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < i; k++) assert_string_not_equal(google_gpu_at(i), google_gpu_at(k));
}

static void test_prices(void **state) {
    (void)state;
    double price = catalog_google_price("a3-highgpu-8g", "us-central1", false);
    double spot = catalog_google_price("a3-highgpu-8g", "us-central1", true);
    assert_true(price > 80 && price < 100 && spot > 40 && spot < price);
    assert_true(catalog_google_price("a3-megagpu-8g", "us-central1", false) < 0);
    assert_true(catalog_google_price("a3-highgpu-8g", "nowhere", false) < 0);
    assert_int_equal(catalog_google_type("a3-megagpu-8g")->gpus, 8);
    assert_int_equal(catalog_google_type("g4-standard-6")->gpus, 0); /* a fraction */
    assert_null(catalog_google_type("e2-medium"));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_codes),     cmocka_unit_test(test_forms_of_errors),
                                       cmocka_unit_test(test_addresses), cmocka_unit_test(test_names),
                                       cmocka_unit_test(test_gpus),      cmocka_unit_test(test_prices)};
    return cmocka_run_group_tests_name("google", tests, NULL, NULL);
}
