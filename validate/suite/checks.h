/* SPDX-License-Identifier: Apache-2.0 */
/* The check table's facts: one row per check, compiled into the controller and into both agents.
 * The run functions are the agent's (validate/agent/). Depends on core/base only. */
#ifndef GP_CHECKS_H
#define GP_CHECKS_H

#include "base/gp_base.h"

/* A CHECK_GPU row has the figure "gpus": on how many it ran; fewer than the spec's is no pass. */
enum check_level { CHECK_NODE, CHECK_GPU, CHECK_GANG };
enum check_need {
    NEED_NOTHING = 0,
    NEED_GPU = 1,
    NEED_ROOT = 2,
    NEED_PEERS = 4 /* 2+ nodes */,
    NEED_GPUS = 8 /* 2+ GPUs: in the node (CHECK_GPU), in the gang (CHECK_GANG) */
};

/* A figure that is a size of the node, in the figure's unit. */
enum check_capacity { CAPACITY_NONE, CAPACITY_CORES, CAPACITY_MEMORY_GIB };
struct check_metric_info {
    const char *name, *unit; /* NULL name ends the list */
    bool ceiling;            /* a limit from above (latency, clock offset) */
    bool positive;           /* zero is impossible: it means that nothing was measured */
    bool optional;           /* some sound nodes have no such figure, though it has a limit */
    bool by_model;           /* the GPU model table has the limits; fail and degraded are -1 here */
    const char *sheet;       /* by_model: the data sheet's value, an upper bound of the figure: a name of
                              * gpu_model_spec, "pcie" (by generation and width), "link" (NVLink, else PCIe) */
    const char *rated_as[2]; /* by_model: the check and figure whose rows of the model table rate it; NULL: its own */
    enum check_capacity capacity; /* what a scheduler may use of the node; CAPACITY_NONE: it is about something else */
    bool peers;                   /* a rate that sound peers share: compared over GPUs and nodes (so is by_model) */
    double fail, degraded;        /* default limits; negative: none (only reported) */
    const char *source;           /* where the limits come from; "" with none */
};
struct check_info {
    const char *id; /* "host.memory", "net.bandwidth", "train.ddp" */
    enum check_level level;
    unsigned needs;
    int seconds;   /* the longest run on a sound node with one GPU; selects checks within validate.time */
    int each_ms;   /* more for each further GPU of the node */
    int longer;    /* CHECK_GANG: more seconds of its long form, which it gets if the time suffices */
    bool required; /* by default, if the time suffices; validate.require adds to these */
    bool may_skip; /* required, but skipped on some sound nodes: not held against them unless the spec demands it */
    bool core;     /* always required: a verdict is meaningless without it */
    int telling;   /* how often this check is the one that finds a bad node, 1 (seldom; 0 counts as 1) to 10; with
                    * `seconds` it gives the order (pick.h) */
    bool stretch;  /* a longer run finds more: it gets the rest of --time (check_ctx.budget_ms) */
    bool together; /* CHECK_GPU: GPUs run side by side, because that does not disturb the figure;
                           * else one after the other while the others are idle. Each such check begins
                           * when no GPU is busy any more */
    /* Properties for the code around a check; no code names a check by its id (tests/lint/check_ids.py). */
    bool identifies;    /* it identifies the node's GPUs and driver; other GPU results need it */
    bool products;      /* its random products must be the same on all GPUs of one way to multiply */
    bool loads_link;    /* data runs between host and GPU all the time, so the PCIe link is at full speed */
    bool idle;          /* no load on its GPU */
    bool on_host;       /* CHECK_GANG: the agent opens no GPU for it */
    bool engine;        /* it starts containers: required where the spec has bootstrap.container */
    const char *python; /* CHECK_GANG: it runs this module in the Python of the spec's bootstrap.python; NULL: none */
    bool images;        /* CHECK_GANG: it runs in the images of the spec's bootstrap.container */
    bool proves_gpus;   /* CHECK_GANG: with ranks that have GPUs, one computed without them is an error */
    const char *finds, *how, *suggestion; /* for docs/checks.md */
    const char *gpu_only;                 /* the part that only a real GPU can show, and no test covers; or NULL */
    struct check_metric_info metrics[16];
};
extern const struct check_info check_table[]; /* id NULL ends */
#define TRAIN_SHORT_MS 3000                   /* train.ddp's large model, without the long form */
#define GPUS_USUAL 8                          /* of a node, where a text states one number of seconds */
const struct check_info *check_find(const char *id);
int check_stated(const struct check_info *check, int gpus); /* seconds on a node with so many GPUs */
const struct check_metric_info *check_info_metric(const struct check_info *check, const char *name); /* NULL: none */
size_t check_count(void);

#endif
