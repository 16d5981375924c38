/* SPDX-License-Identifier: Apache-2.0 */
/* The API key: RUNPOD_API_KEY, else ~/.runpod/config.toml as runpodctl (apiKey) and the Python package ([default],
 * api_key) write it. Any thread. */
#include "base/gp_base.h"

#include "providers/runpod/runpod_int.h"

#include "base/fs.h"
#include "base/log.h"

#include <strings.h>

#define CONFIG "~/.runpod/config.toml"
#define FILE_MAX ((size_t)1 << 16)
#define KEY_MAX 512

void runpod_key_clear(struct runpod_key *k) {
    secret_clear(&k->value);
    free(k->source);
    *k = (struct runpod_key){0};
}

/* Printable ASCII without spaces: it becomes a header. */
static bool has_form(const char *text, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (text[i] <= ' ' || text[i] > '~') return false;
    return n >= 8 && n <= KEY_MAX;
}

static int take(struct runpod_key *ret, const char *text, size_t n, const char *source, struct gp_error *err) {
    if (!has_form(text, n))
        return gp_fail(err, GP_EAUTH,
                       "runpod: the API key in %s has not the form of a key: copy it again from the console", source);
    secret_set(&ret->value, text, n);
    log_redact(&ret->value);
    ret->source = xstrdup(source);
    return 0;
}

/* "apiKey = 'x'": the name of the key, and its value without quotes. False: no such line. */
static bool split(const char *line, size_t n, size_t *ret_name, const char **ret_value, size_t *ret_len) {
    const char *is = memchr(line, '=', n);
    if (is == NULL) return false;
    size_t name = (size_t)(is - line), left = n - name - 1;
    const char *value = is + 1;
    while (name > 0 && (line[name - 1] == ' ' || line[name - 1] == '\t')) name--;
    for (; left > 0 && (*value == ' ' || *value == '\t'); left--) value++;
    if (left < 2 || (*value != '"' && *value != '\'')) return false;
    const char *end = memchr(value + 1, *value, left - 1);
    if (end == NULL) return false;
    *ret_name = name;
    *ret_value = value + 1;
    *ret_len = (size_t)(end - value) - 1;
    return true;
}

static bool is_name(const char *text, size_t n, const char *name) {
    return strlen(name) == n && strncasecmp(text, name, n) == 0;
}

static int from_file(const char *path, const char *text, struct runpod_key *ret, struct gp_error *err) {
    bool top = true, standard = false; /* before the first [section], in [default] */
    for (const char *line = text; *line != '\0';) {
        size_t n = strcspn(line, "\n"), name = 0, len = 0;
        const char *at = line, *value = NULL;
        line += n + (line[n] == '\n');
        for (; n > 0 && (*at == ' ' || *at == '\t'); n--) at++;
        if (n > 0 && *at == '[') {
            top = false;
            standard = n >= 9 && strncmp(at, "[default]", 9) == 0;
        }
        if (!split(at, n, &name, &value, &len)) continue;
        bool key = (top && is_name(at, name, "apiKey")) || (standard && is_name(at, name, "api_key"));
        if (key && len > 0) return take(ret, value, len, path, err);
    }
    return -GP_ENOTFOUND;
}

int runpod_key_find(struct runpod_key *ret, struct gp_error *err) {
    const char *set = getenv("RUNPOD_API_KEY");
    if (set != NULL && set[0] != '\0') return take(ret, set, strlen(set), "RUNPOD_API_KEY", err);
    GP_AUTO_FREE char *path = fs_expand_home(CONFIG);
    GP_AUTO_STR struct str text = {0};
    struct gp_error why = {0};
    int r = fs_read_text(path, FILE_MAX, &text, &why);
    if (r != 0 && r != -GP_ENOTFOUND) return gp_fail(err, GP_EAUTH, "runpod: %s, or set RUNPOD_API_KEY", why.msg);
    if (r == 0) r = from_file(CONFIG, text.s, ret, err);
    explicit_bzero(text.s, text.len);
    if (r != -GP_ENOTFOUND) return r;
    r = gp_fail(err, GP_EAUTH,
                "runpod: no API key: set RUNPOD_API_KEY, or write it with 'runpodctl config --apiKey' to " CONFIG);
    if (err != NULL) str_put(err->detail, sizeof err->detail, PROVIDER_NO_CREDENTIALS);
    return r;
}
