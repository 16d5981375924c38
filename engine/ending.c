/* SPDX-License-Identifier: Apache-2.0 */
/* What down and gc owe when something stands in the way: a cloud that cannot be asked does not keep
 * the machines of another one alive, and neither does a journal that cannot be written. Both are
 * remembered in the run and said at the end. The verb's thread. */
#include "base/gp_base.h"

#include "engine/run.h"

static struct unseen *find(const struct run *run, const char *provider) {
    for (size_t i = 0; i < run->unseen.len; i++)
        if (strcmp(run->unseen.items[i].provider, provider) == 0) return &run->unseen.items[i];
    return NULL;
}

void ending_clear(struct run *run) {
    for (size_t i = 0; i < run->unseen.len; i++) free(run->unseen.items[i].provider);
    vec_free(&run->unseen);
}

void ending_unseen(struct run *run, const char *provider, const struct gp_error *why) {
    struct unseen *u = find(run, provider);
    if (u != NULL) {
        u->why = *why;
        return;
    }
    struct unseen one = {.provider = xstrdup(provider), .why = *why};
    vec_push(&run->unseen, one);
    run_event(run, -1, NODE_GONE, EVENT_WARN, "providers", "%s could not be looked at: %s", provider,
              why->msg);
}

void ending_seen(struct run *run, const char *provider) {
    const struct unseen *u = find(run, provider);
    if (u == NULL) return;
    size_t at = (size_t)(u - run->unseen.items);
    free(run->unseen.items[at].provider);
    run->unseen.items[at] = run->unseen.items[--run->unseen.len];
}

bool ending_is_seen(const struct run *run, const char *provider) {
    if (find(run, provider) != NULL) return false;
    for (size_t i = 0; i < run->n_providers; i++)
        if (strcmp(run->providers[i]->ops->name, provider) == 0) return true;
    return false;
}

int ending_provider(struct run *run, const char *name, struct gp_error *err) {
    struct provider *p = NULL;
    struct gp_error why = {0};
    if (run->ending && find(run, name) != NULL) return 0; /* said already */
    int r = run_provider(run, name, &p, &why);
    if (r == 0) return 0;
    if (run->ending && r != -GP_ECANCELLED) {
        ending_unseen(run, name, &why);
        return 0;
    }
    if (err != NULL) *err = why;
    return r;
}

int ending_wrote(struct run *run, int r, struct gp_error *err) {
    bool disk = err->domain == GP_D_JOURNAL || err->code == GP_EIO;
    if (r == 0 || !run->ending || !disk) return r;
    if (run->unwritten.code == GP_OK) {
        run->unwritten = *err;
        run_event(run, -1, NODE_GONE, EVENT_WARN, "journal", "%s: what is there is ended all the same",
                  err->msg);
    }
    gp_error_clear(err);
    return 0;
}

static bool any_billed(const struct run *run) {
    for (size_t i = 0; i < run->unseen.len; i++) {
        const struct provider_ops *ops = provider_find(run->unseen.items[i].provider);
        if (ops == NULL || ops->billed) return true;
    }
    return false;
}

int ending_verdict(struct run *run, const struct down_result *done, struct gp_error *err) {
    run->verdict = run->unseen.len > 0 || run->unwritten.code != GP_OK;
    if (run->unseen.len > 0) {
        const struct unseen *u = &run->unseen.items[0];
        GP_AUTO_STR struct str ids = {0};
        for (size_t i = 0; i < done->left.list.len; i++)
            str_addf(&ids, "%s%s", i == 0 ? " (known there: " : ", ", done->left.list.items[i].id);
        if (ids.len > 0) str_addc(&ids, ')');
        return gp_fail(err, any_billed(run) ? GP_EBILLED : u->why.code,
                       "'%s': all that could be seen is ended, but %s could not be looked at: what it has "
                       "may still be billed%s: %.200s; then repeat 'gpuprov down %s'", run->stack.name,
                       u->provider, ids.s ? ids.s : "", u->why.msg, run->stack.name);
    }
    if (run->unwritten.code == GP_OK) return 0;
    GP_AUTO_FREE char *ids = done->asked.n > 0 ? strv_join(&done->asked, ", ") : xstrdup("nothing");
    return gp_fail(err, GP_EIO, "'%s': all that is billed is gone (ended now: %.120s), but that could not be written "
                   "down: %.240s; then repeat 'gpuprov down %s'", run->stack.name, ids,
                   run->unwritten.msg, run->stack.name);
}
