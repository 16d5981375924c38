// SPDX-License-Identifier: Apache-2.0
/* What may be sent where: the rule for requests without TLS and the form of header fields, for every provider. Any
 * thread. */
#include "base/gp_base.h"

#include "providers/http_int.h"

#include "base/form.h"
#include "base/log.h"

#include <strings.h>

/* Metadata services speak http by design, at addresses that do not leave the machine's own link: EC2, ECS and EKS,
 * Azure, Google (also by its name), Alibaba. */
static const char *const metadata_hosts[] = {"169.254.169.254",          "169.254.170.2",  "169.254.170.23",
                                             "169.254.169.252",          "fd00:ec2::254",  "fd00:ec2::23",
                                             "metadata.google.internal", "100.100.100.200"};

static bool is_metadata(const struct url_place *p) {
    for (size_t i = 0; i < GP_ARRAY_LEN(metadata_hosts); i++)
        if (strcasecmp(p->host, metadata_hosts[i]) == 0) return true;
    return false;
}

static int check(const char *what, const char *url, bool metadata, enum url_way *ret, struct gp_error *err) {
    struct url_place place;
    GP_AUTO_FREE char *shown = http_url_shown(url);
    if (!form_url(url, &place))
        return gp_fail(err, GP_EUSAGE, "%s: '%.200s' is not an http or https URL of a host without a user: correct it",
                       what, shown);
    *ret = form_url_way(&place);
    if (metadata && !place.https && is_metadata(&place)) *ret = URL_NEAR;
    if (*ret != URL_NONE) return 0;
    GP_AUTO_FREE char *name = http_url_place(url);
    return gp_fail(err, GP_EUSAGE,
                   "%s: 'http://%.100s' is not https: use https, or " FORM_URL_CLEAR_ENV "=%.100s where nobody on the "
                   "way can read along",
                   what, name, name);
}

int http_url_check(const char *what, const char *url, struct gp_error *err) {
    enum url_way way = URL_NONE;
    return check(what, url, false, &way, err);
}

int http_clear_check(const struct http_req *req, bool *ret_direct, struct gp_error *err) {
    enum url_way way = URL_NONE;
    int r = check(req->what, req->url, req->metadata, &way, err);
    *ret_direct = way == URL_NEAR;
    return r;
}

/* --- header fields --- */

static bool is_name(const char *s) {
    size_t n = strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.!#$%&'*+^`|~");
    return n > 0 && s[n] == '\0';
}

static bool is_value(const char *s) {
    for (; *s != '\0'; s++)
        if (*s < ' ' || *s > '~') return false;
    return true;
}

/* A service may repeat a secret of a header in its error: no text of an error has it then. Signatures are made anew for
 * each request and are worth nothing afterwards. */
static void hide(const char *name, const char *value) {
    static const char *const schemes[] = {"Bearer ", "Basic ", "Token "};
    bool authorization = strcasecmp(name, "authorization") == 0;
    const char *secret = value;
    for (size_t i = 0; authorization && secret == value && i < GP_ARRAY_LEN(schemes); i++)
        if (strncasecmp(value, schemes[i], strlen(schemes[i])) == 0) secret = value + strlen(schemes[i]);
    bool plain = authorization && strchr(secret, ' ') == NULL && strchr(secret, ',') == NULL;
    bool named = strcasestr(name, "token") != NULL || strcasestr(name, "api-key") != NULL ||
                 strcasestr(name, "apikey") != NULL || strcasestr(name, "secret") != NULL ||
                 strcasestr(name, "password") != NULL || strcasecmp(name, "cookie") == 0;
    if (plain || (named && strcasestr(name, "ttl") == NULL)) log_redact_text(secret);
}

int http_headers_check(const struct http_req *req, const struct http_fields *f, struct gp_error *err) {
    for (size_t i = 0; f != NULL && i < f->list.len; i++) {
        const struct http_field *one = &f->list.items[i];
        if (!is_name(one->name))
            return gp_fail(err, GP_EAUTH, "%s: '%.40s' is not the name of a header: correct the configuration",
                           req->what, one->name);
        if (!is_value(one->value))
            return gp_fail(err, GP_EAUTH,
                           "%s: the header '%.60s' would have a line break or another character that is not printable: "
                           "correct the key or token that it is made of",
                           req->what, one->name);
        hide(one->name, one->value);
    }
    return 0;
}
