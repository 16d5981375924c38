/* SPDX-License-Identifier: Apache-2.0 */
/* --report FORM=FILE and --certificate DIR, the same for every verb that has a report. */
#include "base/gp_base.h"

#include "reports.h"

#include "base/fs.h"
#include "cmd/app.h"
#include "engine/certificate/certify.h"

#include <errno.h>
#include <unistd.h>

enum { DAY_MS = 24 * 3600 * 1000 };

/* Splits "html=out.html" into the form and the path. */
static int split(const char *text, const struct report_ops **ret, const char **ret_path, struct gp_error *err) {
    const char *eq = strchr(text, '=');
    GP_AUTO_FREE char *name = eq != NULL ? xstrndup(text, (size_t)(eq - text)) : xstrdup(text);
    *ret = report_form(name);
    if (*ret == NULL) return gp_fail(err, GP_EUSAGE, "--report takes one of %s, not '%s'", REPORT_FORMS, name);
    if (eq == NULL || eq[1] == '\0')
        return gp_fail(err, GP_EUSAGE, "--report %s: the file is missing: use --report %s=FILE", name, name);
    *ret_path = eq + 1;
    return 0;
}

static int folder_can_be_written(const char *dir, const char *path, struct gp_error *err) {
    GP_AUTO_FREE char *inside = fs_join(dir, "."); /* fails for a file */
    if (access(inside, W_OK | X_OK) == 0) return 0;
    return gp_fail_errno(err, GP_EUSAGE, errno, "'%s' cannot be written", path);
}

static int file_can_be_written(const char *path, struct gp_error *err) {
    const char *slash = strrchr(path, '/');
    GP_AUTO_FREE char *dir = slash == NULL   ? xstrdup(".")
                             : slash == path ? xstrdup("/")
                                             : xstrndup(path, (size_t)(slash - path));
    return folder_can_be_written(dir, path, err);
}

/* A folder is created, because only that shows that it can be. */
static int certificate_can_be_written(const char *to, int nodes, struct gp_error *err) {
    bool file = str_ends(to, ".json");
    if (file && nodes > 1)
        return gp_fail(err, GP_EUSAGE, "--certificate: '%s' is one file and there are %d nodes: name a folder", to,
                       nodes);
    GP_AUTO_FREE char *folder = NULL;
    int r = file ? file_can_be_written(to, err) : fs_follow(to, &folder, err);
    if (r == 0 && folder != NULL) r = fs_mkdirs(folder, 0755, err);
    if (r == 0 && folder != NULL) r = folder_can_be_written(folder, to, err);
    return r == 0 ? 0 : gp_wrap(err, "--certificate");
}

int report_opts_check(const struct report_opts *o, int nodes, struct gp_error *err) {
    int r = 0;
    for (size_t i = 0; r == 0 && i < o->files.n; i++) {
        const struct report_ops *form = NULL;
        const char *path = "";
        r = split(o->files.v[i], &form, &path, err);
        if (r == 0) r = file_can_be_written(path, err);
    }
    if (r == 0 && o->certificate == NULL && o->certificate_ms > 0)
        r = gp_fail(err, GP_EUSAGE, "--certificate-ttl requires --certificate DIR");
    if (r == 0 && o->certificate != NULL) r = certificate_can_be_written(o->certificate, nodes, err);
    return r;
}

static int write_certificates(struct invocation *inv, const struct report_opts *o, const struct report *r,
                              struct gp_error *err) {
    GP_AUTO_CERTIFIED struct certified done = {0};
    GP_AUTO_FREE char *state_dir = NULL;
    int rc = fs_state_dir(&state_dir, err);
    int64_t ttl_ms = o->certificate_ms > 0 ? o->certificate_ms : DAY_MS;
    if (rc == 0) rc = certify(state_dir, r, o->certificate, ttl_ms, &done, err);
    if (inv->common->quiet || inv->common->json) return rc;
    for (size_t i = 0; i < done.refused.n; i++) fprintf(stderr, "gpuprov: no certificate: %s\n", done.refused.v[i]);
    for (size_t i = 0; i < done.paths.n; i++) fprintf(stderr, "certificate: %s\n", done.paths.v[i]);
    if (done.paths.n > 0) fprintf(stderr, "signed with %s\n", done.key.fingerprint);
    return rc;
}

int report_opts_write(struct invocation *inv, const struct report_opts *o, const struct report *r,
                      struct gp_error *err) {
    for (size_t i = 0; i < o->files.n; i++) {
        const struct report_ops *form = NULL;
        const char *path = "";
        int rc = split(o->files.v[i], &form, &path, err);
        if (rc == 0) rc = report_save(r, form, path, err);
        if (rc != 0) return rc;
        if (!inv->common->quiet && !inv->common->json) fprintf(stderr, "report: %s\n", path);
    }
    return o->certificate != NULL ? write_certificates(inv, o, r, err) : 0;
}

int report_opts_after(struct invocation *inv, const struct report_opts *o, const struct report *r, int ret_r,
                      struct gp_error *err) {
    struct gp_error own = {0};
    if (r->nodes.len == 0) return ret_r;
    int rc = report_opts_write(inv, o, r, &own);
    if (rc == 0) return ret_r;
    if (ret_r == 0 && r->uid != NULL && r->uid[0] != '\0')
        return gp_fail(err, own.code,
                       "%s; the nodes are ready and the report is kept: give this option to 'gpuprov report %s'",
                       own.msg, r->stack);
    if (ret_r == 0) {
        *err = own;
        return rc;
    }
    fprintf(stderr, "gpuprov: %s\n", own.msg);
    return ret_r;
}
