/* SPDX-License-Identifier: Apache-2.0 */
/* Reads /proc. */
#include "base/gp_base.h"

#include "validate/agent/base/proc.h"

#include "base/fs.h"
#include "base/str.h"

bool proc_read(pid_t pid, struct proc *ret) {
    GP_AUTO_FREE char *path = xasprintf("/proc/%d/stat", (int)pid);
    GP_AUTO_STR struct str s = {0};
    if (fs_read(path, 4096, &s, NULL) != 0 || s.s == NULL) return false;
    const char *p = strrchr(s.s, ')'); /* the name may contain ')' */
    unsigned long long start = 0;
    int parent = 0, group = 0;
    if (p == NULL) return false;
    int n = sscanf(p + 1, " %c %d %d %d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu", &ret->state,
                   &parent, &group, &ret->session, &start);
    ret->parent = (pid_t)parent;
    ret->group = (pid_t)group;
    ret->start_ticks = (int64_t)start;
    return n == 5;
}

void proc_boot_id(char dst[40]) {
    GP_AUTO_STR struct str s = {0};
    const char *path = "/proc/sys/kernel/random/boot_id";
#ifdef GPUPROV_FAULTS /* tests: a reboot is a change of this file */
    if (getenv("GPUPROV_BOOT_FILE") != NULL) path = getenv("GPUPROV_BOOT_FILE");
#endif
    dst[0] = '\0';
    if (fs_read(path, 64, &s, NULL) == 0 && s.s != NULL) str_put(dst, 40, str_trim(s.s));
}
