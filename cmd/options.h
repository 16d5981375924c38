/* SPDX-License-Identifier: Apache-2.0 */
/* Typed options: a table gives the name, the type and the target of each value. Parsing, help and shell completion
 * use it. Parsing never prints and never exits. */
#ifndef GP_CMD_OPTIONS_H
#define GP_CMD_OPTIONS_H

#include "base/error.h"
#include "base/str.h"
#include "base/vec.h"

enum opt_type {
    OPT_FLAG,     /* bool */
    OPT_TEXT,     /* const char *, borrowed from argv */
    OPT_INT,      /* int, within [min, max] */
    OPT_DURATION, /* int64_t, ms; "4h", "90s"; within [min, max] */
    OPT_ENUM,     /* int: index into `arg`, "text|json" */
    OPT_LIST      /* struct opt_list: may be repeated */
};

struct opt_list {
    const char *v[16]; /* borrowed from argv */
    size_t n;
};

/* One row; name NULL ends a table. A value absent from argv leaves the field as it was. */
struct opt {
    const char *name; /* long name, without dashes */
    char letter;      /* 0: none */
    enum opt_type type;
    size_t offset;   /* in the struct that goes with the table */
    const char *arg; /* name of the value in help; OPT_ENUM: the values, "a|b" */
    const char *help;
    int64_t min, max; /* OPT_INT, OPT_DURATION */
    int64_t initial;  /* OPT_DURATION: what options_init writes */
};

/* A table and the struct that it fills. */
struct opt_set {
    const struct opt *table; /* may be NULL */
    void *values;
};

/* The arguments that are not options. All strings are borrowed from argv. */
struct opt_args {
    VEC_OF(char *) args; /* before "--" */
    char **rest;         /* after "--"; NULL without it */
    int n_rest;
};
void opt_args_clear(struct opt_args *a);
#define GP_AUTO_OPT_ARGS GP_CLEANUP(opt_args_clear)

/* Reads argv[0..argc): options of any set (the first that has the name wins), arguments in between,
 * everything after "--" as rest. stop_at_arg: stops at the first argument
 * (*ret_used: number of words read; may be NULL). Errors: -GP_EUSAGE, with "did you mean". */
int options_parse(const struct opt_set *sets, size_t n_sets, int argc, char **argv, bool stop_at_arg,
                  struct opt_args *ret, int *ret_used, struct gp_error *err);

/* Writes the initial values of a table's rows to the zeroed struct. */
void options_init(const struct opt *table, void *values);
/* "  -j, --jobs N        how many nodes at once" for each row. */
void options_help(const struct opt *table, struct str *out);
/* Index of value among the words of "a|b|c", or -1. */
int options_enum_index(const char *words, const char *value);

#endif
