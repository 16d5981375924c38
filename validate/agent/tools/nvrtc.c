/* SPDX-License-Identifier: Apache-2.0 */
/* A build tool, never shipped: compiles the kernels with NVRTC, for toolkits that have no nvcc (Python's
 * nvidia-cuda-nvrtc-cu12).
 *   nvrtc LIBRARY archs                       prints its architectures: 50 52 ...
 *   nvrtc LIBRARY sm_90 SOURCE OUT            a cubin
 *   nvrtc LIBRARY compute_120 SOURCE OUT      PTX, with the zero byte that the driver needs
 * Contains the two C headers that the kernels include, because NVRTC has none. */
#include "base/gp_base.h"

#include <dlfcn.h>

static int (*supported_count)(int *);
static int (*supported)(int *);
static int (*create)(void **, const char *, const char *, int, const char *const *, const char *const *);
static int (*compile)(void *, int, const char *const *);
static int (*log_size)(void *, size_t *);
static int (*log_get)(void *, char *);
static int (*cubin_size)(void *, size_t *);
static int (*cubin_get)(void *, char *);
static int (*ptx_size)(void *, size_t *);
static int (*ptx_get)(void *, char *);

static int fail(const char *what, const char *why) {
    fprintf(stderr, "nvrtc: %s: %s\n", what, why);
    return 1;
}

static int load(const char *path) {
    const struct {
        const char *name;
        void *to;
    } symbols[] = {{"nvrtcGetNumSupportedArchs", &supported_count},
                   {"nvrtcGetSupportedArchs", &supported},
                   {"nvrtcCreateProgram", &create},
                   {"nvrtcCompileProgram", &compile},
                   {"nvrtcGetProgramLogSize", &log_size},
                   {"nvrtcGetProgramLog", &log_get},
                   {"nvrtcGetCUBINSize", &cubin_size},
                   {"nvrtcGetCUBIN", &cubin_get},
                   {"nvrtcGetPTXSize", &ptx_size},
                   {"nvrtcGetPTX", &ptx_get}};
    void *lib = dlopen(path, RTLD_NOW);
    if (!lib) return fail(path, dlerror());
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
        void *f = dlsym(lib, symbols[i].name);
        if (!f) return fail(path, symbols[i].name);
        memcpy(symbols[i].to, &f, sizeof f);
    }
    return 0;
}

static int archs(void) {
    int n = 0, all[128];
    if (supported_count(&n) || n > 128 || supported(all)) return fail("archs", "the library does not report them");
    for (int i = 0; i < n; i++) printf("%d ", all[i]);
    return 0;
}

static int save(const char *path, const char *data, size_t n) {
    FILE *f = fopen(path, "wb");
    int bad = !f || fwrite(data, 1, n, f) != n;
    return (f && fclose(f)) || bad ? fail(path, "cannot be written") : 0;
}

int main(int argc, char **argv) {
    static const char *const headers[] = {
        "typedef signed char int8_t; typedef unsigned char uint8_t; typedef short int16_t; "
        "typedef unsigned short uint16_t; typedef int int32_t; typedef unsigned uint32_t; "
        "typedef long long int64_t; typedef unsigned long long uint64_t;",
        ""};
    static const char *const names[] = {"stdint.h", "string.h"};
    if (argc < 3 || load(argv[1])) return 1;
    if (strcmp(argv[2], "archs") == 0) return archs();
    if (argc != 5) return fail("usage", "nvrtc LIBRARY ARCH SOURCE OUT");
    char text[4200], arch[64];
    const char *options[] = {arch, "-fmad=false", "-I.", "-w"};
    snprintf(text, sizeof text, "#include \"%s\"\n", argv[3]);
    snprintf(arch, sizeof arch, "--gpu-architecture=%s", argv[2]);
    void *program = NULL;
    size_t n = 0;
    if (create(&program, text, "kernels", 2, headers, names)) return fail(argv[3], "cannot create a program from it");
    int r = compile(program, 4, options);
    if (r) {
        char *log = log_size(program, &n) ? NULL : calloc(n + 1, 1);
        return fail(argv[2], log && log_get(program, log) == 0 ? log : "it does not compile");
    }
    int ptx = strncmp(argv[2], "compute_", 8) == 0;
    char *out = NULL;
    if ((ptx ? ptx_size : cubin_size)(program, &n) == 0 && n) out = malloc(n);
    if (!out || (ptx ? ptx_get : cubin_get)(program, out)) return fail(argv[2], "nothing was compiled");
    return save(argv[4], out, n);
}
