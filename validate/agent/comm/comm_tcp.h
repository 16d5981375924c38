/* SPDX-License-Identifier: Apache-2.0 */
/* Internals of the tcp communicator: links (comm_link.c), the meeting (comm_meet.c), the collectives (comm_tcp.c).
 * net.pair uses the links directly. One thread. */
#ifndef GP_AGENT_COMM_TCP_H
#define GP_AGENT_COMM_TCP_H

#include "base/str.h"
#include "comm.h"

struct link_queue {
    unsigned char *p;
    size_t off, len, cap; /* bytes [off, off + len) wait */
};
struct link {
    int fd; /* -1: this rank itself, or not connected */
    char addr[64];
    bool gone; /* its end was read */
    bool bye;  /* it has sent its end */
    bool pong; /* answered since the last ping */
    /* receiving */
    unsigned char head[24];
    size_t head_have;
    uint64_t payload_left;
    uint32_t kind;
    struct link_queue queue; /* data received before it was requested */
    struct str control;      /* payload of a control frame */
    char *post;              /* destination of requested data */
    size_t post_left;
    /* sending: ctl goes out between frames */
    struct str ctl;
    unsigned char out_head[24];
    size_t out_head_left, frame_left;
    const char *out; /* the caller's, or spill after a failure */
    size_t out_left;
    char *spill;
};
struct comm {
    int rank, size;
    struct link *links;
    const struct device_ops *dev_ops;
    struct device *dev;
    int64_t deadline_ms, stall_ms;
    int64_t moved_ms;      /* when requested bytes last moved */
    int64_t ping_ms;       /* deadline of the answers; 0: no ping sent */
    bool meeting;          /* no stall watch yet */
    char *host_a, *host_b; /* staging for devices other than host */
    size_t host_n;
    float *ring;
    size_t ring_n;
    uint64_t bytes_sent;
};

enum frame_kind { FRAME_DATA = 1, FRAME_ABORT, FRAME_PING, FRAME_PONG, FRAME_BYE };

/* Sends sn bytes to rank `to` and receives rn from rank `from` at the same time (either may be -1). */
int comm_exchange(struct comm *c, int to, const void *s, size_t sn, int from, void *r, size_t rn, struct gp_error *err);
/* Queues a control frame and tries to send it. */
void comm_control(struct comm *c, int to, enum frame_kind kind, const void *p, size_t n);
/* Waits until everything queued was sent, the peer ended, or ms passed. */
void comm_flush_and_close(struct comm *c, int64_t ms);

/* Listens, meets all peers, fills c->links. */
int comm_meet(struct comm *c, const struct comm_setup *s, struct gp_error *err);
/* Whether text is an address of a private, link-local, shared or loopback range. */
bool comm_address_private(const char *ip);

#endif
