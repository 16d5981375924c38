/* SPDX-License-Identifier: Apache-2.0 */
/* Where the ranks of a communicator of the stand-in NCCL meet: memory without a name that all map. The process
 * that makes it holds it open until it ends, so a gang that is killed leaves nothing. */
#include "libnccl.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MAGIC = 0x4e43434c };

static size_t shared_bytes(int size) { return sizeof(struct shared) + (size_t)(size + 1) * PIECE; }

int shared_new(char path[100]) {
    int fd = memfd_create("gpuprov-standin-nccl", MFD_CLOEXEC);
    if (fd < 0) return N_SYSTEM;
    snprintf(path, 100, "/proc/%d/fd/%d", (int)getpid(), fd);
    return 0;
}

static int given_up(const struct ncclComm *c) { return atomic_load(&c->aborted); }

int shared_open(struct ncclComm *c, const char *path) {
    int fd = -1;
    while ((fd = open(path, O_RDWR | O_CLOEXEC)) < 0 && errno == ENOENT && !given_up(c)) /* its process has ended */
        usleep(1000);
    c->bytes = shared_bytes(c->size);
    if (fd < 0 || ftruncate(fd, (off_t)c->bytes) != 0) return N_SYSTEM; /* all ranks make it the same size */
    void *p = mmap(NULL, c->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (p == MAP_FAILED) return N_SYSTEM;
    c->s = p;
    return 0;
}

int shared_meet(struct ncclComm *c) {
    struct shared_rank *me = &c->s->ranks[c->rank];
    const char *host = getenv("NCCL_HOSTID");
    snprintf(me->host, sizeof me->host, "%s", host ? host : "this machine");
    me->pid = (int)getpid();
    me->world = c->world;
    me->device = c->device;
    c->s->size = c->size;
    atomic_store(&c->s->magic, MAGIC);
    atomic_store(&me->come, 1);
    for (int r = 0; r < c->size; r++)
        while (!atomic_load(&c->s->ranks[r].come)) {
            if (given_up(c)) return N_REMOTE;
            usleep(200);
        }
    int rc = shared_barrier(c);
    for (int r = 0; r < c->size; r++) {
        const struct shared_rank *a = &c->s->ranks[r];
        c->worlds[r] = a->world;
        for (int k = 0; k < r; k++)
            if (c->s->ranks[k].device == a->device && strcmp(c->s->ranks[k].host, a->host) == 0 && rc == 0) {
                snprintf(c->why, sizeof c->why, "Duplicate GPU detected : rank %d and rank %d both on CUDA device", r,
                         k);
                rc = N_USAGE;
            }
    }
    return rc;
}

int shared_barrier(struct ncclComm *c) {
    int turn = atomic_load(&c->s->turn);
    if (atomic_fetch_add(&c->s->arrived, 1) + 1 == c->size) {
        atomic_store(&c->s->arrived, 0);
        atomic_store(&c->s->turn, turn + 1);
        return 0;
    }
    for (int spins = 0; atomic_load(&c->s->turn) == turn; spins++) {
        if (given_up(c)) return N_REMOTE;
        if (spins < 50) sched_yield();
        else usleep(spins < 500 ? 50 : 1000);
    }
    return 0;
}

char *shared_box(const struct ncclComm *c, int rank) { return (char *)(c->s + 1) + (size_t)rank * PIECE; }

void shared_close(struct ncclComm *c) {
    if (c->s) munmap(c->s, c->bytes);
    c->s = NULL;
}
