/* SPDX-License-Identifier: Apache-2.0 */
/* Facts of the node: cores and memory that the scheduler and cgroups (v2 and v1) grant this process, device files.
 * Reads /proc, /sys and /dev only. Any thread. */
#include "base/gp_base.h"

#include "validate/agent/agent.h"

#include "base/fs.h"

#include <ctype.h>
#include <dirent.h>
#include <sched.h>
#include <unistd.h>

static bool read_text(const char *path, struct str *s) {
    str_reset(s);
    return fs_read(path, 65536, s, NULL) == 0 && s->s != NULL;
}

/* This process's cgroup path of a v1 controller, or of v2 (controller ""). */
static bool cgroup_path(const char *controller, char *dst, size_t n) {
    GP_AUTO_STR struct str s = {0};
    if (!read_text("/proc/self/cgroup", &s)) return false;
    GP_AUTO_STRV struct strv lines = {0};
    strv_split(&lines, s.s, "\n");
    for (size_t i = 0; i < lines.n; i++) {
        char *names = strchr(lines.v[i], ':');
        char *path = names != NULL ? strchr(names + 1, ':') : NULL;
        if (path == NULL) continue;
        *names++ = '\0';
        *path++ = '\0';
        GP_AUTO_STRV struct strv list = {0};
        strv_split(&list, names, ",");
        bool found = controller[0] == '\0' ? list.n == 0 : strv_has(&list, controller);
        if (found) return str_put(dst, n, path);
    }
    return false;
}

/* Calls fn with the text of `file` in this process's cgroup and in each one above it. */
static void each_cgroup(const char *mount, const char *controller, const char *file,
                        void (*fn)(void *ctx, const char *dir, const char *text), void *ctx) {
    char path[2048];
    if (!cgroup_path(controller, path, sizeof path)) return;
    GP_AUTO_STR struct str s = {0};
    for (;;) {
        bool root = path[0] == '\0' || str_eq(path, "/");
        GP_AUTO_FREE char *dir = xasprintf("%s%s", mount, root ? "" : path);
        GP_AUTO_FREE char *name = xasprintf("%s/%s", dir, file);
        if (read_text(name, &s)) fn(ctx, dir, s.s);
        if (root) return;
        char *slash = strrchr(path, '/');
        if (slash == NULL) return;
        *slash = '\0';
    }
}

static void cpu_max_v2(void *ctx, const char *dir, const char *text) {
    double *cores = ctx;
    long long quota = 0, period = 0;
    (void)dir;
    if (sscanf(text, "%lld %lld", &quota, &period) != 2 || quota <= 0 || period <= 0) return;
    *cores = GP_MIN(*cores, (double)quota / (double)period);
}

static void cpu_quota_v1(void *ctx, const char *dir, const char *text) {
    double *cores = ctx;
    int64_t quota = 0, period = 0;
    GP_AUTO_STR struct str s = {0};
    GP_AUTO_FREE char *name = xasprintf("%s/cpu.cfs_period_us", dir);
    GP_AUTO_FREE char *own = xstrdup(text);
    if (!read_text(name, &s) || !str_to_i64(str_trim(own), 1, INT64_MAX, &quota) ||
        !str_to_i64(str_trim(s.s), 1, INT64_MAX, &period))
        return;
    *cores = GP_MIN(*cores, (double)quota / (double)period);
}

double agent_cores(int *ret_online) {
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    if (ret_online != NULL) *ret_online = (int)online;
    double cores = (double)online;
    cpu_set_t *set = CPU_ALLOC(8192);
    size_t size = CPU_ALLOC_SIZE(8192);
    if (set != NULL && sched_getaffinity(0, size, set) == 0) cores = GP_MIN(cores, (double)CPU_COUNT_S(size, set));
    CPU_FREE(set);
    each_cgroup("/sys/fs/cgroup", "", "cpu.max", cpu_max_v2, &cores);
    each_cgroup("/sys/fs/cgroup/cpu", "cpu", "cpu.cfs_quota_us", cpu_quota_v1, &cores);
    return cores;
}

static void memory_limit(void *ctx, const char *dir, const char *text) {
    int64_t *bytes = ctx, limit = 0;
    (void)dir;
    GP_AUTO_FREE char *own = xstrdup(text);
    if (str_to_i64(str_trim(own), 1, INT64_MAX, &limit)) *bytes = GP_MIN(*bytes, limit);
}

int64_t agent_memory_bytes(int64_t *ret_machine) {
    int64_t bytes = (int64_t)sysconf(_SC_PHYS_PAGES) * (int64_t)sysconf(_SC_PAGESIZE);
    if (ret_machine != NULL) *ret_machine = bytes;
    each_cgroup("/sys/fs/cgroup", "", "memory.max", memory_limit, &bytes);
    each_cgroup("/sys/fs/cgroup/memory", "memory", "memory.limit_in_bytes", memory_limit, &bytes);
    return bytes;
}

int agent_dev_nvidia_count(void) {
    DIR *d = opendir("/dev");
    int n = 0;
    if (d == NULL) return 0;
    for (struct dirent *e = readdir(d); e != NULL; e = readdir(d)) {
        if (!str_starts(e->d_name, "nvidia")) continue;
        const char *rest = e->d_name + 6;
        size_t digits = strspn(rest, "0123456789");
        n += digits > 0 && rest[digits] == '\0';
    }
    closedir(d);
    return n;
}
