// SPDX-License-Identifier: Apache-2.0
/* The local provider for real: two nodes up, reached over SSH, looked at from inside, rebooted, ended;
 * deadline, kill -9 at any moment, two at once; afterwards nothing is left. Needs root, or user
 * namespaces with /etc/subuid; skipped with the doctor's own reason where neither works. */
#include "base/gp_base.h"

#include "base/fs.h"
#include "providers/local/claim.h"
#include "providers/local/local.h"
#include "providers/local/netns.h"
#include "providers/local/proxy.h"
#include "providers/provider.h"
#include "ssh/ssh.h"

#include <dirent.h>
#include <ftw.h>
#include <net/if.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <sys/stat.h>
#include <sys/wait.h>
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
    u->stack = (struct stack){.owner = xstrdup(u->p->owner), .name = xstrdup(name),
                              .spec_hash = xstrdup("hash"), .provider = xstrdup("local"),
                              .region = xstrdup("here"), .expires_s = clock_wall_s() + ttl_s};
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
}

static int up_try(struct up *u, int first, int count, int attempt, struct gp_error *err) {
    struct prepare_req prepare = {.stack = &u->stack, .spec = &u->spec};
    struct create_req create = {.stack = &u->stack, .spec = &u->spec,
                                .offer = &u->offers.list.items[0], .slot_first = first,
                                .slot_count = count, .attempt = attempt, .login_pubkey = w.pubkey,
                                .user_data = "", .host_key_private = "", .host_key_public = ""};
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
        if (l->list.items[i].kind == kind && l->list.items[i].slot == slot &&
            l->list.items[i].state != RES_GONE)
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
    GP_AUTO_SSH_TARGET struct ssh_target t = {.label = xstrdup(r->id), .host = xstrdup(r->private_ip),
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

static void send_off(const struct resource *r, const char *command) {
    GP_AUTO_SSH struct ssh_session *s = login(r);
    struct ssh_exec_opts o = {.deadline_ms = clock_deadline(10000), .cancel = &w.cancel};
    GP_AUTO_SSH_RESULT struct ssh_result result = {0};
    OK(ssh_exec(s, command, &o, &result, err));
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
        if (strcmp(text.s, "gpuprov-stack") == 0 &&
            memmem(text.s, text.len, w.state, strlen(w.state)) != NULL)
            n++;
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
    for (int64_t end = clock_deadline(60000); count_holders() > 0 && clock_left_ms(end) > 0;)
        gp_sleep(20, NULL, NULL);
    assert_int_equal(count_holders(), 0);
    for (size_t i = 0; i < w.uids.n; i++) {
        GP_AUTO_FREE char *cgroup = local_cgroup(w.uids.v[i]);
        if (cgroup != NULL) assert_false(fs_exists(cgroup));
    }
    assert_int_equal(count_entries(stacks), 0);
    assert_no_new_mount();
    assert_int_equal(count_links(), w.links);
}

/* --- tests --- */

static void test_story(void **state) {
    (void)state;
    need_local();
    struct up u, other;
    up_open(&u, "story", 2, 3600);
    struct prepare_req prepare = {.stack = &u.stack, .spec = &u.spec};
    OK(provider_local.prepare(u.p, &prepare, err));
    GP_AUTO_FREE char *uid = xstrdup(u.stack.uid);
    up_open(&other, "story", 2, 7200);
    prepare.stack = &other.stack;
    OK(provider_local.prepare(other.p, &prepare, err));
    assert_string_equal(other.stack.uid, uid); /* the winner's, with the winner's deadline */
    assert_int_equal(other.stack.expires_s, u.stack.expires_s);
    OK(up_try(&u, 0, 2, 1, err));
    assert_int_equal(u.made.list.len, 2);
    /* the same launch again, from a controller that knows nothing: the same nodes */
    OK(up_try(&other, 0, 2, 1, err));
    for (int i = 0; i < 2; i++) {
        const struct resource *a = the(&u.made, RES_INSTANCE, i);
        assert_string_equal(a->id, the(&other.made, RES_INSTANCE, i)->id);
        assert_string_equal(a->uid, uid);
        assert_int_equal(a->state, RES_RUNNING);
        assert_true(str_starts(a->host_keys, "ssh-ed25519 "));
    }
    /* another launch for a slot that is taken */
    struct gp_error err = {0};
    assert_int_equal(up_try(&other, 1, 1, 2, &err), -GP_EEXISTS);
    const struct resource *n0 = the(&u.made, RES_INSTANCE, 0), *n1 = the(&u.made, RES_INSTANCE, 1);
    GP_AUTO_FREE char *name = on(n1, "hostname; id -u; ls -A /home");
    assert_string_equal(name, "story-1\n0");
    /* node to node, by name: the key that the peer shows is the one that was pinned */
    GP_AUTO_FREE char *seen = on(n0, "ssh-keyscan -t ed25519 story-1 2>/dev/null");
    assert_non_null(strstr(seen, n1->host_keys));
    GP_AUTO_RESOURCES struct resource_list all = {0};
    up_list(&other, &all);
    assert_int_equal(all.list.len, 3);
    assert_int_equal(the(&all, RES_HOLDER, -1)->state, RES_RUNNING);
    assert_true(the(&all, RES_HOLDER, -1)->claim);
    up_down(&other);
    up_close(&u);
    up_close(&other);
    assert_nothing_left();
}

static void test_growth(void **state) {
    (void)state;
    need_local();
    struct up u;
    up_open(&u, "grow", 1, 3600);
    OK(up_try(&u, 0, 1, 1, err));
    struct resource first = {0};
    resource_copy(&first, the(&u.made, RES_INSTANCE, 0));
    u.spec.nodes = 3;
    OK(up_try(&u, 1, 2, 1, err));
    /* the older node knows the newer ones by name, and they answer */
    GP_AUTO_FREE char *seen = on(&first, "ssh-keyscan -t ed25519 grow-2 2>/dev/null");
    assert_non_null(strstr(seen, the(&u.made, RES_INSTANCE, 2)->host_keys));
    resource_clear(&first);
    up_down(&u);
    up_close(&u);
    assert_nothing_left();
}

static struct str unreadable;
static int note_unreadable(const char *path, const struct stat *st, int type, struct FTW *ftw) {
    (void)ftw;
    static const char *const own[] = {"/etc/shadow", "/etc/gshadow", "/etc/sudoers", NULL};
    for (size_t i = 0; own[i] != NULL; i++)
        if (strcmp(path, own[i]) == 0) return FTW_CONTINUE; /* the node has its own */
    if (str_starts(path, "/var/lib/dpkg") || str_starts(path, "/var/lib/apt") ||
        str_starts(path, "/var/cache") || str_starts(path, "/var/lib/rpm") ||
        str_starts(path, "/var/lib/dnf") || str_starts(path, "/var/lib/polkit-1") ||
        str_starts(path, "/var/lib/private"))
        return type == FTW_D ? FTW_SKIP_SUBTREE : FTW_CONTINUE;
    if (type == FTW_F && S_ISREG(st->st_mode) && (st->st_mode & S_IROTH) == 0)
        str_addf(&unreadable, "%s\n", path);
    return FTW_CONTINUE;
}

static void test_walls(void **state) {
    (void)state;
    need_local();
    struct up u;
    up_open(&u, "walls", 1, 3600);
    OK(up_try(&u, 0, 1, 1, err));
    const struct resource *n = the(&u.made, RES_INSTANCE, 0);
    nftw("/etc", note_unreadable, 16, FTW_PHYS | FTW_ACTIONRETVAL);
    nftw("/var", note_unreadable, 16, FTW_PHYS | FTW_ACTIONRETVAL);
    str_add(&unreadable, "");
    GP_AUTO_SSH struct ssh_session *s = login(n);
    struct ssh_exec_opts o = {.in = unreadable.s, .in_len = unreadable.len,
                              .deadline_ms = clock_deadline(60000), .cancel = &w.cancel};
    GP_AUTO_STR struct str out = {0};
    OK(ssh_run(s, "test", "while read -r f; do [ ! -e \"$f\" ] || echo \"$f\"; done", &o, &out, err));
    assert_string_equal(out.s ? out.s : "", "");
    if (geteuid() == 0) assert_true(unreadable.len > 0); /* else the test saw nothing */
    str_clear(&unreadable);
    GP_AUTO_FREE char *walls = on(n,
        "cut -d: -f2 /etc/shadow | sort -u; mount -t tmpfs x /mnt 2>/dev/null && echo mounted; "
        "mknod /tmp/b b 8 0 2>/dev/null && echo made; "
        "(echo x >/proc/sys/kernel/domainname) 2>/dev/null && echo wrote; "
        "touch /sys/kernel/x 2>/dev/null && echo touched; [ -e /root/.bash_history ] && "
        "echo seen; grep -lx test_local /proc/[0-9]*/comm; "
        "readlink /proc/1/exe");
    assert_string_equal(walls, "*\n/memfd:gpuprov (deleted)");
    up_down(&u);
    up_close(&u);
    assert_nothing_left();
}

static void test_reboot_and_poweroff(void **state) {
    (void)state;
    need_local();
    struct up u;
    up_open(&u, "power", 1, 3600);
    OK(up_try(&u, 0, 1, 1, err));
    const struct resource *n = the(&u.made, RES_INSTANCE, 0);
    GP_AUTO_FREE char *before = on(n, "cat /proc/sys/kernel/random/boot_id; touch /tmp/t /etc/keep; "
                                      "mkdir /data; echo k >/root/keep");
    send_off(n, "reboot");
    /* a login may still reach the old boot: the new boot id is the fact that is waited for */
    GP_AUTO_FREE char *now = NULL;
    for (int64_t end = clock_deadline(30000); now == NULL && clock_left_ms(end) > 0;) {
        GP_AUTO_SSH struct ssh_session *s = login(n);
        GP_AUTO_SSH_RESULT struct ssh_result r = {0};
        struct ssh_exec_opts o = {.deadline_ms = clock_deadline(5000), .cancel = &w.cancel};
        OK(ssh_exec(s, "cat /proc/sys/kernel/random/boot_id", &o, &r, err));
        if (r.end == SSH_EXITED && r.status == 0 && strcmp(str_trim(r.out.s), before) != 0)
            now = xstrdup(r.out.s);
    }
    assert_non_null(now);
    GP_AUTO_FREE char *kept = on(n, "cat /root/keep; ls -d /data /etc/keep; ls -A /tmp");
    assert_string_equal(kept, "k\n/data\n/etc/keep");
    send_off(n, "shutdown -h now");
    GP_AUTO_RESOURCES struct resource_list all = {0};
    for (int64_t end = clock_deadline(30000); clock_left_ms(end) > 0;) {
        up_list(&u, &all);
        if (the(&all, RES_INSTANCE, 0)->state == RES_STOPPED) break;
        gp_sleep(20, NULL, NULL);
    }
    assert_string_equal(the(&all, RES_INSTANCE, 0)->state_reason, "powered off");
    /* a new attempt fills the slot with a new node; the old one is told as gone */
    OK(up_try(&u, 0, 1, 2, err));
    up_list(&u, &all);
    assert_int_equal(all.list.len, 3);
    GP_AUTO_FREE char *fresh = on(the(&all, RES_INSTANCE, 0), "ls -A /data 2>/dev/null || echo none");
    assert_string_equal(fresh, "none");
    up_down(&u);
    up_close(&u);
    assert_nothing_left();
}

static void test_one_node_ends(void **state) {
    (void)state;
    need_local();
    struct up u;
    up_open(&u, "one", 2, 3600);
    OK(up_try(&u, 0, 2, 1, err));
    GP_AUTO_RESOURCES struct resource_list one = {0}, all = {0};
    struct resource copy = {0};
    resource_copy(&copy, the(&u.made, RES_INSTANCE, 1));
    vec_push(&one.list, copy);
    OK(provider_local.destroy(u.p, &one, err));
    OK(provider_local.destroy(u.p, &one, err)); /* missing: success */
    up_list(&u, &all);
    assert_null(find(&all, RES_INSTANCE, 1));
    GP_AUTO_FREE char *still = on(the(&all, RES_INSTANCE, 0), "echo here");
    assert_string_equal(still, "here");
    up_down(&u);
    up_close(&u);
    assert_nothing_left();
}

static void test_deadline(void **state) {
    (void)state;
    need_local();
    struct up u;
    /* short, but long enough here and now for the node to be made */
    struct gp_error late = {0};
    for (int64_t ttl_s = 2;; ttl_s *= 2) {
        gp_error_clear(&late);
        up_open(&u, "late", 1, ttl_s);
        if (up_try(&u, 0, 1, 1, &late) == 0) break;
        if (ttl_s > 60) fail_msg("%s", late.msg);
        up_close(&u);
    }
    GP_AUTO_RESOURCES struct resource_list all = {0};
    /* nobody ends it: it must go, with its folder */
    for (int64_t end = clock_deadline(150000); clock_left_ms(end) > 0;) {
        up_list(&u, &all);
        if (all.list.len == 0) break;
        gp_sleep(50, NULL, NULL);
    }
    assert_int_equal(all.list.len, 0);
    up_close(&u);
    /* the process itself ends a moment after its folder */
    for (int64_t end = clock_deadline(60000); count_holders() > 0 && clock_left_ms(end) > 0;)
        gp_sleep(20, NULL, NULL);
    assert_nothing_left();
}

static void test_holder_killed(void **state) {
    (void)state;
    need_local();
    struct up u;
    up_open(&u, "killed", 1, 3600);
    OK(up_try(&u, 0, 1, 1, err));
    GP_AUTO_FREE char *stacks = fs_join(w.state, "local");
    GP_AUTO_FREE char *dir = local_dir(stacks, u.p->owner, "killed");
    GP_AUTO_FREE char *uid = xstrdup(u.stack.uid);
    OK(local_holder_kill(dir, clock_deadline(10000), err));
    GP_AUTO_RESOURCES struct resource_list all = {0};
    up_list(&u, &all);
    assert_int_equal(all.list.len, 1);
    assert_int_equal(all.list.items[0].state, RES_STOPPED);
    OK(up_try(&u, 0, 1, 2, err)); /* the claim is still there: same stack, new holder */
    assert_string_equal(u.stack.uid, uid);
    GP_AUTO_FREE char *name = on(the(&u.made, RES_INSTANCE, 0), "hostname");
    assert_string_equal(name, "killed-0");
    up_down(&u);
    up_close(&u);
    assert_nothing_left();
}

struct renamer {
    char *from, *to;
};

static void *rename_soon(void *arg) {
    const struct renamer *r = arg;
    gp_sleep(100, NULL, NULL);
    assert_int_equal(rename(r->from, r->to), 0);
    return NULL;
}

/* The record of a holder is there before it can be asked: a create in between waits. */
static void test_holder_that_is_setting_up(void **state) {
    (void)state;
    need_local();
    struct up u;
    up_open(&u, "slow", 1, 3600);
    OK(up_try(&u, 0, 1, 1, err));
    GP_AUTO_FREE char *stacks = fs_join(w.state, "local");
    GP_AUTO_FREE char *dir = local_dir(stacks, u.p->owner, "slow");
    struct renamer r = {.from = fs_join(dir, "later"), .to = fs_join(dir, "ctl")};
    pthread_t thread;
    assert_int_equal(rename(r.to, r.from), 0);
    assert_int_equal(pthread_create(&thread, NULL, rename_soon, &r), 0);
    OK(up_try(&u, 0, 1, 1, err));
    pthread_join(thread, NULL);
    assert_non_null(find(&u.made, RES_INSTANCE, 0));
    free(r.from);
    free(r.to);
    up_down(&u);
    up_close(&u);
    assert_nothing_left();
}

static void test_folder_removed_by_hand(void **state) {
    (void)state;
    need_local();
    struct up u;
    up_open(&u, "rm", 1, 3600);
    OK(up_try(&u, 0, 1, 1, err));
    GP_AUTO_FREE char *stacks = fs_join(w.state, "local");
    GP_AUTO_FREE char *dir = local_dir(stacks, u.p->owner, "rm");
    OK(local_remove(stacks, dir, u.stack.uid, err));
    for (int64_t end = clock_deadline(60000); count_holders() > 0 && clock_left_ms(end) > 0;)
        gp_sleep(20, NULL, NULL);
    up_close(&u);
    assert_nothing_left();
}

/* The state folder moved away: nobody can find that stack by its name, so it ends. */
static void test_folder_moved(void **state) {
    (void)state;
    need_local();
    struct up u;
    up_open(&u, "mv", 1, 3600);
    OK(up_try(&u, 0, 1, 1, err));
    GP_AUTO_FREE char *stacks = fs_join(w.state, "local");
    GP_AUTO_FREE char *dir = local_dir(stacks, u.p->owner, "mv");
    GP_AUTO_FREE char *away = fs_join(w.state, "elsewhere");
    assert_int_equal(rename(dir, away), 0);
    for (int64_t end = clock_deadline(10000); count_holders() > 0 && clock_left_ms(end) > 0;)
        gp_sleep(20, NULL, NULL);
    assert_int_equal(count_holders(), 0);
    OK(fs_remove_tree(away, err));
    up_close(&u);
    assert_nothing_left();
}

struct racer {
    struct up u;
    pthread_t thread;
    struct gp_error err;
    int r;
};
static void *race(void *arg) {
    struct racer *r = arg;
    r->r = up_try(&r->u, 0, 2, 1, &r->err);
    return NULL;
}

static void test_two_at_once(void **state) {
    (void)state;
    need_local();
    struct racer r[3] = {0};
    for (int i = 0; i < 3; i++) up_open(&r[i].u, "race", 2, 3600);
    for (int i = 0; i < 3; i++) pthread_create(&r[i].thread, NULL, race, &r[i]);
    for (int i = 0; i < 3; i++) pthread_join(r[i].thread, NULL);
    for (int i = 0; i < 3; i++) {
        if (r[i].r != 0) fail_msg("%d: %s", i, r[i].err.msg);
        assert_string_equal(r[i].u.stack.uid, r[0].u.stack.uid);
        for (int s = 0; s < 2; s++)
            assert_string_equal(the(&r[i].u.made, RES_INSTANCE, s)->id,
                                the(&r[0].u.made, RES_INSTANCE, s)->id);
    }
    up_down(&r[0].u);
    for (int i = 0; i < 3; i++) up_close(&r[i].u);
    assert_nothing_left();
}

/* This program again, as a controller that is killed in the middle of its work. */
static pid_t start_controller(void) {
    char exe[] = "/proc/self/exe", mode[] = "__up";
    char *argv[] = {exe, mode, w.state, w.pubkey, NULL}, *envp[] = {NULL};
    pid_t pid = -1;
    assert_int_equal(posix_spawn(&pid, exe, NULL, NULL, argv, envp), 0);
    return pid;
}

static void test_killed_at_any_moment(void **state) {
    (void)state;
    need_local();
    for (int i = 0; i < 20; i++) {
        unsigned ms = 0;
        OK(fs_random(&ms, sizeof ms, err));
        pid_t pid = start_controller();
        gp_sleep(ms % 70, NULL, NULL);
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        struct up u;
        up_open(&u, "crash", 2, 3600);
        up_down(&u);
        up_close(&u);
    }
    /* a starter outlives its controller for a moment; its stack is recorded and found like any */
    for (int64_t end = clock_deadline(30000); count_holders() > 0 && clock_left_ms(end) > 0;) {
        struct up u;
        up_open(&u, "crash", 2, 3600);
        up_down(&u);
        up_close(&u);
        gp_sleep(50, NULL, NULL);
    }
    assert_nothing_left();
}

static void test_refusals(void **state) {
    (void)state;
    need_local();
    struct up u;
    struct gp_error err = {0};
    up_open(&u, "refuse", 1, 3600);
    u.spec.gpu = (struct spec_gpu){.model = xstrdup("H100"), .count = 200};
    assert_int_equal(provider_local.offers(u.p, &u.spec, 0, &u.offers, &err), -GP_ECAPACITY);
    assert_int_equal(err.scope, GP_SCOPE_OFFER);
    assert_non_null(strstr(err.msg, "this machine has "));
    free(u.spec.gpu.model);
    u.spec.gpu = (struct spec_gpu){0};
    gp_error_clear(&err);
    strv_add(&u.spec.packages, "hello");
    int r = provider_local.offers(u.p, &u.spec, 0, &u.offers, &err);
    assert_int_equal(r, local_packages_ok(NULL) ? 0 : -GP_EENV);
    strv_clear(&u.spec.packages);
    up_close(&u);
    assert_nothing_left();
}

static void test_proxy_rules(void **state) {
    (void)state;
    struct proxy_config c = {0};
    struct proxy_upstream up = {0};
    proxy_add_hosts(&c, "deb http://deb.example.org/debian stable main\n# deb http://no.example x\n"
                        "deb [signed-by=/k] https://user:pw@secure.example:8443/x y z\n"
                        "URIs: https://one.example/a http://two.example\n"
                        "baseurl=https://rpm.example/$releasever\n");
    assert_true(proxy_allows(&c, "deb.example.org", "80"));
    assert_true(proxy_allows(&c, "SECURE.example", "8443"));
    assert_true(proxy_allows(&c, "one.example", "443"));
    assert_true(proxy_allows(&c, "two.example", "80"));
    assert_true(proxy_allows(&c, "rpm.example", "443"));
    assert_false(proxy_allows(&c, "no.example", "80"));
    assert_false(proxy_allows(&c, "deb.example.org", "22"));
    assert_false(proxy_allows(&c, "x.deb.example.org", "80"));
    proxy_upstream_for(&c, "deb.example.org", false, &up);
    assert_string_equal(up.host, "");
    proxy_add_apt_rules(&c, "Acquire::http::Proxy \"http://me:secret@cache.example:3142/\";\n"
                            "Acquire::http::Proxy::two.example \"DIRECT\";\n");
    proxy_upstream_for(&c, "deb.example.org", false, &up);
    assert_string_equal(up.host, "cache.example");
    assert_string_equal(up.port, "3142");
    assert_string_equal(up.authorization, "bWU6c2VjcmV0");
    proxy_upstream_for(&c, "one.example", true, &up); /* https goes where http goes */
    assert_string_equal(up.host, "cache.example");
    proxy_upstream_for(&c, "two.example", false, &up);
    assert_string_equal(up.host, "");
    strv_add(&c.no_proxy, ".example.org");
    proxy_upstream_for(&c, "deb.example.org", false, &up);
    assert_string_equal(up.host, "");
    proxy_config_clear(&c);
}

static void test_addresses(void **state) {
    (void)state;
    char ip[20];
    for (int s = 0; s < LOCAL_SLOTS_MAX; s++) {
        net_node_ip(s, ip);
        const char *last = strrchr(ip, '.') + 1;
        assert_true(strcmp(last, "0") != 0 && strcmp(last, "255") != 0);
        assert_string_not_equal(ip, LOCAL_GATEWAY);
    }
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
    str_put(w.state, sizeof w.state, "/tmp/gpuprov-local-test-XXXXXX");
    if (mkdtemp(w.state) == NULL || ssh_global_init(&err) != 0 || gp_cancel_init(&w.cancel, &err) != 0 ||
        ssh_key_make("test", &w.key, &w.pubkey, &err) != 0 ||
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
        if (local_holder_kill(c->dir, clock_deadline(10000), NULL) == 0)
            local_remove(stacks, c->dir, c->uid, NULL);
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

static int controller_main(char **argv) {
    str_put(w.state, sizeof w.state, argv[2]);
    w.pubkey = argv[3];
    struct gp_error err = {0};
    struct up u;
    if (gp_cancel_init(&w.cancel, &err) != 0) return 1;
    up_open(&u, "crash", 2, 3600);
    return up_try(&u, 0, 2, 1, &err) == 0 ? 0 : 1;
}

int main(int argc, char **argv) {
    if (argc > 2 && strcmp(argv[1], "__holder") == 0) return local_holder_main(argc - 1, argv + 1);
    if (argc > 3 && strcmp(argv[1], "__up") == 0) return controller_main(argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_proxy_rules),    cmocka_unit_test(test_addresses),
        cmocka_unit_test(test_story),          cmocka_unit_test(test_walls),
        cmocka_unit_test(test_growth),
        cmocka_unit_test(test_reboot_and_poweroff), cmocka_unit_test(test_one_node_ends),
        cmocka_unit_test(test_deadline),       cmocka_unit_test(test_holder_killed),
        cmocka_unit_test(test_holder_that_is_setting_up), cmocka_unit_test(test_folder_removed_by_hand), cmocka_unit_test(test_folder_moved),
        cmocka_unit_test(test_two_at_once),
        cmocka_unit_test(test_killed_at_any_moment), cmocka_unit_test(test_refusals)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
