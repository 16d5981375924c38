/* SPDX-License-Identifier: Apache-2.0 */
/* Package names by system, and the comparison of what is installed with what is wanted. Pure; any thread. */
#include "base/gp_base.h"

#include "software/software.h"

static const char *at(const struct software_set *s, enum software_key k) { return s->at[k].text; }
static bool is_apt(const struct software_set *s) { return strcmp(s->os_family, "apt") == 0; }
static bool is_distro(const struct software_set *s) { return strcmp(at(s, SOFTWARE_SOURCE), "distro") == 0; }
static bool is_open(const struct software_set *s) { return strcmp(at(s, SOFTWARE_FLAVOUR), "open") == 0; }
static bool from(const struct software_set *s, const char *branch) {
    return software_version_compare(at(s, SOFTWARE_DRIVER), branch) >= 0;
}

static void add(struct strv *ret, const char *fmt, ...) GP_PRINTF(2, 3);
static void add(struct strv *ret, const char *fmt, ...) {
    GP_AUTO_STR struct str text = {0};
    va_list ap;
    va_start(ap, fmt);
    str_vaddf(&text, fmt, ap);
    va_end(ap);
    strv_add(ret, text.s);
}

static void driver(const struct software_set *s, struct strv *ret) {
    const char *branch = at(s, SOFTWARE_DRIVER);
    bool ubuntu = str_starts(s->repository, "ubuntu");
    if (is_distro(s) && ubuntu) { /* Canonical's; -server is the one for data centers */
        add(ret, "nvidia-driver-%s-server%s", branch, is_open(s) ? "-open" : "");
        add(ret, "nvidia-utils-%s-server", branch);
    } else if (is_distro(s)) { /* Debian's */
        add(ret, is_open(s) ? "nvidia-open-kernel-dkms" : "nvidia-kernel-dkms");
        add(ret, "nvidia-smi");
        add(ret, "libcuda1");
    } else if (!is_apt(s)) {
        add(ret, is_open(s) ? "nvidia-open" : "cuda-drivers");
    } else if (is_open(s)) {
        if (from(s, "570")) add(ret, "nvidia-open");
        else if (from(s, "560")) add(ret, "nvidia-open-%s", branch);
        else if (ubuntu) add(ret, "nvidia-driver-%s-open", branch);
        else add(ret, "nvidia-kernel-open-dkms");
        if (!from(s, "560") && !ubuntu) add(ret, "nvidia-driver");
    } else if (from(s, "570")) {
        add(ret, "cuda-drivers");
    } else {
        add(ret, "cuda-drivers-%s", branch);
    }
}

void software_packages(const struct software_set *s, enum software_part part, struct strv *ret) {
    const char *branch = at(s, SOFTWARE_DRIVER), *cuda = at(s, SOFTWARE_CUDA);
    bool ours = branch[0] != '\0' && at(s, SOFTWARE_FLAVOUR)[0] != '\0';
    switch (part) {
    case SOFTWARE_PART_PIN:
        if (ours && is_apt(s) && !is_distro(s) && from(s, "570"))
            add(ret, "nvidia-driver-pinning-%s", s->driver_exact[0] != '\0' ? s->driver_exact : branch);
        break;
    case SOFTWARE_PART_DRIVER:
        if (ours) driver(s, ret);
        break;
    case SOFTWARE_PART_FABRIC:
        if (s->fabric_manager[0] != '\0') add(ret, "%s", s->fabric_manager);
        break;
    case SOFTWARE_PART_NVLSM: /* not nvlink5-580: that brings a driver of its own version */
        if (!s->nvlsm) break;
        add(ret, "nvlsm");
        add(ret, "infiniband-diags"); /* ibstat, with which the fabric manager finds the switches */
        break;
    case SOFTWARE_PART_IMEX:
        if (s->imex.text[0] != '\0') add(ret, "%s", s->imex.text);
        break;
    case SOFTWARE_PART_CUDA_RUNTIME:
        if (cuda[0] != '\0') add(ret, "cuda-libraries-%s", s->cuda_tag);
        break;
    case SOFTWARE_PART_CUDA_TOOLKIT:
        if (cuda[0] != '\0') add(ret, "cuda-toolkit-%s", s->cuda_tag);
        break;
    case SOFTWARE_PART_CUDNN:
        if (at(s, SOFTWARE_CUDNN)[0] != '\0' && cuda[0] != '\0') add(ret, "libcudnn9-cuda-%.2s", cuda);
        break;
    case SOFTWARE_PART_NCCL:
        if (at(s, SOFTWARE_NCCL)[0] != '\0')
            add(ret, is_apt(s) ? "libnccl2=%s-1+cuda%s" : "libnccl-%s-1+cuda%s", at(s, SOFTWARE_NCCL), s->nccl_cuda);
        break;
    case SOFTWARE_PART_CONTAINER: add(ret, "nvidia-container-toolkit"); break;
    }
}

void software_module_stream(const struct software_set *s, char *dst, size_t n) {
    bool streams = strcmp(s->repository, "rhel8") == 0 || strcmp(s->repository, "rhel9") == 0 ||
                   strcmp(s->repository, "amzn2023") == 0;
    dst[0] = '\0';
    if (!streams || at(s, SOFTWARE_FLAVOUR)[0] == '\0') return;
    snprintf(dst, n, "%s-%s", at(s, SOFTWARE_DRIVER), is_open(s) ? "open" : "dkms");
}

static size_t differ(struct strv *ret, const char *what, const char *found, const char *want, const char *kind) {
    if (found == NULL || want[0] == '\0' || software_version_is(found, want)) return 0;
    if (found[0] == '\0') add(ret, "%s: none was found, %s%s is wanted", what, kind, want);
    else add(ret, "%s: %s was found, %s%s is wanted", what, found, kind, want);
    return 1;
}

size_t software_compare(const struct software_set *want, const struct software_found *found, struct strv *ret) {
    size_t n = 0;
    const char *driver = found->driver;
    if (want->driver_exact[0] != '\0') {
        n += differ(ret, "driver", driver, want->driver_exact, "");
    } else {
        size_t before = n;
        n += differ(ret, "driver", driver, at(want, SOFTWARE_DRIVER), "branch ");
        if (n == before && driver != NULL && driver[0] != '\0' && want->driver_minimum[0] != '\0' &&
            software_version_compare(driver, want->driver_minimum) < 0) {
            add(ret, "driver: %s was found, %s or later is wanted", driver, want->driver_minimum);
            n++;
        }
    }
    n += differ(ret, "kernel modules", found->flavour, at(want, SOFTWARE_FLAVOUR), "");
    n += differ(ret, "CUDA", found->cuda, at(want, SOFTWARE_CUDA), "");
    n += differ(ret, "cuDNN", found->cudnn, at(want, SOFTWARE_CUDNN), "");
    n += differ(ret, "NCCL", found->nccl, at(want, SOFTWARE_NCCL), "");
    if (want->fabric_manager[0] != '\0' && driver != NULL && driver[0] != '\0')
        n += differ(ret, "fabric manager", found->fabric_manager, driver, "the driver's version ");
    return n;
}
