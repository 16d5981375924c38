/* SPDX-License-Identifier: Apache-2.0 */
/* Builds the SSH target of a node from its resource and its record. Pure apart from $HOME. */
#include "base/gp_base.h"

#include "engine/proof/node_target.h"

#include "base/form.h"
#include "base/fs.h"
#include "engine/run/run_node.h"

/* The public address of a container is its host's, with mapped ports: nothing in the container can listen there, so one
 * without a private address is alone. The loopback address is never stored in the resource: a later spec may have more
 * nodes. */
const char *node_target_peer_address(const struct run_node *n) {
    const struct resource *r = &n->res;
    const struct provider_ops *ops = provider_find(r->provider);
    bool alone = n->run->spec == NULL || n->run->spec->nodes < 2;
    if (r->private_ip[0] != '\0') return r->private_ip;
    if (ops != NULL && ops->node_shape == NODE_CONTAINER) return "127.0.0.1";
    return alone && r->kind == RES_INSTANCE ? "127.0.0.1" : r->public_ip;
}

static void set_login(const struct run *run, const struct resource *res, struct ssh_target *t) {
    if (res->login_key[0] != '\0') {
        t->key_path = xstrdup(res->login_key);
    } else if (run->login.key.len > 0) {
        secret_copy(&t->key_pem, &run->login.key);
    } else if (run->login.key_path != NULL) {
        t->key_path = xstrdup(run->login.key_path);
    }
    t->use_agent = res->kind == RES_HOST || (run->spec != NULL && str_eq(run->spec->access.key, "agent"));
}

/* If the host key came with user-data, the tag counts only for a machine without a key in this journal (an adopted
 * stack), and only with its proof: anyone who may set tags can write a fingerprint. */
static void set_trust(const struct run *run, const struct run_node *n, struct ssh_target *t) {
    const struct provider_ops *ops = provider_find(n->res.provider);
    bool rotated = ops == NULL || ops->key_rotation;
    if (n->rec.host_key != NULL && n->rec.host_key[0] != '\0') {
        strv_add(&t->host_keys, n->rec.host_key);
    } else if (run_node_has_first_key(n)) {
        const char *known[] = {n->rec.host_key_first, n->rec.host_key_next};
        for (size_t i = 0; i < GP_ARRAY_LEN(known); i++)
            if (known[i] != NULL && known[i][0] != '\0') strv_add(&t->host_keys, known[i]);
    } else if (!rotated) {
        strv_split(&t->host_keys, n->res.host_keys, "\n");
    } else if (form_fingerprint(n->tag_key)) { /* the tag itself may have been edited since */
        strv_add(&t->host_keys, n->tag_key);
    }
    if (n->res.known_hosts[0] != '\0') t->known_hosts = xstrdup(n->res.known_hosts);
    if (n->res.kind == RES_HOST) t->accept_new = run->e->opts.accept_new_host_key;
}

static int set_bastion(const struct run *run, const struct resource *res, const char *bastion, struct ssh_target *t,
                       struct gp_error *err) {
    t->bastion = xcalloc(1, sizeof *t->bastion);
    int r = ssh_target_parse(bastion, t->bastion, err);
    if (r != 0) return gp_wrap(err, "the bastion");
    t->bastion->label = xasprintf("bastion %s", t->bastion->host);
    if (t->bastion->user == NULL) t->bastion->user = xstrdup(t->user);
    set_login(run, res, t->bastion);
    t->bastion->use_agent = true;
    t->bastion->accept_new = run->e->opts.accept_new_host_key;
    t->bastion->known_hosts = t->known_hosts != NULL ? xstrdup(t->known_hosts) : fs_expand_home("~/.ssh/known_hosts");
    return 0;
}

int node_target(const struct run *run, const struct run_node *n, struct ssh_target *ret, struct gp_error *err) {
    const struct resource *res = &n->res;
    GP_AUTO_SSH_TARGET struct ssh_target t = {0};
    bool wants_public = run->spec == NULL || run->spec->access.public_ip;
    const char *host = wants_public && res->public_ip[0] != '\0' ? res->public_ip : res->private_ip;
    if (host[0] == '\0')
        return gp_fail(err, GP_EREACH, "%s/%d: %s has no address yet", run->stack.name, n->slot, res->id);
    if (!form_host(host))
        return gp_fail(err, GP_EREACH, "%s/%d: '%.80s' is not the address of a host", run->stack.name, n->slot, host);
    t.label = xasprintf("%s/%d", run->stack.name, n->slot);
    t.host = xstrdup(host);
    t.port = res->ssh_port;
    t.user = xstrdup(res->user[0] != '\0' ? res->user : "gpuprov");
    if (res->dial_socket[0] != '\0') t.dial_socket = xstrdup(res->dial_socket);
    set_login(run, res, &t);
    set_trust(run, n, &t);
    const char *bastion = res->bastion[0] != '\0' ? res->bastion : run->spec != NULL ? run->spec->access.bastion : NULL;
    int r = bastion != NULL ? set_bastion(run, res, bastion, &t, err) : 0;
    if (r != 0) return r;
    *ret = t;
    t = (struct ssh_target){0};
    return 0;
}
