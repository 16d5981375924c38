/* SPDX-License-Identifier: Apache-2.0 */
/* `train`: the timed run of train.ddp alone, on one GPU, so that its rate can be held against another
 * program's on the same one. Says one result line. It proves nothing about a node: a worker's watch and
 * the other conditions are train.ddp's. One thread. */
#include "base/gp_base.h"

#include "validate/agent/verbs.h"

#include "base/clock.h"
#include "train.h"

#define BEYOND_MS 120000 /* for the driver's start and the model's */

static int open_all(struct check_ctx *c, struct gp_error *err) {
    int r = comm_tcp_alone(&device_host, NULL, c->deadline_ms, &c->comm, err);
    c->data = c->comm; /* a gang of one sums nothing */
    return r == 0 ? c->dev_ops->open(c->gpu, &c->dev, err) : r;
}

int verb_train(int argc, char **argv) {
    struct gp_error err = {0};
    int64_t gpu = 0, time_ms = 8000;
    const char *precision = "bf16";
    bool json = false;
    const struct arg args[] = {{"--gpu", ARG_INT, false, &gpu},
                               {"--time", ARG_MS, false, &time_ms},
                               {"--precision", ARG_TEXT, false, &precision},
                               {"--json", ARG_FLAG, false, &json},
                               {.name = NULL}};
    int rc = args_parse(argc, argv, args, &err);
    if (rc == 0 && !str_eq(precision, "bf16") && !str_eq(precision, "fp16"))
        rc = gp_fail(&err, GP_EUSAGE, "--precision: '%s' is neither bf16 nor fp16", precision);
    if (rc == 0 && (gpu < 0 || gpu > 1023 || time_ms < 1 || time_ms > 3600000))
        rc = gp_fail(&err, GP_EUSAGE, "--gpu is a GPU's number, --time at most an hour");
    struct check_ctx c = {.deadline_ms = clock_deadline(time_ms + BEYOND_MS),
                          .gpu = (int)gpu,
                          .gpus = 1,
                          .gpus_expected = -1,
                          .size = 1,
                          .seed = 1,
                          .no_gpu_culprit = -1,
                          .dev_ops = agent_kind.device,
                          .data_ops = &comm_tcp};
    if (rc == 0) rc = open_all(&c, &err);
    if (rc != 0) {
        fprintf(stderr, "gpuprov-agent train: %s\n", err.msg);
        comm_tcp.abort(c.comm, NULL, -1);
        return NODE_CHECK_UNKNOWN;
    }
    struct agent_result r;
    GP_AUTO_STR struct str line = {0};
    agent_result_init(&r, check_find("train.ddp"));
    int64_t began = clock_ms();
    train_speed(&c, &r, str_eq(precision, "bf16") ? GEMM_BF16 : GEMM_F16, (double)time_ms / 1000);
    r.took_ms = clock_ms() - began;
    agent_result_line(&r, &line);
    fputs(line.s, stdout);
    c.dev_ops->close(c.dev);
    comm_tcp.abort(c.comm, NULL, -1);
    int status = r.verdict == VERDICT_PASS ? 0 : r.verdict == VERDICT_FAIL ? 2 : NODE_CHECK_UNKNOWN;
    agent_result_clear(&r);
    return status;
}
