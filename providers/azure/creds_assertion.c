// SPDX-License-Identifier: Apache-2.0
/* The assertion of a client that has a certificate: a JSON Web Token, signed with the key of the file, whose header
 * x5t is the certificate's SHA-1. The file has both, in PEM form. Pure but for the file. */
#include "base/gp_base.h"

#include "providers/azure/azure_int.h"

#include "base/fs.h"
#include "base/hash.h"
#include "base/log.h"
#include "providers/common/cloud_clock.h"
#include "providers/common/jwt.h"
#include "providers/common/secret_file.h"

#define FILE_MAX ((size_t)256 << 10)
#define LASTS_S 600

static const char begin_mark[] = "-----BEGIN CERTIFICATE-----", end_mark[] = "-----END CERTIFICATE-----";

/* The first certificate of the file, which is the client's own. False: there is none. */
static bool thumbprint(const char *pem, struct str *ret) {
    const char *begin = strstr(pem, begin_mark), *end = begin != NULL ? strstr(begin, end_mark) : NULL;
    GP_AUTO_STR struct str coded = {0}, der = {0};
    unsigned char sha1[20];
    if (end == NULL) return false;
    for (const char *p = begin + strlen(begin_mark); p < end; p++)
        if (strchr(" \t\r\n", *p) == NULL) str_addc(&coded, *p);
    if (coded.len == 0 || !base64_bytes(coded.s, coded.len, &der) || !sha1_bytes(der.s, der.len, sha1)) return false;
    base64url(ret, sha1, sizeof sha1);
    return true;
}

int azure_assertion_sign(struct azure *a, const char *file, const char *tenant, const char *client, const char *url,
                         struct secret *ret, struct gp_error *err) {
    GP_AUTO_STR struct str pem = {.max = FILE_MAX}, x5t = {0};
    GP_AUTO_SECRET struct secret key = {0};
    char id[33];
    int64_t now = cloud_now_s(&a->base);
    (void)tenant;
    int r = secret_file_read(file, FILE_MAX, &pem, err);
    if (r == 0 && !thumbprint(pem.s, &x5t))
        r = gp_fail(err, GP_EAUTH, "'%s' has no certificate in PEM form: convert it (openssl pkcs12 -in FILE -nodes)",
                    file);
    if (r == 0) r = fs_random_hex(id, 16, err);
    if (r == 0) {
        GP_AUTO_JSON json_t *header = json_pack("{s:s}", "x5t", x5t.s);
        GP_AUTO_JSON json_t *claims =
            json_pack("{s:s,s:s,s:s,s:s,s:I,s:I,s:I}", "aud", url, "iss", client, "sub", client, "jti", id, "nbf",
                      (json_int_t)now, "iat", (json_int_t)now, "exp", (json_int_t)now + LASTS_S);
        secret_set(&key, pem.s, pem.len);
        log_redact(&key);
        r = jwt_rs256(&key, header, claims, ret, err);
    }
    explicit_bzero(pem.s, pem.len);
    if (r == 0) return 0;
    gp_wrap(err, "azure credentials: AZURE_CLIENT_CERTIFICATE_PATH");
    if (err != NULL) err->code = GP_EAUTH;
    return -GP_EAUTH;
}
