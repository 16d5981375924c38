/* SPDX-License-Identifier: Apache-2.0 */
/* Rules that a table row cannot express: short forms, values with a syntax of their own, and rules
 * over several keys. No I/O. Any thread. */
#include "base/gp_base.h"

#include "base/fs.h"
#include "spec/spec_internal.h"

#include <arpa/inet.h>
#include <unistd.h>

/* Node of the key itself, for the position of an error. */
static const struct yaml_node *key_node(const struct yaml_node *map, const char *key) {
    for (size_t i = 0; map != NULL && i + 1 < map->items.len; i += 2)
        if (strcmp(map->items.items[i]->value, key) == 0) return map->items.items[i];
    return NULL;
}

/* Relative to the spec, independent of the working folder. */
static char *absolute(const struct spec_ctx *c, const char *rel) {
    GP_AUTO_FREE char *path = fs_relative_to(c->path, rel);
    if (path[0] == '/') return GP_STEAL(path);
    GP_AUTO_FREE char *cwd = getcwd(NULL, 0);
    const char *tail = path;
    while (str_starts(tail, "./")) tail += 2;
    return fs_join(cwd != NULL ? cwd : ".", tail);
}

void spec_absolute(const struct spec_ctx *c, char **path) {
    char *whole = absolute(c, *path);
    free(*path);
    *path = whole;
}

/* --- gpu --- */

void spec_gpu_from_text(struct spec_ctx *c, const struct yaml_node *at, void *to) {
    struct spec_gpu *gpu = to;
    const char *text = at->value, *colon = strrchr(text, ':');
    GP_AUTO_FREE char *model = xstrndup(text, colon != NULL ? (size_t)(colon - text) : strlen(text));
    int64_t count = 1, swapped = 0;
    if (colon != NULL && str_to_i64(model, 1, 16, &swapped) && colon[1] != '\0' && at->source == NULL) {
        spec_complain(c, at, "'gpu' is model[:count]; did you mean '%s:%s'?", colon + 1, model);
    } else if (!spec_match("^[A-Za-z][A-Za-z0-9 ._-]{0,39}$", model)) {
        spec_complain(c, at, "'gpu' must be model[:count], such as H100:8, not '%.60s'", spec_shown(at, text));
    } else if (colon != NULL && !str_to_i64(colon + 1, 1, 16, &count)) {
        spec_complain(c, at, "the count in 'gpu: %.60s' must be a whole number from 1 to 16", spec_shown(at, text));
    } else {
        free(gpu->model);
        gpu->model = GP_STEAL(model);
        gpu->count = (int)count;
        gpu->pos = (struct spec_pos){at->line, at->column};
    }
}

void spec_rule_gpu(struct spec_ctx *c, const struct yaml_node *map, void *to) {
    struct spec_gpu *gpu = to;
    (void)c, (void)map;
    if (gpu->model == NULL) gpu->count = 0;
}

/* --- image --- */

void spec_image_from_text(struct spec_ctx *c, const struct yaml_node *at, void *to) {
    struct spec_image *image = to;
    if (strcmp(at->value, "auto") == 0) return;
    if (strcmp(at->value, "baked") == 0) {
        free(image->baked);
        image->baked = xstrdup(BAKED_REQUIRE);
        return;
    }
    const char *kind = spec_is_image_id(at->value) ? "id" : "os";
    spec_complain(c, at, "'image' must be auto, baked, {os: NAME} or {id: IMAGE}; did you mean {%s: %.100s}?", kind,
                  spec_shown(at, at->value));
}

void spec_rule_image(struct spec_ctx *c, const struct yaml_node *map, void *to) {
    (void)to;
    const struct yaml_node *os = key_node(map, "os"), *id = key_node(map, "id");
    if (os != NULL && id != NULL) spec_complain(c, id, "'image' has both 'os' and 'id': keep one");
    else if (os == NULL && id == NULL && map != NULL && key_node(map, "baked") == NULL)
        spec_complain(c, map, "'image' needs 'os' or 'id', such as {os: ubuntu-24.04}");
}

/* --- access --- */

/* Clears the bits below the prefix; true when one was set. */
static bool mask(unsigned char *addr, size_t bytes, int64_t prefix) {
    bool had = false;
    for (size_t i = 0; i < bytes; i++) {
        int64_t keep = GP_MIN(GP_MAX(prefix - (int64_t)i * 8, (int64_t)0), (int64_t)8);
        unsigned char m = (unsigned char)(0xff00u >> keep);
        had = had || (addr[i] & (unsigned char)~m) != 0;
        addr[i] &= m;
    }
    return had;
}

void spec_check_cidr(struct spec_ctx *c, const struct yaml_node *at) {
    unsigned char addr[16] = {0};
    const char *slash = strchr(at->value, '/');
    GP_AUTO_FREE char *ip = xstrndup(at->value, slash != NULL ? (size_t)(slash - at->value) : strlen(at->value));
    int family = strchr(ip, ':') != NULL ? AF_INET6 : AF_INET;
    int64_t bits = family == AF_INET6 ? 128 : 32, prefix = 0;
    if (inet_pton(family, ip, addr) != 1) {
        spec_complain(c, at, "'%.60s' is not a network such as 203.0.113.0/24", spec_shown(at, at->value));
    } else if (slash == NULL) {
        spec_complain(c, at, "'%s' has no prefix length; did you mean '%s/%lld'?", spec_shown(at, ip),
                      spec_shown(at, ip), (long long)bits);
    } else if (!str_to_i64(slash + 1, 0, bits, &prefix)) {
        spec_complain(c, at, "the prefix length of '%.60s' must be from 0 to %lld", spec_shown(at, at->value),
                      (long long)bits);
    } else if (mask(addr, (size_t)bits / 8, prefix)) {
        char net[INET6_ADDRSTRLEN] = "";
        inet_ntop(family, addr, net, sizeof net);
        spec_complain(c, at, "'%s' has bits beyond /%lld; did you mean '%s/%lld'?", spec_shown(at, at->value),
                      (long long)prefix, spec_shown(at, net), (long long)prefix);
    }
}

void spec_check_bastion(struct spec_ctx *c, const struct yaml_node *at) {
    const char *want = "[user@]host[:port], such as ops@bastion.example";
    const char *text = at->value, *port = NULL;
    if (strlen(text) > 300 || !spec_match("^([A-Za-z_][A-Za-z0-9_.-]{0,31}@)?(\\[[0-9A-Fa-f:.]+\\]|[A-Za-z0-9]"
                                          "[A-Za-z0-9.-]*)(:[0-9]+)?$",
                                          text)) {
        spec_complain(c, at, "'bastion' must be %s, not '%.100s'", want, spec_shown(at, text));
        return;
    }
    int64_t number = 0;
    const char *bracket = strchr(text, ']');
    port = strchr(bracket != NULL ? bracket : text, ':');
    if (port != NULL && !str_to_i64(port + 1, 1, 65535, &number))
        spec_complain(c, at, "the port of 'bastion' must be from 1 to 65535, not '%.20s'", spec_shown(at, port + 1));
}

void spec_rule_limits(struct spec_ctx *c, const struct yaml_node *map, void *to) {
    struct spec *s = to;
    (void)c;
    s->ttl_is_default = map == NULL || yaml_get(map, "ttl") == NULL;
}

void spec_rule_access(struct spec_ctx *c, const struct yaml_node *map, void *to) {
    struct spec_access *a = to;
    (void)map;
    if (a->key == NULL || strcmp(a->key, "agent") == 0) return;
    spec_absolute(c, &a->key);
}

/* --- bootstrap, secrets, validate --- */

static const struct yaml_node *item_key(const struct yaml_node *map, const char *list, size_t i, const char *key) {
    const struct yaml_node *items = yaml_get(map, list);
    if (items == NULL || items->kind != YAML_LIST || i >= items->items.len) return NULL;
    return yaml_get(items->items.items[i], key);
}

void spec_rule_bootstrap(struct spec_ctx *c, const struct yaml_node *map, void *to) {
    const struct spec *s = to;
    for (size_t i = 1; map != NULL && i < s->steps.len; i++) {
        const struct yaml_node *at = item_key(map, "steps", i, "name");
        for (size_t k = 0; at != NULL && s->steps.items[i].name != NULL && k < i; k++) {
            if (!str_eq(s->steps.items[i].name, s->steps.items[k].name)) continue;
            spec_complain(c, at, "duplicate step name '%s' (first on line %u)", spec_shown(at, s->steps.items[i].name),
                          s->steps.items[k].pos.line);
        }
    }
}

void spec_check_env(struct spec_ctx *c, const struct yaml_node *at) {
    if (str_starts(at->value, "GPUPROV_") || str_starts(at->value, "LD_") || strcmp(at->value, "PATH") == 0)
        spec_complain(c, at, "a secret cannot be named '%s': PATH, LD_* and GPUPROV_* are reserved",
                      spec_shown(at, at->value));
}

void spec_rule_secret(struct spec_ctx *c, const struct yaml_node *map, void *to) {
    struct spec_secret *s = to;
    (void)map;
    if (s->from == NULL || !str_starts(s->from, "file:")) return;
    GP_AUTO_FREE char *path = absolute(c, s->from + 5);
    free(s->from);
    s->from = xasprintf("file:%s", path);
}

void spec_rule_validate(struct spec_ctx *c, const struct yaml_node *map, void *to) {
    struct spec_validate *v = to;
    (void)map;
    if (v->baseline != NULL) spec_absolute(c, &v->baseline);
}

void spec_check_known(struct spec_ctx *c, const struct yaml_node *at) {
    if (c->names == NULL) return;
    VEC_OF(const char *) ids = {0};
    bool known = false;
    for (size_t i = 0;; i++) {
        const char *id = c->names->check(i);
        vec_push(&ids, id);
        if (id == NULL) break;
        known = known || strcmp(id, at->value) == 0;
    }
    const char *near = str_closest(at->value, ids.items);
    if (!known)
        spec_complain(c, at, "unknown check '%s'%s%s%s", spec_shown(at, at->value),
                      near != NULL ? "; did you mean '" : "; 'gpuprov checks' lists them", near != NULL ? near : "",
                      near != NULL ? "'?" : "");
    vec_free(&ids);
}

void spec_rule_root(struct spec_ctx *c, const struct yaml_node *map, void *to) {
    struct spec *s = to;
    for (size_t i = 1; i < s->secrets.len; i++) {
        const struct yaml_node *at = item_key(map, "secrets", i, "env");
        for (size_t k = 0; at != NULL && s->secrets.items[i].env != NULL && k < i; k++) {
            if (!str_eq(s->secrets.items[i].env, s->secrets.items[k].env)) continue;
            spec_complain(c, at, "duplicate secret '%s' (first on line %u)", spec_shown(at, s->secrets.items[i].env),
                          s->secrets.items[k].pos.line);
        }
    }
    spec_rule_python_secret(c, map, s);
    spec_rule_container_secret(c, map, s);
    spec_rule_mount_secrets(c, map);
    if (yaml_get(map, "offers") == NULL) spec_default_offer(c, map);
    const struct yaml_node *gpu = yaml_get(map, "gpu");
    if (gpu != NULL) spec_check_gpu(c, gpu->kind == YAML_MAP ? yaml_get(gpu, "model") : gpu);
    spec_check_systems(c, map);
    spec_rule_container_system(c, map, s);
    spec_rule_software(c, map, s);
    spec_rule_shapes(c, map);
    spec_rule_job_root(c, map, s);
    spec_rule_notify_root(c, map);
}
