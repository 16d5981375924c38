/* SPDX-License-Identifier: Apache-2.0 */
/* Test program: cloud_init_driver LOGIN_KEY_FILE OUT_FOLDER TTL_S GRACE_S TICK_S EXPIRES_S [IDLE_S CONTROLLER_S]
 * Makes a first-contact key pair and writes OUT_FOLDER/{user-data,host_key,host_key.pub} with the
 * program's own renderer. Not part of gpuprov. */
#include "base/gp_base.h"

#include "base/fs.h"
#include "ssh/ssh.h"
#include "templates/templates.h"

static int write_out(const char *dir, const char *name, const char *text, struct gp_error *err) {
    GP_AUTO_FREE char *path = fs_join(dir, name);
    return fs_write_atomic(path, text, strlen(text), 0600, err);
}

static int render(char **argv, struct gp_error *err) {
    GP_AUTO_STR struct str login = {0}, out = {0};
    GP_AUTO_SECRET struct secret host_private = {0};
    GP_AUTO_FREE char *host_public = NULL;
    int64_t n[6] = {0};
    for (int i = 0; i < 6 && argv[3 + i] != NULL; i++)
        if (!str_to_i64(argv[3 + i], 0, INT64_MAX, &n[i]))
            return gp_fail(err, GP_EUSAGE, "'%s' is not a number", argv[3 + i]);
    int rc = fs_read(argv[1], 65536, &login, err);
    if (!rc) rc = ssh_key_make("first contact", &host_private, &host_public, err);
    if (rc) return rc;
    struct deadline_req end = {.uid = "0123456789abcdef",
                               .ttl_s = n[0],
                               .grace_s = n[1],
                               .tick_s = n[2],
                               .expires_s = n[3],
                               .idle_s = n[4],
                               .controller_s = n[5]};
    struct cloud_init_req req = {.login_pubkey = str_trim(login.s),
                                 .host_key_private = secret_reveal(&host_private),
                                 .host_key_public = host_public,
                                 .stack = "test",
                                 .uid = "0123456789abcdef",
                                 .deadline = &end,
                                 .max = 16384};
    rc = template_cloud_init(&req, &out, err);
    if (!rc) rc = write_out(argv[2], "user-data", out.s, err);
    if (!rc) rc = write_out(argv[2], "host_key.pub", host_public, err);
    return rc;
}

int main(int argc, char **argv) {
    struct gp_error err = {0};
    if (argc != 7 && argc != 9) {
        fprintf(stderr,
                "usage: cloud_init_driver LOGIN_KEY OUT TTL_S GRACE_S TICK_S EXPIRES_S [IDLE_S CONTROLLER_S]\n");
        return 2;
    }
    int rc = ssh_global_init(&err);
    if (!rc) rc = render(argv, &err);
    if (rc) fprintf(stderr, "cloud_init_driver: %s\n", err.msg);
    ssh_global_exit();
    return rc ? 1 : 0;
}
