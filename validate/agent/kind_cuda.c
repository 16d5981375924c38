/* SPDX-License-Identifier: Apache-2.0 */
/* gpuprov-agent-cuda: the program for nodes with /dev/nvidia*. Linked against libc only; NVIDIA's libraries are
 * found at run time, in worker processes. */
#include "base/gp_base.h"

#include "validate/agent/checks/gpu/gpu.h"
#include "validate/agent/checks/gpu/health_cuda.h"
#include "validate/agent/checks/gpu/samples.h"
#include "validate/agent/comm/nccl_cuda.h"
#include "validate/agent/cuda/cuda.h"
#include "validate/agent/watch/watch_cuda.h"

static bool needs_device(struct check_ctx *c, struct agent_result *r) {
    if (c->gpu >= 0) return true;
    agent_set(r, VERDICT_SKIPPED, "no_gpu", "there is no GPU device file");
    return false;
}

static const struct check_ops gpu_checks_cuda[] = {
    {.id = "gpu.presence", .run = gpu_presence_cuda},
    {.id = "gpu.health", .needs = needs_device, .run = gpu_health_cuda},
    {.id = "gpu.memory", .needs = needs_device, .run = gpu_memory_cuda},
    {.id = "gpu.bandwidth", .needs = needs_device, .run = gpu_bandwidth_cuda},
    {.id = "gpu.p2p", .run = gpu_p2p_cuda},
    {.id = "gpu.together", .run = gpu_together_cuda},
    {.id = "gpu.gemm",
     .needs = needs_device,
     .run = gpu_gemm_cuda,
     .conclude = gpu_gemm_conclude,
     .load = gpu_gemm_load},
    {.id = "gpu.sdc", .needs = needs_device, .run = gpu_sdc_cuda, .compare = gpu_sdc_compare, .load = gpu_gemm_load},
    {.id = "gpu.stress", .needs = needs_device, .run = gpu_stress_cuda, .load = gpu_gemm_load},
    {.id = "nccl.values", .needs = nccl_needs, .run = nccl_values_run},
    {.id = "nccl.bandwidth", .needs = nccl_needs, .run = nccl_bandwidth_run, .conclude = nccl_bandwidth_conclude},
    {.id = NULL},
};

/* Waits inside the device end early enough to report it. */
static void before(struct check_ctx *c) {
    if (c->dev) cuda_deadline(c->dev, c->deadline_ms);
    health_before(c);
}

static void hello(struct str *json) {
    str_add(json, ",\"fatbins\":[");
    for (const struct cuda_fatbin *f = cuda_fatbins; f->cuda; f++)
        if (f == cuda_fatbins || f->cuda != f[-1].cuda)
            str_addf(json, "%s\"%d.%d\"", f == cuda_fatbins ? "" : ",", f->cuda / 1000, f->cuda % 1000 / 10);
    str_addc(json, ']');
}

static int start(struct gp_error *err) {
    const struct cuda_api *cu = NULL;
    return cuda_start(&cu, err);
}

const struct agent_kind agent_kind = {
    .name = "cuda",
    .device = &device_cuda,
    .comm = &comm_nccl,
    .gpu_checks = gpu_checks_cuda,
    .gpu_count = agent_dev_nvidia_count,
    .start = start,
    .identify = cuda_identify,
    .holders = cuda_holders,
    .device_failed = cuda_verdict,
    .device_kind = cuda_device_kind,
    .before = before,
    .after = health_after,
    .watch = watch_gpu_cuda,
    .hello = hello,
};
