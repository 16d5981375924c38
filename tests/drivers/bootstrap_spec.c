/* SPDX-License-Identifier: Apache-2.0 */
/* Test program: calls bootstrap_run on one host by a spec, and prints what happened as JSON lines. Not part of
 * gpuprov.
 *   bootstrap_spec SPEC HOST USER KEY_FILE HOST_KEY [SECONDS] */
#include "base/gp_base.h"

#include "base/fs.h"
#include "base/log.h"
#include "bootstrap/bootstrap.h"
#include "providers/provider.h"
#include "validate/validate.h"

#include <unistd.h>

#define SECRETS_MAX 8

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
    print_line(&line);
}

static int run(const struct spec *spec, struct node_link *link, int64_t seconds, struct str *line,
               struct gp_error *err) {
    struct bootstrap_secret secrets[SECRETS_MAX] = {0};
    struct bootstrap_req req = {.spec = spec,
                                .stack = "test",
                                .packages_allowed = true,
                                .secrets = secrets,
                                .deadline_ms = clock_deadline(seconds * 1000)};
    int rc = 0;
    for (size_t i = 0; i < spec->secrets.len && i < SECRETS_MAX && !rc; i++) {
        secrets[i].env = spec->secrets.items[i].env;
        rc = spec_secret_read(&spec->secrets.items[i], spec->path, &secrets[i].value, err);
        req.n_secrets = i + 1;
    }
    struct bootstrap_result r = {0};
    if (!rc) rc = bootstrap_run(link, &req, &r, err);
    str_addf(line, ",\"applied\":%d", r.applied);
    add_text(line, "output", r.failed.text.s ? r.failed.text.s : "");
    bootstrap_output_clear(&r.failed);
    for (size_t i = 0; i < req.n_secrets; i++) secret_clear(&secrets[i].value);
    return rc;
}

int main(int argc, char **argv) {
    if (argc < 6) return 2;
    static const struct event_sink sink = {.emit = on_event};
    struct gp_error err = {0};
    struct gp_cancel cancel = {0};
    int64_t seconds = 120;
    GP_AUTO_SPEC struct spec *spec = NULL;
    struct spec_problems problems = {0};
    GP_AUTO_STR struct str line = {0};
    provider_specs_register();
    int rc = gp_cancel_init(&cancel, &err);
    if (!rc) rc = ssh_global_init(&err);
    if (!rc && argc > 6 && !str_to_i64(argv[6], 1, 3600, &seconds)) rc = gp_fail(&err, GP_EUSAGE, "SECONDS");
    if (!rc) rc = spec_load(argv[1], validate_names(), &spec, &problems, &err);
    if (problems.list.len > 0) str_put(err.msg, sizeof err.msg, problems.list.items[0].message);
    struct node_link link = {.slot = 1,
                             .reach_timeout_ms = 60000,
                             .login_grace_ms = 30000,
                             .cancel = &cancel,
                             .sink = &sink,
                             .target = {.label = xstrdup("test/1"),
                                        .host = xstrdup(argv[2]),
                                        .user = xstrdup(argv[3]),
                                        .key_path = xstrdup(argv[4])}};
    strv_add(&link.target.host_keys, argv[5]);
    str_add(&line, "{\"event\":\"result\"");
    if (!rc) rc = run(spec, &link, seconds, &line, &err);
    str_addf(&line, ",\"rc\":%d", rc);
    add_text(&line, "error", err.msg);
    print_line(&line);
    node_link_close(&link);
    ssh_target_clear(&link.target);
    spec_problems_clear(&problems);
    ssh_global_exit();
    log_close();
    gp_cancel_clear(&cancel);
    return rc ? 1 : 0;
}
