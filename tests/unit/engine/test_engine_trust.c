/* SPDX-License-Identifier: Apache-2.0 */
/* Which host keys a node is reached with and when its key is rotated, against a real sshd: a tag says
 * nothing about a machine whose first key this journal holds. The provider is in memory. */
#include "engine/proof/node_run.h"
#include "engine/proof/node_target.h"
#include "engine/proof/watch.h"
#include "engine/run/run_node.h"
#include "engine/run/run_provider.h"
#include "engine/stack/claim.h"
#include "ssh_fixture.h"

static bool rotates = true;
static struct resource machine; /* the one that the cloud has */

static int cloud_open(const struct provider_env *env, struct provider **ret, struct gp_error *err);
static void cloud_close(struct provider *p) {
    if (p != NULL) free(p->owner);
    free(p);
}
static int cloud_list(struct provider *p, const struct list_req *req, struct resource_list *ret, struct gp_error *err) {
    (void)p;
    (void)req;
    (void)err;
    struct resource copy = {0};
    resource_copy(&copy, &machine);
    vec_push(&ret->list, copy);
    return 0;
}

/* As a cloud does that gives a right to a machine of a launch that was cut. */
static bool completes;
static int cloud_prepare(struct provider *p, const struct prepare_req *req, struct gp_error *err) {
    (void)p;
    (void)err;
    for (size_t i = 0; completes && req->known != NULL && i < req->known->list.len; i++)
        req->known->list.items[i].ends_itself = true;
    return 0;
}

static struct provider_ops ops_aws = {.name = "aws",
                                      .spec = &aws_spec,
                                      .user_data = true,
                                      .boot_timeout_ms = 20000,
                                      .open = cloud_open,
                                      .close = cloud_close,
                                      .prepare = cloud_prepare,
                                      .list = cloud_list};
static int cloud_open(const struct provider_env *env, struct provider **ret, struct gp_error *err) {
    (void)env;
    (void)err;
    *ret = xcalloc(1, sizeof **ret);
    (*ret)->ops = &ops_aws;
    (*ret)->owner = xstrdup("me");
    return 0;
}
const struct provider_ops *const provider_registry[] = {&ops_aws, NULL};
const struct provider_ops *provider_find(const char *name) {
    ops_aws.key_rotation = rotates;
    return strcmp(name, "aws") == 0 ? &ops_aws : NULL;
}

/* In place of bootstrap/rotate.c: that it was called is what counts here. */
static int rotations;
int bootstrap_rotate_host_key(struct node_link *l, int64_t deadline_ms,
                              int (*commit)(void *ctx, const char *next_public, struct gp_error *err), void *ctx,
                              char **ret_key, struct gp_error *err) {
    (void)l;
    (void)deadline_ms;
    (void)err;
    rotations++;
    *ret_key = xstrdup("ssh-ed25519 OWN");
    return commit(ctx, "ssh-ed25519 OWN", err);
}
/* In place of bootstrap/bootstrap.c: the node's story ends here. */
static int64_t time_limit_ms; /* that the bootstrap had */
static bool proves_its_end;   /* it was to prove that the node may end itself */
int bootstrap_run(struct node_link *l, const struct bootstrap_req *req, struct bootstrap_result *ret,
                  struct gp_error *err) {
    (void)l;
    (void)ret;
    time_limit_ms = clock_left_ms(req->deadline_ms);
    proves_its_end = req->ends_itself;
    return gp_fail(err, GP_EBOOTSTRAP, "far enough");
}

struct world {
    struct engine *e;
    struct spec *spec;
    struct run *run;
    struct run_node *n;
    char *first, print[80];
};

static void begin(struct world *w) {
    struct gp_error err = {0};
    GP_AUTO_FREE char *dir = fx_path("state");
    GP_AUTO_FREE char *canonical = xstrdup("{}");
    assert_int_equal(setenv("GPUPROV_STATE_DIR", dir, 1), 0);
    *w = (struct world){.first = xasprintf("%s gpuprov-first-contact", fx.a.host_line)};
    rotations = 0;
    rotates = true;
    assert_int_equal(ssh_key_fingerprint(fx.a.host_line, w->print, sizeof w->print, NULL), 0);
    if (engine_open(&(struct engine_opts){.owner = "me"}, &w->e, &err) != 0) fail_msg("%s", err.msg);
    static const char text[] = "name: t\nnodes: 1\noffers: [{provider: aws}]\n";
    struct spec_problems problems = {0};
    provider_specs_register();
    if (spec_load_text("t.yaml", text, strlen(text), NULL, &w->spec, &problems, &err) != 0) fail_msg("%s", err.msg);
    if (run_open(w->e, w->spec, "t", &w->run, &err) != 0) fail_msg("%s", err.msg);
    stack_clear(&w->run->stack);
    w->run->stack = (struct stack){.owner = xstrdup("me"),
                                   .name = xstrdup("t"),
                                   .uid = xstrdup("0123456789abcdef"),
                                   .provider = xstrdup("aws"),
                                   .region = xstrdup("r1"),
                                   .spec_hash = xstrdup("h"),
                                   .expires_s = clock_wall_s() + 3600};
    if (journal_stack_put(w->e->journal, &w->run->stack, canonical, &err) != 0) fail_msg("%s", err.msg);
    run_nodes_alloc(w->run, 1);
    w->n = &w->run->nodes[0];
    struct resource *r = &w->n->res;
    resource_clear(r);
    resource_init(r, RES_INSTANCE, "aws");
    resource_set(&r->id, "i-0");
    resource_set(&r->owner, "me");
    resource_set(&r->stack, "t");
    resource_set(&r->uid, "0123456789abcdef");
    resource_set(&r->region, "r1");
    r->slot = 0;
    resource_set(&r->public_ip, "127.0.0.1");
    resource_set(&r->user, fx.user);
    r->ssh_port = fx.a.port;
    r->state = RES_RUNNING;
    w->n->exists = true;
    resource_set(&w->n->rec.resource_id, "i-0");
    w->n->rec.phase = NODE_REACHING;
    w->run->login.key_path = fx_path("id_ed25519");
    struct provider *p = NULL;
    if (run_provider(w->run, "aws", &p, &err) != 0) fail_msg("%s", err.msg);
}

/* The node's story, with a cloud that shows the machine as it is in the test. */
static void go(struct world *w) {
    struct gp_error err = {0};
    resource_clear(&machine);
    resource_copy(&machine, &w->n->res);
    if (watch_start(w->run, &err) != 0) fail_msg("%s", err.msg);
    node_run_up(w->n);
    watch_stop(w->run);
}

static void end(struct world *w) {
    resource_clear(&machine);
    run_close(w->run);
    engine_close(w->e);
    spec_free(w->spec);
    free(w->first);
    GP_AUTO_FREE char *dir = fx_path("state");
    assert_int_equal(fs_remove_tree(dir, NULL), 0);
}

static void trusts(const struct world *w, size_t n, const char *a, const char *b) {
    GP_AUTO_SSH_TARGET struct ssh_target t = {0};
    struct gp_error err = {0};
    if (node_target(w->run, w->n, &t, &err) != 0) fail_msg("%s", err.msg);
    assert_int_equal(t.host_keys.n, n);
    if (n > 0) assert_string_equal(t.host_keys.v[0], a);
    if (n > 1) assert_string_equal(t.host_keys.v[1], b);
}

/* The tag has the right fingerprint, as an attacker who reads user-data would set it. */
static void test_tag_before_first_contact(void **state) {
    (void)state;
    NEEDS_SSHD();
    struct world w;
    begin(&w);
    resource_set(&w.n->rec.host_key_first, w.first);
    resource_set(&w.n->res.host_keys, w.print);
    trusts(&w, 1, w.first, NULL);
    go(&w);
    assert_int_equal(rotations, 1);
    assert_string_equal(w.n->rec.host_key, "ssh-ed25519 OWN");
    assert_string_equal(w.n->rec.host_key_first, "");
    assert_string_equal(w.n->rec.host_key_next, "");
    trusts(&w, 1, "ssh-ed25519 OWN", NULL);
    end(&w);
}

/* A machine in the middle shows a key that only the tag knows. */
static void test_tag_of_another_machine(void **state) {
    (void)state;
    NEEDS_SSHD();
    struct world w;
    begin(&w);
    resource_set(&w.n->rec.host_key_first,
                 "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA");
    resource_set(&w.n->rec.host_key_next, "ssh-ed25519 NEXT");
    resource_set(&w.n->res.host_keys, w.print);
    trusts(&w, 2, w.n->rec.host_key_first, "ssh-ed25519 NEXT");
    go(&w);
    assert_int_equal(w.n->rc, -GP_EAUTH);
    assert_string_equal(w.n->err.detail, "HOST_KEY");
    assert_int_equal(rotations, 0);
    end(&w);
}

/* Without the tag it was like this before, and still is. */
static void test_no_tag(void **state) {
    (void)state;
    NEEDS_SSHD();
    struct world w;
    begin(&w);
    resource_set(&w.n->rec.host_key_first, w.first);
    go(&w);
    assert_int_equal(rotations, 1);
    assert_string_equal(w.n->rec.host_key, "ssh-ed25519 OWN");
    end(&w);
}

/* An empty journal adopts: the tag is all there is, and counts with its proof; the key is the node's own already. */
static void test_adopting(void **state) {
    (void)state;
    NEEDS_SSHD();
    struct world w;
    begin(&w);
    resource_set(&w.n->res.host_keys, w.print);
    trusts(&w, 0, NULL, NULL);
    str_put(w.n->tag_key, sizeof w.n->tag_key, w.print);
    resource_set(&w.n->res.host_keys, "SHA256:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"); /* edited since */
    trusts(&w, 1, w.print, NULL);
    go(&w);
    assert_int_equal(rotations, 0);
    assert_string_equal(w.n->rec.host_key, fx.a.host_line);
    end(&w);
}

static void test_adopting_odd_tags(void **state) {
    (void)state;
    NEEDS_SSHD();
    struct world w;
    begin(&w);
    GP_AUTO_FREE char *two = xasprintf("%s\n%s", w.print, w.print);
    const char *odd[] = {"", fx.a.host_line, two, "SHA256:x)>/tmp/x;;y", "SHA256:"};
    for (size_t i = 0; i < GP_ARRAY_LEN(odd); i++) {
        str_put(w.n->tag_key, sizeof w.n->tag_key, odd[i]);
        trusts(&w, 0, NULL, NULL);
    }
    go(&w);
    assert_int_equal(w.n->rc, -GP_EREACH);
    end(&w);
}

/* Hosts and local nodes: the provider's own lines, and nothing to rotate. */
static void test_without_rotation(void **state) {
    (void)state;
    NEEDS_SSHD();
    struct world w;
    begin(&w);
    rotates = false;
    GP_AUTO_FREE char *two = xasprintf("%s\n%s", fx.a.host_line, w.print);
    resource_set(&w.n->res.host_keys, two);
    trusts(&w, 2, fx.a.host_line, w.print);
    go(&w);
    assert_int_equal(rotations, 0);
    assert_string_equal(w.n->rec.host_key, fx.a.host_line);
    end(&w);
}

/* What the cloud or a spec says of the way is an address, or nothing is connected to. */
static void test_way_has_its_form(void **state) {
    (void)state;
    NEEDS_SSHD();
    struct world w;
    begin(&w);
    struct gp_error err = {0};
    GP_AUTO_SSH_TARGET struct ssh_target t = {0};
    resource_set(&w.n->res.bastion, "jo@[2001:db8::1]:2222");
    assert_int_equal(node_target(w.run, w.n, &t, &err), 0);
    assert_string_equal(t.bastion->host, "2001:db8::1");
    assert_string_equal(t.bastion->user, "jo");
    assert_int_equal(t.bastion->port, 2222);
    ssh_target_clear(&t);
    static const char *const bad[] = {"-x@b", "b;id", "b:x", "b:70000", "[b", "[b]x", "@b", "a b", "$(id)"};
    for (size_t i = 0; i < GP_ARRAY_LEN(bad); i++) {
        resource_set(&w.n->res.bastion, bad[i]);
        assert_int_equal(node_target(w.run, w.n, &t, &err), -GP_EUSAGE);
        gp_error_clear(&err);
    }
    resource_set(&w.n->res.bastion, "");
    static const char *const hosts[] = {"-oProxyCommand=x", "10.0.0.1\nok", "$(id)", "a b"};
    for (size_t i = 0; i < GP_ARRAY_LEN(hosts); i++) {
        resource_set(&w.n->res.public_ip, hosts[i]);
        assert_int_equal(node_target(w.run, w.n, &t, &err), -GP_EREACH);
        gp_error_clear(&err);
    }
    end(&w);
}

/* A cloud without private addresses: a node that is alone uses the loopback address, and it is not stored: with a second
 * node in the spec, that node would look for this one on itself. */
static void test_address_of_a_lone_node(void **state) {
    (void)state;
    NEEDS_SSHD();
    struct world w;
    begin(&w);
    rotates = false;
    resource_set(&w.n->res.host_keys, fx.a.host_line);
    go(&w);
    assert_string_equal(w.n->err.msg, "far enough");
    assert_string_equal(w.n->res.private_ip, "");
    resource_set(&w.n->res.public_ip, "192.0.2.7");
    assert_string_equal(node_target_peer_address(w.n), "127.0.0.1");
    w.spec->nodes = 2;
    assert_string_equal(node_target_peer_address(w.n), "192.0.2.7");
    resource_set(&w.n->res.private_ip, "10.0.0.7");
    assert_string_equal(node_target_peer_address(w.n), "10.0.0.7");
    end(&w);
}

/* Nothing waits for a node that is terminated meanwhile. Machines that existed before are not terminated. */
static void test_bootstrap_ends_at_the_deadline(void **state) {
    (void)state;
    NEEDS_SSHD();
    struct world w;
    begin(&w);
    rotates = false;
    for (int lent = 0; lent <= 1; lent++) {
        ops_aws.lent = lent == 1;
        w.n->rec.phase = NODE_REACHING;
        w.n->ends_ms = clock_deadline(600000);
        gp_error_clear(&w.n->err);
        resource_set(&w.n->res.host_keys, fx.a.host_line);
        go(&w);
        assert_string_equal(w.n->err.msg, "far enough");
        assert_true(time_limit_ms > 0);
        if (lent == 1) assert_true(time_limit_ms > 1200000);
        else assert_true(time_limit_ms <= 600000);
        node_link_close(&w.n->link);
    }
    ops_aws.lent = false;
    end(&w);
}

/* A right that `up` completes after a cut counts only when the node has used it: its bootstrap has that step. */
static void test_a_completed_right_is_proven(void **state) {
    (void)state;
    NEEDS_SSHD();
    for (int given = 0; given <= 1; given++) {
        struct gp_error err = {0};
        struct world w;
        begin(&w);
        rotates = false;
        completes = given == 1;
        proves_its_end = !completes;
        resource_set(&w.n->res.host_keys, fx.a.host_line);
        if (claim_take(w.run, &err) != 0) fail_msg("%s", err.msg);
        go(&w);
        assert_string_equal(w.n->err.msg, "far enough");
        assert_int_equal(proves_its_end, completes);
        end(&w);
    }
    completes = false;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tag_before_first_contact),
        cmocka_unit_test(test_tag_of_another_machine),
        cmocka_unit_test(test_no_tag),
        cmocka_unit_test(test_adopting),
        cmocka_unit_test(test_adopting_odd_tags),
        cmocka_unit_test(test_without_rotation),
        cmocka_unit_test(test_way_has_its_form),
        cmocka_unit_test(test_address_of_a_lone_node),
        cmocka_unit_test(test_bootstrap_ends_at_the_deadline),
        cmocka_unit_test(test_a_completed_right_is_proven),
    };
    return cmocka_run_group_tests_name("engine trust", tests, fx_setup, fx_teardown);
}
