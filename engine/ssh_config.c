/* SPDX-License-Identifier: Apache-2.0 */
/* The nodes of a stack for other programs: the OpenSSH config (verb ssh), and with it what the last validation measured
 * (verb export). Changes no resource. */
#include "base/gp_base.h"

#include "engine/engine.h"

#include "base/fs.h"
#include "engine/proof/kept_report.h"
#include "engine/proof/node_target.h"
#include "engine/run/login_key.h"
#include "engine/run/run_node.h"
#include "engine/run/stack_dir.h"
#include "engine/stack/open_known.h"
#include "engine/stack/reconcile.h"
#include "validate/suite/checks.h"

#include <math.h>

struct config {
    const char *name, *self_exe;
    void (*each)(void *ctx, const struct run_node *n, const struct ssh_target *t);
    void *ctx;
    char *dir;
    struct str text;
};

static int put_nodes(struct run *run, struct config *c, struct gp_error *err) {
    int usable = 0, r = 0;
    for (int i = 0; r == 0 && i < run->n_nodes; i++) {
        GP_AUTO_SSH_TARGET struct ssh_target t = {0};
        if (!run->nodes[i].exists) continue;
        struct gp_error why = {0};
        if (node_target(run, &run->nodes[i], &t, &why) != 0) continue;
        if (t.key_pem.len > 0) {
            secret_clear(&t.key_pem);
            t.key_path = fs_join(c->dir, "login_key");
        }
        GP_AUTO_FREE char *alias = xasprintf("%s-%d", c->name, i);
        r = ssh_client_config(&t, alias, c->dir, c->self_exe, &c->text, err);
        if (r == 0 && c->each != NULL) c->each(c->ctx, &run->nodes[i], &t);
        usable++;
    }
    if (r == 0 && usable == 0)
        r = gp_fail(err, GP_ENOTFOUND,
                    "'%s' has no node with an SSH address: 'gpuprov status %s' "
                    "lists the nodes",
                    c->name, c->name);
    return r;
}

/* Opens a run over the stack and writes the config of all its nodes with an SSH address below the state folder.
 * each(): called for every such node, with the target that the config has; may be NULL. *ret_run: the caller closes
 * it; *ret_path: caller frees. */
static int write_config(struct engine *e, const struct spec *spec, const char *name, const char *self_exe,
                        void (*each)(void *ctx, const struct run_node *n, const struct ssh_target *t), void *ctx,
                        struct run **ret_run, char **ret_path, struct gp_error *err) {
    struct run *run = NULL;
    struct config c = {.name = name, .self_exe = self_exe, .each = each, .ctx = ctx};
    int r = run_open_journaled(e, spec, name, &run, err);
    if (r != 0) return r;
    r = reconcile(run, NULL, err);
    if (r == 0 && run->stack.uid == NULL)
        r = gp_fail(err, GP_ENOTFOUND, "there is no stack '%s': run 'gpuprov up' to launch it", name);
    if (r == 0) r = login_key_get(run, false, err);
    if (r == 0) r = stack_dir_path(e, run->stack.uid, &c.dir, err);
    if (r == 0) r = fs_mkdirs(c.dir, 0700, err);
    if (r == 0) r = put_nodes(run, &c, err);
    GP_AUTO_FREE char *path = r == 0 ? fs_join(c.dir, "ssh_config") : NULL;
    if (r == 0) r = fs_write_changed(path, c.text.s, c.text.len, 0600, err);
    str_clear(&c.text);
    free(c.dir);
    if (r != 0) {
        run_close(run);
        return r;
    }
    *ret_path = GP_STEAL(path);
    *ret_run = run;
    return 0;
}

int engine_ssh_config(struct engine *e, const struct spec *spec, const char *name, const char *self_exe,
                      char **ret_path, struct gp_error *err) {
    struct run *run = NULL;
    int r = write_config(e, spec, name, self_exe, NULL, NULL, &run, ret_path, err);
    run_close(run);
    return r;
}

/* --- export --- */

struct gather {
    struct export_stack *to;
    const char *name;
};

static char *or_empty(const char *s) { return xstrdup(s != NULL ? s : ""); }

static char *bastion_text(const struct ssh_target *b) {
    bool v6 = strchr(b->host, ':') != NULL;
    GP_AUTO_FREE char *user = b->user != NULL ? xasprintf("%s@", b->user) : xstrdup("");
    GP_AUTO_FREE char *port = b->port != 0 && b->port != 22 ? xasprintf(":%u", (unsigned)b->port) : xstrdup("");
    bool bracket = v6 && port[0] != '\0';
    return xasprintf("%s%s%s%s%s", user, bracket ? "[" : "", b->host, bracket ? "]" : "", port);
}

static void add_node(void *ctx, const struct run_node *n, const struct ssh_target *t) {
    const struct gather *g = ctx;
    const struct resource *res = &n->res;
    const struct spec *spec = n->run->spec;
    bool gpu = spec != NULL && spec->gpu.count > 0;
    struct export_node to = {
        .slot = n->slot,
        .name = xasprintf("%s-%d", g->name, n->slot),
        .id = or_empty(res->id),
        .place = xasprintf("%s %s", res->provider, res->zone[0] != '\0' ? res->zone : res->region),
        .type = or_empty(res->instance_type),
        .address = xstrdup(t->host),
        .peer_address = or_empty(node_target_peer_address(n)),
        .hostname = xstrdup(""),
        .user = or_empty(t->user),
        .key_path = t->key_path != NULL ? xstrdup(t->key_path) : NULL,
        .known_hosts = t->known_hosts != NULL ? xstrdup(t->known_hosts) : NULL,
        .bastion = t->bastion != NULL ? bastion_text(t->bastion) : NULL,
        .gpu_model = or_empty(gpu ? spec->gpu.model : NULL),
        .port = t->port != 0 ? t->port : 22,
        .socket = t->dial_socket != NULL,
        .ready = n->rec.phase == NODE_READY,
        .gpus = gpu ? spec->gpu.count : 0,
    };
    strv_copy(&to.host_keys, &t->host_keys);
    vec_push(&g->to->nodes, to);
}

/* A whole number of a figure, rounded down; 0: there is none. */
static int figure(const struct report_node *n, enum check_capacity which, double scale) {
    for (size_t i = 0; i < n->checks.len; i++) {
        const struct check_result *c = &n->checks.items[i];
        const struct check_info *info = check_find(c->check);
        for (size_t k = 0; info != NULL && k < GP_ARRAY_LEN(info->metrics) && info->metrics[k].name != NULL; k++) {
            if (info->metrics[k].capacity != which) continue;
            const struct metric *m = check_metric(c, info->metrics[k].name);
            if (m != NULL && isfinite(m->value) && m->value > 0 && m->value * scale < 1e9)
                return (int)(m->value * scale);
        }
    }
    return 0;
}

/* The report of another machine in the same slot does not count. */
static void add_figures(const struct report *r, struct export_stack *to) {
    for (size_t i = 0; i < r->nodes.len; i++) {
        const struct report_node *from = &r->nodes.items[i];
        for (size_t k = 0; k < to->nodes.len; k++) {
            struct export_node *n = &to->nodes.items[k];
            if (n->slot != from->slot || !str_eq(n->id, from->id)) continue;
            free(n->hostname);
            n->hostname = or_empty(from->host);
            n->cpus = figure(from, CAPACITY_CORES, 1);
            n->memory_mib = figure(from, CAPACITY_MEMORY_GIB, 1024);
        }
    }
}

static int add_report(struct engine *e, const char *uid, struct export_stack *to, struct gp_error *err) {
    struct report report = {0};
    struct gp_error why = {0};
    int r = kept_report_read(e, uid, &report, &why);
    if (r == 0) add_figures(&report, to);
    report_clear(&report);
    return r == 0 || r == -GP_ENOTFOUND ? 0 : gp_fail(err, why.code, "%s", why.msg);
}

int engine_export(struct engine *e, const char *name, const char *self_exe, struct export_stack *ret,
                  struct gp_error *err) {
    struct run *run = NULL;
    struct gather g = {.to = ret, .name = name};
    GP_AUTO_STR struct str text = {0};
    int r = write_config(e, NULL, name, self_exe, add_node, &g, &run, &ret->config_path, err);
    if (r == 0) r = fs_read(ret->config_path, (size_t)4 << 20, &text, err);
    if (r == 0) r = add_report(e, run->stack.uid, ret, err);
    if (r == 0) {
        ret->name = xstrdup(name);
        ret->owner = or_empty(run->owner);
        ret->config = str_steal(&text);
        ret->wanted = run->spec != NULL ? run->spec->nodes : 0;
    }
    run_close(run);
    return r;
}
