/* SPDX-License-Identifier: Apache-2.0 */
/* validate.floors: `check.figure: 300 GB/s`. A unit is required and must have the dimension of the
 * figure's own unit; the value is converted to that. Pure; any thread. */
#include "base/gp_base.h"

#include "spec/spec_internal.h"

#include <ctype.h>

enum dimension { D_RATE, D_TIME, D_BYTES, D_TOKENS, D_PER_S, D_FLOPS, D_SHARE, D_COUNT };
static const struct unit {
    const char *name;
    enum dimension dimension;
    double base; /* one of it in the dimension's base: B/s, s, B, 1/s, 1 */
} units[] = {
    {"GB/s", D_RATE, 1e9},
    {"MB/s", D_RATE, 1e6},
    {"TB/s", D_RATE, 1e12},
    {"GiB/s", D_RATE, 1073741824.0},
    {"MiB/s", D_RATE, 1048576.0},
    {"Gbit/s", D_RATE, 1.25e8},
    {"Mbit/s", D_RATE, 1.25e5},
    {"s", D_TIME, 1},
    {"ms", D_TIME, 1e-3},
    {"us", D_TIME, 1e-6},
    {"GiB", D_BYTES, 1073741824.0},
    {"MiB", D_BYTES, 1048576.0},
    {"TiB", D_BYTES, 1099511627776.0},
    {"GB", D_BYTES, 1e9},
    {"MB", D_BYTES, 1e6},
    {"TB", D_BYTES, 1e12},
    {"bytes", D_BYTES, 1},
    {"tokens/s", D_TOKENS, 1},
    {"/s", D_PER_S, 1},
    {"IOPS", D_PER_S, 1},
    {"TFLOP/s", D_FLOPS, 1e12},
    {"GFLOP/s", D_FLOPS, 1e9},
    {"%", D_SHARE, 0.01},
    {"", D_COUNT, 1},
};

const char *const spec_floor_units[] = {"GB/s",     "MB/s", "TB/s", "GiB/s",   "MiB/s",   "Gbit/s", "Mbit/s", "s",
                                        "ms",       "us",   "GiB",  "MiB",     "TiB",     "GB",     "MB",     "TB",
                                        "tokens/s", "/s",   "IOPS", "TFLOP/s", "GFLOP/s", "%",      NULL};

static const struct unit *unit_find(const char *name) {
    for (size_t i = 0; i < GP_ARRAY_LEN(units); i++)
        if (strcmp(units[i].name, name) == 0) return &units[i];
    return NULL;
}

static double in_base(const struct spec_floor *f) {
    const struct unit *u = unit_find(f->unit);
    return u != NULL ? f->value * u->base : f->value;
}

json_t *spec_floors_json(const struct spec_floors *v, bool hash) {
    json_t *floors = json_object();
    for (size_t i = 0; i < v->len; i++) {
        const struct spec_floor *f = &v->items[i];
        bool figure = f->metric[0] != '\0', unit = f->unit[0] != '\0' && !hash;
        GP_AUTO_FREE char *key = xasprintf("%s%s%s", f->check, figure ? "." : "", f->metric);
        GP_AUTO_FREE char *value =
            xasprintf("%.12g%s%s", hash ? in_base(f) : f->value, unit ? " " : "", unit ? f->unit : "");
        GP_AUTO_FREE char *escaped = spec_escape(value, false);
        json_object_set_new(floors, key, json_string(escaped));
    }
    return floors;
}

/* True if a unit can be converted to the figure's own: same text, or both known and of one dimension. */
static bool converts(const char *from, const char *to, double *ret_factor) {
    const struct unit *a = unit_find(from), *b = unit_find(to);
    if (strcmp(from, to) == 0) {
        *ret_factor = 1;
        return true;
    }
    if (from[0] == '\0' && b == NULL) { /* "8" for things that are counted: cores, files */
        *ret_factor = 1;
        return true;
    }
    if (a == NULL || b == NULL || a->dimension != b->dimension) return false;
    *ret_factor = a->base / b->base;
    return true;
}

static void unknown_unit(struct spec_ctx *c, const struct yaml_node *at, const char *unit) {
    if (str_eq(unit, "Gb/s") || str_eq(unit, "Gbps") || str_eq(unit, "Mb/s") || str_eq(unit, "Mbps")) {
        spec_complain(c, at, "the unit '%s' could be bits or bytes: write %cbit/s or %cB/s", spec_shown(at, unit),
                      unit[0], unit[0]);
        return;
    }
    GP_AUTO_FREE char *hint = spec_hint(unit, spec_floor_units);
    spec_complain(c, at, "unknown unit '%.40s'%s", spec_shown(at, unit), hint);
}

/* "300 GB/s", "300GB/s", "3": number and unit (caller frees). A unit is known to the table, or (by
 * names) to the figure itself. */
static bool split_value(struct spec_ctx *c, const struct yaml_node *at, const char *key, double *ret_value,
                        char **ret_unit) {
    const char *text = spec_text_of(c, at, key);
    if (text == NULL) return false;
    size_t n = strspn(text, "0123456789.");
    if (tolower((unsigned char)text[n]) == 'e' && isdigit((unsigned char)text[n + 1]))
        n += 1 + strspn(text + n + 1, "0123456789");
    else if (tolower((unsigned char)text[n]) == 'e' && (text[n + 1] == '+' || text[n + 1] == '-') &&
             isdigit((unsigned char)text[n + 2]))
        n += 2 + strspn(text + n + 2, "0123456789");
    GP_AUTO_FREE char *number = xstrndup(text, n);
    GP_AUTO_FREE char *rest = xstrdup(text + n);
    if (n == 0 || !str_to_double(number, ret_value)) {
        spec_complain(c, at, "'%s' must be a number and a unit such as 300 GB/s, not '%.60s'", key,
                      spec_shown(at, text));
        return false;
    }
    *ret_unit = xstrdup(str_trim(rest));
    return true;
}

/* The id of the check that key starts with: the whole key, or all but its last part. */
static bool split_key(struct spec_ctx *c, const struct yaml_node *key, char **ret_check, char **ret_metric) {
    const char *dot = strrchr(key->value, '.');
    if (c->names == NULL) { /* no table: a key of three parts names a figure */
        bool figure = dot != NULL && strchr(key->value, '.') != dot;
        *ret_check = figure ? xstrndup(key->value, (size_t)(dot - key->value)) : xstrdup(key->value);
        *ret_metric = xstrdup(figure ? dot + 1 : "");
        return true;
    }
    VEC_OF(const char *) ids = {0};
    const char *found = NULL;
    size_t found_len = 0;
    for (size_t i = 0;; i++) {
        const char *id = c->names->check(i);
        vec_push(&ids, id);
        if (id == NULL) break;
        size_t n = strlen(id);
        if (strncmp(id, key->value, n) != 0 || n < found_len) continue;
        if (key->value[n] != '\0' && (dot == NULL || key->value + n != dot)) continue;
        found = id;
        found_len = n;
    }
    if (found != NULL) {
        *ret_check = xstrdup(found);
        *ret_metric = xstrdup(key->value[found_len] == '.' ? key->value + found_len + 1 : "");
    } else {
        GP_AUTO_FREE char *head = xstrndup(key->value, dot ? (size_t)(dot - key->value) : 0);
        const char *near = str_closest(key->value, ids.items);
        if (near == NULL && head[0] != '\0') near = str_closest(head, ids.items);
        spec_complain(c, key, "unknown check '%.100s'%s%s%s", key->value,
                      near != NULL ? "; did you mean '" : "; 'gpuprov checks' lists them", near != NULL ? near : "",
                      near != NULL ? "'?" : "");
    }
    vec_free(&ids);
    return found != NULL;
}

/* Finds the figure, sets metric where the key named only the check, converts to its unit. */
static bool settle(struct spec_ctx *c, const struct yaml_node *key, const struct yaml_node *at, struct spec_floor *f) {
    const char *name = NULL, *unit = NULL;
    GP_AUTO_STR struct str has = {.max = 300};
    double factor = 0;
    for (size_t i = 0; c->names->metric(f->check, i, &name, &unit); i++) {
        str_addf(&has, "%s%s%s%s%s", i == 0 ? "" : ", ", name, unit[0] ? " (" : "", unit, unit[0] ? ")" : "");
        if (f->metric[0] != '\0' && strcmp(f->metric, name) != 0) continue;
        /* a bare number for a whole check can only mean its first figure */
        bool vague = f->metric[0] == '\0' && f->unit[0] == '\0' && i > 0;
        if (!vague && converts(f->unit, unit, &factor)) {
            free(f->metric);
            free(f->unit);
            f->metric = xstrdup(name);
            f->unit = xstrdup(unit);
            f->value *= factor;
            return true;
        }
        if (f->metric[0] == '\0' || (f->unit[0] != '\0' && unit_find(f->unit) == NULL)) continue;
        GP_AUTO_FREE char *number = xasprintf("%.12g", f->value);
        if (f->unit[0] == '\0')
            spec_complain(c, at, "'%s' needs a unit: write it as %s %s", key->value, spec_shown(at, number), unit);
        else
            spec_complain(c, at, "'%s' is measured in %s, not in %s", key->value, unit[0] ? unit : "plain numbers",
                          spec_shown(at, f->unit));
        return false;
    }
    if (f->unit[0] != '\0' && unit_find(f->unit) == NULL) unknown_unit(c, at, f->unit);
    else if (has.len == 0) spec_complain(c, key, "%s has no figures, so it can have no floor", f->check);
    else if (f->metric[0] != '\0')
        spec_complain(c, key, "%s has no figure '%.60s'; it has: %s", f->check, f->metric, has.s);
    else if (f->unit[0] == '\0')
        spec_complain(c, at, "'%s' needs a unit, such as 300 GB/s; its figures: %s", key->value, has.s);
    else spec_complain(c, at, "%s has no figure in %s; it has: %s", f->check, spec_shown(at, f->unit), has.s);
    return false;
}

static void floor_clear(struct spec_floor *f) {
    free(f->check);
    free(f->metric);
    free(f->unit);
}

void spec_floors_clear(struct spec_floors *v) {
    for (size_t i = 0; i < v->len; i++) floor_clear(&v->items[i]);
    vec_free(v);
}

void spec_floors_decode(struct spec_ctx *c, const struct yaml_node *map, struct spec_floors *to) {
    if (map->kind != YAML_MAP) {
        if (map->kind == YAML_LIST || spec_text_of(c, map, "floors") != NULL)
            spec_complain(c, map, "'floors' must be a map: {net.pair.bandwidth: 10 Gbit/s}");
        return;
    }
    if (map->items.len / 2 > SPEC_ITEMS_MAX) {
        spec_complain(c, map, "'floors' has %zu entries; at most %d", map->items.len / 2, SPEC_ITEMS_MAX);
        return;
    }
    for (size_t i = 0; i + 1 < map->items.len; i += 2) {
        const struct yaml_node *key = map->items.items[i], *at = map->items.items[i + 1];
        struct spec_floor f = {.pos = {key->line, key->column}};
        bool ok = split_key(c, key, &f.check, &f.metric) && split_value(c, at, key->value, &f.value, &f.unit);
        if (ok && c->names != NULL) ok = settle(c, key, at, &f);
        for (size_t k = 0; ok && k < to->len; k++) {
            const struct spec_floor *g = &to->items[k];
            if (!str_eq(g->check, f.check) || !str_eq(g->metric, f.metric)) continue;
            spec_complain(c, key, "%s.%s has a floor already, on line %u", f.check, f.metric, g->pos.line);
            ok = false;
        }
        if (ok) vec_push(to, f);
        else floor_clear(&f);
    }
}
