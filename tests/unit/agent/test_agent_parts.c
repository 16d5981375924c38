/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of the agent that are pure: exact arithmetic, SHA-256, the kernel log's policy, the Markov
 * source, and the model's gradient against differences. The agent's files are not in the library, so
 * they are included. */
#include "base/gp_base.h"

#include "tree/sha256.h"
#include "validate/agent/base/kernlog.h"
#include "validate/agent/checks/train/train_model.h"
#include "validate/agent/comm/comm_tcp.h"
#include "validate/agent/device/numeric.h"

#include "validate/agent/base/judge.c"
#include "validate/agent/base/kernlog.c"
#include "validate/agent/base/result.c"
#include "validate/agent/checks/train/train_data.c"
#include "validate/agent/checks/train/train_model.c"
#include "validate/agent/device/device_host.c"
#include "validate/agent/device/host_gemm.c"
#include "validate/agent/device/host_kernels.c"
#include "validate/agent/device/host_mixed.c"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static void test_exp_log_tanh(void **state) {
    (void)state;
    for (int i = -8700; i <= 8800; i++) {
        float x = (float)i * 0.01f;
        double want = exp((double)x), got = (double)num_exp(x);
        assert_true(fabs(got - want) <= 4e-7 * want + 1e-38);
        assert_true(fabs((double)num_tanh(x * 0.1f) - tanh((double)(x * 0.1f))) < 4e-7);
    }
    float x = 1e-30f;
    for (int i = 0; i < 13880; i++, x *= 1.01f) /* to 1e30 */
        assert_true(fabs((double)num_log(x) - log((double)x)) <= 3e-7 * fabs(log((double)x)) + 2e-7);
    assert_true(isnan(num_exp(NAN)) && isnan(num_log(-1.0f)) && isnan(num_tanh(NAN)));
    assert_true(num_exp(-1e9f) == 0.0f && num_tanh(50.0f) == 1.0f && num_tanh(-50.0f) == -1.0f);
}

static void hex_is(const unsigned char *p, const char *want) {
    char text[65];
    str_hex(text, p, 32);
    assert_string_equal(text, want);
}

static void test_sha256_vectors(void **state) {
    (void)state;
    unsigned char out[32];
    struct sha256 s;
    sha256_init(&s);
    sha256_add(&s, "abc", 3);
    sha256_end(&s, out);
    hex_is(out, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    sha256_init(&s);
    sha256_end(&s, out);
    hex_is(out, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    sha256_init(&s); /* FIPS 180-4's million 'a', in uneven parts */
    char a[997];
    memset(a, 'a', sizeof a);
    for (size_t left = 1000000; left > 0;) {
        size_t n = GP_MIN(left, sizeof a);
        sha256_add(&s, a, n);
        left -= n;
    }
    sha256_end(&s, out);
    hex_is(out, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
    /* RFC 4231, cases 1 and 6 */
    unsigned char key[131];
    memset(key, 0x0b, 20);
    hmac_sha256(key, 20, "Hi There", 8, out);
    hex_is(out, "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
    memset(key, 0xaa, sizeof key);
    const char *text = "Test Using Larger Than Block-Size Key - Hash Key First";
    hmac_sha256(key, sizeof key, text, strlen(text), out);
    hex_is(out, "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
    assert_true(mem_equal_ct("same", "same", 4));
    assert_false(mem_equal_ct("same", "sane", 4));
}

static void test_kernel_log_policy(void **state) {
    (void)state;
    static const struct {
        const char *line;
        enum kern_action action;
        const char *code;
    } cases[] = {
        {"NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', GPU has fallen off the bus.", KERN_FAIL, "xid_79"},
        {"NVRM: Xid (PCI:0000:3b:00): 48, pid=1, DBE", KERN_FAIL, "xid_48"},
        {"NVRM: Xid (PCI:0000:3b:00): 13, pid=1, Graphics Exception", KERN_NOTE, "xid_13"},
        {"NVRM: Xid (PCI:0000:3b:00): 43, pid=1, Ch 8", KERN_NOTE, "xid_43"},
        {"NVRM: Xid (PCI:0000:3b:00): 63, pid=1, Row remap", KERN_FAIL, "xid_63"},
        {"NVRM: Xid (PCI:0000:3b:00): 154, GPU recovery action changed to Node Reboot Required", KERN_FAIL, "xid_154"},
        {"NVRM: Xid (PCI:0000:3b:00): 154, GPU recovery action changed to None", KERN_NOTE, "xid_154"},
        {"NVRM: Xid (PCI:0000:3b:00): 154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 "
         "(None)",
         KERN_NOTE, "xid_154"},
        {"NVRM: Xid (PCI:0000:3b:00): 154, GPU recovery action changed from 0x0 (None) to 0x4 (Drain and "
         "Reset)",
         KERN_FAIL, "xid_154"},
        {"NVRM: Xid (PCI:0000:3b:00): 154, GPU recovery action changed from 0x0 (None) to 0x9 (?)", KERN_DEGRADED,
         "xid_154"},
        {"NVRM: Xid (PCI:0000:3b:00): 45, pid=7, Ch 8", KERN_NOTE, "xid_45"},
        {"NVRM: Xid (PCI:0000:3b:00): 94, Contained error", KERN_FAIL, "xid_94"},
        {"NVRM: Xid (PCI:0000:3b:00): 159, UVM", KERN_DEGRADED, "xid_159"},
        {"NVRM: Xid (PCI:0000:3b:00): 999, new", KERN_DEGRADED, "xid_999"},
        {"nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 12028, Non-fatal, Link 38", KERN_DEGRADED, "sxid_12028"},
        {"nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 30", KERN_FAIL, "sxid_20034"},
        {"mce: [Hardware Error]: Machine check: Processor context corrupt", KERN_FAIL, "machine_check"},
        {"EDAC MC0: 1 CE memory read error on CPU_SrcID#0", KERN_DEGRADED, "memory_corrected"},
        {"EDAC MC0: 1 UE memory read error on CPU_SrcID#0", KERN_FAIL, "memory_uncorrected"},
        {"Out of memory: Killed process 4242 (python)", KERN_DEGRADED, "out_of_memory"},
        {"blk_update_request: I/O error, dev nvme0n1, sector 0", KERN_FAIL, "disk_io"},
        {"blk_update_request: I/O error, dev sr0, sector 0", KERN_NOTE, "cdrom_io"},
        {"EXT4-fs error (device sda1): ext4_lookup:1590", KERN_FAIL, "file_system"},
        {"pcieport 0000:00:01.0: AER: Corrected error received", KERN_DEGRADED, "pcie_corrected"},
        {"pcieport 0000:00:01.0: AER: Uncorrected (Fatal) error received", KERN_FAIL, "pcie_uncorrected"},
        {"NVRM: loading NVIDIA UNIX x86_64 Kernel Module  580.65.06", KERN_NONE, ""},
        {"NVRM: Xid (0000:3b:00): 79, as old drivers said it", KERN_FAIL, "xid_79"},
        {"NVRM: Xid (", KERN_NONE, ""},
        {"", KERN_NONE, ""},
    };
    for (size_t i = 0; i < GP_ARRAY_LEN(cases); i++) {
        struct kern_finding f = kernlog_judge(cases[i].line);
        if (strstr(cases[i].line, "NVRM: Xid (PCI") != NULL) {
            assert_string_equal(f.pci, "0000:3b:00");
            assert_true(f.xid != XID_NONE && !f.nvswitch);
        }
        if (strstr(cases[i].line, "SXid") != NULL) {
            assert_string_equal(f.pci, "0000:c1:00");
            assert_true(f.xid == XID_NONE && f.nvswitch);
        }
        assert_int_equal(f.action, cases[i].action);
        assert_string_equal(f.code, cases[i].code);
        assert_true(f.action == KERN_NONE || f.advice[0] != '\0');
    }
}

static void test_markov_source(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed < 40; seed++) {
        struct markov m;
        int into[GPT_VOCAB] = {0};
        markov_init(&m, seed);
        for (int s = 0; s < GPT_VOCAB; s++)
            for (int k = 0; k < 4; k++) {
                assert_true(m.next[s][k] < GPT_VOCAB);
                into[m.next[s][k]]++;
                for (int j = 0; j < k; j++) assert_int_not_equal(m.next[s][j], m.next[s][k]);
            }
        for (int s = 0; s < GPT_VOCAB; s++) assert_int_equal(into[s], 4);
    }
}

static double loss_at(struct gpt *g, float *p, size_t i, float v, const int32_t *in, const int32_t *next) {
    float keep = p[i], loss = 0;
    p[i] = v;
    assert_int_equal(gpt_put(g, g->params, p, NULL), 0);
    assert_int_equal(gpt_gradient(g, in, next, &loss, NULL), 0);
    double sum = 0; /* finer than the fp32 mean */
    for (int r = 0; r < g->rows; r++) sum += (double)g->loss_host[r];
    p[i] = keep;
    return sum / g->rows;
}

/* Every kind of parameter: the analytic gradient against central differences. */
static void test_gradient_is_the_gradient(void **state) {
    (void)state;
    struct device *dev = NULL;
    struct gpt g;
    struct markov m;
    int32_t in[2 * GPT_CTX], next[2 * GPT_CTX];
    float loss = 0;
    assert_int_equal(device_host.open(0, &dev, NULL), 0);
    assert_int_equal(gpt_open(&device_host, dev, 2, &g, NULL), 0);
    assert_int_equal(gpt_init(&g, 5, NULL), 0);
    markov_init(&m, 5);
    for (int b = 0; b < 2; b++) markov_sequence(&m, 5, 0, b, GPT_CTX, in + b * GPT_CTX, next + b * GPT_CTX);
    float *p = xcalloc(g.n_params, sizeof *p), *d = xcalloc(g.n_params, sizeof *d);
    assert_int_equal(gpt_gradient(&g, in, next, &loss, NULL), 0);
    assert_true(fabsf(loss - 4.16f) < 0.4f); /* ln 64: nothing learnt */
    gpt_get(&g, g.params, p, NULL);
    gpt_get(&g, g.grads, d, NULL);
    const struct gpt_block *b = &g.block[0], *c = &g.block[1];
    size_t starts[] = {g.tok + (size_t)in[3] * GPT_DIM,
                       g.pos,
                       b->ln1_g,
                       b->ln1_b,
                       b->qkv_w,
                       b->qkv_b,
                       b->qkv_w + 40,
                       b->qkv_w + 70,
                       b->out_w,
                       b->out_b,
                       b->ln2_g,
                       b->ln2_b,
                       b->up_w,
                       b->up_b,
                       b->down_w,
                       b->down_b,
                       c->qkv_w,
                       c->qkv_w + 40,
                       c->out_w,
                       c->up_w,
                       c->down_w,
                       g.lnf_g,
                       g.lnf_b,
                       g.head};
    for (size_t k = 0; k < GP_ARRAY_LEN(starts); k++)
        for (size_t i = starts[k]; i < starts[k] + 3; i++) {
            float h = 0.01f;
            double up = loss_at(&g, p, i, p[i] + h, in, next), down = loss_at(&g, p, i, p[i] - h, in, next);
            double want = (up - down) / (2 * (double)h);
            if (fabs(want - (double)d[i]) > 2e-4 + 0.02 * fabs(want))
                fail_msg("parameter %zu: %g by differences, %g analytically", i, want, (double)d[i]);
        }
    free(p);
    free(d);
    gpt_close(&g);
    device_host.close(dev);
}

static void test_host_gemm(void **state) {
    (void)state;
    struct device *dev = NULL;
    assert_int_equal(device_host.open(0, &dev, NULL), 0);
    enum { M = 3, N = 5, K = 7 };
    float a[M * K], at[K * M], b[K * N], bt[N * K], want[M * N], got[M * N];
    for (int i = 0; i < M; i++)
        for (int k = 0; k < K; k++) a[i * K + k] = at[k * M + i] = (float)(i * 7 + k % 3 - 4);
    for (int k = 0; k < K; k++)
        for (int j = 0; j < N; j++) b[k * N + j] = bt[j * K + k] = (float)(k - j * 2 + 1);
    for (int i = 0; i < M * N; i++) want[i] = 0;
    for (int i = 0; i < M; i++)
        for (int j = 0; j < N; j++)
            for (int k = 0; k < K; k++) want[i * N + j] += a[i * K + k] * b[k * N + j];
    for (int form = 0; form < 4; form++) {
        struct gemm_args x = {.m = M,
                              .n = N,
                              .k = K,
                              .batch = 1,
                              .trans_a = form & 1,
                              .trans_b = form & 2,
                              .a = (dev_addr)(uintptr_t)(form & 1 ? at : a),
                              .b = (dev_addr)(uintptr_t)(form & 2 ? bt : b),
                              .c = (dev_addr)(uintptr_t)got};
        assert_int_equal(device_host.gemm(dev, &x, NULL), 0);
        assert_memory_equal(got, want, sizeof want);
        x.accumulate = true;
        assert_int_equal(device_host.gemm(dev, &x, NULL), 0);
        for (int i = 0; i < M * N; i++) assert_true(got[i] == 2 * want[i]);
    }
    struct gemm_args other = {.type = GEMM_TYPES, .m = 1, .n = 1, .k = 1, .batch = 1};
    assert_int_equal(device_host.gemm(dev, &other, NULL), -GP_EINTERNAL);
    other = (struct gemm_args){.type = GEMM_INT8, .out_same = true, .m = 1, .n = 1, .k = 1, .batch = 1};
    assert_int_equal(device_host.gemm(dev, &other, NULL), -GP_EENV);
    struct launch_args unknown = {.kernel = "no_such_kernel"};
    assert_int_equal(device_host.launch(dev, &unknown, NULL), -GP_EINTERNAL);
    device_host.close(dev);
}

static const struct check_info example = {
    .id = "x.y",
    .suggestion = "look",
    .metrics = {{.name = "speed", .unit = "GB/s", .fail = 1, .degraded = 2, .source = "t"},
                {.name = "delay", .unit = "us", .ceiling = true, .fail = 10, .degraded = 5, .source = "t"},
                {.name = "seen", .unit = "", .fail = -1, .degraded = -1, .source = ""}}};

static enum verdict judged(double speed, double delay) {
    struct agent_result r;
    agent_result_init(&r, &example);
    agent_metric(&r, "speed", speed);
    agent_metric(&r, "delay", delay);
    agent_metric(&r, "seen", 1e12);
    agent_judge(&r, 1, true);
    enum verdict v = r.verdict;
    agent_result_clear(&r);
    return v;
}

static void test_limits(void **state) {
    (void)state;
    assert_int_equal(judged(3, 1), VERDICT_PASS);
    assert_int_equal(judged(2, 5), VERDICT_PASS); /* a limit itself is met */
    assert_int_equal(judged(1.5, 1), VERDICT_DEGRADED);
    assert_int_equal(judged(3, 6), VERDICT_DEGRADED);
    assert_int_equal(judged(0.5, 6), VERDICT_FAIL);
    assert_int_equal(judged(3, 11), VERDICT_FAIL);
    assert_int_equal(judged(NAN, 1), VERDICT_ERROR);
}

static void test_result_line(void **state) {
    (void)state;
    struct agent_result r;
    GP_AUTO_STR struct str s = {0};
    agent_result_init(&r, &example);
    agent_set(&r, VERDICT_DEGRADED, "a", "first\n\"quoted\" \x01");
    agent_set(&r, VERDICT_DEGRADED, "b", "as bad: ignored");
    agent_say(&r, "not shown");
    agent_culprit(&r, 3);
    agent_culprit(&r, 1);
    agent_culprit(&r, 3);
    agent_result_line(&r, &s);
    assert_string_equal(s.s, "{\"type\":\"result\",\"check\":\"x.y\",\"verdict\":\"degraded\",\"code\":\"a\","
                             "\"message\":\"first \\\"quoted\\\"  \",\"suggestion\":\"look\",\"took_ms\":0,"
                             "\"metrics\":[],\"data\":{\"culprits\":[3,1]}}\n");
    for (int i = 0; i < 20000; i++) agent_data_int(&r, "key", i); /* more than a line may hold */
    str_reset(&s);
    agent_result_line(&r, &s);
    assert_true(s.len <= AGENT_LINE_MAX);
    assert_non_null(strstr(s.s, "\"culprits\":[3,1],\"dropped\":"));
    assert_true(str_ends(s.s, "}}\n"));
    agent_result_clear(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exp_log_tanh),
        cmocka_unit_test(test_sha256_vectors),
        cmocka_unit_test(test_kernel_log_policy),
        cmocka_unit_test(test_markov_source),
        cmocka_unit_test(test_gradient_is_the_gradient),
        cmocka_unit_test(test_host_gemm),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_result_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
