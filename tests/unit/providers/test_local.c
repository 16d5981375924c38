// SPDX-License-Identifier: Apache-2.0
/* The local provider for real: two nodes up, reached over SSH, looked at from inside, rebooted, ended;
 * afterwards nothing is left. What is killed, late or taken away: test_local_faults.c. */
#include "local_world.h"

#include "folder.h"
#include "providers/local/lower.h"
#include "providers/local/proxy/proxy.h"

#include <ftw.h>
#include <sys/stat.h>

static void send_off(const struct resource *r, const char *command) {
    GP_AUTO_SSH struct ssh_session *s = login(r);
    struct ssh_exec_opts o = {.deadline_ms = clock_deadline(10000), .cancel = &w.cancel};
    GP_AUTO_SSH_RESULT struct ssh_result result = {0};
    OK(ssh_exec(s, command, &o, &result, err));
}

/* A claim that nobody made a node under says nothing about the deadline of another spec. */
static void test_stale_claim(void **state) {
    (void)state;
    need_local();
    struct up u, other;
    up_open(&u, "stale", 1, 30 * 86400);
    struct prepare_req prepare = {.stack = &u.stack, .spec = &u.spec};
    OK(provider_local.prepare(u.p, &prepare, err));
    up_open(&other, "stale", 1, 3600);
    int64_t wanted = other.stack.expires_s;
    prepare.stack = &other.stack;
    OK(provider_local.prepare(other.p, &prepare, err));
    assert_int_equal(other.stack.expires_s, wanted);
    assert_string_not_equal(other.stack.uid, u.stack.uid);
    GP_AUTO_RESOURCES struct resource_list all = {0};
    up_list(&other, &all);
    assert_int_equal(all.list.len, 1);
    assert_int_equal(all.list.items[0].expires_s, wanted);
    up_down(&other);
    up_close(&u);
    up_close(&other);
    assert_nothing_left();
}

static void test_story(void **state) {
    (void)state;
    need_local();
    struct up u, other;
    up_open(&u, "story", 2, 3600);
    struct prepare_req prepare = {.stack = &u.stack, .spec = &u.spec};
    OK(provider_local.prepare(u.p, &prepare, err));
    GP_AUTO_FREE char *uid = xstrdup(u.stack.uid);
    up_open(&other, "story", 2, 3610); /* the same spec, a moment later */
    prepare.stack = &other.stack;
    OK(provider_local.prepare(other.p, &prepare, err));
    assert_string_equal(other.stack.uid, uid); /* the winner's, with the winner's deadline */
    assert_int_equal(other.stack.expires_s, u.stack.expires_s);
    OK(up_try(&u, 0, 2, 1, err));
    assert_int_equal(u.made.list.len, 2);
    other.stack.expires_s += 7200; /* another deadline does not end what runs */
    OK(provider_local.prepare(other.p, &prepare, err));
    assert_string_equal(other.stack.uid, uid);
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
    static const char *const own[] = {"/etc/shadow", "/etc/gshadow", "/etc/sudoers", "/var/cache/debconf/passwords.dat",
                                      NULL};
    for (size_t i = 0; own[i] != NULL; i++)
        if (strcmp(path, own[i]) == 0) return FTW_CONTINUE; /* the node has its own */
    if (type == FTW_F && S_ISREG(st->st_mode) && (st->st_mode & S_IROTH) == 0) str_addf(&unreadable, "%s\n", path);
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
    nftw("/opt", note_unreadable, 16, FTW_PHYS | FTW_ACTIONRETVAL);
    nftw("/usr/local", note_unreadable, 16, FTW_PHYS | FTW_ACTIONRETVAL);
    str_add(&unreadable, "");
    GP_AUTO_SSH struct ssh_session *s = login(n);
    struct ssh_exec_opts o = {
        .in = unreadable.s, .in_len = unreadable.len, .deadline_ms = clock_deadline(60000), .cancel = &w.cancel};
    GP_AUTO_STR struct str out = {0};
    OK(ssh_run(s, "test", "while read -r f; do [ ! -e \"$f\" ] || echo \"$f\"; done", &o, &out, err));
    assert_string_equal(out.s ? out.s : "", "");
    if (geteuid() == 0) assert_true(unreadable.len > 0); /* else the test saw nothing */
    str_clear(&unreadable);
    GP_AUTO_FREE char *walls =
        on(n, "cut -d: -f2 /etc/shadow | sort -u; mount -t tmpfs x /mnt 2>/dev/null && echo mounted; "
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
        if (r.end == SSH_EXITED && r.status == 0 && strcmp(str_trim(r.out.s), before) != 0) now = xstrdup(r.out.s);
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

static void test_refusals(void **state) {
    (void)state;
    need_local();
    struct up u;
    struct gp_error err = {0};
    up_open(&u, "refuse", 1, 3600);
    u.spec.gpu = (struct spec_gpu){.model = xstrdup("H100"), .count = 200};
    assert_int_equal(provider_local.offers(u.p, &u.spec, 0, &u.offers, &err), -GP_EUSAGE);
    assert_int_equal(err.scope, GP_SCOPE_OFFER);
    assert_non_null(strstr(err.msg, ": lower 'nodes' or 'gpu', or add another offer"));
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

/* A change of the machine's programs after a node was made, and only that. */
static void test_lower_changes_are_seen(void **state) {
    (void)state;
    char dir[64];
    assert_non_null(make_folder(dir, sizeof dir, "lower"));
    GP_AUTO_FREE char *dpkg = fs_join(dir, "var/lib/dpkg"), *status = fs_join(dpkg, "status"),
                      *bin = fs_join(dir, "usr/bin");
    const struct timespec old[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}}, new[2] = {{.tv_sec = 5000}, {.tv_sec = 5000}};
    assert_null(lower_changed(dir, 0)); /* no package manager, no folder: nothing is known */
    assert_int_equal(fs_mkdirs(dpkg, 0755, NULL), 0);
    assert_int_equal(fs_mkdirs(bin, 0755, NULL), 0);
    assert_int_equal(fs_write_atomic(status, "x", 1, 0644, NULL), 0);
    utimensat(AT_FDCWD, status, old, 0);
    utimensat(AT_FDCWD, bin, old, 0);
    assert_null(lower_changed(dir, 1000));
    utimensat(AT_FDCWD, bin, new, 0);
    GP_AUTO_FREE char *files = lower_changed(dir, 1000);
    assert_string_equal(files,
                        "files of /usr/bin were replaced on this machine at 1970-01-01T01:23:20Z, while the node "
                        "used its files");
    utimensat(AT_FDCWD, status, new, 0);
    GP_AUTO_FREE char *packages = lower_changed(dir, 1000); /* the cause comes before its effects */
    assert_non_null(strstr(packages, "dpkg changed its packages"));
    fs_remove_tree(dir, NULL);
}

static void test_proxy_rules(void **state) {
    (void)state;
    struct proxy_config c = {0};
    struct proxy_upstream up = {0};
    proxy_add_hosts(&c, "deb http://deb.example.org/debian stable main\n# deb http://no.example x\n"
                        "deb [signed-by=/k] https://user:pw@secure.example:8443/x y z\n"
                        "URIs: https://one.example/a http://two.example\n"
                        "baseurl=https://rpm.example/$releasever\n");
    assert_true(proxy_allows(&c, "deb.example.org", "80", false));
    assert_true(proxy_allows(&c, "SECURE.example", "8443", false));
    assert_true(proxy_allows(&c, "one.example", "443", false));
    assert_true(proxy_allows(&c, "two.example", "80", false));
    assert_true(proxy_allows(&c, "rpm.example", "443", false));
    assert_false(proxy_allows(&c, "no.example", "80", false));
    assert_false(proxy_allows(&c, "deb.example.org", "22", false));
    assert_false(proxy_allows(&c, "x.deb.example.org", "80", false));
    /* files of a Python index are at hosts that it names itself */
    assert_true(proxy_allows(&c, "files.example", "443", true));
    assert_false(proxy_allows(&c, "files.example", "443", false));
    assert_false(proxy_allows(&c, "files.example", "22", true));
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

int main(int argc, char **argv) {
    if (argc > 2 && strcmp(argv[1], "__holder") == 0) return local_holder_main(argc - 1, argv + 1);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_lower_changes_are_seen),
                                       cmocka_unit_test(test_proxy_rules),
                                       cmocka_unit_test(test_addresses),
                                       cmocka_unit_test(test_story),
                                       cmocka_unit_test(test_stale_claim),
                                       cmocka_unit_test(test_walls),
                                       cmocka_unit_test(test_growth),
                                       cmocka_unit_test(test_reboot_and_poweroff),
                                       cmocka_unit_test(test_one_node_ends),
                                       cmocka_unit_test(test_refusals)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
