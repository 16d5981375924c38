/* SPDX-License-Identifier: Apache-2.0 */
/* Delivers one event to one receiver: a signed POST, or a command. The receiver's thread, which may block. */
#include "base/gp_base.h"

#include "engine/run/notify_priv.h"

#include "base/fs.h"
#include "base/hash.h"
#include "base/log.h"
#include "providers/http.h"
#include "tree/sha256.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define TRIES 3
#define TRY_MS 10000
#define CONNECT_MS 5000
#define REPLY_MAX ((size_t)64 << 10)
#define POLL_MS 20

extern char **environ;

/* --- a URL --- */

/* Also its path alone: a trace has URLs in parts. */
static void redact_url(const struct secret *url) {
    GP_AUTO_SECRET struct secret path = {0};
    const char *text = secret_reveal(url), *at = strstr(text, "://");
    at = at != NULL ? strpbrk(at + 3, "/?") : NULL;
    log_redact(url);
    if (at == NULL || at[1] == '\0') return;
    secret_set(&path, at, strcspn(at, "?"));
    log_redact(&path);
}

int notify_receiver_open(struct notify_receiver *r, struct gp_error *err) {
    struct http_options options = {.cancel = &r->of->n->cancel, .backoff_min_ms = 500};
    if (r->opened || r->def.url == NULL) return 0;
    int e = spec_notify_read_url(&r->def, &r->url, err);
    if (e == 0 && r->def.secret != NULL) e = spec_notify_read_secret(&r->def, &r->key, err);
    if (e == 0) e = http_open(&options, &r->http, err);
    if (e != 0) return e;
    redact_url(&r->url);
    log_redact(&r->key);
    r->opened = true;
    return 0;
}

void notify_receiver_close(struct notify_receiver *r) {
    http_close(r->http);
    r->http = NULL;
    secret_clear(&r->url);
    secret_clear(&r->key);
    r->opened = false;
}

void notify_signature(const struct secret *key, int64_t now_s, const char *body, size_t n, char dst[96]) {
    GP_AUTO_STR struct str text = {.max = n + 64};
    unsigned char mac[SHA256_BYTES];
    char hex[2 * SHA256_BYTES + 1];
    str_addf(&text, "%lld.", (long long)now_s);
    str_add_mem(&text, body, n);
    hmac_sha256(secret_reveal(key), key->len, text.s, text.len, mac);
    str_hex(hex, mac, sizeof mac);
    snprintf(dst, 96, "t=%lld,v1=%s", (long long)now_s, hex);
}

struct delivery {
    struct notify_receiver *r;
    const struct notify_message *m;
};

/* Before each try, because a receiver refuses old times. */
static int sign(void *ctx, struct http_fields *add, struct gp_error *err) {
    const struct delivery *d = ctx;
    char text[96];
    (void)err;
    if (d->r->def.secret == NULL) return 0;
    notify_signature(&d->r->key, clock_wall_s(), d->m->body, strlen(d->m->body), text);
    http_fields_add(add, "Gpuprov-Signature", text);
    return 0;
}

static enum http_verdict judge(void *ctx, const struct http_resp *resp) {
    (void)ctx;
    if (resp->status == 429) return HTTP_REFUSED;
    return resp->status >= 500 || resp->status == 408 ? HTTP_TROUBLE : HTTP_DONE;
}

static bool accepted(int status) { return status >= 200 && status < 300; }

static int refused(const struct delivery *d, const struct http_resp *resp, struct gp_error *err) {
    GP_AUTO_FREE char *place = spec_notify_place(secret_reveal(&d->r->url));
    const char *why = "";
    if (resp->status >= 300 && resp->status < 400) why = ": redirects are not followed; correct the URL";
    else if (resp->status >= 400 && resp->status < 500) why = ": check its URL and its key";
    return gp_fail(err, GP_EENDPOINT, "%s answered %d (%d tr%s)%s", place, resp->status, resp->attempts,
                   resp->attempts == 1 ? "y" : "ies", why);
}

static int post(const struct delivery *d, struct gp_error *err) {
    GP_AUTO_FIELDS struct http_fields fields = {0};
    GP_AUTO_RESP struct http_resp resp = {0};
    const char *url = secret_reveal(&d->r->url);
    http_fields_add(&fields, "Content-Type", "application/json");
    http_fields_add(&fields, "Gpuprov-Event", spec_notify_kinds[d->m->kind]);
    http_fields_add(&fields, "Gpuprov-Delivery", d->m->id);
    struct http_req req = {.what = d->r->label,
                           .method = "POST",
                           .url = url,
                           .body = d->m->body,
                           .body_len = strlen(d->m->body),
                           .headers = &fields,
                           .sign = sign,
                           .judge = judge,
                           .ctx = (void *)(uintptr_t)d,
                           .repeatable = true, /* receivers drop an id that they have */
                           .no_proxy = spec_notify_is_loopback(url),
                           .tries = TRIES,
                           .timeout_ms = TRY_MS,
                           .connect_ms = CONNECT_MS,
                           .deadline_ms = clock_deadline(NOTIFY_SEND_MS),
                           .max_body = REPLY_MAX};
    struct gp_error why = {0};
    int r = http_call(d->r->http, &req, &resp, &why);
    if (accepted(resp.status) && (r == 0 || r == -GP_EPROTO)) return 0; /* its text does not matter */
    if (r == 0) return refused(d, &resp, err);
    GP_AUTO_FREE char *clean = log_redacted(str_without_name(why.msg, d->r->label));
    return gp_fail(err, why.code, "%s", clean);
}

/* --- a command --- */

static int in_memory(const char *text, struct gp_error *err) {
    int fd = memfd_create("gpuprov-notify", MFD_CLOEXEC);
    if (fd < 0) return gp_fail_errno(err, GP_EENV, errno, "could not create a file in memory");
    int e = fs_write_all(fd, text, strlen(text));
    if (e == 0 && lseek(fd, 0, SEEK_SET) == 0) return fd;
    close(fd);
    return gp_fail_errno(err, GP_EENV, e != 0 ? -e : errno, "could not write a file in memory");
}

/* The user's environment, with the kind. Only the list and its first entry are owned. */
static char **environment(enum notify_kind kind) {
    size_t n = 0, to = 0;
    while (environ[n] != NULL) n++;
    char **env = xcalloc(n + 2, sizeof *env);
    env[to++] = xasprintf("GPUPROV_EVENT=%s", spec_notify_kinds[kind]);
    for (size_t i = 0; i < n; i++)
        if (!str_starts(environ[i], "GPUPROV_EVENT=")) env[to++] = environ[i];
    return env;
}

/* The script is a file in memory, not an argument, because every user can read arguments. Its stdin is one too, so a
 * command that does not read it blocks nobody. */
static int start(const char *command, const struct notify_message *m, pid_t *ret, struct gp_error *err) {
    GP_AUTO_FREE char *line = xasprintf("%s\n", m->body);
    GP_AUTO_FD int in = in_memory(line, err);
    GP_AUTO_FD int script = in >= 0 ? in_memory(command, err) : -1;
    if (script < 0) return -GP_EENV;
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attr;
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, in, 0);
    posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, script, 3);
    posix_spawnattr_init(&attr);
    posix_spawnattr_setsigmask(&attr, &none); /* gpuprov's threads block all signals */
    posix_spawnattr_setsigdefault(&attr, &all);
    posix_spawnattr_setpgroup(&attr, 0);
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
    char sh[] = "sh", path[] = "/proc/self/fd/3";
    char *argv[] = {sh, path, NULL};
    char **env = environment(m->kind);
    int e = posix_spawn(ret, "/bin/sh", &actions, &attr, argv, env);
    free(env[0]);
    free(env);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attr);
    return e == 0 ? 0 : gp_fail_errno(err, GP_EENV, e, "could not start /bin/sh");
}

/* Its group is ended before it is reaped: until then no other group can have this number. */
static int run_command(const struct delivery *d, struct gp_error *err) {
    pid_t pid = -1;
    int status = 0, r = start(d->r->def.command, d->m, &pid, err);
    int64_t deadline = clock_deadline(NOTIFY_SEND_MS);
    if (r != 0) return r;
    for (;;) {
        siginfo_t info = {0};
        if (waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == pid) break;
        if (clock_left_ms(deadline) == 0)
            r = gp_fail(err, GP_ETIMEOUT, "the command had not ended after %d s and was killed",
                        (int)(NOTIFY_SEND_MS / 1000));
        if (r == 0) r = gp_sleep(POLL_MS, &d->r->of->n->cancel, err);
        if (r != 0) break;
    }
    (void)kill(-pid, SIGKILL);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) continue;
    if (r != 0 || (WIFEXITED(status) && WEXITSTATUS(status) == 0)) return r;
    return gp_fail(err, GP_EENDPOINT, "the command ended with status %d",
                   WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
}

int notify_deliver(struct notify_receiver *r, const struct notify_message *m, struct gp_error *err) {
    const struct delivery d = {.r = r, .m = m};
    int e = notify_receiver_open(r, err);
    if (e != 0) return e;
    return r->def.url != NULL ? post(&d, err) : run_command(&d, err);
}
