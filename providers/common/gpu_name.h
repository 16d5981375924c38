/* SPDX-License-Identifier: Apache-2.0 */
/* Decodes a cloud's name of a GPU ("NVIDIA H100 80GB HBM3", "nvidia-h100-80gb", "8x_a100_80gb_sxm4") and finds the
 * equal name of the GPU model table (validate/suite/models.h). Pure; any thread. */
#ifndef GP_COMMON_GPU_NAME_H
#define GP_COMMON_GPU_NAME_H

#include "base/gp_base.h"

struct gpu_name {
    char model[64]; /* upper case, letters and digits: "H100", "RTX4090" */
    char form[8];   /* "SXM", "SXM5", "PCIE", "NVL"; "" where the name has none */
    int memory_gb;  /* 0: not given */
    int count;      /* of "8x"; 0: not given */
};
void gpu_name_parse(const char *text, struct gpu_name *ret);
/* The same model in the same form; without a form a name means any SXM or none, never PCIe or NVL. The caller
 * compares memory, because makers use GB and clouds MiB, sometimes net. */
bool gpu_name_same(const struct gpu_name *a, const struct gpu_name *b);

/* The table's name of the GPU in text: a model's own where it is unique ("A100 SXM4 80GB"), else the one that several
 * models share ("A100-80GB"). False: the table has no such GPU, or text has an unknown word. */
bool gpu_name_known(const char *text, char *ret, size_t n);

/* True if a cloud's text names the GPU that a spec asks for, with the memory of both where both have it. Cards that the
 * table has in one form only need no form. */
bool gpu_name_fits(const char *wanted, const char *text);

#endif
