/* SPDX-License-Identifier: Apache-2.0 */
/* RunPod's part of the spec language, and the image of `image: auto`. Static data. */
#include "base/gp_base.h"

#include "base/str.h"
#include "providers/catalog/catalog.h"
#include "providers/runpod/runpod_int.h"

/* From the examples of RunPod's API description of 2026-08-20: CUDA 12.8.1, PyTorch 2.8.0, Ubuntu 24.04, sshd. */
const char *const runpod_image = "runpod/pytorch:1.0.2-cu1281-torch280-ubuntu2404";
const char *const runpod_image_cuda = "12.8";

/* clang-format off */
static const struct spec_provider_key keys[] = {
    {.name = "regions", .pattern = "^([A-Z]{2,3}-[A-Z]{2,4}-[0-9]{1,2}|any)$",
     .pattern_doc = "the id of a data center, such as US-KS-2, or any", .example = "[US-KS-2, EU-RO-1]",
     .note = "data centers; without it: every one that has the GPU; `any`: RunPod chooses"},
    {.name = "zones", .pattern = "^(secure|community)$", .pattern_doc = "secure or community", .example = "[secure]",
     .note = "the kind of host: RunPod's own data centers, or machines of other people; without it: `secure`"},
    {.name = "market", .pattern = "^on-demand$",
     .pattern_doc = "on-demand (spot pods exist only in RunPod's older GraphQL API, which gpuprov does not use)",
     .example = "on-demand"},
    {.name = "image", .example = "{id: runpod/pytorch:1.0.2-cu1281-torch280-ubuntu2404}",
     .note = "a container image; one without sshd must be able to install openssh-server"},
    {0}};
static const struct spec_refused refused[] = {
    {"access.ssh_from", "RunPod has no firewall, and everyone can reach a pod's SSH port: remove it", NULL},
    {"access.public_ip", "pods are reached at a mapped port of a public address: remove it", "true"},
    {0}};
/* clang-format on */

static const char *system_of(size_t i) { return i == 0 ? "ubuntu-24.04" : NULL; }
static const char *gpu(size_t i) { return catalog_runpod_gpus[i]; }

const char *runpod_image_of(const struct spec *spec, size_t index) {
    const struct spec_image *image = spec_effective(spec, index).image;
    return image->id != NULL ? image->id : runpod_image;
}

/* The container's own disk; RunPod's PyTorch images need most of 30 GB. */
int runpod_disk_gb(const struct spec *spec, int gpus) {
    return spec->disk_gib > 0 ? (spec->disk_gib * 1074 + 999) / 1000 : gpus > 0 ? 50 : 20;
}

const struct spec_provider runpod_spec = {.name = "runpod",
                                          .doc = "RunPod pods",
                                          .keys = keys,
                                          .container = true,
                                          .refused = refused,
                                          .image_id = "^[a-z0-9.-]+/[a-z0-9._/-]+:",
                                          .gpu = gpu,
                                          .os = system_of};
