/* SPDX-License-Identifier: Apache-2.0 */
/* notify_driver SPEC COUNT KIND...: COUNT rounds of an event of each kind (unhealthy, preempted, failed, gone) in a run
 * of the spec, as a verb emits them, then the end of the verb. Prints "emitted" in between; warnings go to stderr. SIGINT cancels as Ctrl-C does. */
#include "base/gp_base.h"

#include "engine/run/run_event.h"

#include "validate/validate.h"

#include <signal.h>

static struct engine *engine;
static void on_int(int sig) {
    (void)sig;
    engine_cancel(engine); /* writes to a pipe only. NOLINT(bugprone-signal-handler) */
}

static void print_warning(void *ctx, const struct event *e) {
    (void)ctx;
    if (e->status == EVENT_WARN && strcmp(e->step, "notify") == 0) fprintf(stderr, "%s\n", e->text);
}

static void emit(struct run *run, const char *kind, int i) {
    GP_AUTO_FREE char *text = xasprintf("%s: event %d", kind, i);
    bool of_node = strcmp(kind, "unhealthy") == 0 || strcmp(kind, "preempted") == 0;
    if (of_node) run_event(run, i % 8, NODE_READY, EVENT_WARN, "job.health", "%s", text);
    else if (strcmp(kind, "gone") == 0) run_event(run, -1, NODE_GONE, EVENT_DONE, "", "%s", text);
    else run_event(run, -1, NODE_FAILED, EVENT_FAIL, "", "%s", text);
}

int main(int argc, char **argv) {
    struct engine_opts opts = {.owner = "tester"};
    struct gp_error err = {0};
    struct spec_problems problems = {0};
    struct run *run = NULL;
    GP_AUTO_SPEC struct spec *spec = NULL;
    int64_t count = 0;
    signal(SIGPIPE, SIG_IGN);
    provider_specs_register();
    if (argc < 3 || !str_to_i64(argv[2], 0, 1000000, &count)) return 2;
    int r = spec_load(argv[1], validate_names(), &spec, &problems, &err);
    if (r == 0) r = engine_open(&opts, &engine, &err);
    if (r == 0) r = run_open(engine, spec, spec->name, &run, &err);
    if (r != 0) {
        fprintf(stderr, "%s\n", err.msg);
        return 1;
    }
    signal(SIGINT, on_int);
    engine->notifies = engine->shows_plan = true;
    engine->sink.emit = print_warning;
    for (int i = 0; i < (int)count; i++)
        for (int k = 3; k < argc; k++) emit(run, argv[k], i);
    puts("emitted");
    fflush(stdout);
    run_close(run);
    engine_settle(engine);
    engine_close(engine);
    spec_problems_clear(&problems);
    return 0;
}
