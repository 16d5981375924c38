/* SPDX-License-Identifier: Apache-2.0 */
/* Decodes the place of a job's files in an object store. Pure; any thread. */
#include "base/gp_base.h"

#include "spec/spec_job.h"

#include "base/str.h"

#define LOWER "abcdefghijklmnopqrstuvwxyz0123456789"
#define PREFIX_CHARS LOWER "ABCDEFGHIJKLMNOPQRSTUVWXYZ._+@=,:~-"
#define PREFIX_MAX 500 /* a key has 1024 bytes at most, and the names of the files come behind it */

const char *const bucket_url_schemes[] = {"s3", "gs", NULL};

bool bucket_url_is(const char *to) { return to != NULL && strstr(to, "://") != NULL; }

/* What S3 and Google allow for new buckets: 3 to 63 of a-z, 0-9, '.' and '-'; Google also '_'. */
static bool name_valid(const char *s, bool google) {
    size_t n = strlen(s);
    bool ends = n >= 3 && n <= 63 && strchr(LOWER, s[0]) != NULL && strchr(LOWER, s[n - 1]) != NULL;
    return ends && strspn(s, google ? LOWER ".-_" : LOWER ".-") == n && strstr(s, "..") == NULL;
}

static bool prefix_valid(const char *s) {
    GP_AUTO_STRV struct strv parts = {0};
    if (s[0] == '\0') return true;
    if (strlen(s) > PREFIX_MAX || s[0] == '/' || strstr(s, "//") != NULL) return false;
    strv_split(&parts, s, "/");
    for (size_t i = 0; i < parts.n; i++) {
        const char *p = parts.v[i];
        if (strcmp(p, ".") == 0 || strcmp(p, "..") == 0 || strspn(p, PREFIX_CHARS) != strlen(p)) return false;
    }
    return true;
}

static void known(struct str *ret) {
    for (size_t i = 0; bucket_url_schemes[i] != NULL; i++)
        str_addf(ret, "%s%s://", i > 0 ? ", " : "", bucket_url_schemes[i]);
}

int bucket_url_decode(const char *to, struct bucket_url *ret, struct gp_error *err) {
    const char *rest = strstr(to, "://");
    size_t n = rest != NULL ? (size_t)(rest - to) : 0;
    for (size_t i = 0; rest != NULL && ret->scheme == NULL && bucket_url_schemes[i] != NULL; i++)
        if (strlen(bucket_url_schemes[i]) == n && strncmp(to, bucket_url_schemes[i], n) == 0)
            ret->scheme = bucket_url_schemes[i];
    if (ret->scheme == NULL) {
        GP_AUTO_STR struct str schemes = {0};
        known(&schemes);
        return gp_fail(err, GP_EUSAGE,
                       "'%.100s' is neither a folder of this machine nor a bucket that gpuprov can write to (%s)", to,
                       schemes.s);
    }
    rest += 3;
    n = strcspn(rest, "/");
    ret->name = xstrndup(rest, n);
    ret->prefix = xstrdup(rest[n] == '/' ? rest + n + 1 : "");
    for (size_t k = strlen(ret->prefix); k > 0 && ret->prefix[k - 1] == '/'; k--) ret->prefix[k - 1] = '\0';
    if (!name_valid(ret->name, strcmp(ret->scheme, "gs") == 0))
        return gp_fail(err, GP_EUSAGE,
                       "'%.100s' does not name a bucket: 3 to 63 lower-case letters, digits, '.' and '-' come after "
                       "'%s://'",
                       to, ret->scheme);
    if (!prefix_valid(ret->prefix))
        return gp_fail(err, GP_EUSAGE,
                       "'%.100s': after the bucket comes a path of letters, digits and ._+@=,:~-, without '.' and "
                       "'..' as folders",
                       to);
    return 0;
}

void bucket_url_clear(struct bucket_url *b) {
    free(b->name);
    free(b->prefix);
    *b = (struct bucket_url){0};
}
