/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a step on the node so that it outlives the connection: starts it detached, follows it in slices,
 * finds it after a lost connection, repeats it after a reboot that cut it, kills it at its deadline.
 * Independent of the step's content. The node's own thread. */
#include "base/gp_base.h"

#include "bootstrap/steps.h"

#include "base/form.h"
#include "base/fs.h"
#include "base/log.h"

#define SLICE_S 40 /* the node is polled at least this often, so that a dead one is detected */
#define SLICE_SLACK_MS 30000
#define SAY_EVERY_MS 250 /* a step's output is shown at most this often */
#define KILL_MS 15000
#define CUTS_MAX 5 /* reboots that may cut a step of the table or one with a check */
#define CUTS_MAX_NO_CHECK 1
#define REPLACED_MS 200  /* times 1 to 8: not in step with the other gpuprov */
#define REBOOTS_MAX 3    /* that one step may ask for */
#define REBOOT_STATUS 75 /* of restart_node in lib.sh */
#define PAUSE_MS 2000    /* before the second try, twice as long before each further one */
#define PAUSE_MAX_MS 30000
#define OFFSET_MAX ((int64_t)1 << 53) /* bytes that are counted behind it stay below 2^63 */
#define DEAF_MAX 3                    /* polls in a row without a result: a shutdown also kills the polling script */

enum run_end { RUN_GOES_ON, RUN_ENDED, RUN_CUT };

struct run {
    struct boot *b;
    const struct boot_item *it;
    char id[33];
    size_t id_len;
    int64_t ends_ms; /* monotonic: it is killed then */
    int64_t offset;  /* of the first unseen byte of the run's output */
    int lost, deaf;  /* polls in a row that lost the connection, that had no result */
    enum run_end end;
    int status;
    bool changed, rebooted, replaced;
    bool open;  /* the output is the run's, no longer that of the shell's start-up files */
    bool heard; /* the last poll had a result */
    char *error, *last, *full, *reboot;
    char *progress; /* what it reported after its last line of output; NULL: nothing */
    int64_t shown_ms;
};

static void run_clear(struct run *r) {
    free(r->error);
    free(r->last);
    free(r->full);
    free(r->reboot);
    free(r->progress);
}

static void replace(char **to, const char *text) {
    struct str clean = {0};
    if (text) str_add_clean(&clean, text);
    free(*to);
    *to = text ? str_steal(&clean) : NULL;
}

static void say(struct run *r, enum event_status status, const char *text) {
    GP_AUTO_FREE char *clean = log_cleaned(text);
    event_emit(r->b->link->sink, r->b->link->slot, NODE_BOOTSTRAPPING, status, r->it->name, "%.200s", clean);
    r->shown_ms = clock_ms();
}

/* "40 Unpacking gp-one": of a package manager. */
static void say_percent(struct run *r, const char *value) {
    int64_t n = 0;
    size_t digits = strcspn(value, " ");
    char number[8] = "";
    if (digits < sizeof number) memcpy(number, value, digits);
    if (!str_to_i64(number, 0, 100, &n) || value[digits] != ' ') return;
    GP_AUTO_FREE char *clean = log_cleaned(value + digits + 1);
    GP_AUTO_STR struct str text = {.max = 200};
    str_addf(&text, "%d%%: %s", (int)n, clean);
    replace(&r->progress, text.s);
    event_send(r->b->link->sink, (struct event){.node = r->b->link->slot,
                                                .phase = NODE_BOOTSTRAPPING,
                                                .status = EVENT_PROGRESS,
                                                .step = r->it->name,
                                                .text = text.s,
                                                .percent = (int)n});
    r->shown_ms = clock_ms();
}

/* Lines about the run itself: "::RUN_ID at 123". */
static void on_state(struct run *r, const char *text) {
    int64_t n = 0;
    if (strcmp(text, "look") == 0) {
        r->open = true;
        return;
    }
    if (strcmp(text, "alive") == 0) return; /* the poll goes on */
    r->heard = true;
    if (str_starts(text, "at ") && str_to_i64(text + 3, 0, OFFSET_MAX, &n)) {
        r->offset = n;
    } else if (str_starts(text, "end ") && str_to_i64(text + 4, 0, 255, &n)) {
        r->end = RUN_ENDED;
        r->status = (int)n;
    } else if (str_starts(text, "vanished ")) {
        r->end = RUN_CUT;
        r->replaced = strcmp(text + 9, "replaced") == 0;
        r->rebooted = !r->replaced && strcmp(text + 9, "killed") != 0;
    } else if (str_starts(text, "last ")) {
        replace(&r->last, text + 5);
    } else if (str_starts(text, "full ")) {
        replace(&r->full, text + 5);
    }
}

static bool on_line(void *ctx, bool is_stderr, const char *line, size_t len) {
    struct run *r = ctx;
    if (is_stderr) return true;
    if (str_starts(line, "::") && strncmp(line + 2, r->id, r->id_len) == 0 && line[2 + r->id_len] == ' ') {
        on_state(r, line + 2 + r->id_len + 1);
        return true;
    }
    if (!r->open) return true;
    /* Counts bytes as they arrive, so that no line is shown twice after a lost connection. "at" is exact, also
     * for a line without an end or one that was cut. */
    r->offset += (int64_t)len + 1;
    if (len == 0) return true;
    if (str_starts(line, "::")) {
        const char *text = line + 2;
        if (str_starts(text, "progress ")) {
            say(r, EVENT_PROGRESS, text + 9);
            replace(&r->progress, text + 9);
        } else if (str_starts(text, "percent ")) say_percent(r, text + 8);
        else if (str_starts(text, "warn ")) say(r, EVENT_WARN, text + 5);
        else if (str_starts(text, "error ")) replace(&r->error, text + 6);
        else if (str_starts(text, "reboot ")) replace(&r->reboot, text + 7);
        else if (strcmp(text, "unchanged") == 0) r->changed = false;
        return true;
    }
    replace(&r->last, line);
    replace(&r->progress, NULL);
    if (clock_ms() - r->shown_ms >= SAY_EVERY_MS) say(r, EVENT_PROGRESS, line);
    return true;
}

static int start_script(struct run *r, struct str *out, struct gp_error *err) {
    GP_AUTO_STR struct str job = {0}, wrap = {0};
    int rc = boot_file("run/lib", &job, err);
    if (!rc && r->it->step->packages) rc = boot_file("run/pkg", &job, err);
    if (!rc) rc = boot_item_script(r->b, r->it, "apply || exit $?\nverify\n", &job, err);
    if (!rc) rc = boot_file("run/job", &wrap, err);
    str_add(out, "echo\n"); /* ends a line that a start-up file printed without a newline */
    if (!rc) rc = boot_file("run/lib", out, err);
    if (rc) return rc;
    if (r->it->step->secrets) boot_secrets(r->b, out);
    boot_var(out, "STEP", r->it->id);
    boot_var(out, "HASH", r->it->hash);
    boot_var(out, "RUN_ID", r->id);
    boot_var(out, "JOB", job.s);
    boot_var(out, "WRAP", wrap.s);
    return boot_file("run/start", out, err);
}

/* Starts the run, or finds one that an earlier gpuprov started; r->id is the active run. */
static int run_start(struct run *r, struct gp_error *err) {
    struct node_link *l = r->b->link;
    GP_AUTO_STR struct str script = {0};
    GP_AUTO_SSH_RESULT struct ssh_result res = {0};
    GP_AUTO_FREE char *what = xasprintf("starting step '%s'", r->it->name);
    int rc = start_script(r, &script, err);
    if (!rc) rc = node_link_sh(l, what, &script, BOOT_SHORT_MS, r->b->req->deadline_ms, &res, err);
    if (script.s) explicit_bzero(script.s, script.cap); /* secrets */
    if (rc) return rc;
    const char *run = res.out.s ? strstr(res.out.s, "\n::run ") : NULL;
    if (res.status == 0 && run) {
        run += strlen("\n::run ");
        r->id_len = strcspn(run, "\n");
        if (r->id_len > 0 && r->id_len < sizeof r->id) {
            memcpy(r->id, run, r->id_len);
            r->id[r->id_len] = '\0';
            if (form_word(r->id)) return 0; /* it becomes part of scripts */
        }
    }
    GP_AUTO_FREE char *said = boot_said(&res);
    return boot_fail(l, r->it->name, err, said);
}

/* True: none of its processes runs any more. */
static bool run_kill(struct run *r) {
    struct gp_error ignored = {0};
    GP_AUTO_STR struct str script = {0};
    GP_AUTO_SSH_RESULT struct ssh_result res = {0};
    if (boot_file("run/lib", &script, &ignored)) return false;
    boot_var(&script, "STEP", r->it->id);
    boot_var(&script, "RUN_ID", r->id);
    if (boot_file("run/kill", &script, &ignored)) return false;
    int64_t end = clock_deadline(KILL_MS);
    return node_link_sh(r->b->link, r->it->name, &script, KILL_MS, end, &res, &ignored) == 0 && res.status == 0;
}

static int overrun(struct run *r, struct gp_error *err) {
    const char *fate = run_kill(r) ? "was killed" : "could not be killed: it may go on";
    char limit[32] = "in time";
    if (clock_left_ms(r->b->req->deadline_ms) > 0) snprintf(limit, sizeof limit, "within its %d s", r->it->seconds);
    const char *said = r->progress ? r->progress : r->last;
    GP_AUTO_FREE char *last = said ? log_redacted(said) : NULL; /* by itself, as the beginning of a line */
    GP_AUTO_FREE char *text = xasprintf("did not finish %s and %s%s%s", limit, fate,
                                        !last         ? ""
                                        : r->progress ? "; its last progress: "
                                                      : "; its last output: ",
                                        last ? last : "");
    return boot_fail(r->b->link, r->it->name, err, text);
}

/* One slice: reads the run's new output and its state. */
static int run_follow(struct run *r, struct gp_error *err) {
    struct node_link *l = r->b->link;
    int64_t deadline_ms = r->b->req->deadline_ms;
    GP_AUTO_STR struct str script = {0};
    char number[24];
    snprintf(number, sizeof number, "%lld", (long long)r->offset);
    int64_t left_s = clock_left_ms(r->ends_ms) / 1000;
    /* "echo" ends a line that a start-up file printed without a newline */
    str_addf(&script, "echo; echo '::%s look'\n", r->id);
    int rc = boot_file("run/lib", &script, err);
    boot_var(&script, "STEP", r->it->id);
    boot_var(&script, "RUN_ID", r->id);
    boot_var(&script, "OFF", number);
    str_addf(&script, "SLICE=%lld\n", (long long)GP_MIN(left_s, (int64_t)SLICE_S));
    if (!rc) rc = boot_file("run/follow", &script, err);
    if (rc) return rc;
    struct ssh_exec_opts opts = {.deadline_ms = clock_deadline(SLICE_S * 1000 + SLICE_SLACK_MS),
                                 .max_output = 4096,
                                 .on_line = on_line,
                                 .ctx = r};
    GP_AUTO_SSH_RESULT struct ssh_result res = {0};
    struct gp_error why = {0};
    r->open = r->heard = false;
    rc = node_link_exec(l, &script, &opts, &res, &why);
    if (r->heard) r->lost = r->deaf = 0;
    bool over = !rc && res.end == SSH_EXITED;
    if (over && r->heard) return 0;
    if (rc == -GP_ECANCELLED || ((rc || over) && ++r->deaf > DEAF_MAX)) {
        GP_AUTO_FREE char *said = rc ? xstrdup(why.msg) : boot_said(&res);
        GP_AUTO_FREE char *text = xasprintf("could not be followed: %s", said);
        if (rc != -GP_ECANCELLED) return boot_fail(l, r->it->name, err, text);
        if (err) *err = why;
        return rc;
    }
    say(r, EVENT_PROGRESS, "connection lost, reconnects; the step goes on");
    rc = node_link_lost(l, &r->lost, deadline_ms, err);
    return rc ? gp_wrap(err, "step '%s'", r->it->name) : 0;
}

/* A last line such as "Continue? [y/N] " of a step that has no terminal and no input. */
static bool is_question(const char *line) {
    size_t n = strlen(line);
    while (n > 0 && line[n - 1] == ' ') n--;
    return n > 0 && (line[n - 1] == '?' || line[n - 1] == ']' || (line[n - 1] == ':' && strcasestr(line, "password")));
}

static void run_said(const struct run *r, struct str *text) {
    if (r->error) str_add(text, r->error);
    else str_addf(text, "ended with status %d", r->status);
    GP_AUTO_FREE char *last = r->last ? log_redacted(r->last) : NULL; /* by itself, as the beginning of a line */
    if (r->it->user && last) str_addf(text, "; its last output: %s", last);
    if (r->it->user && r->last && is_question(r->last)) str_add(text, " (steps have no terminal and get no answers)");
    if (r->full && !(r->error && strstr(r->error, "full"))) str_addf(text, "; the disk is full (%s)", r->full);
}

static int run_verdict(struct run *r, bool *ret_changed, struct gp_error *err) {
    if (r->status == 0) {
        *ret_changed = r->changed;
        return 0;
    }
    GP_AUTO_STR struct str text = {0};
    run_said(r, &text);
    return boot_fail(r->b->link, r->it->name, err, text.s);
}

/* Before a failed step is tried again. */
static int run_pause(struct run *r, int tried, struct gp_error *err) {
    int64_t pause_ms = PAUSE_MS;
    for (int i = 1; i < tried && pause_ms < PAUSE_MAX_MS; i++) pause_ms *= 2;
    pause_ms = GP_MIN(pause_ms, (int64_t)PAUSE_MAX_MS);
    GP_AUTO_STR struct str said = {0}, text = {.max = 190};
    run_said(r, &said);
    str_addf(&text, "failed, tries again in %d s (%d of %d): %s", (int)(pause_ms / 1000), tried + 1, r->it->tries,
             said.s);
    say(r, EVENT_PROGRESS, text.s);
    return gp_sleep(pause_ms, r->b->link->cancel, err);
}

/* A run that was cut by a reboot or killed from outside: repeats it up to a limit. */
static int run_cut(struct run *r, int *cuts, struct gp_error *err) {
    const struct boot_item *it = r->it;
    if (r->replaced) { /* nothing was cut: the next start finds the other gpuprov's run, or begins one */
        say(r, EVENT_PROGRESS, "another gpuprov began the step again");
        return gp_sleep(REPLACED_MS * (1 + (r->id[0] & 7)), r->b->link->cancel, err);
    }
    bool judged = !it->user || (it->user->check && *it->user->check);
    ++*cuts;
    if (*cuts > (judged ? CUTS_MAX : CUTS_MAX_NO_CHECK)) {
        GP_AUTO_FREE char *text =
            xasprintf("%s %d times before it ended%s", r->rebooted ? "the node rebooted" : "it was killed", *cuts,
                      judged ? "" : "; add a 'check' to the step, so that gpuprov can detect when it is done");
        return boot_fail(r->b->link, it->name, err, text);
    }
    say(r, EVENT_PROGRESS,
        r->rebooted ? "the node rebooted, runs the step again" : "the step was killed, runs it again");
    return 0;
}

/* The run ended with restart_node: it is no failure and no cut. */
static int run_reboot(struct run *r, int *reboots, struct gp_error *err) {
    GP_AUTO_FREE char *why = log_redacted(r->reboot);
    if (++*reboots <= REBOOTS_MAX) return boot_reboot(r->b, r->it, r->id, why, err);
    GP_AUTO_FREE char *text =
        xasprintf("the node was rebooted %d times for this step, which still needs a reboot: %s", REBOOTS_MAX, why);
    return boot_fail(r->b->link, r->it->name, err, text);
}

/* The end of one try: that of the step's own limit or of the bootstrap. */
static int64_t try_ends_ms(const struct boot *b, const struct boot_item *it) {
    int64_t ends_ms = it->seconds > 0 ? clock_deadline((int64_t)it->seconds * 1000) : b->req->deadline_ms;
    return GP_MIN(ends_ms, b->req->deadline_ms);
}

static int step_run(struct boot *b, const struct boot_item *it, bool *ret_changed, struct gp_error *err) {
    for (int cuts = 0, reboots = 0, tried = 1;;) {
        GP_CLEANUP(run_clear) struct run r = {.b = b, .it = it, .changed = true, .ends_ms = try_ends_ms(b, it)};
        int rc = fs_random_hex(r.id, 8, err);
        if (!rc) rc = run_start(&r, err);
        while (!rc && r.end == RUN_GOES_ON) {
            if (clock_left_ms(r.ends_ms) == 0) return overrun(&r, err);
            rc = run_follow(&r, err);
        }
        if (!rc && r.end == RUN_ENDED && r.status == REBOOT_STATUS && r.reboot) {
            rc = run_reboot(&r, &reboots, err);
        } else if (!rc && r.end == RUN_ENDED) {
            if (r.status == 0 || tried >= it->tries) return run_verdict(&r, ret_changed, err);
            rc = run_pause(&r, tried++, err);
        } else if (!rc) rc = run_cut(&r, &cuts, err);
        if (rc) return rc;
    }
}

int node_step(struct boot *b, const struct boot_item *it, bool *ret_changed, struct gp_error *err) {
    int rc = step_run(b, it, ret_changed, err);
    struct gp_error ignored = {0}; /* the step's own error counts */
    if (rc && rc != -GP_ECANCELLED && b->link->session != NULL)
        (void)bootstrap_output_read(b->link, it->name, &b->failed, &ignored);
    return rc;
}
