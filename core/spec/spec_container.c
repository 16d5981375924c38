/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of the spec's block `bootstrap.container`, and its rules. No I/O. Any thread. */
#include "base/gp_base.h"

#include "spec/spec_internal.h"

static const char *const engines[] = {[ENGINE_NONE] = "none",
                                      [ENGINE_DOCKER] = "docker",
                                      [ENGINE_PODMAN] = "podman",
                                      [ENGINE_CONTAINERD] = "containerd",
                                      NULL};

const char *spec_engine_name(enum spec_engine e) { return engines[e]; }

/* The packages of an engine, by the node's system: a prefix of "debian-12". The first row that fits counts; packages
 * NULL: the distribution has none. */
static const struct {
    enum spec_engine engine;
    const char *os, *packages;
} engine_packages[] = {
    {ENGINE_DOCKER, "debian-11", "docker.io"},
    {ENGINE_DOCKER, "debian-12", "docker.io"},
    {ENGINE_DOCKER, "debian-", "docker.io docker-cli"}, /* apart since Debian 13 */
    {ENGINE_DOCKER, "ubuntu-", "docker.io"},
    {ENGINE_DOCKER, "fedora-", "moby-engine"},
    {ENGINE_DOCKER, "amzn-", "docker"},
    {ENGINE_PODMAN, "amzn-", NULL},
    {ENGINE_PODMAN, "", "podman"},
    {ENGINE_CONTAINERD, "debian-", "containerd"},
    {ENGINE_CONTAINERD, "ubuntu-", "containerd"},
    {ENGINE_CONTAINERD, "fedora-", "containerd"},
    {ENGINE_CONTAINERD, "amzn-", "containerd"},
};

const char *spec_engine_packages(enum spec_engine engine, const char *os) {
    for (size_t i = 0; i < GP_ARRAY_LEN(engine_packages); i++)
        if (engine_packages[i].engine == engine && str_starts(os, engine_packages[i].os))
            return engine_packages[i].packages;
    return NULL;
}

static void rule_container(struct spec_ctx *c, const struct yaml_node *map, void *to) {
    const struct spec_container *box = to;
    static const char *const needs_engine[] = {"images", "registry_auth"};
    for (size_t i = 0; i < GP_ARRAY_LEN(needs_engine) && yaml_get(map, "engine") && box->engine == ENGINE_NONE; i++) {
        const struct yaml_node *at = yaml_get(map, needs_engine[i]);
        if (at) spec_complain(c, at, "'%s' needs an engine: write 'engine: docker'", needs_engine[i]);
    }
}

void spec_rule_container_secret(struct spec_ctx *c, const struct yaml_node *map, const struct spec *s) {
    const struct yaml_node *box = yaml_get(yaml_get(map, "bootstrap"), "container");
    const struct yaml_node *at = yaml_get(box, "registry_auth");
    VEC_OF(const char *) names = {0};
    bool known = false;
    if (!at || !s->container.registry_auth) return;
    for (size_t i = 0; i < s->secrets.len; i++) {
        if (!s->secrets.items[i].env) continue;
        vec_push(&names, s->secrets.items[i].env);
        known = known || str_eq(s->secrets.items[i].env, s->container.registry_auth);
    }
    vec_push(&names, NULL);
    const char *near = str_closest(s->container.registry_auth, names.items);
    if (!known)
        spec_complain(c, at, "'registry_auth' names '%s', which is no secret of this spec%s%s%s",
                      spec_shown(at, s->container.registry_auth), near ? "; did you mean '" : ": add it to 'secrets'",
                      near ? near : "", near ? "'?" : "");
    vec_free(&names);
}

/* An image by its system has only what the distribution ships; one by its id may have any engine. */
void spec_rule_container_system(struct spec_ctx *c, const struct yaml_node *map, const struct spec *s) {
    enum spec_engine engine = s->container.engine;
    const struct yaml_node *at = yaml_get(yaml_get(yaml_get(map, "bootstrap"), "container"), "engine");
    if (!at || c->names == NULL || engine == ENGINE_NONE || c->problems->list.len > 0) return;
    for (size_t i = 0; i < s->offers.len; i++) {
        const struct spec_image *image = spec_effective(s, i).image;
        if (!spec_offer_launched(&s->offers.items[i]) || !image->os || spec_engine_packages(engine, image->os))
            continue;
        GP_AUTO_STR struct str others = {0};
        for (int e = ENGINE_NONE + 1; engines[e] != NULL; e++)
            if (spec_engine_packages((enum spec_engine)e, image->os))
                str_addf(&others, "%s%s", others.len > 0 ? ", " : "", engines[e]);
        spec_complain(c, at, "%s has no package of %s; it has %s; for an image that has the engine write {id: ...}",
                      image->os, engines[engine], others.s);
        return;
    }
}

/* clang-format off */
static const struct spec_field container_fields[] = {
    {.name = "engine", .type = SPEC_ENUM, .offset = offsetof(struct spec_container, engine), .choices = engines,
     .required = true,
     .doc = "the container engine, installed from the node's distribution and started; one that is there already is "
            "left alone; with GPUs also the NVIDIA container toolkit",
     .example = "podman", .effect = SPEC_REPEATED},
    {.name = "images", .type = SPEC_TEXTS, .offset = offsetof(struct spec_container, images),
     .doc = "images to pull, with a tag or a digest",
     .example = "[docker.io/library/busybox:1.36]",
     .pattern = SPEC_IMAGE_PATTERN, .pattern_doc = SPEC_IMAGE_DOC,
     .effect = SPEC_REPEATED},
    {.name = "registry_auth", .type = SPEC_TEXT, .offset = offsetof(struct spec_container, registry_auth),
     .def_doc = "images are pulled without a login",
     .doc = "the secret (`env` of an entry of `secrets`) with the login for the images' registry: `USER:PASSWORD`, or "
            "the JSON of a docker `config.json` when the images lie in several registries",
     .example = "HF_TOKEN", .pattern = "^[A-Za-z_][A-Za-z0-9_]{0,99}$",
     .pattern_doc = "the name of a secret", .effect = SPEC_REPEATED},
    {0}};
const struct spec_block spec_container_block = {
    .path = "bootstrap.container", .doc = "The container engine of every node, and the images on it.",
    .fields = container_fields, .rules = rule_container};
/* clang-format on */
