// SPDX-License-Identifier: Apache-2.0
/* Header fields, replies and percent-encoding of http.h. Pure. */
#include "base/gp_base.h"

#include "providers/http.h"

#include <ctype.h>
#include <strings.h>

void http_fields_add(struct http_fields *f, const char *name, const char *value) {
    struct http_field one = {xstrdup(name), xstrdup(value)};
    vec_push(&f->list, one);
}

const char *http_fields_get(const struct http_fields *f, const char *name) {
    for (size_t i = 0; i < f->list.len; i++)
        if (strcasecmp(f->list.items[i].name, name) == 0) return f->list.items[i].value;
    return NULL;
}

void http_fields_clear(struct http_fields *f) {
    for (size_t i = 0; i < f->list.len; i++) {
        free(f->list.items[i].name);
        explicit_bzero(f->list.items[i].value, strlen(f->list.items[i].value));
        free(f->list.items[i].value);
    }
    vec_free(&f->list);
}

void http_resp_clear(struct http_resp *r) {
    str_clear(&r->body);
    http_fields_clear(&r->headers);
    *r = (struct http_resp){0};
}

void http_encode(struct str *out, const char *s) {
    for (; *s != '\0'; s++) {
        unsigned char c = (unsigned char)*s;
        if (isalnum(c) || c == '-' || c == '_' || c == '.' || c == '~') str_addc(out, (char)c);
        else str_addf(out, "%%%02X", c);
    }
}
