/* SPDX-License-Identifier: Apache-2.0 */
/* The system calls that a node does not get. Namespaces and capabilities wall off most of the machine's kernel; here is
 * the rest: what no namespace divides (keys, sockets of other families), what a capability would allow that nodes keep
 * for other ends (CAP_SYS_BOOT: kexec), and what needs no capability at all but serves attacks on the kernel. A refused
 * call answers as on a kernel that was built without it, which programs know how to do without. */
#include "base/gp_base.h"

#include "providers/local/ns/filter.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/keyctl.h>
#include <linux/seccomp.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#define NONE UINT32_MAX      /* not in this ABI */
#define X32 0x40000000U      /* the bit of x32's numbers; that ABI has another number for some calls */
#define SOCKETCALL_SOCKET 1U /* socketcall(2): socket, its arguments behind a pointer that no filter can follow */
#define ARG0_OFFSET \
    ((unsigned)offsetof(struct seccomp_data, args[0])) /* its low half: each of these is little endian */

enum abi { ABI_AMD64, ABI_I386, ABI_ARM64, ABI_ARM, ABIS };

/* One filter for all: a kernel only ever shows the ABIs of its own machine. */
static const uint32_t arch_of[ABIS] = {AUDIT_ARCH_X86_64, AUDIT_ARCH_I386, AUDIT_ARCH_AARCH64, AUDIT_ARCH_ARM};
static const uint32_t refused[][ABIS] = {
    /* keys of the machine's users: no namespace divides those of one user id */
    {248, 286, 217, 309}, /* add_key */
    {249, 287, 218, 310}, /* request_key */
    {250, 288, 219, 311}, /* keyctl */
    /* CAP_SYS_BOOT is kept for reboot(2), which ends only the node */
    {246, 283, 104, 347},  /* kexec_load */
    {320, NONE, 294, 401}, /* kexec_file_load */
    /* paths around the walls: files without a path, requests that no filter sees, programs in the kernel, faults of the
     * kernel held up at will */
    {304, 342, 265, 371}, /* open_by_handle_at */
    {425, 425, 425, 425}, /* io_uring_setup */
    {426, 426, 426, 426}, /* io_uring_enter */
    {427, 427, 427, 427}, /* io_uring_register */
    {321, 357, 280, 386}, /* bpf */
    {323, 374, 282, 388}, /* userfaultfd */
};
static const uint32_t socket_of[ABIS] = {41, 359, 198, 281};
static const uint32_t socketcall_of[ABIS] = {NONE, 102, NONE, NONE};
/* Sockets that are the node's own network. AF_VSOCK would lead to the machine and to its hypervisor, AF_ALG to keys by
 * their number, AF_BLUETOOTH and others to devices. */
static const uint32_t families[] = {AF_UNIX, AF_INET, AF_INET6, AF_NETLINK, AF_PACKET};

struct writer {
    struct sock_filter *out;
    size_t n;
};

static void put(struct writer *w, unsigned code, uint32_t k, size_t yes, size_t no) {
    struct sock_filter f = {(uint16_t)code, (uint8_t)yes, (uint8_t)no, k};
    w->out[w->n++] = f;
}

static void load(struct writer *w, size_t offset) { put(w, BPF_LD | BPF_W | BPF_ABS, (uint32_t)offset, 0, 0); }
static void give(struct writer *w, uint32_t answer) { put(w, BPF_RET | BPF_K, answer, 0, 0); }
static void refuse(struct writer *w, uint32_t e) { give(w, SECCOMP_RET_ERRNO | e); }

/* The next instruction only if the accumulator is `value`. */
static void only_if(struct writer *w, uint32_t value) { put(w, BPF_JMP | BPF_JEQ | BPF_K, value, 0, 1); }

static void put_abi(struct writer *w, enum abi abi) {
    load(w, offsetof(struct seccomp_data, nr));
    if (abi == ABI_AMD64) {
        put(w, BPF_JMP | BPF_JGE | BPF_K, X32, 0, 1);
        refuse(w, ENOSYS);
    }
    for (size_t i = 0; i < GP_ARRAY_LEN(refused); i++) {
        if (refused[i][abi] == NONE) continue;
        only_if(w, refused[i][abi]);
        refuse(w, ENOSYS);
    }
    if (socketcall_of[abi] != NONE) {
        put(w, BPF_JMP | BPF_JEQ | BPF_K, socketcall_of[abi], 0, 4);
        load(w, ARG0_OFFSET);
        only_if(w, SOCKETCALL_SOCKET);
        refuse(w, ENOSYS);
        give(w, SECCOMP_RET_ALLOW);
    }
    only_if(w, socket_of[abi]);
    put(w, BPF_JMP | BPF_JA, 1, 0, 0);
    give(w, SECCOMP_RET_ALLOW);
    load(w, ARG0_OFFSET);
    for (size_t i = 0; i < GP_ARRAY_LEN(families); i++) {
        only_if(w, families[i]);
        give(w, SECCOMP_RET_ALLOW);
    }
    refuse(w, EAFNOSUPPORT);
}

size_t filter_program(struct sock_filter *out) {
    struct writer w = {out, 0};
    for (int abi = 0; abi < ABIS; abi++) {
        load(&w, offsetof(struct seccomp_data, arch));
        size_t jump = w.n;
        put(&w, BPF_JMP | BPF_JEQ | BPF_K, arch_of[abi], 0, 0);
        put_abi(&w, (enum abi)abi);
        out[jump].jf = (uint8_t)(w.n - jump - 1);
    }
    refuse(&w, ENOSYS); /* an ABI that this table does not know */
    return w.n;
}

/* The session keyring comes from whoever started gpuprov and may lead to that user's keys. */
static int leave_keyring(struct gp_error *err) {
    if (syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, NULL) >= 0) return 0;
    /* a kernel without keys, or a container whose own filter keeps them from this process, too */
    if (errno == ENOSYS || errno == EPERM || errno == EACCES) return 0;
    return gp_fail_errno(err, GP_EENV, errno, "could not make a session keyring");
}

int filter_enter(struct gp_error *err) {
    struct sock_filter code[FILTER_MAX];
    struct sock_fprog program = {.len = (unsigned short)filter_program(code), .filter = code};
    int r = leave_keyring(err);
    if (r != 0) return r;
    /* without the flag, older kernels also slow down every program of the node against Spectre */
    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_SPEC_ALLOW, &program) == 0) return 0;
    if (errno == EINVAL && syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) == 0) return 0;
    return gp_fail_errno(err, GP_EENV, errno,
                         "could not filter its system calls (local nodes need a kernel with CONFIG_SECCOMP_FILTER)");
}
