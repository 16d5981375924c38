/* SPDX-License-Identifier: Apache-2.0 */
/* Parses options by table: long and short forms, --name=value, -xVALUE, bundled flags, enums, durations, "did you
 * mean". Runs in the main thread. */
#include "base/gp_base.h"

#include "options.h"

#include "base/clock.h"

#define HELP_WIDTH 100

void opt_args_clear(struct opt_args *a) { vec_free(&a->args); }

int options_enum_index(const char *words, const char *value) {
    size_t n = strlen(value);
    int index = 0;
    for (const char *p = words;; index++) {
        size_t len = strcspn(p, "|");
        if (len == n && strncmp(p, value, n) == 0) return index;
        if (p[len] == '\0') return -1;
        p += len + 1;
    }
}

static const struct opt *find_long(const struct opt_set *sets, size_t n_sets, const char *name, size_t len,
                                   void **ret_values) {
    for (size_t s = 0; s < n_sets; s++)
        for (const struct opt *o = sets[s].table; o != NULL && o->name != NULL; o++)
            if (strlen(o->name) == len && strncmp(o->name, name, len) == 0) {
                *ret_values = sets[s].values;
                return o;
            }
    return NULL;
}

static const struct opt *find_letter(const struct opt_set *sets, size_t n_sets, char letter, void **ret_values) {
    for (size_t s = 0; s < n_sets; s++)
        for (const struct opt *o = sets[s].table; o != NULL && o->name != NULL; o++)
            if (o->letter == letter) {
                *ret_values = sets[s].values;
                return o;
            }
    return NULL;
}

static int unknown_long(const struct opt_set *sets, size_t n_sets, const char *name, struct gp_error *err) {
    VEC_OF(const char *) names = {0};
    for (size_t s = 0; s < n_sets; s++)
        for (const struct opt *o = sets[s].table; o != NULL && o->name != NULL; o++) vec_push(&names, o->name);
    vec_push(&names, NULL);
    const char *near = str_closest(name, names.items);
    int r = near != NULL ? gp_fail(err, GP_EUSAGE, "unknown option '--%s'; did you mean '--%s'?", name, near)
                         : gp_fail(err, GP_EUSAGE, "unknown option '--%s'", name);
    vec_free(&names);
    return r;
}

static int set_int(const struct opt *o, const char *value, void *field, struct gp_error *err) {
    int64_t v = 0;
    if (!str_to_i64(value, o->min, o->max, &v))
        return gp_fail(err, GP_EUSAGE, "--%s takes a number from %lld to %lld, not '%s'", o->name, (long long)o->min,
                       (long long)o->max, value);
    int small = (int)v;
    memcpy(field, &small, sizeof small);
    return 0;
}

static int set_duration(const struct opt *o, const char *value, void *field, struct gp_error *err) {
    int64_t ms = 0;
    if (!duration_parse(value, &ms))
        return gp_fail(err, GP_EUSAGE, "--%s takes a duration with its unit (90s, 5m, 4h), not '%s'", o->name, value);
    if (ms < o->min || (o->max > 0 && ms > o->max)) {
        char low[32], high[32];
        duration_format(low, sizeof low, o->min);
        duration_format(high, sizeof high, o->max > 0 ? o->max : GP_NEVER);
        return gp_fail(err, GP_EUSAGE, "--%s must be from %s to %s, not '%s'", o->name, low,
                       o->max > 0 ? high : "any time", value);
    }
    memcpy(field, &ms, sizeof ms);
    return 0;
}

static int add_to_list(const struct opt *o, const char *value, struct opt_list *list, struct gp_error *err) {
    if (list->n == GP_ARRAY_LEN(list->v))
        return gp_fail(err, GP_EUSAGE, "--%s may be given %zu times at most", o->name, list->n);
    list->v[list->n++] = value;
    return 0;
}

static int set_value(const struct opt *o, void *values, const char *value, struct gp_error *err) {
    void *field = (char *)values + o->offset;
    bool on = true;
    int index = 0;
    switch (o->type) {
    case OPT_FLAG: memcpy(field, &on, sizeof on); return 0;
    case OPT_TEXT:
        if (value[0] == '\0') return gp_fail(err, GP_EUSAGE, "--%s is empty: it takes %s", o->name, o->arg);
        memcpy(field, &value, sizeof value);
        return 0;
    case OPT_LIST: return add_to_list(o, value, field, err);
    case OPT_INT: return set_int(o, value, field, err);
    case OPT_DURATION: return set_duration(o, value, field, err);
    case OPT_ENUM:
        index = options_enum_index(o->arg, value);
        if (index < 0) return gp_fail(err, GP_EUSAGE, "--%s takes one of %s, not '%s'", o->name, o->arg, value);
        memcpy(field, &index, sizeof index);
        return 0;
    }
    return gp_fail(err, GP_EINTERNAL, "option '--%s' has no type", o->name);
}

/* --name, --name=value, --name value. *i: index of the word; moved when the value is the next. */
static int parse_long(const struct opt_set *sets, size_t n_sets, int argc, char **argv, int *i, struct gp_error *err) {
    const char *name = argv[*i] + 2;
    size_t len = strcspn(name, "=");
    const char *value = name[len] == '=' ? name + len + 1 : NULL;
    void *values = NULL;
    const struct opt *o = find_long(sets, n_sets, name, len, &values);
    if (o == NULL) {
        GP_AUTO_FREE char *word = xstrndup(name, len);
        return unknown_long(sets, n_sets, word, err);
    }
    if (o->type == OPT_FLAG && value != NULL) return gp_fail(err, GP_EUSAGE, "--%s takes no value", o->name);
    if (o->type != OPT_FLAG && value == NULL) {
        if (*i + 1 >= argc || strcmp(argv[*i + 1], "--") == 0)
            return gp_fail(err, GP_EUSAGE, "--%s needs a value: %s", o->name, o->arg);
        value = argv[++*i];
    }
    return set_value(o, values, value, err);
}

/* -x, -xVALUE, -x VALUE, -xyz of flags. */
static int parse_short(const struct opt_set *sets, size_t n_sets, int argc, char **argv, int *i, struct gp_error *err) {
    for (const char *p = argv[*i] + 1; *p != '\0'; p++) {
        void *values = NULL;
        const struct opt *o = find_letter(sets, n_sets, *p, &values);
        if (o == NULL) return gp_fail(err, GP_EUSAGE, "unknown option '-%c'", *p);
        if (o->type == OPT_FLAG) {
            int r = set_value(o, values, NULL, err);
            if (r != 0) return r;
            continue;
        }
        const char *value = p + 1;
        if (*value == '\0') {
            if (*i + 1 >= argc || strcmp(argv[*i + 1], "--") == 0)
                return gp_fail(err, GP_EUSAGE, "-%c needs a value: %s", *p, o->arg);
            value = argv[++*i];
        }
        return set_value(o, values, value, err);
    }
    return 0;
}

int options_parse(const struct opt_set *sets, size_t n_sets, int argc, char **argv, bool stop_at_arg,
                  struct opt_args *ret, int *ret_used, struct gp_error *err) {
    int i = 0;
    for (; i < argc; i++) {
        const char *word = argv[i];
        if (strcmp(word, "--") == 0) {
            if (stop_at_arg) break;
            ret->rest = argv + i + 1;
            ret->n_rest = argc - i - 1;
            i = argc;
            break;
        }
        int r = 0;
        if (word[0] == '-' && word[1] == '-') {
            r = parse_long(sets, n_sets, argc, argv, &i, err);
        } else if (word[0] == '-' && word[1] != '\0') {
            r = parse_short(sets, n_sets, argc, argv, &i, err);
        } else {
            if (stop_at_arg) break;
            vec_push(&ret->args, argv[i]);
        }
        if (r != 0) return r;
    }
    if (ret_used != NULL) *ret_used = i;
    return 0;
}

void options_init(const struct opt *table, void *values) {
    for (const struct opt *o = table; o != NULL && o->name != NULL; o++)
        if (o->type == OPT_DURATION) memcpy((char *)values + o->offset, &o->initial, sizeof o->initial);
}

/* The text in lines of at most HELP_WIDTH columns, each after the first below the column of the first. */
static void add_wrapped(struct str *out, size_t column, const char *text) {
    size_t at = column;
    for (const char *p = text; *p != '\0';) {
        size_t n = strcspn(p, " ");
        if (at > column && at + 1 + n > HELP_WIDTH) {
            str_addf(out, "\n%*s", (int)column, "");
            at = column;
        }
        str_addf(out, "%s%.*s", at > column ? " " : "", (int)n, p);
        at += (at > column) + n;
        p += n;
        p += strspn(p, " ");
    }
    str_add(out, "\n");
}

void options_help(const struct opt *table, struct str *out) {
    for (const struct opt *o = table; o != NULL && o->name != NULL; o++) {
        GP_AUTO_STR struct str left = {0};
        if (o->letter != '\0') str_addf(&left, "-%c, ", o->letter);
        else str_add(&left, "    ");
        str_addf(&left, "--%s", o->name);
        if (o->type != OPT_FLAG) str_addf(&left, " %s", o->arg);
        if (left.len > 26) str_addf(out, "  %s\n%30s", left.s, "");
        else str_addf(out, "  %-26s  ", left.s);
        add_wrapped(out, 30, o->help);
    }
}
