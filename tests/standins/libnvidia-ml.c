/* SPDX-License-Identifier: Apache-2.0 */
/* A stand-in for libnvidia-ml.so.1. GPUPROV_STANDIN_NVML: gpus=8, init=18 (the error of nvmlInit). */
#include "standin.h"

#include <stdio.h>

#define GET(key, def) standin_get("GPUPROV_STANDIN_NVML", key, def)
#define EXPORT __attribute__((visibility("default")))

EXPORT int nvmlInit_v2(void)
{
    return (int)GET("init", 0);
}

EXPORT int nvmlShutdown(void)
{
    return 0;
}

EXPORT int nvmlDeviceGetCount_v2(unsigned *ret)
{
    *ret = (unsigned)GET("gpus", 8);
    return 0;
}

EXPORT int nvmlSystemGetDriverVersion(char *dst, unsigned n)
{
    snprintf(dst, n, "580.65.06");
    return 0;
}

EXPORT const char *nvmlErrorString(int code)
{
    return code == 18 ? "Driver/library version mismatch" : "Unknown Error";
}
