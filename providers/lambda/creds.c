// SPDX-License-Identifier: Apache-2.0
/* The API key (environment, then the file that peers use), the endpoint and the pace of requests. The key is never
 * part of a message. One thread. */
#include "base/gp_base.h"

#include "providers/lambda/lambda_int.h"

#include "base/fs.h"

#include <sys/stat.h>

#define ENDPOINT "https://cloud.lambda.ai"
#define KEY_FILE "~/.lambda_cloud/lambda_keys"
#define KEY_MAX 512
#define PACE_MS 1000 /* of the API description: one request per second */

static bool key_valid(const char *s) {
    size_t n = 0;
    for (; s[n] != '\0'; n++)
        if (s[n] <= ' ' || s[n] > '~') return false;
    return n > 0 && n <= KEY_MAX;
}

static int take(struct lambda *l, const char *value, char *source, struct gp_error *err) {
    if (!key_valid(value)) {
        gp_fail(err, GP_EAUTH, "lambda: the API key of %s is not one line of printable characters: correct it", source);
        free(source);
        return -GP_EAUTH;
    }
    secret_set(&l->key, value, strlen(value));
    free(l->source);
    l->source = source;
    return 0;
}

/* The value of "api_key = VALUE"; points into the line, which is cut. NULL: another line. */
static char *key_of_line(char *line) {
    char *text = str_trim(line), *eq = strchr(text, '=');
    if (eq == NULL || *text == '#') return NULL;
    *eq = '\0';
    if (strcmp(str_trim(text), "api_key") != 0) return NULL;
    char *value = str_trim(eq + 1);
    size_t n = strlen(value);
    if (n >= 2 && (value[0] == '"' || value[0] == '\'') && value[n - 1] == value[0]) {
        value[n - 1] = '\0';
        value++;
    }
    return value;
}

static int from_file(struct lambda *l, bool *ret_found, struct gp_error *err) {
    GP_AUTO_FREE char *path = fs_expand_home(KEY_FILE);
    GP_AUTO_STR struct str text = {0};
    struct stat st;
    *ret_found = false;
    if (!fs_exists(path)) return 0;
    int r = fs_read(path, 64 << 10, &text, err);
    char *save = NULL, *value = NULL;
    for (char *line = r == 0 && text.len > 0 ? strtok_r(text.s, "\n", &save) : NULL; line != NULL && value == NULL;
         line = strtok_r(NULL, "\n", &save))
        value = key_of_line(line);
    if (r == 0 && value == NULL)
        r = gp_fail(err, GP_EAUTH, "lambda: '%s' has no line 'api_key = KEY': add it, or set LAMBDA_API_KEY", path);
    if (r == 0) r = take(l, value, xasprintf("'%s'", path), err);
    free(l->source_warning);
    l->source_warning = NULL;
    if (r == 0 && stat(path, &st) == 0 && (st.st_mode & 077) != 0)
        l->source_warning =
            xasprintf("lambda: other users can read the API key in '%s' (mode %04o): run 'chmod 600 %s'", path,
                      (unsigned)(st.st_mode & 07777), path);
    *ret_found = r == 0;
    if (text.s != NULL) explicit_bzero(text.s, text.cap);
    return r;
}

int lambda_creds_load(struct lambda *l, struct gp_error *err) {
    static const char *const names[] = {"LAMBDA_API_KEY", "LAMBDALABS_API_KEY"};
    bool found = false;
    for (size_t i = 0; i < GP_ARRAY_LEN(names); i++) {
        const char *value = getenv(names[i]);
        if (value != NULL && value[0] != '\0') return take(l, value, xasprintf("the variable %s", names[i]), err);
    }
    int r = from_file(l, &found, err);
    if (r != 0 || found) return r;
    r = gp_fail(err, GP_EAUTH,
                "lambda: no API key: set LAMBDA_API_KEY, or write 'api_key = KEY' to " KEY_FILE
                " (a key is made in the console, under API keys)");
    if (err != NULL) {
        err->scope = GP_SCOPE_PROVIDER;
        str_put(err->detail, sizeof err->detail, PROVIDER_NO_CREDENTIALS);
    }
    return r;
}

/* A key does not expire by itself. One that was refused is read again, because it may have been replaced. */
int lambda_creds_ensure(void *ctx, bool force, struct gp_error *err) {
    struct lambda *l = ctx;
    GP_AUTO_SECRET struct secret old = {0};
    if (!force) return 0;
    secret_copy(&old, &l->key);
    int r = lambda_creds_load(l, err);
    if (r != 0) return r;
    if (secret_equal(&old, secret_reveal(&l->key), l->key.len))
        return gp_fail(err, GP_EAUTH, "lambda: the API key of %s is still the one that was refused", l->source);
    return 0;
}

int lambda_creds_add(void *ctx, const struct rest_call *call, struct http_fields *add, struct gp_error *err) {
    struct lambda *l = ctx;
    (void)call;
    (void)err;
    char *value = xasprintf("Bearer %s", secret_reveal(&l->key));
    http_fields_add(add, "Authorization", value);
    explicit_bzero(value, strlen(value));
    free(value);
    return 0;
}

/* Without TLS the key would be readable on the way. */
static bool url_valid(const char *url) {
    static const char *const local[] = {"http://127.0.0.1", "http://[::1]", "http://localhost"};
    if (str_starts(url, "https://")) return url[8] != '\0';
    for (size_t i = 0; i < GP_ARRAY_LEN(local); i++) {
        size_t n = strlen(local[i]);
        if (strncmp(url, local[i], n) == 0 && (url[n] == ':' || url[n] == '/' || url[n] == '\0')) return true;
    }
    return false;
}

int lambda_endpoint(struct lambda *l, struct gp_error *err) {
    const char *own = getenv("GPUPROV_LAMBDA_ENDPOINT"), *pace = getenv("GPUPROV_LAMBDA_PACE_MS");
    bool other = own != NULL && own[0] != '\0';
    GP_AUTO_FREE char *base = xstrdup(other ? own : ENDPOINT);
    size_t n = strlen(base);
    while (n > 0 && base[n - 1] == '/') base[--n] = '\0';
    if (!url_valid(base))
        return gp_fail(err, GP_EUSAGE,
                       "GPUPROV_LAMBDA_ENDPOINT '%.120s' is not an https:// URL (http:// is for this machine only): "
                       "correct it",
                       own);
    l->endpoint = xasprintf("%s/api/v1", base);
    l->pace_ms = PACE_MS;
    if (other && strcmp(base, ENDPOINT) != 0 && pace != NULL && pace[0] != '\0' &&
        !str_to_i64(pace, 0, 60000, &l->pace_ms))
        return gp_fail(err, GP_EUSAGE, "GPUPROV_LAMBDA_PACE_MS '%.40s' is not a number from 0 to 60000: correct it",
                       pace);
    return 0;
}
