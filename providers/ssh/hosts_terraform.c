/* SPDX-License-Identifier: Apache-2.0 */
/* Hosts from the outputs of Terraform: `terraform output -json` of a folder, or a file that has what it printed. The
 * output gpuprov_hosts is a list of addresses, or of objects with the keys of a host in a hosts file. Any thread. */
#include "base/gp_base.h"

#include "providers/ssh/hosts_private.h"

#include "base/fs.h"
#include "base/json.h"
#include "providers/common/program.h"
#include "spec/spec.h"

#include <sys/stat.h>

#define OUTPUT "gpuprov_hosts"
#define OUTPUTS_MAX ((size_t)4 << 20)
#define TERRAFORM_MS 120000
#define DEPTH_MAX 3 /* a host, its keys, a list of values */

/* The line with the reason: Terraform draws a box around its messages, and begins that line with "Error: ". */
static void reason(struct str *messages, struct str *ret) {
    if (messages->s == NULL) return;
    const char *at = strstr(messages->s, "Error: ");
    at = at != NULL ? at + strlen("Error: ") : str_last_lines(messages->s, 1, 200);
    GP_AUTO_FREE char *line = xstrndup(at, strcspn(at, "\n"));
    str_one_line(line);
    if (line[0] != '\0') str_addf(ret, ": %.200s", line);
}

static int run_terraform(const char *name, const char *dir, const struct gp_cancel *cancel, struct str *ret,
                         struct gp_error *err) {
    GP_AUTO_STR struct str messages = {0}, why = {0};
    struct gp_error failed = {0};
    GP_AUTO_FREE char *chdir = xasprintf("-chdir=%s", dir);
    char program[] = "terraform", verb[] = "output", json[] = "-json", colour[] = "-no-color";
    char *const argv[] = {program, chdir, verb, json, colour, NULL};
    int r = program_run_quiet(argv, OUTPUTS_MAX, TERRAFORM_MS, cancel, ret, &messages, &failed);
    if (r == 0) return 0;
    if (r == -GP_ECANCELLED) return gp_fail(err, GP_ECANCELLED, "%s: %s", name, failed.msg);
    if (r == -GP_ENOTFOUND)
        return gp_fail(err, GP_EUSAGE,
                       "%s: there is no program 'terraform' here: install it, or save what 'terraform output -json' "
                       "prints and name that file",
                       name);
    str_add(&why, "");
    reason(&messages, &why);
    return gp_fail(err, GP_EUSAGE, "%s: 'terraform output': %s%s", name, failed.msg, why.s);
}

static void free_node(struct yaml_node **n) { yaml_node_free(*n); }

static struct yaml_node *scalar(const char *text, unsigned host, bool quoted) {
    struct yaml_node *n = xcalloc(1, sizeof *n);
    *n = (struct yaml_node){.kind = YAML_SCALAR, .line = host, .quoted = quoted, .value = xstrdup(text)};
    return n;
}

/* One value as a node. NULL: it is neither text, a whole number, a list nor an object. */
static struct yaml_node *node_of(json_t *j, unsigned host, int depth) {
    char number[32];
    if (json_is_string(j)) return scalar(json_string_value(j), host, true);
    if (json_is_integer(j)) {
        snprintf(number, sizeof number, "%lld", (long long)json_integer_value(j));
        return scalar(number, host, false);
    }
    if (depth == 0 || !(json_is_array(j) || json_is_object(j))) return NULL;
    GP_CLEANUP(free_node) struct yaml_node *n = xcalloc(1, sizeof *n);
    *n = (struct yaml_node){.kind = json_is_array(j) ? YAML_LIST : YAML_MAP, .line = host};
    size_t i = 0;
    const char *key = NULL;
    json_t *value = NULL;
    json_array_foreach(j, i, value) {
        struct yaml_node *item = node_of(value, host, depth - 1);
        if (item == NULL) return NULL;
        vec_push(&n->items, item);
    }
    json_object_foreach(j, key, value) {
        if (json_is_null(value)) continue; /* an attribute that Terraform does not have */
        struct yaml_node *item = node_of(value, host, depth - 1);
        if (item == NULL) return NULL;
        vec_push(&n->items, scalar(key, host, true));
        vec_push(&n->items, item);
    }
    return GP_STEAL(n);
}

/* {hosts: LIST}, for the decoder of hosts files. */
static int build(const char *name, const json_t *value, struct yaml_node **ret, struct gp_error *err) {
    GP_CLEANUP(free_node) struct yaml_node *root = xcalloc(1, sizeof *root);
    struct yaml_node *list = xcalloc(1, sizeof *list);
    root->kind = YAML_MAP;
    list->kind = YAML_LIST;
    vec_push(&root->items, scalar("hosts", 0, true));
    vec_push(&root->items, list);
    for (size_t i = 0; i < json_array_size(value); i++) {
        struct yaml_node *host = node_of(json_array_get(value, i), (unsigned)i + 1, DEPTH_MAX);
        if (host == NULL)
            return gp_fail(err, GP_EUSAGE,
                           "%s: " OUTPUT "[%zu] must be an address or an object of texts and whole numbers, with the "
                           "keys of a hosts file",
                           name, i);
        vec_push(&list->items, host);
    }
    *ret = GP_STEAL(root);
    return 0;
}

static int decode(const char *name, const char *base, const struct str *text, struct ssh_host_list *ret,
                  struct gp_error *err) {
    GP_AUTO_JSON json_t *outputs = NULL;
    GP_CLEANUP(free_node) struct yaml_node *root = NULL;
    struct gp_error why = {0};
    if (json_parse(text->s != NULL ? text->s : "", text->len, "the output of Terraform", &outputs, &why) != 0)
        return gp_fail(err, GP_EUSAGE, "%s: %s", name, why.msg);
    const json_t *output = json_object_get(outputs, OUTPUT), *value = json_object_get(output, "value");
    if (output == NULL)
        return gp_fail(err, GP_EUSAGE,
                       "%s: Terraform has no output '" OUTPUT "': declare it as the list of hosts and run 'terraform "
                       "apply'",
                       name);
    if (!json_is_array(value) || json_array_size(value) == 0)
        return gp_fail(err, GP_EUSAGE, "%s: the value of the output '" OUTPUT "' must be a list with at least one host",
                       name);
    int r = build(name, value, &root, err);
    GP_AUTO_FREE char *place = xasprintf("%s: " OUTPUT, name);
    return r == 0 ? ssh_hosts_outputs(place, base, root, ret, err) : r;
}

int ssh_hosts_terraform(const char *path, const struct gp_cancel *cancel, struct ssh_host_list *ret,
                        struct gp_error *err) {
    GP_AUTO_STR struct str text = {0};
    const char *where = path + strlen(SPEC_TERRAFORM);
    GP_AUTO_FREE char *base = fs_join(where, "outputs"); /* of a folder: paths are relative to it */
    struct gp_error why = {0};
    struct stat st = {0};
    if (stat(where, &st) == 0 && S_ISDIR(st.st_mode)) {
        int r = run_terraform(path, where, cancel, &text, err);
        return r == 0 ? decode(path, base, &text, ret, err) : r;
    }
    if (fs_read(where, OUTPUTS_MAX, &text, &why) != 0) return gp_fail(err, GP_EUSAGE, "%s: %s", path, why.msg);
    return decode(path, where, &text, ret, err);
}
