/* SPDX-License-Identifier: Apache-2.0 */
/* status and the ssh config: reading only. A cloud that cannot be asked is said, and the
 * journal's memory shown instead. */
#include "base/gp_base.h"

#include "engine/run.h"

#include "base/fs.h"

/* The journal's own picture, for when the cloud is not asked or does not answer. */
static int from_memory(struct run *run, struct gp_error *err) {
    GP_AUTO_RESOURCES struct resource_list known = {0};
    if (run->stack.uid == NULL) return 0;
    int r = journal_resources(run->e->journal, run->stack.uid, &known, err);
    struct node_record_list records = {0};
    if (r == 0) r = journal_nodes(run->e->journal, run->stack.uid, &records, err);
    for (size_t i = 0; r == 0 && i < records.list.len; i++) {
        struct node_record *rec = &records.list.items[i];
        if (rec->slot < 0 || rec->slot >= RUN_MAX_SLOTS) continue;
        run_nodes_alloc(run, rec->slot + 1);
        node_record_clear(&run->nodes[rec->slot].rec);
        run->nodes[rec->slot].rec = *rec;
        *rec = (struct node_record){0};
    }
    node_record_list_clear(&records);
    return r == 0 ? reconcile_listing(run, &known, err) : r;
}

/* The stack lives at a provider that costs money, and nobody could look. */
static bool may_be_billed(const struct run *run) {
    for (size_t i = 0; i < run->n_providers; i++)
        if (run->providers[i]->ops->billed) return true;
    const struct look *gap = coverage_gap(&run->looked);
    return gap != NULL && gap->billed;
}

static int ask(struct run *run, struct gp_error *err) {
    const struct look *gap = coverage_gap(&run->looked);
    if (gap == NULL || gap->region[0] != '\0' || run->stack.uid == NULL) return reconcile(run, err);
    if (err != NULL) *err = gap->why; /* a provider that has something of it did not open */
    return -(int)gap->why.code;
}

/* What the view rests on: the clouds as far as they were read, else this machine's memory. */
static int one_view(struct run *run, bool refresh, struct stack_view_list *ret, struct gp_error *err) {
    struct gp_error why = {0}, second = {0};
    struct stack_view v = {.remembered = !refresh};
    int r = refresh ? ask(run, &why) : from_memory(run, &why);
    if (r == -GP_ECANCELLED) return gp_fail(err, GP_ECANCELLED, "cancelled");
    if (r != 0 && refresh) {
        run_event(run, -1, NODE_PLANNED, EVENT_WARN, "status", "shown from this machine's memory only: %s", why.msg);
        v.remembered = true;
        if (from_memory(run, &second) != 0) r = -(int)second.code;
        else second = (struct gp_error){0};
    }
    int shown = second.code == GP_OK && (r == 0 || refresh) ? view_fill(run, &v, &second) : -1;
    if (shown == 0) vec_push(&ret->list, v);
    else stack_view_clear(&v);
    if (r == 0 && shown != 0) why = second;
    if (r == 0 && shown == 0 && refresh) r = look_gap_error(&run->looked, run->stack.name, &why);
    if (r == 0 && shown == 0 && refresh) r = look_unreadable_error(&run->unreadable, run->stack.name, &why);
    if (r == 0 && shown == 0) return 0;
    if (r != 0 && refresh && why.code != GP_EBILLED && may_be_billed(run)) why.code = GP_EBILLED;
    if (err != NULL) *err = why;
    return -(int)why.code;
}

static int status_one(struct engine *e, const char *name, const struct spec *spec, bool refresh,
                      struct stack_view_list *ret, struct gp_error *err) {
    struct run *run = NULL;
    int r = refresh ? run_open_looking(e, spec, name, &run, err) : run_open_remembered(e, spec, name, &run, err);
    if (r != 0) return r;
    r = one_view(run, refresh, ret, err);
    run_close(run);
    return r;
}

int engine_status(struct engine *e, const char *name, const struct spec *spec, bool refresh,
                  struct stack_view_list *ret, struct gp_error *err) {
    if (name != NULL || spec != NULL) return status_one(e, name, spec, refresh, ret, err);
    struct stack_list all = {0};
    run_say_damaged(e, &e->sink);
    int r = journal_stacks(e->journal, &all, err), first = 0;
    for (size_t i = 0; r == 0 && i < all.list.len; i++) {
        const struct stack *s = &all.list.items[i];
        if (e->opts.owner != NULL && strcmp(e->opts.owner, s->owner) != 0) continue;
        struct engine_opts saved = e->opts;
        e->opts.owner = s->owner;
        struct gp_error why = {0};
        int one = status_one(e, s->name, NULL, refresh, ret, &why); /* one that cannot be asked hides no other */
        e->opts = saved;
        if (one == 0) continue;
        int code = gp_exit_code(why.code);
        if (first == 0 || gp_exit_worst(code, gp_exit_code((enum gp_code) - first)) == code) {
            first = one;
            if (err != NULL) *err = why;
        }
        if (one == -GP_ECANCELLED) break;
    }
    stack_list_clear(&all);
    return r != 0 ? r : first;
}

int engine_ssh_config(struct engine *e, const char *name, const char *self_exe, char **ret_path, struct gp_error *err) {
    struct run *run = NULL;
    GP_AUTO_STR struct str out = {0};
    int r = run_open_known(e, NULL, name, &run, err);
    if (r != 0) return r;
    r = reconcile(run, err);
    if (r == 0 && run->stack.uid == NULL) r = gp_fail(err, GP_ENOTFOUND, "there is no stack '%s'", name);
    if (r == 0) r = keys_login(run, false, err);
    GP_AUTO_FREE char *dir = NULL;
    if (r == 0) r = run_stack_dir(e, run->stack.uid, &dir, err);
    if (r == 0) r = fs_mkdirs(dir, 0700, err);
    int usable = 0;
    for (int i = 0; r == 0 && i < run->n_nodes; i++) {
        GP_AUTO_SSH_TARGET struct ssh_target t = {0};
        if (!run->nodes[i].exists) continue;
        struct gp_error why = {0};
        if (target_for(run, &run->nodes[i], &t, &why) != 0) continue;
        if (t.key_pem.len > 0) {
            secret_clear(&t.key_pem);
            t.key_path = fs_join(dir, "login_key");
        }
        GP_AUTO_FREE char *alias = xasprintf("%s-%d", name, i);
        r = ssh_client_config(&t, alias, dir, self_exe, &out, err);
        usable++;
    }
    if (r == 0 && usable == 0)
        r = gp_fail(err, GP_ENOTFOUND,
                    "'%s' has no node that can be entered: 'gpuprov status %s' "
                    "shows them",
                    name, name);
    GP_AUTO_FREE char *path = r == 0 ? fs_join(dir, "ssh_config") : NULL;
    if (r == 0) r = fs_write_atomic(path, out.s, out.len, 0600, err);
    if (r == 0) *ret_path = GP_STEAL(path);
    run_close(run);
    return r;
}
