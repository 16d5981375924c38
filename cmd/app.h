/* SPDX-License-Identifier: Apache-2.0 */
/* What verbs share: the engine opened on first use, the argument that may be a stack or a spec,
 * progress, and how stacks are shown. */
#ifndef GP_CMD_APP_H
#define GP_CMD_APP_H

#include "verbs.h"

#include "engine/engine.h"
#include "output/output.h"

#include <pthread.h>

struct app {
    pthread_mutex_t lock;  /* engine and cancelled */
    struct engine *engine; /* NULL until app_engine */
    struct engine_opts engine_opts;
    struct strv only;          /* --in */
    struct progress *warnings; /* until app_progress: what verbs without progress must say all the same */
    bool cancelled;
    bool libraries; /* initialised */
};

/* The engine, with the common options; libraries are initialised first. Owned by the app: main closes
 * it when the verb's thread has ended. */
int app_engine(struct invocation *inv, struct engine **ret, struct gp_error *err);
/* Signal side (main): cancels what runs now or is opened later. */
void app_cancel(struct app *app);
/* Second signal: what may be billed, one id per line; NULL when no engine was opened. Caller frees. */
char *app_billed_ids(struct app *app);
void app_clear(struct app *app);

/* True when the argument names a file: it has a '/', ends in .yaml or .yml, or is there. */
bool arg_is_spec(const char *arg);
/* Loads a spec; problems go to stderr with line and caret (with --json: into the error object on
 * stdout), inv->error_shown is set then. */
int app_spec(struct invocation *inv, const char *path, struct spec **ret, struct gp_error *err);
/* A STACK or SPEC argument: *ret_spec is NULL for a stack's name. ret_name is borrowed from either. */
int app_target(struct invocation *inv, const char *arg, struct spec **ret_spec, const char **ret_name,
               struct gp_error *err);
/* "STACK" or "STACK/N": *ret_name is the caller's, *ret_slot -1 without N. */
int app_stack_slot(const char *arg, char **ret_name, int *ret_slot, struct gp_error *err);
/* Refuses names that no stack can have. */
int app_stack_name(const char *name, struct gp_error *err);

/* What a verb works on: its STACK or SPEC argument, the engine, progress. */
struct app_work {
    struct spec *spec; /* NULL for a stack's name */
    const char *name;  /* borrowed */
    struct engine *e;
    struct progress *p;
};
/* Fills ret from the first argument (spec_only: a stack's name is refused by reading it as a file). */
int app_begin(struct invocation *inv, bool spec_only, struct app_work *ret, struct gp_error *err);
void app_work_clear(struct app_work *w); /* accepts one that app_begin did not finish */
#define GP_AUTO_WORK GP_CLEANUP(app_work_clear)

/* Progress on stderr for the verb, heard by the engine until app_progress_end. */
int app_progress(struct invocation *inv, struct engine *e, const char *stack, int nodes, struct progress **ret,
                 struct gp_error *err);
void app_progress_end(struct engine *e, struct progress **p);

/* --- places.c --- */
/* The option --in of verbs that look; its row. */
#define PLACES_ROW(struct_, member)                                                           \
    {                                                                                         \
        .name = "in", .type = OPT_TEXT, .offset = offsetof(struct_, member), .arg = "PLACES", \
        .help = "look only there: PROVIDER or PROVIDER/REGION, separated by commas"           \
    }
/* Its value (NULL: not given) becomes the engine's limit. Before app_engine. */
int app_places(struct invocation *inv, const char *list, struct gp_error *err);
json_t *looked_json(const struct coverage *c); /* new reference */
/* Two lines: where was looked, where not; why not is in the error. */
void show_looked(const struct coverage *c, FILE *to);
void show_unreadable(const struct resource_list *l, FILE *to);

/* stdout: the short table that ends every verb. */
void show_stack(const struct stack_view *v, FILE *to);
json_t *stack_view_json(const struct stack_view *v); /* new reference */
json_t *resources_json(const struct resource_list *l);
void show_resources(const struct resource_list *l, FILE *to);
/* Prints and releases j, one line. */
void print_json(json_t *j);
/* {"error": {code, detail, message}} on stdout. */
void print_error_json(const struct gp_error *err, json_t *problems);
/* The object itself, for results that have an error beside them. New reference. */
json_t *error_json(const struct gp_error *err);
/* A result that has an error beside it: into j as "error", and as one line on stderr. */
void result_error(struct invocation *inv, json_t *j, const struct gp_error *err);
/* "text" as {"KEY": "text"} with --json, else as it is. For what has no other form. */
void print_text(const struct invocation *inv, const char *key, const char *text);
/* The list of verbs (verb NULL) or one verb's page. */
void show_help(const struct verb *verb, bool json);
/* Who keeps the deadline, for people: "by the node itself"; from "server", "guest", "gc-only", "never". */
const char *ends_text(const char *ends);
void price_format(char *dst, size_t n, double usd_per_h); /* "3.20 USD/h", "free", "?" */

#endif
