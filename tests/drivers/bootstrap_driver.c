/* SPDX-License-Identifier: Apache-2.0 */
/* Test program: calls bootstrap_run or bootstrap_rotate_host_key on one host and prints what happened
 * as JSON lines. Not part of gpuprov.
 *   bootstrap_driver run|rotate HOST USER KEY_FILE HOST_KEY [option value]...
 * HOST_KEY: "ssh-ed25519 AAAA" (several: apart by commas). Options: --package P, --step NAME:CHECK_FILE:RUN_FILE
 * ("-" for no check), --secret ENV:FILE, --deadline-s N, --cloud-init yes, --gpu N, --port N,
 * --spec FILE (its bootstrap block, in place of --package and --step), --limit-s N and --tries N (of the last step),
 * --reboot-s N, --launched yes, --refusal TEXT, --image NAME, --commit-file PATH, --stop-after commit */
#include "base/gp_base.h"

#include "base/fs.h"
#include "base/log.h"
#include "bootstrap/bootstrap.h"
#include "providers/provider.h"
#include "validate/validate.h"

#include <signal.h>
#include <unistd.h>

struct driver {
    struct spec spec, *loaded;
    struct bootstrap_req req;
    struct bootstrap_secret secrets[8];
    struct strv envs;
    struct node_link link;
    struct gp_cancel cancel;
    int64_t deadline_s;
    const char *commit_file, *stop_after;
};

static void print_line(struct str *line) {
    str_add(line, "}\n");
    if (fs_write_all(STDOUT_FILENO, line->s, line->len)) _exit(3);
}

static void add_text(struct str *line, const char *name, const char *text) {
    str_addf(line, ",\"%s\":\"", name);
    str_add_json(line, text, strlen(text));
    str_addc(line, '"');
}

static void on_event(void *ctx, const struct event *e) {
    (void)ctx;
    GP_AUTO_STR struct str line = {0};
    str_addf(&line, "{\"event\":\"%s\"", event_status_name(e->status));
    add_text(&line, "step", e->step);
    add_text(&line, "text", e->text);
    if (e->percent > 0) str_addf(&line, ",\"percent\":%d", e->percent);
    print_line(&line);
}

static int read_text(const char *path, char **ret, struct gp_error *err) {
    GP_AUTO_STR struct str text = {0};
    int rc = fs_read(path, 1 << 20, &text, err);
    if (!rc) *ret = str_steal(&text);
    return rc;
}

static int add_step(struct driver *d, const char *value, struct gp_error *err) {
    GP_AUTO_STRV struct strv part = {0};
    strv_split(&part, value, ":");
    if (part.n != 3) return gp_fail(err, GP_EUSAGE, "--step NAME:CHECK_FILE:RUN_FILE");
    struct spec_step s = {.name = xstrdup(part.v[0])};
    int rc = str_eq(part.v[1], "-") ? 0 : read_text(part.v[1], &s.check, err);
    if (!rc) rc = read_text(part.v[2], &s.run, err);
    vec_push(&d->spec.steps, s);
    return rc;
}

static int add_secret(struct driver *d, const char *value, struct gp_error *err) {
    const char *colon = strchr(value, ':');
    if (!colon || d->req.n_secrets == GP_ARRAY_LEN(d->secrets)) return gp_fail(err, GP_EUSAGE, "--secret ENV:FILE");
    GP_AUTO_FREE char *text = NULL;
    int rc = read_text(colon + 1, &text, err);
    if (rc) return rc;
    struct bootstrap_secret *s = &d->secrets[d->req.n_secrets++];
    GP_AUTO_FREE char *env = xstrndup(value, (size_t)(colon - value));
    strv_add(&d->envs, env);
    s->env = d->envs.v[d->envs.n - 1];
    char *clean = str_trim(text);
    secret_set(&s->value, clean, strlen(clean));
    return 0;
}

static int load_spec(struct driver *d, const char *path, struct gp_error *err) {
    struct spec_problems problems = {0};
    provider_specs_register();
    int rc = spec_load(path, validate_names(), &d->loaded, &problems, err);
    if (problems.list.len > 0) {
        gp_error_clear(err);
        rc = gp_fail(err, GP_EUSAGE, "%s", problems.list.items[0].message);
    }
    spec_problems_clear(&problems);
    if (rc == 0) d->req.spec = d->loaded;
    return rc;
}

static int option(struct driver *d, const char *name, const char *value, struct gp_error *err) {
    int64_t n = 0;
    bool number = str_to_i64(value, 0, 1 << 20, &n);
    if (str_eq(name, "--package")) strv_add(&d->spec.packages, value);
    else if (str_eq(name, "--step")) return add_step(d, value, err);
    else if (str_eq(name, "--spec")) return load_spec(d, value, err);
    else if (str_eq(name, "--secret")) return add_secret(d, value, err);
    else if (str_eq(name, "--deadline-s") && number) d->deadline_s = n;
    else if (str_eq(name, "--limit-s") && number && d->spec.steps.len > 0)
        d->spec.steps.items[d->spec.steps.len - 1].timeout_ms = n * 1000;
    else if (str_eq(name, "--tries") && number && d->spec.steps.len > 0)
        d->spec.steps.items[d->spec.steps.len - 1].tries = (int)n;
    else if (str_eq(name, "--reboot-s") && number) d->req.reboot_ms = n * 1000;
    else if (str_eq(name, "--launched")) d->req.launched = true;
    else if (str_eq(name, "--cloud-init")) d->req.wait_cloud_init = true;
    else if (str_eq(name, "--ends-itself") && number) {
        d->req.ends_itself = true;
        d->req.uid = "0123456789abcdef";
        d->req.ttl_s = n;
        d->req.expires_s = clock_wall_s() + n;
    } else if (str_eq(name, "--gpu") && number) d->spec.gpu.count = (int)n;
    else if (str_eq(name, "--port") && number) d->link.target.port = (uint16_t)n;
    else if (str_eq(name, "--image")) d->req.image_name = value;
    else if (str_eq(name, "--commit-file")) d->commit_file = value;
    else if (str_eq(name, "--stop-after")) d->stop_after = value;
    else if (str_eq(name, "--refusal")) {
        d->req.packages_allowed = false;
        d->req.packages_refusal = value;
    } else return gp_fail(err, GP_EUSAGE, "unknown option '%s %s'", name, value);
    return 0;
}

static int commit(void *ctx, const char *key, struct gp_error *err) {
    const struct driver *d = ctx;
    int rc = d->commit_file ? fs_write_atomic(d->commit_file, key, strlen(key), 0600, err) : 0;
    if (!rc && str_eq(d->stop_after, "commit")) kill(getpid(), SIGKILL);
    return rc;
}

static int act(struct driver *d, const char *what, struct str *line, struct gp_error *err) {
    d->req.deadline_ms = clock_deadline(d->deadline_s * 1000);
    if (str_eq(what, "rotate")) {
        GP_AUTO_FREE char *key = NULL;
        int rc = bootstrap_rotate_host_key(&d->link, d->req.deadline_ms, commit, d, &key, err);
        if (!rc) add_text(line, "key", key);
        if (!rc) add_text(line, "shown", ssh_host_key(d->link.session));
        str_addf(line, ",\"accepted\":%zu", d->link.target.host_keys.n);
        return rc;
    }
    struct bootstrap_result r = {0};
    int rc = bootstrap_run(&d->link, &d->req, &r, err);
    str_addf(line, ",\"applied\":%d,\"root\":%s,\"nvidia\":%s", r.applied, r.root ? "true" : "false",
             r.nvidia ? "true" : "false");
    add_text(line, "boot_id", r.boot_id);
    add_text(line, "arch", r.arch);
    bootstrap_result_clear(&r);
    return rc;
}

int main(int argc, char **argv) {
    if (argc < 6 || argc % 2 != 0) return 2;
    static const struct event_sink sink = {.emit = on_event};
    struct gp_error err = {0};
    struct driver d = {.deadline_s = 120};
    GP_AUTO_STR struct str line = {0};
    int rc = gp_cancel_init(&d.cancel, &err);
    if (!rc) rc = ssh_global_init(&err);
    d.req.spec = &d.spec;
    d.req.secrets = d.secrets;
    d.req.packages_allowed = true;
    d.req.stack = "test";
    d.link = (struct node_link){.slot = 1,
                                .reach_timeout_ms = 60000,
                                .login_grace_ms = 30000,
                                .cancel = &d.cancel,
                                .sink = &sink,
                                .target = {.label = xstrdup("test/1"),
                                           .host = xstrdup(argv[2]),
                                           .user = xstrdup(argv[3]),
                                           .key_path = xstrdup(argv[4])}};
    strv_split(&d.link.target.host_keys, argv[5], ",");
    for (int i = 6; i < argc && !rc; i += 2) rc = option(&d, argv[i], argv[i + 1], &err);
    str_add(&line, "{\"event\":\"result\"");
    if (!rc) rc = act(&d, argv[1], &line, &err);
    str_addf(&line, ",\"rc\":%d", rc);
    add_text(&line, "error", err.msg);
    print_line(&line);
    node_link_close(&d.link);
    ssh_target_clear(&d.link.target);
    for (size_t i = 0; i < d.spec.steps.len; i++) {
        free(d.spec.steps.items[i].name);
        free(d.spec.steps.items[i].run);
        free(d.spec.steps.items[i].check);
    }
    vec_free(&d.spec.steps);
    spec_free(d.loaded);
    strv_clear(&d.spec.packages);
    for (size_t i = 0; i < d.req.n_secrets; i++) secret_clear(&d.secrets[i].value);
    strv_clear(&d.envs);
    ssh_global_exit();
    log_close();
    gp_cancel_clear(&d.cancel);
    return rc ? 1 : 0;
}
