/* SPDX-License-Identifier: Apache-2.0 */
/* Renders the user-data of a node: user, login key, first-contact host key and, if requested, its own deadline; and the
 * start script of a container with the same keys.
 * Independent of the cloud; does no I/O; any thread may call it. The private key in it is replaced after first
 * contact, because every process on the node can read user-data. */
#include "base/gp_base.h"

#include "templates/templates.h"

/* Checks for one line of printable characters: a key line or a name. */
static int one_line(const char *what, const char *text, struct gp_error *err) {
    if (!text || !*text) return gp_fail(err, GP_EUSAGE, "user-data: no %s", what);
    for (const char *c = text; *c; c++)
        if ((unsigned char)*c < 0x20 || (unsigned char)*c == 0x7f)
            return gp_fail(err, GP_EUSAGE, "user-data: %s is not one line of text", what);
    return 0;
}

static int plain_name(const char *what, const char *text, struct gp_error *err) {
    int rc = one_line(what, text, err);
    if (rc) return rc;
    if (strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.") != strlen(text))
        return gp_fail(err, GP_EUSAGE,
                       "user-data: %s '%s' may have only letters, "
                       "digits, '-', '_' and '.'",
                       what, text);
    return 0;
}

/* A key line as a YAML string in double quotes. Its comment is the only part that may have other characters
 * than ASCII; YAML does not allow or would fold some of them. */
static void add_key(struct str *out, const char *line) {
    GP_AUTO_FREE char *ascii = xstrdup(line);
    for (char *c = ascii; *c; c++)
        if ((unsigned char)*c > 0x7e) *c = '?';
    str_add_json(out, ascii, strlen(ascii));
}

static void add_indented(struct str *out, const char *text, int spaces) {
    while (*text) {
        size_t n = strcspn(text, "\n");
        str_addf(out, "%s%*s%.*s", out->len ? "\n" : "", spaces, "", (int)n, text);
        text += n;
        if (*text == '\n') text++;
    }
}

static int check_keys(const char *login, const char *host_public, const char *host_private, struct gp_error *err) {
    int rc = one_line("login key", login, err);
    if (!rc) rc = one_line("public host key", host_public, err);
    if (rc) return rc;
    if (!str_starts(host_public, "ssh-ed25519 "))
        return gp_fail(err, GP_EUSAGE, "user-data: the first-contact host key is not ed25519");
    if (!host_private || !str_starts(host_private, "-----BEGIN "))
        return gp_fail(err, GP_EUSAGE, "user-data: no private host key in PEM form");
    return 0;
}

static int check_req(const struct cloud_init_req *req, struct gp_error *err) {
    int rc = plain_name("stack", req->stack, err);
    if (!rc) rc = plain_name("uid", req->uid, err);
    return rc ? rc : check_keys(req->login_pubkey, req->host_key_public, req->host_key_private, err);
}

int template_container_start(const struct container_start_req *req, struct str *out, struct gp_error *err) {
    int rc = check_keys(req->login_pubkey, req->host_key_public, req->host_key_private, err);
    if (rc) return rc;
    const struct template_var vars[] = {{"LOGIN_KEY", req->login_pubkey},
                                        {"HOST_KEY_PUBLIC", req->host_key_public},
                                        {"HOST_KEY_PRIVATE", req->host_key_private},
                                        {NULL, NULL}};
    GP_AUTO_STR struct str text = {.max = req->max};
    rc = template_render("pod/start.sh", vars, &text, err);
    if (rc) return rc;
    str_add_mem(out, text.s, text.len);
    return 0;
}

int template_cloud_init(const struct cloud_init_req *req, struct str *out, struct gp_error *err) {
    int rc = check_req(req, err);
    if (rc) return rc;
    GP_AUTO_STR struct str line = {0}, boot = {0}, login = {0}, host_public = {0}, host_private = {0};
    if (req->deadline != NULL) {
        rc = template_deadline(req->deadline, &line, err);
        if (rc) return rc;
        str_add(&boot, "  - [\"sh\", \"-c\", \"");
        str_add_json(&boot, line.s, line.len);
        str_add(&boot, "\"]\n");
    }
    add_key(&login, req->login_pubkey);
    add_key(&host_public, req->host_key_public);
    add_indented(&host_private, req->host_key_private, 4);
    const struct template_var vars[] = {{"STACK", req->stack},
                                        {"UID", req->uid},
                                        {"DEADLINE", boot.len > 0 ? boot.s : ""},
                                        {"LOGIN_KEY", login.s},
                                        {"HOST_KEY_PUBLIC", host_public.s},
                                        {"HOST_KEY_PRIVATE", host_private.s},
                                        {NULL, NULL}};
    GP_AUTO_STR struct str text = {.max = req->max};
    rc = template_render("cloud-init/user-data.yaml", vars, &text, err);
    if (rc) return rc;
    str_add_mem(out, text.s, text.len);
    return 0;
}
