/* SPDX-License-Identifier: Apache-2.0 */
/* pid 1 of a node: keeps OpenSSH's sshd, reaps, reboots on TERM, powers off on USR2 (as sysvinit and
 * busybox do). It is a fork of the holder, which runs from a sealed copy in memory: /proc/1/exe leads
 * to no file of the user. One thread. */
#include "base/gp_base.h"

#include "providers/local/holder.h"

#include "base/fs.h"

#include <errno.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define GRACE_MS 300 /* what processes get between TERM and the end */
#define RESTART_MS 200
#define SSHD_MS 10000

static pid_t start_sshd(const sigset_t *blocked) {
    pid_t pid = fork();
    if (pid != 0) return pid;
    char *argv[] = {(char[]){"/usr/sbin/sshd"},
                    (char[]){"-D"},
                    (char[]){"-e"},
                    (char[]){"-f"},
                    (char[]){"/run/gpuprov/sshd_config"},
                    NULL};
    char *envp[] = {(char[]){"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
                    (char[]){"container=gpuprov"}, NULL};
    sigprocmask(SIG_UNBLOCK, blocked, NULL);
    signal(SIGPIPE, SIG_DFL);
    setsid();
    execve(argv[0], argv, envp);
    dprintf(2, "could not start sshd: %s\n", strerror(errno));
    _exit(127);
}

static int64_t now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* Everybody gets a moment to end; in a pid namespace reboot(2) ends just this node. */
static _Noreturn void finish(int how) {
    struct timespec step = {.tv_nsec = 5000000};
    int64_t until = now_ms() + GRACE_MS;
    kill(-1, SIGTERM);
    kill(-1, SIGCONT);
    for (;;) {
        pid_t pid = waitpid(-1, NULL, WNOHANG);
        if ((pid < 0 && errno == ECHILD) || now_ms() >= until) break;
        if (pid <= 0) nanosleep(&step, NULL);
    }
    reboot(how); /* no sync: the machine, and with it the page cache, goes on */
    _exit(1);
}

/* A listener on port 22 in this network namespace, without connecting to it. */
static bool sshd_listens(void) {
    GP_AUTO_STR struct str text = {0};
    if (fs_read("/proc/net/tcp", (size_t)1 << 20, &text, NULL) != 0 || text.s == NULL) return false;
    const char *p = strstr(text.s, ":0016 00000000:0000 0A");
    return p != NULL;
}

/* The last line on the console, which is where sshd complains. */
static void last_words(char *dst, size_t n) {
    char buf[512] = "";
    off_t end = lseek(2, 0, SEEK_END);
    off_t from = end > (off_t)sizeof buf - 1 ? end - (off_t)sizeof buf + 1 : 0;
    ssize_t got = end > 0 ? pread(2, buf, sizeof buf - 1, from) : 0;
    buf[got > 0 ? got : 0] = '\0';
    char *text = str_trim(buf), *line = strrchr(text, '\n');
    str_put(dst, n, line != NULL ? line + 1 : text);
}

/* The first sshd of this boot: tells the holder, or ends the node, which tells it too. */
static void await_sshd(pid_t sshd, int say, const char *host_key) {
    struct timespec step = {.tv_nsec = 2000000};
    int64_t until = now_ms() + SSHD_MS;
    while (!sshd_listens()) {
        int status = 0;
        pid_t pid = waitpid(-1, &status, WNOHANG);
        if ((pid == sshd && sshd > 0) || now_ms() >= until) {
            char words[200];
            last_words(words, sizeof words);
            dprintf(say, "error its sshd %s: %s\n", pid == sshd ? "ended at once" : "does not listen", words);
            _exit(1);
        }
        nanosleep(&step, NULL);
    }
    dprintf(say, "ready %s\n", host_key);
}

_Noreturn void init_run(int say, const char *host_key) {
    sigset_t s;
    sigemptyset(&s);
    sigaddset(&s, SIGCHLD);
    sigaddset(&s, SIGTERM);
    sigaddset(&s, SIGUSR2);
    sigprocmask(SIG_SETMASK, &s, NULL);
    prctl(PR_SET_NAME, "init");
    prctl(PR_SET_DUMPABLE, 1); /* tools look at /proc/1/root and exe to tell where they are */
    umask(022);
    pid_t sshd = start_sshd(&s);
    int64_t started = now_ms();
    await_sshd(sshd, say, host_key);
    close(say);
    for (;;) {
        if (sshd <= 0 && now_ms() - started >= RESTART_MS) {
            sshd = start_sshd(&s);
            started = now_ms();
        }
        struct timespec wait = {.tv_sec = sshd > 0 ? 3600 : 0, .tv_nsec = 50000000};
        int sig = sigtimedwait(&s, NULL, &wait);
        if (sig == SIGTERM) finish(RB_AUTOBOOT);
        if (sig == SIGUSR2) finish(RB_POWER_OFF);
        for (pid_t pid = waitpid(-1, NULL, WNOHANG); pid > 0; pid = waitpid(-1, NULL, WNOHANG))
            if (pid == sshd) sshd = -1;
    }
}
