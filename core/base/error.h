/* SPDX-License-Identifier: Apache-2.0 */
/* Errors: one struct on the caller's stack with one line of text: the object, the cause and the next step.
 * Functions that can fail return 0 or a negative enum gp_code. */
#ifndef GP_BASE_ERROR_H
#define GP_BASE_ERROR_H

#include "base/gp_base.h"

enum gp_code {
    GP_OK = 0,
    GP_EUSAGE = 1,      /* bad usage or spec: exit 1 */
    GP_EENV = 2,        /* this machine lacks a requirement: exit 1 */
    GP_EIO = 3,         /* a local file or socket failed: exit 1 */
    GP_ECAPACITY = 4,   /* the cloud has no capacity: exit 3 */
    GP_EQUOTA = 5,      /* the account's quota is exceeded: exit 4 */
    GP_EAUTH = 6,       /* credentials or permissions: exit 5 */
    GP_EREACH = 7,      /* a node could not be reached: exit 6 */
    GP_EBOOTSTRAP = 8,  /* a node could not be bootstrapped: exit 6 */
    GP_EVALIDATE = 9,   /* exit 7 */
    GP_EBILLED = 10,    /* a resource may still be billed: exit 8 */
    GP_EJOB = 11,       /* exit 9 */
    GP_ECANCELLED = 12, /* exit 130 */
    GP_ETIMEOUT = 13,   /* the deadline of one operation; callers translate it */
    GP_EUNKNOWN = 14,   /* the outcome of a create is unknown: reconcile before any other offer */
    GP_ENOTFOUND = 15,
    GP_EEXISTS = 16,
    GP_ETHROTTLED = 17, /* retry later, same place */
    GP_EPROTO = 18,     /* the other side sent malformed data */
    GP_ELOST = 19,      /* a connection was lost during an operation */
    GP_EINTERNAL = 20,
    GP_EENDPOINT = 21, /* a cloud's endpoint cannot be reached (DNS, refused, TLS): exit 1 */
    GP_EMONEY = 22,    /* the account cannot pay: no balance, spend limit, no means of payment: exit 4 */
    GP_EBUSY = 23,     /* another gpuprov works on the stack, or changed it meanwhile: exit 1 */
    GP_CODE_MAX = 23
};

/* The part that produced the error. */
enum gp_domain {
    GP_D_NONE = 0,
    GP_D_SPEC,
    GP_D_CLOUD,
    GP_D_HTTP,
    GP_D_SSH,
    GP_D_JOURNAL,
    GP_D_NODE,
    GP_D_AGENT,
    GP_D_OS
};

/* The scope of a failed offer or create: everything in it is ruled out, whatever the code. The engine goes on with
 * the rest and reports the failure. */
enum gp_scope {
    GP_SCOPE_NONE = 0, /* not set: the code decides */
    GP_SCOPE_ZONE,     /* this type in this zone */
    GP_SCOPE_REGION,   /* this type in this region */
    GP_SCOPE_OFFER,    /* this entry of the spec's offers: the cloud refuses a parameter of it */
    GP_SCOPE_PROVIDER  /* the whole provider: its credentials, its account */
};

#define GP_ERROR_MSG_MAX 480

/* Zero-initialise ( = {0} ). Never allocated, so it cannot leak. */
struct gp_error {
    enum gp_code code;
    enum gp_domain domain;
    enum gp_scope scope;
    bool retryable;
    char detail[64]; /* the other side's own code: "InsufficientInstanceCapacity", "ECONNREFUSED" */
    char msg[GP_ERROR_MSG_MAX];
};

/* Sets err (which must not be set already: first error wins; asserted in debug builds) and returns
 * -code. err may be NULL. msg: lower case, one line, no secret; str_one_line makes it so. */
int gp_fail(struct gp_error *err, enum gp_code code, const char *fmt, ...) GP_PRINTF(3, 4);

/* Like gp_fail with ": strerror(errnum)" added and domain OS. */
int gp_fail_errno(struct gp_error *err, enum gp_code code, int errnum, const char *fmt, ...) GP_PRINTF(4, 5);

/* Puts "context: " in front of the message; returns -err->code. */
int gp_wrap(struct gp_error *err, const char *fmt, ...) GP_PRINTF(2, 3);

/* Adds to the end of the message: a next step that only the caller knows. */
void gp_append(struct gp_error *err, const char *fmt, ...) GP_PRINTF(2, 3);

/* From now on every message passes through edit before it is cut, and its result is freed; NULL: through nothing. The
 * redactor sets it (base/log.h): replies of services and other foreign texts may repeat a secret. The static agent has
 * errors, but no redactor. */
void gp_error_filter(char *(*edit)(const char *text));

void gp_error_clear(struct gp_error *err);   /* back to {0}, for a caller that handled it */
int gp_exit_code(enum gp_code code);         /* ARCHITECTURE's table */
const char *gp_code_name(enum gp_code code); /* "capacity", "quota", ... for --json */
/* The one of two exit codes to report, by this order: 8 > 5 > 4 > 3 > 6 > 7 > 9 > 1 > 130 > 2 > 0. */
int gp_exit_worst(int a, int b);

#endif
