/* SPDX-License-Identifier: Apache-2.0 */
/* train.ddp over two and four GPUs of the stand-in driver: a process for each rank, gradients through a
 * communicator on device memory. Sound GPUs hold every condition with the host's bits; a GPU whose
 * products are wrong is named by all ranks. Twelve steps; the loss limit is not judged here. */
#include "base/gp_base.h"

#include "cuda_world.h"
#include "validate/agent/checks/train/train.h"

#include <sys/wait.h>
#include <unistd.h>

enum { RANKS_MAX = 4, STEPS = 12, DEADLINE_MS = 240000 };
struct said { /* by one rank */
    enum verdict verdict;
    char code[48], message[400], culprits[64], hash[24], device[8];
    double reference, mfu;
};
struct addr {
    char text[80];
};

static void on_listen(void *ctx, const char *addr) {
    struct addr a = {{0}};
    str_put(a.text, sizeof a.text, addr);
    for (int k = 1; k < RANKS_MAX; k++)
        if (write(*(int *)ctx, &a, sizeof a) != (ssize_t)sizeof a) _exit(3);
}

/* pipe: where rank 0 says its address, as often as there can be others; each reads one. */
static void meet(struct comm_setup s, int *pipe, struct comm **ret) {
    struct addr a = {{0}};
    struct gp_error err = {0};
    if (s.rank > 0 && read(pipe[0], &a, sizeof a) != (ssize_t)sizeof a) _exit(4);
    s.rendezvous = a.text;
    s.ctx = &pipe[1];
    if (comm_tcp.init(&s, ret, &err) != 0) _exit(5);
}

static void text_of(const struct agent_result *r, const char *key, char *dst, size_t n) {
    GP_AUTO_FREE char *quoted = xasprintf("\"%s\":\"", key);
    const char *at = r->data.s ? strstr(r->data.s, quoted) : NULL;
    dst[0] = '\0';
    if (at) snprintf(dst, n, "%.*s", (int)strcspn(at + strlen(quoted), "\""), at + strlen(quoted));
}

static double figure(const struct agent_result *r, const char *name) {
    for (size_t i = 0; i < r->n_metrics; i++)
        if (str_eq(r->metrics[i].info->name, name)) return r->metrics[i].value;
    return -1;
}

static void rank(int k, int size, int pipes[2][2], int out) {
    static const unsigned char token[16] = "all of one test";
    struct gp_error err = {0};
    struct said said = {0};
    struct agent_result r;
    struct check_ctx c = {.deadline_ms = clock_deadline(DEADLINE_MS),
                          .gpu = k,
                          .rank = k,
                          .size = size,
                          .seed = 1,
                          .steps = STEPS,
                          .dev_ops = &device_cuda,
                          .data_ops = &comm_tcp,
                          .no_gpu_culprit = -1};
    struct comm_setup s = {.rank = k,
                           .size = size,
                           .bind_ip = "127.0.0.1",
                           .token = token,
                           .token_len = sizeof token,
                           .deadline_ms = c.deadline_ms,
                           .meet_ms = 30000,
                           .stall_ms = 60000,
                           .dev_ops = &device_host,
                           .on_listen = on_listen};
    if (device_cuda.open(k, &c.dev, &err) != 0) _exit(6);
    meet(s, pipes[0], &c.comm);
    s.dev_ops = &device_cuda;
    s.dev = c.dev;
    meet(s, pipes[1], &c.data);
    agent_result_init(&r, check_find("train.ddp"));
    train_run(&c, &r);
    said.verdict = r.verdict;
    str_put(said.code, sizeof said.code, r.code);
    str_put(said.message, sizeof said.message, r.message);
    str_put(said.culprits, sizeof said.culprits, r.culprits.s ? r.culprits.s : "");
    text_of(&r, "parameters_hash", said.hash, sizeof said.hash);
    text_of(&r, "device", said.device, sizeof said.device);
    said.reference = figure(&r, "reference");
    said.mfu = figure(&r, "mfu");
    const char *reason = c.comm_err.code ? c.comm_err.msg : NULL;
    comm_tcp.abort(c.data, reason, comm_culprit(&c.comm_err));
    comm_tcp.abort(c.comm, reason, comm_culprit(&c.comm_err));
    device_cuda.close(c.dev);
    agent_result_clear(&r);
    _exit(write(out, &said, sizeof said) == (ssize_t)sizeof said ? 0 : 7);
}

static void gang(int size, struct said *ret) {
    int pipes[2][2], outs[RANKS_MAX][2], status = 0;
    pid_t pids[RANKS_MAX];
    assert_int_equal(pipe(pipes[0]) | pipe(pipes[1]), 0);
    for (int k = 0; k < size; k++) {
        assert_int_equal(pipe(outs[k]), 0);
        pids[k] = fork();
        if (pids[k] == 0) rank(k, size, pipes, outs[k][1]);
        close(outs[k][1]);
    }
    for (int k = 0; k < size; k++) {
        ssize_t n = read(outs[k][0], &ret[k], sizeof ret[k]);
        waitpid(pids[k], &status, 0);
        close(outs[k][0]);
        if (n != (ssize_t)sizeof ret[k]) fail_msg("rank %d said nothing (status 0x%x)", k, (unsigned)status);
    }
    for (int i = 0; i < 4; i++) close(pipes[i / 2][i % 2]);
}

struct gang_case {
    const char *name;
    int size, culprit;                        /* culprit -1: sound */
    const char *driver, *library, *code, *in; /* in: what the message names */
};

static void test_gang(void **state) {
    const struct gang_case *g = *state;
    struct said said[RANKS_MAX];
    GP_AUTO_FREE char *driver = xasprintf("gpus=%d%s", g->size, g->driver);
    setenv("GPUPROV_STANDIN", driver, 1);
    setenv("GPUPROV_STANDIN_CUBLASLT", g->library, 1);
    gang(g->size, said);
    for (int k = 0; k < g->size; k++) {
        char want[16] = "";
        if (g->culprit >= 0) snprintf(want, sizeof want, "%d", g->culprit);
        if (said[k].verdict != (g->culprit < 0 ? VERDICT_PASS : VERDICT_FAIL) || !str_starts(said[k].code, g->code) ||
            strcmp(said[k].culprits, want) != 0 || strstr(said[k].message, g->in) == NULL)
            fail_msg("rank %d says %s (%s): %s; to blame: '%s'", k, verdict_name(said[k].verdict), said[k].code,
                     said[k].message, said[k].culprits);
        assert_string_equal(said[k].device, "cuda");
        if (g->culprit >= 0) continue;
        assert_string_equal(said[k].hash, said[0].hash);
        assert_true(said[k].reference > 0 && said[k].reference < 0.2 && said[k].mfu > 0);
    }
}

int main(int argc, char **argv) {
    (void)argc;
    static const struct gang_case cases[] = {
        {"two sound GPUs", 2, -1, "", "", "", "computed on cuda"},
        {"four sound GPUs", 4, -1, "", "", "", "computed on cuda"},
        /* the fp32 model, whose products are our own kernel's */
        {"a mantissa bit, two GPUs", 2, 1, ",gpu=1,gemm_bit=13", "", "wrong_gradient", "rank 1"},
        {"a sign, two GPUs", 2, 0, ",gpu=0,gemm_bit=31", "", "wrong_gradient", "rank 0"},
        {"a mantissa bit, four GPUs", 4, 2, ",gpu=2,gemm_bit=13", "", "wrong_gradient", "third rank"},
        {"NaN", 2, 1, ",gpu=1,gemm_nan=1", "", "bad_gradient", "rank 1"},
        /* bf16, whose products are the library's */
        {"a wrong tile, two GPUs", 2, 1, "", "gpu=1,tile=1", "wrong_gradient", "bf16"},
        {"a wrong tile, four GPUs", 4, 3, "", "gpu=3,tile=1", "wrong_gradient", "bf16"},
        {"NaN of the library", 2, 0, "", "gpu=0,nan=1", "bad_gradient", "bf16"},
        {"off the bus", 2, 1, ",gpu=1,lost=999,lost_after=3000", "", "rank_", "gpu 1"},
    };
    use_standins(argv[0]);
    struct CMUnitTest tests[GP_ARRAY_LEN(cases)];
    for (size_t i = 0; i < GP_ARRAY_LEN(cases); i++)
        tests[i] = (struct CMUnitTest){
            .name = cases[i].name, .test_func = test_gang, .initial_state = (void *)(uintptr_t)&cases[i]};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
