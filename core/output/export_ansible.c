/* SPDX-License-Identifier: Apache-2.0 */
/* A stack as an Ansible inventory in JSON, which its `yaml` plugin reads. Ansible connects through the stack's OpenSSH
 * config, so it trusts the same host keys and takes the same way (bastion, socket). Pure. */
#include "base/gp_base.h"

#include "export_forms.h"

#include "base/json.h"

/* Ansible renders each value as a template of Jinja. */
static int check_value(const struct export_node *n, const char *what, const char *value, struct gp_error *err) {
    for (const char *p = strchr(value, '{'); p != NULL; p = strchr(p + 1, '{'))
        if (p[1] == '{' || p[1] == '%' || p[1] == '#')
            return export_refuse(n, what, value, "Ansible would render '{{', '{%' or '{#' as a template", err);
    return export_check_text(n, what, value, err);
}

/* Ansible splits it into words as a shell does. */
static json_t *ssh_args(const char *config_path) {
    GP_AUTO_STR struct str args = {0};
    str_add(&args, "-F ");
    str_add_shquoted(&args, config_path);
    return json_any_text(args.s);
}

static json_t *host(const struct export_stack *s, const struct export_node *n) {
    json_t *j = json_object();
    json_object_set_new(j, "ansible_connection", json_string("ssh"));
    json_object_set_new(j, "ansible_host", json_any_text(n->name));
    json_object_set_new(j, "ansible_port", json_integer(n->port));
    json_object_set_new(j, "ansible_user", json_any_text(n->user));
    json_object_set_new(j, "ansible_ssh_common_args", ssh_args(s->config_path));
    json_object_set_new(j, "gpuprov_slot", json_integer(n->slot));
    json_object_set_new(j, "gpuprov_address", json_any_text(n->address));
    json_object_set_new(j, "gpuprov_peer_address", json_any_text(n->peer_address));
    json_object_set_new(j, "gpuprov_gpu_model", json_any_text(n->gpu_model));
    json_object_set_new(j, "gpuprov_gpus", json_integer(n->gpus));
    json_object_set_new(j, "gpuprov_id", json_any_text(n->id));
    json_object_set_new(j, "gpuprov_place", json_any_text(n->place));
    json_object_set_new(j, "gpuprov_type", json_any_text(n->type));
    return j;
}

static int check(const struct export_stack *s, const struct export_node *n, struct gp_error *err) {
    const struct {
        const char *what, *value;
    } values[] = {
        {"the config's path", s->config_path},
        {"the user", n->user},
        {"the address", n->address},
        {"the address between nodes", n->peer_address},
        {"the GPU model", n->gpu_model},
        {"the id", n->id},
        {"the place", n->place},
        {"the type", n->type},
    };
    int r = 0;
    for (size_t i = 0; r == 0 && i < GP_ARRAY_LEN(values); i++)
        r = check_value(n, values[i].what, values[i].value, err);
    return r;
}

/* The group's name is one of Ansible's: without '-'. It begins with gpuprov_, so that it is not that of a host. */
static char *group_name(const char *stack) {
    char *name = xasprintf("gpuprov_%s", stack);
    for (char *p = name; *p != '\0'; p++)
        if (*p == '-') *p = '_';
    return name;
}

static int write_ansible(const struct export_stack *s, struct str *out, struct gp_error *err) {
    json_t *hosts = json_object();
    GP_AUTO_FREE char *group = group_name(s->name);
    GP_AUTO_JSON json_t *j = json_pack("{s:{s:{s:{s:o}}}}", "all", "children", group, "hosts", hosts);
    for (size_t i = 0; i < s->nodes.len; i++) {
        int r = check(s, &s->nodes.items[i], err);
        if (r != 0) return r;
        json_object_set_new(hosts, s->nodes.items[i].name, host(s, &s->nodes.items[i]));
    }
    GP_AUTO_FREE char *text = json_text(j, 2);
    str_addf(out, "%s\n", text);
    return 0;
}

const struct export_form export_form_ansible = {
    .name = "ansible",
    .write = write_ansible,
};
