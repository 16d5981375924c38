/* SPDX-License-Identifier: Apache-2.0 */
/* The pure parts of bootstrap/: which steps a spec needs, the one script that asks for all of them (run
 * by this machine's own sh) and how its answer is read. What happens on a node is in tests/e2e. */
#include "base/gp_base.h"

#include "bootstrap/steps.h"

#include "base/fs.h"

#include <setjmp.h>
#include <stdarg.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

struct fixture {
    struct spec spec;
    struct bootstrap_req req;
    struct bootstrap_secret secret;
    struct node_link link;
    struct boot boot;
};

static void fixture_make(struct fixture *f) {
    *f = (struct fixture){.link = {.target = {.label = xstrdup("llm/1")}}};
    f->req = (struct bootstrap_req){.spec = &f->spec, .packages_allowed = true, .deadline_ms = clock_deadline(60000)};
    f->boot = (struct boot){.link = &f->link, .req = &f->req};
}

static void fixture_clear(struct fixture *f) {
    boot_clear(&f->boot);
    strv_clear(&f->spec.packages);
    vec_free(&f->spec.steps);
    secret_clear(&f->secret.value);
    ssh_target_clear(&f->link.target);
}

static void step_add(struct fixture *f, char *name, char *run, char *check) {
    struct spec_step s = {.name = name, .run = run, .check = check};
    vec_push(&f->spec.steps, s);
}

/* boot_items_make without the agents, which a build may lack. */
static void items_make(struct fixture *f) {
    struct gp_error err = {0};
    int rc = boot_items_make(&f->boot, &err);
    assert_true(rc == 0 || strstr(err.msg, "built without") != NULL);
}

static const struct boot_item *item(const struct fixture *f, const char *name) {
    for (size_t i = 0; i < f->boot.items.len; i++)
        if (strcmp(f->boot.items.items[i].name, name) == 0) return &f->boot.items.items[i];
    fail_msg("there is no item '%s'", name);
    return &f->boot.items.items[0];
}

static void steps_follow_the_spec(void **state) {
    (void)state;
    struct fixture f;
    fixture_make(&f);
    items_make(&f);
    assert_int_equal(f.boot.items.len, 2); /* the clock and the agent */
    fixture_clear(&f);

    fixture_make(&f);
    strv_add(&f.spec.packages, "htop");
    step_add(&f, "b", "true", NULL);
    step_add(&f, "a", "true", "true");
    f.spec.gpu.count = 8;
    f.req.wait_cloud_init = f.req.ends_itself = f.req.launched = true;
    items_make(&f);
    static const char *const order[] = {"cloud-init", "package-locks", "clock", "deadline", "packages", "b",
                                        "a",          "driver-check",  "agent"};
    assert_int_equal(f.boot.items.len, GP_ARRAY_LEN(order));
    for (size_t i = 0; i < GP_ARRAY_LEN(order); i++) assert_string_equal(f.boot.items.items[i].name, order[i]);
    fixture_clear(&f);
}

/* A container has no kernel, driver, init or mounts of its own. */
static void a_container_gets_the_steps_that_need_no_machine(void **state) {
    (void)state;
    struct fixture f;
    GP_AUTO_STR struct str names = {0};
    fixture_make(&f);
    strv_add(&f.spec.packages, "htop");
    step_add(&f, "b", "true", NULL);
    f.spec.gpu.count = 8;
    f.spec.fabric = FABRIC_AUTO;
    f.spec.container.engine = ENGINE_DOCKER;
    f.spec.storage.limits.nofile = 4096;
    f.spec.python.wanted = true;
    f.req.image_name = "image";
    f.boot.facts.n_gpus = 8; /* without a driver, which a machine would get */
    f.req.wait_cloud_init = f.req.ends_itself = f.req.launched = f.req.packages_allowed = f.req.container = true;
    items_make(&f);
    for (size_t k = 0; k < f.boot.items.len; k++) str_addf(&names, "%s%s", k ? " " : "", f.boot.items.items[k].name);
    assert_string_equal(names.s, "packages limits python python-venv b driver-check agent");
    fixture_clear(&f);
}

static void the_fabric_chooses_its_steps(void **state) {
    (void)state;
    static const struct {
        enum spec_fabric fabric;
        const char *names;
    } rows[] = {{FABRIC_NONE, "clock agent"},
                {FABRIC_AUTO, "clock efa gpu-rdma agent"},
                {FABRIC_EFA, "clock efa agent"},
                {FABRIC_INFINIBAND, "clock gpu-rdma agent"}};
    for (size_t i = 0; i < GP_ARRAY_LEN(rows); i++) {
        struct fixture f;
        GP_AUTO_STR struct str names = {0};
        fixture_make(&f);
        f.spec.fabric = rows[i].fabric;
        items_make(&f);
        for (size_t k = 0; k < f.boot.items.len; k++)
            str_addf(&names, "%s%s", k ? " " : "", f.boot.items.items[k].name);
        assert_string_equal(names.s, rows[i].names);
        fixture_clear(&f);
    }
}

static void ids_are_folder_names_and_differ(void **state) {
    (void)state;
    struct fixture f;
    fixture_make(&f);
    step_add(&f, "../../etc $(reboot)", "true", NULL);
    step_add(&f, ".. .. etc $(reboot)", "true", NULL);
    step_add(&f, "agent", "true", NULL); /* as the table's own */
    items_make(&f);
    for (size_t i = 0; i < f.boot.items.len; i++) {
        const char *id = f.boot.items.items[i].id;
        assert_int_equal(strspn(id, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-"), strlen(id));
        for (size_t k = 0; k < i; k++) assert_string_not_equal(id, f.boot.items.items[k].id);
    }
    fixture_clear(&f);
}

static void a_hash_changes_with_what_a_step_does(void **state) {
    (void)state;
    char a[65], b[65], c[65];
    boot_hash(a, (const char *const[]){"run", "check", NULL});
    boot_hash(b, (const char *const[]){"runc", "heck", NULL});
    boot_hash(c, (const char *const[]){"run", NULL});
    assert_string_not_equal(a, b);
    assert_string_not_equal(a, c);
    assert_int_equal(strlen(a), 64);
}

/* Runs what came of a script as a node would: sh with that on stdin and an empty home. */
static int run_part(const char *text, size_t n, struct str *out) {
    int in[2], back[2];
    assert_int_equal(pipe(in), 0);
    assert_int_equal(pipe(back), 0);
    pid_t pid = fork();
    if (pid == 0) {
        dup2(in[0], 0);
        dup2(back[1], 1);
        close(in[1]);
        close(back[0]);
        close(2); /* half a script is a mistake of syntax */
        execle("/bin/sh", "sh", "-s", (char *)NULL, (char *const[]){"HOME=/nonexistent", "PATH=/usr/bin:/bin", NULL});
        _exit(127);
    }
    close(in[0]);
    close(back[1]);
    assert_int_equal(fs_write_all(in[1], text, n), 0);
    close(in[1]);
    char buf[4096];
    for (ssize_t got = 0; (got = read(back[0], buf, sizeof buf)) > 0;) str_add_mem(out, buf, (size_t)got);
    close(back[0]);
    int status = 0;
    waitpid(pid, &status, 0);
    return status;
}

static void run_sh(const struct str *script, struct str *out) {
    size_t n = 0;
    GP_AUTO_FREE char *sealed = script_sealed(script, &n);
    assert_int_equal(run_part(sealed, n, out), 0);
}

/* A connection that is lost while a script goes over it ends sh's input where it is: all or nothing. */
static void half_a_script_does_nothing(void **state) {
    (void)state;
    GP_AUTO_STR struct str script = {0};
    str_add(&script, "echo one\nif true; then\n  echo two # and more\nfi\nNAME='a\nb'; echo \"$NAME\"");
    size_t n = 0;
    GP_AUTO_FREE char *sealed = script_sealed(&script, &n);
    for (size_t part = 0; part <= n; part++) {
        GP_AUTO_STR struct str out = {0};
        int status = run_part(sealed, part, &out);
        if (out.len > 0 || part == n) assert_string_equal(out.s ? out.s : "", "one\ntwo\na\nb\n");
        if (part == n) assert_int_equal(status, 0);
    }
}

static void the_probe_asks_everything_at_once(void **state) {
    (void)state;
    struct fixture f;
    fixture_make(&f);
    step_add(&f, "holds", "exit 9", "test 'it'\\''s' = \"it's\"");
    step_add(&f, "does not", "exit 9", "false");
    step_add(&f, "never ran", "echo '::probe 0 77'; exit 9", NULL);
    step_add(&f, "eats stdin", "exit 9", "cat >/dev/null; true");
    step_add(&f, "secret", "exit 9", "test \"$TOKEN\" = \"a'b \\$c\"");
    f.secret.env = "TOKEN";
    secret_set(&f.secret.value, "a'b $c", 6);
    f.req.secrets = &f.secret;
    f.req.n_secrets = 1;
    items_make(&f);
    struct gp_error err = {0};
    GP_AUTO_STR struct str script = {0}, out = {0};
    assert_int_equal(boot_probe_script(&f.boot, &script, &err), 0);
    run_sh(&script, &out);
    boot_probe_parse(&f.boot, out.s, out.len);
    assert_int_equal(item(&f, "holds")->probe, 0);
    assert_int_equal(item(&f, "does not")->probe, BOOT_PROBE_TODO);
    assert_int_equal(item(&f, "never ran")->probe, BOOT_PROBE_TODO);
    assert_int_equal(item(&f, "eats stdin")->probe, 0);
    assert_int_equal(item(&f, "secret")->probe, 0);
    fixture_clear(&f);
}

/* A secret may have the name of any variable of the scripts: only the user's check gets it under this name. */
static void secrets_change_no_variable_of_a_step(void **state) {
    (void)state;
    static const char *const names[] = {"CHECK", "RUN", "HASH", "MARK", "CHECK_S", "NODE_DIR", "n", "HOME", "IFS"};
    struct bootstrap_secret secrets[GP_ARRAY_LEN(names)] = {{0}};
    GP_AUTO_STR struct str check = {0}, script = {0}, out = {0};
    struct gp_error err = {0};
    struct fixture f;
    fixture_make(&f);
    for (size_t i = 0; i < GP_ARRAY_LEN(names); i++) {
        secrets[i].env = names[i];
        secret_set(&secrets[i].value, "a 'b\n$c", 7);
        if (strcmp(names[i], "IFS") != 0) /* a shell does not take it from its environment */
            str_addf(&check, "%stest \"$%s\" = \"a 'b\n\\$c\"", i > 0 ? " && " : "", names[i]);
    }
    str_add(&check, " && ! env | grep -q GPUPROV_SECRET");
    step_add(&f, "sees all", "exit 9", check.s);
    step_add(&f, "another", "exit 9", "false");
    f.req.secrets = secrets;
    f.req.n_secrets = GP_ARRAY_LEN(names);
    items_make(&f);
    assert_int_equal(boot_probe_script(&f.boot, &script, &err), 0);
    run_sh(&script, &out);
    boot_probe_parse(&f.boot, out.s, out.len);
    assert_int_equal(item(&f, "sees all")->probe, 0);
    assert_int_equal(item(&f, "another")->probe, BOOT_PROBE_TODO);
    for (size_t i = 0; i < GP_ARRAY_LEN(names); i++) secret_clear(&secrets[i].value);
    fixture_clear(&f);
}

static void facts_of_this_machine(void **state) {
    (void)state;
    struct boot_facts f = {0};
    struct gp_error err = {0};
    GP_AUTO_STR struct str script = {0}, out = {0};
    assert_int_equal(boot_facts_script(&script, &err), 0);
    run_sh(&script, &out);
    boot_facts_parse(&f, out.s, out.len);
    assert_string_equal(f.home, "/nonexistent");
    assert_true(strlen(f.boot_id) == 36);
    assert_true(f.arch[0] != '\0' && f.kernel[0] != '\0');
    boot_facts_clear(&f);
}

static void facts_are_read_with_care(void **state) {
    (void)state;
    struct boot_facts f = {0};
    static const char answer[] = "::fact root yes\n::fact home /h o\n::fact nvidia yes\n::fact os ubuntu-24.04\n"
                                 "::fact kernel 6.8.0-1015-aws+x\n::fact driver 580.65.06 open\n"
                                 "::fact pci 0x030200 0x2330 0x16c1\n::fact pci 0x030000 0x1db1 0x0\n"
                                 "::fact pci 0x068000 0x22a3 0x1796\n::fact pci 0x0c0330 0x1ad8 0x0";
    boot_facts_parse(&f, answer, sizeof answer - 1);
    assert_true(f.root && f.nvidia && f.driver_open);
    assert_string_equal(f.home, "/h o");
    assert_string_equal(f.os, "ubuntu-24.04");
    assert_string_equal(f.kernel, "6.8.0-1015-aws+x");
    assert_string_equal(f.driver, "580.65.06");
    assert_int_equal(f.n_gpus, 2);
    assert_int_equal(f.n_nvswitches, 1);
    assert_int_equal(f.gpus[0].device, 0x2330);
    assert_int_equal(f.gpus[0].subsystem, 0x16c1);
    assert_int_equal(f.gpus[1].device, 0x1db1);
    static const char hostile[] = "::fact os ubuntu-24.04;reboot\n::fact kernel $(id)\n::fact driver 580`x open\n"
                                  "::fact driver  open\n::fact pci 0x030200 0x2330\n::fact pci 0x030200 2330 0x0\n"
                                  "::fact pci 0x030200 0xfffffffff 0x0\n::fact pci 0x030200 0x23g0 0x0\n::fact\n"
                                  "::fact home\n::fact strange thing\n";
    boot_facts_parse(&f, hostile, sizeof hostile - 1); /* and forgets what it knew */
    assert_string_equal(f.os, "");
    assert_string_equal(f.kernel, "");
    assert_string_equal(f.driver, "");
    assert_int_equal(f.n_gpus, 0);
    assert_null(f.home);
    assert_false(f.root);
    boot_facts_clear(&f);
}

static void answers_are_read_with_care(void **state) {
    (void)state;
    struct fixture f;
    fixture_make(&f);
    step_add(&f, "one", "true", NULL);
    items_make(&f);
    static const char noise[] = "motd\n::\n::probe\n::probe x y\n::probe 99 0\n::probe -1 0\n::probe 0\n"
                                "::probe 0 999\n::error \n";
    boot_probe_parse(&f.boot, noise, sizeof noise - 1);
    assert_int_equal(item(&f, "one")->probe, -1);
    static const char answer[] = "::error late\n::warn odd\n::probe 1 1\n::probe 2 0";
    boot_probe_parse(&f.boot, answer, sizeof answer - 1);
    assert_int_equal(item(&f, "one")->probe, 1);
    assert_string_equal(item(&f, "one")->why, "late");
    assert_string_equal(item(&f, "one")->warning, "odd");
    assert_int_equal(item(&f, "agent")->probe, 0);
    assert_null(item(&f, "agent")->why);
    fixture_clear(&f);
}

static void names_choose_steps(void **state) {
    (void)state;
    struct fixture f;
    GP_AUTO_STRV struct strv only = {0};
    struct bootstrap_pick pick = {.only = &only};
    fixture_make(&f);
    strv_add(&f.spec.packages, "htop");
    step_add(&f, "a", "true", NULL);
    step_add(&f, "b", "true", NULL);
    f.req.pick = &pick;
    items_make(&f);
    assert_int_equal(f.boot.items.len, 5);
    pick.from = "a";
    items_make(&f);
    assert_int_equal(f.boot.items.len, 3);
    strv_add(&only, "b");
    strv_add(&only, "packages");
    items_make(&f);
    assert_int_equal(f.boot.items.len, 1);
    assert_string_equal(f.boot.items.items[0].name, "b");
    pick.from = "driver-check"; /* not of this node, but a step */
    items_make(&f);
    assert_int_equal(f.boot.items.len, 0);
    fixture_clear(&f);
}

static void limits_are_of_the_row_or_of_the_step(void **state) {
    (void)state;
    struct fixture f;
    fixture_make(&f);
    step_add(&f, "a", "true", NULL);
    f.spec.steps.items[0].timeout_ms = 7000;
    f.spec.steps.items[0].tries = 3;
    items_make(&f);
    assert_int_equal(item(&f, "a")->seconds, 7);
    assert_int_equal(item(&f, "a")->tries, 3);
    assert_int_equal(item(&f, "agent")->tries, 1);
    fixture_clear(&f);
}

static void assert_allowed(char *source, const char *want) {
    struct spec spec = {.software = {.driver = {.source = source}}};
    struct bootstrap_cache_place place = {.uid = "u", .bind = "10.0.0.1", .peers = "10.0.0.2", .spec = &spec};
    GP_AUTO_STR struct str out = {0};
    GP_AUTO_FREE char *line = xasprintf("\nALLOW='%s'\n", want);
    assert_int_equal(bootstrap_cache_script(&place, false, &out, NULL), 0);
    if (strstr(out.s, line) == NULL) fail_msg("no %s in %s", line, out.s);
}

static void the_cache_knows_where_the_driver_comes_from(void **state) {
    (void)state;
    char mirror[] = "https://mirror.example/nvidia#sha256=0123", port[] = "http://10.0.0.9:8081/x",
         plain[] = "http://m";
    char nvidia[] = "nvidia";
    assert_allowed(NULL, "developer.download.nvidia.com:443");
    assert_allowed(nvidia, "developer.download.nvidia.com:443");
    assert_allowed(mirror, "mirror.example:443");
    assert_allowed(port, "10.0.0.9:8081");
    assert_allowed(plain, "m:80");
}

static void errors_name_node_and_step(void **state) {
    (void)state;
    struct fixture f;
    struct gp_error err = {0};
    fixture_make(&f);
    assert_int_equal(boot_fail(&f.link, "packages", &err, "apt-get reported:\nE: no"), -GP_EBOOTSTRAP);
    assert_string_equal(err.msg, "llm/1: step 'packages': apt-get reported: E: no");
    assert_int_equal(err.domain, GP_D_NODE);
    fixture_clear(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_follow_the_spec),
        cmocka_unit_test(a_container_gets_the_steps_that_need_no_machine),
        cmocka_unit_test(the_fabric_chooses_its_steps),
        cmocka_unit_test(ids_are_folder_names_and_differ),
        cmocka_unit_test(a_hash_changes_with_what_a_step_does),
        cmocka_unit_test(half_a_script_does_nothing),
        cmocka_unit_test(the_probe_asks_everything_at_once),
        cmocka_unit_test(secrets_change_no_variable_of_a_step),
        cmocka_unit_test(answers_are_read_with_care),
        cmocka_unit_test(facts_of_this_machine),
        cmocka_unit_test(facts_are_read_with_care),
        cmocka_unit_test(names_choose_steps),
        cmocka_unit_test(limits_are_of_the_row_or_of_the_step),
        cmocka_unit_test(the_cache_knows_where_the_driver_comes_from),
        cmocka_unit_test(errors_name_node_and_step),
    };
    return cmocka_run_group_tests_name("bootstrap", tests, NULL, NULL);
}
