/* SPDX-License-Identifier: Apache-2.0 */
/* Allocation that aborts when memory is out, and the cleanup functions behind GP_AUTO_*. Any thread. */
#include "base/gp_base.h"

#include <stdarg.h>
#include <unistd.h>

void out_of_memory(void) {
    static const char msg[] = "gpuprov: out of memory; created resources are in the journal: "
                              "'gpuprov status' lists them, 'gpuprov down' destroys them\n";
    ssize_t n = write(STDERR_FILENO, msg, sizeof msg - 1);
    (void)n;
    abort();
}

void *xmalloc(size_t size) {
    void *p = malloc(size ? size : 1);
    if (p == NULL) out_of_memory();
    return p;
}

void *xcalloc(size_t n, size_t size) {
    void *p = calloc(n ? n : 1, size ? size : 1);
    if (p == NULL) out_of_memory();
    return p;
}

void *xrealloc(void *p, size_t size) {
    void *q = realloc(p, size ? size : 1);
    if (q == NULL) out_of_memory();
    return q;
}

char *xstrndup(const char *s, size_t n) {
    size_t len = strnlen(s, n);
    char *p = xmalloc(len + 1);
    memcpy(p, s, len);
    p[len] = '\0';
    return p;
}

char *xstrdup(const char *s) { return s == NULL ? NULL : xstrndup(s, SIZE_MAX - 1); }

char *xvasprintf(const char *fmt, va_list ap) {
    char *out = NULL;
    if (vasprintf(&out, fmt, ap) < 0) out_of_memory();
    return out;
}

char *xasprintf(const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    char *out = xvasprintf(fmt, ap);
    va_end(ap);
    return out;
}

void gp_cleanup_free(void *pp) {
    void **p = pp;
    free(*p);
    *p = NULL;
}

void gp_cleanup_fd(int *fd) {
    if (*fd >= 0) close(*fd);
    *fd = -1;
}

void gp_cleanup_file(FILE **f) {
    if (*f != NULL) fclose(*f);
    *f = NULL;
}
