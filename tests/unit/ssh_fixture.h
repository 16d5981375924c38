/* SPDX-License-Identifier: Apache-2.0 */
/* Real OpenSSH servers for tests: own host keys, own configuration, a loopback port, one folder that
 * goes away at the end. Nothing of the machine's own sshd is used or changed (the empty folder
 * /run/sshd, which sshd insists on, is made when it is missing). */
#ifndef GP_TEST_SSH_FIXTURE_H
#define GP_TEST_SSH_FIXTURE_H

#include "base/gp_base.h"

#include "base/clock.h"
#include "base/fs.h"
#include "base/str.h"
#include "folder.h"
#include "ssh/ssh.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pwd.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define FX GP_UNUSED static

extern char **environ;

struct sshd {
    pid_t pid;
    uint16_t port;
    char *dir;       /* holds host keys, sshd_config */
    char *host_line; /* "ssh-ed25519 AAAA..." */
};

struct fixture {
    char *dir; /* holds user keys and servers */
    char *user;
    char *skip; /* why nothing can be tested here; NULL: it can */
    struct sshd a;
};

FX struct fixture fx;

/* Runs a program and waits; its output goes to `out_path` or nowhere. Exit status, -1 on signals. */
FX int fx_run(const char *out_path, const char *const *argv) {
    posix_spawn_file_actions_t fa;
    posix_spawn_file_actions_init(&fa);
    posix_spawn_file_actions_addopen(&fa, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&fa, 1, out_path ? out_path : "/dev/null", O_WRONLY | O_CREAT | O_TRUNC, 0600);
    posix_spawn_file_actions_adddup2(&fa, 1, 2);
    char **copy = xcalloc(64, sizeof(char *));
    for (size_t i = 0; argv[i] != NULL && i < 63; i++) copy[i] = xstrdup(argv[i]);
    pid_t pid = 0;
    int r = posix_spawnp(&pid, argv[0], &fa, NULL, copy, environ);
    posix_spawn_file_actions_destroy(&fa);
    for (size_t i = 0; copy[i] != NULL; i++) free(copy[i]);
    free(copy);
    if (r != 0) return 127;
    int st = 0;
    while (waitpid(pid, &st, 0) < 0 && errno == EINTR) {
    }
    return WIFEXITED(st) ? WEXITSTATUS(st) : -1;
}
#define RUN(...) fx_run(NULL, (const char *const[]){__VA_ARGS__, NULL})
#define RUN_TO(path, ...) fx_run(path, (const char *const[]){__VA_ARGS__, NULL})

FX char *fx_path(const char *name) { return fs_join(fx.dir, name); }

FX char *fx_read(const char *path) {
    GP_AUTO_STR struct str s = {0};
    assert_int_equal(fs_read(path, 1 << 20, &s, NULL), 0);
    return xstrdup(str_trim(s.s ? s.s : (char[]){""}));
}

FX void fx_write(const char *path, const char *text, unsigned mode) {
    assert_int_equal(fs_write_atomic(path, text, strlen(text), mode, NULL), 0);
}

/* A socket that holds a free loopback port on which nothing listens. */
FX int fx_bind(uint16_t *ret_port) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in sa = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof sa;
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&sa, n), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&sa, &n), 0);
    *ret_port = ntohs(sa.sin_port);
    return fd;
}

/* One that listens. */
FX int fx_listen(uint16_t *ret_port) {
    int fd = fx_bind(ret_port);
    assert_int_equal(listen(fd, 16), 0);
    return fd;
}

/* Whether the sshd of dir has said that it listens: its own word, because on its port another program
 * may answer. */
FX bool fx_listens(const char *dir) {
    GP_AUTO_FREE char *log = fs_join(dir, "log");
    GP_AUTO_STR struct str text = {0};
    return fs_read(log, 1 << 20, &text, NULL) == 0 && text.s != NULL &&
           strstr(text.s, "Server listening on 127.0.0.1 ") != NULL;
}

FX pid_t fx_spawn_sshd(const char *dir, uint16_t port) {
    GP_AUTO_FREE char *conf = fs_join(dir, "sshd_config");
    GP_AUTO_FREE char *log = fs_join(dir, "log");
    GP_AUTO_FREE char *p = xasprintf("%u", (unsigned)port);
    char sshd[] = "/usr/sbin/sshd", d[] = "-D", e[] = "-e", f[] = "-f", dash_p[] = "-p";
    char *argv[] = {sshd, d, e, f, conf, dash_p, p, NULL};
    pid_t pid = fork();
    if (pid != 0) return pid;
    /* It ends with the test, however that ends. */
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    int null = open("/dev/null", O_RDWR), to = open(log, O_WRONLY | O_CREAT | O_APPEND, 0600);
    if (dup2(null, 0) == 0 && dup2(null, 1) == 1 && dup2(to, 2) == 2) execv(sshd, argv);
    _exit(127);
}

/* Starts what dir/sshd_config describes, on a free port (or the one given), once it listens. */
FX void fx_sshd_run(struct sshd *s, uint16_t port) {
    for (int tries = 0; tries < 20; tries++) {
        s->port = port;
        if (port == 0) close(fx_listen(&s->port));
        GP_AUTO_FREE char *log = fs_join(s->dir, "log");
        unlink(log);
        s->pid = fx_spawn_sshd(s->dir, s->port);
        assert_true(s->pid > 0);
        while (!fx_listens(s->dir)) {
            if (waitpid(s->pid, NULL, WNOHANG) == s->pid) {
                s->pid = 0;
                break;
            }
            usleep(5000);
        }
        if (s->pid > 0) return;
    }
    fail_msg("sshd does not start: see %s/log", s->dir);
}

FX void fx_sshd_stop(struct sshd *s) {
    if (s->pid > 0) {
        kill(s->pid, SIGTERM);
        waitpid(s->pid, NULL, 0);
    }
    s->pid = 0;
}

FX void fx_sshd_clear(struct sshd *s) {
    fx_sshd_stop(s);
    free(s->dir);
    free(s->host_line);
    *s = (struct sshd){0};
}

/* host_key_type: ssh-keygen's -t. extra: further lines of sshd_config. */
FX void fx_sshd_start(struct sshd *s, const char *name, const char *host_key_type, const char *extra) {
    s->dir = fx_path(name);
    assert_int_equal(fs_mkdirs(s->dir, 0700, NULL), 0);
    GP_AUTO_FREE char *key = fs_join(s->dir, "host_key");
    GP_AUTO_FREE char *pub = xasprintf("%s.pub", key);
    GP_AUTO_FREE char *conf = fs_join(s->dir, "sshd_config");
    if (!fs_exists(key))
        assert_int_equal(RUN("ssh-keygen", "-q", "-t", host_key_type, "-N", "", "-C", "", "-f", key), 0);
    GP_AUTO_FREE char *line = fx_read(pub);
    s->host_line = xstrdup(line);
    GP_AUTO_FREE char *text = xasprintf("%sListenAddress 127.0.0.1\nHostKey %s\nUsePAM no\nPidFile none\n"
                                        "StrictModes no\nPermitRootLogin yes\nUseDNS no\n"
                                        "PasswordAuthentication no\nMaxStartups 100:30:200\n"
                                        "KbdInteractiveAuthentication no\nLogLevel INFO\n"
                                        "AuthorizedKeysFile %s/authorized_keys\n"
                                        "SetEnv HOME=%s\n", /* not with this user's own start-up files */
                                        extra, key, fx.dir, fx.dir);
    fx_write(conf, text, 0600);
    fx_sshd_run(s, 0);
}

FX void fx_user_key(const char *name, const char *type, const char *passphrase, bool allow) {
    GP_AUTO_FREE char *path = fx_path(name);
    GP_AUTO_FREE char *pub = xasprintf("%s.pub", path);
    GP_AUTO_FREE char *keys = fx_path("authorized_keys");
    assert_int_equal(RUN("ssh-keygen", "-q", "-t", type, "-N", passphrase, "-C", name, "-f", path), 0);
    if (!allow) return;
    GP_AUTO_FREE char *line = fx_read(pub);
    GP_AUTO_STR struct str all = {0};
    fs_read(keys, 1 << 20, &all, NULL);
    str_addf(&all, "%s\n", line);
    fx_write(keys, all.s, 0600);
}

FX int fx_setup(void **state) {
    (void)state;
    if (access("/usr/sbin/sshd", X_OK) != 0) {
        fx.skip = xstrdup("no /usr/sbin/sshd here (apt package openssh-server)");
        return 0;
    }
    if (mkdir("/run/sshd", 0755) != 0 && errno != EEXIST && getuid() == 0) {
        fx.skip = xstrdup("/run/sshd cannot be made");
        return 0;
    }
    char dir[200];
    assert_non_null(make_folder(dir, sizeof dir, "ssh-test"));
    fx.dir = xstrdup(dir);
    const struct passwd *pw = getpwuid(getuid());
    assert_non_null(pw);
    fx.user = xstrdup(pw->pw_name);
    assert_int_equal(unsetenv("SSH_AUTH_SOCK"), 0);
    assert_int_equal(ssh_global_init(NULL), 0);
    fx_user_key("id_ed25519", "ed25519", "", true);
    fx_sshd_start(&fx.a, "a", "ed25519", "");
    return 0;
}

/* A command that runs until the end of the tests: a command outlives its connection, and its process
 * is remembered. Prints a line first. */
FX char *fx_endless(const char *tail) { return xasprintf("echo begun; echo $$ >> %s/pids; %s", fx.dir, tail); }

FX void fx_end_endless(void) {
    GP_AUTO_FREE char *path = fx_path("pids");
    GP_AUTO_STR struct str text = {0};
    GP_AUTO_STRV struct strv pids = {0};
    if (fs_read(path, 1 << 20, &text, NULL) != 0 || text.s == NULL) return;
    strv_split(&pids, text.s, "\n ");
    for (size_t i = 0; i < pids.n; i++) {
        int64_t pid = 0;
        if (str_to_i64(pids.v[i], 2, INT32_MAX, &pid)) kill((pid_t)pid, SIGKILL);
    }
}

FX int fx_teardown(void **state) {
    (void)state;
    if (fx.dir != NULL) fx_end_endless();
    fx_sshd_clear(&fx.a);
    if (fx.dir != NULL) {
        fs_remove_tree(fx.dir, NULL);
        ssh_global_exit();
    }
    free(fx.dir);
    free(fx.user);
    free(fx.skip);
    fx = (struct fixture){0};
    return 0;
}

#define NEEDS_SSHD()                                 \
    do {                                             \
        if (fx.skip != NULL) {                       \
            print_message("skipped: %s\n", fx.skip); \
            skip();                                  \
        }                                            \
    } while (0)

/* A target that logs in at s with the ed25519 key and the pinned host key. */
FX void fx_target(struct ssh_target *t, const struct sshd *s) {
    *t = (struct ssh_target){.label = xstrdup("llm/1"),
                             .host = xstrdup("127.0.0.1"),
                             .port = s->port,
                             .user = xstrdup(fx.user),
                             .key_path = fx_path("id_ed25519")};
    strv_add(&t->host_keys, s->host_line);
}

FX void fx_set(char **field, const char *value) {
    free(*field);
    *field = xstrdup(value);
}

FX int fx_open(const struct ssh_target *t, int64_t timeout_ms, struct ssh_session **ret, struct gp_error *err) {
    struct ssh_open_opts o = {.deadline_ms = clock_deadline(timeout_ms)};
    return ssh_open(t, &o, ret, err);
}

/* Logs in at server a or fails the test. */
FX struct ssh_session *fx_login(void) {
    GP_AUTO_SSH_TARGET struct ssh_target t = {0};
    struct ssh_session *s = NULL;
    struct gp_error err = {0};
    fx_target(&t, &fx.a);
    if (fx_open(&t, 30000, &s, &err) != 0) fail_msg("%s", err.msg);
    return s;
}

#define assert_contains(text, part)                                                          \
    do {                                                                                     \
        if (strstr((text), (part)) == NULL) fail_msg("'%s' is not in '%s'", (part), (text)); \
    } while (0)

#endif
