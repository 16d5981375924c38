/* SPDX-License-Identifier: Apache-2.0 */
/* The spec's block `job`: what it takes, what it refuses, and its form in the journal. */
#include "base/gp_base.h"

#include "../spec_fixture.h"

static void whole(void **state) {
    (void)state;
    GP_AUTO_SPEC struct spec *s =
        good("name: a\nbootstrap: {container: {engine: docker}}\njob:\n  workdir: .\n  setup: 'echo ${HOME}'\n"
             "  env: {EPOCHS: 3, EMPTY: '', run: '$${x}'}\n  run: |\n    train ${A:-b}\n  on: rank0\n"
             "  image: busybox:1.36\n  outputs: [{path: results, to: out/}, {path: /data/log, to: log}]\n"
             "  checkpoint: {path: ck, to: ck, every: 30s}\n  max_duration: 2h\n  restart: 2\n  keep: 30m\n"
             "  on_unhealthy: replace\n  on_preempt: 'echo ${HOME}'\n  recover: 0\n");
    assert_true(spec_job_replaces(&s->job) && spec_job_ends_sick(&s->job));
    assert_string_equal(s->job.on_preempt, "echo ${HOME}");
    assert_int_equal(s->job.recover, 0);
    assert_true(s->job.workdir[0] == '/');
    assert_int_equal(s->job.env.n, 3);
    assert_string_equal(s->job.env.v[0], "EPOCHS=3");
    assert_string_equal(s->job.env.v[1], "EMPTY=");
    assert_true(spec_job_on_rank0(&s->job));
    assert_true(str_ends(s->job.outputs.items[0].to, "/out"));
    assert_int_equal(s->job.checkpoint.every_ms, 30000);
    GP_AUTO_FREE char *form = spec_canonical(s);
    struct loaded l = {0};
    l.r = spec_load_text("(journal)", form, strlen(form), NULL, &l.spec, &l.problems, &l.err);
    if (l.r != 0) fail_msg("%s: %s", form, l.problems.list.items[0].message);
    GP_AUTO_FREE char *again = spec_canonical(l.spec);
    assert_string_equal(again, form);
    assert_string_equal(l.spec->hash, s->hash);
    for (size_t i = 0; i < s->job.env.n; i++) assert_string_equal(l.spec->job.env.v[i], s->job.env.v[i]);
    loaded_clear(&l);
}

static void buckets(void **state) {
    (void)state;
    GP_AUTO_SPEC struct spec *s =
        good("name: a\njob:\n  outputs: [{path: a, to: 's3://abc/x/', every: 90s}, {path: b, to: o}]\n"
             "  checkpoint: {path: c, to: 's3://abd'}\n");
    assert_string_equal(s->job.outputs.items[0].to, "s3://abc/x");
    assert_int_equal(s->job.outputs.items[0].every_ms, 90000);
    assert_int_equal(s->job.outputs.items[1].every_ms, 0);
    assert_string_equal(s->job.checkpoint.to, "s3://abd");
    GP_AUTO_FREE char *form = spec_canonical(s);
    struct loaded l = {0};
    l.r = spec_load_text("(journal)", form, strlen(form), NULL, &l.spec, &l.problems, &l.err);
    assert_int_equal(l.r, 0);
    assert_string_equal(l.spec->job.outputs.items[0].to, "s3://abc/x");
    assert_string_equal(l.spec->hash, s->hash);
    loaded_clear(&l);
}

/* A stack that was launched before this block existed keeps its hash: the block's defaults are no part of it. */
static void absent(void **state) {
    (void)state;
    GP_AUTO_SPEC struct spec *s = good("name: a\n");
    GP_AUTO_SPEC struct spec *empty = good("name: a\njob: {}\n");
    assert_null(s->job.run);
    assert_int_equal(s->job.recover, 3);
    assert_int_equal(empty->job.recover, 3);
    assert_false(spec_job_ends_sick(&s->job) || spec_job_replaces(&s->job));
    assert_string_equal(s->hash, empty->hash);
}

static void longer_than_the_deadline(void **state) {
    (void)state;
    GP_AUTO_SPEC struct spec *s = good("name: a\nlimits: {ttl: 10m}\njob: {run: x, max_duration: 1h}\n");
    GP_AUTO_FREE char *note = spec_job_too_long(&s->job, s->ttl_ms);
    assert_non_null(note);
    assert_string_equal(note, "job.max_duration, 1h, is longer than limits.ttl, 10m: the deadline ends the job before");
    assert_null(spec_job_too_long(&s->job, s->job.max_duration_ms));
    assert_null(spec_job_too_long(&s->job, 0));
    GP_AUTO_SPEC struct spec *none = good("name: a\nlimits: {ttl: 10m}\njob: {run: x}\n");
    assert_null(spec_job_too_long(&none->job, none->ttl_ms));
}

static void refused(void **state) {
    (void)state;
    bad_at("name: a\njob: {run: x, env: {PATH: /bin}}\n", 3 - 1, 21, "'PATH'");
    bad_at("name: a\njob: {run: x, env: {GPUPROV_X: 1}}\n", 2, 21, "sets it itself");
    bad_at("name: a\njob: {run: x, env: {1A: 1}}\n", 2, 21, "not the name of a variable");
    bad_at("name: a\njob: {run: x, env: [A=1]}\n", 2, 20, "must be a map");
    bad_at("name: a\njob: {run: x, env: {A: [1]}}\n", 2, 24, "must be text");
    bad_at("name: a\njob: {run: x, workdir: no/such/folder}\n", 2, 24, "is not a folder");
    bad_at("name: a\njob: {run: x, image: 'busybox:1'}\n", 2, 22, "container engine");
    bad_at("name: a\nbootstrap: {container: {engine: containerd}}\njob: {run: x, image: 'busybox:1'}\n", 3, 22,
           "docker");
    bad_at("name: a\njob: {run: x, on: some}\n", 2, 19, "'on' cannot be 'some'");
    bad_at("name: a\njob: {run: x, outputs: [{path: ../x, to: o}]}\n", 2, 32, "'..' as a folder");
    bad_at("name: a\njob: {run: x, outputs: [{path: a/./b, to: o}]}\n", 2, 32, "'.' as a folder");
    bad_at("name: a\njob: {run: x, outputs: [{path: '$(reboot)', to: o}]}\n", 2, 32, "must be a path");
    bad_at("name: a\njob: {run: x, outputs: [{path: a, to: 's3://b/c'}]}\n", 2, 39, "does not name a bucket");
    bad_at("name: a\njob: {run: x, outputs: [{path: a, to: 'ftp://abc/c'}]}\n", 2, 39, "(s3://");
    bad_at("name: a\njob: {run: x, checkpoint: {path: a, to: 's3://abc/../c'}}\n", 2, 41, "'.' and '..' as folders");
    bad_at("name: a\njob: {run: x, workdir: 's3://abc/c'}\n", 2, 24, "bootstrap.mounts");
    bad_at("name: a\njob: {run: x, outputs: [{path: a, to: 's3://abc/c'}, {path: b, to: 's3://abc/c/'}]}\n", 2, 68,
           "two entries");
    bad_at("name: a\njob: {run: x, outputs: [{path: a, to: o, every: 1ms}]}\n", 2, 49, "from 1.0s to 24h");
    bad_at("name: a\njob: {run: x, outputs: [{path: a, to: o}, {path: b, to: ./o/}]}\n", 2, 57, "two entries");
    bad_at("name: a\njob: {run: x, outputs: [{path: a, to: o}], checkpoint: {path: b, to: ./o}}\n", 2, 70, "go to '");
    bad_at("name: a\njob: {run: x, outputs: [{path: a, to: o/r}], checkpoint: {path: b, to: ./o}}\n", 2, 72,
           "which is below");
    bad_at(
        "name: a\njob: {run: x, outputs: [{path: a, to: \"s3://bkt/o/r\"}], checkpoint: {path: b, to: \"s3://bkt/o\"}}\n",
        2, 83, "which is below");
    bad_at("name: a\njob: {run: x, outputs: [{path: a}]}\n", 2, 25, "needs 'to'");
    bad_at("name: a\njob: {run: x, checkpoint: {path: a}}\n", 2, 27, "needs 'to'");
    bad_at("name: a\njob: {run: x, restart: 0}\n", 2, 24, "from 1 to 100");
    bad_at("name: a\njob: {run: x, recover: 101}\n", 2, 24, "from 0 to 100");
    bad_at("name: a\njob: {run: x, on_unhealthy: ignore}\n", 2, 29, "cannot be 'ignore'");
    bad_at("name: a\nsecrets: [{env: A, from: env:A}]\njob: {run: x, env: {A: 1}}\n", 3, 20, "a secret too");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(whole), cmocka_unit_test(buckets), cmocka_unit_test(absent),
                                       cmocka_unit_test(longer_than_the_deadline), cmocka_unit_test(refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
