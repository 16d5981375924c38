/* SPDX-License-Identifier: Apache-2.0 */
/* A cloud whose credentials are one API key: from the environment, else from a file. Its endpoint and pace, which
 * proxies and tests can change. Reads environment and files only. One thread. */
#ifndef GP_COMMON_API_KEY_H
#define GP_COMMON_API_KEY_H

#include "base/error.h"
#include "base/secret.h"
#include "base/str.h"

struct provider;

struct api_key_rules {
    const char *provider;
    const char *const *variables; /* NULL ends */
    const char *file;             /* "~/..." */
    const char *line;             /* the name in the file's line "NAME = KEY"; NULL: the file is the key */
};
struct api_key {
    struct secret key;
    char *source;  /* "the variable X", for messages */
    char *warning; /* other users can read the file; NULL: they cannot */
};
void api_key_clear(struct api_key *k);
/* -GP_EAUTH with the detail PROVIDER_NO_CREDENTIALS: there is none. */
int api_key_load(const struct api_key_rules *rules, struct api_key *k, struct gp_error *err);
/* Reads it again after it was refused, because it may have been replaced. -GP_EAUTH: it is the same. */
int api_key_renew(const struct api_key_rules *rules, struct api_key *k, struct gp_error *err);

/* Sets account and account_is_key of a provider whose cloud has no call that names the account: "key-" and 12 digits of
 * the key's hash, which do not reveal the key. Called again for a renewed key. names: owned by the provider, cleared at
 * its close; earlier names stay in it, because a launch that is under way borrows them. */
void api_key_account(struct strv *names, const struct secret *key, struct provider *p);

/* own, or the value of the variable; without a slash at its end; caller frees. https://, or http:// on this machine. */
int api_endpoint(const char *variable, const char *own, char **ret, bool *ret_other, struct gp_error *err);
/* Sets *pace_ms from the variable, only at another endpoint. */
int api_pace(const char *variable, bool other, int64_t *pace_ms, struct gp_error *err);

#endif
