/* SPDX-License-Identifier: Apache-2.0 */
/* What test_local.c and test_local_faults.c share: the local provider for real, in a state folder of the
 * program's own, and what is left on the machine afterwards. Needs root, or user namespaces with
 * /etc/subuid; skipped with the doctor's own reason where neither works. */
#ifndef GP_LOCAL_WORLD_H
#define GP_LOCAL_WORLD_H

#include "base/gp_base.h"

#include "base/fs.h"
#include "folder.h"
#include "providers/local/local.h"
#include "providers/local/local_claim.h"
#include "providers/local/ns/netns.h"
#include "providers/provider.h"
#include "ssh/ssh.h"

#include <dirent.h>
#include <net/if.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <sys/mount.h>
#include <unistd.h>

#include <cmocka.h>

struct world {
    char state[64];
    char *why_not; /* NULL: local nodes work here */
    struct gp_cancel cancel;
    struct secret key;
    char *pubkey;
    char *mounts; /* mountinfo at the beginning */
    size_t links;
    struct strv uids; /* of every stack that there was */
};
static struct world w;

#define OK(call)                                                            \
    do {                                                                    \
        struct gp_error e_ = {0};                                           \
        struct gp_error *err = &e_;                                         \
        if ((call) != 0) fail_msg("%s: %s [%s]", #call, e_.msg, e_.detail); \
    } while (0)

static void need_local(void) {
    if (w.why_not == NULL) return;
    print_message("local nodes do not work here: %s\n", w.why_not);
    skip();
}

/* --- one controller --- */

struct up {
    struct journal *journal;
    struct provider *p;
    struct stack stack;
    struct spec spec;
    struct offer_list offers;
    struct resource_list made;
};

static void up_open(struct up *u, const char *name, int nodes, int64_t ttl_s) {
    *u = (struct up){0};
    OK(journal_open(NULL, &u->journal, NULL, err));
    struct provider_env env = {.cancel = &w.cancel, .journal = u->journal, .state_dir = w.state};
    OK(provider_local.open(&env, &u->p, err));
    u->spec = (struct spec){.name = xstrdup(name), .nodes = nodes};
    vec_push(&u->spec.offers, ((struct spec_offer){.provider = NULL}));
    u->stack = (struct stack){.owner = xstrdup(u->p->owner),
                              .name = xstrdup(name),
                              .spec_hash = xasprintf("%064d", 7),
                              .provider = xstrdup("local"),
                              .region = xstrdup("here"),
                              .expires_s = clock_wall_s() + ttl_s};
    OK(provider_local.offers(u->p, &u->spec, 0, &u->offers, err));
}

static void up_close(struct up *u) {
    provider_local.close(u->p);
    journal_close(u->journal);
    offer_list_clear(&u->offers);
    resource_list_clear(&u->made);
    if (u->stack.uid != NULL) strv_add(&w.uids, u->stack.uid);
    stack_clear(&u->stack);
    free(u->spec.name);
    vec_free(&u->spec.offers);
}

static int up_try(struct up *u, int first, int count, int attempt, struct gp_error *err) {
    struct prepare_req prepare = {.stack = &u->stack, .spec = &u->spec};
    struct create_req create = {.stack = &u->stack,
                                .spec = &u->spec,
                                .offer = &u->offers.list.items[0],
                                .slot_first = first,
                                .slot_count = count,
                                .attempt = attempt,
                                .login_pubkey = w.pubkey,
                                .user_data = "",
                                .host_key_private = "",
                                .host_key_public = ""};
    resource_list_clear(&u->made);
    int r = provider_local.prepare(u->p, &prepare, err);
    return r != 0 ? r : provider_local.create(u->p, &create, &u->made, err);
}

static void up_list(struct up *u, struct resource_list *ret) {
    struct list_req req = {.owner = u->p->owner, .stack = u->spec.name};
    resource_list_clear(ret);
    OK(provider_local.list(u->p, &req, ret, err));
}

static const struct resource *find(const struct resource_list *l, enum resource_kind kind, int slot) {
    for (size_t i = 0; i < l->list.len; i++)
        if (l->list.items[i].kind == kind && l->list.items[i].slot == slot && l->list.items[i].state != RES_GONE)
            return &l->list.items[i];
    return NULL;
}

static const struct resource *the(const struct resource_list *l, enum resource_kind kind, int slot)
    __attribute__((returns_nonnull));
static const struct resource *the(const struct resource_list *l, enum resource_kind kind, int slot) {
    const struct resource *r = find(l, kind, slot);
    if (r != NULL) return r;
    fail_msg("no %s for slot %d", resource_kind_name(kind), slot);
    abort();
}

static void up_down(struct up *u) {
    GP_AUTO_RESOURCES struct resource_list all = {0};
    up_list(u, &all);
    OK(provider_local.destroy(u->p, &all, err));
    up_list(u, &all);
    assert_int_equal(all.list.len, 0);
}

/* --- over SSH --- */

static struct ssh_session *login(const struct resource *r) {
    GP_AUTO_SSH_TARGET struct ssh_target t = {.label = xstrdup(r->id),
                                              .host = xstrdup(r->private_ip),
                                              .dial_socket = xstrdup(r->dial_socket),
                                              .user = xstrdup(r->user)};
    strv_add(&t.host_keys, r->host_keys);
    secret_copy(&t.key_pem, &w.key);
    struct ssh_open_opts o = {.deadline_ms = clock_deadline(30000), .cancel = &w.cancel};
    struct ssh_session *s = NULL;
    OK(ssh_open(&t, &o, &s, err));
    return s;
}

/* Output of a command that must succeed; caller frees. */
static char *on(const struct resource *r, const char *command) {
    GP_AUTO_SSH struct ssh_session *s = login(r);
    GP_AUTO_STR struct str out = {0};
    struct ssh_exec_opts o = {.deadline_ms = clock_deadline(30000), .cancel = &w.cancel};
    OK(ssh_run(s, "test", command, &o, &out, err));
    return xstrdup(out.s ? str_trim(out.s) : "");
}

/* --- what is left on the machine --- */

static char *mounts(void) {
    GP_AUTO_STR struct str text = {0};
    OK(fs_read("/proc/self/mountinfo", (size_t)8 << 20, &text, err));
    return xstrdup(text.s);
}

/* What was there at the beginning may go: a copy of another's mount does, with the folder it is on. */
static void assert_no_new_mount(void) {
    GP_AUTO_FREE char *text = mounts();
    GP_AUTO_STRV struct strv was = {0}, is = {0};
    strv_split(&was, w.mounts, "\n");
    strv_split(&is, text, "\n");
    for (size_t i = 0; i < is.n; i++)
        if (!strv_has(&was, is.v[i])) fail_msg("a new mount is left: %s", is.v[i]);
}

/* Live processes whose arguments name our state folder. */
static size_t count_holders(void) {
    size_t n = 0;
    DIR *d = opendir("/proc");
    for (struct dirent *e = readdir(d); e != NULL; e = readdir(d)) {
        GP_AUTO_FREE char *path = xasprintf("/proc/%s/cmdline", e->d_name);
        GP_AUTO_STR struct str text = {0};
        if (e->d_name[0] < '0' || e->d_name[0] > '9') continue;
        if (fs_read(path, 4096, &text, NULL) != 0 || text.s == NULL) continue;
        if (strcmp(text.s, "gpuprov-stack") == 0 && memmem(text.s, text.len, w.state, strlen(w.state)) != NULL) n++;
    }
    closedir(d);
    return n;
}

/* Of the network namespace that this program is in, whatever /sys shows. */
static size_t count_links(void) {
    size_t n = 0;
    struct if_nameindex *links = if_nameindex();
    assert_non_null(links);
    while (links[n].if_index != 0) n++;
    if_freenameindex(links);
    return n;
}

static size_t count_entries(const char *dir) {
    size_t n = 0;
    DIR *d = opendir(dir);
    if (d == NULL) return 0;
    for (struct dirent *e = readdir(d); e != NULL; e = readdir(d))
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0) n++;
    closedir(d);
    return n;
}

static void assert_nothing_left(void) {
    GP_AUTO_FREE char *stacks = fs_join(w.state, "local");
    int lock = -1;
    OK(local_lock(stacks, clock_deadline(10000), NULL, &lock, err)); /* sweeps */
    close(lock);
    /* a starter whose controller was killed looks, finds no claim and goes; a holder would stay */
    for (int64_t end = clock_deadline(60000); count_holders() > 0 && clock_left_ms(end) > 0;) gp_sleep(20, NULL, NULL);
    assert_int_equal(count_holders(), 0);
    for (size_t i = 0; i < w.uids.n; i++) {
        GP_AUTO_FREE char *cgroup = local_cgroup(w.uids.v[i]);
        if (cgroup != NULL) assert_false(fs_exists(cgroup));
    }
    assert_int_equal(count_entries(stacks), 0);
    assert_no_new_mount();
    assert_int_equal(count_links(), w.links);
}

/* --- set-up --- */

/* Mounts and links of this program's own, where it may: what others on the machine make and remove in
 * the meantime is not counted then. */
static void be_alone(void) {
    if (unshare(CLONE_NEWNS) == 0) assert_int_equal(mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL), 0);
    if (unshare(CLONE_NEWNET) == 0) assert_int_equal(net_link_up("lo"), 0);
}

static int setup(void **state) {
    (void)state;
    struct gp_error err = {0};
    GP_AUTO_STR struct str report = {0};
    bool usable = false;
    be_alone();
    if (make_folder(w.state, sizeof w.state, "local-test") == NULL || ssh_global_init(&err) != 0 ||
        gp_cancel_init(&w.cancel, &err) != 0 || ssh_key_make("test", &w.key, &w.pubkey, &err) != 0 ||
        local_doctor(&report, &usable, &err) != 0) {
        print_error("%s\n", err.msg);
        return -1;
    }
    if (!usable) w.why_not = xstrdup(str_trim(report.s));
    w.mounts = mounts();
    w.links = count_links();
    return 0;
}

/* Also what a failed test left. */
static int teardown(void **state) {
    (void)state;
    GP_AUTO_FREE char *stacks = fs_join(w.state, "local");
    GP_AUTO_CLAIMS struct local_claims left = {0};
    local_claims_read(stacks, NULL, NULL, &left, NULL);
    for (size_t i = 0; i < left.list.len; i++) {
        struct local_claim *c = &left.list.items[i];
        if (local_holder_kill(c->dir, clock_deadline(10000), NULL) == 0) local_remove(stacks, c->dir, c->uid, NULL);
    }
    ssh_global_exit();
    secret_clear(&w.key);
    free(w.pubkey);
    free(w.why_not);
    free(w.mounts);
    strv_clear(&w.uids);
    gp_cancel_clear(&w.cancel);
    return fs_remove_tree(w.state, NULL);
}

#endif
