/* SPDX-License-Identifier: Apache-2.0 */
/* Error setting, wrapping and the map from codes to exit codes. Any thread. */
#include "base/gp_base.h"

#include "base/error.h"

#include "base/str.h"

#include <assert.h>
#include <stdarg.h>
#include <stdatomic.h>

static _Atomic(char *(*)(const char *)) filter;

void gp_error_filter(char *(*edit)(const char *text)) { atomic_store(&filter, edit); }

/* Writes the text, edited before it is cut, so that no part of a secret is left at the end. */
static void put(char msg[GP_ERROR_MSG_MAX], const char *fmt, va_list ap) GP_PRINTF(2, 0);
static void put(char msg[GP_ERROR_MSG_MAX], const char *fmt, va_list ap) {
    char *(*edit)(const char *) = atomic_load(&filter);
    if (edit == NULL) {
        vsnprintf(msg, GP_ERROR_MSG_MAX, fmt, ap);
        return;
    }
    GP_AUTO_STR struct str text = {.max = SIZE_MAX - 1};
    str_vaddf(&text, fmt, ap);
    GP_AUTO_FREE char *clean = edit(text.s != NULL ? text.s : "");
    snprintf(msg, GP_ERROR_MSG_MAX, "%s", clean);
}

static void set(struct gp_error *err, enum gp_code code, const char *fmt, va_list ap) {
    assert(err->code == GP_OK && "first error wins: clear a handled error before setting another");
    err->code = code;
    put(err->msg, fmt, ap);
    str_one_line(err->msg);
}

int gp_fail(struct gp_error *err, enum gp_code code, const char *fmt, ...) {
    if (err != NULL) {
        va_list ap;
        va_start(ap, fmt);
        set(err, code, fmt, ap);
        va_end(ap);
    }
    return -(int)code;
}

int gp_fail_errno(struct gp_error *err, enum gp_code code, int errnum, const char *fmt, ...) {
    if (err != NULL) {
        va_list ap;
        va_start(ap, fmt);
        set(err, code, fmt, ap);
        va_end(ap);
        err->domain = GP_D_OS;
        char buf[128];
        const char *text = strerror_r(errnum, buf, sizeof buf);
        size_t len = strlen(err->msg);
        snprintf(err->msg + len, sizeof err->msg - len, ": %s", text);
        str_one_line(err->msg); /* the truncation may have split a character */
        const char *name = strerrorname_np(errnum);
        snprintf(err->detail, sizeof err->detail, "%s", name ? name : "errno");
    }
    return -(int)code;
}

int gp_wrap(struct gp_error *err, const char *fmt, ...) {
    if (err == NULL) return -(int)GP_EINTERNAL;
    char old[GP_ERROR_MSG_MAX];
    memcpy(old, err->msg, sizeof old);
    va_list ap;
    va_start(ap, fmt);
    put(err->msg, fmt, ap);
    va_end(ap);
    size_t len = strlen(err->msg);
    snprintf(err->msg + len, sizeof err->msg - len, ": %s", old);
    str_one_line(err->msg);
    return -(int)err->code;
}

void gp_append(struct gp_error *err, const char *fmt, ...) {
    char more[GP_ERROR_MSG_MAX];
    va_list ap;
    va_start(ap, fmt);
    put(more, fmt, ap);
    va_end(ap);
    size_t len = strlen(err->msg);
    snprintf(err->msg + len, sizeof err->msg - len, "%s", more);
    str_one_line(err->msg);
}

void gp_error_clear(struct gp_error *err) { *err = (struct gp_error){0}; }

static const struct {
    int exit_code;
    const char *name;
} codes[GP_CODE_MAX + 1] = {
    [GP_OK] = {0, "ok"},
    [GP_EUSAGE] = {1, "usage"},
    [GP_EENV] = {1, "environment"},
    [GP_EIO] = {1, "io"},
    [GP_ECAPACITY] = {3, "capacity"},
    [GP_EQUOTA] = {4, "quota"},
    [GP_EAUTH] = {5, "auth"},
    [GP_EREACH] = {6, "reach"},
    [GP_EBOOTSTRAP] = {6, "bootstrap"},
    [GP_EVALIDATE] = {7, "validate"},
    [GP_EBILLED] = {8, "billed"},
    [GP_EJOB] = {9, "job"},
    [GP_ECANCELLED] = {130, "cancelled"},
    [GP_ETIMEOUT] = {6, "timeout"},
    [GP_EUNKNOWN] = {8, "unknown-outcome"},
    [GP_ENOTFOUND] = {1, "not-found"},
    [GP_EEXISTS] = {1, "exists"},
    [GP_ETHROTTLED] = {3, "throttled"},
    [GP_EPROTO] = {1, "protocol"},
    [GP_ELOST] = {6, "connection-lost"},
    [GP_EINTERNAL] = {1, "internal"},
    [GP_EENDPOINT] = {1, "endpoint"},
    [GP_EMONEY] = {4, "money"},
    [GP_EBUSY] = {1, "busy"},
};

int gp_exit_code(enum gp_code code) { return (unsigned)code <= GP_CODE_MAX ? codes[code].exit_code : 1; }

const char *gp_code_name(enum gp_code code) { return (unsigned)code <= GP_CODE_MAX ? codes[code].name : "internal"; }

int gp_exit_worst(int a, int b) {
    static const int order[] = {8, 5, 4, 3, 6, 7, 9, 1, 130, 2, 0};
    for (size_t i = 0; i < GP_ARRAY_LEN(order); i++)
        if (a == order[i] || b == order[i]) return order[i];
    return a;
}
