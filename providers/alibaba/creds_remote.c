// SPDX-License-Identifier: Apache-2.0
/* Credentials from services and programs: roles by STS, the metadata of an ECS instance, a URI, an external program.
 * Each has its own short deadline. creds.c decides the order. One thread at a time. */
#include "base/gp_base.h"

#include "providers/alibaba/ali_int.h"

#include "base/clock.h"
#include "base/fs.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#define SMALL_MAX ((size_t)64 << 10)
#define METADATA "http://100.100.100.200"

extern char **environ;

/* {"AccessKeyId", "AccessKeySecret", "SecurityToken", "Expiration"}. Takes source. */
static int take(const json_t *j, const char *what, char *source, struct ali_cred *ret, struct gp_error *err) {
    const char *id = json_str(j, "AccessKeyId", ""), *key = json_str(j, "AccessKeySecret", "");
    const char *until = json_str(j, "Expiration", "");
    int64_t at = until[0] != '\0' ? ali_time(until) : 0;
    if (id[0] == '\0' || key[0] == '\0' || (until[0] != '\0' && at == 0)) {
        free(source);
        return gp_fail(err, GP_EAUTH, "alibaba credentials: %s returned no complete credentials", what);
    }
    ali_cred_set(ret, id, key, json_str(j, "SecurityToken", ""), source);
    ret->expires_s = at;
    return 0;
}

/* --- STS --- */

int ali_creds_assume(struct ali *a, const struct ali_assume *how, struct ali_cred *ret, struct gp_error *err) {
    const char *action = how->with != NULL ? "AssumeRole" : "AssumeRoleWithOIDC";
    GP_AUTO_STR struct str query = {0}, token = {.max = SMALL_MAX};
    GP_AUTO_REST struct rest_reply reply = {0};
    GP_AUTO_FREE char *session =
        how->session_name != NULL ? xstrdup(how->session_name) : xasprintf("gpuprov-%lld", (long long)clock_wall_s());
    int r = 0;
    ali_param(&query, "RoleArn", how->role_arn);
    ali_param(&query, "RoleSessionName", session);
    if (how->with == NULL) {
        GP_AUTO_FREE char *path = fs_expand_home(how->oidc_file);
        ali_param(&query, "OIDCProviderArn", how->oidc_provider);
        r = fs_read(path, SMALL_MAX, &token, err);
        if (r != 0 && err != NULL) err->code = GP_EAUTH;
        if (r != 0) return -GP_EAUTH;
        ali_param(&query, "OIDCToken", str_trim(token.s));
        explicit_bzero(token.s, token.len);
    }
    /* Without a signature the token of the identity provider is the proof. */
    struct ali_cred none = {0};
    r = ali_call_as(a, how->with != NULL ? how->with : &none, ALI_STS, ali_home(a), action, &query,
                    how->with == NULL ? REST_PUBLIC : 0, &reply, err);
    explicit_bzero(query.s, query.len);
    if (r != 0) return gp_wrap(err, "alibaba credentials: role %.120s", how->role_arn);
    GP_AUTO_FREE char *source = xasprintf("the role %s", how->role_arn);
    return take(json_at(reply.json, "Credentials"), action, GP_STEAL(source), ret, err);
}

/* --- plain HTTP sources --- */

static int get(struct ali *a, const char *what, const char *method, const char *url, const char *name,
               const char *value, struct http_resp *resp, struct gp_error *err) {
    GP_AUTO_FIELDS struct http_fields headers = {0};
    if (name != NULL) http_fields_add(&headers, name, value);
    struct http_req req = {.what = what,
                           .method = method,
                           .url = url,
                           .body = strcmp(method, "PUT") == 0 ? "" : NULL,
                           .headers = &headers,
                           .repeatable = true,
                           .no_proxy = true,
                           .tries = 1,
                           .timeout_ms = 3000,
                           .connect_ms = 1000,
                           .max_body = SMALL_MAX};
    http_resp_clear(resp);
    int r = http_call(a->http, &req, resp, err);
    if (r == 0 && resp->status != 200) r = gp_fail(err, GP_ENOTFOUND, "%s: HTTP %d", what, resp->status);
    return r;
}

static bool token_valid(const char *s) {
    for (const char *p = s; *p != '\0'; p++)
        if (*p <= ' ' || *p > '~') return false;
    return s[0] != '\0';
}

static bool role_valid(const char *s) {
    size_t n = strlen(s);
    return n >= 1 && n <= 64 && s[0] != '.' &&
           strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.@_-") == n;
}

static int metadata_role(struct ali *a, const char *base, const char *token, const char *role, struct ali_cred *ret,
                         struct gp_error *err) {
    static const char header[] = "X-aliyun-ecs-metadata-token";
    GP_AUTO_RESP struct http_resp resp = {0};
    GP_AUTO_JSON json_t *j = NULL;
    GP_AUTO_FREE char *list = xasprintf("%s/latest/meta-data/ram/security-credentials/", base);
    int r = 0;
    if (role == NULL) r = get(a, "instance metadata", "GET", list, header, token, &resp, err);
    if (r != 0) return r;
    GP_AUTO_FREE char *name = role != NULL ? xstrdup(role)
                                           : xstrndup(resp.body.s != NULL ? resp.body.s : "",
                                                      strcspn(resp.body.s != NULL ? resp.body.s : "", "\r\n"));
    if (!role_valid(name)) /* it becomes part of a URL */
        return gp_fail(err, GP_EPROTO,
                       "instance metadata: the list of roles does not begin with a role: set "
                       "ALIBABA_CLOUD_ECS_METADATA_DISABLED=true, or give credentials another way");
    GP_AUTO_FREE char *url = xasprintf("%s%s", list, name);
    r = get(a, "instance metadata", "GET", url, header, token, &resp, err);
    if (r == 0) r = json_parse(resp.body.s != NULL ? resp.body.s : "", resp.body.len, "instance metadata", &j, err);
    if (r == 0) r = take(j, "instance metadata", xasprintf("instance metadata (role %s)", name), ret, err);
    return r;
}

int ali_creds_metadata(struct ali *a, const char *role, struct ali_cred *ret, struct gp_error *err) {
    const char *own = ali_env("GPUPROV_ALIBABA_METADATA");
    GP_AUTO_FREE char *url = xasprintf("%s/latest/api/token", own != NULL ? own : METADATA);
    GP_AUTO_RESP struct http_resp resp = {0};
    struct gp_error e = {0};
    int r = get(a, "instance metadata", "PUT", url, "X-aliyun-ecs-metadata-token-ttl-seconds", "21600", &resp, &e);
    if (r == 0) {
        GP_AUTO_FREE char *token = xstrdup(resp.body.s != NULL ? resp.body.s : "");
        r = token_valid(token) ? metadata_role(a, own != NULL ? own : METADATA, token, role, ret, &e)
                               : gp_fail(&e, GP_EPROTO,
                                         "instance metadata: its token is not a header value: set "
                                         "ALIBABA_CLOUD_ECS_METADATA_DISABLED=true");
        explicit_bzero(token, strlen(token));
    }
    if (r == -GP_EENDPOINT || r == -GP_ELOST || r == -GP_ENOTFOUND) return 0; /* not on ECS, or no role */
    if (r != 0 && err != NULL) *err = e;
    return r;
}

int ali_creds_uri(struct ali *a, const char *uri, struct ali_cred *ret, struct gp_error *err) {
    GP_AUTO_RESP struct http_resp resp = {0};
    GP_AUTO_JSON json_t *j = NULL;
    if (!str_starts(uri, "http://") && !str_starts(uri, "https://"))
        return gp_fail(err, GP_EAUTH,
                       "alibaba credentials: the credentials URI is not an http or https URL: correct it");
    int r = get(a, "the credentials URI", "GET", uri, NULL, NULL, &resp, err);
    if (r == 0) r = json_parse(resp.body.s != NULL ? resp.body.s : "", resp.body.len, "the credentials URI", &j, err);
    if (r == 0) r = take(j, "the credentials URI", xstrdup("the credentials URI"), ret, err);
    if (r == 0 || r == -GP_ECANCELLED) return r;
    if (err != NULL) err->code = GP_EAUTH;
    return -GP_EAUTH;
}

/* --- an external program --- */

static int read_output(struct ali *a, int fd, struct str *out, struct gp_error *err) {
    int64_t deadline = clock_deadline(60000);
    for (;;) {
        char buf[4096];
        int r = gp_wait_fd(fd, POLLIN, deadline, a->cancel, NULL, err);
        if (r != 0) return r;
        ssize_t n = read(fd, buf, sizeof buf);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return gp_fail_errno(err, GP_EIO, errno, "could not read its output");
        if (n == 0) return 0;
        if (!str_add_mem(out, buf, (size_t)n)) return gp_fail(err, GP_EAUTH, "it wrote more than 64 KiB");
    }
}

/* Words are separated by blanks, as the official CLI separates them. */
static int run_program(struct ali *a, const char *command, struct str *out, struct gp_error *err) {
    GP_AUTO_STRV struct strv words = {0};
    int pipes[2], status = 0;
    pid_t pid = -1;
    strv_split(&words, command, " \t");
    if (words.n == 0) return gp_fail(err, GP_EAUTH, "process_command is empty");
    if (pipe2(pipes, O_CLOEXEC) != 0) return gp_fail_errno(err, GP_EENV, errno, "could not create a pipe");
    GP_AUTO_FD int in = pipes[0];
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attr;
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, pipes[1], 1);
    posix_spawnattr_init(&attr);
    posix_spawnattr_setsigmask(&attr, &none); /* gpuprov's threads block all signals */
    posix_spawnattr_setsigdefault(&attr, &all);
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    int e = posix_spawnp(&pid, words.v[0], &actions, &attr, words.v, environ);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attr);
    close(pipes[1]);
    if (e != 0) return gp_fail_errno(err, GP_EAUTH, e, "could not start '%s'", words.v[0]);
    int r = read_output(a, in, out, err);
    if (r != 0) kill(pid, SIGKILL);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) continue;
    if (r == 0 && (!WIFEXITED(status) || WEXITSTATUS(status) != 0))
        r = gp_fail(err, GP_EAUTH, "'%s' failed with status %d (its message is above)", words.v[0],
                    WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
    return r;
}

/* Its output: {"mode": "AK" | "StsToken", "access_key_id", "access_key_secret", "sts_token"}. */
int ali_creds_process(struct ali *a, const char *command, struct ali_cred *ret, struct gp_error *err) {
    GP_AUTO_STR struct str out = {.max = SMALL_MAX};
    GP_AUTO_JSON json_t *j = NULL;
    int r = run_program(a, command, &out, err);
    if (r == 0) r = json_parse(out.s != NULL ? out.s : "", out.len, "its output", &j, err);
    if (out.s != NULL) explicit_bzero(out.s, out.len);
    const char *id = json_str(j, "access_key_id", ""), *key = json_str(j, "access_key_secret", "");
    if (r == 0 && (id[0] == '\0' || key[0] == '\0'))
        r = gp_fail(err, GP_EAUTH, "its output has no access_key_id and access_key_secret");
    if (r == 0) {
        ali_cred_set(ret, id, key, json_str(j, "sts_token", ""), xstrdup("the profile's external program"));
        return 0;
    }
    gp_wrap(err, "alibaba credentials: process_command");
    if (r == -GP_ECANCELLED) return r;
    if (err != NULL) err->code = GP_EAUTH;
    return -GP_EAUTH;
}
