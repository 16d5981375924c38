/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of the tables (table.c, table_torch.c, gpus.c) and what the solver's files share. Private to this folder.
 * A version is text and compared by its numbers. */
#ifndef GP_SOFTWARE_ROWS_H
#define GP_SOFTWARE_ROWS_H

#include "software/software.h"

/* Tables are in the order of preference: newest first. They end with a NULL name. */
struct branch_row {
    const char *name;   /* "580" */
    const char *first;  /* first full version of it for data centers */
    const char *cuda;   /* newest CUDA that it runs without limits */
    int cc_min, cc_max; /* compute capability of the GPUs that it drives */
    bool proprietary;   /* has proprietary modules */
    bool open;          /* has open modules */
    const char *kind;   /* "LTS", "production", "new feature"; NULL: not published where we looked */
    const char *ends;   /* month of its last update, "2028-06"; NULL: not published where we looked */
    const char *source;
};
extern const struct branch_row software_branches[];

/* Module flavours and sources as rows, so that the solver handles all keys alike. */
struct word_row {
    const char *name;
};
extern const struct word_row software_flavours[]; /* open, proprietary */
extern const struct word_row software_sources[];  /* nvidia, distro */
#define IS_OPEN(p) ((p)->flavour == &software_flavours[0])
#define IS_DISTRO(p) ((p)->origin == &software_sources[1])

struct cuda_row {
    const char *name;       /* "13.0" */
    const char *driver;     /* branch that it came with: all features */
    const char *driver_min; /* full version from which minor version compatibility works */
    int cc_min, cc_max;     /* GPUs that its compiler and libraries have code for */
    const char *source;
};
extern const struct cuda_row software_cudas[];

struct cudnn_row {
    const char *name;    /* "9.17.0" */
    const char *package; /* "9.17.0.29" */
    int cuda_major;      /* one row for each */
    const char *cuda_min, *cuda_max;
    int cc_min;
    const char *source;
};
extern const struct cudnn_row software_cudnns[];

struct nccl_row {
    const char *name; /* "2.28.9" */
    const char *cuda; /* of the package: "13.0" */
    int cc_min, cc_max;
    const char *source;
};
extern const struct nccl_row software_nccls[];

struct torch_row {
    const char *name;       /* "2.9.1" */
    const char *tag;        /* "cu130" */
    const char *cuda;       /* "13.0" */
    const char *driver_min; /* full version */
    int cc[10];             /* GPUs that it has code for; 0 ends; runs on later ones of the same major number too */
    int ptx;                /* also as PTX, for later GPUs; 0: none */
    const char *glibc, *python;
    const char *source;
};
extern const struct torch_row software_torches[];

/* Frameworks beside PyTorch: up to this version, what is known of them. */
struct framework_row {
    const char *name, *version;    /* "tensorflow", "2.21"; later versions are not judged */
    const char *cuda, *driver_min; /* of the wheel; NULL: it has none */
    int cc_min, cc_max;            /* 0: any */
    const char *torch_below;       /* builds with older PyTorch only; NULL: any */
    const char *source;
};
extern const struct framework_row software_frameworks[];
/* The row that counts for a version ("" for the newest); NULL: none, or the version is later than the row's. */
const struct framework_row *software_framework(const char *name, const char *version);

struct os_row {
    const char *name;       /* begins the name of a system: "rhel-9" */
    const char *family;     /* "apt", "dnf"; "": not known here */
    const char *repository; /* NVIDIA's; "": it has none */
    const char *branch_min; /* of NVIDIA's drivers there */
    const char *branch_max; /* NULL: goes on */
    const char *cuda_min, *cuda_max;
    const char *distro; /* branches that the distribution itself has: "535 580"; "": none */
    bool distro_open;   /* they have open modules too */
    const char *glibc, *python;
    const char *source;
};
extern const struct os_row software_systems[];
const struct os_row *software_system(const char *os); /* NULL: no row */

/* A kernel for which a branch builds from some version on, or not at all. The first row that fits counts. */
struct kernel_row {
    const char *name;   /* from this kernel on: "7.0"; with three numbers, "6.12.107", only within 6.12 */
    const char *branch; /* "590" */
    const char *fixed;  /* builds from this full version of the branch on; NULL: no version does */
    const char *source;
};
extern const struct kernel_row software_kernels[];

/* --- an assignment --- */

struct pick { /* NULL: left alone */
    const struct branch_row *branch;
    const struct word_row *flavour, *origin;
    const struct cuda_row *cuda;
    const struct cudnn_row *cudnn;
    const struct nccl_row *nccl;
    const struct torch_row *torch;
};
struct world {
    const struct software_wish *wish;
    const struct os_row *os; /* NULL: not known */
    char driver_exact[24];   /* full version that was wished, or that is loaded */
};
#define BIT(k) (1u << (k))

struct rule {
    const char *id;
    unsigned keys;                                              /* the values and facts that it looks at */
    bool (*holds)(const struct world *w, const struct pick *p); /* called with all of them there */
    /* Why it does not hold, without the names of the values: "CUDA 13 has no code for GPUs before Turing". */
    void (*why)(const struct world *w, const struct pick *p, char *dst, size_t n);
    const char *doc;                                                    /* for docs/software.md */
    const char *(*source)(const struct world *w, const struct pick *p); /* NULL: `from` */
    const char *from;
};
extern const struct rule software_rules[]; /* ended by a NULL id */

/* The values of `keys` that are NULL in p or unknown in w make a rule not apply. */
bool software_applies(const struct rule *r, const struct world *w, const struct pick *p);
/* "CUDA 13.0", "driver 535", "V100 (Volta, sm_70)". */
void software_name(const struct world *w, const struct pick *p, enum software_key k, char *dst, size_t n);
const struct branch_row *software_branch_of(const char *version); /* by "580" or "580.65.06"; NULL: no row */
bool software_torch_covers(const struct torch_row *t, int cc);
const char *software_kernel_needs(const char *kernel, const char *branch, bool *ret_none, const char **ret_source);

/* --- solve.c --- */

/* The best assignment in which the wishes and facts of `active` (bits) hold. prefer NULL, or the assignment that free
 * values should stay close to. False: none. */
bool software_search(const struct world *w, unsigned active, const struct pick *prefer, struct pick *ret);
void software_world(const struct software_wish *wish, struct world *ret);
void software_exact(struct world *w, unsigned active);   /* sets driver_exact by the active wishes and facts */
const void *software_row(enum software_key k, size_t i); /* NULL after the last */
const char *software_row_name(const void *row);
const void *software_get(const struct pick *p, enum software_key k);
void software_put(struct pick *p, enum software_key k, const void *row);
const char *software_text(const struct software_wish *w, enum software_key k); /* of the wish; may be NULL */
bool software_is_fixed(const struct software_wish *w, enum software_key k);    /* neither auto nor none */
bool software_matches(enum software_key k, const void *row, const char *text);

void software_fill(const struct world *w, const struct pick *p, struct software_set *ret); /* set.c */
void software_find_clashes(const struct world *w, struct software_clashes *ret);           /* clash.c */

#endif
