/* SPDX-License-Identifier: Apache-2.0 */
/* The unit gpuprov-job.service, which starts a job again after a reboot without gpuprov. It exists only while a job
 * with `restart` and without secrets runs. */
#include "base/gp_base.h"

#include "base/clock.h"
#include "base/fs.h"
#include "validate/agent/base/command.h"
#include "validate/agent/job/job.h"

#include <unistd.h>

#define UNIT_MS 15000
#define PLAIN "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._@+-"

/* A shell between, because SELinux does not let systemd run a program of a home folder. */
static const char unit_text[] = "# made by gpuprov; removed when the job has ended\n"
                                "[Unit]\n"
                                "Description=gpuprov: starts the job of this node again after a reboot\n"
                                "Wants=network-online.target\n"
                                "After=network-online.target remote-fs.target nvidia-persistenced.service\n"
                                "RequiresMountsFor=%s\n"
                                "\n"
                                "[Service]\n"
                                "Type=oneshot\n"
                                "RemainAfterExit=yes\n"
                                "User=%u\n"
                                "Environment=HOME=%s\n"
                                "ExecStart=/bin/sh -c 'exec %s job again'\n"
                                "\n"
                                "[Install]\n"
                                "WantedBy=multi-user.target\n";

static const char install_text[] =
    "[ -d /run/systemd/system ] || exit 1\n"
    "u=/etc/systemd/system/gpuprov-job.service\n"
    "umask 022\n"
    "printf '%s' \"$1\" >$u.new && sync $u.new && mv $u.new $u || { rm -f $u.new; exit 1; }\n"
    "systemctl daemon-reload && systemctl enable gpuprov-job.service && exit 0\n"
    "rm -f $u\n"
    "exit 1\n";

/* The unit itself goes on until the node stops: it is the group of a job that was started again. */
static const char remove_text[] = "u=/etc/systemd/system/gpuprov-job.service\n"
                                  "[ -e $u ] || exit 0\n"
                                  "systemctl disable gpuprov-job.service\n"
                                  "rm -f $u\n"
                                  "systemctl daemon-reload\n";

static bool as_root(const char *script, const char *arg) {
    const char *argv[] = {"sudo", "-n", "sh", "-c", script, "sh", arg, NULL};
    GP_AUTO_STR struct str out = {0};
    int status = 0;
    bool root = geteuid() == 0;
    return command_run(root ? argv + 2 : argv, clock_deadline(UNIT_MS), &out, &status, NULL) == 0 && status == 0;
}

bool job_unit_install(void) {
    char program[4096];
    const char *home = getenv("HOME");
    ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
    if (n <= 0 || home == NULL || !fs_exists("/run/systemd/system")) return false;
    program[n] = '\0';
    if (strspn(program, PLAIN) != (size_t)n || strspn(home, PLAIN) != strlen(home)) return false;
    GP_AUTO_FREE char *text = xasprintf(unit_text, home, (unsigned)geteuid(), home, program);
    return as_root(install_text, text);
}

void job_unit_remove(void) {
    if (fs_exists("/etc/systemd/system/gpuprov-job.service")) (void)as_root(remove_text, "");
}

bool job_node_stops(void) {
    const char *argv[] = {"systemctl", "is-system-running", NULL};
    GP_AUTO_STR struct str out = {0};
    int status = 0;
    if (!fs_exists("/run/systemd/system")) return false;
    (void)command_run(argv, clock_deadline(2000), &out, &status, NULL);
    return out.s != NULL && str_eq(str_trim(out.s), "stopping");
}
