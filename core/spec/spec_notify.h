/* SPDX-License-Identifier: Apache-2.0 */
/* The spec's list `notify`, decoded: the receivers of a stack's events. Plain data, owned by the spec. */
#ifndef GP_SPEC_SPEC_NOTIFY_H
#define GP_SPEC_SPEC_NOTIFY_H

#include "base/error.h"
#include "base/secret.h"
#include "base/str.h"

#define SPEC_NOTIFY_MAX 8
#define SPEC_NOTIFY_URL_MAX 2000

/* The kinds of events, in the order of spec_notify_kinds. */
enum notify_kind {
    NOTIFY_READY,     /* the nodes are validated */
    NOTIFY_PREEMPTED, /* a provider ended or reclaims a machine */
    NOTIFY_UNHEALTHY, /* a node of a running job is sick */
    NOTIFY_SPENT,     /* most of limits.max_cost is spent; once */
    NOTIFY_DEADLINE,  /* it is near; once per deadline */
    NOTIFY_LEAKED,    /* something may still be billed */
    NOTIFY_FAILED,    /* the verb failed */
    NOTIFY_JOB,       /* a job has ended */
    NOTIFY_GONE,      /* everything is destroyed, and that was verified */
    NOTIFY_NONE
};
extern const char *const spec_notify_kinds[NOTIFY_NONE + 1]; /* their names; NULL-ended */

/* One receiver: a URL or a command. */
struct spec_notify {
    char *url;      /* "https://...", or "env:NAME" or "file:PATH" (absolute) that has it; NULL: a command */
    char *secret;   /* "env:NAME" or "file:PATH": the key of the signature; NULL: unsigned */
    char *command;  /* sh text of this machine; NULL: a URL */
    struct strv on; /* names of kinds; empty: all */
    unsigned line, column;
};
bool spec_notify_wants(const struct spec_notify *n, enum notify_kind kind);
/* Reads the URL now, and checks it. Errors never have the URL: it may be all that protects the receiver. Blocks on a
 * local file. */
int spec_notify_read_url(const struct spec_notify *n, struct secret *ret, struct gp_error *err);
/* The same for the key. */
int spec_notify_read_secret(const struct spec_notify *n, struct secret *ret, struct gp_error *err);
/* What is wrong with a URL, as the end of a sentence; NULL: nothing. https, or http to a loopback address. */
const char *spec_notify_url_wrong(const char *url);
bool spec_notify_is_loopback(const char *url); /* of a URL without a fault */
/* Its host and port, for messages. Caller frees. */
char *spec_notify_place(const char *url);

#endif
