/* SPDX-License-Identifier: Apache-2.0 */
/* Generates docs/hosts.md and the JSON Schema of a hosts file from the table that decodes it. No I/O. Any thread. */
#include "base/gp_base.h"

#include "providers/ssh/hosts_private.h"

#include "base/json.h"

static const char intro[] =
    "# The hosts file\n\n"
    "<!-- Generated from the table in providers/ssh/hosts.c ('make docs' rewrites it). Do not edit. -->\n\n"
    "This page lists every key of a hosts file. It is for people who give gpuprov machines that exist already: as an\n"
    "offer of a spec, or with `gpuprov validate --hosts FILE` without a stack.\n\n"
    "```yaml\n"
    "defaults: {user: ubuntu, key: ~/.ssh/id_ed25519}\n"
    "hosts:\n"
    "  - {address: 10.0.0.5, gpu: H100:8}\n"
    "  - {address: 10.0.0.6, gpu: H100:8, port: 2222}\n"
    "  - gpu-3.example\n"
    "```\n\n"
    "A spec names it relative to itself: `offers: [{provider: ssh, hosts: fleet.yaml}]`. `gpuprov init -p ssh` writes\n"
    "both files. `gpuprov schema --hosts` prints the JSON Schema for your editor.\n\n"
    "## Top level\n\n"
    "| key | value | meaning |\n|---|---|---|\n"
    "| `hosts` (required) | list of maps or addresses | the machines, in the order in which they are taken; a plain "
    "address stands for `{address: ...}` |\n"
    "| `defaults` | map | values for every host that does not set them itself; all keys below except `address` |\n\n"
    "An unknown key, a wrong value and a host that is listed twice are errors with their line and column; all "
    "errors are reported at once.\n\n"
    "## A host\n\n"
    "| key | value | default | meaning | example |\n|---|---|---|---|---|\n";

static const char rules[] =
    "\n## Hosts of Terraform\n\n"
    "`hosts: terraform:DIR` runs `terraform output -json` in DIR, relative to the spec, at most two minutes, and\n"
    "reads the output `gpuprov_hosts`. `hosts: terraform:FILE` reads a file with what that command printed; OpenTofu\n"
    "prints the same. `--hosts` takes both forms, too. The output is a list of addresses, or of objects with the\n"
    "keys above. Paths in it are relative to DIR, or to FILE. A null attribute counts as absent.\n\n"
    "```hcl\n"
    "output \"gpuprov_hosts\" {\n"
    "  value = [for m in aws_instance.gpu : { address = m.private_ip, user = \"ubuntu\", gpu = \"H100:8\" }]\n"
    "}\n"
    "```\n"
    "\n## Trust\n\n"
    "A host is used only if its key is known: by `host_key`, or from the known_hosts file. Without both keys, a host\n"
    "counts as known if `~/.ssh/known_hosts` has it, as for `ssh`. Three ways to make it known:\n\n"
    "1. `ssh-keyscan HOST`, compare the key with the machine's console (`ssh-keygen -lf\n"
    "   /etc/ssh/ssh_host_ed25519_key.pub`), and set `host_key`.\n"
    "2. `ssh HOST` once: OpenSSH requests a confirmation and stores the key in `~/.ssh/known_hosts`.\n"
    "3. `gpuprov up SPEC --accept-new-host-key`: each new key is accepted without a question and stored in the\n"
    "   host's known_hosts file (`~/.ssh` is created if it is missing). Later runs, `plan` included, need no\n"
    "   option.\n\n"
    "A changed key is never accepted.\n\n"
    "## Edits while a stack runs\n\n"
    "`plan` and `up` compare the file with the hosts that the stack has:\n\n"
    "| edit | effect |\n|---|---|\n"
    "| `user`, `key`, `bastion`, `known_hosts` | used from the next connection on; `plan` reports it |\n"
    "| a host is removed, or its `address` or `port` changes | the stack keeps the machine, with the settings that "
    "were read last; `plan` reports it. `gpuprov down` releases it, and the next `up` takes hosts of the file |\n"
    "| `gpu` no longer fits the spec | the stack keeps the machine; `plan` reports it |\n"
    "| `host_key` | the stack keeps the key that it verified, until `gpuprov down`; `plan` reports it |\n"
    "| a host is added | taken when the stack needs another node |\n"
    "| the file is missing or malformed | `check`, `plan` and `up` refuse it; the stack keeps its machines, with the "
    "settings that were read last |\n\n"
    "`gpuprov down STACK` releases the hosts that the journal has, also when the file is missing or malformed. It\n"
    "leaves the machines running.\n";

/* A table cell: '|' would end it. */
static void cell(struct str *out, const char *text) {
    for (; text != NULL && *text != '\0'; text++) {
        if (*text == '|') str_addc(out, '\\');
        str_addc(out, *text);
    }
}

char *ssh_hosts_markdown(void) {
    struct str out = {0};
    str_add(&out, intro);
    for (const struct hosts_key *k = hosts_keys; k->name != NULL; k++) {
        str_addf(&out, "| `%s`%s | ", k->name, k->required ? " (required)" : "");
        cell(&out, k->form);
        str_add(&out, " | ");
        cell(&out, k->def);
        str_add(&out, " | ");
        cell(&out, k->doc);
        str_addf(&out, " | `%s: ", k->name);
        cell(&out, k->example);
        str_add(&out, "` |\n");
    }
    str_add(&out, rules);
    return str_steal(&out);
}

static json_t *value_schema(const struct hosts_key *k) {
    if (k->max > 0)
        return json_pack("{s:s, s:I, s:I}", "type", "integer", "minimum", (json_int_t)k->min, "maximum",
                         (json_int_t)k->max);
    json_t *text = json_pack("{s:s, s:i}", "type", "string", "minLength", 1);
    if (k->pattern != NULL) json_object_set_new(text, "pattern", json_string(k->pattern));
    if (!k->list) return text;
    return json_pack("{s:[o, {s:s, s:O}]}", "anyOf", text, "type", "array", "items", text);
}

static json_t *host_schema(bool defaults) {
    json_t *keys = json_object(), *required = json_array();
    for (const struct hosts_key *k = hosts_keys; k->name != NULL; k++) {
        if (defaults && k->own) continue;
        json_t *v = value_schema(k);
        json_object_set_new(v, "description", json_string(k->doc));
        json_object_set_new(keys, k->name, v);
        if (k->required) json_array_append_new(required, json_string(k->name));
    }
    json_t *j = json_pack("{s:s, s:b, s:o}", "type", "object", "additionalProperties", 0, "properties", keys);
    if (json_array_size(required) > 0) json_object_set(j, "required", required);
    json_decref(required);
    return j;
}

char *ssh_hosts_json_schema(void) {
    json_t *host = json_pack("{s:[o, {s:s, s:i}]}", "anyOf", host_schema(false), "type", "string", "minLength", 1);
    json_t *hosts = json_pack("{s:s, s:i, s:o}", "type", "array", "minItems", 1, "items", host);
    GP_AUTO_JSON json_t *j = json_pack("{s:s, s:s, s:s, s:b, s:[s], s:{s:o, s:o}}", "$schema",
                                       "https://json-schema.org/draft/2020-12/schema", "title", "gpuprov hosts file",
                                       "type", "object", "additionalProperties", 0, "required", "hosts", "properties",
                                       "defaults", host_schema(true), "hosts", hosts);
    GP_AUTO_FREE char *text = json_text(j, 2);
    return xasprintf("%s\n", text);
}
