/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a container's CUDA runs on a node's driver. Pure; any thread. */
#include "base/gp_base.h"

#include "software/rows.h"

/* The first driver of a CUDA major version; NULL: no row has it. */
static const char *first_driver(const char *cuda) {
    for (const struct cuda_row *c = software_cudas; c->name != NULL; c++)
        if (strncmp(c->name, cuda, 2) == 0) return c->driver_min;
    return NULL;
}

/* The package cuda-compat of CUDA 13 works from this branch on (dstackai/dstack #4007). */
#define COMPAT_DRIVER "535"
#define COMPAT_TOOLKIT "1.18.0" /* NVIDIA/nvidia-container-toolkit, CHANGELOG: the hook enable-cuda-compat */

enum software_container software_container_runs(const char *driver, const char *cuda, const struct software_gpu *gpu,
                                                char *why, size_t n) {
    const char *least = first_driver(cuda);
    why[0] = '\0';
    if (least == NULL) {
        snprintf(why, n, "CUDA %.20s is not in the table of versions", cuda);
        return SOFTWARE_CONTAINER_UNKNOWN;
    }
    if (gpu != NULL && gpu->cc != 0) {
        bool code = false;
        for (const struct cuda_row *c = software_cudas; c->name != NULL; c++)
            code = code || (strncmp(c->name, cuda, 2) == 0 && gpu->cc >= c->cc_min);
        if (!code) {
            snprintf(why, n, "CUDA %.2s has no code for %s GPUs (sm_%d)", cuda, gpu->family, gpu->cc);
            return SOFTWARE_CONTAINER_NOT;
        }
    }
    if (software_version_compare(driver, least) >= 0) return SOFTWARE_CONTAINER_RUNS;
    if (gpu != NULL && gpu->consumer)
        snprintf(why, n,
                 "CUDA %.2s needs driver %s or later, and GeForce GPUs have no forward compatibility (error 804)", cuda,
                 least);
    else if (software_version_compare(driver, COMPAT_DRIVER) < 0)
        snprintf(why, n, "CUDA %.2s needs driver %s or later, or " COMPAT_DRIVER " with the package cuda-compat", cuda,
                 least);
    else {
        snprintf(why, n,
                 "CUDA %.2s needs driver %s or later; on driver %.20s it works only if the image has cuda-compat and "
                 "the container toolkit is " COMPAT_TOOLKIT " or later",
                 cuda, least, driver);
        return SOFTWARE_CONTAINER_COMPAT;
    }
    return SOFTWARE_CONTAINER_NOT;
}

/* "13.0" of "nvcr.io/nvidia/cuda:13.0.1-base-ubuntu24.04" or "pytorch/pytorch:2.9.1-cuda13.0-cudnn9-runtime". */
static bool image_cuda(const char *image, char *ret, size_t n) {
    static const char repository[] = "nvidia/cuda";
    size_t whole = strcspn(image, "@"), name = whole;
    while (name > 0 && image[name] != ':' && image[name] != '/') name--;
    if (image[name] != ':') return false; /* no tag */
    GP_AUTO_FREE char *tag = xasprintf("%.*s", (int)(whole - name - 1), image + name + 1);
    size_t skip = name < strlen(repository) ? 0 : name - strlen(repository);
    bool nvidias = strncmp(image + skip, repository, strlen(repository)) == 0 && (skip == 0 || image[skip - 1] == '/');
    const char *word = strstr(tag, "cuda"), *at = nvidias ? tag : word != NULL ? word + strlen("cuda") : "";
    size_t major = strspn(at, "0123456789"), minor = at[major] == '.' ? strspn(at + major + 1, "0123456789") : 0;
    snprintf(ret, n, "%.*s", (int)(minor > 0 ? major + 1 + minor : major), at);
    return major == 2;
}

enum software_container software_image_runs(const char *image, const struct software_set *set,
                                            const struct software_gpu *gpu, char *why, size_t n) {
    char cuda[16];
    why[0] = '\0';
    if (!image_cuda(image, cuda, sizeof cuda)) return SOFTWARE_CONTAINER_RUNS;
    bool installed = set->at[SOFTWARE_DRIVER].text[0] != '\0';
    const char *driver = set->driver_exact[0] != '\0' ? set->driver_exact : set->driver_minimum;
    const char *least = first_driver(cuda);
    if (!installed || driver[0] == '\0') driver = least != NULL ? least : "";
    return software_container_runs(driver, cuda, gpu, why, n);
}
