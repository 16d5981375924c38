/* SPDX-License-Identifier: Apache-2.0 */
/* Signed tokens: a vector made by another implementation, with a key that was made for it alone. RS256 has one
 * signature per text, so the whole token is compared. */
#include "base/gp_base.h"

#include "providers/common/jwt.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static const char key_pem[] = "-----BEGIN PRIVATE KEY-----\n"
                              "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQDCEbCNp9CLX7lo\n"
                              "0WRFPp8GjvyrYlPrA98qxEwAAizy22mFE9hT3YngbtFIMfeWmbYDRpBHB7rtbtDm\n"
                              "3Y21TROs58wvZypR1rouDM7PMMZ9g1vJ/VlxO0sLOx83ndP8LCvgSsDsGqjXoOmi\n"
                              "DVeUjQJXHCtAx9bmGWQNZjsd1FQiLHLhec/Tt+oFnmzi65F3VvNAXWJ9gYkQiDmJ\n"
                              "OmLQDDkZjZDs/DSW0Jsj0AozoR2Y3Ox1kyGadeIHpb23wwypj9rotbbPfhF0ZmI+\n"
                              "qMef0nKIDIJ6e9s8gKfFkPTczNPgIwoTzC1UQmM/Mk9j12ZhsqGKPmCVf4frQmss\n"
                              "cTjSlKZVAgMBAAECggEAGluWtBaXv2Y342GVEcaIiLaA4LIRHbk/5SoV/GZPPojI\n"
                              "Uxe36OQM5tuGNxz6OI0V6Gn8DHmjTL4hR0nOBlK6mmA9Hi8P01+rl7eLmx5PxxpB\n"
                              "LDTpofRgo9zax437DaPeLa9ZdnfEeMzVDnpra7SfHb+orDq4GDZYnW1GGC4PYziT\n"
                              "iESvjHXoX0jNf/kTD7W42fhXSsaDiyJwRfxXuHm1HPoT2Q4fvXrBhvB26EBmHCyg\n"
                              "bg38C4bptteGz7q4MTvvIkLBQSKnMgThnwCpIYcGE5ZZ3mg9PlpZoyYJ8qtavZoY\n"
                              "kAFbR5y3RYCCP7SsxTistnp5YBqDhQHpRlEbisDmvQKBgQDv2U+ZldGd4G3SN9M6\n"
                              "ytIDSbzdJln0BjW4qpXDKibjQ3LRBRDwKHEKrK/nc4Ahjf/HX1/JXUUs6xbKA5Ll\n"
                              "PIMXf6hTDt/6L/Z69Z5OdM+ExpE9x82BDoUnvsudYUUrJVQGCCza7Otivjgg0i71\n"
                              "lLENI/8ECUvnvtv+dbWQ0heqgwKBgQDPIzGb0h6lCheWpfWJeMGMi83IaEXbr966\n"
                              "uWiqcEX7xD0Q+pXpPfRfYR+uE3gIerjjjMxZbqj6bqKE8EhuLc0a5SiNxm4NAley\n"
                              "e9po/8Avr89hb93YrnCdSmWYHdGIqaSlehhPeJFVDeldLyAof8VFKLGpQ9BarB1O\n"
                              "esjVMGt0RwKBgFGDeGMJIMlYGdrE8Dvd7EwDxnUecJnXdnCBQQ6oB7lbFe1lnGES\n"
                              "TYDEObAed+Bvgws+Ja6ozTa72u3jEwxnaWIWF53Kw2Ii5NDbIuclGdXVKk1l1zjS\n"
                              "N3zPgiHFih1kvU6jfqMUu9a+MRMue5ko5JdDsYqsoihrnBa56HAEhtiDAoGBAKls\n"
                              "yvX+DuzFbXfedRClwgJYk9A5YfKITrECWJcYUFXXNG+/14C5GTousf/rksG0x6fw\n"
                              "EXGRLwvwFGSSOVxNgDdgeyRDyt4/LUYjQgmiLyuSLRkwrA/A1wIAyUp8EVgsEiz7\n"
                              "ygiuwIkGYPvEQRR/NfcUiwS9IB4aK7p2efDOswWfAoGARjBNjDEhvMWSB+P+gXDG\n"
                              "VLnQdhCTE2H6fv2fO0Jz7WLOgH56SR2SRMHRwzW8DimH2MKeU1YGTX0VewffR/P/\n"
                              "UTBJjc+gRmY4VnMxQBkOP9LbMurDLIAhrB2slotRloqLrwbwgiAAVdJIc5el7HRA\n"
                              "XTh64DH7u9p5SdxS0wPLWEw=\n"
                              "-----END PRIVATE KEY-----\n";
static const char claims[] =
    "{\"iss\":\"gpuprov@proj-1.iam.gserviceaccount.com\",\"scope\":\"https://www.googleapis.com/auth/cloud-platf"
    "orm\",\"aud\":\"https://oauth2.googleapis.com/token\",\"iat\":1767323045,\"exp\":1767326645}";
static const char want[] =
    "eyJhbGciOiJSUzI1NiIsInR5cCI6IkpXVCIsImtpZCI6ImFiYzEyMyJ9.eyJpc3MiOiJncHVwcm92QHByb2otMS5pYW0uZ3NlcnZ"
    "pY2VhY2NvdW50LmNvbSIsInNjb3BlIjoiaHR0cHM6Ly93d3cuZ29vZ2xlYXBpcy5jb20vYXV0aC9jbG91ZC1wbGF0Zm9ybSIsImF"
    "1ZCI6Imh0dHBzOi8vb2F1dGgyLmdvb2dsZWFwaXMuY29tL3Rva2VuIiwiaWF0IjoxNzY3MzIzMDQ1LCJleHAiOjE3NjczMjY2NDV"
    "9.J3N8H1TTCNH4gyiMi8wDiqtHyVHBOc2xarWTH45w1sKxxrLq6TzZbdJ6nJV5_Ox6FyEfL3IQCaYZx97yzHYqwGlVPoprk2W4c9"
    "qXrzzXD1p0qgR0uuBavwZFUBAofjUXKLcSpXypA7SFtzJc52_rNy-OWP_7UILRHFQbD7hNEGwAr8Rd7boug_NE-3z8pMTqUiiIIa"
    "HWliaCYuVyQCuKN9KFlaB8i-K4fSgJ800ZKVyBfTjVfClTvBU7FXYGudqQJ7DbYPu2KDCexEPwldwltAstrlAmbUEMOiSYvir6K-"
    "vyUU8Jjgjct_VAX0eqzhLw9LhZPxxZJ1T0x1qCfoYO1A";

static void test_vector(void **state) {
    (void)state;
    GP_AUTO_SECRET struct secret key = {0};
    GP_AUTO_SECRET struct secret token = {0};
    GP_AUTO_JSON json_t *header = json_pack("{s:s}", "kid", "abc123");
    GP_AUTO_JSON json_t *body = json_loads(claims, 0, NULL);
    struct gp_error err = {0};
    assert_non_null(body);
    secret_set(&key, key_pem, strlen(key_pem));
    if (jwt_rs256(&key, header, body, &token, &err) != 0) fail_msg("%s", err.msg);
    assert_string_equal(secret_reveal(&token), want);
}

static void test_wrong_keys(void **state) {
    (void)state;
    static const char *const keys[] = {
        "", "not a key", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n",
        /* Ed25519 */
        "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIJ1hsZ3v/VpguoRK9JLsLMREScVpezJpGXA7rAMcrn9g\n"
        "-----END PRIVATE KEY-----\n"};
    GP_AUTO_JSON json_t *body = json_object();
    for (size_t i = 0; i < GP_ARRAY_LEN(keys); i++) {
        GP_AUTO_SECRET struct secret key = {0};
        GP_AUTO_SECRET struct secret token = {0};
        struct gp_error err = {0};
        secret_set(&key, keys[i], strlen(keys[i]));
        assert_int_equal(jwt_rs256(&key, NULL, body, &token, &err), -GP_EAUTH);
        assert_true(err.msg[0] != '\0' && token.len == 0);
    }
}

static void test_base64url(void **state) {
    (void)state;
    static const struct {
        const char *data, *want;
        size_t n;
    } cases[] = {{"", "", 0}, {"f", "Zg", 1}, {"fo", "Zm8", 2}, {"foo", "Zm9v", 3}, {"\xfb\xff\xfe", "-__-", 3}};
    for (size_t i = 0; i < GP_ARRAY_LEN(cases); i++) {
        GP_AUTO_STR struct str out = {0};
        str_add(&out, "");
        base64url(&out, cases[i].data, cases[i].n);
        assert_string_equal(out.s, cases[i].want);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_vector),
        cmocka_unit_test(test_wrong_keys),
        cmocka_unit_test(test_base64url),
    };
    return cmocka_run_group_tests_name("jwt", tests, NULL, NULL);
}
