/* SPDX-License-Identifier: Apache-2.0 */
/* SHA-256, SipHash and base64: published vectors, and what is refused. */
#include "base/gp_base.h"

#include "base/hash.h"
#include "ssh/ssh_private.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static void sha1_has_the_published_value(void **state) {
    (void)state;
    unsigned char raw[20];
    char hex[41];
    assert_true(sha1_bytes("abc", 3, raw)); /* FIPS 180-2, A.1 */
    str_hex(hex, raw, sizeof raw);
    assert_string_equal(hex, "a9993e364706816aba3e25717850c26c9cd0d89d");
}

static void sha256_has_the_published_values(void **state) {
    (void)state;
    char hex[65];
    sha256_hex("abc", 3, hex); /* FIPS 180-2, B.1 */
    assert_string_equal(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    sha256_hex(NULL, 0, hex);
    assert_string_equal(hex, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    unsigned char raw[SHA256_BYTES];
    sha256_bytes("abc", 3, raw);
    assert_int_equal(raw[0], 0xba);
    assert_int_equal(raw[31], 0xad);
}

static void sha256_in_pieces(void **state) {
    (void)state;
    GP_AUTO_SHA256_SUM struct sha256_sum sum = {0};
    unsigned char whole[SHA256_BYTES], pieces[SHA256_BYTES];
    sha256_bytes("abcdef", 6, whole);
    sha256_sum_begin(&sum);
    sha256_sum_add(&sum, "abc", 3);
    sha256_sum_add(&sum, "", 0);
    sha256_sum_add(&sum, "def", 3);
    sha256_sum_end(&sum, pieces);
    assert_memory_equal(whole, pieces, sizeof whole);
    assert_null(sum.ctx_);
}

static void siphash_has_the_published_values(void **state) {
    (void)state;
    static const struct hash_key key = {{0x0706050403020100U, 0x0f0e0d0c0b0a0908U}};
    static const struct {
        size_t n;
        uint64_t hash;
    } rows[] = {
        {0, 0x726fdb47dd0e0e31U}, {1, 0x74f839c593dc67fdU}, {8, 0x93f5f5799a932462U}, {15, 0xa129ca6149be45e5U}};
    unsigned char text[15];
    for (size_t i = 0; i < sizeof text; i++) text[i] = (unsigned char)i;
    for (size_t i = 0; i < GP_ARRAY_LEN(rows); i++) assert_true(hash_keyed(&key, text, rows[i].n) == rows[i].hash);
    struct hash_key a = {{0, 0}}, b = {{0, 0}};
    hash_key_init(&a);
    hash_key_init(&b);
    assert_memory_not_equal(&a, &b, sizeof a);
    assert_true(hash_keyed(&a, text, 15) != hash_keyed(&b, text, 15));
}

static void base64_goes_both_ways(void **state) {
    (void)state;
    static const struct {
        const char *text, *coded;
    } pairs[] = {{"", ""}, {"f", "Zg=="}, {"fo", "Zm8="}, {"foo", "Zm9v"}, {"foobar", "Zm9vYmFy"}}; /* RFC 4648 */
    for (size_t i = 0; i < GP_ARRAY_LEN(pairs); i++) {
        GP_AUTO_FREE char *coded = base64_text(pairs[i].text, strlen(pairs[i].text));
        assert_string_equal(coded, pairs[i].coded);
        GP_AUTO_STR struct str back = {0};
        assert_true(base64_bytes(coded, strlen(coded), &back));
        assert_string_equal(back.s, pairs[i].text);
    }
}

static void what_is_no_base64_is_refused(void **state) {
    (void)state;
    static const char *const bad[] = {"Z", "Zg", "Zg=", "Zg==Zg==", "Z=g=", "====", "Zm9v\n", "Zm 9", "Zm9_", "Zm9vé"};
    for (size_t i = 0; i < GP_ARRAY_LEN(bad); i++) {
        GP_AUTO_STR struct str out = {0};
        if (base64_bytes(bad[i], strlen(bad[i]), &out)) fail_msg("'%s' was taken", bad[i]);
    }
    GP_AUTO_STR struct str out = {0};
    assert_true(ssh_unbase64(" Zm9v\nYmFy\r\n", 12, &out)); /* key files have lines */
    assert_string_equal(out.s, "foobar");
    assert_false(ssh_unbase64("\n", 1, &out));
    assert_false(ssh_unbase64("Zg==Zg==", 8, &out));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sha1_has_the_published_value),
        cmocka_unit_test(sha256_has_the_published_values),
        cmocka_unit_test(sha256_in_pieces),
        cmocka_unit_test(siphash_has_the_published_values),
        cmocka_unit_test(base64_goes_both_ways),
        cmocka_unit_test(what_is_no_base64_is_refused),
    };
    return cmocka_run_group_tests_name("hash", tests, NULL, NULL);
}
