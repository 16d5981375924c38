/* SPDX-License-Identifier: Apache-2.0 */
/* Secret values; their memory is wiped before it is freed. Any thread. */
#include "base/gp_base.h"

#include "base/secret.h"

void secret_clear(struct secret *s) {
    if (s->bytes_ != NULL) {
        explicit_bzero(s->bytes_, s->len);
        free(s->bytes_);
    }
    *s = (struct secret){0};
}

void secret_set(struct secret *s, const void *p, size_t n) {
    unsigned char *b = xmalloc(n + 1);
    memcpy(b, p, n);
    b[n] = '\0';
    secret_clear(s);
    s->bytes_ = b;
    s->len = n;
}

void secret_copy(struct secret *to, const struct secret *from) {
    secret_set(to, from->bytes_ ? (const void *)from->bytes_ : "", from->len);
}

const char *secret_reveal(const struct secret *s) { return s->bytes_ != NULL ? (const char *)s->bytes_ : ""; }

bool secret_equal(const struct secret *a, const void *p, size_t n) {
    if (a->len != n) return false;
    const unsigned char *b = p;
    unsigned diff = 0;
    for (size_t i = 0; i < n; i++) diff |= (unsigned)(a->bytes_[i] ^ b[i]);
    return diff == 0;
}
