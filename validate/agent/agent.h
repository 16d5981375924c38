/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by all parts of the agent: results and their output, the checks' vtable, and the differences between
 * gpuprov-agent (host) and gpuprov-agent-cuda. Depends on core/base and validate/suite/checks.h only.
 * docs/agent-protocol.md describes the lines. */
#ifndef GP_AGENT_H
#define GP_AGENT_H

#include "base/error.h"
#include "base/str.h"
#include "validate/agent/comm/comm.h"
#include "validate/agent/device/device.h"
#include "validate/suite/checks.h"
#include "validate/suite/limits.h"
#include "validate/suite/models.h"
#include "validate/suite/protocol.h"

struct agent_metric {
    const struct check_metric_info *info;
    double value;
    struct limit limit; /* set by agent_judge: its limit; LIMIT_NONE before */
};

/* One check's outcome. agent_result_init first; starts as pass. */
struct agent_result {
    const struct check_info *check;
    int gpu;  /* -1: not about one GPU; else reported as "gpu" */
    int rank; /* -1: not a gang check; else reported as "rank" */
    enum verdict verdict;
    enum verdict faults, by_limits; /* set by agent_judge: verdicts by faults alone, by limits alone */
    char code[48];                  /* "low_disk"; "" on pass */
    char message[400];              /* one line */
    char suggestion[400];           /* "" : the table's, when not pass */
    int64_t took_ms;
    struct agent_metric metrics[GP_ARRAY_LEN(((struct check_info *)0)->metrics)];
    size_t n_metrics;
    /* The row of BY_MODEL figures: the model and the conditions of the measurement (gpus, bytes, nvls, nvlink;
     * models.h). agent_about sets the model from the context; nccl.* sets the rest. Reported as data.conditions. */
    struct limit_about about;
    char note[300];      /* added to the message of a missed limit; reported as data.note */
    struct str culprits; /* gang: the ranks to blame, "1,3"; reported as data.culprits; "": none */
    struct str data;     /* members of the JSON object "data", without braces */
};
void agent_result_init(struct agent_result *r, const struct check_info *check);
void agent_result_clear(struct agent_result *r);

/* A worse verdict replaces the earlier one; an equal or better one is ignored (first wins). */
void agent_set(struct agent_result *r, enum verdict v, const char *code, const char *fmt, ...) GP_PRINTF(4, 5);
/* From an error of a library call: fail or error with the error's text. */
void agent_set_error(struct agent_result *r, enum verdict v, const char *code, const struct gp_error *err);
/* The message of a pass ("8 of 8 GB/s ..."); ignored unless the verdict is pass. */
void agent_say(struct agent_result *r, const char *fmt, ...) GP_PRINTF(2, 3);
void agent_suggest(struct agent_result *r, const char *fmt, ...) GP_PRINTF(2, 3);
/* name must be in the check's row (its unit comes from there); not finite: the verdict becomes error. */
void agent_metric(struct agent_result *r, const char *name, double value);
/* Adds "key": value to data. */
void agent_data_str(struct agent_result *r, const char *key, const char *value);
void agent_data_num(struct agent_result *r, const char *key, double value);
void agent_data_int(struct agent_result *r, const char *key, int64_t value);
void agent_data_bool(struct agent_result *r, const char *key, bool value);
void agent_data_nums(struct agent_result *r, const char *key, const double *v, size_t n); /* array */
void agent_culprit(struct agent_result *r, int rank);
/* Judges by limits.h the same check's results of a node's GPUs, before they are merged, or one result (n 1).
 * record: the results take these verdicts and limits. false if the caller judges: they keep faults and figures, and
 * by_limits only decides whether the run continues. */
void agent_judge(struct agent_result *each, size_t n, bool record);
/* The verdict and limit of a figure of r, without recording them. For a check that then searches for the culprit.
 * LIMIT_NONE and a pass: r has no such figure. */
enum verdict agent_limit(const struct agent_result *r, const char *metric, struct limit *ret);
/* Puts m into the figures of r if r has none of its name, or a better one. */
void agent_metric_worst(struct agent_result *r, const struct agent_metric *m);
/* Adds {"model": ..., "gpus": ...}, the conditions of BY_MODEL figures, between prefix and suffix; adds nothing if
 * the model is not known. */
void agent_conditions(const struct agent_result *r, const char *prefix, const char *suffix, struct str *s);
/* The line {"type":"result",...}\n, at most AGENT_LINE_MAX (data that does not fit is dropped, and the line reports
 * it). */
void agent_result_line(const struct agent_result *r, struct str *ret);
/* A double in JSON: 6 significant digits, no NaN or infinity (null). */
void agent_json_num(struct str *s, double v);

/* A rank of a gang, as known to all others. */
struct gang_who {
    char host[64];
    int32_t gpu;      /* -1: none */
    int32_t node;     /* the first rank of its node: ranks with the same one share a machine */
    int32_t open;     /* opening its GPU: 1 done; 0 something is missing; -1 a fault (why) */
    int32_t alike;    /* several ranks share its GPU: logic only, no figure */
    int32_t cores;    /* of its machine */
    int32_t own;      /* hundredths of a core that its node may use */
    uint64_t machine; /* ranks with the same one share its cores; 0: not known */
    char pci[24];
    char why[160];
};

/* The input of a check. */
struct check_ctx {
    const char *host;    /* hostname, for messages */
    int64_t deadline_ms; /* monotonic: give up by then (a killed worker reports less) */
    int64_t budget_ms;   /* its share of the time, for this GPU where GPUs take turns: the stated seconds, or more in
                          * a row with `stretch` */
    bool has_controller_now;
    bool same_clock;               /* the caller runs on this machine: its clock proves nothing */
    int64_t clock_offset_ms;       /* this node's wall clock minus the controller's; includes the command's
                               * way to the node, so it is too large by up to a second or two */
    int gpu;                       /* CHECK_GPU: which; -1 otherwise. A rank's own GPU; -1: none */
    int gpus;                      /* GPUs of this node that have a worker (or a rank) */
    int turn_fd;                   /* a file that the workers lock for what one GPU at a time may do; 0: alone */
    const struct gpu_model *model; /* of gpu, once it is open; NULL: none, or not in the table */
    int gpus_expected;             /* --gpus: the number bought; -1: not given */
    int rdma_expected;             /* --rdma: RDMA devices that the cloud attached; 0: not given */
    const char *gpu_model_bought;  /* --gpu-model: its name in the spec or the offer; NULL: not given */
    const char *container_engine;  /* --container-engine: the spec's; NULL: it has none */
    struct device *dev;            /* CHECK_GPU with a GPU: opened once per worker; else NULL */
    /* CHECK_GANG only */
    const char *bind;                 /* this rank's private address */
    const char *python;               /* --python: the interpreter of checks of frameworks; NULL: the usual ones */
    const char *images;               /* --images: full names of container images, by commas; NULL: none */
    struct comm *comm;                /* of comm_tcp, host memory: records, rendezvous, net.pair */
    const struct device_ops *dev_ops; /* train.ddp's device; with GPUs dev is its device */
    const struct comm_ops *data_ops;  /* for its gradients, and the communicator */
    struct comm *data;
    const struct gang_who *who; /* per rank: its node and its GPU */
    char no_gpu[320];           /* why a gang of GPUs runs without them. Its train.ddp covers no GPU */
    int no_gpu_culprit;         /* the rank that no_gpu is about; -1: none */
    struct comm *stuck;         /* NCCL that did not start, for the search for the culprit; or NULL */
    bool no_gpu_fail;           /* no_gpu is a fault (a GPU or a link), not a missing part */
    /* Replaces data by a new communicator that uses NCCL_ALGO=Ring NCCL_PROTO=Simple only; on failure nothing may
     * use it. NULL: data has no other algorithm. */
    int (*data_plain)(struct check_ctx *c, struct gp_error *err);
    bool same_gpu; /* all ranks of this node are on one GPU: logic only, no figure */
    int rank, size;
    uint64_t seed;
    unsigned precisions;      /* of train.ddp: bits 1 << GEMM_F32 (always done), 1 << GEMM_BF16, 1 << GEMM_F16;
                          * 0: the device's own choice (all on a GPU, fp32 on the host) */
    int steps;                /* of train.ddp */
    int64_t timed_ms;         /* of its large model; 0: the usual time */
    int64_t stall_ms;         /* how long a peer may be silent, or a collective exceed its expected time */
    struct gp_error comm_err; /* set by a check when comm failed or must end: nothing may use it then */
};

/* Sets the conditions of r's BY_MODEL figures to the GPU of c and the number of GPUs; a check may change them. */
void agent_about(struct agent_result *r, const struct check_ctx *c);

struct gpu_identity {
    char pci[32];               /* "0000:01:00.0"; "" */
    unsigned device, subsystem; /* PCI ids without the vendor; 0: not known */
    bool exclusive;             /* its compute mode allows one process at a time */
};

struct check_ops {
    const char *id; /* a row of check_table; NULL ends a list */
    /* True if it can run here; false after agent_set(r, VERDICT_SKIPPED, ...) with the reason. NULL: always. */
    bool (*needs)(struct check_ctx *c, struct agent_result *r);
    /* Measures and verifies, in a worker process that is killed when the limit passes. */
    void (*run)(struct check_ctx *c, struct agent_result *r);
    /* After run, unless skipped or error: sets faults that a comparison of the figures shows, with their culprits.
     * Limits are not judged here (agent_judge). NULL: nothing. */
    void (*conclude)(struct check_ctx *c, struct agent_result *r);
    /* CHECK_GPU: loads its libraries, in its worker, with the GPU open and before the time begins. The check reports
     * a failure of it. NULL: nothing. */
    void (*load)(struct check_ctx *c);
    /* CHECK_GPU, in the parent: compares the GPUs' results before they are merged and worsens some of them. NULL:
     * nothing. */
    void (*compare)(struct agent_result *each, size_t n);
};

/* Of the verb watch, in ms. */
struct watch_opts {
    int64_t every_ms;   /* the period */
    int64_t stalled_ms; /* how long a GPU may be busy at low power until that is reported */
};

/* The differences between the two programs: kind_host.c or kind_cuda.c defines it. */
struct agent_kind {
    const char *name;                   /* "host", "cuda" */
    const struct device_ops *device;    /* the device of GPU checks */
    const struct comm_ops *comm;        /* the communicator of train.ddp's gradients */
    const struct check_ops *gpu_checks; /* id NULL ends; may be empty */
    const struct check_ops *gpu_other;  /* used for each CHECK_GPU row without code in gpu_checks; or NULL */
    /* GPUs to make workers for, counted without starting the driver (/dev/nvidiaN). NULL: 0. */
    int (*gpu_count)(void);
    /* Loads the driver's library and starts it, without a context: in the host's worker, before the time begins.
     * NULL: nothing to load. */
    int (*start)(struct gp_error *err);
    /* Identifies an open GPU. Unknown fields stay unchanged. NULL: not possible. */
    void (*identify)(int index, struct gpu_identity *ret);
    /* Adds the other processes that hold this GPU: "1234 (python3), 1240"; nothing if they are not known. May be
     * NULL. */
    void (*holders)(int index, struct str *ret);
    /* Turns an error of device->open into a verdict with advice. NULL: fail(no_device). */
    void (*device_failed)(struct agent_result *r, const struct gp_error *err);
    /* Description of an open device (GPU model, driver, libraries). Devices with equal descriptions must produce
     * bit-identical results. NULL: the CPU, which always does. */
    void (*device_kind)(struct device *d, char *dst, size_t n);
    /* Around every check that uses a GPU, in its worker: counters (ECC, remaps, NVLink, PCIe, Xid,
     * throttling) are read before and after, and a counter that moved worsens the verdict. May be NULL. */
    void (*before)(struct check_ctx *c);
    void (*after)(struct check_ctx *c, struct agent_result *r);
    /* The verb watch: watches that GPU, in a worker process (watch/watch.h), until `in` has something or ends; then it
     * looks once more. NULL: no GPU can be watched. */
    void (*watch)(int gpu, const struct watch_opts *opts, int in, int out);
    /* Adds members, each with a leading comma, to the hello line (libraries found...). May be NULL.
     * Called in the parent: must not start CUDA (it would not survive fork). */
    void (*hello)(struct str *json);
};
extern const struct agent_kind agent_kind;

extern const struct check_ops host_checks[];             /* CHECK_NODE rows of both programs */
extern const struct check_ops gang_checks[];             /* CHECK_GANG rows of both programs */
const struct check_ops *agent_check_ops(const char *id); /* NULL: this program has no such check */

int agent_dev_nvidia_count(void); /* /dev/nvidia0, 1, ...: device files, no driver call */

/* Cores that this process may use, by affinity and cgroup quota; *ret_online: the machine's cores. */
double agent_cores(int *ret_online);
/* Bytes of memory that it may use: the machine's, or the lower cgroup limit. */
int64_t agent_memory_bytes(int64_t *ret_machine);

#ifdef GPUPROV_FAULTS
/* Test-only builds: GPUPROV_FAULT="kind:rank:step" of the environment. */
bool agent_fault(const char *kind, int rank, int step);
#else
static inline bool agent_fault(const char *kind, int rank, int step) {
    (void)kind, (void)rank, (void)step;
    return false;
}
#endif

#endif
