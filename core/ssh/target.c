/* SPDX-License-Identifier: Apache-2.0 */
/* Targets as plain data, global set-up of libssh2, and the encodings of SSH keys.
 * No I/O. Any thread, except ssh_global_*, which belong to main. */
#include "base/gp_base.h"

#include "ssh/ssh.h"
#include "ssh/ssh_private.h"

#include "base/form.h"
#include "base/hash.h"

void ssh_target_clear(struct ssh_target *t) {
    if (t == NULL) return;
    free(t->label);
    free(t->host);
    free(t->dial_socket);
    free(t->user);
    strv_clear(&t->host_keys);
    free(t->known_hosts);
    free(t->key_path);
    secret_clear(&t->key_pem);
    if (t->bastion != NULL) {
        ssh_target_clear(t->bastion);
        free(t->bastion);
    }
    *t = (struct ssh_target){0};
}

void ssh_target_copy(struct ssh_target *to, const struct ssh_target *from) {
    *to = (struct ssh_target){
        .label = xstrdup(from->label),
        .host = xstrdup(from->host),
        .port = from->port,
        .dial_socket = xstrdup(from->dial_socket),
        .user = xstrdup(from->user),
        .known_hosts = xstrdup(from->known_hosts),
        .accept_new = from->accept_new,
        .key_path = xstrdup(from->key_path),
        .use_agent = from->use_agent,
    };
    strv_copy(&to->host_keys, &from->host_keys);
    if (from->key_pem.len > 0) secret_copy(&to->key_pem, &from->key_pem);
    if (from->bastion != NULL) {
        to->bastion = xcalloc(1, sizeof *to->bastion);
        ssh_target_copy(to->bastion, from->bastion);
    }
}

int ssh_target_parse(const char *text, struct ssh_target *ret, struct gp_error *err) {
    const char *at = strrchr(text, '@');
    const char *host = at != NULL ? at + 1 : text;
    bool bracket = host[0] == '[';
    const char *end = bracket ? strchr(host, ']') : strrchr(host, ':');
    if (!bracket && end != NULL && strchr(host, ':') != end) end = NULL; /* IPv6 without a port */
    const char *after = end == NULL ? "" : bracket ? end + 1 : end;
    GP_AUTO_FREE char *user = at != NULL ? xstrndup(text, (size_t)(at - text)) : NULL;
    GP_AUTO_FREE char *name = end != NULL ? xstrndup(host + bracket, (size_t)(end - host - bracket)) : xstrdup(host);
    int64_t port = 0;
    if (!form_host(name) || (user != NULL && !form_login(user)))
        return gp_fail(err, GP_EUSAGE, "'%.100s' is not [user@]host[:port], such as ops@bastion.example", text);
    if (after[0] != '\0' && (after[0] != ':' || !str_to_i64(after + 1, 1, 65535, &port)))
        return gp_fail(err, GP_EUSAGE, "the port of '%.100s' is not from 1 to 65535", text);
    ret->user = GP_STEAL(user);
    ret->host = GP_STEAL(name);
    ret->port = (uint16_t)port;
    return 0;
}

int ssh_global_init(struct gp_error *err) {
    int r = libssh2_init(0);
    if (r != 0) return gp_fail(err, GP_EENV, "libssh2 could not be initialised (error %d)", r);
    return 0;
}

void ssh_global_exit(void) {
    ssh_gates_clear();
    libssh2_exit();
}

bool ssh_rsa_ok(void) { return libssh2_version(0x010b00) != NULL; }

uint16_t ssh_port(const struct ssh_target *t) { return t->port != 0 ? t->port : 22; }

char *ssh_where(const char *host, uint16_t port) {
    bool v6 = strchr(host, ':') != NULL;
    return xasprintf(v6 ? "[%s]:%u" : "%s:%u", host, (unsigned)port);
}

bool ssh_read_u32(const unsigned char **p, const unsigned char *end, uint32_t *ret) {
    if (end - *p < 4) return false;
    const unsigned char *b = *p;
    *ret = (uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 | (uint32_t)b[2] << 8 | b[3];
    *p += 4;
    return true;
}

bool ssh_read_string(const unsigned char **p, const unsigned char *end, const unsigned char **ret, size_t *ret_n) {
    uint32_t n = 0;
    if (!ssh_read_u32(p, end, &n) || (size_t)(end - *p) < n) return false;
    *ret = *p;
    *ret_n = n;
    *p += n;
    return true;
}

void ssh_put_u32(struct str *s, uint32_t v) {
    unsigned char b[4] = {(unsigned char)(v >> 24), (unsigned char)(v >> 16), (unsigned char)(v >> 8),
                          (unsigned char)v};
    str_add_mem(s, b, sizeof b);
}

void ssh_put_string(struct str *s, const void *p, size_t n) {
    ssh_put_u32(s, (uint32_t)n);
    str_add_mem(s, p, n);
}

bool ssh_unbase64(const char *text, size_t n, struct str *ret) {
    GP_AUTO_STR struct str clean = {0};
    for (size_t i = 0; i < n; i++)
        if (strchr(" \t\r\n", text[i]) == NULL) str_addc(&clean, text[i]);
    bool ok = clean.len > 0 && base64_bytes(clean.s, clean.len, ret);
    if (clean.len > 0) explicit_bzero(clean.s, clean.len);
    return ok;
}

char *ssh_blob_line(const void *blob, size_t n) {
    const unsigned char *p = blob, *type = NULL;
    size_t type_n = 0;
    if (!ssh_read_string(&p, p + n, &type, &type_n) || type_n == 0 || type_n > 64) return NULL;
    for (size_t i = 0; i < type_n; i++)
        if (type[i] <= ' ' || type[i] >= 0x7f) return NULL;
    GP_AUTO_FREE char *b64 = base64_text(blob, n);
    return xasprintf("%.*s %s", (int)type_n, (const char *)type, b64);
}

bool ssh_line_blob(const char *line, struct str *ret) {
    while (*line == ' ' || *line == '\t') line++;
    size_t type_n = strcspn(line, " \t");
    const char *b64 = line + type_n;
    while (*b64 == ' ' || *b64 == '\t') b64++;
    size_t start = ret->len;
    if (!ssh_unbase64(b64, strcspn(b64, " \t\r\n"), ret)) return false;
    const unsigned char *p = (const unsigned char *)ret->s + start, *type = NULL;
    size_t n = 0;
    return ssh_read_string(&p, (const unsigned char *)ret->s + ret->len, &type, &n) && n == type_n &&
           memcmp(type, line, n) == 0;
}

void ssh_blob_fingerprint(const void *blob, size_t n, char *dst, size_t dst_n) {
    unsigned char hash[SHA256_BYTES];
    sha256_bytes(blob, n, hash);
    GP_AUTO_FREE char *b64 = base64_text(hash, sizeof hash);
    b64[strcspn(b64, "=")] = '\0';
    snprintf(dst, dst_n, "SHA256:%s", b64);
}
