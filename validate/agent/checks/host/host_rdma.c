/* SPDX-License-Identifier: Apache-2.0 */
/* host.rdma: InfiniBand, RoCE, EFA and eRDMA devices: state and rate of their ports, compared with ports of the same
 * kind, and moving error counters. Reads sysfs, sends nothing. One thread. */
#include "base/gp_base.h"

#include "host.h"

#include "base/clock.h"
#include "base/fs.h"
#include "base/vec.h"

#include <dirent.h>

#define FOLDER "/sys/class/infiniband"
#define WATCH_MS 1000
enum { AMAZON = 0x1d0f, ALIBABA = 0x1ded, MELLANOX = 0x15b3 };
#define ERDMA 0x107f /* of ALIBABA: the function beside an interface that has eRDMA */

struct port {
    char name[64]; /* "mlx5_0 port 1" */
    char path[320], layer[24];
    unsigned vendor, device;
    bool active;
    double gbit;
    int64_t errors[3]; /* of counter_names; -1: not known */
};
struct ports {
    VEC_OF(struct port) list;
    int devices, efa, erdma;
};
static const char *const counter_names[3] = {"symbol_error", "link_downed", "port_rcv_errors"};

static bool text_of(const char *folder, const char *file, char *dst, size_t n) {
    GP_AUTO_FREE char *path = xasprintf("%s/%s", folder, file);
    GP_AUTO_STR struct str s = {0};
    dst[0] = '\0';
    if (fs_read(path, 4096, &s, NULL) < 0 || s.s == NULL) return false;
    str_put(dst, n, str_trim(s.s));
    return true;
}

static unsigned number_of(const char *folder, const char *file) {
    char text[32];
    return text_of(folder, file, text, sizeof text) ? (unsigned)strtoul(text, NULL, 0) : 0;
}

static void read_errors(const char *path, int64_t ret[3]) {
    for (int i = 0; i < 3; i++) {
        char text[32];
        GP_AUTO_FREE char *file = xasprintf("counters/%s", counter_names[i]);
        ret[i] = text_of(path, file, text, sizeof text) ? strtoll(text, NULL, 10) : -1;
    }
}

static void add_ports(struct ports *all, const char *device) {
    GP_AUTO_FREE char *folder = xasprintf(FOLDER "/%s/ports", device);
    GP_AUTO_FREE char *ids = xasprintf(FOLDER "/%s/device", device);
    DIR *d = opendir(folder);
    if (d == NULL) return;
    for (const struct dirent *e = readdir(d); e != NULL; e = readdir(d)) {
        if (e->d_name[0] == '.') continue;
        char text[64];
        struct port p = {.vendor = number_of(ids, "vendor"), .device = number_of(ids, "device")};
        snprintf(p.name, sizeof p.name, "%.40s port %.8s", device, e->d_name);
        snprintf(p.path, sizeof p.path, "%.200s/%.40s", folder, e->d_name);
        text_of(p.path, "link_layer", p.layer, sizeof p.layer);
        p.active = text_of(p.path, "state", text, sizeof text) && strstr(text, "ACTIVE") != NULL;
        p.gbit = text_of(p.path, "rate", text, sizeof text) ? strtod(text, NULL) : 0; /* "400 Gb/sec (4X NDR)" */
        read_errors(p.path, p.errors);
        all->efa += p.vendor == AMAZON;
        all->erdma += p.vendor == ALIBABA;
        vec_push(&all->list, p);
    }
    closedir(d);
}

static void find_ports(struct ports *all) {
    DIR *d = opendir(FOLDER);
    if (d == NULL) return;
    for (const struct dirent *e = readdir(d); e != NULL; e = readdir(d)) {
        if (e->d_name[0] == '.') continue;
        all->devices++;
        add_ports(all, e->d_name);
    }
    closedir(d);
}

int host_rdma_devices(void) {
    struct ports all = {.devices = 0};
    find_ports(&all);
    vec_free(&all.list);
    return all.devices;
}

struct adapters {
    int all, efa, erdma;
};

/* Adapters on the PCI bus that should have an RDMA device: EFA, eRDMA, and InfiniBand controllers. */
static struct adapters adapters_on_bus(void) {
    static const char folder[] = "/sys/bus/pci/devices";
    DIR *d = opendir(folder);
    struct adapters found = {0};
    if (d == NULL) return found;
    for (const struct dirent *e = readdir(d); e != NULL; e = readdir(d)) {
        if (e->d_name[0] == '.') continue;
        GP_AUTO_FREE char *path = xasprintf("%s/%s", folder, e->d_name);
        unsigned vendor = number_of(path, "vendor"), device = number_of(path, "device");
        bool efa = vendor == AMAZON && (device & 0xfff0) == 0xefa0, erdma = vendor == ALIBABA && device == ERDMA;
        found.efa += efa;
        found.erdma += erdma;
        found.all += efa || erdma || (vendor == MELLANOX && number_of(path, "class") >> 8 == 0x0207);
    }
    closedir(d);
    return found;
}

static void blame(struct agent_result *r, enum verdict v, const char *code, const char *advice, const char *text) {
    if (v <= r->verdict) return;
    agent_set(r, v, code, "%s", text);
    agent_suggest(r, "%s", advice);
}

/* Compares a port with the others of its kind: a missing or slow rail delays all of them. */
static void judge_port(const struct ports *all, const struct port *p, struct agent_result *r) {
    int alike = 0, up = 0;
    double best = 0;
    for (size_t i = 0; i < all->list.len; i++) {
        const struct port *o = &all->list.items[i];
        if (o->vendor != p->vendor || o->device != p->device || !str_eq(o->layer, p->layer)) continue;
        alike++;
        up += o->active;
        if (o->active) best = GP_MAX(best, o->gbit);
    }
    if (!p->active && up * 2 > alike) {
        GP_AUTO_FREE char *text = xasprintf("%s is down; %d of %d ports of its kind are up", p->name, up, alike);
        blame(r, VERDICT_FAIL, "port_down", "check the cable and the switch port; replace the node", text);
    }
    if (p->active && p->gbit < best) {
        GP_AUTO_FREE char *text =
            xasprintf("%s runs at %.4g Gb/s; another port of its kind runs at %.4g", p->name, p->gbit, best);
        blame(r, VERDICT_FAIL, "rate_low", "check the cable and the switch port; replace the node", text);
    }
}

/* Counters that move without load. */
static void judge_errors(struct ports *all, struct agent_result *r) {
    gp_sleep(WATCH_MS, NULL, NULL);
    for (size_t i = 0; i < all->list.len; i++) {
        const struct port *p = &all->list.items[i];
        int64_t now[3];
        read_errors(p->path, now);
        for (int k = 0; k < 3; k++) {
            if (now[k] <= p->errors[k] || p->errors[k] < 0) continue;
            GP_AUTO_FREE char *text = xasprintf("%s: %s increased by %lld within a second without load", p->name,
                                                counter_names[k], (long long)(now[k] - p->errors[k]));
            blame(r, VERDICT_DEGRADED, "errors_move", "check the cable and the switch port", text);
        }
    }
}

/* Checks that the network can write into GPU memory: by nvidia_peermem, or by dma-buf of the open kernel module. */
static void judge_gpudirect(const struct ports *all, struct agent_result *r) {
    GP_AUTO_STR struct str s = {0};
    bool mellanox = false;
    for (size_t i = 0; i < all->list.len; i++) mellanox = mellanox || all->list.items[i].vendor == MELLANOX;
    if (!mellanox || agent_dev_nvidia_count() == 0) return;
    bool peermem = fs_exists("/sys/module/nvidia_peermem");
    bool open = fs_read("/proc/driver/nvidia/version", 4096, &s, NULL) == 0 && s.s != NULL &&
                strstr(s.s, "Open Kernel Module") != NULL;
    agent_data_str(r, "gpudirect", peermem ? "nvidia_peermem" : open ? "dma-buf" : "none");
    if (!peermem && !open)
        blame(r, VERDICT_DEGRADED, "no_gpudirect",
              "load nvidia_peermem (modprobe nvidia-peermem), or use the driver's open kernel module",
              "RDMA cannot reach GPU memory: no nvidia_peermem, and no open kernel module for "
              "dma-buf");
}

static void report_ports(const struct ports *all, struct agent_result *r) {
    GP_AUTO_STR struct str s = {0};
    for (size_t i = 0; i < all->list.len && i < 64; i++) {
        const struct port *p = &all->list.items[i];
        str_addf(&s, "%s{\"port\":\"", i > 0 ? "," : "");
        str_add_json(&s, p->name, strlen(p->name));
        str_addf(&s, "\",\"layer\":\"");
        str_add_json(&s, p->layer, strlen(p->layer));
        str_addf(&s, "\",\"efa\":%s,\"active\":%s,\"gbit_per_s\":%.6g", p->vendor == AMAZON ? "true" : "false",
                 p->active ? "true" : "false", p->gbit);
        for (int k = 0; k < 3; k++)
            if (p->errors[k] >= 0) str_addf(&s, ",\"%s\":%lld", counter_names[k], (long long)p->errors[k]);
        str_addc(&s, '}');
    }
    str_addf(&r->data, "%s\"ports\":[%s]", r->data.len > 0 ? "," : "", s.s != NULL ? s.s : "");
}

void rdma_run(struct check_ctx *c, struct agent_result *r) {
    struct ports all = {.devices = 0};
    struct adapters on_bus = adapters_on_bus();
    int active = 0;
    double slowest = 0;
    find_ports(&all);
    for (size_t i = 0; i < all.list.len; i++) {
        const struct port *p = &all.list.items[i];
        active += p->active;
        if (p->active && (slowest <= 0 || p->gbit < slowest)) slowest = p->gbit;
    }
    if (on_bus.all > all.devices) {
        GP_AUTO_FREE char *text =
            xasprintf("%d RDMA adapters are on the PCI bus (EFA: %d, eRDMA: %d), %d have a driver", on_bus.all,
                      on_bus.efa, on_bus.erdma, all.devices);
        blame(r, VERDICT_FAIL, "no_driver",
              on_bus.efa > 0     ? "install the EFA driver (aws-efa-installer)"
              : on_bus.erdma > 0 ? "install the eRDMA driver (erdma_installer), or use an image that has it"
                                 : "install the adapters' driver (mlx5_ib; DOCA or MLNX_OFED)",
              text);
    } else if (all.devices < c->rdma_expected) {
        GP_AUTO_FREE char *text =
            xasprintf("the cloud attached %d RDMA devices, the node has %d", c->rdma_expected, all.devices);
        blame(r, VERDICT_FAIL, "too_few",
              "look for the missing devices with lspci; if they are not there, replace the node", text);
    } else if (all.devices == 0) {
        agent_set(r, VERDICT_SKIPPED, "no_rdma", "this node has no InfiniBand, RoCE, EFA or eRDMA device");
        return;
    }
    if (all.devices > 0 && active == 0)
        blame(r, VERDICT_FAIL, "no_active_port", "check cables, switch and subnet manager (ibstat)",
              "no RDMA port is active");
    for (size_t i = 0; i < all.list.len; i++) judge_port(&all, &all.list.items[i], r);
    report_ports(&all, r);
    if (all.list.len > 0) judge_errors(&all, r);
    judge_gpudirect(&all, r);
    agent_metric(r, "devices", all.devices);
    agent_metric(r, "active_ports", active);
    if (active > 0) agent_metric(r, "rate", slowest);
    agent_say(r, "%d devices%s, %d ports active, %.4g Gb/s each or more", all.devices,
              all.efa > 0     ? " (EFA)"
              : all.erdma > 0 ? " (eRDMA)"
                              : "",
              active, slowest);
    vec_free(&all.list);
}
