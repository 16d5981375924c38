/* SPDX-License-Identifier: Apache-2.0 */
/* gpu.presence with the driver: the inventory of GPUs by CUDA and NVML, compared with the GPUs bought; versions;
 * other processes. Runs in a worker process, because a faulty driver may hang; creates no context. */
#include "base/gp_base.h"

#include "validate/agent/cuda/cuda.h"

#include "base/clock.h"
#include "gpu.h"
#include "health_cuda.h"
#include "presence_cuda.h"

/* NVML's side. driver: NVML's version of it, "" when NVML does not run. */
static bool look_nvml(struct agent_result *r, int count, struct nvml_system *ml) {
    struct gp_error err = {0};
    *ml = (struct nvml_system){.gpus = NVML_NOT_TOLD, .cuda = NVML_NOT_TOLD};
    if (nvml_start(&err) < 0) {
        bool mismatch = str_eq(err.detail, "18");
        agent_data_str(r, "nvml", err.msg);
        health_blame(r, mismatch ? VERDICT_FAIL : VERDICT_DEGRADED, mismatch ? "nvml_mismatch" : "nvml",
                     nvml_advice(&err), "%s", err.msg);
        return false;
    }
    nvml_system_read(ml);
    agent_data_str(r, "driver", ml->driver);
    agent_data_str(r, "nvml", ml->nvml);
    agent_data_int(r, "nvml_gpus", ml->gpus);
    size_t own = strlen(ml->nvml), driver = strlen(ml->driver);
    if (driver > 0 && own > driver && !str_eq(ml->nvml + own - driver, ml->driver))
        health_blame(r, VERDICT_FAIL, "nvml_mismatch",
                     "install libnvidia-ml of the driver's version, and remove other copies from the library path",
                     "NVML is version %s, the driver is %s", ml->nvml, ml->driver);
    if (count >= 0 && ml->gpus >= 0 && ml->gpus != count && getenv("CUDA_VISIBLE_DEVICES") == NULL)
        health_blame(r, VERDICT_DEGRADED, "counts_differ",
                     "look for 'NVRM: Xid' in the kernel log: a GPU may have fallen off the bus",
                     "CUDA offers %d GPUs, NVML %lld", count, (long long)ml->gpus);
    return true;
}

static void look_gpus(const struct check_ctx *c, int count, bool nvml, struct agent_result *r) {
    struct presence_seen first = {0};
    GP_AUTO_STR struct str json = {0};
    str_init(&json, AGENT_LINE_MAX);
    for (int i = 0; i < count; i++) {
        struct presence_seen seen = {0};
        if (i > 0) str_addc(&json, ',');
        if (presence_gpu(c, i, nvml, &json, r, &seen) < 0) {
            if (i > 0) json.s[--json.len] = '\0';
            break;
        }
        if (i == 0) first = seen;
        /* a few pages reserved by the driver do not make another model */
        size_t more = GP_MAX(seen.bytes, first.bytes), less = GP_MIN(seen.bytes, first.bytes);
        if (!str_eq(seen.name, first.name) || more - less > more / 64)
            health_blame(r, VERDICT_DEGRADED, "mixed", "replace the node: a part of one GPU may be disabled",
                         "gpu 0 is %s with %.4g GiB, gpu %d is %s with %.4g GiB", first.name,
                         (double)first.bytes / (1u << 30), i, seen.name, (double)seen.bytes / (1u << 30));
    }
    str_addf(&r->data, "%s\"gpus\":[%s]", r->data.len > 0 ? "," : "", json.s != NULL ? json.s : "");
    agent_say(r, "%d x %s, %.4g GiB each", count, first.model, (double)first.bytes / (1u << 30));
}

static void judge_count(const struct check_ctx *c, struct agent_result *r, int count, int nodes) {
    const char *hidden = getenv("CUDA_VISIBLE_DEVICES");
    if (hidden != NULL) agent_data_str(r, "cuda_visible_devices", hidden);
    int want = c->gpus_expected > 0 ? c->gpus_expected : nodes, bus = gpu_pci_count();
    char on_bus[48] = "";
    if (count >= want) return;
    if (bus > 0) snprintf(on_bus, sizeof on_bus, ", %d on the PCI bus", bus);
    agent_set(r, VERDICT_FAIL, "gpu_missing", "%d of %d GPUs: the driver offers %d, %d device file%s%s", count, want,
              count, nodes, nodes == 1 ? "" : "s", on_bus);
    if (hidden != NULL) agent_suggest(r, "unset CUDA_VISIBLE_DEVICES for this login: it is '%s'", hidden);
    else agent_suggest(r, "look for 'NVRM' in the kernel log ('fallen off the bus'); replace the node");
}

static void not_started(struct check_ctx *c, struct agent_result *r, const struct gp_error *err) {
    struct nvml_system ml;
    cuda_verdict(r, err);
    look_nvml(r, -1, &ml);
    presence_surroundings(false, ml.driver, c->deadline_ms, r);
}

void gpu_presence_cuda(struct check_ctx *c, struct agent_result *r) {
    int nodes = 0, count = 0, version = 0;
    const struct cuda_api *cu = NULL;
    struct gp_error err = {0};
    struct nvml_system ml;
    if (!gpu_presence_nodes(c, r, &nodes)) return;
    if (cuda_start(&cu, &err) < 0) {
        not_started(c, r, &err);
        return;
    }
    agent_data_str(r, "libcuda", cuda_path());
    if (cu->driver_version(&version) == 0) agent_data_int(r, "cuda", version);
    cu_result rc = cu->device_count(&count);
    if (rc) {
        cuda_fail(&err, rc, "count GPUs");
        not_started(c, r, &err);
        return;
    }
    agent_metric(r, "gpus", count);
    judge_count(c, r, count, nodes);
    bool nvml = look_nvml(r, count, &ml);
    if (nvml && ml.cuda > 0 && version > 0 && ml.cuda != version)
        agent_data_int(r, "cuda_of_driver", ml.cuda); /* a forward-compatibility library is in use */
    look_gpus(c, count, nvml, r);
    presence_surroundings(true, ml.driver, c->deadline_ms, r);
}
