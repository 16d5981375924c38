/* SPDX-License-Identifier: Apache-2.0 */
/* One command on a session: a state machine that never blocks, so that one loop can drive one or
 * many. Output beyond its cap is read and dropped, so a command with much output neither stops nor
 * costs memory. One session belongs to one thread at a time. */
#include "base/gp_base.h"

#include "ssh/ssh_private.h"

#include "base/log.h"

#define OUTPUT_DEFAULT ((size_t)1 << 20)
#define LINE_MAX_BYTES ((size_t)64 << 10)
#define STEP_BYTES ((size_t)1 << 20) /* of one session before others get their turn */
#define COMMAND_MAX 30000            /* it must fit in one packet */
#define CLOSE_MS 500
#define OPEN_AGAIN_MS 3000 /* how long a refused channel is requested again */
#define OPEN_PAUSE_MS 50
#define BEAT_MS 20000 /* a node with limits.controller looks every 30 s for something that arrives */
#define NUDGE_MS 5000 /* a tunnel has no TCP keepalive to detect a dead machine */
#define SILENT_MS 30000
#define PULL_MS 5000                       /* between two calls of pull at most */
#define STREAM_WINDOW ((unsigned)16 << 20) /* bytes on their way to a stream's reader, for long distances */
#define STREAM_PACKET ((unsigned)32 << 10)

void ssh_result_clear(struct ssh_result *r) {
    str_clear(&r->out);
    str_clear(&r->err);
    *r = (struct ssh_result){0};
}

void ssh_task_init(struct ssh_task *t, struct ssh_session *s, const char *command, const struct ssh_exec_opts *opts,
                   struct ssh_result *result) {
    *t = (struct ssh_task){.session = s, .command = command, .result = result};
    if (opts != NULL) t->opts = *opts;
    if (t->opts.deadline_ms == 0) t->opts.deadline_ms = GP_NEVER;
    size_t max = t->opts.max_output != 0 ? t->opts.max_output : OUTPUT_DEFAULT;
    *result = (struct ssh_result){0};
    str_init(&result->out, max);
    str_init(&result->err, max);
    for (int i = 0; i < 2; i++) t->lines[i].text.max = LINE_MAX_BYTES;
    s->heard_ms = s->nudged_ms = t->heard_ms = clock_ms();
    log_trace(LOG_SSH, "%s: run %.200s", s->label, command);
}

void ssh_task_clear(struct ssh_task *t) {
    str_clear(&t->lines[0].text);
    str_clear(&t->lines[1].text);
}

static void task_end(struct ssh_task *t, enum ssh_end end, int status) {
    t->result->end = end;
    t->result->status = status;
    t->phase = TASK_DONE;
}

static void task_lost(struct ssh_task *t) {
    t->session->dead = true;
    task_end(t, SSH_LOST, -1);
}

/* An error that is neither "would block" nor a lost connection: the server refused. */
static void task_failed(struct ssh_task *t, const char *what, const char *hint) {
    if (t->session->dead || libssh2_session_last_errno(t->session->lib) == LIBSSH2_ERROR_SOCKET_DISCONNECT) {
        task_lost(t);
        return;
    }
    t->rc = ssh_fail_lib(t->session, &t->err, GP_EREACH, "%s: %s (%s)", t->session->label, what, hint);
    t->phase = TASK_DONE;
}

/* --- lines --- */

static bool line_tell(struct ssh_task *t, int stream) {
    struct str *text = &t->lines[stream].text;
    for (size_t i = 0; i < text->len; i++)
        if (text->s[i] == '\0') text->s[i] = '?';
    bool go_on = t->opts.on_line(t->opts.ctx, stream == 1, text->s != NULL ? text->s : "", text->len);
    str_reset(text);
    t->lines[stream].skipping = false;
    if (!go_on) t->stopped = true;
    return go_on;
}

static void lines_feed(struct ssh_task *t, int stream, const char *p, size_t n) {
    struct ssh_line *l = &t->lines[stream];
    while (n > 0 && !t->stopped) {
        const char *nl = memchr(p, '\n', n);
        size_t len = nl != NULL ? (size_t)(nl - p) : n;
        if (!l->skipping && !str_add_mem(&l->text, p, len)) l->skipping = true;
        size_t used = len + (nl != NULL);
        p += used;
        n -= used;
        if (nl != NULL && !line_tell(t, stream)) return;
    }
}

/* Only when the command ended by itself: a part of a line may be misread, such as a truncated number. */
static void lines_finish(struct ssh_task *t) {
    for (int i = 0; i < 2 && t->opts.on_line != NULL && !t->stopped; i++)
        if (t->lines[i].text.len > 0) line_tell(t, i);
}

static void take_output(struct ssh_task *t, int stream, const char *p, size_t n) {
    if (stream == 0) t->result->out_bytes += n;
    if (stream == 0 && t->opts.on_data != NULL) {
        t->heard = true;
        if (!t->opts.on_data(t->opts.ctx, p, n)) t->stopped = true;
        t->heard_ms = clock_ms();
        return;
    }
    str_add_mem(stream == 0 ? &t->result->out : &t->result->err, p, n);
    if (t->opts.on_line != NULL) lines_feed(t, stream, p, n);
    if (t->opts.on_data == NULL) t->heard_ms = clock_ms(); /* stderr is no part of a stream */
}

/* --- the phases; each returns true to be called again at once --- */

/* A server may receive the request for a channel before it has released the last one. With a low
 * MaxSessions it then refuses, so the request is repeated for a short time. */
static bool open_again(struct ssh_task *t) {
    struct ssh_session *s = t->session;
    if (!s->had_channel || s->dead || libssh2_session_last_errno(s->lib) != LIBSSH2_ERROR_CHANNEL_FAILURE) return false;
    if (t->open_until_ms == 0) t->open_until_ms = clock_deadline(OPEN_AGAIN_MS);
    if (clock_left_ms(t->open_until_ms) == 0) return false;
    t->open_at_ms = clock_deadline(OPEN_PAUSE_MS);
    return true;
}

static bool step_open(struct ssh_task *t) {
    LIBSSH2_SESSION *lib = t->session->lib;
    if (strlen(t->command) > COMMAND_MAX) {
        t->rc = gp_fail(&t->err, GP_EINTERNAL, "%s: a command of more than %d bytes goes to sh by stdin",
                        t->session->label, COMMAND_MAX);
        t->phase = TASK_DONE;
        return false;
    }
    if (t->open_at_ms != 0 && clock_left_ms(t->open_at_ms) > 0) return false;
    t->open_at_ms = 0;
    t->channel = t->opts.on_data != NULL
                     ? libssh2_channel_open_ex(lib, "session", 7, STREAM_WINDOW, STREAM_PACKET, NULL, 0)
                     : libssh2_channel_open_session(lib);
    if (t->channel != NULL) {
        t->session->had_channel = true;
        t->phase = TASK_START;
        return true;
    }
    if (libssh2_session_last_errno(lib) == LIBSSH2_ERROR_EAGAIN && !t->session->dead) return false;
    if (open_again(t)) return false;
    task_failed(t, "the server refuses another channel",
                "check MaxSessions in its sshd_config, and whether earlier commands still run");
    return false;
}

static bool step_start(struct ssh_task *t) {
    int rc = libssh2_channel_exec(t->channel, t->command);
    if (rc == LIBSSH2_ERROR_EAGAIN && !t->session->dead) return false;
    if (rc != 0) {
        task_failed(t, "the server refuses to run a command",
                    "check that the user's login shell exists and is allowed");
        return false;
    }
    t->phase = TASK_IO;
    return true;
}

static void end_in(struct ssh_task *t) {
    libssh2_channel_send_eof(t->channel);
    t->eof_sent = true;
}

/* Sends from the callback, at most `share` bytes. */
static void write_pulled(struct ssh_task *t, size_t *share) {
    struct ssh_session *s = t->session;
    t->heard = false;
    t->pull_ms = clock_deadline(PULL_MS);
    while (!s->dead && !t->eof_sent && ssh_flushed(s)) {
        const void *p = NULL;
        size_t n = 0;
        int64_t before_ms = clock_ms();
        enum ssh_pull next = t->opts.pull(t->opts.ctx, &p, &n);
        t->heard_ms += clock_ms() - before_ms;
        if (n == 0) {
            if (next == SSH_PULL_EOF) end_in(t);
            t->stopped = t->stopped || next == SSH_PULL_STOP;
            t->again = next == SSH_PULL_AGAIN;
            return;
        }
        ssize_t sent = libssh2_channel_write(t->channel, p, n);
        if (sent == LIBSSH2_ERROR_EAGAIN || sent == 0) return;
        if (sent < 0) { /* the command closed stdin; its outcome comes with the reads */
            t->eof_sent = true;
            return;
        }
        t->opts.pulled(t->opts.ctx, (size_t)sent);
        *share -= GP_MIN(*share, (size_t)sent);
        if (*share == 0) {
            t->again = true;
            return;
        }
    }
}

static void write_in(struct ssh_task *t) {
    const struct ssh_exec_opts *o = &t->opts;
    struct ssh_session *s = t->session;
    while (!s->dead && t->in_off < o->in_len && ssh_flushed(s)) {
        ssize_t n = libssh2_channel_write(t->channel, (const char *)o->in + t->in_off, o->in_len - t->in_off);
        if (n == LIBSSH2_ERROR_EAGAIN || n == 0) return;
        if (n < 0) {
            t->in_off = o->in_len; /* the command closed stdin; its outcome comes with the reads */
            return;
        }
        t->in_off += (size_t)n;
    }
    if (!t->hold_eof && !t->eof_sent && t->in_off == o->in_len && !s->dead) end_in(t);
}

/* Reads one stream until it is empty, its share is used up, or on_line stops the command. */
static bool read_stream(struct ssh_task *t, int stream, char *buf, size_t buf_n, size_t *share) {
    while (*share > 0 && !t->stopped) {
        ssize_t n = libssh2_channel_read_ex(t->channel, stream, buf, GP_MIN(buf_n, *share));
        if (n == 0 || n == LIBSSH2_ERROR_EAGAIN) return true;
        if (n < 0) return false;
        *share -= (size_t)n;
        take_output(t, stream, buf, (size_t)n);
    }
    return true;
}

/* True if there is work without new bytes from the network: reading one stream, or sending,
 * may have received data of the other. */
static bool io_pending(const struct ssh_task *t) {
    unsigned long queued = 0;
    libssh2_channel_window_read_ex(t->channel, &queued, NULL);
    if (queued > 0) return true;
    if (t->eof_sent || !ssh_flushed(t->session)) return false;
    if (t->opts.pull != NULL) return t->heard;
    if (t->in_off == t->opts.in_len) return !t->hold_eof;
    return libssh2_channel_window_write(t->channel) > 0;
}

static bool step_io(struct ssh_task *t) {
    char buf[32768];
    size_t share = STEP_BYTES, in_share = STEP_BYTES;
    for (;;) {
        size_t share_before = share, in_before = t->in_off;
        if (t->opts.pull != NULL) write_pulled(t, &in_share);
        else write_in(t);
        bool ok = read_stream(t, 0, buf, sizeof buf, &share) &&
                  read_stream(t, SSH_EXTENDED_DATA_STDERR, buf, sizeof buf, &share);
        if (t->stopped) {
            t->phase = TASK_CLOSE;
            t->close_by_ms = clock_deadline(CLOSE_MS);
            return true;
        }
        if (!ok) {
            task_lost(t);
            return false;
        }
        if (share == 0) {
            t->again = true;
            return false;
        }
        bool moved = share != share_before || t->in_off != in_before;
        if (t->again || !moved || !io_pending(t)) break;
    }
    /* Only the close ends it: a command may close its output and continue. */
    if (libssh2_channel_eof(t->channel) != 1) return false;
    int rc = libssh2_channel_wait_closed(t->channel);
    if (rc == LIBSSH2_ERROR_EAGAIN && !t->session->dead) return false;
    if (rc != 0) {
        task_lost(t);
        return false;
    }
    t->phase = TASK_CLOSE;
    t->close_by_ms = clock_deadline(CLOSE_MS);
    return true;
}

static void read_fate(struct ssh_task *t) {
    char *name = NULL;
    size_t n = 0;
    libssh2_channel_get_exit_signal(t->channel, &name, &n, NULL, NULL, NULL, NULL);
    if (name != NULL && n > 0) {
        GP_AUTO_FREE char *copy = xstrndup(name, n);
        str_put(t->result->signal, sizeof t->result->signal, copy);
        task_end(t, SSH_SIGNALED, -1);
    } else {
        task_end(t, SSH_EXITED, libssh2_channel_get_exit_status(t->channel));
    }
    if (name != NULL) libssh2_free(t->session->lib, name);
}

static bool step_close(struct ssh_task *t) {
    int rc = libssh2_channel_close(t->channel);
    if (rc == LIBSSH2_ERROR_EAGAIN && !t->session->dead && clock_left_ms(t->close_by_ms) > 0) return false;
    lines_finish(t);
    if (t->stopped) {
        task_end(t, SSH_TIMED_OUT, -1);
        /* Frees a channel that is closed on both sides. Any other stays with the session, which frees it at its end. */
        if (rc == 0) libssh2_channel_free(t->channel);
    } else {
        read_fate(t);
        libssh2_channel_free(t->channel);
    }
    t->channel = NULL;
    return false;
}

static void send_beat(struct ssh_session *s) {
    int next = 0;
    if (!s->beats || s->dead || clock_ms() - s->nudged_ms < BEAT_MS || !ssh_flushed(s)) return;
    libssh2_keepalive_send(s->lib, &next);
    s->nudged_ms = clock_ms();
}

void ssh_task_nudge(struct ssh_task *t) {
    struct ssh_session *s = t->session;
    send_beat(s);
    if (s->tunnel == NULL || s->dead) return;
    int64_t now = clock_ms();
    if (now - s->heard_ms < NUDGE_MS) return;
    if (now - s->heard_ms > SILENT_MS) {
        s->dead = true;
        return;
    }
    if (now - s->nudged_ms < NUDGE_MS || !ssh_flushed(s)) return;
    int next = 0;
    libssh2_keepalive_send(s->lib, &next);
    s->nudged_ms = now;
}

void ssh_task_step(struct ssh_task *t) {
    t->again = false;
    if (t->phase == TASK_DONE) return;
    if (t->session->lib == NULL || (t->session->dead && t->channel == NULL)) {
        task_lost(t);
        return;
    }
    ssh_flush(t->session);
    bool more = true;
    while (more && t->phase != TASK_DONE) {
        switch (t->phase) {
        case TASK_OPEN: more = step_open(t); break;
        case TASK_START: more = step_start(t); break;
        case TASK_IO: more = step_io(t); break;
        case TASK_CLOSE: more = step_close(t); break;
        case TASK_DONE: more = false; break;
        }
    }
}

/* Abandons the command: closes its channel without waiting for the other side. During the opening of a
 * channel this makes the session unusable. */
static void task_leave(struct ssh_task *t) {
    if (t->phase == TASK_OPEN || t->phase == TASK_START) t->session->dead = true;
    else if (t->channel != NULL && !t->session->dead && libssh2_channel_close(t->channel) == 0)
        libssh2_channel_free(t->channel);
    t->channel = NULL;
}

void ssh_task_timeout(struct ssh_task *t) {
    if (t->phase == TASK_CLOSE) { /* its outcome is already known */
        t->close_by_ms = 0;
        ssh_task_step(t);
        return;
    }
    task_leave(t);
    task_end(t, SSH_TIMED_OUT, 0);
}

void ssh_task_cancel(struct ssh_task *t) {
    task_leave(t);
    task_end(t, SSH_TIMED_OUT, 0);
    t->rc = gp_fail(&t->err, GP_ECANCELLED, "%s: cancelled while a command ran", t->session->label);
}

/* When silence ends it. */
static int64_t silent_at(const struct ssh_task *t) {
    return t->opts.silent_ms > 0 ? t->heard_ms + t->opts.silent_ms : GP_NEVER;
}

bool ssh_task_late(const struct ssh_task *t) {
    return clock_left_ms(t->opts.deadline_ms) == 0 || clock_left_ms(silent_at(t)) == 0;
}

int64_t ssh_task_deadline(const struct ssh_task *t) {
    if (t->phase == TASK_CLOSE) return t->close_by_ms;
    if (t->phase == TASK_OPEN && t->open_at_ms != 0) return GP_MIN(t->opts.deadline_ms, t->open_at_ms);
    int64_t end = GP_MIN(t->opts.deadline_ms, silent_at(t));
    if (t->phase == TASK_IO && t->opts.pull != NULL && !t->eof_sent) end = GP_MIN(end, t->pull_ms);
    if (t->session->tunnel != NULL) end = GP_MIN(end, clock_deadline(NUDGE_MS));
    if (t->session->beats) end = GP_MIN(end, clock_deadline(BEAT_MS));
    return end;
}

void ssh_beat(struct ssh_session *s, const struct gp_cancel *cancel) {
    static const char script[] =
        "[ -d ~/.gpuprov ] || mkdir -m 0700 ~/.gpuprov; read -r boot </proc/sys/kernel/random/boot_id; "
        "read -r up _ </proc/uptime; printf '%-36s %10s %14s\\n' \"$boot\" $PPID \"$up\" 1<>~/.gpuprov/contact\n";
    struct ssh_exec_opts opts = {
        .in = script, .in_len = sizeof script - 1, .deadline_ms = clock_deadline(BEAT_MS), .cancel = cancel};
    GP_AUTO_SSH_RESULT struct ssh_result r = {0};
    ssh_exec(s, "exec sh -s", &opts, &r, NULL); /* a node that cannot write it counts the time without a controller */
    s->beats = true;
}

int ssh_exec(struct ssh_session *s, const char *command, const struct ssh_exec_opts *opts, struct ssh_result *ret,
             struct gp_error *err) {
    struct ssh_task t;
    ssh_task_init(&t, s, command, opts, ret);
    struct ssh_task *one = &t;
    ssh_tasks_run(&one, 1, t.opts.cancel);
    ssh_task_clear(&t);
    if (t.rc != 0 && err != NULL) *err = t.err;
    return t.rc;
}

void ssh_last_line(const struct str *from, char *dst, size_t n) {
    const char *start = from->s != NULL ? from->s : "", *end = start + from->len;
    while (end > start && strchr(" \r\n\t", end[-1]) != NULL) end--;
    const char *line = end;
    while (line > start && line[-1] != '\n') line--;
    if (end - line > 160) end = line + 160;
    snprintf(dst, n, "%.*s", (int)(end - line), line);
}

int ssh_run(struct ssh_session *s, const char *what, const char *command, const struct ssh_exec_opts *opts,
            struct str *ret_out, struct gp_error *err) {
    GP_AUTO_SSH_RESULT struct ssh_result r = {0};
    int rc = ssh_exec(s, command, opts, &r, err);
    if (rc != 0) return rc;
    char last[200];
    ssh_last_line(r.err.len > 0 ? &r.err : &r.out, last, sizeof last);
    const char *sep = last[0] != '\0' ? ": " : "";
    char detail[32];
    switch (r.end) {
    case SSH_EXITED:
        if (r.status == 0) {
            if (ret_out != NULL) str_add_mem(ret_out, r.out.s, r.out.len);
            return 0;
        }
        snprintf(detail, sizeof detail, "exit %d", r.status);
        rc = ssh_fail_detail(err, GP_EBOOTSTRAP, detail, "%s: %s failed with exit status %d%s%s", s->label, what,
                             r.status, sep, last);
        break;
    case SSH_SIGNALED:
        snprintf(detail, sizeof detail, "signal %.20s", r.signal);
        rc = ssh_fail_detail(err, GP_EBOOTSTRAP, detail, "%s: %s was killed by signal %s%s%s", s->label, what, r.signal,
                             sep, last);
        break;
    case SSH_LOST:
        rc = ssh_fail_detail(err, GP_ELOST, "LOST", "%s: lost the connection during %s (%s)", s->label, what,
                             ssh_lost_why(s));
        if (err != NULL) err->retryable = true;
        return rc;
    case SSH_TIMED_OUT:
        rc = ssh_fail_detail(err, GP_ETIMEOUT, "TIMEOUT",
                             r.status == -1 ? "%s: %s was stopped%s%s" : "%s: %s did not finish in time%s%s", s->label,
                             what, sep, last);
        break;
    }
    if (err != NULL && rc != 0) err->domain = GP_D_NODE;
    return rc;
}
