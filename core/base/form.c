/* SPDX-License-Identifier: Apache-2.0 */
/* Checks the forms of foreign words. Pure; any thread. */
#include "base/gp_base.h"

#include "base/form.h"

#include "base/str.h"

#include <arpa/inet.h>

#define LOWER "abcdefghijklmnopqrstuvwxyz"
#define UPPER "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
#define DIGITS "0123456789"
#define HEX DIGITS "abcdef"

/* True for min to max bytes, the first one in `first`, the others in `rest`. */
static bool made_of(const char *s, const char *first, const char *rest, size_t min, size_t max) {
    if (s == NULL) return false;
    size_t n = strnlen(s, max + 1);
    if (n < min || n > max || n == 0) return false;
    return strchr(first, s[0]) != NULL && s[1 + strspn(s + 1, rest)] == '\0';
}

bool form_uid(const char *s) { return made_of(s, HEX, HEX, 16, 16); }

bool form_proof(const char *s) { return made_of(s, HEX, HEX, 32, 32); }

bool form_spec_hash(const char *s) { return made_of(s, HEX, HEX, 64, 64); }

bool form_stack(const char *s) { return made_of(s, LOWER, LOWER DIGITS "-", 1, 40); }

bool form_owner(const char *s) { return made_of(s, LOWER UPPER DIGITS, LOWER UPPER DIGITS "._+=,@-", 1, 128); }

bool form_fingerprint(const char *s) {
    static const char prefix[] = "SHA256:";
    if (s == NULL || strncmp(s, prefix, sizeof prefix - 1) != 0) return false;
    return made_of(s + sizeof prefix - 1, LOWER UPPER DIGITS "+/", LOWER UPPER DIGITS "+/", 43, 43);
}

bool form_address(const char *s) {
    unsigned char raw[16];
    return s != NULL && (inet_pton(AF_INET, s, raw) == 1 || inet_pton(AF_INET6, s, raw) == 1);
}

bool form_host(const char *s) { return made_of(s, LOWER UPPER DIGITS "_:", LOWER UPPER DIGITS ".-_:%", 1, 255); }

bool form_login(const char *s) { return made_of(s, LOWER UPPER DIGITS "_", LOWER UPPER DIGITS "._@+-", 1, 64); }

bool form_word(const char *s) { return made_of(s, LOWER UPPER DIGITS "_", LOWER UPPER DIGITS "._-", 1, 64); }

bool form_ec2_id(const char *s, const char *prefix) {
    size_t n = strlen(prefix);
    return s != NULL && strncmp(s, prefix, n) == 0 && made_of(s + n, HEX, HEX, 8, 17);
}

/* --- forms of a network --- */

struct cidr {
    unsigned char bytes[16];
    int family;
    int64_t bits;
};

static bool cidr_read(const char *text, struct cidr *ret) {
    size_t n = strcspn(text, "/");
    GP_AUTO_FREE char *address = xstrndup(text, n);
    *ret = (struct cidr){.family = strchr(address, ':') == NULL ? AF_INET : AF_INET6};
    int64_t most = ret->family == AF_INET ? 32 : 128;
    ret->bits = most;
    if (text[n] != '\0' && !str_to_i64(text + n + 1, 0, most, &ret->bits)) return false;
    if (inet_pton(ret->family, address, ret->bytes) != 1) return false;
    for (int64_t i = ret->bits; i < most; i++) ret->bytes[i / 8] &= (unsigned char)~(0x80 >> (i % 8));
    return true;
}

bool form_same_network(const char *x, const char *y) {
    struct cidr a, b;
    if (!cidr_read(x, &a) || !cidr_read(y, &b)) return strcmp(x, y) == 0;
    return a.family == b.family && a.bits == b.bits && memcmp(a.bytes, b.bytes, sizeof a.bytes) == 0;
}
