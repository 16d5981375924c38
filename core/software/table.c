/* SPDX-License-Identifier: Apache-2.0 */
/* The facts of the solver: driver branches, CUDA, cuDNN, NCCL, systems and kernels, each row with its source. Only
 * data; newest first. A row stands here only if a public document or issue says so. */
#include "base/gp_base.h"

#include "software/rows.h"

/* Rows read as rows. */
/* clang-format off */
#define GUIDE "NVIDIA driver installation guide, "
#define LIFE "; NVIDIA, supported drivers and CUDA toolkit versions"
#define MINOR "NVIDIA CUDA compatibility guide, minor version compatibility"
#define RUNFILE "name of NVIDIA's runfile of that CUDA"

const struct branch_row software_branches[] = {
    {"620", "620.70.06", "13.5", 75, 121, false, true, NULL, NULL,
     GUIDE "620, kernel modules; redistrib_620.70.06.json"},
    {"610", "610.43.02", "13.3", 75, 121, true, true, "new feature", "2026-08",
     GUIDE "610, kernel modules; cuda_13.3 runfile" LIFE},
    {"595", "595.45.04", "13.2", 75, 121, true, true, "production", "2027-03",
     GUIDE "kernel modules; cuda_13.2 runfile" LIFE},
    {"590", "590.44.01", "13.1", 75, 121, true, true, NULL, NULL, GUIDE "kernel modules; cuda_13.1 runfile"},
    {"580", "580.65.06", "13.0", 50, 121, true, true, "LTS", "2028-06",
     GUIDE "last branch for Maxwell, Pascal and Volta; cuda_13.0 runfile" LIFE},
    {"575", "575.51.03", "12.9", 50, 121, true, true, NULL, NULL, GUIDE "kernel modules; cuda_12.9 runfile"},
    {"570", "570.86.10", "12.8", 50, 120, true, true, NULL, NULL, GUIDE "kernel modules; cuda_12.8 runfile"},
    {"560", "560.28.03", "12.6", 50, 90, true, true, NULL, NULL, GUIDE "kernel modules; cuda_12.6 runfile"},
    {"555", "555.42.02", "12.5", 50, 90, true, true, NULL, NULL, GUIDE "kernel modules; cuda_12.5 runfile"},
    {"550", "550.54.14", "12.4", 50, 90, true, true, NULL, NULL, GUIDE "kernel modules; cuda_12.4 runfile"},
    {"545", "545.23.06", "12.3", 50, 90, true, true, NULL, NULL, GUIDE "kernel modules; cuda_12.3 runfile"},
    {"535", "535.54.03", "12.2", 50, 90, true, true, "LTS", "2026-06", GUIDE "kernel modules; cuda_12.2 runfile" LIFE},
    {"530", "530.30.02", "12.1", 50, 90, true, true, NULL, NULL, GUIDE "kernel modules; cuda_12.1 runfile"},
    {"525", "525.60.13", "12.0", 50, 90, true, true, NULL, NULL, GUIDE "kernel modules; cuda_12.0 runfile"},
    {0}};

const struct word_row software_flavours[] = {{"open"}, {"proprietary"}, {0}};
const struct word_row software_sources[] = {{"nvidia"}, {"distro"}, {0}};

#define NO_VOLTA "CUDA 13.0 release notes: Maxwell, Pascal and Volta removed; " RUNFILE
const struct cuda_row software_cudas[] = {
    {"13.3", "610", "580.65.06", 75, 121, NO_VOLTA},
    {"13.2", "595", "580.65.06", 75, 121, NO_VOLTA},
    {"13.1", "590", "580.65.06", 75, 121, NO_VOLTA},
    {"13.0", "580", "580.65.06", 75, 121, NO_VOLTA},
    {"12.9", "575", "525.60.13", 50, 121, MINOR "; " RUNFILE},
    {"12.8", "570", "525.60.13", 50, 120, MINOR "; " RUNFILE},
    {"12.6", "560", "525.60.13", 50, 90, MINOR "; " RUNFILE},
    {"12.5", "555", "525.60.13", 50, 90, MINOR "; " RUNFILE},
    {"12.4", "550", "525.60.13", 50, 90, MINOR "; " RUNFILE},
    {"12.3", "545", "525.60.13", 50, 90, MINOR "; " RUNFILE},
    {"12.2", "535", "525.60.13", 50, 90, MINOR "; " RUNFILE},
    {"12.1", "530", "525.60.13", 50, 90, MINOR "; " RUNFILE},
    {"12.0", "525", "525.60.13", 50, 90, MINOR "; " RUNFILE},
    {"11.8", "525", "450.80.02", 50, 90, MINOR "; CUDA 11.8 release notes"},
    {0}};

#define CUDNN "NVIDIA cuDNN support matrix, "
const struct cudnn_row software_cudnns[] = {
    {"9.24.0", "9.24.0.43", 12, "12.0", "12.9", 75, "aws/deep-learning-containers #6432: with CUDA 12.9"},
    {"9.17.0", "9.17.0.29", 13, "13.0", "13.99", 75, CUDNN "9.17.0; anaconda.org/nvidia/cudnn"},
    {"9.17.0", "9.17.0.29", 12, "12.0", "12.9", 75, CUDNN "9.17.0; anaconda.org/nvidia/cudnn"},
    {"9.10.2", "9.10.2.21", 12, "12.0", "12.9", 50, CUDNN "9.10.2, the last with Maxwell, Pascal and Volta"},
    {"9.10.2", "9.10.2.21", 11, "11.8", "11.8", 50, CUDNN "9.10.2"},
    {0}};

#define NCCL_REDIST "developer.nvidia.com/compute/redist/nccl, "
const struct nccl_row software_nccls[] = {
    {"2.30.7", "13.3", 75, 121, NCCL_REDIST "v2.30.7"},
    {"2.30.7", "12.9", 50, 121, NCCL_REDIST "v2.30.7"},
    {"2.28.9", "13.0", 75, 121, NCCL_REDIST "v2.28.9; anaconda.org/anaconda/nccl: builds for CUDA 12 and 13"},
    {"2.28.9", "12.9", 50, 121, NCCL_REDIST "v2.28.9; anaconda.org/anaconda/nccl: builds for CUDA 12 and 13"},
    {"2.28.3", "13.0", 75, 121, "dstackai/dstack #4007: image nvidia/cuda:13.0.3"},
    {"2.27.7", "13.0", 75, 121, NCCL_REDIST "v2.27.7"},
    {"2.27.7", "12.9", 50, 121, NCCL_REDIST "v2.27.7"},
    {"2.21.5", "12.4", 50, 90, NCCL_REDIST "v2.21.5; pytorch/pytorch, generate_binary_build_matrix.py"},
    {"2.21.5", "11.0", 50, 90, NCCL_REDIST "v2.21.5; pytorch/pytorch, generate_binary_build_matrix.py"},
    {0}};

#define SYSTEMS GUIDE "supported systems"
const struct os_row software_systems[] = {
    {"ubuntu-26.04", "apt", "ubuntu2604", "580", NULL, "13.2", "13.99", "580 595 610", true, "2.43", "3.14",
     GUIDE "610, supported systems; packages.ubuntu.com, resolute"},
    {"ubuntu-24.04", "apt", "ubuntu2404", "555", NULL, "12.5", "13.99", "535 580 595 610", true, "2.39", "3.12",
     SYSTEMS "; packages.ubuntu.com, noble"},
    {"ubuntu-22.04", "apt", "ubuntu2204", "525", NULL, "11.8", "13.99", "535 580 595 610", true, "2.35", "3.10",
     SYSTEMS "; packages.ubuntu.com, jammy"},
    {"ubuntu-20.04", "apt", "ubuntu2004", "525", "575", "11.8", "12.9", "535", true, "2.31", "3.8",
     "CUDA 13.0 release notes: Ubuntu 20.04 removed"},
    {"debian-13", "apt", "debian13", "580", NULL, "13.0", "13.99", "550", true, "2.41", "3.13",
     SYSTEMS "; tracker.debian.org, trixie: 550.163.01"},
    {"debian-12", "apt", "debian12", "545", NULL, "12.3", "13.99", "535", false, "2.36", "3.11",
     SYSTEMS "; tracker.debian.org, bookworm: 535.309.01, but open modules 535.261.03, which want other firmware"},
    {"rhel-10", "dnf", "rhel10", "580", NULL, "13.0", "13.99", "", false, "2.39", "3.12", SYSTEMS},
    {"rhel-9", "dnf", "rhel9", "525", NULL, "11.8", "13.99", "", false, "2.34", "3.9", SYSTEMS},
    {"rhel-8", "dnf", "rhel8", "525", NULL, "11.8", "13.99", "", false, "2.28", "3.6", SYSTEMS},
    {"amzn-2023", "dnf", "amzn2023", "555", NULL, "12.5", "13.99", "", false, "2.34", "3.9", SYSTEMS},
    {"amzn-2", "dnf", "", "0", NULL, "0", "0", "", false, "2.26", "3.7", SYSTEMS ": Amazon Linux 2 is not among them"},
    {0}};

const struct kernel_row software_kernels[] = {
    {"7.0", "580", "580.159.03", "void-linux/void-packages #60171 (580.126.18 fails); NixOS/nixpkgs #525567"},
    {"7.0", "590", NULL, "GoogleCloudPlatform/ops-agent #2426"},
    {"7.0", "595", "595.91.07", "NVIDIA/open-gpu-kernel-modules #1168; GoogleCloudPlatform/ops-agent #2426"},
    {"7.0", "610", "610.57.04", "NVIDIA/open-gpu-kernel-modules #1168"},
    {"7.0", "575", NULL, "NVIDIA/open-gpu-kernel-modules #1168: only 580, 595 and 610 were fixed"},
    {"7.0", "570", NULL, "NVIDIA/open-gpu-kernel-modules #1168: only 580, 595 and 610 were fixed"},
    {"7.0", "560", NULL, "NVIDIA/open-gpu-kernel-modules #1168: only 580, 595 and 610 were fixed"},
    {"7.0", "555", NULL, "NVIDIA/open-gpu-kernel-modules #1168: only 580, 595 and 610 were fixed"},
    {"7.0", "550", NULL, "NVIDIA/open-gpu-kernel-modules #1168: only 580, 595 and 610 were fixed"},
    {"7.0", "545", NULL, "NVIDIA/open-gpu-kernel-modules #1168: only 580, 595 and 610 were fixed"},
    {"7.0", "535", NULL, "NVIDIA/open-gpu-kernel-modules #1168: only 580, 595 and 610 were fixed"},
    {"7.0", "530", NULL, "NVIDIA/open-gpu-kernel-modules #1168: only 580, 595 and 610 were fixed"},
    {"7.0", "525", NULL, "NVIDIA/open-gpu-kernel-modules #1168: only 580, 595 and 610 were fixed"},
    {"6.17", "570", "570.195.03", "Frogging-Family/nvidia-all #310"},
    {"6.12.107", "550", NULL, "Debian 13, 550.163.01: nv-pci.c, too few arguments to pci_resize_resource"},
    {"5.14.0-687", "575", NULL, "GoogleCloudPlatform/ops-agent #2355 (Rocky Linux 9.8)"},
    {0}};
/* clang-format on */

const struct os_row *software_system(const char *os) {
    static const struct {
        const char *clone, *of;
    } clones[] = {
        {"rocky-", "rhel-"}, {"almalinux-", "rhel-"}, {"alma-", "rhel-"}, {"ol-", "rhel-"}, {"centos-", "rhel-"}};
    char name[48];
    if (os == NULL) return NULL;
    snprintf(name, sizeof name, "%s", os);
    for (size_t i = 0; i < GP_ARRAY_LEN(clones); i++)
        if (str_starts(os, clones[i].clone))
            snprintf(name, sizeof name, "%s%s", clones[i].of, os + strlen(clones[i].clone));
    for (const struct os_row *r = software_systems; r->name != NULL; r++)
        if (software_version_is(name, r->name)) return r;
    return NULL;
}
