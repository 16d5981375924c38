/* SPDX-License-Identifier: Apache-2.0 */
/* Decoding of hosts files, with line and column in every error. Pure apart from reading the file,
 * $HOME and the name of the local user. Any thread. */
#include "base/gp_base.h"

#include "providers/ssh/hosts_private.h"

#include "base/form.h"
#include "base/fs.h"
#include "spec/spec.h"
#include "ssh/ssh.h"

#include <ctype.h>
#include <pwd.h>
#include <stdarg.h>
#include <strings.h>
#include <unistd.h>

#define FILE_MAX_BYTES ((size_t)4 << 20)
#define HOSTS_MAX 4096

#define SHOWN_MAX ((size_t)GP_ERROR_MSG_MAX - 120) /* bytes of errors in the one line; its prefixes need the rest */

struct hosts_decode {
    const char *path; /* as messages name it */
    const char *base; /* paths are relative to its folder */
    bool outputs;     /* of a list without lines: yaml_node.line is the host's place in it, from 1; 0: the list */
    int errors, shown;
    struct str list; /* "f.yaml:2:1: ...; at 3:5: ..." */
};

static void complain(struct hosts_decode *d, const struct yaml_node *at, const char *fmt, ...) GP_PRINTF(3, 4);
static void complain(struct hosts_decode *d, const struct yaml_node *at, const char *fmt, ...) {
    char msg[GP_ERROR_MSG_MAX];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(msg, sizeof msg, fmt, ap);
    va_end(ap);
    char place[48] = "";
    if (d->outputs && at->line > 0) snprintf(place, sizeof place, "[%u]", at->line - 1);
    else if (!d->outputs) snprintf(place, sizeof place, "%u:%u", at->line, at->column);
    if (d->errors++ == 0) str_addf(&d->list, "%s%s%s: %s", d->path, d->outputs ? "" : ":", place, msg);
    else if (d->list.len + strlen(msg) < SHOWN_MAX) str_addf(&d->list, "; at %s: %s", place, msg);
    else return;
    d->shown++;
}

static void host_clear(struct ssh_host *h) {
    free(h->address);
    free(h->user);
    free(h->key);
    strv_clear(&h->host_keys);
    free(h->known_hosts);
    free(h->bastion);
    free(h->gpu_model);
    *h = (struct ssh_host){0};
}

void ssh_host_list_clear(struct ssh_host_list *l) {
    for (size_t i = 0; i < l->list.len; i++) host_clear(&l->list.items[i]);
    vec_free(&l->list);
}

static void set(char **field, const char *value) {
    char *copy = xstrdup(value);
    free(*field);
    *field = copy;
}

static void take_one_key(struct hosts_decode *d, struct ssh_host *h, const struct yaml_node *v) {
    char *line = NULL;
    if (v->kind == YAML_SCALAR && form_fingerprint(v->value)) strv_add(&h->host_keys, v->value);
    else if (v->kind == YAML_SCALAR && ssh_host_key_line(v->value, &line, NULL) == 0)
        strv_take(&h->host_keys, line); /* without its comment */
    else
        complain(d, v,
                 "a host_key must be a line like 'ssh-ed25519 AAAA...' (from ssh-keyscan, compared on "
                 "the machine) or a fingerprint 'SHA256:...'");
}

static void take_host_key(struct hosts_decode *d, struct ssh_host *h, const struct yaml_node *v) {
    strv_clear(&h->host_keys);
    if (v->kind == YAML_LIST)
        for (size_t i = 0; i < v->items.len; i++) take_one_key(d, h, v->items.items[i]);
    else take_one_key(d, h, v);
}

static void take_gpu(struct hosts_decode *d, struct ssh_host *h, const struct yaml_node *v) {
    const char *colon = strrchr(v->value, ':');
    int64_t n = 1;
    size_t len = colon != NULL ? (size_t)(colon - v->value) : strlen(v->value);
    if (len == 0 || !isalpha((unsigned char)v->value[0]) || (colon != NULL && !str_to_i64(colon + 1, 1, 64, &n))) {
        complain(d, v, "'%s' is not a gpu: write MODEL or MODEL:COUNT, such as H100:8", v->value);
        return;
    }
    free(h->gpu_model);
    h->gpu_model = xstrndup(v->value, len);
    h->gpus = (int)n;
}

static void take_port(struct hosts_decode *d, struct ssh_host *h, const struct yaml_node *v) {
    int64_t n = 0;
    if (!str_to_i64(v->value, 1, 65535, &n)) complain(d, v, "'%s' is not a port (1 to 65535)", v->value);
    else h->port = (uint16_t)n;
}

static void take_path(struct hosts_decode *d, char **field, const struct yaml_node *v) {
    if (v->value[0] == '\0') {
        complain(d, v, "the path is empty");
        return;
    }
    free(*field);
    *field = fs_relative_to(d->base, v->value);
}

static bool is_way(const char *text) {
    GP_AUTO_SSH_TARGET struct ssh_target t = {0};
    return ssh_target_parse(text, &t, NULL) == 0;
}

/* Refuses names that ssh or a shell could interpret. */
static void take_name(struct hosts_decode *d, char **field, const char *key, const struct yaml_node *v,
                      bool (*is_form)(const char *text)) {
    if (!is_form(v->value)) complain(d, v, "'%s' cannot be a %s", v->value, key);
    else set(field, v->value);
}

static void take_address(struct hosts_decode *d, struct ssh_host *h, const struct yaml_node *v) {
    take_name(d, &h->address, "host's address", v, form_host);
}
static void take_user(struct hosts_decode *d, struct ssh_host *h, const struct yaml_node *v) {
    take_name(d, &h->user, "user's name", v, form_login);
}
static void take_bastion(struct hosts_decode *d, struct ssh_host *h, const struct yaml_node *v) {
    take_name(d, &h->bastion, "bastion ([user@]host[:port])", v, is_way);
}
static void take_key(struct hosts_decode *d, struct ssh_host *h, const struct yaml_node *v) {
    take_path(d, &h->key, v);
}
static void take_known_hosts(struct hosts_decode *d, struct ssh_host *h, const struct yaml_node *v) {
    take_path(d, &h->known_hosts, v);
}

const struct hosts_key hosts_keys[] = {
    {.name = "address",
     .take = take_address,
     .own = true,
     .required = true,
     .form = "name or IP address",
     .doc = "where sshd answers; the other nodes of the stack connect to it, too",
     .example = "10.0.0.5"},
    {.name = "port",
     .take = take_port,
     .form = "number, 1 to 65535",
     .def = "`22`",
     .doc = "sshd's port",
     .example = "2222",
     .min = 1,
     .max = 65535},
    {.name = "user",
     .take = take_user,
     .form = "login name",
     .def = "your login name here",
     .doc = "the login; `bootstrap.packages` and checks that need root use `sudo -n` where it works",
     .example = "ubuntu"},
    {.name = "key",
     .take = take_key,
     .form = "file",
     .def = "`access.key` of the spec, else the first of `~/.ssh/id_ed25519`, `id_ecdsa` and `id_rsa`",
     .doc = "the private key of the login, relative to the hosts file; your agent's keys are tried, too",
     .example = "~/.ssh/id_ed25519"},
    {.name = "host_key",
     .take = take_host_key,
     .list = true,
     .form = "`ssh-ed25519 AAAA...` or `SHA256:...`, or a list of them",
     .doc = "the only keys that the host may show; it replaces `known_hosts`",
     .example = "SHA256:uNiVztksCsDhcc0u9e8BrrJXVGDUcZiiwKSRO0LK6wc"},
    {.name = "known_hosts",
     .take = take_known_hosts,
     .form = "file",
     .def = "`~/.ssh/known_hosts`",
     .doc = "OpenSSH's file with the host's key, relative to the hosts file",
     .example = "fleet.known_hosts"},
    {.name = "bastion",
     .take = take_bastion,
     .form = "`[user@]host[:port]`",
     .def = "`access.bastion` of the spec",
     .doc = "the machine that SSH goes through; its key must be in the host's known_hosts file",
     .example = "ops@gate.example"},
    {.name = "gpu",
     .take = take_gpu,
     .form = "`MODEL` or `MODEL:COUNT`",
     .doc = "the host's GPUs; a spec with `gpu` takes only hosts that have them",
     .example = "H100:8",
     .pattern = "^[A-Za-z][^:]*(:[0-9]+)?$"},
    {0}};

static const struct hosts_key *find_key(const char *name) {
    for (const struct hosts_key *k = hosts_keys; k->name != NULL; k++)
        if (strcmp(k->name, name) == 0) return k;
    return NULL;
}

static void take(struct hosts_decode *d, struct ssh_host *h, const struct yaml_node *k, const struct yaml_node *v,
                 bool defaults) {
    const char *name = k->value != NULL ? k->value : "";
    const struct hosts_key *key = find_key(name);
    if (key == NULL || (defaults && key->own)) {
        const char *names[16] = {NULL};
        for (size_t i = 0; hosts_keys[i].name != NULL; i++) names[i] = hosts_keys[i].name;
        const char *near = key == NULL ? str_closest(name, names) : NULL;
        complain(d, k, "unknown key '%s' in %s%s%s%s", name, defaults ? "defaults" : "a host",
                 near ? " (did you mean '" : "", near ? near : "", near ? "'?)" : "");
    } else if (v->kind != YAML_SCALAR && !key->list) {
        complain(d, v, "'%s' takes one value", name);
    } else {
        key->take(d, h, v);
    }
}

static void take_map(struct hosts_decode *d, struct ssh_host *h, const struct yaml_node *map, bool defaults) {
    for (size_t i = 0; i + 1 < map->items.len; i += 2)
        take(d, h, map->items.items[i], map->items.items[i + 1], defaults);
}

static void host_copy(struct ssh_host *to, const struct ssh_host *from) {
    *to = (struct ssh_host){.address = xstrdup(from->address),
                            .port = from->port,
                            .user = xstrdup(from->user),
                            .key = xstrdup(from->key),
                            .known_hosts = xstrdup(from->known_hosts),
                            .bastion = xstrdup(from->bastion),
                            .gpu_model = xstrdup(from->gpu_model),
                            .gpus = from->gpus};
    strv_copy(&to->host_keys, &from->host_keys);
}

void ssh_host_list_copy(struct ssh_host_list *to, const struct ssh_host_list *from) {
    for (size_t i = 0; i < from->list.len; i++) {
        struct ssh_host h = {0};
        host_copy(&h, &from->list.items[i]);
        vec_push(&to->list, h);
    }
}

static bool is_twin(const struct ssh_host *a, const struct ssh_host *b) {
    return a->port == b->port && strcasecmp(a->address, b->address) == 0 && str_eq(a->bastion, b->bastion);
}

static void take_host(struct hosts_decode *d, const struct ssh_host *defaults, const struct yaml_node *v,
                      struct ssh_host_list *ret) {
    struct ssh_host h = {0};
    int before = d->errors;
    host_copy(&h, defaults);
    if (v->kind == YAML_MAP) take_map(d, &h, v, false);
    else if (v->kind == YAML_SCALAR) take_name(d, &h.address, "host's address", v, form_host);
    else complain(d, v, "a host must be an address or a map with an address");
    if (h.address == NULL) {
        if (d->errors == before) complain(d, v, "the host has no 'address'");
        host_clear(&h);
        return;
    }
    for (size_t i = 0; i < ret->list.len; i++)
        if (is_twin(&ret->list.items[i], &h)) complain(d, v, "duplicate host %s:%u", h.address, (unsigned)h.port);
    vec_push(&ret->list, h);
}

static char *local_user(void) {
    struct passwd pw, *found = NULL;
    char buf[4096];
    if (getpwuid_r(getuid(), &pw, buf, sizeof buf, &found) == 0 && found != NULL) return xstrdup(pw.pw_name);
    return xstrdup("root");
}

static void take_file(struct hosts_decode *d, const struct yaml_node *root, struct ssh_host_list *ret) {
    static const char *const tops[] = {"defaults", "hosts", NULL};
    struct ssh_host defaults = {.port = 22, .gpus = -1, .user = local_user()};
    const struct yaml_node *map = yaml_get(root, "defaults"), *list = yaml_get(root, "hosts");
    for (size_t i = 0; i + 1 < root->items.len; i += 2) {
        const struct yaml_node *k = root->items.items[i];
        const char *key = k->value != NULL ? k->value : "";
        if (strcmp(key, tops[0]) == 0 || strcmp(key, tops[1]) == 0) continue;
        const char *near = str_closest(key, tops);
        complain(d, k, "unknown key '%s' (%s%s%s)", key, near ? "did you mean '" : "valid keys: 'defaults' and 'hosts",
                 near ? near : "", near ? "'?" : "'");
    }
    bool mistyped = d->errors > 0; /* it may be 'hosts' */
    if (map != NULL && map->kind == YAML_MAP) take_map(d, &defaults, map, true);
    else if (map != NULL) complain(d, map, "'defaults' must be a map such as {user: ops, key: ~/.ssh/id_ed25519}");
    if (list == NULL) {
        if (!mistyped) complain(d, root, "'hosts' is missing");
    } else if (list->kind != YAML_LIST || list->items.len == 0) {
        complain(d, list, "'hosts' must be a list with at least one host");
    } else if (list->items.len > HOSTS_MAX) {
        complain(d, list, "more than %d hosts", HOSTS_MAX);
    } else {
        for (size_t i = 0; i < list->items.len; i++) take_host(d, &defaults, list->items.items[i], ret);
    }
    host_clear(&defaults);
}

static int decode(struct hosts_decode *d, const struct yaml_node *root, struct ssh_host_list *ret,
                  struct gp_error *err) {
    GP_AUTO_SSH_HOSTS struct ssh_host_list list = {0};
    take_file(d, root, &list);
    int more = d->errors - d->shown;
    if (more > 0) str_addf(&d->list, " (and %d more error%s)", more, more == 1 ? "" : "s");
    if (d->errors > 0) gp_fail(err, GP_EUSAGE, "%s", d->list.s);
    str_clear(&d->list);
    if (d->errors > 0) return -GP_EUSAGE;
    for (size_t i = 0; i < list.list.len; i++) vec_push(&ret->list, list.list.items[i]);
    vec_free(&list.list);
    return 0;
}

static void free_root(struct yaml_node **root) { yaml_node_free(*root); }

int ssh_hosts_parse(const char *path, const char *text, size_t n, struct ssh_host_list *ret, struct gp_error *err) {
    GP_CLEANUP(free_root) struct yaml_node *root = NULL;
    int r = yaml_parse(path, text, n, &root, err);
    if (r != 0) return r;
    if (root == NULL || root->kind != YAML_MAP)
        return gp_fail(err, GP_EUSAGE, "%s:1:1: a hosts file must be a map with 'hosts' (and 'defaults')", path);
    struct hosts_decode d = {.path = path, .base = path};
    return decode(&d, root, ret, err);
}

int ssh_hosts_outputs(const char *name, const char *base, const struct yaml_node *root, struct ssh_host_list *ret,
                      struct gp_error *err) {
    struct hosts_decode d = {.path = name, .base = base, .outputs = true};
    return decode(&d, root, ret, err);
}

char *ssh_hosts_absolute(const char *path) {
    bool outputs = str_starts(path, SPEC_TERRAFORM);
    const char *name = path + (outputs ? strlen(SPEC_TERRAFORM) : 0);
    GP_AUTO_FREE char *absolute = realpath(name, NULL);
    return xasprintf("%s%s", outputs ? SPEC_TERRAFORM : "", absolute != NULL ? absolute : name);
}

int ssh_hosts_load(const char *path, const struct gp_cancel *cancel, struct ssh_host_list *ret, struct gp_error *err) {
    GP_AUTO_STR struct str text = {0};
    struct gp_error why = {0};
    if (str_starts(path, SPEC_TERRAFORM)) return ssh_hosts_terraform(path, cancel, ret, err);
    if (fs_read(path, FILE_MAX_BYTES, &text, &why) != 0) return gp_fail(err, GP_EUSAGE, "the hosts file: %s", why.msg);
    return ssh_hosts_parse(path, text.s != NULL ? text.s : "", text.len, ret, err);
}
