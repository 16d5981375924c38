/* SPDX-License-Identifier: Apache-2.0 */
/* ssh_open: attempts, repeated with growing and jittered pauses while another one may help.
 * One attempt is in session.c. Any thread. */
#include "base/gp_base.h"

#include "ssh/ssh_private.h"

#include "base/fs.h"
#include "base/log.h"

#define PAUSE_FIRST_MS 50
#define PAUSE_MAX_MS 2000
#define PAUSE_LEAST_MS 25
#define CUT_MS 2000 /* an attempt that the deadline cut shorter than this has no cause worth reporting */

static int64_t jittered(int64_t ms) {
    uint32_t r = 0;
    if (fs_random(&r, sizeof r, NULL) != 0) return ms;
    return ms * 3 / 4 + (int64_t)(r % (uint64_t)(ms / 2 + 1));
}

const char *ssh_reason(const struct gp_error *why) {
    static const char *const table[][2] = {{"ECONNREFUSED", "connection refused"},
                                           {"ETIMEDOUT", "no answer"},
                                           {"EHOSTUNREACH", "no route"},
                                           {"ENETUNREACH", "no route"},
                                           {"ECONNRESET", "connection reset"},
                                           {"BANNER", "no SSH banner"},
                                           {"HANDSHAKE", "the SSH handshake was cut"},
                                           {"LOGIN", "authentication refused"},
                                           {"HOST_KEY", "the host key is not the expected one yet"},
                                           {"LOGIN_LOST", "the login was cut"},
                                           {"LOGIN_TIMEOUT", "the login was not answered"},
                                           {"TARGET", "the bastion cannot connect to the node"},
                                           {"TUNNEL", "the bastion does not answer"},
                                           {"DNS", "the host name cannot be looked up"}};
    for (size_t i = 0; i < GP_ARRAY_LEN(table); i++)
        if (strcmp(why->detail, table[i][0]) == 0) return table[i][1];
    const char *cause = strrchr(why->msg, ':');
    return str_starts(why->msg, "could not connect to ") && cause[1] == ' ' ? cause + 2 : why->msg;
}

/* A refused login may mean that the user does not exist yet. */
static bool login_may_come(const struct gp_error *why, const struct ssh_open_opts *opts, int64_t *refused_since_ms) {
    if (why->code != GP_EAUTH || strcmp(why->detail, "LOGIN") != 0) return false;
    if (*refused_since_ms == 0) *refused_since_ms = clock_ms();
    return clock_ms() - *refused_since_ms < opts->login_grace_ms;
}

/* The startup script of the node may not have replaced its host keys yet. */
static bool key_may_come(const struct gp_error *why, const struct ssh_open_opts *opts) {
    return opts->late_host_key && why->code == GP_EAUTH && strcmp(why->detail, "HOST_KEY") == 0;
}

static int give_up(const struct ssh_target *t, const char *where, const struct gp_error *why, int64_t started_ms,
                   int attempts, bool out_of_time, struct gp_error *err) {
    const char *label = t->label != NULL ? t->label : where;
    if (err == NULL) return -(int)why->code;
    *err = *why;
    err->domain = GP_D_SSH;
    if (!out_of_time) return gp_wrap(err, "%s", label);
    char took[32];
    duration_format(took, sizeof took, clock_ms() - started_ms);
    return gp_wrap(err, "%s: could not log in at %s within %s (%d attempt%s), last", label, where, took, attempts,
                   attempts == 1 ? "" : "s");
}

int ssh_open(const struct ssh_target *t, const struct ssh_open_opts *opts, struct ssh_session **ret,
             struct gp_error *err) {
    GP_AUTO_FREE char *where = ssh_where(t->host, ssh_port(t));
    struct ssh_attempt a = {.target = t,
                            .deadline_ms = opts->deadline_ms,
                            .cancel = opts->cancel,
                            .where = where,
                            .waiting = opts->waiting,
                            .ctx = opts->ctx};
    int64_t started = clock_ms(), pause = PAUSE_FIRST_MS, refused_since = 0;
    struct gp_error before = {0};
    for (int attempts = 1;; attempts++) {
        struct gp_error why = {0};
        int64_t began = clock_ms();
        int r = ssh_open_once(&a, ret, &why);
        if (r == 0) return 0;
        if (why.code == GP_ECANCELLED || gp_cancelled(opts->cancel)) {
            why = (struct gp_error){.code = GP_ECANCELLED};
            str_put(why.msg, sizeof why.msg, "cancelled while connecting");
            return give_up(t, where, &why, started, attempts, false, err);
        }
        log_trace(LOG_SSH, "%s: attempt %d: %s", t->label ? t->label : where, attempts, why.msg);
        bool again = why.retryable || login_may_come(&why, opts, &refused_since) || key_may_come(&why, opts);
        if (!again) return give_up(t, where, &why, started, attempts, false, err);
        if (attempts > 1 && clock_left_ms(opts->deadline_ms) == 0 && clock_ms() - began < CUT_MS)
            return give_up(t, where, &before, started, attempts - 1, true, err);
        before = why;
        int64_t nap = GP_MIN(jittered(pause), clock_left_ms(opts->deadline_ms) / 2); /* no try is left out at the end */
        if (nap < PAUSE_LEAST_MS) return give_up(t, where, &why, started, attempts, true, err);
        if (opts->waiting != NULL) opts->waiting(opts->ctx, ssh_reason(&why));
        struct gp_error slept = {0};
        if (gp_sleep(nap, opts->cancel, &slept) != 0) {
            str_put(slept.msg, sizeof slept.msg, "cancelled while connecting");
            return give_up(t, where, &slept, started, attempts, false, err);
        }
        pause = GP_MIN(pause * 8 / 5, (int64_t)PAUSE_MAX_MS);
    }
}
