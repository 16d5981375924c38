/* SPDX-License-Identifier: Apache-2.0 */
/* A stack as a file of Terraform in JSON (NAME.tf.json): a local value and an output, gpuprov_STACK, both the list of
 * hosts with the keys of a hosts file. `hosts: terraform:DIR` reads such a list. Pure. */
#include "base/gp_base.h"

#include "export_forms.h"

#include "base/form.h"
#include "base/json.h"

/* Terraform reads a text as a template: "${" and "%{" begin an expression, "$${" and "%%{" do not. */
static json_t *text(const char *value) {
    GP_AUTO_STR struct str out = {0};
    str_add(&out, "");
    for (const char *p = value; *p != '\0'; p++) {
        if ((*p == '$' || *p == '%') && p[1] == '{') str_addc(&out, *p);
        str_addc(&out, *p);
    }
    return json_any_text(out.s);
}

static void set(json_t *j, const char *key, const char *value) {
    if (value != NULL && value[0] != '\0') json_object_set_new(j, key, text(value));
}

static int check_paths(const struct export_node *n, struct gp_error *err) {
    int r = n->key_path != NULL ? export_check_text(n, "the key's path", n->key_path, err) : 0;
    return r == 0 && n->known_hosts != NULL ? export_check_text(n, "the path of known_hosts", n->known_hosts, err) : r;
}

static int host(const struct export_node *n, json_t *list, struct gp_error *err) {
    if (n->socket)
        return gp_fail(err, GP_EUSAGE,
                       "%s: cannot be exported: it is reached through a socket of this machine, so it has no address "
                       "that another program can use; the forms ansible and ssh_config have its way",
                       n->name);
    int r = export_check_address(n, n->address, err);
    if (r == 0) r = check_paths(n, err);
    if (r != 0) return r;
    json_t *j = json_object();
    set(j, "address", n->address);
    json_object_set_new(j, "port", json_integer(n->port));
    set(j, "user", n->user);
    set(j, "key", n->key_path);
    set(j, "known_hosts", n->known_hosts);
    set(j, "bastion", n->bastion);
    json_t *keys = json_array();
    for (size_t i = 0; i < n->host_keys.n; i++) json_array_append_new(keys, text(n->host_keys.v[i]));
    if (json_array_size(keys) > 0) json_object_set(j, "host_key", keys);
    json_decref(keys);
    if (n->gpus > 0) {
        GP_AUTO_FREE char *gpu = xasprintf("%s:%d", n->gpu_model, n->gpus);
        set(j, "gpu", gpu);
    }
    json_array_append_new(list, j);
    return 0;
}

static int write_terraform(const struct export_stack *s, struct str *out, struct gp_error *err) {
    json_t *hosts = json_array();
    GP_AUTO_FREE char *name = xasprintf("gpuprov_%s", s->name);
    GP_AUTO_FREE char *value = xasprintf("${local.%s}", name);
    GP_AUTO_JSON json_t *j = json_pack("{s:{s:o}, s:{s:{s:s, s:s}}}", "locals", name, hosts, "output", name, "value",
                                       value, "description", "The nodes of a stack of gpuprov");
    for (size_t i = 0; i < s->nodes.len; i++) {
        int r = host(&s->nodes.items[i], hosts, err);
        if (r != 0) return r;
    }
    GP_AUTO_FREE char *json = json_text(j, 2);
    str_addf(out, "%s\n", json);
    return 0;
}

const struct export_form export_form_terraform = {
    .name = "terraform",
    .write = write_terraform,
};
