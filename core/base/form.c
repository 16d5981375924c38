/* SPDX-License-Identifier: Apache-2.0 */
/* Checks the forms of foreign words. Pure; any thread. */
#include "base/gp_base.h"

#include "base/form.h"

#include "base/str.h"

#include <arpa/inet.h>
#include <strings.h>

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

/* --- places of URLs: secrets are sent by them --- */

/* A backslash is a slash for some readers. */
static bool is_plain(const char *url) {
    for (const unsigned char *p = (const unsigned char *)url; *p != '\0'; p++)
        if (*p <= ' ' || *p == 0x7f || *p == '\\') return false;
    return true;
}

static bool take(char *dst, size_t room, const char *from, size_t n, const char *allowed) {
    if (n == 0 || n >= room || strspn(from, allowed) < n) return false;
    memcpy(dst, from, n);
    dst[n] = '\0';
    return true;
}

static bool is_ipv6(const char *host) {
    unsigned char v6[16];
    return inet_pton(AF_INET6, host, v6) == 1;
}

bool form_url(const char *url, struct url_place *ret) {
    struct url_place p = {.https = strncmp(url, "https://", 8) == 0};
    if ((!p.https && strncmp(url, "http://", 7) != 0) || !is_plain(url)) return false;
    const char *at = url + (p.https ? 8 : 7), *end = at + strcspn(at, "/?#");
    bool brackets = *at == '[';
    size_t n = brackets ? strcspn(at, "]/?#") : strcspn(at, ":/?#");
    if (brackets && at[n] != ']') return false;
    if (brackets ? !take(p.host, sizeof p.host, at + 1, n - 1, HEX "ABCDEF:.") || !is_ipv6(p.host)
                 : !take(p.host, sizeof p.host, at, n, LOWER UPPER DIGITS "-._"))
        return false;
    at += n + brackets;
    if (at < end && (*at != ':' || !take(p.port, sizeof p.port, at + 1, (size_t)(end - at - 1), DIGITS))) return false;
    *ret = p;
    return true;
}

bool form_url_is_loopback(const struct url_place *p) {
    unsigned char v4[4], v6[16];
    static const unsigned char one[16] = {[15] = 1};
    if (strcasecmp(p->host, "localhost") == 0) return true;
    if (inet_pton(AF_INET, p->host, v4) == 1) return v4[0] == 127;
    return inet_pton(AF_INET6, p->host, v6) == 1 && memcmp(v6, one, sizeof one) == 0;
}

bool form_url_is(const struct url_place *p, const char *word) {
    bool v6 = strchr(p->host, ':') != NULL;
    GP_AUTO_FREE char *host = xasprintf("%s%s%s", v6 ? "[" : "", p->host, v6 ? "]" : "");
    GP_AUTO_FREE char *both = xasprintf("%s:%s", host, p->port[0] != '\0' ? p->port : p->https ? "443" : "80");
    return strcasecmp(word, host) == 0 || strcasecmp(word, both) == 0 || (v6 && strcasecmp(word, p->host) == 0);
}

#define SEPARATORS ", \t"

const char *form_url_clear(void) {
    const char *set = getenv(FORM_URL_CLEAR_ENV);
    return set != NULL && set[strspn(set, SEPARATORS)] != '\0' ? set : NULL;
}

static bool is_clear(const struct url_place *p) {
    GP_AUTO_STRV struct strv words = {0};
    strv_split(&words, form_url_clear() != NULL ? form_url_clear() : "", SEPARATORS);
    for (size_t i = 0; i < words.n; i++)
        if (form_url_is(p, words.v[i])) return true;
    return false;
}

enum url_way form_url_way(const struct url_place *p) {
    if (p->https) return URL_TLS;
    if (form_url_is_loopback(p)) return URL_NEAR;
    return is_clear(p) ? URL_NAMED : URL_NONE;
}
