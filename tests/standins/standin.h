/* SPDX-License-Identifier: Apache-2.0 */
/* How a stand-in is told to misbehave: an environment variable with "key=value,key=value". */
#ifndef GP_STANDIN_H
#define GP_STANDIN_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What follows "key=" in the variable (to the next comma), or NULL. */
static inline const char *standin_text(const char *variable, const char *key) {
    const char *s = getenv(variable);
    size_t n = strlen(key);
    while (s && *s) {
        if (strncmp(s, key, n) == 0 && s[n] == '=') return s + n + 1;
        s = strchr(s, ',');
        s = s ? s + 1 : NULL;
    }
    return NULL;
}

/* The number after "key=" in the variable, or def. */
static inline long long standin_get(const char *variable, const char *key, long long def) {
    const char *s = standin_text(variable, key);
    return s ? strtoll(s, NULL, 0) : def;
}

/* The text after "key=" in the variable, with _ for a space; def when there is none. */
static inline void standin_words(const char *variable, const char *key, const char *def, char *dst, size_t n) {
    const char *s = standin_text(variable, key);
    if (!s) {
        snprintf(dst, n, "%s", def);
        return;
    }
    snprintf(dst, n, "%.*s", (int)strcspn(s, ","), s);
    for (char *p = dst; *p; p++) *p = *p == '_' ? ' ' : *p;
}

#endif
