/* SPDX-License-Identifier: Apache-2.0 */
/* Hosts files with their errors, and the provider's bookkeeping: who holds which host. */
#include "base/gp_base.h"

#include "providers/provider.h"
#include "providers/ssh/hosts.h"

#include "base/fs.h"
#include "base/json.h"
#include "folder.h"
#include "golden.h"

#include <pwd.h>
#include <setjmp.h>
#include <stdarg.h>
#include <unistd.h>

#include <cmocka.h>

#define KEY "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIKDnGdiHCk53BN1hdrB9JQiJUNaFrOhzd+WMk57SFv0k"
#define PRINT "SHA256:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"

#define assert_contains(text, part)                                                          \
    do {                                                                                     \
        if (strstr((text), (part)) == NULL) fail_msg("'%s' is not in '%s'", (part), (text)); \
    } while (0)

static void test_hosts(void **state) {
    (void)state;
    static const char text[] = "defaults: {user: ops, port: 2222, key: keys/id, bastion: ops@gate:22,\n"
                               "           host_key: " PRINT "}\n"
                               "hosts:\n"
                               "  - {address: 10.0.0.5, gpu: H100:8, host_key: '" KEY " gpu-a'}\n"
                               "  - address: gpu-b.example\n"
                               "    port: 22\n"
                               "    user: root\n"
                               "    known_hosts: /etc/ssh/ssh_known_hosts\n"
                               "    gpu: B200\n"
                               "    host_key: ['" KEY "', " PRINT "]\n"
                               "  - 2001:db8::1\n";
    GP_AUTO_SSH_HOSTS struct ssh_host_list l = {0};
    struct gp_error err = {0};
    if (ssh_hosts_parse("dir/fleet.yaml", text, strlen(text), &l, &err) != 0) fail_msg("%s", err.msg);
    assert_int_equal(l.list.len, 3);
    const struct ssh_host *a = &l.list.items[0], *b = &l.list.items[1], *c = &l.list.items[2];
    assert_string_equal(a->address, "10.0.0.5");
    assert_int_equal(a->port, 2222);
    assert_string_equal(a->user, "ops");
    assert_string_equal(a->key, "dir/keys/id");
    assert_string_equal(a->bastion, "ops@gate:22");
    assert_int_equal(a->host_keys.n, 1);
    assert_string_equal(a->host_keys.v[0], KEY); /* the comment is nobody's business */
    assert_string_equal(a->gpu_model, "H100");
    assert_int_equal(a->gpus, 8);
    assert_int_equal(b->port, 22);
    assert_string_equal(b->user, "root");
    assert_int_equal(b->gpus, 1);
    assert_int_equal(b->host_keys.n, 2);
    assert_string_equal(b->known_hosts, "/etc/ssh/ssh_known_hosts");
    assert_string_equal(c->address, "2001:db8::1");
    assert_int_equal(c->gpus, -1);
    assert_string_equal(c->host_keys.v[0], PRINT);
}

static void test_hosts_errors(void **state) {
    (void)state;
    static const struct {
        const char *text, *want;
    } bad[] = {
        {"", "f.yaml:1:1: a hosts file must be a map"},
        {"[1]", "f.yaml:1:1: a hosts file must be a map"},
        {"hosts: [a", "f.yaml:"},
        {"defaults: {}\n", "'hosts' is missing"},
        {"hosts: []\n", "f.yaml:1:8: 'hosts' must be a list with at least one host"},
        {"host: [a]\n", "f.yaml:1:1: unknown key 'host' (did you mean 'hosts'?)"},
        {"hosts:\n  - {adress: a}\n", "f.yaml:2:6: unknown key 'adress' in a host (did you mean 'address'?)"},
        {"hosts:\n  - {port: 22}\n", "f.yaml:2:5: the host has no 'address'"},
        {"hosts:\n  - {address: a, port: 0}\n", "f.yaml:2:24: '0' is not a port"},
        {"hosts:\n  - {address: a, port: x}\n", "'x' is not a port"},
        {"hosts:\n  - {address: -oProxyCommand=x}\n", "cannot be a host's address"},
        {"hosts:\n  - {address: 'a b'}\n", "cannot be a host's address"},
        {"hosts:\n  - {address: a, user: '$(id)'}\n", "cannot be a user's name"},
        {"hosts:\n  - {address: a, user: [x]}\n", "'user' takes one value"},
        {"hosts:\n  - {address: a, gpu: 8}\n", "'8' is not a gpu"},
        {"hosts:\n  - {address: a, gpu: 'H100:0'}\n", "'H100:0' is not a gpu"},
        {"hosts:\n  - {address: a, host_key: AAAA}\n", "f.yaml:2:28: a host_key must be a line like"},
        {"hosts:\n  - {address: a, host_key: 'SHA256:short'}\n", "a host_key must be a line like"},
        {"hosts:\n  - {address: a, host_key: 'SHA256:$(id)_)>x;;bcdefghijklmnopqrstuvwxyz012345678'}\n",
         "a host_key must be"},
        {"hosts:\n  - {address: a, host_key: \"" KEY "\\n* " KEY "\"}\n", "a host_key must be a line like"},
        {"hosts:\n  - {address: a, host_key: " KEY ", user: 'a%h'}\n", "cannot be a user's name"},
        {"hosts:\n  - {address: 'a{b'}\n", "cannot be a host's address"},
        {"hosts:\n  - {address: a, bastion: '-x@b'}\n", "cannot be a bastion"},
        {"hosts:\n  - {address: a, bastion: 'b#c'}\n", "cannot be a bastion"},
        {"hosts:\n  - {address: a, bastion: 'b:70000'}\n", "cannot be a bastion"},
        {"hosts:\n  - a\n  - {address: A}\n", "f.yaml:3:5: duplicate host A:22"},
        {"hosts:\n  - {address: a, address: b}\n", "f.yaml:2:18: duplicate key 'address'"},
        {"defaults: {address: a}\nhosts: [a]\n", "f.yaml:1:12: unknown key 'address' in defaults"},
        {"defaults: 1\nhosts: [a]\n", "f.yaml:1:11: 'defaults' must be a map"},
        {"x: 1\ny: 2\nz: 3\nhosts: [a]\n",
         "f.yaml:1:1: unknown key 'x' (valid keys: 'defaults' and 'hosts'); at 2:1: unknown key 'y' (valid keys: "
         "'defaults' and 'hosts'); at 3:1: unknown key 'z'"},
        {"default: {}\nhosts: [{address: a, prot: 1},\n  {port: 22}]\n",
         "f.yaml:1:1: unknown key 'default' (did you mean 'defaults'?); at 2:22: unknown key 'prot' in a host (did "
         "you mean 'port'?); at 3:3: the host has no 'address'"},
        {"hosts: [{address: a, b1: 1, b2: 1, b3: 1, b4: 1, b5: 1, b6: 1, b7: 1, b8: 1, b9: 1, ba: 1, bb: 1, bc: 1}]\n",
         " more errors)"},
    };
    for (size_t i = 0; i < GP_ARRAY_LEN(bad); i++) {
        GP_AUTO_SSH_HOSTS struct ssh_host_list l = {0};
        struct gp_error err = {0};
        assert_int_equal(ssh_hosts_parse("f.yaml", bad[i].text, strlen(bad[i].text), &l, &err), -GP_EUSAGE);
        assert_contains(err.msg, bad[i].want);
        assert_int_equal(l.list.len, 0);
    }
    GP_AUTO_SSH_HOSTS struct ssh_host_list l = {0};
    struct gp_error err = {0};
    assert_int_equal(ssh_hosts_load("/nonexistent/fleet.yaml", NULL, &l, &err), -GP_EUSAGE);
    assert_contains(err.msg, "the hosts file: could not read '/nonexistent/fleet.yaml'");
}

/* --- the provider --- */

struct world {
    char dir[64];
    char *hosts;
    struct journal *journal;
    struct gp_cancel cancel;
    struct spec spec;
    struct spec_offer offer;
};

static int setup(void **state) {
    struct world *w = xcalloc(1, sizeof *w);
    if (make_folder(w->dir, sizeof w->dir, "ssh-provider") == NULL || gp_cancel_init(&w->cancel, NULL) != 0) return -1;
    w->hosts = fs_join(w->dir, "fleet.yaml");
    bool damaged = false;
    if (journal_open(NULL, &w->journal, &damaged, NULL) != 0) return -1;
    w->spec = (struct spec){.name = xstrdup("llm"), .nodes = 2, .ttl_ms = 3600000};
    w->offer = (struct spec_offer){.provider = xstrdup("ssh"), .hosts = xstrdup(w->hosts)};
    vec_push(&w->spec.offers, w->offer);
    *state = w;
    return 0;
}

static int teardown(void **state) {
    struct world *w = *state;
    journal_close(w->journal);
    gp_cancel_clear(&w->cancel);
    fs_remove_tree(w->dir, NULL);
    free(w->spec.name);
    free(w->spec.gpu.model);
    vec_free(&w->spec.offers);
    free(w->offer.provider);
    free(w->offer.hosts);
    free(w->hosts);
    free(w);
    return 0;
}

static void write_hosts(const struct world *w, const char *text) {
    assert_int_equal(fs_write_atomic(w->hosts, text, strlen(text), 0600, NULL), 0);
}

static struct provider *open_ssh(struct world *w, const char *owner, bool accept_new) {
    struct provider_env env = {.cancel = &w->cancel,
                               .journal = w->journal,
                               .state_dir = w->dir,
                               .owner = owner,
                               .spec = &w->spec,
                               .accept_new_host_key = accept_new};
    struct provider *p = NULL;
    assert_int_equal(provider_find("ssh")->open(&env, &p, NULL), 0);
    return p;
}

/* --- the owner --- */

static const char *login; /* whom the user database knows here; NULL: nobody */

/* in the place of libc's */
int user_database(uid_t uid, struct passwd *pw, char *buf, size_t n, struct passwd **ret) __asm__("getpwuid_r");
int user_database(uid_t uid, struct passwd *pw, char *buf, size_t n, struct passwd **ret) {
    (void)uid;
    *pw = (struct passwd){.pw_name = buf};
    *ret = login != NULL ? pw : NULL;
    str_put(buf, n, login != NULL ? login : "");
    return 0;
}

/* Without --owner: the login name in the form of an owner, at both providers that have no principals. */
static void test_login_name_as_owner(void **state) {
    struct world *w = *state;
    char number[24], longer[200];
    snprintf(number, sizeof number, "%u", (unsigned)geteuid());
    memset(longer, 'a', sizeof longer);
    longer[sizeof longer - 1] = '\0';
    const struct {
        const char *login, *owner;
    } rows[] = {{"root", "root"},     {"me@x", "me@x"},     {"_apt", "xapt"}, {"DOM\\user", "DOM-user"},
                {"a b/c*", "a-b-c-"}, {"\xc3\xa9t", "x-t"}, {"", number},     {NULL, number},
                {longer, longer + 71}};
    for (size_t i = 0; i < GP_ARRAY_LEN(rows); i++) {
        login = rows[i].login;
        struct provider *p = open_ssh(w, NULL, false);
        assert_string_equal(p->owner, rows[i].owner);
        p->ops->close(p);
        struct provider_env env = {.cancel = &w->cancel, .journal = w->journal, .state_dir = w->dir};
        assert_int_equal(provider_find("local")->open(&env, &p, NULL), 0);
        assert_string_equal(p->owner, rows[i].owner);
        p->ops->close(p);
    }
    login = NULL;
}

static int take_or_replay(struct world *w, struct provider *p, struct stack *s, int first, int count, int attempt,
                          const struct intent *replay, struct resource_list *ret, struct gp_error *err) {
    char provider[] = "ssh", region[] = "here";
    struct offer o = {.provider = provider, .region = region};
    struct create_req q = {.stack = s,
                           .spec = &w->spec,
                           .offer = &o,
                           .slot_first = first,
                           .slot_count = count,
                           .attempt = attempt,
                           .login_pubkey = "",
                           .user_data = "",
                           .host_key_private = "",
                           .host_key_public = "",
                           .replay = replay};
    return p->ops->create(p, &q, ret, err);
}

static int take(struct world *w, struct provider *p, struct stack *s, int first, int count, int attempt,
                struct resource_list *ret, struct gp_error *err) {
    return take_or_replay(w, p, s, first, count, attempt, NULL, ret, err);
}

static void new_stack(struct world *w, struct provider *p, const char *name, struct stack *s) {
    *s = (struct stack){.owner = xstrdup(p->owner),
                        .name = xstrdup(name),
                        .spec_hash = xstrdup("hash"),
                        .provider = xstrdup("ssh"),
                        .expires_s = 1000};
    struct prepare_req req = {.stack = s, .spec = &w->spec};
    struct gp_error err = {0};
    if (p->ops->prepare(p, &req, &err) != 0) fail_msg("%s", err.msg);
    assert_int_equal(strlen(s->uid), 16);
    assert_string_equal(s->region, "here");
}

static const char three[] = "hosts:\n"
                            "  - {address: 10.0.0.1, host_key: " PRINT ", gpu: H100:8, key: /k}\n"
                            "  - {address: 10.0.0.2, host_key: " PRINT ", gpu: H100:8}\n"
                            "  - {address: 10.0.0.3, host_key: " PRINT ", gpu: A100:8}\n";

static void test_take_and_release(void **state) {
    struct world *w = *state;
    struct stack s = {0}, other = {0}, again = {0};
    struct gp_error err = {0};
    GP_AUTO_RESOURCES struct resource_list made = {0};
    GP_AUTO_OFFERS struct offer_list offers = {0};
    write_hosts(w, three);
    struct provider *p = open_ssh(w, "me", false);
    assert_int_equal(p->ops->offers(p, &w->spec, 0, &offers, &err), 0);
    assert_int_equal(offers.list.items[0].max_count, 3);
    new_stack(w, p, "llm", &s);
    new_stack(w, p, "llm", &again);
    assert_string_equal(s.uid, again.uid); /* the journal keeps it */
    if (take(w, p, &s, 0, 2, 1, &made, &err) != 0) fail_msg("%s", err.msg);
    assert_int_equal(made.list.len, 2);
    assert_string_equal(made.list.items[0].public_ip, "10.0.0.1");
    assert_string_equal(made.list.items[0].login_key, "/k");
    assert_string_equal(made.list.items[0].host_keys, PRINT);
    assert_int_equal(made.list.items[0].gpus, 8);
    assert_int_equal(made.list.items[1].slot, 1);
    assert_int_equal(made.list.items[1].kind, RES_HOST);
    /* Another stack finds one host; a second one is not there, and it is said who has it. */
    new_stack(w, p, "other", &other);
    GP_AUTO_RESOURCES struct resource_list rest = {0};
    free(w->spec.name);
    w->spec.name = xstrdup("other");
    assert_int_equal(take(w, p, &other, 0, 2, 1, &rest, &err), -GP_ECAPACITY);
    assert_int_equal(err.scope, GP_SCOPE_OFFER);
    assert_contains(err.msg, "has 3 hosts, 1 free where 2 are needed, 2 held by others such as 'llm'");
    gp_error_clear(&err);
    assert_int_equal(p->ops->offers(p, &w->spec, 0, &offers, &err), -GP_ECAPACITY);
    gp_error_clear(&err);
    assert_int_equal(take(w, p, &other, 0, 1, 1, &rest, &err), 0);
    assert_string_equal(rest.list.items[0].public_ip, "10.0.0.3");
    /* Listed by owner and stack; a foreign owner sees nothing. */
    struct list_req mine = {.owner = "me", .stack = "llm"}, all = {.owner = "me"}, foreign = {.owner = "x"};
    GP_AUTO_RESOURCES struct resource_list l1 = {0}, l2 = {0}, l3 = {0}, l4 = {0};
    assert_int_equal(p->ops->list(p, &mine, &l1, &err), 0);
    assert_int_equal(l1.list.len, 2);
    assert_int_equal(p->ops->list(p, &all, &l2, &err), 0);
    assert_int_equal(l2.list.len, 3);
    assert_int_equal(p->ops->list(p, &foreign, &l3, &err), 0);
    assert_int_equal(l3.list.len, 0);
    /* Released: gone from the list, free for others, but not for this run again. */
    assert_int_equal(p->ops->destroy(p, &l1, &err), 0);
    assert_int_equal(p->ops->destroy(p, &l1, &err), 0);
    assert_int_equal(p->ops->list(p, &mine, &l4, &err), 0);
    assert_int_equal(l4.list.len, 0);
    GP_AUTO_RESOURCES struct resource_list more = {0};
    assert_int_equal(take(w, p, &s, 0, 1, 2, &more, &err), -GP_ECAPACITY);
    assert_contains(err.msg, "2 released by this run");
    gp_error_clear(&err);
    p->ops->close(p);
    p = open_ssh(w, "me", false);
    assert_int_equal(take(w, p, &s, 0, 1, 2, &more, &err), 0);
    assert_string_equal(more.list.items[0].public_ip, "10.0.0.1");
    p->ops->close(p);
    stack_clear(&s);
    stack_clear(&other);
    stack_clear(&again);
}

static size_t open_intents(struct world *w) {
    struct intent_list open = {0};
    assert_int_equal(journal_intents(w->journal, NULL, 1U << INTENT_OPEN, &open, NULL), 0);
    size_t n = open.list.len;
    intent_list_clear(&open);
    return n;
}

/* A run that was killed after its intent and before its hosts: the replay ends that same intent, whether
 * the hosts are still free or not. */
static void test_replay(void **state) {
    struct world *w = *state;
    struct stack s = {0};
    struct gp_error err = {0};
    GP_AUTO_RESOURCES struct resource_list made = {0}, none = {0};
    write_hosts(w, three);
    struct provider *p = open_ssh(w, "me", false);
    new_stack(w, p, "llm", &s);
    char ssh[] = "ssh", here[] = "here", empty[] = "", token[] = "t", hosts[] = "10.0.0.1:22 10.0.0.2:22";
    for (int round = 0; round < 2; round++) {
        struct intent cut = {.uid = s.uid,
                             .provider = ssh,
                             .region = here,
                             .zone = empty,
                             .kind = RES_HOST,
                             .slot_first = 2 * round,
                             .slot_count = 2,
                             .attempt = 1,
                             .token = token,
                             .body = hosts,
                             .offer = empty,
                             .state = INTENT_OPEN,
                             .note = empty};
        assert_int_equal(journal_intent(w->journal, &cut, NULL), 0);
        assert_int_equal(open_intents(w), 1);
        int r = take_or_replay(w, p, &s, 2 * round, 2, 1, &cut, round == 0 ? &made : &none, &err);
        assert_int_equal(r, round == 0 ? 0 : -GP_EUSAGE); /* three hosts for a stack of four */
        assert_int_equal(open_intents(w), 0);
        gp_error_clear(&err);
    }
    assert_int_equal(made.list.len, 2);
    assert_int_equal(none.list.len, 0);
    p->ops->close(p);
    stack_clear(&s);
}

static void test_gpu_filter(void **state) {
    struct world *w = *state;
    struct gp_error err = {0};
    GP_AUTO_OFFERS struct offer_list offers = {0};
    write_hosts(w, three);
    w->spec.gpu.model = xstrdup("h100");
    w->spec.gpu.count = 8;
    struct provider *p = open_ssh(w, "me", false);
    assert_int_equal(p->ops->offers(p, &w->spec, 0, &offers, &err), 0);
    assert_int_equal(offers.list.items[0].max_count, 2);
    assert_string_equal(offers.list.items[0].gpu_model, "H100");
    w->spec.nodes = 3;
    assert_int_equal(p->ops->offers(p, &w->spec, 0, &offers, &err), -GP_EUSAGE); /* no third H100 will come */
    assert_int_equal(err.scope, GP_SCOPE_OFFER);
    assert_contains(err.msg, "1 without gpu: h100:8");
    p->ops->close(p);
}

static void test_trust_is_required(void **state) {
    struct world *w = *state;
    struct gp_error err = {0};
    GP_AUTO_OFFERS struct offer_list offers = {0};
    write_hosts(w, "hosts: [10.0.0.1, 10.0.0.2]\n");
    struct provider *p = open_ssh(w, "me", false);
    assert_int_equal(p->ops->offers(p, &w->spec, 0, &offers, &err), -GP_EUSAGE);
    assert_contains(err.msg, "2 whose host key is not known: 10.0.0.1, 10.0.0.2 (");
    assert_contains(err.msg, "--accept-new-host-key");
    gp_error_clear(&err);
    p->ops->close(p);
    p = open_ssh(w, "me", true);
    assert_int_equal(p->ops->offers(p, &w->spec, 0, &offers, &err), 0);
    struct stack s = {0};
    new_stack(w, p, "llm", &s);
    GP_AUTO_RESOURCES struct resource_list made = {0};
    assert_int_equal(take(w, p, &s, 0, 2, 1, &made, &err), 0);
    assert_true(str_ends(made.list.items[0].known_hosts, "/.ssh/known_hosts"));
    p->ops->close(p);
    /* The file changed or went: what is held is still known, with the newest way in. */
    write_hosts(w, "hosts: [{address: 10.0.0.1, user: new, host_key: " PRINT "}]\n");
    p = open_ssh(w, "me", false);
    struct list_req mine = {.owner = "me", .stack = "llm"};
    GP_AUTO_RESOURCES struct resource_list l1 = {0}, l2 = {0};
    assert_int_equal(p->ops->list(p, &mine, &l1, &err), 0);
    assert_int_equal(l1.list.len, 2);
    assert_string_equal(l1.list.items[0].user, "new");
    assert_string_equal(l1.list.items[0].host_keys, PRINT);
    unlink(w->hosts);
    assert_int_equal(p->ops->list(p, &mine, &l2, &err), 0);
    assert_int_equal(l2.list.len, 2);
    p->ops->close(p);
    stack_clear(&s);
}

/* --- trust that an earlier run accepted --- */

/* Offers of two hosts without keys, in a home whose known_hosts file has this text; NULL: no ~/.ssh. */
static int offers_at_home(struct world *w, const char *text, struct gp_error *err) {
    GP_AUTO_OFFERS struct offer_list offers = {0};
    GP_AUTO_FREE char *folder = fs_join(w->dir, ".ssh"), *file = fs_join(folder, "known_hosts");
    if (text != NULL) {
        assert_int_equal(fs_mkdirs(folder, 0700, NULL), 0);
        assert_int_equal(fs_write_atomic(file, text, strlen(text), 0600, NULL), 0);
    }
    write_hosts(w, "hosts: [10.0.0.1, {address: 10.0.0.2, port: 2222}]\n");
    struct provider *p = open_ssh(w, "me", false);
    int r = p->ops->offers(p, &w->spec, 0, &offers, err);
    p->ops->close(p);
    return r;
}

static void test_accepted_keys_are_read_back(void **state) {
    struct world *w = *state;
    struct gp_error err = {0};
    GP_AUTO_FREE char *home = xstrdup(getenv("HOME"));
    setenv("HOME", w->dir, 1);
    assert_int_equal(offers_at_home(w, NULL, &err), -GP_EUSAGE);
    gp_error_clear(&err);
    assert_int_equal(offers_at_home(w, "10.0.0.1 " KEY "\n[10.0.0.9]:2222 " KEY "\n", &err), -GP_EUSAGE);
    assert_contains(err.msg, "1 whose host key is not known: 10.0.0.2 (");
    gp_error_clear(&err);
    assert_int_equal(offers_at_home(w, "10.0.0.1 " KEY "\n[10.0.0.2]:2222 " KEY "\n", &err), 0);
    if (home != NULL) setenv("HOME", home, 1);
}

/* --- edits of the hosts file --- */

static char heard[2048];
static void hear(void *ctx, const struct event *e) {
    (void)ctx;
    size_t n = strlen(heard);
    snprintf(heard + n, sizeof heard - n, "%s\n", e->text);
}

static void expect_edit(struct world *w, const char *text, const char *want) {
    const struct event_sink sink = {.emit = hear};
    struct provider_env env = {.cancel = &w->cancel,
                               .journal = w->journal,
                               .state_dir = w->dir,
                               .owner = "me",
                               .spec = &w->spec,
                               .sink = &sink};
    struct provider *p = NULL;
    struct list_req mine = {.owner = "me", .stack = "llm"};
    if (text != NULL) write_hosts(w, text);
    else unlink(w->hosts);
    assert_int_equal(provider_find("ssh")->open(&env, &p, NULL), 0);
    heard[0] = '\0';
    for (int i = 0; i < 2; i++) { /* reported once, however often the hosts are listed */
        GP_AUTO_RESOURCES struct resource_list l = {0};
        assert_int_equal(p->ops->list(p, &mine, &l, NULL), 0);
        assert_int_equal(l.list.len, 2); /* nothing is released by an edit */
    }
    p->ops->close(p);
    if (want == NULL) assert_string_equal(heard, "");
    else assert_contains(heard, want);
    const char *second = want != NULL ? strstr(strstr(heard, want) + 1, want) : NULL;
    assert_null(second);
}

static void test_edits_are_reported(void **state) {
    struct world *w = *state;
    struct stack s = {0};
    struct gp_error err = {0};
    GP_AUTO_RESOURCES struct resource_list made = {0};
    w->spec.gpu.model = xstrdup("H100");
    w->spec.gpu.count = 8;
    write_hosts(w, three);
    struct provider *p = open_ssh(w, "me", false);
    new_stack(w, p, "llm", &s);
    assert_int_equal(take(w, p, &s, 0, 2, 1, &made, &err), 0);
    p->ops->close(p);
#define FIRST "hosts:\n  - {address: 10.0.0.1, host_key: " PRINT ", gpu: H100:8, key: /k}\n"
#define SECOND(x) "  - {address: 10.0.0.2, host_key: " PRINT ", gpu: H100:8" x "}\n"
    expect_edit(w, three, NULL);
    expect_edit(w, FIRST SECOND("") "  - 10.0.0.9\n", NULL); /* a new host is no edit of a taken one */
    expect_edit(w, FIRST, "no longer has 10.0.0.2:22, which node 1 is on: the stack keeps it until 'gpuprov down llm'");
    expect_edit(w, FIRST SECOND(", port: 2222"), "no longer has 10.0.0.2:22");
    expect_edit(w, FIRST SECOND(", user: ops, bastion: gate"), "bastion: none -> gate; used from now on");
    expect_edit(w, FIRST SECOND(", user: ops"), " -> ops; used from now on");
    expect_edit(w, FIRST "  - {address: 10.0.0.2, gpu: H100:8, host_key: '" KEY "'}\n", "host_key changed");
    expect_edit(w, FIRST "  - {address: 10.0.0.2, host_key: " PRINT ", gpu: H100:4}\n", "no longer has gpu: H100:8");
    expect_edit(w, "hosts: [\n",
                "fleet.yaml:2:1: a value is missing here, or a bracket is not closed; its hosts are used");
    expect_edit(w, NULL, "fleet.yaml': No such file or directory: correct its name; its hosts are used");
    p = open_ssh(w, "me", false);
    assert_int_equal(p->ops->destroy(p, &made, &err), 0); /* by the journal */
    p->ops->close(p);
    stack_clear(&s);
}

static void test_manual_page(void **state) {
    (void)state;
    GP_AUTO_FREE char *page = ssh_hosts_markdown(), *schema = ssh_hosts_json_schema();
    same_as_file("docs/hosts.md", page);
    GP_AUTO_JSON json_t *j = NULL;
    assert_int_equal(json_parse(schema, strlen(schema), "the schema", &j, NULL), 0);
    assert_int_equal(json_int(j, "properties.hosts.items.anyOf.0.properties.port.maximum", 0), 65535);
    assert_null(json_at(j, "properties.defaults.properties.address"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hosts),
        cmocka_unit_test(test_hosts_errors),
        cmocka_unit_test_setup_teardown(test_login_name_as_owner, setup, teardown),
        cmocka_unit_test_setup_teardown(test_take_and_release, setup, teardown),
        cmocka_unit_test_setup_teardown(test_replay, setup, teardown),
        cmocka_unit_test_setup_teardown(test_gpu_filter, setup, teardown),
        cmocka_unit_test_setup_teardown(test_trust_is_required, setup, teardown),
        cmocka_unit_test_setup_teardown(test_accepted_keys_are_read_back, setup, teardown),
        cmocka_unit_test_setup_teardown(test_edits_are_reported, setup, teardown),
        cmocka_unit_test(test_manual_page),
    };
    return cmocka_run_group_tests_name("ssh provider", tests, NULL, NULL);
}
