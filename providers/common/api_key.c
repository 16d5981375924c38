// SPDX-License-Identifier: Apache-2.0
/* API keys (environment, then a file), endpoints and the pace of requests. The key is never part of a message. */
#include "base/gp_base.h"

#include "providers/common/api_key.h"

#include "base/fs.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/str.h"
#include "providers/http.h"
#include "providers/provider.h"

#include <sys/stat.h>

#define KEY_MAX 512

static bool key_valid(const char *s) {
    size_t n = 0;
    for (; s[n] != '\0'; n++)
        if (s[n] <= ' ' || s[n] > '~') return false;
    return n > 0 && n <= KEY_MAX;
}

static int take(const struct api_key_rules *rules, struct api_key *k, const char *value, char *source,
                struct gp_error *err) {
    if (!key_valid(value)) {
        gp_fail(err, GP_EAUTH, "%s: the API key of %s is not one line of printable characters: correct it",
                rules->provider, source);
        free(source);
        return -GP_EAUTH;
    }
    secret_set(&k->key, value, strlen(value));
    log_redact(&k->key);
    free(k->source);
    k->source = source;
    return 0;
}

/* The value of "NAME = VALUE"; points into the line, which is cut. NULL: another line. */
static char *key_of_line(char *line, const char *name) {
    char *text = str_trim(line), *eq = strchr(text, '=');
    if (eq == NULL || *text == '#') return NULL;
    *eq = '\0';
    if (strcmp(str_trim(text), name) != 0) return NULL;
    char *value = str_trim(eq + 1);
    size_t n = strlen(value);
    if (n >= 2 && (value[0] == '"' || value[0] == '\'') && value[n - 1] == value[0]) {
        value[n - 1] = '\0';
        value++;
    }
    return value;
}

static char *find_in(const struct api_key_rules *rules, char *text) {
    char *save = NULL, *value = NULL;
    if (rules->line == NULL) return str_trim(text);
    for (char *line = strtok_r(text, "\n", &save); line != NULL && value == NULL; line = strtok_r(NULL, "\n", &save))
        value = key_of_line(line, rules->line);
    return value;
}

static int from_file(const struct api_key_rules *rules, struct api_key *k, bool *ret_found, struct gp_error *err) {
    GP_AUTO_FREE char *path = fs_expand_home(rules->file);
    GP_AUTO_STR struct str text = {0};
    struct stat st;
    *ret_found = false;
    if (!fs_exists(path)) return 0;
    struct gp_error why = {0};
    int r = fs_read_text(path, 64 << 10, &text, &why);
    if (r != 0) r = gp_fail(err, GP_EAUTH, "%s: %s, or set %s", rules->provider, why.msg, rules->variables[0]);
    const char *value = r == 0 && text.len > 0 ? find_in(rules, text.s) : NULL;
    if (r == 0 && value == NULL)
        r = gp_fail(err, GP_EAUTH, "%s: '%s' has no %s%s%s: add it, or set %s", rules->provider, path,
                    rules->line != NULL ? "line '" : "key", rules->line != NULL ? rules->line : "",
                    rules->line != NULL ? " = KEY'" : "", rules->variables[0]);
    if (r == 0) r = take(rules, k, value, xasprintf("'%s'", path), err);
    free(k->warning);
    k->warning = NULL;
    if (r == 0 && stat(path, &st) == 0 && (st.st_mode & 077) != 0)
        k->warning = xasprintf("%s: other users can read the API key in '%s' (mode %04o): run 'chmod 600 %s'",
                               rules->provider, path, (unsigned)(st.st_mode & 07777), path);
    *ret_found = r == 0;
    explicit_bzero(text.s, text.cap);
    return r;
}

int api_key_load(const struct api_key_rules *rules, struct api_key *k, struct gp_error *err) {
    bool found = false;
    for (size_t i = 0; rules->variables[i] != NULL; i++) {
        const char *value = getenv(rules->variables[i]);
        if (value != NULL && value[0] != '\0')
            return take(rules, k, value, xasprintf("the variable %s", rules->variables[i]), err);
    }
    int r = from_file(rules, k, &found, err);
    if (r != 0 || found) return r;
    r = gp_fail(err, GP_EAUTH, "%s: no API key: set %s, or write %s%s to %s", rules->provider, rules->variables[0],
                rules->line != NULL ? rules->line : "it", rules->line != NULL ? " = KEY" : "", rules->file);
    if (err != NULL) {
        err->scope = GP_SCOPE_PROVIDER;
        str_put(err->detail, sizeof err->detail, PROVIDER_NO_CREDENTIALS);
    }
    return r;
}

int api_key_renew(const struct api_key_rules *rules, struct api_key *k, struct gp_error *err) {
    GP_AUTO_SECRET struct secret old = {0};
    secret_copy(&old, &k->key);
    int r = api_key_load(rules, k, err);
    if (r != 0) return r;
    if (secret_equal(&old, secret_reveal(&k->key), k->key.len))
        return gp_fail(err, GP_EAUTH, "%s: the API key of %s is still the one that was refused", rules->provider,
                       k->source);
    return 0;
}

void api_key_account(struct strv *names, const struct secret *key, struct provider *p) {
    GP_AUTO_STR struct str text = {0};
    char hex[65];
    str_addf(&text, "gpuprov account|%s", secret_reveal(key));
    sha256_hex(text.s, text.len, hex);
    explicit_bzero(text.s, text.len);
    GP_AUTO_FREE char *name = xasprintf("key-%.12s", hex);
    strv_add(names, name);
    p->account = names->v[names->n - 1];
    p->account_is_key = true;
}

void api_key_clear(struct api_key *k) {
    secret_clear(&k->key);
    free(k->source);
    free(k->warning);
}

int api_endpoint(const char *variable, const char *own, char **ret, bool *ret_other, struct gp_error *err) {
    const char *set = getenv(variable);
    GP_AUTO_FREE char *base = xstrdup(set != NULL && set[0] != '\0' ? set : own);
    size_t n = strlen(base);
    while (n > 0 && base[n - 1] == '/') base[--n] = '\0';
    int r = http_url_check(variable, base, err);
    if (r != 0) return r;
    *ret_other = strcmp(base, own) != 0;
    *ret = GP_STEAL(base);
    return 0;
}

int api_pace(const char *variable, bool other, int64_t *pace_ms, struct gp_error *err) {
    const char *set = getenv(variable);
    if (!other || set == NULL || set[0] == '\0' || str_to_i64(set, 0, 60000, pace_ms)) return 0;
    return gp_fail(err, GP_EUSAGE, "%s '%.40s' is not a number from 0 to 60000: correct it", variable, set);
}
