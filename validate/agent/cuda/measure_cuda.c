/* SPDX-License-Identifier: Apache-2.0 */
/* Measurement beyond device_ops: GPU time by the driver's events, page-locked host memory near the GPU, copies to
 * other GPUs, a GPU's attributes. One thread per device. */
#include "base/gp_base.h"

#include "device_cuda.h"

#include "base/fs.h"

#include <ctype.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { HOST_PORTABLE = 1 }; /* page-locked for all contexts */

const struct cuda_api *cuda_of(const struct device *d) { return d->cu; }
cu_context cuda_context(const struct device *d) { return d->ctx; }
cu_stream cuda_stream(const struct device *d) { return d->stream; }

int cuda_attribute(const struct device *d, int attribute) {
    int value = -1;
    return d->cu->device_attribute(&value, attribute, d->dev) ? -1 : value;
}

/* --- its PCI device in sysfs --- */

static int sysfs_read(const struct device *d, const char *name, struct str *ret) {
    char pci[32] = "";
    if (d->cu->device_pci(pci, sizeof pci, d->dev)) return -GP_EENV;
    for (char *p = pci; *p; p++) *p = (char)tolower((unsigned char)*p);
    GP_AUTO_FREE char *path = xasprintf("/sys/bus/pci/devices/%s/%s", pci, name);
    return fs_read(path, 4096, ret, NULL);
}

static unsigned sysfs_id(const struct device *d, const char *name) {
    GP_AUTO_STR struct str text = {0};
    return sysfs_read(d, name, &text) < 0 ? 0 : (unsigned)strtoul(text.s, NULL, 16);
}

bool cuda_pci_ids(const struct device *d, unsigned *ret_device, unsigned *ret_subsystem) {
    int ids = cuda_attribute(d, CU_ATTR_PCI_IDS);
    int sub = cuda_attribute(d, CU_ATTR_PCI_SUBSYSTEM);
    unsigned device = ids > 0 ? (unsigned)ids >> 16 : sysfs_id(d, "device");
    if (device == 0) return false;
    *ret_device = device;
    *ret_subsystem = sub > 0 ? (unsigned)sub >> 16 : sysfs_id(d, "subsystem_device");
    return true;
}

/* --- page-locked memory --- */

/* "0-15,32-47" to a set. */
static bool cpus_of(const char *list, cpu_set_t *ret) {
    CPU_ZERO(ret);
    for (const char *p = list; isdigit((unsigned char)*p);) {
        char *end = NULL;
        unsigned long from = strtoul(p, &end, 10), to = from;
        if (*end == '-') to = strtoul(end + 1, &end, 10);
        for (; from <= to && from < CPU_SETSIZE; from++) CPU_SET(from, ret);
        p = *end == ',' ? end + 1 : end;
    }
    return CPU_COUNT(ret) > 0;
}

enum { POLICY_PREFERRED = 1, NODES = 1024 };
struct policy {
    int mode;
    unsigned long nodes[NODES / (8 * sizeof(unsigned long))];
};

static bool policy_get(struct policy *ret) {
    return syscall(SYS_get_mempolicy, &ret->mode, ret->nodes, NODES, NULL, 0) == 0;
}

static bool policy_set(const struct policy *p) { return syscall(SYS_set_mempolicy, p->mode, p->nodes, NODES) == 0; }

/* Memory is placed near the thread that first touches it, unless a policy selects another place. Containers often
 * refuse the policy, and some refuse the move: the place is then arbitrary. */
struct nearness {
    cpu_set_t cpus;
    struct policy policy;
    bool moved, preferred;
};

static void go_near(const struct device *d, struct nearness *ret) {
    *ret = (struct nearness){.moved = false};
    struct policy near_policy = {.mode = POLICY_PREFERRED};
    GP_AUTO_STR struct str node = {0};
    GP_AUTO_STR struct str cpus = {0};
    cpu_set_t near;
    if (sysfs_read(d, "numa_node", &node) == 0) {
        long n = strtol(node.s, NULL, 10);
        enum { BITS = 8 * sizeof *near_policy.nodes };
        if (n >= 0 && n < NODES && policy_get(&ret->policy)) {
            near_policy.nodes[n / BITS] |= 1ul << (n % BITS);
            ret->preferred = policy_set(&near_policy);
        }
    }
    if (sysfs_read(d, "local_cpulist", &cpus) == 0 && cpus_of(cpus.s, &near) &&
        sched_getaffinity(0, sizeof ret->cpus, &ret->cpus) == 0)
        ret->moved = sched_setaffinity(0, sizeof near, &near) == 0;
}

static void go_back(const struct nearness *n) {
    if (n->preferred) policy_set(&n->policy);
    if (n->moved) sched_setaffinity(0, sizeof n->cpus, &n->cpus);
}

int cuda_host_alloc(struct device *d, size_t bytes, void **ret, struct gp_error *err) {
    struct pinned m = {.bytes = bytes};
    struct nearness where;
    int rc = device_use(d, err);
    if (rc < 0) return rc;
    go_near(d, &where);
    cu_result r = d->cu->host_alloc(&m.p, bytes, HOST_PORTABLE);
    go_back(&where);
    if (r) return cuda_fail(err, r, "gpu %d: page-lock %zu bytes of host memory", d->index, bytes);
    vec_push(&d->pinned, m);
    *ret = m.p;
    return 0;
}

void cuda_host_free(struct device *d, void *p) {
    for (size_t i = 0; p && i < d->pinned.len; i++) {
        if (d->pinned.items[i].p != p) continue;
        d->pinned.items[i] = d->pinned.items[--d->pinned.len];
        if (!d->hung && device_use(d, NULL) == 0) d->cu->host_free(p);
        return;
    }
}

/* --- time --- */

static int mark_of(struct device *d, int mark, struct gp_error *err) {
    if (mark < 0 || mark >= CUDA_MARKS)
        return gp_fail(err, GP_EINTERNAL, "gpu %d: mark %d does not exist", d->index, mark);
    return device_use(d, err);
}

int cuda_mark(struct device *d, int mark, struct gp_error *err) {
    int rc = mark_of(d, mark, err);
    cu_result r = 0;
    if (rc == 0 && !d->marks[mark] && (r = d->cu->event_new(&d->marks[mark], 0))) d->marks[mark] = NULL;
    if (rc == 0 && r == 0) r = d->cu->event_record(d->marks[mark], d->stream);
    return rc == 0 && r ? device_fail(d, r, err, "record an event") : rc;
}

int cuda_elapsed(struct device *d, int from, int to, double *ret_s, struct gp_error *err) {
    float ms = 0;
    int rc = mark_of(d, from, err);
    if (rc == 0) rc = mark_of(d, to, err);
    if (rc == 0 && (!d->marks[from] || !d->marks[to]))
        return gp_fail(err, GP_EINTERNAL, "gpu %d: mark %d or %d was never recorded", d->index, from, to);
    if (rc < 0) return rc;
    cu_result r = d->cu->event_elapsed(&ms, d->marks[from], d->marks[to]);
    if (r) return device_fail(d, r, err, "measure its time");
    *ret_s = (double)ms / 1000;
    return 0;
}

/* --- other GPUs --- */

int cuda_peer_enable(struct device *d, struct device *other, bool *ret_direct, struct gp_error *err) {
    int can = 0;
    int rc = device_use(d, err);
    if (rc < 0) return rc;
    cu_result r = d->cu->peer_can(&can, d->dev, other->dev);
    if (r == 0 && can) r = d->cu->peer_enable(other->ctx, 0);
    if (r && r != CU_PEER_ENABLED && r != CU_PEER_UNSUPPORTED)
        return cuda_fail(err, r, "gpu %d: enable access to the memory of gpu %d", d->index, other->index);
    *ret_direct = can && r != CU_PEER_UNSUPPORTED;
    return 0;
}

int cuda_peer_disable(struct device *d, struct device *other, struct gp_error *err) {
    int rc = device_use(d, err);
    cu_result r = rc == 0 ? d->cu->peer_disable(other->ctx) : 0;
    if (r && r != CU_PEER_NOT_ENABLED)
        return cuda_fail(err, r, "gpu %d: disable access to the memory of gpu %d", d->index, other->index);
    return rc;
}

int cuda_copy_peer(struct device *d, dev_addr src, struct device *other, dev_addr dst, size_t bytes,
                   struct gp_error *err) {
    int rc = device_use(d, err);
    if (rc < 0) return rc;
    cu_result r = d->cu->copy_peer(dst, other->ctx, src, d->ctx, bytes, d->stream);
    return r ? cuda_fail(err, r, "gpu %d: copy to gpu %d", d->index, other->index) : 0;
}

void measure_close(struct device *d) {
    for (size_t i = 0; i < CUDA_MARKS; i++)
        if (d->marks[i]) d->cu->event_free(d->marks[i]);
    for (size_t i = 0; i < d->pinned.len; i++) d->cu->host_free(d->pinned.items[i].p);
}

void cuda_device_kind(struct device *d, char *dst, size_t n) {
    char name[96] = "";
    int driver = 0;
    dst[0] = '\0';
    if (d->cu->device_name(name, (int)sizeof name, d->dev) || d->cu->driver_version(&driver)) return;
    snprintf(dst, n, "%s, %d SMs, driver %d, %s", name, cuda_attribute(d, CU_ATTR_SMS), driver, cuda_gemm_by(d));
}
