/* SPDX-License-Identifier: Apache-2.0 */
/* What a cloud's name of a GPU says ("NVIDIA H100 80GB HBM3", "nvidia-h100-80gb", "8x_a100_80gb_sxm4"), and which
 * name of the GPU model table (validate/suite/models.h) says the same. Pure; any thread. */
#ifndef GP_COMMON_GPU_NAME_H
#define GP_COMMON_GPU_NAME_H

#include "base/gp_base.h"

struct gpu_name {
    char model[64]; /* upper case, letters and digits: "H100", "RTX4090" */
    char form[8];   /* "SXM", "SXM5", "PCIE", "NVL"; "" where the name does not say */
    int memory_gb;  /* 0: not said */
    int count;      /* of "8x"; 0: not said */
};
void gpu_name_parse(const char *text, struct gpu_name *ret);
/* The same model in the same form; without a form a name means any SXM or none, never PCIe or NVL. Memory is the
 * caller's: makers say GB, clouds MiB, sometimes net. */
bool gpu_name_same(const struct gpu_name *a, const struct gpu_name *b);

/* The table's name for exactly what text says: a model's where it says one ("A100 SXM4 80GB"), else what several share
 * ("A100-80GB"). False: the table knows no such GPU, or text has a word that is not understood. */
bool gpu_name_known(const char *text, char *ret, size_t n);

#endif
