/* SPDX-License-Identifier: Apache-2.0 */
/* The benchmark's client for bootstraps: one thread per host calls bootstrap_run with the settings of a spec, as the
 * engine does, without launch and validation.
 *   bootstrap_fleet SPEC HOSTS USER KEY KNOWN_HOSTS
 * HOSTS: a file with one address per line. Prints {"hosts", "failed", "applied"}; exit 1 if a host failed. */
#include "base/gp_base.h"

#include "base/fs.h"
#include "base/log.h"
#include "bootstrap/bootstrap.h"
#include "providers/provider.h"

#include <pthread.h>
#include <unistd.h>

#define TIME_MS (10 * 60 * 1000)
#define STACK_BYTES ((size_t)512 << 10) /* as the engine's pool */

struct one {
    const struct spec *spec;
    struct node_link link;
    pthread_t thread;
    struct bootstrap_result result;
    int rc;
    struct gp_error err;
};

static void on_event(void *ctx GP_UNUSED, const struct event *e GP_UNUSED) {}

static void *host_thread(void *arg) {
    struct one *o = arg;
    struct bootstrap_req req = {.spec = o->spec,
                                .stack = "bench",
                                .uid = "0123456789abcdef",
                                .packages_allowed = true,
                                .deadline_ms = clock_deadline(TIME_MS)};
    o->rc = bootstrap_run(&o->link, &req, &o->result, &o->err);
    node_link_close(&o->link);
    bootstrap_output_clear(&o->result.failed);
    return NULL;
}

static size_t run_all(const struct spec *spec, const struct strv *hosts, char **argv, int *ret_applied) {
    static const struct event_sink sink = {.emit = on_event};
    struct gp_cancel cancel = {0};
    struct one *all = xcalloc(hosts->n, sizeof *all);
    size_t failed = 0;
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, STACK_BYTES);
    if (gp_cancel_init(&cancel, NULL) != 0) _exit(1);
    for (size_t i = 0; i < hosts->n; i++) {
        all[i] = (struct one){.spec = spec,
                              .link = {.slot = (int)i,
                                       .reach_timeout_ms = 60000,
                                       .cancel = &cancel,
                                       .sink = &sink,
                                       .target = {.label = xstrdup(hosts->v[i]),
                                                  .host = xstrdup(hosts->v[i]),
                                                  .user = xstrdup(argv[3]),
                                                  .key_path = xstrdup(argv[4]),
                                                  .known_hosts = xstrdup(argv[5])}}};
        if (pthread_create(&all[i].thread, &attr, host_thread, &all[i]) != 0) _exit(1);
    }
    for (size_t i = 0; i < hosts->n; i++) {
        pthread_join(all[i].thread, NULL);
        *ret_applied += all[i].result.applied;
        if (all[i].rc != 0) fprintf(stderr, "bootstrap_fleet: %s\n", all[i].err.msg);
        failed += all[i].rc != 0;
        ssh_target_clear(&all[i].link.target);
    }
    pthread_attr_destroy(&attr);
    gp_cancel_clear(&cancel);
    free(all);
    return failed;
}

int main(int argc, char **argv) {
    struct gp_error err = {0};
    struct spec_problems problems = {0};
    GP_AUTO_SPEC struct spec *spec = NULL;
    GP_AUTO_STR struct str text = {0};
    GP_AUTO_STRV struct strv hosts = {0};
    if (argc != 6) return 2;
    provider_specs_register();
    int r = spec_load(argv[1], NULL, &spec, &problems, &err);
    if (r == 0) r = fs_read(argv[2], (size_t)1 << 20, &text, &err);
    if (r == 0) r = ssh_global_init(&err);
    if (r != 0) {
        const char *why = problems.list.len > 0 ? problems.list.items[0].message : "";
        fprintf(stderr, "bootstrap_fleet: %s: %s\n", err.msg, why);
        return 1;
    }
    strv_split(&hosts, text.s, "\n");
    int applied = 0;
    size_t failed = run_all(spec, &hosts, argv, &applied);
    printf("{\"hosts\": %zu, \"failed\": %zu, \"applied\": %d}\n", hosts.n, failed, applied);
    spec_problems_clear(&problems);
    ssh_global_exit();
    log_close();
    return failed > 0;
}
