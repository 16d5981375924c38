/* SPDX-License-Identifier: Apache-2.0 */
/* The figures of a stack's validations over time: history/STACK.json below the state folder, one entry a
 * run, the last HISTORY_RUNS of them. Written under the stack's lock, whole or not at all. */
#include "base/gp_base.h"

#include "engine/proof/history.h"

#include "base/fs.h"
#include "base/json.h"
#include "base/stats.h"
#include "engine/run/run_event.h"
#include "validate/samples.h"
#include "validate/suite/peers.h"

#include <dirent.h>
#include <fcntl.h>
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

#define HISTORY_SCHEMA "gpuprov/history/v1"
#define HISTORY_RUNS 100
#define HISTORY_MAX_BYTES ((size_t)16 << 20)
#define HISTORY_KEEP_S ((int64_t)180 * 86400) /* after the last run, once the stack is gone */

static char *path_of(const char *state_dir, const char *stack) {
    return xasprintf("%s/history/%s.json", state_dir, stack);
}

/* One figure over all GPUs (or nodes) that it was measured on. */
static json_t *figure_json(const struct samples *all) {
    const struct sample *worst = &all->list.items[0];
    GP_AUTO_FREE double *v = xcalloc(all->list.len, sizeof *v);
    for (size_t i = 0; i < all->list.len; i++) {
        const struct sample *one = &all->list.items[i];
        v[i] = one->value;
        if (one->metric->ceiling ? one->value > worst->value : one->value < worst->value) worst = one;
    }
    json_t *j = json_object();
    json_object_set_new(j, "check", json_string(worst->info->id));
    json_object_set_new(j, "metric", json_string(worst->metric->name));
    json_object_set_new(j, "unit", json_string(worst->metric->unit));
    json_object_set_new(j, "n", json_integer((json_int_t)all->list.len));
    json_object_set_new(j, "median", json_real(stats_median(v, all->list.len)));
    json_object_set_new(j, "worst", json_real(worst->value));
    if (worst->node != NULL) json_object_set_new(j, "worst_node", json_integer(worst->node->slot));
    if (worst->gpu >= 0) json_object_set_new(j, "worst_gpu", json_integer(worst->gpu));
    return j;
}

static bool all_finite(const struct samples *all) {
    for (size_t i = 0; i < all->list.len; i++)
        if (!isfinite(all->list.items[i].value)) return false;
    return all->list.len > 0;
}

static json_t *figures_json(struct report *r) {
    json_t *list = json_array();
    for (const struct check_info *info = check_table; info->id != NULL; info++)
        for (size_t i = 0; i < GP_ARRAY_LEN(info->metrics) && info->metrics[i].name != NULL; i++) {
            GP_AUTO_SAMPLES struct samples all = {0};
            samples_of(&all, r, info, &info->metrics[i]);
            if (all_finite(&all)) json_array_append_new(list, figure_json(&all));
        }
    return list;
}

static json_t *run_json(struct report *r) {
    char started[32];
    time_format_utc(started, sizeof started, r->started_s);
    json_t *j = json_object();
    json_object_set_new(j, "run", json_any_text(r->run));
    json_object_set_new(j, "uid", json_any_text(r->uid));
    json_object_set_new(j, "started", json_string(started));
    json_object_set_new(j, "took_ms", json_integer(r->took_ms));
    json_object_set_new(j, "ready", json_boolean(r->ready));
    json_object_set_new(j, "nodes", json_integer((json_int_t)r->nodes.len));
    json_object_set_new(j, "figures", figures_json(r));
    return j;
}

static int history_load(const char *path, json_t **ret, struct gp_error *err) {
    GP_AUTO_STR struct str text = {0};
    GP_AUTO_JSON json_t *j = NULL;
    int r = fs_read(path, HISTORY_MAX_BYTES, &text, err);
    if (r == 0) r = json_parse(text.s != NULL ? text.s : "", text.len, "the history", &j, err);
    if (r != 0) return r;
    const char *schema = json_str(j, "schema", "");
    if (!str_eq(schema, HISTORY_SCHEMA) || !json_is_array(json_at(j, "runs")))
        return gp_fail(err, GP_EPROTO, "'%s' is not a history of this version (schema '%s', expected '%s')", path,
                       schema, HISTORY_SCHEMA);
    *ret = GP_STEAL(j);
    return 0;
}

/* An unreadable file is set aside, so that the run continues and no data is lost. */
static json_t *load_or_begin(const struct run *run, const char *path) {
    json_t *j = NULL;
    struct gp_error why = {0};
    int r = history_load(path, &j, &why);
    if (r == 0) return j;
    if (r != -GP_ENOTFOUND) {
        GP_AUTO_FREE char *aside = xasprintf("%s.damaged", path);
        (void)rename(path, aside);
        run_event(run, -1, NODE_READY, EVENT_WARN, "history", "%s: set aside as %s", why.msg, aside);
    }
    j = json_object();
    json_object_set_new(j, "schema", json_string(HISTORY_SCHEMA));
    json_object_set_new(j, "stack", json_any_text(run->stack.name));
    json_object_set_new(j, "runs", json_array());
    return j;
}

void history_add(const struct run *run, struct report *report) {
    GP_AUTO_FREE char *path = path_of(run->e->state_dir, run->stack.name);
    GP_AUTO_FREE char *dir = fs_join(run->e->state_dir, "history");
    GP_AUTO_JSON json_t *j = load_or_begin(run, path);
    json_t *runs = json_object_get(j, "runs");
    json_array_append_new(runs, run_json(report));
    while (json_array_size(runs) > HISTORY_RUNS) json_array_remove(runs, 0);
    GP_AUTO_FREE char *text = json_text(j, 1);
    struct gp_error why = {0};
    int r = fs_mkdirs(dir, 0700, &why);
    if (r == 0) r = fs_write_atomic(path, text, strlen(text), 0600, &why);
    if (r != 0) run_event(run, -1, NODE_READY, EVENT_WARN, "history", "not written: %s", why.msg);
}

int engine_history(struct engine *e, const char *name, json_t **ret, struct gp_error *err) {
    GP_AUTO_FREE char *path = path_of(e->state_dir, name);
    int r = history_load(path, ret, err);
    if (r != -GP_ENOTFOUND) return r;
    gp_error_clear(err);
    return gp_fail(err, GP_ENOTFOUND, "there is no history of '%s' on this machine: run 'gpuprov validate %s' first",
                   name, name);
}

void history_tidy(const char *state_dir, const struct stack_list *known, int64_t now_s) {
    GP_AUTO_FREE char *dir = fs_join(state_dir, "history");
    DIR *d = opendir(dir);
    if (d == NULL) return;
    for (struct dirent *f = readdir(d); f != NULL; f = readdir(d)) {
        struct stat st;
        size_t n = strcspn(f->d_name, ".");
        bool here = n == 0;
        for (size_t i = 0; i < known->list.len && !here; i++) {
            const char *name = known->list.items[i].name;
            here = strlen(name) == n && strncmp(name, f->d_name, n) == 0;
        }
        if (here || fstatat(dirfd(d), f->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0) continue;
        if (now_s - (int64_t)st.st_mtime > HISTORY_KEEP_S) (void)unlinkat(dirfd(d), f->d_name, 0);
    }
    closedir(d);
}
