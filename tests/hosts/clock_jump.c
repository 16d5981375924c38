/* SPDX-License-Identifier: Apache-2.0 */
/* A clock that jumps, for LD_PRELOAD into gpuprov: CLOCK_MONOTONIC is later by the ms in the file $TEST_CLOCK (8 bytes,
 * written by the test at any time), and poll ends when its time is over on that clock. So limits of minutes are tested
 * in seconds. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define SLICE_MS 20

static const volatile int64_t *ahead_ms;

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("TEST_CLOCK");
    int fd = path != NULL ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    void *p = fd >= 0 ? mmap(NULL, sizeof *ahead_ms, PROT_READ, MAP_SHARED, fd, 0) : MAP_FAILED;
    if (p == MAP_FAILED) abort();
    ahead_ms = p;
    close(fd);
}

/* NOLINTBEGIN(readability-inconsistent-declaration-parameter-name): those of the C library are reserved */
int clock_gettime(clockid_t id, struct timespec *t) {
    if (syscall(SYS_clock_gettime, id, t) != 0) return -1;
    if (id != CLOCK_MONOTONIC || ahead_ms == NULL) return 0;
    int64_t ms = *ahead_ms;
    t->tv_nsec += (long)(ms % 1000) * 1000000;
    t->tv_sec += ms / 1000 + t->tv_nsec / 1000000000;
    t->tv_nsec %= 1000000000;
    return 0;
}

static int64_t now_ms(void) {
    struct timespec t = {0};
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

int poll(struct pollfd *fds, nfds_t n, int timeout) {
    int64_t end = now_ms() + timeout;
    for (;;) {
        int64_t left = end - now_ms();
        int64_t slice = timeout < 0 || left > SLICE_MS ? SLICE_MS : left > 0 ? left : 0;
        struct timespec t = {.tv_nsec = (long)slice * 1000000};
        int got = (int)syscall(SYS_ppoll, fds, n, &t, NULL, (size_t)8);
        if (got != 0 || (timeout >= 0 && now_ms() >= end)) return got;
    }
}

int __poll_chk(struct pollfd *fds, nfds_t n, int timeout, size_t size);
int __poll_chk(struct pollfd *fds, nfds_t n, int timeout, size_t size) {
    (void)size;
    return poll(fds, n, timeout);
}
/* NOLINTEND(readability-inconsistent-declaration-parameter-name) */
