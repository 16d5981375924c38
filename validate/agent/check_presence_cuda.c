/* SPDX-License-Identifier: Apache-2.0 */
/* gpu.presence with the driver: it loads, it starts, it offers as many GPUs as were bought, and NVML
 * agrees. Runs in a worker process, because a sick driver may hang; makes no context. */
#include "base/gp_base.h"

#include "cuda.h"
#include "gpu.h"
#include "nvml_cuda.h"

static void look_nvml(struct agent_result *r, int count)
{
    struct gp_error err = {0};
    struct nvml_system ml;
    if (nvml_start(&err) < 0) {
        bool mismatch = str_eq(err.detail, "18");
        agent_data_str(r, "nvml", err.msg);
        agent_set_error(r, mismatch ? AGENT_FAIL : AGENT_DEGRADED, mismatch ? "nvml_mismatch" : "nvml",
                        &err);
        agent_suggest(r, "%s", nvml_advice(&err));
        return;
    }
    nvml_system_read(&ml);
    agent_data_str(r, "driver", ml.driver);
    agent_data_str(r, "nvml", ml.nvml);
    agent_data_int(r, "nvml_gpus", ml.gpus);
    const char *hidden = getenv("CUDA_VISIBLE_DEVICES");
    if (ml.gpus >= 0 && ml.gpus != count && !hidden) {
        agent_set(r, AGENT_DEGRADED, "counts_differ", "CUDA offers %d GPUs, NVML %lld", count,
                  (long long)ml.gpus);
        agent_suggest(r, "look for 'NVRM: Xid' in the kernel log: a GPU may have fallen off the bus");
    }
}

struct gpu_facts {
    char name[96], pci[32];
    size_t bytes;
    int major, minor, sms;
};

static int gpu_look(const struct cuda_api *cu, int index, struct gpu_facts *f, struct gp_error *err)
{
    cu_device d = 0;
    cu_result r = cu->device_get(&d, index);
    if (!r)
        r = cu->device_name(f->name, sizeof f->name, d);
    if (!r)
        r = cu->device_memory(&f->bytes, d);
    if (!r)
        r = cu->device_pci(f->pci, sizeof f->pci, d);
    if (!r)
        r = cu->device_attribute(&f->major, CU_ATTR_MAJOR, d);
    if (!r)
        r = cu->device_attribute(&f->minor, CU_ATTR_MINOR, d);
    if (!r)
        r = cu->device_attribute(&f->sms, CU_ATTR_SMS, d);
    return r ? cuda_fail(err, r, "gpu %d: ask for its properties", index) : 0;
}

static void add_gpu(struct agent_result *r, int index, const struct gpu_facts *f)
{
    struct str *s = &r->data;
    str_addf(s, "%s{\"gpu\":%d,\"name\":\"", index ? "," : "", index);
    str_add_json(s, f->name, strlen(f->name));
    str_add(s, "\",\"pci\":\"");
    str_add_json(s, f->pci, strlen(f->pci));
    str_addf(s, "\",\"memory_gib\":%.4g,\"sm\":\"%d.%d\",\"sms\":%d}",
             (double)f->bytes / (1u << 30), f->major, f->minor, f->sms);
}

static void look_gpus(const struct cuda_api *cu, int count, struct agent_result *r)
{
    struct gpu_facts first = {0};
    if (r->data.len)
        str_addc(&r->data, ',');
    str_add(&r->data, "\"gpus\":[");
    for (int i = 0; i < count; i++) {
        struct gpu_facts f = {0};
        struct gp_error err = {0};
        if (gpu_look(cu, i, &f, &err) < 0) {
            agent_set_error(r, AGENT_FAIL, "gpu_unreadable", &err);
            break;
        }
        add_gpu(r, i, &f);
        if (i == 0)
            first = f;
        if (!str_eq(f.name, first.name) || f.bytes != first.bytes) {
            agent_set(r, AGENT_DEGRADED, "mixed", "gpu 0 is %s with %.4g GiB, gpu %d is %s with %.4g GiB",
                      first.name, (double)first.bytes / (1u << 30), i, f.name,
                      (double)f.bytes / (1u << 30));
            agent_suggest(r, "one GPU differs from the others: a part may be disabled; replace the node");
        }
    }
    str_addc(&r->data, ']');
    agent_say(r, "%d x %s, %.4g GiB each", count, first.name, (double)first.bytes / (1u << 30));
}

static void judge_count(const struct check_ctx *c, struct agent_result *r, int count, int nodes)
{
    const char *hidden = getenv("CUDA_VISIBLE_DEVICES");
    if (hidden)
        agent_data_str(r, "cuda_visible_devices", hidden);
    int want = c->gpus_expected > 0 ? c->gpus_expected : nodes;
    if (count >= want)
        return;
    agent_set(r, AGENT_FAIL, "gpu_missing", "%d of %d GPUs: the driver offers %d, %d device node%s", count,
              want, count, nodes, nodes == 1 ? "" : "s");
    if (hidden)
        agent_suggest(r, "CUDA_VISIBLE_DEVICES is '%s' for this login: unset it", hidden);
    else
        agent_suggest(r, "look for 'NVRM' in the kernel log ('fallen off the bus'); replace the node");
}

void gpu_presence_cuda(struct check_ctx *c, struct agent_result *r)
{
    int nodes = 0, count = 0, version = 0;
    const struct cuda_api *cu = NULL;
    struct gp_error err = {0};
    if (!gpu_presence_nodes(c, r, &nodes))
        return;
    if (cuda_start(&cu, &err) < 0) {
        cuda_verdict(r, &err);
        return;
    }
    agent_data_str(r, "libcuda", cuda_path());
    if (cu->driver_version(&version) == 0)
        agent_data_int(r, "cuda", version);
    cu_result rc = cu->device_count(&count);
    if (rc) {
        cuda_fail(&err, rc, "count GPUs");
        cuda_verdict(r, &err);
        return;
    }
    agent_metric(r, "gpus", count);
    judge_count(c, r, count, nodes);
    look_nvml(r, count);
    look_gpus(cu, count, r);
}
