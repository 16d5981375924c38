/* SPDX-License-Identifier: Apache-2.0 */
/* The forms of words that come from outside (cloud tags and replies, files, environment, options): a word
 * that does not have its form never becomes a path, a shell word, an address or a decision. Every function
 * accepts NULL (false), reads nothing else and may be called by any thread. */
#ifndef GP_BASE_FORM_H
#define GP_BASE_FORM_H

#include "base/gp_base.h"

/* A stack's uid: 16 of 0-9a-f. */
bool form_uid(const char *s);
/* A spec's hash: 64 of 0-9a-f. */
bool form_spec_hash(const char *s);
/* A proof (model/proof.h): 32 of 0-9a-f. */
bool form_proof(const char *s);
/* A stack's name, as the spec has it: a-z, then a-z, 0-9 and '-', at most 40 in all. */
bool form_stack(const char *s);
/* An owner: a letter or digit, then letters, digits and ._+=,@- ; at most 128 in all. What AWS allows in the
 * names of users and roles; no '/' (it is part of file and group names), no '*', '?' and '$' (EC2's filters
 * and IAM's policies give them a meaning). */
bool form_owner(const char *s);
/* FORM_OWNER_TEXT describes this form in errors. */
#define FORM_OWNER_TEXT "a letter or digit, then letters, digits and ._+=,@-, at most 128 in all"
/* A host key's fingerprint: "SHA256:" and 43 of base64, as ssh-keygen -l prints it. */
bool form_fingerprint(const char *s);
/* An IPv4 or IPv6 address without a zone. */
bool form_address(const char *s);
/* A host name or address that is safe to pass to ssh: letters, digits, '.', '-', '_', ':' and '%', not first '-';
 * at most 255. */
bool form_host(const char *s);
/* A login name: letters, digits and ._@+- , not first '-'; at most 64. */
bool form_login(const char *s);
/* A cloud's name of a region, zone, type or state: letters, digits, '.', '-' and '_'; 1 to 64, not first '-'
 * or '.'. */
bool form_word(const char *s);
/* Two texts of one network, "10.1.2.3/8" and "10.0.0.0/8": the bits of the host do not count, and an address is a
 * network of one. Any other text is only the same as itself. */
bool form_same_network(const char *x, const char *y);
/* prefix and 8 to 17 hex digits: "i-0123456789abcdef0". */
bool form_ec2_id(const char *s, const char *prefix);

/* --- the place that a URL names, read strictly: a URL that two readers could understand differently has none --- */
struct url_place {
    bool https;     /* else http */
    char host[256]; /* as written, an IPv6 address without its brackets */
    char port[6];   /* "": not given */
};

/* "http[s]://HOST[:PORT]" and a path, query or fragment. False: another scheme or one in capitals, a user or password,
 * a backslash, a blank or control character, a host that is neither a name nor an address. url is not NULL. */
bool form_url(const char *url, struct url_place *ret);
/* Whether the host is this machine whatever name service there is: "localhost", 127.0.0.0/8 or ::1, written as an
 * address. Other names count as elsewhere, also those that would resolve to such an address. */
bool form_url_is_loopback(const struct url_place *p);
/* Whether `word` is HOST or HOST:PORT of the place, without case; an IPv6 address may be in brackets. */
bool form_url_is(const struct url_place *p, const char *word);
/* The hosts that the user exempts from TLS in this variable, HOST or HOST:PORT, separated by commas; NULL: none. The
 * only function here that reads the environment. */
#define FORM_URL_CLEAR_ENV "GPUPROV_CLEAR_TEXT"
const char *form_url_clear(void);
/* How a request with a secret may go there. NONE: it may not. */
enum url_way { URL_TLS, URL_NEAR, URL_NAMED, URL_NONE }; /* https; this machine; one of the exempted hosts */
enum url_way form_url_way(const struct url_place *p);

#endif
