/* SPDX-License-Identifier: Apache-2.0 */
/* The verb logs: prints the event log of a stack, formatted or as JSON lines. */
#include "base/gp_base.h"

#include "engine/engine.h"

#include "base/json.h"
#include "engine/run/eventlog.h"
#include "engine/run/lock.h"
#include "engine/run/owner.h"

enum { FOLLOW_MS = 200, LOCK_MS = 1000 };

/* Stacks of several owners may have one name, and so one log. A run's first events may have no owner yet, so a run has
 * the owner of its other events. */
struct owners {
    struct strv runs, of_run, all; /* of_run[i]: the owner of runs[i]; all: each owner once */
};

struct show {
    FILE *to;
    int slot; /* -1: all */
    bool json;
    size_t said;
    const char *owner; /* NULL: all are of one */
    const struct owners *owners;
    const struct engine *e; /* the rest is for following */
    const char *stack;
    int64_t looked_ms;
};

static void learn_owner(void *ctx, const char *line, size_t n) {
    struct owners *o = ctx;
    GP_AUTO_JSON json_t *j = json_loadb(line, n, 0, NULL);
    const char *owner = json_str(j, "owner", ""), *run = json_str(j, "run", "");
    if (j == NULL || owner[0] == '\0' || strv_has(&o->runs, run)) return;
    strv_add(&o->runs, run);
    strv_add(&o->of_run, owner);
    if (!strv_has(&o->all, owner)) strv_add(&o->all, owner);
}

static void owners_clear(struct owners *o) {
    strv_clear(&o->runs);
    strv_clear(&o->of_run);
    strv_clear(&o->all);
}

static bool is_of_other(const struct show *s, const json_t *j) {
    const char *owner = json_str(j, "owner", ""), *run = json_str(j, "run", "");
    for (size_t i = 0; owner[0] == '\0' && i < s->owners->runs.n; i++)
        if (strcmp(s->owners->runs.v[i], run) == 0) owner = s->owners->of_run.v[i];
    return s->owner != NULL && owner[0] != '\0' && strcmp(owner, s->owner) != 0;
}

/* Whose events are meant: --owner, else the one owner in the log, else the one that the journal has. */
static int choose_owner(struct engine *e, const char *name, const struct owners *o, struct stack *known,
                        const char **ret, struct gp_error *err) {
    struct gp_error why = {0};
    *ret = e->opts.owner;
    if (*ret != NULL || o->all.n < 2) return 0;
    if (owner_find_stack(e->journal, name, NULL, known, &why) == 0) {
        *ret = known->owner;
        return 0;
    }
    GP_AUTO_FREE char *list = strv_join(&o->all, ", ");
    return gp_fail(err, GP_EUSAGE,
                   "the log of '%s' has events of stacks of several owners (%s): choose one with --owner NAME or "
                   "GPUPROV_OWNER",
                   name, list);
}

/* The text of a log must not control the terminal, so str_one_line cleans it. */
static void print_event(FILE *to, const json_t *j) {
    int64_t node = json_int(j, "node", -1);
    const char *step = json_str(j, "step", "");
    char who[32], when[24];
    if (node >= 0) snprintf(who, sizeof who, "node %lld", (long long)node);
    else snprintf(who, sizeof who, "stack");
    str_put(when, sizeof when, json_str(j, "t", ""));
    size_t seconds = strcspn(when, ".");
    GP_AUTO_FREE char *line =
        xasprintf("%.*sZ %-8s %-10s %-8s %s%s%s", (int)seconds, when, who, json_str(j, "phase", ""),
                  json_str(j, "status", ""), step, step[0] ? ": " : "", json_str(j, "text", ""));
    str_one_line(line);
    fprintf(to, "%s\n", line);
    const json_t *output = json_at(j, "output");
    for (size_t i = 0; i < json_array_size(output); i++) {
        GP_AUTO_FREE char *text = xstrdup(json_string_value(json_array_get(output, i)));
        if (text == NULL) continue;
        str_one_line(text);
        fprintf(to, "    %s\n", text);
    }
}

static void take(void *ctx, const char *line, size_t n) {
    struct show *s = ctx;
    GP_AUTO_JSON json_t *j = json_loadb(line, n, 0, NULL);
    if (j == NULL || is_of_other(s, j) || (s->slot >= 0 && json_int(j, "node", -1) != s->slot)) return;
    GP_AUTO_STR struct str text = {0};
    if (s->json) str_add_json_text(&text, line, n); /* the writer may be another version */
    if (s->json) fwrite(text.s, 1, text.len, s->to);
    else print_event(s->to, j);
    s->said++;
}

/* Follows while a run holds the stack's lock. */
static bool go_on(void *ctx) {
    struct show *s = ctx;
    struct gp_error cancelled = {0};
    fflush(s->to);
    if (s->looked_ms != 0 && gp_sleep(FOLLOW_MS, &s->e->cancel, &cancelled) != 0) return false;
    if (clock_ms() - s->looked_ms < LOCK_MS) return true;
    s->looked_ms = clock_ms();
    return lock_is_held(s->e->state_dir, s->stack);
}

int engine_logs(struct engine *e, const char *name, int slot, FILE *to, bool json, bool follow, struct gp_error *err) {
    struct show s = {.to = to, .slot = slot, .json = json, .e = e, .stack = name};
    struct event_log log;
    bool found = false;
    struct owners owners = {0};
    struct stack known = {0};
    event_log_init(&log, e->state_dir, name);
    s.owners = &owners;
    bool name_only = strchr(name, '/') == NULL;
    if (name_only) event_log_read(&log, learn_owner, &owners, &found);
    int r = choose_owner(e, name, &owners, &known, &s.owner, err);
    if (r == 0 && name_only && follow) event_log_follow(&log, take, go_on, &s, &found);
    else if (r == 0 && name_only) event_log_read(&log, take, &s, &found);
    event_log_clear(&log);
    owners_clear(&owners);
    stack_clear(&known);
    if (r != 0) return r;
    if (s.said > 0) return 0;
    if (found && slot >= 0) return gp_fail(err, GP_ENOTFOUND, "the log of '%s' has no events of node %d", name, slot);
    return gp_fail(err, GP_ENOTFOUND,
                   "there is no log of a stack '%s' on this machine; 'gpuprov status' lists the stacks", name);
}
