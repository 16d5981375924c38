/* SPDX-License-Identifier: Apache-2.0 */
/* One GPU of gpu.presence: its identity by CUDA and NVML, compared with the GPU bought; its settings; other
 * processes on it. Creates no context. One thread, in a worker. */
#include "base/gp_base.h"

#include "presence_cuda.h"

#include "base/fs.h"
#include "health_cuda.h"
#include "validate/agent/cuda/cuda.h"

#include <unistd.h>

struct gpu {
    int index;
    char name[96], pci[32];
    size_t bytes;
    int major, minor, sms;
    struct gpu_identity id;
    const struct gpu_model *model; /* NULL: not in the table */
    bool nvml;
    struct nvml_facts f;
};

static int ask_cuda(struct gpu *g, struct gp_error *err) {
    const struct cuda_api *cu = NULL;
    cu_device d = 0;
    int rc = cuda_start(&cu, err);
    if (rc < 0) return rc;
    cu_result r = cu->device_get(&d, g->index);
    if (!r) r = cu->device_name(g->name, sizeof g->name, d);
    if (!r) r = cu->device_memory(&g->bytes, d);
    if (!r) r = cu->device_pci(g->pci, sizeof g->pci, d);
    if (!r) r = cu->device_attribute(&g->major, CU_ATTR_MAJOR, d);
    if (!r) r = cu->device_attribute(&g->minor, CU_ATTR_MINOR, d);
    if (!r) r = cu->device_attribute(&g->sms, CU_ATTR_SMS, d);
    return r ? cuda_fail(err, r, "gpu %d: read its properties", g->index) : 0;
}

static void member(struct str *s, const char *key, const char *value) {
    if (value[0] == '\0') return;
    str_addf(s, ",\"%s\":\"", key);
    str_add_json(s, value, strlen(value));
    str_addc(s, '"');
}

static void on_off(struct str *s, const char *key, int64_t v) {
    if (v >= 0) str_addf(s, ",\"%s\":%s", key, v > 0 ? "true" : "false");
}

static void add_identity(const struct gpu *g, struct str *s) {
    char id[16] = "", subsystem[16] = "";
    if (g->id.device > 0) snprintf(id, sizeof id, "%04x", g->id.device);
    if (g->id.subsystem > 0) snprintf(subsystem, sizeof subsystem, "%04x", g->id.subsystem);
    str_addf(s, "{\"gpu\":%d", g->index);
    member(s, "uuid", g->f.uuid);
    member(s, "name", g->name);
    member(s, "model", g->model != NULL ? gpu_model_name(g->model) : "");
    member(s, "pci", g->pci);
    member(s, "pci_id", id);
    member(s, "subsystem", subsystem);
    member(s, "serial", g->f.serial);
    member(s, "vbios", g->f.vbios);
    if (g->f.memory_bytes >= 0) str_addf(s, ",\"memory_mib\":%lld", (long long)(g->f.memory_bytes >> 20));
    str_addf(s, ",\"memory_gib\":%.4g,\"sm\":\"%d.%d\",\"sms\":%d", (double)g->bytes / (1u << 30), g->major, g->minor,
             g->sms);
    on_off(s, "ecc", g->f.ecc);
    on_off(s, "mig", g->f.mig);
    on_off(s, "persistence", g->f.persistence);
    if (g->f.compute_mode > 0) str_addf(s, ",\"compute_mode\":%lld", (long long)g->f.compute_mode);
    str_addc(s, '}');
}

/* --- the GPU bought --- */

/* Only a name in the table can fail a GPU. */
static void judge_model(const struct check_ctx *c, const struct gpu *g, struct agent_result *r) {
    const char *bought = c->gpu_model_bought;
    if (bought == NULL || bought[0] == '\0') return;
    if (gpu_model_named(bought) == NULL) {
        if (g->index == 0) agent_data_str(r, "bought_not_known", bought);
        return;
    }
    bool same = g->model != NULL ? gpu_model_is(g->model, bought) : strstr(g->name, bought) != NULL;
    if (!same)
        health_blame(r, VERDICT_FAIL, "gpu_model",
                     "replace the node, or write this GPU's name into the spec if the spec is wrong",
                     "gpu %d is '%s' (%s), but '%s' was bought", g->index, g->name,
                     g->model != NULL ? gpu_model_name(g->model) : "not in the model table", bought);
}

static void judge_memory(const struct gpu *g, struct agent_result *r) {
    double want = g->model != NULL ? gpu_model_spec(g->model, "memory_gib") : -1;
    double have = (double)g->f.memory_bytes / (1u << 30);
    if (want <= 0 || g->f.memory_bytes < 0 || have >= 0.9 * want) return;
    health_blame(r, VERDICT_FAIL, "memory_size", "replace the node: a part of the GPU's memory is disabled",
                 "gpu %d has %.4g GiB of memory; %s has %.4g", g->index, have, gpu_model_name(g->model), want);
}

/* --- its settings --- */

static void judge_modes(const struct gpu *g, struct agent_result *r) {
    bool by_model = g->model != NULL && gpu_model_spec(g->model, "ecc") > 0;
    int i = g->index;
    if (g->f.mig == 1)
        health_blame(r, VERDICT_FAIL, "mig", "turn it off (nvidia-smi -mig 0) and reset the GPU",
                     "gpu %d is divided into MIG instances: it cannot be used or validated as a whole", i);
    if (g->f.compute_mode == 2)
        health_blame(r, VERDICT_FAIL, "compute_mode", "set it to default (nvidia-smi -c 0)",
                     "gpu %d's compute mode prohibits every program", i);
    if (g->f.ecc == 0 && (by_model || g->f.ecc_default == 1))
        health_blame(r, VERDICT_DEGRADED, "ecc_off", "turn it on (nvidia-smi -e 1) and reboot",
                     "gpu %d's memory runs without ECC; this model is delivered with ECC on", i);
}

static void judge_fabric(const struct gpu *g, struct agent_result *r) {
    static const char advice[] = "start nvidia-fabricmanager of exactly the driver's version, then check its log";
    const char *sick = nvml_fabric_sick(g->f.fabric_health);
    if (g->f.fabric_state == 1 || g->f.fabric_state == 2)
        health_blame(r, VERDICT_FAIL, "fabric", advice, "gpu %d has not joined the NVSwitch fabric: %s", g->index,
                     g->f.fabric_state == 1 ? "not started" : "in progress");
    if (g->f.fabric_state == 3 && g->f.fabric_status != 0)
        health_blame(r, VERDICT_FAIL, "fabric", advice, "gpu %d failed to join the NVSwitch fabric (%lld)", g->index,
                     (long long)g->f.fabric_status);
    if (g->f.fabric_state == 3 && sick != NULL)
        health_blame(r, VERDICT_DEGRADED, "fabric_health", advice, "gpu %d's NVSwitch fabric has %s", g->index, sick);
}

/* --- other processes --- */

/* 1: one of this agent's own workers; 0: another program; -1: not in this container, so not known. */
static int ours(int64_t pid) {
    GP_AUTO_STR struct str s = {0};
    GP_AUTO_FREE char *path = xasprintf("/proc/%lld/stat", (long long)pid);
    int parent = 0;
    if (fs_read(path, 4096, &s, NULL) < 0 || s.s == NULL) return -1;
    const char *end = strrchr(s.s, ')'); /* its name may contain ')' */
    if (end == NULL || sscanf(end + 1, " %*c %d", &parent) != 1) return -1;
    return parent == (int)getppid() || pid == (int64_t)getpid();
}

static void judge_processes(const struct gpu *g, struct agent_result *r) {
    int unseen = 0; /* in a container NVML may report our own workers' pids of the host */
    for (size_t i = 0; i < g->f.n_processes; i++) {
        const struct nvml_process *p = &g->f.processes[i];
        int own = ours(p->pid);
        if (own == 1 || (own < 0 && ++unseen <= 1 && !p->graphics)) continue;
        if (p->graphics)
            health_blame(r, VERDICT_DEGRADED, "gpu_busy", "end the process: its work changes the figures",
                         "gpu %d renders for process %lld (%s)", g->index, (long long)p->pid,
                         p->name[0] != '\0' ? p->name : "name not known");
        else
            health_blame(r, VERDICT_ERROR, "gpu_busy", "end that process, or wait for it, and validate again",
                         "gpu %d is in use by process %lld (%s), %.4g GiB: nothing can be measured", g->index,
                         (long long)p->pid, p->name[0] != '\0' ? p->name : "name not known",
                         p->bytes < 0 ? 0.0 : (double)p->bytes / (1u << 30));
    }
    if (g->f.processes_left_out > 0)
        health_blame(r, VERDICT_ERROR, "gpu_busy", "end those processes and validate again",
                     "gpu %d is in use by %zu more processes", g->index, g->f.processes_left_out);
}

int presence_gpu(const struct check_ctx *c, int index, bool nvml, struct str *json, struct agent_result *r,
                 struct presence_seen *ret) {
    struct gpu g = {.index = index};
    struct gp_error err = {0};
    nvml_device d = NULL;
    if (ask_cuda(&g, &err) < 0) {
        agent_set_error(r, VERDICT_FAIL, "gpu_unreadable", &err);
        return -GP_EENV;
    }
    cuda_identify(index, &g.id);
    nvml_facts_none(&g.f);
    if (nvml && nvml_device_of(index, &d, &err) == 0) {
        g.nvml = true;
        nvml_facts_read(d, &g.f);
    } else if (nvml) {
        bool lost = str_eq(err.detail, "15");
        health_blame(r, lost ? VERDICT_FAIL : VERDICT_DEGRADED, lost ? "gpu_lost" : "nvml", nvml_advice(&err),
                     "gpu %d: %s", index, err.msg);
    }
    g.model = g.id.device > 0 ? gpu_model_find(g.id.device, g.id.subsystem) : NULL;
    add_identity(&g, json);
    *ret = (struct presence_seen){.bytes = g.bytes};
    str_put(ret->name, sizeof ret->name, g.name);
    str_put(ret->model, sizeof ret->model, g.model != NULL ? gpu_model_name(g.model) : g.name);
    if (g.f.lost)
        health_blame(r, VERDICT_FAIL, "gpu_lost", "look for 'NVRM: Xid' 79 in the kernel log; replace the node",
                     "gpu %d fell off the bus", index);
    judge_model(c, &g, r);
    judge_memory(&g, r);
    judge_fabric(&g, r);
    judge_modes(&g, r);
    judge_processes(&g, r);
    return 0;
}
