/* SPDX-License-Identifier: Apache-2.0 */
/* One run over one stack: providers opened once, its events, node records.
 * Made and closed by the verb's thread; run_event may be called by any. */
#include "base/gp_base.h"

#include "engine/run.h"

#include "base/form.h"
#include "base/fs.h"

#include <assert.h>

static void log_event(struct run *run, const struct event *e) {
    struct gp_error why = {0};
    pthread_mutex_lock(&run->log_lock);
    bool tell = event_log_add(&run->log, e, &why) != 0 && !run->log_failed;
    run->log_failed = run->log_failed || tell;
    pthread_mutex_unlock(&run->log_lock);
    if (tell) /* nothing else depends on it: a full disk must not keep `down` from its work */
        event_emit(&run->e->sink, -1, NODE_PLANNED, EVENT_WARN, "log", "%s", why.msg);
}

static void run_emit(void *ctx, const struct event *e) {
    struct run *run = ctx;
    struct event full = *e;
    full.stack = run->stack.name;
    full.run = run->id;
    if (run->e->sink.emit != NULL) run->e->sink.emit(run->e->sink.ctx, &full);
    if (run->log.path != NULL) log_event(run, &full);
}

void run_event(struct run *run, int node, enum node_phase phase, enum event_status status, const char *step,
               const char *fmt, ...) {
    char text[GP_ERROR_MSG_MAX];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    event_emit(&run->sink, node, phase, status, step, "%s", text);
}

void run_say_damaged(struct engine *e, const struct event_sink *sink) {
    if (!e->journal_damaged) return;
    event_emit(sink, -1, NODE_PLANNED, EVENT_WARN, "journal",
               "it was damaged and set aside; what it knew is read again from the clouds' tags");
    e->journal_damaged = false;
}

int run_open(struct engine *e, const struct spec *spec, const char *name, struct run **ret, struct gp_error *err) {
    if (name != NULL && !form_stack(name)) /* it becomes part of paths */
        return gp_fail(err, GP_EUSAGE, "'%.80s' is no name of a stack", name);
    struct run *run = xcalloc(1, sizeof *run);
    run->e = e;
    run->spec = spec;
    run->lock_fd = -1;
    run->end_ms = (int64_t)20 * 60 * 1000;
    pthread_mutex_init(&run->log_lock, NULL);
    run->sink = (struct event_sink){.emit = run_emit, .ctx = run};
    run->stack.name = xstrdup(name);
    if (name != NULL) event_log_init(&run->log, e->state_dir, name);
    if (spec != NULL) run->stack.spec_hash = xstrdup(spec->hash);
    run->owner = xstrdup(e->opts.owner);
    int r = fs_random_hex(run->id, 8, err);
    if (r != 0) {
        run_close(run);
        return r;
    }
    run_say_damaged(e, &run->sink);
    *ret = run;
    return 0;
}

static void node_clear(struct run_node *n) {
    node_link_close(&n->link);
    ssh_target_clear(&n->link.target);
    node_record_clear(&n->rec);
    resource_clear(&n->res);
    gp_cancel_clear(&n->cancel);
}

void run_close(struct run *run) {
    if (run == NULL) return;
    watch_stop(run);
    for (int i = 0; i < run->n_nodes; i++) node_clear(&run->nodes[i]);
    free(run->nodes);
    for (size_t i = 0; i < run->n_providers; i++) run->providers[i]->ops->close(run->providers[i]);
    offer_list_clear(&run->offers);
    resource_list_clear(&run->others);
    coverage_clear(&run->looked);
    resource_list_clear(&run->unreadable);
    strv_clear(&run->scope);
    free(run->scope_provider);
    free(run->said_gaps);
    stack_clear(&run->stack);
    secret_clear(&run->login_key);
    free(run->login_key_path);
    free(run->login_pubkey);
    for (size_t i = 0; i < run->n_secrets; i++) secret_clear(&run->secrets[i].value);
    free(run->secrets);
    validate_plan_clear(&run->vplan);
    baseline_clear(&run->baseline);
    spec_free(run->spec_owned);
    free(run->owner);
    event_log_clear(&run->log);
    run_unlock(run);
    pthread_mutex_destroy(&run->log_lock);
    free(run);
}

int run_provider(struct run *run, const char *name, struct provider **ret, struct gp_error *err) {
    for (size_t i = 0; i < run->n_providers; i++) {
        if (strcmp(run->providers[i]->ops->name, name) == 0) {
            *ret = run->providers[i];
            return 0;
        }
    }
    const struct provider_ops *ops = provider_find(name);
    if (ops == NULL) return gp_fail(err, GP_EUSAGE, "there is no provider '%s'", name);
    assert(run->n_providers < RUN_MAX_PROVIDERS);
    struct provider_env env = {.cancel = &run->e->cancel,
                               .journal = run->e->journal,
                               .state_dir = run->e->state_dir,
                               .owner = run->owner,
                               .spec = run->spec,
                               .accept_new_host_key = run->e->opts.accept_new_host_key,
                               .sink = &run->sink};
    struct provider *p = NULL;
    int r = ops->open(&env, &p, err);
    if (r != 0) return r;
    run->providers[run->n_providers++] = p;
    if (run->owner == NULL) run->owner = xstrdup(p->owner);
    *ret = p;
    return 0;
}

void run_open_further(struct run *run) {
    for (size_t i = 1; i < run->spec->offers.len; i++) {
        const char *name = run->spec->offers.items[i].provider;
        const struct provider_ops *ops = provider_find(name);
        struct provider *p = NULL;
        struct gp_error why = {0};
        if (run_provider(run, name, &p, &why) == 0) continue;
        coverage_put(&run->looked, name, "", run->owner, ops == NULL || ops->billed, &why);
        run_event(run, -1, NODE_PLANNED, EVENT_WARN, "providers", "%s is not asked: %s", name, why.msg);
    }
}

int64_t run_settle_ms(const struct run *run) {
    int64_t ms = 0;
    for (size_t i = 0; i < run->n_providers; i++) ms = GP_MAX(ms, run->providers[i]->ops->settle_ms);
    return ms;
}

int64_t run_pause_ms(const struct run *run) {
    for (size_t i = 0; i < run->n_providers; i++)
        if (run->providers[i]->ops->billed) return GP_MIN((int64_t)1000, GP_MAX((int64_t)50, run_settle_ms(run) / 10));
    return 50;
}

int64_t run_cloud_s(const struct run *run, const char *provider) {
    for (size_t i = 0; i < run->n_providers; i++)
        if (str_eq(run->providers[i]->ops->name, provider)) return clock_wall_s() + run->providers[i]->clock_skew_s;
    return clock_wall_s();
}

int run_stack_dir(const struct engine *e, const char *uid, char **ret, struct gp_error *err) {
    if (!form_uid(uid)) /* it may come from a journal that somebody else wrote */
        return gp_fail(err, GP_EENV, "'%.80s' is no uid of a stack: its folder is not touched", uid ? uid : "");
    *ret = xasprintf("%s/stacks/%s", e->state_dir, uid);
    return 0;
}

int run_stack_dir_remove(const struct engine *e, const char *uid, struct gp_error *err) {
    GP_AUTO_FREE char *dir = NULL;
    if (!form_uid(uid)) return 0;
    int r = run_stack_dir(e, uid, &dir, err);
    return r == 0 ? fs_remove_tree(dir, err) : r;
}

void run_nodes_alloc(struct run *run, int n) {
    if (n <= run->n_nodes) return;
    run->nodes = xrealloc(run->nodes, (size_t)n * sizeof *run->nodes);
    for (int i = run->n_nodes; i < n; i++) {
        struct run_node *node = &run->nodes[i];
        *node = (struct run_node){.slot = i};
        node->cancel.efd = -1;
        node->rec = (struct node_record){.slot = i, .phase = NODE_PLANNED};
        resource_init(&node->res, RES_INSTANCE, "");
        node->res.slot = i;
    }
    run->n_nodes = n;
    for (int i = 0; i < n; i++) run->nodes[i].run = run;
}

bool run_any_exists(const struct run *run) {
    for (int i = 0; i < run->n_nodes; i++)
        if (run->nodes[i].exists) return true;
    return false;
}

int run_node_save(struct run_node *n, struct gp_error *err) {
    return journal_node_put(n->run->e->journal, n->run->stack.uid, &n->rec, err);
}

int run_node_restart(struct run_node *n, struct gp_error *err) {
    n->rec.phase = NODE_REACHING;
    free(n->rec.note);
    n->rec.note = NULL;
    return run_node_save(n, err);
}

int run_node_phase(struct run_node *n, enum node_phase phase, struct gp_error *err) {
    assert(n->rec.phase == phase || node_phase_legal(n->rec.phase, phase));
    n->rec.phase = phase;
    int r = run_node_save(n, err);
    static const char *const says[] = {
        [NODE_REACHING] = "waiting for ssh",         [NODE_BOOTSTRAPPING] = "setting it up",
        [NODE_CHECKING] = "checking the node",       [NODE_WAITING] = "waiting for the other nodes",
        [NODE_GANG] = "checking all nodes together", [NODE_READY] = "proven"};
    bool said = (size_t)phase < GP_ARRAY_LEN(says) && says[phase] != NULL;
    if (r == 0)
        run_event(n->run, n->slot, phase, phase == NODE_READY ? EVENT_DONE : EVENT_START, "", "%s",
                  said ? says[phase] : node_phase_name(phase));
    return r;
}
