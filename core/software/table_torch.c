/* SPDX-License-Identifier: Apache-2.0 */
/* The builds of PyTorch for Linux on x86_64, and other frameworks, each row with its source. Only data; newest first,
 * experimental builds of a release after its stable ones. */
#include "base/gp_base.h"

#include "software/rows.h"

/* Rows read as rows. */
/* clang-format off */
#define D11 "450.80.02"
#define D12 "525.60.13"
#define D13 "580.65.06"
#define OLD {50, 60, 70, 75, 80, 86, 90}
#define NO_VOLTA {75, 80, 86, 90, 100, 120}

const struct torch_row software_torches[] = {
    {"2.14.0", "cu132", "13.2", D13, NO_VOLTA, 0, "2.28", "3.10", "pytorch/pytorch #190355, #197555"},
    {"2.14.0", "cu130", "13.0", D13, NO_VOLTA, 0, "2.28", "3.10", "pytorch/pytorch #190355, #197555"},
    {"2.14.0", "cu126", "12.6", D12, OLD, 0, "2.28", "3.10", "pytorch/pytorch #190355, #197555"},
    {"2.13.0", "cu130", "13.0", D13, NO_VOLTA, 0, "2.28", "3.10", "pytorch/pytorch #197555; sgl-project/DeepGEMM #72"},
    {"2.13.0", "cu132", "13.2", D13, NO_VOLTA, 0, "2.28", "3.10", "pytorch/pytorch #197555; sgl-project/DeepGEMM #72"},
    {"2.13.0", "cu129", "12.9", D12, NO_VOLTA, 0, "2.28", "3.10", "pytorch/pytorch #197555; sgl-project/DeepGEMM #72"},
    {"2.13.0", "cu126", "12.6", D12, OLD, 0, "2.28", "3.10", "pytorch/pytorch #197555; sgl-project/DeepGEMM #72"},
    {"2.12.1", "cu130", "13.0", D13, NO_VOLTA, 0, "2.28", "3.10", "pytorch/pytorch #178665"},
    {"2.12.1", "cu132", "13.2", D13, NO_VOLTA, 0, "2.28", "3.10", "pytorch/pytorch #178665 (experimental)"},
    {"2.12.1", "cu126", "12.6", D12, OLD, 0, "2.28", "3.10", "pytorch/pytorch #178665"},
    {"2.11.0", "cu130", "13.0", D13, NO_VOLTA, 0, "2.28", "3.10", "pytorch/pytorch #172663, #175253"},
    {"2.11.0", "cu128", "12.8", D12, NO_VOLTA, 0, "2.28", "3.10", "pytorch/pytorch #172663, #175253: Volta removed"},
    {"2.11.0", "cu126", "12.6", D12, OLD, 0, "2.28", "3.10", "pytorch/pytorch #172663, #175253"},
    {"2.10.0", "cu130", "13.0", D13, NO_VOLTA, 120, "2.28", "3.10", "pytorch/pytorch #175253"},
    {"2.10.0", "cu128", "12.8", D12, {70, 75, 80, 86, 90, 100, 120}, 0, "2.28", "3.10", "pytorch/pytorch #175253"},
    {"2.10.0", "cu126", "12.6", D12, OLD, 0, "2.28", "3.10", "pytorch/pytorch #175253"},
    {"2.9.1", "cu130", "13.0", D13, NO_VOLTA, 120, "2.28", "3.10", "pytorch/pytorch #175253; Comfy-Org/ComfyUI #16438"},
    {"2.9.1", "cu128", "12.8", D12, {70, 75, 80, 86, 90, 100, 120}, 0, "2.28", "3.10",
     "pytorch/pytorch #175253; Comfy-Org/ComfyUI #16438"},
    {"2.9.1", "cu126", "12.6", D12, OLD, 0, "2.28", "3.10", "pytorch/pytorch #175253; Comfy-Org/ComfyUI #16438"},
    {"2.8.0", "cu129", "12.9", D12, NO_VOLTA, 120, "2.28", "3.9", "pytorch/pytorch #157517"},
    {"2.8.0", "cu128", "12.8", D12, NO_VOLTA, 0, "2.28", "3.9", "pytorch/pytorch #157517"},
    {"2.8.0", "cu126", "12.6", D12, OLD, 0, "2.28", "3.9", "pytorch/pytorch #157517"},
    {"2.7.1", "cu128", "12.8", D12, NO_VOLTA, 120, "2.28", "3.9", "vllm-project/vllm #19185"},
    {"2.7.1", "cu126", "12.6", D12, OLD, 0, "2.28", "3.9", "pytorch/pytorch, RELEASE.md"},
    {"2.7.1", "cu118", "11.8", D11, OLD, 0, "2.28", "3.9", "pytorch/pytorch, RELEASE.md"},
    {"2.6.0", "cu126", "12.6", D12, OLD, 0, "2.28", "3.9", "pytorch/pytorch, RELEASE.md"},
    {"2.6.0", "cu124", "12.4", D12, OLD, 0, "2.17", "3.9", "pytorch/pytorch, RELEASE.md"},
    {"2.6.0", "cu118", "11.8", D11, OLD, 0, "2.17", "3.9", "pytorch/pytorch, RELEASE.md"},
    {"2.5.1", "cu124", "12.4", D12, OLD, 0, "2.17", "3.9", "pytorch/pytorch, RELEASE.md"},
    {"2.5.1", "cu121", "12.1", D12, OLD, 0, "2.17", "3.9", "pytorch/pytorch, RELEASE.md"},
    {"2.5.1", "cu118", "11.8", D11, OLD, 0, "2.17", "3.9", "pytorch/pytorch, RELEASE.md"},
    {0}};

const struct framework_row software_frameworks[] = {
    {"tensorflow", "2.21", "12.5", D12, 60, 90, NULL,
     "TensorFlow 2.18 release notes; tensorflow/tensorflow #89272, #97387, #103531: no code for Blackwell"},
    {"horovod", "0.28.1", NULL, NULL, 0, 0, "2.1", "horovod/horovod #3996, #4014: PyTorch 2.1 needs C++17"},
    {"deepspeed", "999", NULL, NULL, 0, 0, NULL,
     "deepspeedai/DeepSpeed #3223: the toolkit and PyTorch have the same major version of CUDA"},
    {0}};
/* clang-format on */

const struct framework_row *software_framework(const char *name, const char *version) {
    for (const struct framework_row *f = software_frameworks; version != NULL && f->name != NULL; f++)
        if (strcmp(f->name, name) == 0)
            return software_version_compare(version, f->version) <= 0 || software_version_is(version, f->version)
                       ? f
                       : NULL;
    return NULL;
}
