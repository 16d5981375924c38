/* SPDX-License-Identifier: Apache-2.0 */
/* host.limits: a login's limits of locked memory, open files and shared memory. A low limit shows only later, as an
 * NCCL or RDMA error far from its cause. Reads files and limits only. One thread. */
#include "base/gp_base.h"

#include "host.h"

#include "base/fs.h"

#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/sysinfo.h>

#define GIB ((double)(1u << 30))

/* -1: no limit. */
static double resource_limit(int what, bool hard) {
    struct rlimit l;
    if (getrlimit((__rlimit_resource_t)what, &l) != 0) return 0;
    rlim_t v = hard ? l.rlim_max : l.rlim_cur;
    return v == RLIM_INFINITY ? -1 : (double)v;
}

static void tell_hugepages(struct agent_result *r) {
    GP_AUTO_STR struct str s = {0};
    GP_AUTO_STR struct str thp = {0};
    long long total = 0, size_kib = 0;
    if (fs_read("/proc/meminfo", 65536, &s, NULL) == 0 && s.s != NULL) {
        const char *n = strstr(s.s, "HugePages_Total:"), *k = strstr(s.s, "Hugepagesize:");
        if (n != NULL && k != NULL && sscanf(n, "HugePages_Total: %lld", &total) == 1 &&
            sscanf(k, "Hugepagesize: %lld", &size_kib) == 1)
            agent_metric(r, "hugepages", (double)total * (double)size_kib / (1 << 20));
    }
    if (fs_read("/sys/kernel/mm/transparent_hugepage/enabled", 256, &thp, NULL) == 0 && thp.s != NULL)
        agent_data_str(r, "transparent_hugepages", str_trim(thp.s));
}

void limits_run(struct check_ctx *c, struct agent_result *r) {
    double lock = resource_limit(RLIMIT_MEMLOCK, false), files = resource_limit(RLIMIT_NOFILE, false);
    struct statvfs v;
    struct sysinfo si = {0};
    double shm = -1;
    int rdma = host_rdma_devices();
    (void)c;
    if (statvfs("/dev/shm", &v) == 0) shm = (double)v.f_blocks * (double)v.f_frsize;
    agent_data_bool(r, "memlock_unlimited", lock < 0);
    if (lock >= 0) agent_metric(r, "memlock", lock / GIB);
    if (files >= 0) agent_metric(r, "open_files", files);
    agent_data_num(r, "open_files_hard", resource_limit(RLIMIT_NOFILE, true));
    if (shm >= 0) agent_metric(r, "shared_memory", shm / GIB);
    if (sysinfo(&si) == 0) {
        agent_metric(r, "swap", (double)si.totalswap * si.mem_unit / GIB);
        agent_data_num(r, "swap_used_gib", (double)(si.totalswap - si.freeswap) * si.mem_unit / GIB);
    }
    tell_hugepages(r);
    if (rdma > 0 && lock >= 0 && lock < 16 * GIB) {
        agent_set(r, VERDICT_DEGRADED, "low_memlock",
                  "a login may lock %.4g GiB of memory; RDMA (%d devices found) needs 16 or more", lock / GIB, rdma);
        agent_suggest(r, "set memlock to unlimited in /etc/security/limits.d and in the units that start jobs");
    }
    if (agent_dev_nvidia_count() > 1 && shm >= 0 && shm < GIB && r->verdict == VERDICT_PASS) {
        agent_set(r, VERDICT_DEGRADED, "low_shared_memory", "/dev/shm has %.3g GiB; NCCL needs 1 or more between GPUs",
                  shm / GIB);
        agent_suggest(r, "enlarge /dev/shm: in a container with --shm-size=1g or --ipc=host, else by its mount "
                         "options");
    }
    if (files >= 0 && files < 1024 && r->verdict == VERDICT_PASS) {
        agent_set(r, VERDICT_DEGRADED, "low_open_files", "a login may open %.0f files at once", files);
        agent_suggest(r, "set nofile to 65536 or more in /etc/security/limits.d");
    }
    char locked[32];
    if (lock < 0) str_put(locked, sizeof locked, "any amount");
    else snprintf(locked, sizeof locked, "%.3g GiB", lock / GIB);
    agent_say(r, "may lock %s of memory, open %.0f files; /dev/shm %.3g GiB", locked, files, shm < 0 ? 0 : shm / GIB);
}
