// SPDX-License-Identifier: Apache-2.0
/* A token from the Azure CLI: `az account get-access-token`, run without a shell. One thread at a time. */
#include "base/gp_base.h"

#include "providers/azure/azure_int.h"

#include "base/clock.h"
#include "base/fs.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#define OUTPUT_MAX ((size_t)64 << 10)
#define RUN_MS 60000

extern char **environ;

static int read_output(struct azure *a, int fd, struct str *out, struct gp_error *err) {
    int64_t deadline = clock_deadline(RUN_MS);
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

/* *ret_missing: there is no such program. */
static int run(struct azure *a, char *const argv[], struct str *out, bool *ret_missing, struct gp_error *err) {
    int pipes[2];
    pid_t pid = -1;
    if (pipe2(pipes, O_CLOEXEC) != 0) return gp_fail_errno(err, GP_EENV, errno, "could not create a pipe");
    GP_AUTO_FD int in = pipes[0];
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, pipes[1], 1);
    posix_spawnattr_t attr;
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawnattr_init(&attr);
    posix_spawnattr_setsigmask(&attr, &none); /* gpuprov's threads block all signals */
    posix_spawnattr_setsigdefault(&attr, &all);
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    int e = posix_spawnp(&pid, argv[0], &actions, &attr, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attr);
    close(pipes[1]);
    *ret_missing = e == ENOENT;
    if (e == ENOENT) return 0;
    if (e != 0) return gp_fail_errno(err, GP_EAUTH, e, "could not start it");
    int r = read_output(a, in, out, err);
    if (r != 0) kill(pid, SIGKILL);
    int status = 0;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) continue;
    if (r != 0) return r;
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        return gp_fail(err, GP_EAUTH, "it failed with status %d (its message is above): run 'az login'",
                       WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
    return 0;
}

/* 'az login' writes it. Without it the program is not started, because it may be anything of that name. */
static bool has_login(void) {
    const char *folder = azure_env("AZURE_CONFIG_DIR");
    GP_AUTO_FREE char *base = fs_expand_home(folder != NULL ? folder : "~/.azure");
    GP_AUTO_FREE char *file = base != NULL ? fs_join(base, "azureProfile.json") : NULL;
    return file != NULL && fs_exists(file);
}

int azure_creds_cli(struct azure *a, struct azure_cred *ret, struct gp_error *err) {
    if (!has_login()) return 0;
    GP_AUTO_STR struct str out = {.max = OUTPUT_MAX};
    GP_AUTO_JSON json_t *j = NULL;
    GP_AUTO_FREE char *resource = xasprintf("%s/", a->audience);
    GP_AUTO_FREE char *wanted =
        xstrdup(azure_env("AZURE_SUBSCRIPTION_ID") != NULL ? azure_env("AZURE_SUBSCRIPTION_ID") : "");
    char az[] = "az", account[] = "account", get[] = "get-access-token", for_what[] = "--resource", as[] = "-o",
         json[] = "json", subscription[] = "--subscription";
    char *argv[] = {az, account, get, for_what, resource, as, json, NULL, NULL, NULL};
    if (wanted[0] != '\0') { /* it may be in another tenant than the CLI's default */
        argv[7] = subscription;
        argv[8] = wanted;
    }
    bool missing = false;
    int r = run(a, argv, &out, &missing, err);
    if (r == 0 && missing) return 0;
    if (r == 0) r = json_parse(out.s != NULL ? out.s : "", out.len, "its output", &j, err);
    if (out.s != NULL) explicit_bzero(out.s, out.len);
    if (r == 0) r = azure_cred_from_json(a, j, "the Azure CLI", ret, err);
    if (r != 0) {
        gp_wrap(err, "az account get-access-token");
        if (err != NULL && err->code != GP_ECANCELLED) err->code = GP_EAUTH;
        return err != NULL ? -(int)err->code : -GP_EAUTH;
    }
    ret->subscription = xstrdup(json_str(j, "subscription", ""));
    ret->source = xstrdup("the Azure CLI");
    return 0;
}
