/* SPDX-License-Identifier: Apache-2.0 */
/* The verb table: one row and one short verb_*.c per verb. Dispatch, help and completion read it. */
#ifndef GP_CMD_VERBS_H
#define GP_CMD_VERBS_H

#include "base/error.h"
#include "options.h"

struct app;

/* Options that every verb takes. */
struct common_opts {
    bool json, quiet, help, version;
    const char *owner, *log, *trace; /* NULL when not given */
    int jobs;                        /* 0: the engine's default */
};
extern const struct opt common_options[];

enum verb_flags {
    VERB_HIDDEN = 1,      /* not in help or completion */
    VERB_PLAIN = 2,       /* short, launches nothing: runs in the main thread, no library is initialised */
    VERB_REST = 4,        /* takes "-- CMD..." */
    VERB_NOTIFIES = 32,   /* its events are sent to the receivers of the spec's `notify` */
    VERB_PLANS = 128,     /* shows a plan with the commands of `notify`, so all of them may run */
    VERB_ENDS = 64,       /* destroys: if it cannot begin to look, something may still be billed (exit 8) */
    VERB_NODE_CHECK = 16, /* exits 0 pass, 1 degraded, 2 fail, 3 unknown (also for wrong usage) */
    VERB_RAW = 8          /* argv is passed on as it is (args[-1] is the verb); signals are left alone */
};

/* One call of a verb. Strings are borrowed from argv. */
struct invocation {
    const struct verb *verb;
    const struct common_opts *common;
    void *opts; /* verb->opts_size bytes, decoded; NULL when 0 */
    char **args;
    int n_args;
    char **rest; /* after "--"; NULL without it */
    int n_rest;
    struct app *app;
    int exit_code;    /* of the process if run returned 0 (plan: 2) */
    char **exec_argv; /* run returned 0 and set this: main becomes that program. strv's form, owned */
    bool error_shown; /* run has already written the error where it belongs (spec problems) */
};

struct verb {
    const char *name;
    const char *argspec;  /* "STACK[/N] [-- CMD...]"; "" */
    const char *help;     /* one line, for the list */
    const char *details;  /* further lines for `help VERB`; may be NULL */
    const char *examples; /* lines "gpuprov VERB ...  # what it does" for `help VERB` and the manual */
    int (*run)(struct invocation *inv, struct gp_error *err);
    const struct opt *options; /* may be NULL */
    size_t opts_size;
    int min_args, max_args;
    unsigned flags;
};
extern const struct verb *const verb_table[];   /* NULL ends */
const struct verb *verb_find(const char *name); /* NULL when unknown */
/* -GP_EUSAGE "unknown verb", with "did you mean", or "does not have it yet" for a planned verb. */
int verb_unknown(const char *name, struct gp_error *err);
/* The list of verbs (verb NULL) or one verb's page; all: with the options of every verb. */
void verb_help(const struct verb *verb, bool all, struct str *out);
extern const char exit_codes_text[]; /* one line per code: "N  meaning" */

/* One row per verb, in the order of help: verb_NAME.c defines struct verb verb_NAME. */
/* clang-format off */
#define VERB_ROWS(row) \
    row(init) row(check) row(offers) row(plan) row(up) row(run) row(exec) row(attach) row(wait) row(cancel) \
    row(status) row(extend) row(bootstrap) row(validate) \
    row(ssh) row(cp) row(export) row(logs) row(report) row(down) row(verify) row(gc) row(bake) row(images) \
    row(schema) row(checks) row(providers) row(doctor) row(version) row(completion) \
    row(help_verb) row(dial) row(known_host) row(holder)
/* clang-format on */
#define VERB_DECLARE(name) extern const struct verb verb_##name;
VERB_ROWS(VERB_DECLARE)

#endif
