// SPDX-License-Identifier: Apache-2.0
/* The filter of a node's system calls: each ABI by an interpreter of its instructions, and for real in a child. */
#include "base/gp_base.h"

#include "providers/local/ns/filter.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/keyctl.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* What the kernel would do: classic BPF, as far as the filter uses it. Every jump is forward and inside. */
static uint32_t run(const struct sock_filter *f, size_t n, const struct seccomp_data *d) {
    uint32_t a = 0;
    for (size_t i = 0; i < n; i++) {
        size_t jump = 0;
        switch (f[i].code) {
        case BPF_LD | BPF_W | BPF_ABS:
            assert_true(f[i].k % 4 == 0 && f[i].k + 4 <= sizeof *d);
            memcpy(&a, (const char *)d + f[i].k, 4);
            break;
        case BPF_JMP | BPF_JEQ | BPF_K: jump = a == f[i].k ? f[i].jt : f[i].jf; break;
        case BPF_JMP | BPF_JGE | BPF_K: jump = a >= f[i].k ? f[i].jt : f[i].jf; break;
        case BPF_JMP | BPF_JA: jump = f[i].k; break;
        case BPF_RET | BPF_K: return f[i].k;
        default: fail_msg("instruction %zu has code %u", i, (unsigned)f[i].code);
        }
        i += jump;
        assert_true(i + 1 < n);
    }
    fail_msg("no answer");
    return 0;
}

static uint32_t answer(uint32_t arch, uint32_t nr, uint64_t arg0) {
    struct sock_filter code[FILTER_MAX];
    size_t n = filter_program(code);
    assert_true(n <= FILTER_MAX);
    struct seccomp_data d = {.nr = (int)nr, .arch = arch, .args = {arg0}};
    return run(code, n, &d);
}

#define NO_CALL (SECCOMP_RET_ERRNO | ENOSYS)
#define NO_FAMILY (SECCOMP_RET_ERRNO | EAFNOSUPPORT)

/* Numbers by the kernel's tables, written down apart from those of the filter. */
static void test_each_abi(void **state) {
    (void)state;
    static const struct {
        uint32_t arch, socket, refused[11], taken[9];
    } abis[] = {/* read, write, mount, unshare, ptrace, reboot, setns, seccomp, perf_event_open */
                {AUDIT_ARCH_X86_64,
                 41,
                 {248, 249, 250, 246, 320, 304, 425, 426, 427, 321, 323},
                 {0, 1, 165, 272, 101, 169, 308, 317, 298}},
                {AUDIT_ARCH_I386,
                 359,
                 {286, 287, 288, 283, 283, 342, 425, 426, 427, 357, 374},
                 {3, 4, 21, 310, 26, 88, 346, 354, 336}},
                {AUDIT_ARCH_AARCH64,
                 198,
                 {217, 218, 219, 104, 294, 265, 425, 426, 427, 280, 282},
                 {63, 64, 40, 97, 117, 142, 268, 277, 241}},
                {AUDIT_ARCH_ARM,
                 281,
                 {309, 310, 311, 347, 401, 371, 425, 426, 427, 386, 388},
                 {3, 4, 21, 337, 26, 88, 375, 383, 364}}};
    for (size_t i = 0; i < GP_ARRAY_LEN(abis); i++) {
        for (size_t c = 0; c < GP_ARRAY_LEN(abis[i].refused); c++)
            assert_int_equal(answer(abis[i].arch, abis[i].refused[c], 0), NO_CALL);
        for (size_t c = 0; c < GP_ARRAY_LEN(abis[i].taken); c++)
            assert_int_equal(answer(abis[i].arch, abis[i].taken[c], 0), SECCOMP_RET_ALLOW);
        static const int own[] = {AF_UNIX, AF_INET, AF_INET6, AF_NETLINK, AF_PACKET};
        for (uint32_t family = 0; family < 60; family++) {
            bool is_own = false;
            for (size_t f = 0; f < GP_ARRAY_LEN(own); f++) is_own = is_own || family == (uint32_t)own[f];
            assert_int_equal(answer(abis[i].arch, abis[i].socket, family), is_own ? SECCOMP_RET_ALLOW : NO_FAMILY);
            /* the kernel takes an int: the upper half does not count */
            assert_int_equal(answer(abis[i].arch, abis[i].socket, family | (uint64_t)1 << 32),
                             is_own ? SECCOMP_RET_ALLOW : NO_FAMILY);
        }
    }
    assert_int_equal(answer(AUDIT_ARCH_I386, 102, 1), NO_CALL);           /* socketcall: socket */
    assert_int_equal(answer(AUDIT_ARCH_I386, 102, 3), SECCOMP_RET_ALLOW); /* and connect */
    for (uint32_t nr = 0; nr < 600; nr++) assert_int_equal(answer(AUDIT_ARCH_X86_64, 0x40000000U | nr, 0), NO_CALL);
    assert_int_equal(answer(AUDIT_ARCH_S390X, 0, 0), NO_CALL);
}

#ifdef __x86_64__
/* The same kernel by its 32-bit entrance. */
static long call32(long nr, long a, long b, long c) {
    long r = 0;
    __asm__ volatile("int $0x80" : "=a"(r) : "a"(nr), "b"(a), "c"(b), "d"(c) : "memory", "r8", "r9", "r10", "r11");
    return r;
}
#endif

static bool refuses(long r) { return r == -1 && errno == ENOSYS; }

/* In a user namespace of its own, where that is allowed; else as root. */
static int tried(void) {
    struct gp_error err = {0};
    if (unshare(CLONE_NEWUSER) != 0 && geteuid() != 0) return 77;
    if (filter_enter(&err) != 0) return 1;
    if (!refuses(syscall(SYS_keyctl, KEYCTL_GET_KEYRING_ID, KEY_SPEC_USER_KEYRING, 0))) return 2;
    if (!refuses(syscall(SYS_add_key, "user", "a", "b", 1, KEY_SPEC_USER_KEYRING))) return 3;
    if (!refuses(syscall(SYS_request_key, "user", "a", NULL, 0))) return 4;
    if (!refuses(syscall(SYS_kexec_load, 0, 0, NULL, 0))) return 5;
    if (!refuses(syscall(SYS_io_uring_setup, 1, NULL)) || !refuses(syscall(SYS_bpf, 0, NULL, 0))) return 6;
    static const int other[] = {40 /* VSOCK */, 38 /* ALG */, 31 /* BLUETOOTH */, 29 /* CAN */};
    for (size_t i = 0; i < GP_ARRAY_LEN(other); i++)
        if (socket(other[i], SOCK_STREAM, 0) != -1 || errno != EAFNOSUPPORT) return 7;
    static const int own[] = {AF_UNIX, AF_INET};
    for (size_t i = 0; i < GP_ARRAY_LEN(own); i++)
        if (socket(own[i], SOCK_STREAM, 0) < 0) return 8;
#ifdef __x86_64__
    if (call32(20, 0, 0, 0) != getpid()) return 0; /* this kernel has no 32-bit entrance */
    if (call32(288, 0, KEY_SPEC_USER_KEYRING, 0) != -ENOSYS || call32(283, 0, 0, 0) != -ENOSYS) return 9;
    if (call32(359, 40, SOCK_STREAM, 0) != -EAFNOSUPPORT || call32(102, 1, 0, 0) != -ENOSYS) return 10;
    if (call32(359, AF_UNIX, SOCK_STREAM, 0) < 0) return 11;
#endif
    return 0;
}

static void test_for_real(void **state) {
    (void)state;
    int status = 0;
    pid_t pid = fork();
    if (pid == 0) _exit(tried());
    assert_true(pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status));
    if (WEXITSTATUS(status) == 77) {
        print_message("no user namespaces for this user\n");
        skip();
    }
    assert_int_equal(WEXITSTATUS(status), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_each_abi), cmocka_unit_test(test_for_real)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
