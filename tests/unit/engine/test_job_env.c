/* SPDX-License-Identifier: Apache-2.0 */
/* The environment of a job, its texts, its key and its request. */
#include "base/gp_base.h"

#include "engine/job/def/job_def.h"

#include "base/json.h"

#include "../spec_fixture.h"

static struct job_look look_of(const char *const *lines, const char *wanted) {
    struct job_look look = {0};
    struct job_look_in in = {.ret = &look, .wanted = wanted};
    for (; *lines != NULL; lines++) job_look_line(&in, *lines);
    return look;
}

static const char *const usual[] = {"Welcome to the node",
                                    "home /home/gpuprov",
                                    "boot 0e3a1b2c-0000-4000-8000-0123456789ab",
                                    "address docker0 172.17.0.1/16",
                                    "address ens5@if7 10.0.0.6/24",
                                    "address ens5 2001:db8::6/64",
                                    NULL};

static const char *env_of(const struct strv *env, const char *name) {
    size_t n = strlen(name);
    const char *found = NULL;
    for (size_t i = 0; i < env->n; i++) {
        if (strncmp(env->v[i], name, n) != 0 || env->v[i][n] != '=') continue;
        if (found != NULL) fail_msg("%s is there twice", name);
        found = env->v[i] + n + 1;
    }
    return found;
}

static void looks(void **state) {
    (void)state;
    struct job_look look = look_of(usual, "10.0.0.6");
    assert_string_equal(look.home, "/home/gpuprov");
    assert_string_equal(look.boot, "0e3a1b2c-0000-4000-8000-0123456789ab");
    assert_string_equal(look.address, "172.17.0.1");
    assert_string_equal(look.interface, "ens5");
    look = look_of(usual, "");
    assert_string_equal(look.interface, "docker0");
    look = look_of(usual, "192.0.2.1");
    assert_string_equal(look.interface, "");
    const char *const hostile[] = {"home relative",
                                   "home /a;reboot",
                                   "home /a b",
                                   "boot xyz",
                                   "address $(id) 10.0.0.1/8",
                                   "address eth0 10.0.0.1;x/8",
                                   "address eth0",
                                   "address",
                                   "efa ",
                                   NULL};
    look = look_of(hostile, "");
    assert_string_equal(look.home, "");
    assert_string_equal(look.boot, "");
    assert_string_equal(look.address, "");
    assert_string_equal(look.interface, "");
    assert_false(look.efa);
}

static struct strv ips_of(const char *text) {
    struct strv ips = {0};
    strv_split(&ips, text, " ");
    return ips;
}

static void ranks(void **state) {
    (void)state;
    GP_AUTO_SPEC struct spec *s = good("name: llm\nnodes: 2\ngpu: H100:8\noffers: [{provider: aws}]\n"
                                       "job: {run: x, env: {NCCL_DEBUG: INFO, NCCL_SOCKET_IFNAME: eth9}}\n");
    GP_AUTO_STRV struct strv ips = ips_of("10.0.0.5 10.0.0.6"), env = {0};
    struct job_look look = look_of(usual, "10.0.0.6");
    const struct job_place place = {.rank = 1, .ranks = 2, .ips = &ips, .look = &look};
    job_env_make(s, &place, &env);
    static const char *const want[][2] = {
        {"GPUPROV_STACK", "llm"},
        {"GPUPROV_NODE_RANK", "1"},
        {"GPUPROV_NUM_NODES", "2"},
        {"GPUPROV_NODE_IPS", "10.0.0.5\n10.0.0.6"},
        {"GPUPROV_NUM_GPUS_PER_NODE", "8"},
        {"GPUPROV_MASTER_IP", "10.0.0.5"},
        {"GPUPROV_HOSTFILE", "/home/gpuprov/.gpuprov/hostfile"},
        {"GPUPROV_TORCHRUN_ARGS",
         "--nnodes 2 --node-rank 1 --nproc-per-node 8 --master-addr 10.0.0.5 --master-port 29500"},
        {"NODE_RANK", "1"},
        {"WORLD_SIZE", "16"},
        {"MASTER_ADDR", "10.0.0.5"},
        {"MASTER_PORT", "29500"},
        {"GLOO_SOCKET_IFNAME", "ens5"},
        {"NCCL_SOCKET_IFNAME", "eth9"}, /* the spec's own wins */
        {"NCCL_DEBUG", "INFO"},
    };
    for (size_t i = 0; i < GP_ARRAY_LEN(want); i++) {
        const char *got = env_of(&env, want[i][0]);
        if (!str_eq(got, want[i][1])) fail_msg("%s: %s, not %s", want[i][0], got ? got : "(none)", want[i][1]);
    }
    assert_null(env_of(&env, "FI_PROVIDER"));
}

static void without_gpus(void **state) {
    (void)state;
    GP_AUTO_SPEC struct spec *s = good("name: a\nnodes: 3\njob: {run: x, env: {MASTER_PORT: 4000}}\n");
    GP_AUTO_STRV struct strv ips = ips_of("10.0.0.2 10.0.0.3 10.0.0.4"), env = {0};
    struct job_look look = {.home = "/root"};
    const struct job_place place = {.rank = 0, .ranks = 3, .ips = &ips, .look = &look};
    job_env_make(s, &place, &env);
    assert_string_equal(env_of(&env, "GPUPROV_NUM_GPUS_PER_NODE"), "0");
    assert_string_equal(env_of(&env, "WORLD_SIZE"), "3");
    assert_string_equal(env_of(&env, "GPUPROV_TORCHRUN_ARGS"),
                        "--nnodes 3 --node-rank 0 --nproc-per-node 1 --master-addr 10.0.0.2 --master-port 4000");
    assert_null(env_of(&env, "GLOO_SOCKET_IFNAME"));
    GP_AUTO_FREE char *text = job_text_make(s, &place, &env, "0123456789abcdef", "echo 'x'");
    assert_non_null(strstr(text, "\n10.0.0.3 slots=1\n"));
    assert_non_null(strstr(text, "\necho 'x'\n"));
    assert_null(strstr(text, "VIRTUAL_ENV"));
}

static void fabric(void **state) {
    (void)state;
    GP_AUTO_SPEC struct spec *s = good("name: a\nbootstrap: {fabric: auto, python: {torch: auto}}\njob: {run: x}\n");
    GP_AUTO_STRV struct strv ips = ips_of("10.0.0.2"), env = {0};
    struct job_look look = {.home = "/root", .efa = true, .interface = "eth0"};
    const struct job_place place = {.rank = 0, .ranks = 1, .ips = &ips, .look = &look};
    job_env_make(s, &place, &env);
    assert_string_equal(env_of(&env, "FI_PROVIDER"), "efa");
    assert_string_equal(env_of(&env, "NCCL_SOCKET_IFNAME"), "=eth0");
    GP_AUTO_FREE char *text = job_text_make(s, &place, &env, "0123456789abcdef", "x");
    assert_non_null(strstr(text, "VIRTUAL_ENV='/opt/venv'; PATH=$VIRTUAL_ENV/bin:$PATH"));
}

/* In a container: the names of the variables, never their values; setup and run in one. */
static void container(void **state) {
    (void)state;
    GP_AUTO_SPEC struct spec *s =
        good("name: a\nbootstrap: {container: {engine: podman}}\n"
             "secrets: [{env: HF_TOKEN, from: env:HF_TOKEN}]\n"
             "job: {image: 'busybox:1.36', setup: \"echo it's\", run: train, env: {X: hidden}}\n");
    GP_AUTO_STRV struct strv ips = ips_of("10.0.0.2");
    struct job_look look = {.home = "/root"};
    const struct job_place place = {.rank = 0, .ranks = 1, .ips = &ips, .look = &look};
    GP_CLEANUP(job_def_clear) struct job_def d = {0};
    struct gp_error err = {0};
    struct bootstrap_secret secret = {.env = "HF_TOKEN"};
    GP_AUTO_STR struct str text = {0};
    secret_set(&secret.value, "s3\"cret\n", 8);
    assert_int_equal(job_def_make(s, NULL, 0, &d, &err), 0);
    job_def_request(&d, "0123456789abcdef", &place, &secret, 1, &text);
    GP_AUTO_JSON json_t *j = json_loadb(text.s, text.len, 0, NULL);
    assert_non_null(j);
    assert_true(json_is_null(json_object_get(j, "setup")));
    const char *run = json_str(j, "run", "");
    assert_non_null(strstr(run, "JOB_IMAGE='busybox:1.36'"));
    assert_non_null(strstr(run, " X HF_TOKEN'\n"));
    assert_null(strstr(run, "hidden"));
    assert_null(strstr(run, "s3"));
    assert_non_null(strstr(run, "job.setup failed"));
    assert_string_equal(json_str(j, "secrets.HF_TOKEN", ""), "s3\"cret\n");
    assert_string_equal(json_str(j, "env.X", ""), "hidden");
    assert_string_equal(json_str(j, "cwd", ""), "~/.gpuprov/work");
    secret_clear(&secret.value);
}

/* What a node is to watch, and what it runs when its cloud takes it back. */
static void watched(void **state) {
    (void)state;
    static const struct {
        const char *job, *notices, *want, *preempt;
    } cases[] = {{"{run: x}", NULL, "{\"on_unhealthy\": \"warn\", \"notices\": null}", NULL},
                 {"{run: x, on_unhealthy: replace, on_preempt: 'save'}", "aws",
                  "{\"on_unhealthy\": \"stop\", \"notices\": \"aws\"}", "\nsave\n"}};
    for (size_t i = 0; i < GP_ARRAY_LEN(cases); i++) {
        GP_AUTO_FREE char *spec = xasprintf("name: a\njob: %s\n", cases[i].job);
        GP_AUTO_SPEC struct spec *s = good(spec);
        GP_AUTO_STRV struct strv ips = ips_of("10.0.0.2");
        struct job_look look = {.home = "/root"};
        const struct job_place place = {.ranks = 1, .ips = &ips, .look = &look, .notices = cases[i].notices};
        GP_CLEANUP(job_def_clear) struct job_def d = {0};
        struct gp_error err = {0};
        GP_AUTO_STR struct str text = {0};
        assert_int_equal(job_def_make(s, NULL, 0, &d, &err), 0);
        job_def_request(&d, "0123456789abcdef", &place, NULL, 0, &text);
        GP_AUTO_JSON json_t *j = json_loadb(text.s, text.len, 0, NULL);
        GP_AUTO_JSON json_t *want = json_loads(cases[i].want, 0, NULL);
        assert_non_null(j);
        assert_true(json_equal(json_object_get(j, "watch"), want));
        const char *preempt = json_str(j, "preempt", NULL);
        if (cases[i].preempt == NULL) assert_true(json_is_null(json_object_get(j, "preempt")));
        else assert_non_null(strstr(preempt, cases[i].preempt));
    }
}

static char *key_of(const char *text, char *const *cmd, int n) {
    GP_AUTO_SPEC struct spec *s = good(text);
    GP_CLEANUP(job_def_clear) struct job_def d = {0};
    struct gp_error err = {0};
    assert_int_equal(job_def_make(s, cmd, n, &d, &err), 0);
    return xstrdup(d.key);
}

/* What runs is the key, not what becomes of it. */
static void keys(void **state) {
    (void)state;
    static const char *const same[] = {"name: a\njob: {run: x}\n", "name: b\njob: {run: x, keep: 5m}\n",
                                       "name: a\njob: {run: y, outputs: [{path: o, to: o}]}\n",
                                       "name: a\njob: {run: x, on_unhealthy: warn, recover: 0}\n"};
    static const char *const other[] = {"name: a\njob: {run: y}\n",
                                        "name: a\nnodes: 2\njob: {run: x}\n",
                                        "name: a\njob: {run: x, setup: s}\n",
                                        "name: a\njob: {run: x, env: {A: 1}}\n",
                                        "name: a\njob: {run: x, on: rank0}\n",
                                        "name: a\njob: {run: x, restart: 1}\n",
                                        "name: a\njob: {run: x, on_unhealthy: stop}\n",
                                        "name: a\njob: {run: x, on_preempt: y}\n"};
    char x[] = "x", *const cmd[] = {x};
    GP_AUTO_FREE char *key = key_of(same[0], NULL, 0);
    GP_AUTO_FREE char *two = key_of(same[1], NULL, 0);
    GP_AUTO_FREE char *three = key_of(same[2], cmd, 1);
    assert_string_equal(two, key);
    assert_string_equal(three, key);
    GP_AUTO_FREE char *four = key_of(same[3], NULL, 0);
    assert_string_equal(four, key);
    /* the key that a job had before on_unhealthy and on_preempt existed: a run that goes on over an update finds it */
    assert_string_equal(key, "6efada6051d0774143f64c797972a93e58852b4385a98992d3c889b20030d646");
    GP_AUTO_FREE char *stop = key_of("name: a\njob: {run: x, on_unhealthy: stop}\n", NULL, 0);
    GP_AUTO_FREE char *replace = key_of("name: a\njob: {run: x, on_unhealthy: replace}\n", NULL, 0);
    assert_string_equal(stop, replace); /* the nodes do the same */
    for (size_t i = 0; i < GP_ARRAY_LEN(other); i++) {
        GP_AUTO_FREE char *k = key_of(other[i], NULL, 0);
        if (strcmp(k, key) == 0) fail_msg("the same key: %s", other[i]);
    }
}

static void commands(void **state) {
    (void)state;
    GP_AUTO_SPEC struct spec *s = good("name: a\n");
    GP_CLEANUP(job_def_clear) struct job_def d = {0};
    struct gp_error err = {0};
    assert_int_equal(job_def_make(s, NULL, 0, &d, &err), -GP_EUSAGE);
    assert_non_null(strstr(err.msg, "has no command"));
    char a[] = "echo", b[] = "it's $HOME", bad[] = "\xff", *const cmd[] = {a, b}, *const not_text[] = {bad};
    gp_error_clear(&err);
    assert_int_equal(job_def_make(s, not_text, 1, &d, &err), -GP_EUSAGE);
    gp_error_clear(&err);
    assert_int_equal(job_def_make(s, cmd, 2, &d, &err), 0);
    assert_string_equal(d.run, "'echo' 'it'\\''s $HOME'");
    struct bootstrap_secret secret = {.env = "T"};
    secret_set(&secret.value, "\xc3\x28", 2);
    assert_int_equal(job_def_check_secrets(&secret, 1, &err), -GP_EUSAGE);
    secret_clear(&secret.value);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(looks),        cmocka_unit_test(ranks),
                                       cmocka_unit_test(without_gpus), cmocka_unit_test(fabric),
                                       cmocka_unit_test(container),    cmocka_unit_test(watched),
                                       cmocka_unit_test(keys),         cmocka_unit_test(commands)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
