/* SPDX-License-Identifier: Apache-2.0 */
/* The outcome of validation: check results per node and for the gang, figures with their floors. */
#ifndef GP_MODEL_REPORT_H
#define GP_MODEL_REPORT_H

#include "base/error.h"
#include "base/json.h"
#include "base/str.h"
#include "base/vec.h"
#include "base/verdict.h"

struct metric {
    char *name; /* "bandwidth" */
    double value;
    char *unit; /* "GB/s" */
    bool has_floor;
    double floor; /* lower limit, or upper limit when `ceiling` */
    bool ceiling;
    bool has_degraded; /* there is a second limit, at which degraded begins */
    double degraded;
    bool unrated;    /* no reference value is known: it does not count for the verdict */
    char *source;    /* where the floor comes from: "spec", "table: ..."; "" */
    double measured; /* typical value of sound GPUs of this model; 0: unknown or independent of the model */
};
/* Above its floor, or below its ceiling. True when it has none; false when it is not finite. */
bool metric_holds(const struct metric *m);

struct check_result {
    char *check; /* id: "train.ddp" */
    enum verdict verdict;
    bool required;
    char *code;       /* short stable name of the finding: "low_disk"; "" on pass */
    char *message;    /* one line; for skipped: the reason */
    char *suggestion; /* next step; "" */
    int64_t took_ms;
    VEC_OF(struct metric) metrics;
    json_t *data; /* further figures (loss curve, per rank); may be NULL */
};
void check_result_clear(struct check_result *r);
const struct metric *check_metric(const struct check_result *r, const char *name); /* or NULL */
/* GPU i of a check with figures per GPU (data.gpus); NULL past the last. Borrowed. Its members:
 * "gpu" (index), "verdict", "metrics" {name: value}, and the check's own. */
const json_t *check_gpu(const struct check_result *r, size_t i);

struct report_node {
    int slot;
    char *id, *place, *address, *host; /* instance id, "aws us-east-2a", login address, hostname */
    char *image;                       /* that it was made from, by its provider's id; "": not known, or none */
    char boot_id[40];                  /* the boot that its own checks ran in; "": unknown */
    int64_t load_ms; /* how long the node's driver took to load, before the clock of its checks; 0: none */
    bool ready;
    VEC_OF(struct check_result) checks; /* node checks, then this node's share of the gang's */
};

/* The check that identifies a node's GPUs and driver; kept reports use this name. Its row has `identifies`. */
#define REPORT_IDENTITY_CHECK "gpu.presence"
/* Results of that check on a node: one of its GPUs (by the driver's index), its driver. "" where not
 * reported. Borrowed. */
const char *report_node_gpu(const struct report_node *n, int gpu, const char *member);
const char *report_node_driver(const struct report_node *n);

struct report {
    char *stack, *uid, *run; /* run: id of this validation */
    int64_t started_s, took_ms;
    bool strict;
    VEC_OF(struct report_node) nodes;
    VEC_OF(struct check_result) gang; /* checks over all nodes together */
    bool ready;                       /* every node is */
    char *outdated;                   /* set when a kept report is read: the change since it was written; NULL: none */
};
void report_clear(struct report *r);
/* Sets ready of each node and of the whole: every required check ran and is pass or degraded (only
 * pass with strict), and there was at least one required check. */
void report_judge(struct report *r);
enum node_check report_node_check(const struct report *r);
json_t *report_to_json(const struct report *r); /* new reference; "schema": "gpuprov/report/v1" */
int report_from_json(const json_t *j, struct report *ret, struct gp_error *err);
/* One agent line's "result" object to a check_result; unknown fields are ignored:
 * {"check","verdict","required","code","message","suggestion","took_ms","metrics":[{"name","value",
 * "unit","floor"|"ceiling","degraded","unrated","measured","source"}],"data"}. "check" and "verdict" are
 * needed; a null value is NaN. */
int check_result_from_json(const json_t *j, struct check_result *ret, struct gp_error *err);
json_t *check_result_to_json(const struct check_result *r);

#endif
