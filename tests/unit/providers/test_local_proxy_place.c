// SPDX-License-Identifier: Apache-2.0
/* Where addresses lead, for the package proxy: forms, and this machine's own addresses, also those of later. */
#include "base/gp_base.h"

#include "base/fs.h"
#include "base/str.h"
#include "providers/local/ns/netns.h"
#include "providers/local/proxy/proxy_place.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* Any text that a resolver takes as an address. */
static enum proxy_place place(const char *text, bool now) {
    struct addrinfo hint = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST}, *list = NULL;
    if (getaddrinfo(text, "443", &hint, &list) != 0) fail_msg("'%s' is no address", text);
    enum proxy_place p = now ? proxy_place(list->ai_addr) : proxy_place_by_form(list->ai_addr);
    freeaddrinfo(list);
    return p;
}

static void expect(const char *text, bool now, enum proxy_place want) {
    enum proxy_place got = place(text, now);
    if (got != want) fail_msg("%s: place %d, not %d", text, (int)got, (int)want);
}

static void test_forms(void **state) {
    (void)state;
    static const char *const here[] = {"0.0.0.0",
                                       "0.1.2.3",
                                       "127.0.0.1",
                                       "127.255.255.254",
                                       "0x7f.1",
                                       "2130706433",
                                       "169.254.0.1",
                                       "169.254.255.255",
                                       "224.0.0.1",
                                       "239.255.255.250",
                                       "240.0.0.1",
                                       "255.255.255.255",
                                       "::",
                                       "::1",
                                       "ff02::1",
                                       "ff05::2",
                                       "fe80::1",
                                       "febf::1",
                                       "fec0::1",
                                       "::ffff:127.0.0.1",
                                       "::ffff:0.0.0.0",
                                       "::127.0.0.1",
                                       "::ffff:0:127.0.0.1",
                                       "64:ff9b::7f00:1",
                                       "64:ff9b::224.0.0.1",
                                       "64:ff9b:1::127.0.0.1",
                                       "64:ff9b:1:7f00:0:100::",
                                       "2002:7f00:1::",
                                       "2002:7f00:0001::1",
                                       "2001:0:7f00:1::1",
                                       "2001:0:102:304::80ff:fffe",
                                       "2a00::5efe:127.0.0.1",
                                       "2a00::200:5efe:127.0.0.1"};
    static const char *const metadata[] = {"169.254.169.254",
                                           "2852039166",
                                           "0xa9fea9fe",
                                           "0251.0376.0251.0376",
                                           "169.254.169.123",
                                           "169.254.170.2",
                                           "169.254.170.23",
                                           "169.254.42.42",
                                           "169.254.0.23",
                                           "100.100.100.200",
                                           "168.63.129.16",
                                           "192.0.0.192",
                                           "fd00:ec2::254",
                                           "fd00:ec2::23",
                                           "fd00:ec2:0:1::1",
                                           "fd20:ce::254",
                                           "fd00:c1::a9fe:a9fe",
                                           "fd00:42::42",
                                           "fe80::a9fe:a9fe",
                                           "::ffff:169.254.169.254",
                                           "::ffff:100.100.100.200",
                                           "::169.254.169.254",
                                           "64:ff9b::a9fe:a9fe",
                                           "64:ff9b::168.63.129.16",
                                           "64:ff9b:1::a9fe:a9fe",
                                           "2002:a9fe:a9fe::",
                                           "2002:6464:64c8::1",
                                           "2001:0:1:2::5601:5601",
                                           "2001:db8:64::169.254.169.254",
                                           "2a00::5efe:169.254.169.254"};
    static const char *const far[] = {"1.1.1.1",         "10.0.0.7",      "126.255.255.255",  "128.0.0.1",
                                      "169.253.255.255", "169.255.0.1",   "100.100.100.199",  "168.63.129.17",
                                      "192.0.0.193",     "192.168.1.1",   "223.255.255.255",  "2a00:1450::1",
                                      "fd00::7",         "fd00:ec3::254", "64:ff9b::101:101", "2002:101:101::1",
                                      "::ffff:1.1.1.1",  "2a00::7f00:1",  "2a00::1",          "2a00::e000:1"};
    for (size_t i = 0; i < GP_ARRAY_LEN(here); i++) {
        expect(here[i], false, PLACE_HERE);
        expect(here[i], true, PLACE_HERE);
    }
    for (size_t i = 0; i < GP_ARRAY_LEN(metadata); i++) {
        expect(metadata[i], false, PLACE_METADATA);
        expect(metadata[i], true, PLACE_METADATA);
    }
    for (size_t i = 0; i < GP_ARRAY_LEN(far); i++) expect(far[i], false, PLACE_FAR);
    struct sockaddr_storage other = {.ss_family = AF_UNIX};
    assert_int_equal(proxy_place((const struct sockaddr *)&other), PLACE_UNKNOWN);
}

/* Every address that this machine has now, whatever it is. */
static void test_own_addresses(void **state) {
    (void)state;
    struct ifaddrs *list = NULL;
    size_t n = 0;
    assert_int_equal(getifaddrs(&list), 0);
    for (const struct ifaddrs *i = list; i != NULL; i = i->ifa_next) {
        if (i->ifa_addr == NULL || (i->ifa_addr->sa_family != AF_INET && i->ifa_addr->sa_family != AF_INET6)) continue;
        char text[INET6_ADDRSTRLEN] = "";
        bool v4 = i->ifa_addr->sa_family == AF_INET;
        const void *ip = v4 ? (const void *)&((const struct sockaddr_in *)(void *)i->ifa_addr)->sin_addr
                            : &((const struct sockaddr_in6 *)(void *)i->ifa_addr)->sin6_addr;
        assert_non_null(inet_ntop(i->ifa_addr->sa_family, ip, text, sizeof text));
        if (proxy_place(i->ifa_addr) == PLACE_FAR) fail_msg("%s of %s is far", text, i->ifa_name);
        n++;
        if (!v4) continue;
        static const char *const forms[] = {"::ffff:", "64:ff9b::", "2001:db8:77::", "::"};
        for (size_t f = 0; f < GP_ARRAY_LEN(forms); f++) {
            char carried[80];
            snprintf(carried, sizeof carried, "%s%s", forms[f], text);
            /* the last four bytes of any address count for what is not hit by chance */
            if (f != 2 || !str_starts(text, "127.")) assert_int_not_equal(place(carried, true), PLACE_FAR);
        }
    }
    freeifaddrs(list);
    assert_true(n > 0);
    assert_true(proxy_name_is_near("localhost"));
    assert_true(proxy_name_is_near("LocalHost."));
    assert_true(proxy_name_is_near("a.b.localhost"));
    assert_true(proxy_name_is_near("metadata.google.internal"));
    assert_false(proxy_name_is_near("notlocalhost"));
    assert_false(proxy_name_is_near("localhost.example.org"));
    assert_false(proxy_name_is_near("deb.debian.org"));
    char own[256] = "";
    assert_int_equal(gethostname(own, sizeof own - 1), 0);
    assert_true(proxy_name_is_near(own));
}

static int exit_code(int (*run)(void)) {
    int status = 0;
    pid_t pid = fork();
    if (pid == 0) _exit(run());
    assert_true(pid > 0 && waitpid(pid, &status, 0) == pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 100;
}

/* In a network of its own: an address is this machine's from the moment when an interface has it. */
static int later(void) {
    if (unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) return 77;
    if (net_link_up("lo") != 0 || place("198.18.7.9", true) != PLACE_FAR) return 1;
    if (net_addr_add("lo", "198.18.7.9") != 0) return 2;
    if (place("198.18.7.9", true) != PLACE_HERE) return 3;
    if (place("198.18.255.255", true) != PLACE_HERE) return 4; /* its broadcast */
    if (place("198.18.44.55", true) != PLACE_HERE) return 5;   /* routed to loopback: delivered here */
    if (place("2002:c612:709::1", true) != PLACE_HERE) return 6;
    if (place("64:ff9b::198.18.7.9", true) != PLACE_HERE) return 7;
    if (place("::ffff:198.18.7.9", true) != PLACE_HERE) return 8;
    return place("198.51.100.1", true) == PLACE_FAR ? 0 : 9;
}

static void test_an_address_of_later(void **state) {
    (void)state;
    int code = exit_code(later);
    if (code == 77) {
        print_message("no namespaces for this user: %s\n", strerror(errno));
        skip();
    }
    assert_int_equal(code, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_forms), cmocka_unit_test(test_own_addresses),
                                       cmocka_unit_test(test_an_address_of_later)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
