/* SPDX-License-Identifier: Apache-2.0 */
/* The verb `job`: a job of gpuprov on this node, which goes on when the connection that started it is gone. One thread;
 * its supervisor is a process of its own (job_supervise.c). */
#include "base/gp_base.h"

#include "base/clock.h"
#include "base/fs.h"
#include "validate/agent/job/job.h"
#include "validate/agent/verbs.h"

#include <signal.h>
#include <unistd.h>

int job_failed(const char *verb, const struct gp_error *err) {
    fprintf(stderr, "gpuprov-agent job %s: %s\n", verb, err->msg);
    return NODE_CHECK_UNKNOWN;
}

void job_print(const struct job_home *h, const struct job *j, const char *job) {
    GP_AUTO_STR struct str s = {0}, state = {0};
    job_state_json(&j->st, job_log_bytes(h, j->st.id), &state);
    if (job != NULL) str_addf(&s, "{\"job\":\"%s\",", job);
    str_add(&s, job != NULL ? state.s + 1 : state.s);
    str_addc(&s, '\n');
    (void)fs_write_all(STDOUT_FILENO, s.s, s.len);
}

static int print_state(struct job_home *h, const char *id, struct gp_error *err) {
    struct job j;
    int r = id != NULL ? job_settle(h, id, &j, err) : job_newest(h, &j, err);
    if (r == 0) job_print(h, &j, NULL);
    if (r != -GP_ENOTFOUND) return r;
    if (id != NULL) printf("{\"state\":\"none\",\"id\":\"%s\"}\n", id);
    else printf("{\"state\":\"none\"}\n");
    return 0;
}

static int print_list(struct job_home *h, struct gp_error *err) {
    GP_AUTO_FREE struct job *all = NULL;
    size_t n = 0;
    int r = job_all(h, &all, &n, err);
    for (size_t i = 0; r == 0 && i < n; i++) job_print(h, &all[i], NULL);
    return r;
}

/* On the disk before the signal, so that it holds across a reboot. */
static bool note_stop(const struct job_home *h, const char *id, const char *reason) {
    struct slots slot;
    char text[200];
    GP_AUTO_FREE char *path = job_path(h, id, "stop");
    snprintf(text, sizeof text, "stop %s", reason);
    str_one_line(text);
    if (slots_open(path, &slot, NULL) != 0) return false;
    bool noted = slots_put(&slot, text, true) == 0;
    close(slot.fd);
    return noted;
}

static int stop(struct job_home *h, const char *id, const char *reason, struct gp_error *err) {
    struct job j;
    int r = job_settle(h, id, &j, err);
    if (r != 0 || !j.alive) return r;
    /* Where nothing can be written it is ended all the same, without the reason. */
    int sig = note_stop(h, id, reason) ? SIGUSR1 : SIGTERM;
    for (pid_t pid = j.pid; r == 0 && j.alive && j.pid == pid;) {
        kill(pid, sig);
        gp_sleep(50, NULL, NULL);
        r = job_settle(h, id, &j, err);
    }
    return r;
}

static int collected(struct job_home *h, const char *id, struct gp_error *err) {
    struct job j;
    struct slots slot;
    GP_AUTO_STR struct str s = {0};
    GP_AUTO_FREE char *path = job_path(h, id, "state");
    int r = job_home_lock(h, err);
    if (r == 0) r = job_settle(h, id, &j, err);
    if (r != 0) return r;
    if (j.st.phase != JOB_ENDED) return gp_fail(err, GP_EBUSY, "job %s still runs", id);
    r = slots_open(path, &slot, err);
    if (r != 0) return r;
    j.st.collected = true;
    job_state_json(&j.st, -1, &s);
    r = slots_put(&slot, s.s, true);
    close(slot.fd);
    return r == 0 ? 0 : gp_fail_errno(err, GP_EIO, -r, "cannot write '%s'", path);
}

static int remove_job(struct job_home *h, const char *id, struct gp_error *err) {
    struct job j = {.alive = false};
    struct gp_error why = {0};
    GP_AUTO_FREE char *dir = job_path(h, id, NULL);
    int r = fs_exists(dir) ? job_home_lock(h, err) : 0;
    if (r == 0) r = job_settle(h, id, &j, &why); /* a damaged one is removed too */
    if (j.alive) return gp_fail(err, GP_EBUSY, "job %s still runs; stop it first", id);
    if (r == 0 && j.st.unit) job_unit_remove();
    r = fs_remove_tree(dir, err);
    if (r == 0) printf("{\"id\":\"%s\",\"removed\":true}\n", id);
    return r;
}

static int one(const char *verb, const char *id, int argc, char **argv, struct gp_error *err) {
    GP_CLEANUP(job_home_close) struct job_home h = {.lock = -1};
    const char *reason = "";
    struct job j;
    bool stops = str_eq(verb, "stop");
    const struct arg args[] = {{"--reason", ARG_TEXT, false, &reason}, {.name = NULL}};
    int r = args_parse(argc, argv, stops ? args : args + 1, err);
    if (r == 0) r = job_home_open(&h, false, err);
    if (r != 0) return r;
    if (str_eq(verb, "list")) return print_list(&h, err);
    if (str_eq(verb, "state")) return print_state(&h, id, err);
    if (str_eq(verb, "remove")) return remove_job(&h, id, err);
    r = stops ? stop(&h, id, reason, err) : collected(&h, id, err);
    if (r == 0) r = job_look(&h, id, &j, err);
    if (r == 0) job_print(&h, &j, NULL);
    return r;
}

int verb_job(int argc, char **argv) {
    static const char *const verbs[] = {"collected", "follow", "remove", "start", "state", "stop"};
    struct gp_error err = {0};
    const char *verb = argc > 0 ? argv[0] : "";
    const char *id = argc > 1 && argv[1][0] != '-' ? argv[1] : NULL;
    bool known = false;
    for (size_t i = 0; i < GP_ARRAY_LEN(verbs); i++) known = known || str_eq(verbs[i], verb);
    if (str_eq(verb, "again")) return job_again(argc - 1, argv + 1);
    if (str_eq(verb, "list") && argc == 1) known = true;
    else if (known && id == NULL && !str_eq(verb, "state")) gp_fail(&err, GP_EUSAGE, "the job's ID is missing");
    else if (known && id != NULL && !job_id_ok(id))
        gp_fail(&err, GP_EUSAGE, "'%.60s' is not an ID of 16 lower hexadecimal digits", id);
    if (!known) gp_fail(&err, GP_EUSAGE, "'%.60s' is not a verb of it; see 'gpuprov-agent --help'", verb);
    if (err.code != GP_OK) return job_failed(known ? verb : "", &err);
    argc -= id != NULL ? 2 : 1;
    argv += id != NULL ? 2 : 1;
    if (str_eq(verb, "start")) return job_start(id, argc, argv);
    if (str_eq(verb, "follow")) return job_follow(id, argc, argv);
    return one(verb, id, argc, argv, &err) == 0 ? 0 : job_failed(verb, &err);
}
