/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the verbs: opens the engine on first use, reads STACK and SPEC arguments, shows progress and
 * results. */
#ifndef GP_CMD_APP_H
#define GP_CMD_APP_H

#include "verbs.h"

#include "engine/engine.h"
#include "output/output.h"

#include <pthread.h>

struct app {
    pthread_mutex_t lock;         /* engine, more and cancelled */
    struct engine *engine;        /* NULL until app_engine */
    VEC_OF(struct engine *) more; /* of app_engine_more */
    struct engine_opts engine_opts;
    struct strv only; /* --in */
    struct progress_hub hub;
    struct progress *warnings; /* until app_progress: warnings of verbs without progress */
    bool cancelled;
    bool plain;     /* progress in plain lines also on a terminal: a live area and a log would overwrite each other */
    bool libraries; /* initialised */
    struct strv failed;   /* the nodes' failures that progress has printed */
    struct strv problems; /* of specs that were refused: "FILE:LINE:COLUMN: text" */
};

/* The engine, with the common options; libraries are initialised first. Owned by the app: main closes
 * it when the verb's thread has ended. */
int app_engine(struct invocation *inv, struct engine **ret, struct gp_error *err);
/* A further engine, for a thread that works on another stack; `jobs` nodes in parallel. Signals reach it too. Call it
 * after app_engine. app_engine_done closes it; not before the other threads have ended, because it knows what is
 * billed. */
int app_engine_more(struct invocation *inv, int jobs, struct engine **ret, struct gp_error *err);
void app_engine_done(struct invocation *inv, struct engine *e);
/* When the verb has ended, in its thread: waits for notifications (engine_settle). app_engine_done does it too. */
void app_settle(struct invocation *inv);
/* Called by main after the first signal: cancels the engine, also one that is opened later. */
void app_cancel(struct app *app);
/* For the second signal: what is left, as text (engine_left_text); "" if nothing is known. *ret_billed: something of it
 * may be billed. Caller frees. */
char *app_left_text(struct app *app, bool *ret_billed);
void app_clear(struct app *app);

/* True if the argument names a spec file: it is NULL (gpuprov.yaml) or "-", ends in .yaml or .yml, has a '/' but is not
 * STACK/N, or is a file whose name no stack can have. */
bool arg_is_spec(const char *arg);
/* Adds to app.problems. pos NULL: of the file as a whole. */
void app_keep_problem(struct invocation *inv, const char *path, const struct spec_pos *pos, const char *text);
/* Loads a spec; problems go to stderr with line and caret (with --json: into the error object on
 * stdout), inv->error_shown is set then. arg "-": standard input; NULL: gpuprov.yaml of the working folder. */
int app_spec(struct invocation *inv, const char *arg, struct spec **ret, struct gp_error *err);
/* The same; a secret that cannot be read is a problem of the spec too. */
int app_spec_secrets(struct invocation *inv, const char *arg, struct spec **ret, struct gp_error *err);
/* Adds the secrets that cannot be read to the problems of the spec. */
int app_check_secrets(const struct spec *spec, struct spec_problems *problems, struct gp_error *err);
/* Lines of `help VERB` for verbs that take a SPEC, and for those that take a STACK or SPEC. */
#define VERB_SPEC_DETAILS "  SPEC is a file, or '-' for standard input; without it: gpuprov.yaml of this folder.\n"
#define VERB_TARGET_DETAILS "  A SPEC ends in .yaml or .yml, or has a '/': 'try' is a stack, './try' is a file.\n"
/* A STACK or SPEC argument: *ret_spec is NULL for a stack's name. ret_name is borrowed from either. */
int app_target(struct invocation *inv, const char *arg, struct spec **ret_spec, const char **ret_name,
               struct gp_error *err);
/* "STACK", "STACK/N", "SPEC" or "SPEC/N": *ret_name is the caller's, *ret_slot -1 without N. *ret_spec: of a SPEC, the
 * caller's; ret_spec may be NULL. */
int app_stack_slot(struct invocation *inv, const char *arg, char **ret_name, int *ret_slot, struct spec **ret_spec,
                   struct gp_error *err);
/* The path of this program. Caller frees. */
int app_self_exe(char **ret, struct gp_error *err);
/* Refuses names that no stack can have. */
int app_stack_name(const char *name, struct gp_error *err);

/* The objects of one verb: its STACK or SPEC argument, the engine, progress. */
struct app_work {
    struct spec *spec; /* NULL for a stack's name */
    const char *name;  /* borrowed */
    struct engine *e;
    struct progress *p;
};
/* Fills ret from the first argument (spec_only: it is a spec, which may be left out, and its secrets are checked). */
int app_begin(struct invocation *inv, bool spec_only, struct app_work *ret, struct gp_error *err);
void app_work_clear(struct app_work *w); /* accepts one that app_begin did not finish */
#define GP_AUTO_WORK GP_CLEANUP(app_work_clear)

/* Shows the engine's events as progress on stderr until app_progress_end. */
int app_progress(struct invocation *inv, struct engine *e, const char *stack, int nodes, struct progress **ret,
                 struct gp_error *err);
void app_progress_end(struct engine *e, struct progress **p);

/* --- places.c --- */
/* The row of the option --in. */
#define PLACES_ROW(struct_, member)                                                           \
    {                                                                                         \
        .name = "in", .type = OPT_TEXT, .offset = offsetof(struct_, member), .arg = "PLACES", \
        .help = "look only at these: PROVIDER or PROVIDER/REGION, comma-separated"            \
    }
/* The row of the option --lock-timeout, and what hands its value to the engine. Call it before app_engine. */
#define LOCK_ROW(struct_, member)                                                                         \
    {                                                                                                     \
        .name = "lock-timeout", .type = OPT_DURATION, .offset = offsetof(struct_, member), .arg = "TIME", \
        .initial = LOCK_TIMEOUT_MS, .help = "wait so long for another gpuprov on this stack (default 1h)" \
    }
void app_lock_timeout(struct invocation *inv, int64_t ms);
/* The row of the option --fetch-timeout. */
#define FETCH_ROW(struct_, member)                                                                         \
    {                                                                                                      \
        .name = "fetch-timeout", .type = OPT_DURATION, .offset = offsetof(struct_, member), .arg = "TIME", \
        .min = 1000, .help = "fetch files of a node for so long (default 1h, and 1s more per 32 kB)"       \
    }
/* Limits the engine to the places in `list` (NULL: no limit). Call it before app_engine. */
int app_places(struct invocation *inv, const char *list, struct gp_error *err);
json_t *time_json(int64_t wall_s);             /* new reference; null for 0 */
json_t *looked_json(const struct coverage *c); /* new reference */
/* Prints two lines: the places that were looked at, and those that were not. The error has the reason. */
void show_looked(const struct coverage *c, FILE *to);
void show_unreadable(const struct resource_list *l, FILE *to);

/* Prints the table of nodes and the summary of a stack. */
void show_stack(const struct stack_view *v, FILE *to);
json_t *stack_view_json(const struct stack_view *v); /* new reference */
json_t *resources_json(const struct resource_list *l);
void show_resources(const struct resource_list *l, FILE *to);
/* The same, stack by stack, with the deadline and the price of each. */
void show_stacks_of(const struct resource_list *l, FILE *to);
/* Prints and releases j, one line. */
void print_json(json_t *j);       /* without what the redactor hides */
void print_json_exact(json_t *j); /* for another program, which needs the values */
/* {"error": {code, detail, message}} on stdout. */
void print_error_json(const struct gp_error *err, json_t *problems);
/* The object itself, for results that have an error beside them. New reference. */
json_t *error_json(const struct gp_error *err);
/* A result that has an error beside it: into j as "error", and as one line on stderr. */
void result_error(struct invocation *inv, json_t *j, const struct gp_error *err);
/* Prints text as {"KEY": "text"} with --json, else unchanged. */
void print_text(const struct invocation *inv, const char *key, const char *text);
/* Prints a section of the generated pages without Markdown's marks. */
void show_markdown(const char *text, FILE *to);
/* The list of verbs (verb NULL) or one verb's page; all: with the options of every verb. */
void show_help(const struct verb *verb, bool all, bool json);
/* Who enforces the deadline, as text: from "server", "guest", "gc-only" or "never". */
const char *ends_text(const char *ends);
void price_format(char *dst, size_t n, double usd_per_h); /* "3.20 USD/h", "free", "not known" */

#endif
