/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the notify*.c files: the queues, and one delivery. */
#ifndef GP_ENGINE_NOTIFY_PRIV_H
#define GP_ENGINE_NOTIFY_PRIV_H

#include "base/clock.h"
#include "base/secret.h"
#include "engine/engine.h"
#include "engine/run/notify_kind.h"

#include <pthread.h>

#define NOTIFY_QUEUE 256
#define NOTIFY_SEND_MS ((int64_t)30 * 1000) /* for one event, all tries of it */

/* One event for one receiver. */
struct notify_message {
    enum notify_kind kind;
    char id[33];
    char *body;
    char *uid, *once; /* sent once per stack and text of `once`; NULL: always */
};
void notify_message_free(struct notify_message *m); /* accepts NULL */

struct notify_stack;
struct notify_receiver {
    struct notify_stack *of;
    struct spec_notify def; /* owned */
    char label[16];         /* "notify[0]" */
    /* under notify.lock */
    struct notify_message *queue[NOTIFY_QUEUE];
    size_t len, dropped, unsent;
    bool started, busy, over;
    bool away; /* delivers, which may hang: in libcurl, or with a command in the kernel */
    bool warned;
    pthread_t thread;
    /* its thread's own */
    struct http *http;
    struct secret url, key;
    bool opened;
};
/* One stack and its receivers. Lives as long as the engine. */
struct notify_stack {
    struct notify *n;
    char *name, *owner, *run; /* owner, run: of the last event; NULL: not known. Under notify.lock */
    int64_t ttl_s, max_cost;
    char *looked[2]; /* `once` of the last message about the deadline and the money */
    VEC_OF(struct notify_receiver *) receivers;
};
struct notify_warning {
    char *stack, *text;
};
struct notify {
    pthread_mutex_t lock; /* held for a few instructions, never across I/O */
    pthread_cond_t changed;
    struct gp_cancel cancel; /* ends deliveries */
    bool stop, abandoned;    /* abandoned: a thread is left alone, and touches nothing but this struct */
    bool ticking;
    pthread_t ticker;
    char *state_dir;
    struct journal *journal; /* the engine's */
    VEC_OF(struct notify_stack *) stacks;
    VEC_OF(struct notify_warning) warnings;
    /* Queues a message for every receiver that wants it. event: t, owner, run, node, text are taken. Under the lock. */
    void (*push)(struct notify_stack *s, enum notify_kind kind, const struct event *e, const char *uid,
                 const char *once);
};

/* --- one delivery (notify_send.c); the receiver's thread --- */
/* Reads the URL and the key. */
int notify_receiver_open(struct notify_receiver *r, struct gp_error *err);
void notify_receiver_close(struct notify_receiver *r);
/* 0: the receiver accepted it. -GP_ECANCELLED: n->cancel. The text has no secret. */
int notify_deliver(struct notify_receiver *r, const struct notify_message *m, struct gp_error *err);
/* "t=UNIX,v1=HEX" of a body. */
void notify_signature(const struct secret *key, int64_t now_s, const char *body, size_t n, char dst[96]);

/* --- once (notify_limits.c) --- */
bool notify_was_sent(const struct notify_receiver *r, const struct notify_message *m);
void notify_note_sent(const struct notify_receiver *r, const struct notify_message *m);
/* Queues what is due of the stacks' money and deadlines. Reads the journal; not under the lock. */
void notify_limits(struct notify *n);

#endif
