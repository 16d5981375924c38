/* SPDX-License-Identifier: Apache-2.0 */
/* Versions as numbers. Pure; any thread. */
#include "base/gp_base.h"

#include "software/software.h"

#include <ctype.h>

/* The next number of a version; other characters divide numbers. False at the end. */
static bool next(const char **p, uint64_t *ret) {
    while (**p != '\0' && !isdigit((unsigned char)**p)) (*p)++;
    if (**p == '\0') return false;
    uint64_t v = 0;
    for (; isdigit((unsigned char)**p); (*p)++)
        if (v < UINT64_MAX / 100) v = v * 10 + (uint64_t)(**p - '0');
    *ret = v;
    return true;
}

int software_version_compare(const char *a, const char *b) {
    for (;;) {
        uint64_t x = 0, y = 0; /* 1.2 equals 1.2.0 */
        bool more_a = next(&a, &x), more_b = next(&b, &y);
        if (x != y) return x < y ? -1 : 1;
        if (!more_a && !more_b) return 0;
    }
}

bool software_version_is(const char *version, const char *prefix) {
    size_t n = strlen(prefix);
    return n > 0 && strncmp(version, prefix, n) == 0 && !isdigit((unsigned char)version[n]);
}
