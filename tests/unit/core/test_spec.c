/* SPDX-License-Identifier: Apache-2.0 */
/* The spec: what is accepted and what it becomes, all errors at once, substitution, hash,
 * schema, the manual page and the examples. Runs from the repository's root. UPDATE_GOLDEN=1 rewrites
 * what is compared with files. */
#include "base/gp_base.h"

#include "folder.h"
#include "golden.h"
#include "spec_fixture.h"

#include "base/fs.h"
#include "base/json.h"

#include <setjmp.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

/* --- what is accepted --- */

static void smallest(void **state) {
    (void)state;
    GP_AUTO_SPEC struct spec *s = good("name: try\n");
    assert_string_equal(s->name, "try");
    assert_string_equal(s->path, "t.yaml");
    assert_string_equal(s->text, "name: try\n");
    assert_int_equal(s->nodes, 1);
    assert_null(s->gpu.model);
    assert_int_equal(s->gpu.count, 0);
    assert_int_equal(s->order, ORDER_CHEAPEST);
    assert_int_equal(s->offers.len, 1);
    assert_string_equal(s->offers.items[0].provider, "local");
    assert_int_equal(s->ttl_ms, 4 * 3600000);
    assert_null(s->image.os);
    assert_null(s->image.id);
    assert_true(s->access.public_ip);
    assert_null(s->access.key);
    assert_int_equal(s->validate.time_ms, 300000);
    assert_false(s->validate.strict);
    assert_int_equal(strlen(s->hash), 64);
}

static const char whole[] = "apiVersion: gpuprov/v1\n"
                            "name: llm\n"
                            "nodes: 2\n"
                            "gpu: H100:8\n"
                            "order: listed\n"
                            "offers:\n"
                            "  - {provider: aws, regions: [us-east-2, us-west-2], zones: [us-east-2a], market: spot}\n"
                            "  - provider: aws\n"
                            "    regions: [us-east-1]\n"
                            "    market: on-demand\n"
                            "    instance_type: p5.48xlarge\n"
                            "    subnet: subnet-0abc1234\n"
                            "    role: gpu-node\n"
                            "  - {provider: local}\n"
                            "limits: {ttl: 1h30m}\n"
                            "image: {os: ubuntu-24.04}\n"
                            "access:\n"
                            "  public_ip: false\n"
                            "  bastion: ops@bastion.example:2222\n"
                            "  ssh_from: [203.0.113.0/24, 2001:db8::/32]\n"
                            "  key: keys/id\n"
                            "bootstrap:\n"
                            "  packages: [htop, libssl3=3.0.2]\n"
                            "  steps:\n"
                            "    - name: data\n"
                            "      run: |\n"
                            "        ./fetch.sh \"${HOME}\" ${file:-x}\n"
                            "        echo done\n"
                            "      check: test -e /data/ok\n"
                            "    - {name: late, run: 'true'}\n"
                            "validate:\n"
                            "  time: 20m\n"
                            "  require: [train.ddp, net.pair]\n"
                            "  floors: {net.pair: 8 Gbit/s, net.pair.latency: 1ms, host.cores.usable: 4}\n"
                            "  strict: true\n"
                            "secrets:\n"
                            "  - {env: HF_TOKEN, from: file:/run/secrets/hf}\n"
                            "  - {env: OTHER, from: env:X_Y}\n";

static void everything(void **state) {
    (void)state;
    GP_AUTO_SPEC struct spec *s = good(whole);
    assert_int_equal(s->nodes, 2);
    assert_string_equal(s->gpu.model, "H100");
    assert_int_equal(s->gpu.count, 8);
    assert_int_equal(s->gpu.pos.line, 4);
    assert_int_equal(s->order, ORDER_LISTED);
    assert_int_equal(s->offers.len, 3);
    const struct spec_offer *o = s->offers.items;
    assert_int_equal(o[0].regions.n, 2);
    assert_string_equal(o[0].regions.v[1], "us-west-2");
    assert_string_equal(o[0].zones.v[0], "us-east-2a");
    assert_int_equal(o[0].market, MARKET_SPOT);
    assert_int_equal(o[1].market, MARKET_ON_DEMAND);
    assert_string_equal(o[1].instance_type, "p5.48xlarge");
    assert_string_equal(o[1].subnet, "subnet-0abc1234");
    assert_string_equal(o[1].role, "gpu-node");
    assert_int_equal(o[1].pos.line, 8);
    assert_int_equal(o[1].pos.column, 5);
    assert_int_equal(s->ttl_ms, 5400000);
    assert_string_equal(s->image.os, "ubuntu-24.04");
    assert_false(s->access.public_ip);
    assert_string_equal(s->access.bastion, "ops@bastion.example:2222");
    assert_int_equal(s->access.ssh_from.n, 2);
    assert_true(s->access.key[0] == '/');
    assert_true(str_ends(s->access.key, "/keys/id"));
    assert_int_equal(s->packages.n, 2);
    assert_int_equal(s->steps.len, 2);
    assert_string_equal(s->steps.items[0].run, "./fetch.sh \"${HOME}\" ${file:-x}\necho done\n");
    assert_string_equal(s->steps.items[0].check, "test -e /data/ok");
    assert_string_equal(s->steps.items[1].run, "true");
    assert_null(s->steps.items[1].check);
    assert_int_equal(s->validate.time_ms, 1200000);
    assert_int_equal(s->validate.require.n, 2);
    assert_int_equal(s->validate.floors.len, 3);
    const struct spec_floor *f = s->validate.floors.items;
    assert_string_equal(f[0].check, "net.pair");
    assert_string_equal(f[0].metric, "bandwidth"); /* the first figure that is a rate */
    assert_string_equal(f[0].unit, "GB/s");
    assert_true(f[0].value > 0.9999999 && f[0].value < 1.0000001);
    assert_string_equal(f[1].metric, "latency");
    assert_string_equal(f[1].unit, "us");
    assert_true(f[1].value > 999.999 && f[1].value < 1000.001);
    assert_string_equal(f[2].metric, "usable");
    assert_true(f[2].value == 4);
    assert_true(s->validate.strict);
    assert_int_equal(s->secrets.len, 2);
    assert_string_equal(s->secrets.items[1].from, "env:X_Y");
    assert_string_equal(s->hash, "a8fbd39ef1ed01571d7131ee88db4ecee267a2bf3b5e1e949fbbb44fb36c03c3");
}

static void gpu_forms(void **state) {
    (void)state;
    static const struct {
        const char *text, *model;
        int count;
    } rows[] = {
        {"name: a\ngpu: H100", "H100", 1},
        {"name: a\ngpu: 'H100:8'", "H100", 8},
        {"name: a\ngpu: RTX PRO 6000:2", "RTX PRO 6000", 2},
        {"name: a\ngpu: {model: A100-80GB, count: 16}", "A100-80GB", 16},
        {"name: a\ngpu:\n  model: L4", "L4", 1},
    };
    for (size_t i = 0; i < GP_ARRAY_LEN(rows); i++) {
        GP_AUTO_SPEC struct spec *s = good(rows[i].text);
        assert_string_equal(s->gpu.model, rows[i].model);
        assert_int_equal(s->gpu.count, rows[i].count);
    }
}

/* An offer's own image and networks go before the stack's; both are in the hash. */
static void offers_of_their_own(void **state) {
    (void)state;
    GP_AUTO_SPEC struct spec *s = good("name: t\nnodes: 4096\nimage: {os: ubuntu-24.04}\n"
                                       "access: {ssh_from: [10.0.0.0/8]}\n"
                                       "offers:\n"
                                       "  - {provider: aws, role: r, image: {id: ami-1}, ssh_from: [192.0.2.0/24]}\n"
                                       "  - {provider: aws}\n");
    GP_AUTO_SPEC struct spec *other = good("name: t\nnodes: 4096\nimage: {os: ubuntu-24.04}\n"
                                           "access: {ssh_from: [10.0.0.0/8]}\n"
                                           "offers: [{provider: aws, role: r}, {provider: aws}]\n");
    struct spec_effective own = spec_effective(s, 0), stack = spec_effective(s, 1);
    assert_string_equal(own.image->id, "ami-1");
    assert_null(own.image->os);
    assert_string_equal(own.ssh_from->v[0], "192.0.2.0/24");
    assert_string_equal(own.role, "r");
    assert_string_equal(stack.image->os, "ubuntu-24.04");
    assert_string_equal(stack.ssh_from->v[0], "10.0.0.0/8");
    assert_null(stack.role);
    assert_int_equal(s->nodes, 4096);
    assert_string_not_equal(s->hash, other->hash);
}

/* Two tables have it: that of the spec refuses keys, that of the provider selects steps. */
static void containers_are_containers_in_both_tables(void **state) {
    (void)state;
    for (size_t i = 0; provider_registry[i] != NULL; i++) {
        const struct provider_ops *p = provider_registry[i];
        assert_int_equal(p->spec->container, p->node_shape == NODE_CONTAINER);
        if (p->node_shape == NODE_CONTAINER) assert_int_equal(p->guest_end, GUEST_NOTHING); /* no deadline unit */
    }
}

/* Keys that need a machine are refused where nodes are containers; those that wish for nothing are not. */
static void nodes_that_are_containers(void **state) {
    (void)state;
    static const struct spec_provider_key keys[] = {{.name = "regions"}, {0}};
    static const struct spec_refused refused[] = {{"access.public_ip", "every node has one", "true"}, {0}};
    static const struct spec_provider box = {
        .name = "box", .doc = "Box", .keys = keys, .by_default = true, .container = true, .refused = refused};
    static const struct spec_provider *const rows[] = {&box, NULL};
    static const struct {
        const char *rest, *message; /* NULL: accepted */
    } cases[] = {
        {"bootstrap: {driver: '580'}", "nodes of box cannot have 'driver': a container uses the driver of its host"},
        {"bootstrap: {driver: {flavour: open}}", "cannot have 'driver'"},
        {"bootstrap: {fabric: auto}", "cannot have 'fabric'"},
        {"bootstrap: {container: {engine: docker}}", "cannot have 'container': no container engine"},
        {"bootstrap: {mounts: [{at: /data, nvme: auto}]}", "cannot have 'mounts'"},
        {"bootstrap: {limits: {hugepages: 16}}", "cannot have 'hugepages'"},
        {"access: {public_ip: false}", "nodes of box cannot have 'public_ip': every node has one"},
        {"bootstrap: {driver: none, fabric: none, container: {engine: none}, limits: {nofile: 4096}}", NULL},
        {"access: {public_ip: true}", NULL},
        {"bootstrap: {driver: {branch: none}, packages: [htop], cuda: '12.8'}", NULL},
    };
    spec_providers_set(rows);
    struct loaded l[GP_ARRAY_LEN(cases)] = {0};
    for (size_t i = 0; i < GP_ARRAY_LEN(cases); i++) {
        GP_AUTO_FREE char *text = xasprintf("name: t\n%s\n", cases[i].rest);
        l[i].r = spec_load_text("t.yaml", text, strlen(text), validate_names(), &l[i].spec, &l[i].problems, &l[i].err);
    }
    provider_specs_register();
    for (size_t i = 0; i < GP_ARRAY_LEN(cases); i++) {
        const struct spec_problem *found = l[i].problems.list.len > 0 ? &l[i].problems.list.items[0] : NULL;
        if (cases[i].message == NULL && found != NULL) fail_msg("%s: %s", cases[i].rest, found->message);
        if (cases[i].message == NULL) continue;
        const char *message = found != NULL ? found->message : "accepted";
        if (strstr(message, cases[i].message) == NULL) fail_msg("%s: %s", cases[i].rest, message);
        assert_int_equal(found != NULL ? found->pos.line : 0, 2);
    }
    for (size_t i = 0; i < GP_ARRAY_LEN(cases); i++) loaded_clear(&l[i]);
}

/* Another provider's row is all that the language needs: its keys, its forms, zones of any name. */
static const char *far_gpu(size_t i) { return i == 0 ? "X1" : NULL; }
static void a_provider_of_any_name(void **state) {
    (void)state;
    static const struct spec_provider_key keys[] = {
        {.name = "regions"}, {.name = "zones", .pattern = "^[1-3]$", .pattern_doc = "1, 2 or 3"}, {0}};
    static const struct spec_provider far = {
        .name = "far", .doc = "Far", .keys = keys, .by_default = true, .gpu = far_gpu};
    static const struct spec_provider *const rows[] = {&far, NULL};
    struct loaded l[4] = {0};
    static const char *const texts[] = {
        "name: t\noffers: [{provider: far, regions: [EastUS], zones: ['2']}]\ngpu: x1\n",
        "name: t\n",
        "name: t\noffers: [{provider: far, zones: [EastUS-1]}]\n",
        "name: t\noffers: [{provider: far, subnet: x}]\n",
    };
    spec_providers_set(rows);
    for (size_t i = 0; i < GP_ARRAY_LEN(l); i++)
        l[i].r = spec_load_text("t.yaml", texts[i], strlen(texts[i]), validate_names(), &l[i].spec, &l[i].problems,
                                &l[i].err);
    GP_AUTO_FREE char *page = spec_markdown();
    GP_AUTO_FREE char *json = spec_json_schema();
    provider_specs_register();
    assert_int_equal(l[0].r, 0);
    assert_string_equal(l[1].spec->offers.items[0].provider, "far");
    assert_string_equal(l[2].problems.list.items[0].message, "'zones' must be 1, 2 or 3, not 'EastUS-1'");
    assert_string_equal(l[3].problems.list.items[0].message,
                        "'subnet' is a key of no provider; the provider 'far' does not take it");
    assert_non_null(strstr(page, "### `provider: far`"));
    assert_non_null(strstr(json, "\"const\": \"far\""));
    static const char *const foreign[] = {"aws", "ec2", "EC2", "ami-", "AMI", "arn:", "subnet-", "Amazon", NULL};
    for (size_t i = 0; foreign[i] != NULL; i++)
        if (strstr(page, foreign[i]) != NULL || strstr(json, foreign[i]) != NULL) fail_msg("'%s' is in it", foreign[i]);
    for (size_t i = 0; i < GP_ARRAY_LEN(l); i++) loaded_clear(&l[i]);
}

static void text_is_text(void **state) {
    (void)state;
    GP_AUTO_SPEC struct spec *s = good("name: no\nbootstrap: {packages: [on, 7zip, 2048, 'null']}\n"
                                       "offers: [{provider: aws}]\nimage: {id: 'ami-1'}\naccess: {public_ip: false}\n");
    assert_string_equal(s->name, "no");
    assert_string_equal(s->packages.v[0], "on");
    assert_string_equal(s->packages.v[2], "2048");
    assert_string_equal(s->packages.v[3], "null");
    assert_string_equal(s->image.id, "ami-1");
}

/* --- several errors --- */

static void all_at_once(void **state) {
    (void)state;
    GP_AUTO_LOADED struct loaded l = {0};
    const char *path = "tests/unit/specs/eight.yaml";
    l.r = spec_load(path, validate_names(), &l.spec, &l.problems, &l.err);
    assert_int_equal(l.r, -GP_EUSAGE);
    assert_string_equal(l.err.msg, "tests/unit/specs/eight.yaml: 8 errors");
    assert_int_equal(l.problems.list.len, 8);
    GP_AUTO_STR struct str text = {0}, out = {0};
    assert_int_equal(fs_read(path, 1 << 20, &text, &l.err), 0);
    spec_problems_format(&l.problems, "eight.yaml", text.s, false, &out);
    same_as_file("tests/unit/golden/spec-eight.txt", out.s);
    str_reset(&out);
    spec_problems_format(&l.problems, "eight.yaml", text.s, true, &out);
    assert_non_null(strstr(out.s, "\033[31merror:\033[0m"));
}

static void hopeless_files_end(void **state) {
    (void)state;
    GP_AUTO_STR struct str text = {0};
    str_add(&text, "name: t\n");
    for (int i = 0; i < 5000; i++) str_addf(&text, "bad_key_%d: 1\n", i);
    GP_AUTO_LOADED struct loaded l = load(text.s);
    assert_int_equal(l.problems.list.len, 100);
    assert_non_null(strstr(l.err.msg, "(the first are shown)"));
    str_reset(&text);
    str_add(&text, "name: t\nbootstrap:\n  packages:\n");
    for (int i = 0; i < 1001; i++) str_addf(&text, "    - p%d\n", i);
    bad_at(text.s, 4, 5, "has 1001 entries; at most 1000");
    str_reset(&text);
    str_add(&text, "name: t\nbootstrap: {steps: [{name: a, run: \"");
    for (int i = 0; i < 70000; i++) str_addc(&text, 'x');
    str_add(&text, "\"}]}\n");
    bad_at(text.s, 2, 36, "longer than 64 KiB");
    str_reset(&text);
    for (int i = 0; i < 40; i++) str_add(&text, "a: {");
    bad_at(text.s, 1, 128, "nested too deeply");
}

static void carets(void **state) {
    (void)state;
    struct spec_problems p = {0};
    struct spec_problem x[] = {{{1, 4}, xstrdup("one")}, {{2, 100}, xstrdup("two")}, {{9, 1}, xstrdup("three")}};
    for (size_t i = 0; i < 3; i++) vec_push(&p.list, x[i]);
    GP_AUTO_STR struct str text = {0}, out = {0};
    str_add(&text, "\t\xc3\xa9\x1bX\r\n");
    for (int i = 0; i < 300; i++) str_addc(&text, (char)('a' + i % 26));
    spec_problems_format(&p, "f", text.s, false, &out);
    assert_true(str_starts(out.s, "f:1:4: error: one\n  \t\xc3\xa9?X\n  \t  ^\nf:2:100: error: two\n  ..."));
    const char *second = strstr(out.s, "two\n") + 4;
    const char *caret = strchr(strchr(second, '\n') + 1, '^');
    size_t column = (size_t)(caret - (strchr(second, '\n') + 1));
    assert_int_equal(second[column], 'a' + 99 % 26); /* the caret is below column 100 */
    assert_non_null(strstr(out.s, "f:9:1: error: three\n"));
    spec_problems_clear(&p);
}

/* --- substitution --- */

static void substitution(void **state) {
    (void)state;
    char dir[200];
    assert_non_null(make_folder(dir, sizeof dir, "spec"));
    GP_AUTO_FREE char *file = fs_join(dir, "count"), *bin = fs_join(dir, "bin");
    GP_AUTO_FREE char *path = fs_join(dir, "s.yaml");
    struct gp_error err = {0};
    assert_int_equal(fs_write_atomic(file, "3\n", 2, 0600, &err), 0);
    assert_int_equal(fs_write_atomic(bin, "a\0b", 3, 0600, &err), 0);
    setenv("GP_TEST_NAME", "x: [y]\n", 1);
    setenv("GP_TEST_PKG", "htop", 1);
    unsetenv("GP_TEST_ABSENT");
    const char *text = "name: t\nnodes: ${file:count}\nbootstrap:\n  packages: ['${env:GP_TEST_PKG}']\n"
                       "  steps:\n  - {name: a, run: 'echo ${env:GP_TEST_NAME}$${env:GP_TEST_PKG} ${X}'}\n";
    struct loaded l = {0};
    l.r = spec_load_text(path, text, strlen(text), NULL, &l.spec, &l.problems, &l.err);
    assert_int_equal(l.r, 0);
    assert_int_equal(l.spec->nodes, 3);
    assert_string_equal(l.spec->packages.v[0], "htop");
    assert_string_equal(l.spec->steps.items[0].run, "echo x: [y]\n${env:GP_TEST_PKG} ${X}");
    loaded_clear(&l);

    bad_at("name: t\nnodes: ${env:GP_TEST_ABSENT}\n", 2, 8, "has no GP_TEST_ABSENT");
    bad_at("name: t\nbootstrap: {packages: [\"a${env:GP_TEST_ABSENT}\"]}\n", 2, 26, "has no GP_TEST_ABSENT");
    bad_at("name: t\naccess: {key: '${file:no/such}'}\n", 2, 16, "could not read 'no/such'");
    bad_at("name: t\naccess: {key: '${HOME}/k'}\n", 2, 16, "unknown substitution '${HOME}'");
    bad_at("name: t\naccess: {key: 'k${env:A'}\n", 2, 17, "unknown substitution");
    bad_at("name: t\nbootstrap: {packages: ['${env:GP_TEST_NAME}']}\n", 2, 24, "a package's name");
    text = "name: t\naccess: {key: '${file:bin}'}\n";
    l.r = spec_load_text(path, text, strlen(text), NULL, &l.spec, &l.problems, &l.err);
    assert_int_equal(l.r, -GP_EUSAGE);
    assert_non_null(strstr(l.problems.list.items[0].message, "NUL"));
    loaded_clear(&l);
    GP_AUTO_SPEC struct spec *s = good("name: t\naccess: {key: '/a/$${x}'}\n");
    assert_string_equal(s->access.key, "/a/${x}");
    assert_int_equal(fs_remove_tree(dir, &err), 0);
}

/* --- hash and canonical form --- */

static void hash_of_meaning(void **state) {
    (void)state;
    GP_AUTO_SPEC struct spec *a = good("name: a\nnodes: 1\noffers: [{provider: local}]\n");
    GP_AUTO_SPEC struct spec *b = good("# other text\napiVersion: gpuprov/v1\nname: 'a'\n");
    GP_AUTO_SPEC struct spec *c = good("name: a\nnodes: 2\n");
    assert_string_equal(a->hash, b->hash);
    assert_string_not_equal(a->hash, c->hash);
    GP_AUTO_SPEC struct spec *d = good("name: a\nlimits: {ttl: 90m}\ngpu: H100:8\n");
    GP_AUTO_SPEC struct spec *e = good("name: a\ngpu: {model: H100, count: 8}\nlimits: {ttl: 1h30m}\n");
    assert_string_equal(d->hash, e->hash);
    GP_AUTO_SPEC struct spec *f = good("name: a\nvalidate: {floors: {net.pair.bandwidth: 1 GB/s}}\n");
    GP_AUTO_SPEC struct spec *g = good("name: a\nvalidate: {floors: {net.pair: 8 Gbit/s}}\n");
    assert_string_equal(f->hash, g->hash);
}

static void hash_in_another_folder(void **state) {
    (void)state;
    const char *text = "name: a\naccess: {key: keys/id}\nsecrets: [{env: A, from: 'file:s/hf'}]\n"
                       "offers: [{provider: ssh, hosts: gone.yaml}]\n";
    struct spec_problems p = {0};
    GP_AUTO_SPEC struct spec *a = NULL;
    GP_AUTO_SPEC struct spec *b = NULL;
    assert_int_equal(spec_load_text("/one/s.yaml", text, strlen(text), NULL, &a, &p, NULL), 0);
    assert_int_equal(spec_load_text("/two/s.yaml", text, strlen(text), NULL, &b, &p, NULL), 0);
    assert_string_equal(a->access.key, "/one/keys/id");
    assert_string_equal(b->access.key, "/two/keys/id");
    assert_string_equal(a->offers.items[0].hosts, "/one/gone.yaml");
    assert_string_equal(a->secrets.items[0].from, "file:/one/s/hf");
    assert_string_equal(a->hash, b->hash);
}

/* The canonical form is a spec again, with the same hash and form, with and without the names. */
static void canonical_again(void **state) {
    (void)state;
    GP_AUTO_SPEC struct spec *a = good(whole);
    GP_AUTO_FREE char *text = spec_canonical(a);
    for (int with = 0; with < 2; with++) {
        struct loaded l = {0};
        l.r = spec_load_text("(journal)", text, strlen(text), with ? validate_names() : NULL, &l.spec, &l.problems,
                             &l.err);
        if (l.r != 0) fail_msg("%s", l.problems.list.items[0].message);
        assert_string_equal(l.spec->hash, a->hash);
        GP_AUTO_FREE char *again = spec_canonical(l.spec);
        assert_string_equal(again, text);
        loaded_clear(&l);
    }
    assert_null(strstr(text, "null"));
}

/* --- secrets --- */

static void secrets(void **state) {
    (void)state;
    char dir[200];
    assert_non_null(make_folder(dir, sizeof dir, "spec"));
    GP_AUTO_FREE char *file = fs_join(dir, "hf"), *spec = fs_join(dir, "s.yaml");
    struct gp_error err = {0};
    assert_int_equal(fs_write_atomic(file, "hunter2\r\n", 9, 0600, &err), 0);
    char env[] = "TOK", rel[] = "file:hf", var[] = "env:GP_TEST_SECRET", none[] = "file:none";
    GP_AUTO_SECRET struct secret value = {0};
    struct spec_secret s = {.env = env, .from = rel};
    assert_int_equal(spec_secret_read(&s, spec, &value, &err), 0);
    assert_string_equal(secret_reveal(&value), "hunter2");
    s.from = var;
    setenv("GP_TEST_SECRET", "hunter3", 1);
    assert_int_equal(spec_secret_read(&s, spec, &value, &err), 0);
    assert_string_equal(secret_reveal(&value), "hunter3");
    unsetenv("GP_TEST_SECRET");
    assert_int_equal(spec_secret_read(&s, spec, &value, &err), -GP_EENV);
    assert_string_equal(err.msg, "the secret TOK: the environment has no GP_TEST_SECRET: set it");
    gp_error_clear(&err);
    s.from = none;
    assert_int_equal(spec_secret_read(&s, spec, &value, &err), -GP_ENOTFOUND);
    assert_true(str_starts(err.msg, "the secret TOK: could not read"));
    gp_error_clear(&err);
    assert_int_equal(fs_write_atomic(file, "\n", 1, 0600, &err), 0);
    s.from = rel;
    assert_int_equal(spec_secret_read(&s, spec, &value, &err), -GP_EENV);
    gp_error_clear(&err);
    assert_int_equal(fs_remove_tree(dir, &err), 0);
}

/* --- what else comes from the tables --- */

static void schema(void **state) {
    (void)state;
    GP_AUTO_FREE char *text = spec_json_schema();
    GP_AUTO_JSON json_t *j = NULL;
    struct gp_error err = {0};
    assert_int_equal(json_parse(text, strlen(text), "the schema", &j, &err), 0);
    assert_string_equal(json_str(j, "$schema", ""), "https://json-schema.org/draft/2020-12/schema");
    assert_false(json_bool(j, "additionalProperties", true));
    assert_int_equal(json_object_size(json_at(j, "properties")), 18);
    assert_string_equal(json_str(j, "required.0", ""), "name");
    assert_string_equal(json_str(j, "properties.limits.properties.ttl.default", ""), "4h");
    assert_int_equal(json_int(j, "properties.nodes.anyOf.0.maximum", 0), 4096);
    assert_string_equal(json_str(j, "properties.offers.items.properties.market.anyOf.0.enum.1", ""), "spot");
}

static void manual_page(void **state) {
    (void)state;
    GP_AUTO_FREE char *text = spec_markdown();
    same_as_file("docs/spec.md", text);
}

static void examples(void **state) {
    (void)state;
    static const char *const files[] = {"try",         "local-2",        "aws-h100",  "ssh-fleet",
                                        "runpod-4090", "any-cloud-h100", "job-local", "train-local"};
    for (size_t i = 0; i < GP_ARRAY_LEN(files); i++) {
        GP_AUTO_FREE char *path = xasprintf("examples/%s.yaml", files[i]);
        GP_AUTO_LOADED struct loaded l = {0};
        l.r = spec_load(path, validate_names(), &l.spec, &l.problems, &l.err);
        if (l.r != 0) fail_msg("%s: %s", l.err.msg, l.problems.list.len > 0 ? l.problems.list.items[0].message : "");
    }
}

static void files_that_cannot_be_read(void **state) {
    (void)state;
    GP_AUTO_LOADED struct loaded l = {0};
    l.r = spec_load("/no/such/spec.yaml", NULL, &l.spec, &l.problems, &l.err);
    assert_int_equal(l.r, -GP_ENOTFOUND);
    assert_int_equal(l.problems.list.len, 0);
    assert_non_null(strstr(l.err.msg, "gpuprov init"));
    gp_error_clear(&l.err);
    l.r = spec_load("/tmp", NULL, &l.spec, &l.problems, &l.err);
    assert_int_equal(l.r, -GP_EIO);
    gp_error_clear(&l.err);
    l.r = spec_load("/dev/zero", NULL, &l.spec, &l.problems, &l.err);
    assert_int_equal(l.r, -GP_EIO);
    assert_non_null(strstr(l.err.msg, "larger than"));
}

int main(void) {
    provider_specs_register();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(smallest),
        cmocka_unit_test(everything),
        cmocka_unit_test(gpu_forms),
        cmocka_unit_test(text_is_text),
        cmocka_unit_test(all_at_once),
        cmocka_unit_test(hopeless_files_end),
        cmocka_unit_test(carets),
        cmocka_unit_test(substitution),
        cmocka_unit_test(hash_of_meaning),
        cmocka_unit_test(hash_in_another_folder),
        cmocka_unit_test(canonical_again),
        cmocka_unit_test(secrets),
        cmocka_unit_test(schema),
        cmocka_unit_test(manual_page),
        cmocka_unit_test(offers_of_their_own),
        cmocka_unit_test(containers_are_containers_in_both_tables),
        cmocka_unit_test(nodes_that_are_containers),
        cmocka_unit_test(a_provider_of_any_name),
        cmocka_unit_test(examples),
        cmocka_unit_test(files_that_cannot_be_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
