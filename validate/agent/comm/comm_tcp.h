/* SPDX-License-Identifier: Apache-2.0 */
/* Internals of the tcp communicator: links (comm_link.c), the meeting (comm_meet.c), the collectives (comm_tcp.c),
 * heartbeats and the judgement of silence (comm_pulse.c). net.pair uses the links directly. Calls come from one
 * thread; the heartbeat thread serves the links while that one computes. `lock` keeps them apart. */
#ifndef GP_AGENT_COMM_TCP_H
#define GP_AGENT_COMM_TCP_H

#include "base/str.h"
#include "comm.h"

#include <pthread.h>

/* What a rank reports of itself, the payload of FRAME_PONG. */
struct pulse {
    uint64_t progress; /* operations finished */
    uint64_t cpu_us;   /* of the thread that computes */
    uint32_t waiting;  /* 1: it waits for other ranks itself */
    uint32_t patience_ms;
    uint32_t late_ms; /* how late its heartbeat thread ran lately */
    uint32_t zero;
};
struct link_queue {
    unsigned char *p;
    size_t off, len, cap; /* bytes [off, off + len) wait */
};
struct link {
    int fd; /* -1: this rank itself, or not connected */
    char addr[64];
    bool gone;          /* its end was read */
    bool bye;           /* it has sent its end */
    struct pulse pulse; /* its last report */
    int64_t ping_ms;    /* when to request the next one */
    int64_t quiet_ms;   /* observed time without a byte from it, while it was awaited */
    int64_t idle_ms;    /* the same without progress or CPU time */
    int stalls;         /* how often one of them reached the limit */
    int reported;       /* of these, by comm_tcp_stalled */
    int64_t stalled_ms; /* all those times together */
    bool idles;         /* the last of them was idle, not quiet */
    bool heard;         /* it sent something since the meeting: it has left that too */
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
#define COMM_SCRATCH ((size_t)65536)

struct comm {
    int rank, size;
    struct link *links;
    const struct device_ops *dev_ops;
    struct device *dev;
    int64_t deadline_ms, stall_ms, meet_ms;
    bool meeting;          /* no stall watch yet */
    pthread_mutex_t lock;  /* of all links and of `told`; held during an exchange */
    pthread_mutex_t state; /* of what follows, up to `beating` */
    pthread_cond_t wake;
    struct pulse own;
    int64_t patient_until_ms;
    int64_t late_ms, latest_ms; /* lateness of the heartbeat thread: lately, at most */
    bool stop, beating;
    pthread_t beat;
    clockid_t cpu_clock;
    struct gp_error told; /* what the heartbeat thread met; the next operation returns it */
    int ranks, cores;     /* of the most crowded machine of the gang; 0: not known */
    int64_t slowest_ms;   /* the longest exchange */
    bool late;            /* the deadline passed */
    bool relayed;         /* the failure came from a peer, in words that are passed on */
    char *scratch;
    char *host_a, *host_b; /* staging for devices other than host */
    size_t host_n;
    float *ring;
    size_t ring_n;
    uint64_t bytes_sent;
};

enum frame_kind { FRAME_DATA = 1, FRAME_ABORT, FRAME_PING, FRAME_PONG, FRAME_BYE };

struct abort_words { /* payload of FRAME_ABORT, then the text */
    int32_t culprit; /* -1: none */
    uint8_t late;    /* the deadline passed: no rank is at fault */
    uint8_t relayed; /* the sender received the text */
    uint8_t zero[2];
};

/* Sends sn bytes to rank `to` and receives rn from rank `from` at the same time (either may be -1). */
int comm_exchange(struct comm *c, int to, const void *s, size_t sn, int from, void *r, size_t rn, struct gp_error *err);
/* Queues a control frame and tries to send it. */
void comm_control(struct comm *c, int to, enum frame_kind kind, const void *p, size_t n);
/* Waits until everything queued was sent, the peer ended, or ms passed. */
void comm_flush_and_close(struct comm *c, int64_t ms);

/* Reads and answers the peers once; waits up to timeout_ms. Needs the lock. */
int comm_serve(struct comm *c, int timeout_ms, struct gp_error *err);
/* Fails, blaming this rank: "rank 3 (10.0.0.4:4000) " and the text. */
int comm_lost(struct comm *c, int rank, const char *what, struct gp_error *err);

/* comm_pulse.c. Start and end of the heartbeat thread; none in a gang of one. */
void comm_pulse_start(struct comm *c);
void comm_pulse_stop(struct comm *c);
void comm_pulse_mark(struct comm *c, bool waiting); /* an operation begins (waiting) or ended */
struct pulse comm_pulse_own(struct comm *c);
void comm_pulse_heard(struct link *l, const struct pulse *p);
/* How long one look may wait: the measure of observed time. */
int comm_look_ms(const struct comm *c);
/* Judges the awaited peers after looked_ms of waiting. Fails at the deadline, or when a peer reached the limit
 * twice. */
int comm_judge(struct comm *c, int64_t looked_ms, struct gp_error *err);

/* Listens, meets all peers, fills c->links. */
int comm_meet(struct comm *c, const struct comm_setup *s, struct gp_error *err);
/* Whether text is an address of a private, link-local, shared or loopback range. */
bool comm_address_private(const char *ip);

#endif
