/* SPDX-License-Identifier: Apache-2.0 */
/* The solver of GPU software: which driver branch, kernel modules, CUDA, cuDNN, NCCL and PyTorch build fit a GPU, an
 * operating system and a kernel together. Facts are rows of table.c, each with its source. Pure; any thread; all
 * strings of the tables are static. */
#ifndef GP_SOFTWARE_H
#define GP_SOFTWARE_H

#include "base/str.h"

/* --- GPUs --- */

struct software_gpu {
    const char *name;   /* as the caller named it, or "GPU 10de:2330" */
    const char *family; /* "Hopper" */
    int cc;             /* compute capability: 90 for 9.0 */
    bool grace;         /* joined to a Grace CPU */
    int nvswitch;       /* 1: always behind an NVSwitch, 0: never, -1: depends on the board (A100, H100, H200) */
    bool nvl72;         /* the NVLink reaches other nodes: IMEX is needed */
    bool consumer;      /* a GeForce or Titan, as far as the name tells; a PCI id does not */
};
/* By a name as people and clouds write it ("H100", "nvidia-tesla-v100", "A100-SXM4-80GB"), or by the PCI device id.
 * False: not known. */
bool software_gpu_named(const char *text, struct software_gpu *ret);
bool software_gpu_pci(unsigned device, struct software_gpu *ret);

/* --- wish and answer --- */

/* Facts and wishes. A wish is "auto": the newest that fits; "none": leave it alone; or a value. NULL is "auto", but
 * CUDA, cuDNN, NCCL and PyTorch are then left out where none fits, instead of a refusal. Borrowed. */
struct software_wish {
    /* facts */
    struct software_gpu gpu; /* cc 0: not known, no rule about the GPU applies */
    int gpus, nvswitches;    /* of one node; nvswitches -1: not known */
    const char *os;          /* "ubuntu-24.04", "debian-12", "rhel-9.4", "amzn-2023"; NULL: not known */
    const char *kernel;      /* uname -r; NULL: not known */
    const char *loaded;      /* version of the driver that is there and stays, "550.90.07"; NULL: none */
    /* packages of Python that will be installed: their version, or "" for the newest; NULL: they are not */
    const char *tensorflow, *horovod, *deepspeed;
    const char *python; /* version of the interpreter that will be used, "3.12"; NULL: the system's */
    bool toolkit;       /* the wish `cuda` is a toolkit with a compiler */
    /* wishes */
    const char *driver;  /* branch "580", or a full version "580.95.05" */
    const char *flavour; /* "open", "proprietary" */
    const char *source;  /* "nvidia" (also for a mirror), "distro" */
    const char *cuda;    /* "13.0"; "13": the newest of 13 */
    const char *cudnn;   /* "9.10.2"; "9" */
    const char *nccl;    /* "2.28.9"; "2" */
    const char *torch;   /* "2.9", "2.9.1", "cu126", "2.9.1+cu126" */
};

/* The values that a wish has, in the order of decision. */
enum software_key {
    SOFTWARE_DRIVER,
    SOFTWARE_FLAVOUR,
    SOFTWARE_SOURCE,
    SOFTWARE_CUDA,
    SOFTWARE_CUDNN,
    SOFTWARE_NCCL,
    SOFTWARE_TORCH,
    SOFTWARE_KEYS, /* the facts follow: they take part in clashes only */
    SOFTWARE_GPU = SOFTWARE_KEYS,
    SOFTWARE_OS,
    SOFTWARE_KERNEL,
    SOFTWARE_LOADED,
    SOFTWARE_TENSORFLOW,
    SOFTWARE_HOROVOD,
    SOFTWARE_DEEPSPEED,
    SOFTWARE_PYTHON,
    SOFTWARE_ALL
};
const char *software_key_name(enum software_key k); /* "driver", "cuda", "gpu", ... */

/* text: "" means not wanted, or that none fits. */
struct software_value {
    char text[40];
    char why[360]; /* one or two sentences; never empty */
};
struct software_set {
    struct software_value at[SOFTWARE_KEYS];
    /* Taken from the rows that were chosen. "": not wanted, not known or not needed. */
    char os_family[8];       /* "apt", "dnf" */
    char repository[16];     /* NVIDIA's name of the OS: "ubuntu2404", "rhel9", "amzn2023"; "" for a distro driver */
    char driver_minimum[24]; /* full version: this or a newer one of the branch; "580.65.06" */
    char driver_exact[24];   /* the full version that was wished; "" */
    char cuda_tag[8];        /* "13-0" */
    char cudnn_package[40];  /* "9.17.0.29" */
    char nccl_cuda[8];       /* CUDA that the NCCL package was built with: "13.0" */
    char torch_tag[8];       /* "cu130": https://download.pytorch.org/whl/cu130 */
    char fabric_manager[48]; /* package name for this OS; the version is exactly the driver's */
    bool nvlsm;              /* NVSwitches of NVLink 5: the fabric manager starts NVLSM, a package of its own */
    struct software_value fabric;  /* text: "yes", "no", "if an NVSwitch is found" */
    struct software_value imex;    /* text: package name, or "" */
    struct software_value toolkit; /* minimum version of the container toolkit */
    struct strv notes;             /* what is allowed, with a limit: "CUDA 12.9 on driver 535: ..." */
};
void software_set_clear(struct software_set *s);
#define GP_AUTO_SOFTWARE_SET GP_CLEANUP(software_set_clear)

/* A set of facts and wishes that cannot all hold, none of which can be left out of it. */
struct software_clash {
    unsigned keys;         /* bits 1u << enum software_key */
    enum software_key key; /* the wish that the nearest set changes first; a fact if no wish takes part */
    char facts[480];       /* "CUDA 13.0 and V100 (Volta, sm_70): CUDA 13 has no code for GPUs before Turing (sm_75)" */
    const char *source;    /* of the rule; NULL: several rules together */
    char nearest[200];     /* "driver 580, CUDA 12.9"; "": no set holds even without the wishes */
};
#define SOFTWARE_CLASHES_MAX 8
struct software_clashes {
    struct software_clash at[SOFTWARE_CLASHES_MAX];
    size_t n;
};

/* 0: *ret is filled (clear it). -GP_EUSAGE: clashes has all independent ones. clashes may be NULL. */
int software_solve(const struct software_wish *w, struct software_set *ret, struct software_clashes *clashes);
/* One line per value with its reason, then the notes, for people; caller frees. */
char *software_explain(const struct software_set *s);

/* --- packages --- */

enum software_part {
    SOFTWARE_PART_PIN,    /* apt: nvidia-driver-pinning-580; dnf: none (a module stream or a version lock) */
    SOFTWARE_PART_DRIVER, /* nvidia-open, cuda-drivers, nvidia-driver-580-server-open, ... */
    SOFTWARE_PART_FABRIC,
    SOFTWARE_PART_NVLSM, /* nvlsm infiniband-diags; their versions are not the driver's */
    SOFTWARE_PART_IMEX,
    SOFTWARE_PART_CUDA_RUNTIME, /* cuda-libraries-13-0 */
    SOFTWARE_PART_CUDA_TOOLKIT, /* cuda-toolkit-13-0 */
    SOFTWARE_PART_CUDNN,        /* libcudnn9-cuda-13 */
    SOFTWARE_PART_NCCL,         /* libnccl2=2.28.9-1+cuda13.0 */
    SOFTWARE_PART_CONTAINER     /* nvidia-container-toolkit */
};
/* Adds the packages of that part, as the OS of the set names them. Nothing where the part is not wanted. */
void software_packages(const struct software_set *s, enum software_part part, struct strv *ret);
/* The dnf module stream of the driver: "580-open", "580-dkms"; "": the OS has no modules (RHEL 10, apt). */
void software_module_stream(const struct software_set *s, char *dst, size_t n);

/* --- comparison --- */

struct software_found { /* NULL: not looked at; "": looked for and not there */
    const char *driver; /* "575.57.08" */
    const char *flavour, *cuda, *cudnn, *nccl, *fabric_manager;
};
/* Adds one line for each difference: "driver: 575.57.08 was found, branch 580 is wanted". Returns their number. */
size_t software_compare(const struct software_set *want, const struct software_found *found, struct strv *ret);
/* Compares versions by their numbers: "580.65.06" with "580.119.02". Below 0, 0, above 0. */
int software_version_compare(const char *a, const char *b);
/* True if `version` is `prefix` or begins with its components: "9.10" holds "9.10.2", not "9.1". */
bool software_version_is(const char *version, const char *prefix);

/* --- containers --- */

enum software_container {
    SOFTWARE_CONTAINER_RUNS,
    SOFTWARE_CONTAINER_COMPAT, /* only with the package cuda-compat in the image */
    SOFTWARE_CONTAINER_NOT,
    SOFTWARE_CONTAINER_UNKNOWN /* the tables have no such CUDA */
};
/* Whether a container whose CUDA is "13.0" runs on a driver "550.90.07". gpu may be NULL. why: one sentence unless it
 * runs. */
enum software_container software_container_runs(const char *driver, const char *cuda, const struct software_gpu *gpu,
                                                char *why, size_t n);
/* The same for an image on a node that gets `set`. The name of an image states its CUDA ("nvidia/cuda:13.0.1-base",
 * "pytorch/pytorch:2.9.1-cuda13.0-runtime"); any other is taken to run. A driver that is left alone is not judged. */
enum software_container software_image_runs(const char *image, const struct software_set *set,
                                            const struct software_gpu *gpu, char *why, size_t n);

/* docs/software.md; caller frees. */
char *software_markdown(void);

#endif
