/* SPDX-License-Identifier: Apache-2.0 */
/* Amounts with a unit. Money: "60 USD/h", "500 USD", kept in millionths, so that text and value are equal. Sizes:
 * "500GB", kept in whole GiB, rounded up. Pure; any thread. */
#include "base/gp_base.h"

#include "spec/spec_internal.h"

void spec_money_text(char *dst, size_t n, int64_t micro, const char *unit) {
    char fraction[24];
    int64_t rest = micro % 1000000;
    snprintf(fraction, sizeof fraction, ".%06lld", (long long)rest);
    for (size_t i = strlen(fraction); i > 0 && (fraction[i - 1] == '0' || fraction[i - 1] == '.'); i--) {
        bool dot = fraction[i - 1] == '.';
        fraction[i - 1] = '\0';
        if (dot) break;
    }
    snprintf(dst, n, "%lld%s %s", (long long)(micro / 1000000), fraction, unit);
}

/* Digits with at most six after the point. */
static bool parse(const char *text, size_t n, int64_t *ret_micro) {
    const char *dot = memchr(text, '.', n);
    size_t whole = dot != NULL ? (size_t)(dot - text) : n, places = dot != NULL ? n - whole - 1 : 0;
    if (whole == 0 || whole > 12 || places > 6 || (dot != NULL && places == 0)) return false;
    int64_t v = 0;
    for (size_t i = 0; i < whole + 6; i++) {
        char ch = i < whole ? text[i] : i - whole < places ? text[i + 1] : '0';
        if (ch < '0' || ch > '9') return false;
        v = v * 10 + (ch - '0');
    }
    *ret_micro = v;
    return true;
}

void spec_money_decode(struct spec_ctx *c, const struct spec_field *f, const struct yaml_node *at, int64_t *to) {
    const char *text = spec_text_of(c, at, f->name);
    if (text == NULL) return;
    size_t n = strspn(text, "0123456789.");
    const char *unit = text + n + strspn(text + n, " ");
    int64_t micro = 0;
    if (n == 0 || !parse(text, n, &micro) || (unit[0] != '\0' && strcmp(unit, f->unit) != 0)) {
        spec_complain(c, at, "'%s' must be an amount such as %s, not '%.60s'", f->name, f->example,
                      spec_shown(at, text));
    } else if (unit[0] == '\0') {
        spec_complain(c, at, "'%s' is %s without a unit: write %s %s", f->name, spec_shown(at, text),
                      spec_shown(at, text), f->unit);
    } else if (micro < f->min || micro > f->max) {
        char min[40], max[40];
        spec_money_text(min, sizeof min, f->min, f->unit);
        spec_money_text(max, sizeof max, f->max, f->unit);
        spec_complain(c, at, "'%s' must be from %s to %s, not %.60s", f->name, min, max, spec_shown(at, text));
    } else {
        *to = micro;
    }
}

/* --- sizes --- */

void spec_size_text(char *dst, size_t n, int gib) { snprintf(dst, n, "%d GiB", gib); }

static double bytes_of(const char *unit) {
    static const struct {
        const char *name;
        double bytes;
    } units[] = {{"GB", 1e9}, {"GiB", 1073741824.0}, {"TB", 1e12}, {"TiB", 1099511627776.0}};
    for (size_t i = 0; i < GP_ARRAY_LEN(units); i++)
        if (strcmp(units[i].name, unit) == 0) return units[i].bytes;
    return 0;
}

void spec_size_decode(struct spec_ctx *c, const struct spec_field *f, const struct yaml_node *at, int *to) {
    const char *text = spec_text_of(c, at, f->name);
    if (text == NULL) return;
    size_t n = strspn(text, "0123456789.");
    const char *unit = text + n + strspn(text + n, " ");
    int64_t micro = 0;
    if (n == 0 || !parse(text, n, &micro) || (unit[0] != '\0' && bytes_of(unit) == 0)) {
        spec_complain(c, at, "'%s' must be a size such as %s, not '%.60s' (units: GB, GiB, TB, TiB)", f->name,
                      f->example, spec_shown(at, text));
        return;
    }
    if (unit[0] == '\0') {
        spec_complain(c, at, "'%s' is %s without a unit: write %sGB or %sGiB", f->name, spec_shown(at, text),
                      spec_shown(at, text), spec_shown(at, text));
        return;
    }
    double gib = (double)micro / 1e6 * bytes_of(unit) / 1073741824.0;
    if (micro == 0 || gib > (double)f->max) {
        char min[24], max[24];
        spec_size_text(min, sizeof min, (int)f->min);
        spec_size_text(max, sizeof max, (int)f->max);
        spec_complain(c, at, "'%s' must be from %s to %s, not %.60s", f->name, min, max, spec_shown(at, text));
        return;
    }
    int whole = (int)gib; /* f->min is 1 GiB: every size but 0 is rounded up to it */
    *to = (double)whole < gib ? whole + 1 : whole;
}
