/* SPDX-License-Identifier: Apache-2.0 */
/* The rules of the solver: each looks at two or three values and says why they do not fit. Pure; any thread. */
#include "base/gp_base.h"

#include "software/rows.h"

#include <ctype.h>

const struct branch_row *software_branch_of(const char *version) {
    for (const struct branch_row *b = software_branches; version != NULL && b->name != NULL; b++)
        if (software_version_is(version, b->name)) return b;
    return NULL;
}

bool software_torch_covers(const struct torch_row *t, int cc) {
    for (size_t i = 0; i < GP_ARRAY_LEN(t->cc) && t->cc[i] != 0; i++)
        if (t->cc[i] / 10 == cc / 10 && t->cc[i] <= cc) return true;
    return t->ptx != 0 && t->ptx <= cc;
}

/* Whether a row counts for a kernel: "7.0" also for all later ones, "6.12.107" and "5.14.0-687" only within 6.12 and
 * 5.14, because they are about a change that a distribution or a stable series took over. */
static bool kernel_fits(const char *kernel, const char *from) {
    const char *second = strchr(from, '.'), *third = second != NULL ? strchr(second + 1, '.') : NULL;
    if (third != NULL && strncmp(kernel, from, (size_t)(third - from) + 1) != 0) return false;
    return software_version_compare(kernel, from) >= 0;
}

const char *software_kernel_needs(const char *kernel, const char *branch, bool *ret_none, const char **ret_source) {
    *ret_none = false;
    for (const struct kernel_row *k = software_kernels; k->name != NULL; k++) {
        if (strcmp(k->branch, branch) != 0 || !kernel_fits(kernel, k->name)) continue;
        *ret_none = k->fixed == NULL;
        *ret_source = k->source;
        return k->fixed;
    }
    return NULL;
}

static bool in_words(const char *words, const char *word) {
    size_t n = strlen(word);
    for (const char *at = strstr(words, word); at != NULL; at = strstr(at + 1, word))
        if ((at == words || at[-1] == ' ') && (at[n] == '\0' || at[n] == ' ')) return true;
    return false;
}

/* "sm_70" */
#define SM "sm_%d"

/* --- GPU and driver --- */

static bool gpu_driver(const struct world *w, const struct pick *p) {
    int cc = w->wish->gpu.cc;
    if (w->wish->gpu.grace && software_version_compare(p->branch->name, cc >= 100 ? "570" : "535") < 0) return false;
    return cc >= p->branch->cc_min && cc <= p->branch->cc_max;
}
static void gpu_driver_why(const struct world *w, const struct pick *p, char *dst, size_t n) {
    const struct branch_row *last = NULL, *first = NULL;
    struct pick q = *p;
    for (const struct branch_row *b = software_branches; b->name != NULL; b++) {
        q.branch = b;
        if (!gpu_driver(w, &q)) continue;
        if (last == NULL) last = b;
        first = b;
    }
    if (last == NULL) snprintf(dst, n, "no driver branch of the table drives it");
    else if (software_version_compare(p->branch->name, last->name) > 0)
        snprintf(dst, n, "branch %s is the last one that drives %s GPUs", last->name, w->wish->gpu.family);
    else
        snprintf(dst, n, "%s%s GPUs need branch %s or later", w->wish->gpu.grace ? "Grace " : "", w->wish->gpu.family,
                 first->name);
}
static const char *branch_source(const struct world *w, const struct pick *p) {
    (void)w;
    return p->branch->source;
}

static bool gpu_flavour(const struct world *w, const struct pick *p) {
    const struct software_gpu *g = &w->wish->gpu;
    return IS_OPEN(p) ? g->cc >= 75 : g->cc < 100 && !g->grace;
}
static void gpu_flavour_why(const struct world *w, const struct pick *p, char *dst, size_t n) {
    if (IS_OPEN(p)) snprintf(dst, n, "open modules exist for Turing (sm_75) and later GPUs only");
    else snprintf(dst, n, "%s need open modules", w->wish->gpu.cc >= 100 ? "Blackwell GPUs" : "Grace Hopper GPUs");
}

static bool driver_flavour(const struct world *w, const struct pick *p) {
    (void)w;
    return IS_OPEN(p) ? p->branch->open : p->branch->proprietary;
}
static void driver_flavour_why(const struct world *w, const struct pick *p, char *dst, size_t n) {
    (void)w, (void)p;
    snprintf(dst, n, "branch 620 and later have no proprietary modules");
}

/* --- driver and system --- */

static bool driver_kernel(const struct world *w, const struct pick *p) {
    bool none = false;
    const char *source = NULL, *fixed = software_kernel_needs(w->wish->kernel, p->branch->name, &none, &source);
    if (none) return false;
    return fixed == NULL || w->driver_exact[0] == '\0' || software_version_compare(w->driver_exact, fixed) >= 0;
}
static void driver_kernel_why(const struct world *w, const struct pick *p, char *dst, size_t n) {
    bool none = false;
    const char *source = NULL, *fixed = software_kernel_needs(w->wish->kernel, p->branch->name, &none, &source);
    if (none) snprintf(dst, n, "the modules of branch %s do not build for this kernel", p->branch->name);
    else snprintf(dst, n, "the modules of branch %s build for this kernel from %s on", p->branch->name, fixed);
}
static const char *kernel_source(const struct world *w, const struct pick *p) {
    bool none = false;
    const char *source = NULL;
    (void)software_kernel_needs(w->wish->kernel, p->branch->name, &none, &source);
    return source;
}

static bool driver_system(const struct world *w, const struct pick *p) {
    const struct os_row *o = w->os;
    if (IS_DISTRO(p)) return in_words(o->distro, p->branch->name);
    return o->repository[0] != '\0' && software_version_compare(p->branch->name, o->branch_min) >= 0 &&
           (o->branch_max == NULL || software_version_compare(p->branch->name, o->branch_max) <= 0);
}
static void driver_system_why(const struct world *w, const struct pick *p, char *dst, size_t n) {
    const struct os_row *o = w->os;
    if (IS_DISTRO(p) && o->distro[0] == '\0') snprintf(dst, n, "the distribution has no NVIDIA driver");
    else if (IS_DISTRO(p)) snprintf(dst, n, "the distribution has branch %s only", o->distro);
    else if (o->repository[0] == '\0') snprintf(dst, n, "NVIDIA has no repository for %s", o->name);
    else if (software_version_compare(p->branch->name, o->branch_min) < 0)
        snprintf(dst, n, "NVIDIA's repository %s begins with branch %s", o->repository, o->branch_min);
    else snprintf(dst, n, "NVIDIA's repository %s ends with branch %s", o->repository, o->branch_max);
}
static const char *os_source(const struct world *w, const struct pick *p) {
    (void)p;
    return w->os->source;
}

static bool distro_flavour(const struct world *w, const struct pick *p) {
    return !IS_DISTRO(p) || !IS_OPEN(p) || w->os->distro_open;
}
static void distro_flavour_why(const struct world *w, const struct pick *p, char *dst, size_t n) {
    (void)w, (void)p;
    snprintf(dst, n, "the distribution has proprietary modules only");
}

static bool driver_loaded(const struct world *w, const struct pick *p) {
    return software_version_is(w->wish->loaded, p->branch->name);
}
static void driver_loaded_why(const struct world *w, const struct pick *p, char *dst, size_t n) {
    (void)w, (void)p;
    snprintf(dst, n, "the driver that is there stays");
}

/* --- CUDA --- */

/* The oldest version that the branch can be. */
static const char *oldest(const struct world *w, const struct pick *p) {
    return w->driver_exact[0] != '\0' ? w->driver_exact : p->branch->first;
}
/* A branch whose first versions are too old fits, if later ones of it do. */
static bool reaches(const struct world *w, const struct pick *p, const char *minimum) {
    return software_version_compare(oldest(w, p), minimum) >= 0 ||
           (w->driver_exact[0] == '\0' && software_version_is(minimum, p->branch->name));
}
static void reaches_why(const char *what, const char *minimum, char *dst, size_t n) {
    snprintf(dst, n, "%s needs driver %s or later", what, minimum);
}

static bool driver_cuda(const struct world *w, const struct pick *p) { return reaches(w, p, p->cuda->driver_min); }
static void driver_cuda_why(const struct world *w, const struct pick *p, char *dst, size_t n) {
    char what[24];
    (void)w;
    snprintf(what, sizeof what, "CUDA %.2s", p->cuda->name);
    reaches_why(what, p->cuda->driver_min, dst, n);
}
static const char *cuda_source(const struct world *w, const struct pick *p) {
    (void)w;
    return p->cuda->source;
}

static bool gpu_cuda(const struct world *w, const struct pick *p) {
    return w->wish->gpu.cc >= p->cuda->cc_min && w->wish->gpu.cc <= p->cuda->cc_max;
}
static void gpu_cuda_why(const struct world *w, const struct pick *p, char *dst, size_t n) {
    const struct cuda_row *last = NULL, *first = NULL;
    struct pick q = *p;
    for (const struct cuda_row *c = software_cudas; c->name != NULL; c++) {
        q.cuda = c;
        if (!gpu_cuda(w, &q)) continue;
        if (last == NULL) last = c;
        first = c;
    }
    if (last == NULL) snprintf(dst, n, "no CUDA of the table has code for it");
    else if (w->wish->gpu.cc < p->cuda->cc_min)
        snprintf(dst, n, "CUDA %s is the last one that has code for %s GPUs", last->name, w->wish->gpu.family);
    else snprintf(dst, n, "code for " SM " begins with CUDA %s", w->wish->gpu.cc, first->name);
}

static bool system_cuda(const struct world *w, const struct pick *p) {
    const struct os_row *o = w->os;
    return o->repository[0] != '\0' && software_version_compare(p->cuda->name, o->cuda_min) >= 0 &&
           software_version_compare(p->cuda->name, o->cuda_max) <= 0;
}
static void system_cuda_why(const struct world *w, const struct pick *p, char *dst, size_t n) {
    const struct os_row *o = w->os;
    if (o->repository[0] == '\0') snprintf(dst, n, "NVIDIA has no repository for %s", o->name);
    else if (software_version_compare(p->cuda->name, o->cuda_min) < 0)
        snprintf(dst, n, "NVIDIA's repository %s begins with CUDA %s", o->repository, o->cuda_min);
    else snprintf(dst, n, "NVIDIA's repository %s ends with CUDA %s", o->repository, o->cuda_max);
}

/* --- cuDNN and NCCL --- */

static bool cuda_cudnn(const struct world *w, const struct pick *p) {
    (void)w;
    return software_version_compare(p->cuda->name, p->cudnn->cuda_min) >= 0 &&
           software_version_compare(p->cuda->name, p->cudnn->cuda_max) <= 0;
}
static void cuda_cudnn_why(const struct world *w, const struct pick *p, char *dst, size_t n) {
    (void)w;
    snprintf(dst, n, "cuDNN %s is not built for that CUDA", p->cudnn->name);
}
static const char *cudnn_source(const struct world *w, const struct pick *p) {
    (void)w;
    return p->cudnn->source;
}
static bool gpu_cudnn(const struct world *w, const struct pick *p) { return w->wish->gpu.cc >= p->cudnn->cc_min; }
static void gpu_cudnn_why(const struct world *w, const struct pick *p, char *dst, size_t n) {
    (void)w;
    snprintf(dst, n, "cuDNN %s has no code for GPUs before " SM, p->cudnn->name, p->cudnn->cc_min);
}
static bool driver_cudnn(const struct world *w, const struct pick *p) {
    return reaches(w, p,
                   p->cudnn->cuda_major >= 13   ? "580.65.06"
                   : p->cudnn->cuda_major == 12 ? "525.60.13"
                                                : "450.80.02");
}
static void driver_cudnn_why(const struct world *w, const struct pick *p, char *dst, size_t n) {
    (void)w;
    reaches_why("cuDNN for that CUDA", p->cudnn->cuda_major >= 13 ? "580.65.06" : "525.60.13", dst, n);
}

static bool cuda_nccl(const struct world *w, const struct pick *p) {
    (void)w;
    return strncmp(p->cuda->name, p->nccl->cuda, 3) == 0;
}
static void cuda_nccl_why(const struct world *w, const struct pick *p, char *dst, size_t n) {
    (void)w;
    snprintf(dst, n, "NCCL %s is not built for CUDA %.2s", p->nccl->name, p->cuda->name);
}
static const char *nccl_source(const struct world *w, const struct pick *p) {
    (void)w;
    return p->nccl->source;
}
static bool gpu_nccl(const struct world *w, const struct pick *p) {
    return w->wish->gpu.cc >= p->nccl->cc_min && w->wish->gpu.cc <= p->nccl->cc_max;
}
static void gpu_nccl_why(const struct world *w, const struct pick *p, char *dst, size_t n) {
    snprintf(dst, n, "NCCL %s for CUDA %s has no code for " SM, p->nccl->name, p->nccl->cuda, w->wish->gpu.cc);
}
static bool driver_nccl(const struct world *w, const struct pick *p) {
    return reaches(w, p, p->nccl->cuda[1] == '3' ? "580.65.06" : "525.60.13");
}
static void driver_nccl_why(const struct world *w, const struct pick *p, char *dst, size_t n) {
    (void)w;
    reaches_why("NCCL for that CUDA", p->nccl->cuda[1] == '3' ? "580.65.06" : "525.60.13", dst, n);
}

/* --- PyTorch --- */

static bool gpu_torch(const struct world *w, const struct pick *p) {
    return software_torch_covers(p->torch, w->wish->gpu.cc);
}
static void gpu_torch_why(const struct world *w, const struct pick *p, char *dst, size_t n) {
    snprintf(dst, n, "the wheel %s+%s has no " SM " code", p->torch->name, p->torch->tag, w->wish->gpu.cc);
}
static const char *torch_source(const struct world *w, const struct pick *p) {
    (void)w;
    return p->torch->source;
}
static bool driver_torch(const struct world *w, const struct pick *p) { return reaches(w, p, p->torch->driver_min); }
static void driver_torch_why(const struct world *w, const struct pick *p, char *dst, size_t n) {
    char what[48];
    (void)w;
    snprintf(what, sizeof what, "the wheel %s+%s", p->torch->name, p->torch->tag);
    reaches_why(what, p->torch->driver_min, dst, n);
}
static bool system_torch(const struct world *w, const struct pick *p) {
    return software_version_compare(w->os->glibc, p->torch->glibc) >= 0;
}
static void system_torch_why(const struct world *w, const struct pick *p, char *dst, size_t n) {
    snprintf(dst, n, "the wheel %s+%s needs glibc %s, and %s has %s", p->torch->name, p->torch->tag, p->torch->glibc,
             w->os->name, w->os->glibc);
}

static bool python_torch(const struct world *w, const struct pick *p) {
    return software_version_compare(w->wish->python, p->torch->python) >= 0;
}
static void python_torch_why(const struct world *w, const struct pick *p, char *dst, size_t n) {
    (void)w;
    snprintf(dst, n, "PyTorch %s needs Python %s or later", p->torch->name, p->torch->python);
}

/* --- other frameworks --- */

static const struct framework_row *tensorflow(const struct world *w) {
    return software_framework("tensorflow", w->wish->tensorflow);
}
static bool gpu_tensorflow(const struct world *w, const struct pick *p) {
    const struct framework_row *f = tensorflow(w);
    (void)p;
    return f == NULL || (w->wish->gpu.cc >= f->cc_min && w->wish->gpu.cc <= f->cc_max);
}
static void gpu_tensorflow_why(const struct world *w, const struct pick *p, char *dst, size_t n) {
    (void)p;
    snprintf(dst, n, "wheels of TensorFlow up to %s have no " SM " code", tensorflow(w)->version, w->wish->gpu.cc);
}
static const char *tensorflow_source(const struct world *w, const struct pick *p) {
    (void)p;
    return tensorflow(w)->source;
}
static bool driver_tensorflow(const struct world *w, const struct pick *p) {
    const struct framework_row *f = tensorflow(w);
    return f == NULL || reaches(w, p, f->driver_min);
}
static void driver_tensorflow_why(const struct world *w, const struct pick *p, char *dst, size_t n) {
    (void)p;
    reaches_why("the wheel of TensorFlow", tensorflow(w)->driver_min, dst, n);
}
static bool horovod_torch(const struct world *w, const struct pick *p) {
    const struct framework_row *f = software_framework("horovod", w->wish->horovod);
    return f == NULL || software_version_compare(p->torch->name, f->torch_below) < 0;
}
static void horovod_torch_why(const struct world *w, const struct pick *p, char *dst, size_t n) {
    const struct framework_row *f = software_framework("horovod", w->wish->horovod);
    (void)p;
    snprintf(dst, n, "Horovod %s, its last release, does not build with PyTorch %s or later", f->version,
             f->torch_below);
}
static bool deepspeed_cuda(const struct world *w, const struct pick *p) {
    return !w->wish->toolkit || software_framework("deepspeed", w->wish->deepspeed) == NULL ||
           strncmp(p->cuda->name, p->torch->cuda, 3) == 0;
}
static void deepspeed_cuda_why(const struct world *w, const struct pick *p, char *dst, size_t n) {
    (void)w;
    snprintf(dst, n, "DeepSpeed compiles only with a toolkit of the wheel's major version, CUDA %.2s", p->torch->cuda);
}

#define D BIT(SOFTWARE_DRIVER)
#define F BIT(SOFTWARE_FLAVOUR)
#define S BIT(SOFTWARE_SOURCE)
#define C BIT(SOFTWARE_CUDA)
#define DNN BIT(SOFTWARE_CUDNN)
#define N BIT(SOFTWARE_NCCL)
#define T BIT(SOFTWARE_TORCH)
#define G BIT(SOFTWARE_GPU)
#define O BIT(SOFTWARE_OS)
#define K BIT(SOFTWARE_KERNEL)
#define L BIT(SOFTWARE_LOADED)
#define TF BIT(SOFTWARE_TENSORFLOW)
#define H BIT(SOFTWARE_HOROVOD)
#define DS BIT(SOFTWARE_DEEPSPEED)
#define PY BIT(SOFTWARE_PYTHON)
#define MODULES "NVIDIA driver installation guide, kernel modules"

/* Rows read as rows. */
/* clang-format off */
const struct rule software_rules[] = {
    {"gpu-driver", G | D, gpu_driver, gpu_driver_why, "the driver branch drives the GPU's architecture",
     branch_source, NULL},
    {"gpu-flavour", G | F, gpu_flavour, gpu_flavour_why,
     "open modules need Turing or later; Blackwell and Grace GPUs need open modules", NULL, MODULES},
    {"driver-flavour", D | F, driver_flavour, driver_flavour_why, "the branch has modules of that flavour",
     branch_source, NULL},
    {"driver-kernel", D | K, driver_kernel, driver_kernel_why, "the branch's modules build for the kernel",
     kernel_source, NULL},
    {"driver-system", D | S | O, driver_system, driver_system_why,
     "the repository, or the distribution, has the branch", os_source, NULL},
    {"distro-flavour", S | F | O, distro_flavour, distro_flavour_why, "the distribution has modules of that flavour",
     os_source, NULL},
    {"driver-loaded", D | L, driver_loaded, driver_loaded_why, "a driver that stays is the driver", NULL, "the node"},
    {"driver-cuda", D | C, driver_cuda, driver_cuda_why, "the driver reaches the minimum of CUDA's major version",
     cuda_source, NULL},
    {"gpu-cuda", G | C, gpu_cuda, gpu_cuda_why, "CUDA has code for the GPU's architecture", cuda_source, NULL},
    {"system-cuda", O | C, system_cuda, system_cuda_why, "NVIDIA's repository for the system has that CUDA",
     os_source, NULL},
    {"cuda-cudnn", C | DNN, cuda_cudnn, cuda_cudnn_why, "cuDNN is built for that CUDA", cudnn_source, NULL},
    {"gpu-cudnn", G | DNN, gpu_cudnn, gpu_cudnn_why, "cuDNN has code for the GPU's architecture", cudnn_source, NULL},
    {"driver-cudnn", D | DNN, driver_cudnn, driver_cudnn_why, "the driver reaches the minimum of cuDNN's CUDA",
     cudnn_source, NULL},
    {"cuda-nccl", C | N, cuda_nccl, cuda_nccl_why, "NCCL is built for that major version of CUDA", nccl_source, NULL},
    {"gpu-nccl", G | N, gpu_nccl, gpu_nccl_why, "NCCL has code for the GPU's architecture", nccl_source, NULL},
    {"driver-nccl", D | N, driver_nccl, driver_nccl_why, "the driver reaches the minimum of NCCL's CUDA", nccl_source,
     NULL},
    {"gpu-torch", G | T, gpu_torch, gpu_torch_why, "the wheel has code for the GPU's architecture", torch_source, NULL},
    {"driver-torch", D | T, driver_torch, driver_torch_why, "the driver reaches the minimum of the wheel's CUDA",
     torch_source, NULL},
    {"system-torch", O | T, system_torch, system_torch_why, "the system's glibc is new enough for the wheel",
     torch_source, NULL},
    {"python-torch", PY | T, python_torch, python_torch_why, "the wheel is built for that version of Python",
     torch_source, NULL},
    {"gpu-tensorflow", G | TF, gpu_tensorflow, gpu_tensorflow_why,
     "TensorFlow's wheel has code for the GPU's architecture", tensorflow_source, NULL},
    {"driver-tensorflow", D | TF, driver_tensorflow, driver_tensorflow_why,
     "the driver reaches the minimum of TensorFlow's CUDA", tensorflow_source, NULL},
    {"horovod-torch", H | T, horovod_torch, horovod_torch_why, "Horovod builds with that PyTorch", NULL,
     "horovod/horovod #3996, #4014"},
    {"deepspeed-cuda", DS | T | C, deepspeed_cuda, deepspeed_cuda_why,
     "a CUDA toolkit has the major version of the wheel of PyTorch, so that DeepSpeed compiles its operators", NULL,
     "deepspeedai/DeepSpeed #3223"},
    {0}};
/* clang-format on */

/* The part of a pick for a key; NULL: left alone. */
static const void *value(const struct pick *p, enum software_key k) {
    switch (k) {
    case SOFTWARE_DRIVER: return p->branch;
    case SOFTWARE_FLAVOUR: return p->flavour;
    case SOFTWARE_SOURCE: return p->origin;
    case SOFTWARE_CUDA: return p->cuda;
    case SOFTWARE_CUDNN: return p->cudnn;
    case SOFTWARE_NCCL: return p->nccl;
    case SOFTWARE_TORCH: return p->torch;
    default: return NULL;
    }
}

/* Rules about the driver's version alone: they count for a loaded driver of a branch that is not in the table. */
static bool by_version(const struct rule *r) {
    return r->holds == driver_cuda || r->holds == driver_cudnn || r->holds == driver_nccl || r->holds == driver_torch ||
           r->holds == driver_tensorflow;
}

bool software_applies(const struct rule *r, const struct world *w, const struct pick *p) {
    for (int k = 0; k < SOFTWARE_KEYS; k++)
        if ((r->keys & BIT(k)) != 0 && value(p, (enum software_key)k) == NULL &&
            !(k == SOFTWARE_DRIVER && w->driver_exact[0] != '\0' && by_version(r)))
            return false;
    if ((r->keys & G) != 0 && w->wish->gpu.cc == 0) return false;
    if ((r->keys & O) != 0 && w->os == NULL) return false;
    if ((r->keys & K) != 0 && w->wish->kernel == NULL) return false;
    if ((r->keys & TF) != 0 && w->wish->tensorflow == NULL) return false;
    if ((r->keys & H) != 0 && w->wish->horovod == NULL) return false;
    if ((r->keys & DS) != 0 && w->wish->deepspeed == NULL) return false;
    if ((r->keys & PY) != 0 && w->wish->python == NULL) return false;
    return (r->keys & L) == 0 || w->wish->loaded != NULL;
}

void software_name(const struct world *w, const struct pick *p, enum software_key k, char *dst, size_t n) {
    const struct software_gpu *g = &w->wish->gpu;
    dst[0] = '\0';
    switch (k) {
    case SOFTWARE_DRIVER:
        if (p->branch != NULL)
            snprintf(dst, n, "driver %s", w->driver_exact[0] != '\0' ? w->driver_exact : p->branch->name);
        break;
    case SOFTWARE_FLAVOUR:
        if (p->flavour != NULL) snprintf(dst, n, "%s kernel modules", p->flavour->name);
        break;
    case SOFTWARE_SOURCE:
        if (p->origin != NULL)
            snprintf(dst, n, "%s", IS_DISTRO(p) ? "a driver of the distribution" : "NVIDIA's repository");
        break;
    case SOFTWARE_CUDA:
        if (p->cuda != NULL) snprintf(dst, n, "CUDA %s", p->cuda->name);
        break;
    case SOFTWARE_CUDNN:
        if (p->cudnn != NULL) snprintf(dst, n, "cuDNN %s", p->cudnn->name);
        break;
    case SOFTWARE_NCCL:
        if (p->nccl != NULL) snprintf(dst, n, "NCCL %s", p->nccl->name);
        break;
    case SOFTWARE_TORCH:
        if (p->torch != NULL) snprintf(dst, n, "PyTorch %s+%s", p->torch->name, p->torch->tag);
        break;
    case SOFTWARE_GPU:
        if (g->name == NULL || g->name[0] == '\0') snprintf(dst, n, "the %s GPU (" SM ")", g->family, g->cc);
        else snprintf(dst, n, "GPU %.40s (%s, " SM ")", g->name, g->family, g->cc);
        break;
    case SOFTWARE_OS: snprintf(dst, n, "%.40s", w->wish->os != NULL ? w->wish->os : ""); break;
    case SOFTWARE_KERNEL: snprintf(dst, n, "kernel %.60s", w->wish->kernel != NULL ? w->wish->kernel : ""); break;
    case SOFTWARE_LOADED:
        snprintf(dst, n, "the loaded driver %.20s", w->wish->loaded != NULL ? w->wish->loaded : "");
        break;
    case SOFTWARE_TENSORFLOW:
        snprintf(dst, n, "TensorFlow%s%.20s", *w->wish->tensorflow ? " " : "", w->wish->tensorflow);
        break;
    case SOFTWARE_HOROVOD: snprintf(dst, n, "Horovod%s%.20s", *w->wish->horovod ? " " : "", w->wish->horovod); break;
    case SOFTWARE_DEEPSPEED:
        snprintf(dst, n, "DeepSpeed%s%.20s", *w->wish->deepspeed ? " " : "", w->wish->deepspeed);
        break;
    case SOFTWARE_PYTHON: snprintf(dst, n, "Python %.20s", w->wish->python); break;
    case SOFTWARE_ALL: break;
    }
}

const char *software_key_name(enum software_key k) {
    static const char *const names[] = {"driver", "flavour",    "source",  "cuda",      "cudnn",
                                        "nccl",   "torch",      "gpu",     "os",        "kernel",
                                        "loaded", "tensorflow", "horovod", "deepspeed", "python"};
    return (size_t)k < GP_ARRAY_LEN(names) ? names[k] : "";
}
