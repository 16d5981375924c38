// SPDX-License-Identifier: Apache-2.0
/* Opens and closes the openstack provider and lists its slots. open logs in at keystone once, which checks the
 * credentials, gives project, user and catalogue, and sets the clock. One thread at a time. */
#include "base/gp_base.h"

#include "providers/openstack/os_int.h"

#include "base/form.h"
#include "providers/common/ownership.h"

static void os_close(struct provider *p) {
    struct os *o = p != NULL ? os_of(p) : NULL;
    if (o == NULL) return;
    http_close(o->rest.http);
    os_session_clear(o);
    os_config_clear(&o->cfg);
    os_cache_free(o->cache);
    free(o->principal_owner);
    free(o->base.owner);
    free(o);
}

/* An owner derived from a user begins with its project: its servers are only there. */
static bool of_other_project(const char *owner, const char *project) {
    bool names_one = strspn(owner, "0123456789abcdef") == 32 && owner[32] == '-';
    return names_one && strncmp(owner, project, 32) != 0;
}

static int set_owner(struct os *o, const char *owner, struct gp_error *err) {
    if (owner != NULL && of_other_project(owner, o->project_id))
        return gp_fail(err, GP_EAUTH,
                       "openstack: the credentials are for project %s (%.60s), but '%.60s' is an owner of another one: "
                       "use credentials for that project, or give --owner",
                       o->project_id, o->project_name, owner);
    o->base.account = o->project_id;
    o->principal_owner = xasprintf("%s-%s", o->project_id, o->user_name);
    owner_to_form(o->principal_owner);
    o->base.principal_owner = o->principal_owner;
    o->base.owner = xstrdup(owner != NULL ? owner : o->principal_owner);
    if (owner == NULL && !form_owner(o->base.owner))
        return gp_fail(err, GP_EPROTO, "openstack: '%.140s' is too long for an owner: give --owner NAME",
                       o->base.owner);
    return 0;
}

static int os_open(const struct provider_env *env, struct provider **ret, struct gp_error *err) {
    struct os *o = xcalloc(1, sizeof *o);
    o->base.ops = &provider_openstack;
    o->cancel = env->cancel;
    o->journal = env->journal;
    o->sink = env->sink;
    o->cache = xcalloc(1, sizeof *o->cache);
    int r = os_config_load(&o->cfg, err);
    struct http_options opt = {.cancel = o->cancel, .ca_bundle = o->cfg.cacert, .ca_setting = "OS_CACERT"};
    if (r == 0) r = http_open(&opt, &o->rest.http, err);
    if (r == 0) {
        os_session_init(o);
        r = os_login(o, err);
    }
    if (r == 0) r = set_owner(o, env->owner, err);
    if (r != 0) {
        os_close(&o->base);
        return r;
    }
    *ret = &o->base;
    return 0;
}

const struct provider_ops provider_openstack = {
    .name = "openstack",
    .summary = "OpenStack: servers of nova",
    .spec = &openstack_spec,
    .note =
        "openstack: without 'role: self-delete' in the offer only 'gpuprov gc' terminates a node whose deadline has "
        "passed: run it on a schedule",
    .ends = ENDS_GC_ONLY,
    .guest_end = GUEST_DELETES, /* with a role */
    .end_script = "cloud-init/end-openstack.sh",
    .node_shape = NODE_VM,
    .user_data_max = 48 * 1024, /* 65535 characters of base64 */
    .poll_ms = 2000,
    .replay_max_s = 0,
    .principal = true,
    .unique_claim = true,
    .user_data = true,
    .key_rotation = true,
    .billed = true,
    .boot_timeout_ms = 10 * 60 * 1000,
    .settle_ms = 30 * 1000,
    .self_end = &os_self_end,
    .image_refusal = "openstack: images are not baked here",
    .policy = os_policy,
    .doctor = os_doctor,
    .open = os_open,
    .close = os_close,
    .offers = os_offers,
    .prepare = os_prepare,
    .create = os_create,
    .list = os_list,
    .destroy = os_destroy,
    .tag = os_tag_late,
    .console = os_console,
};
