/* SPDX-License-Identifier: Apache-2.0 */
/* The spec as `gpuprov bake` uses it: the hash of its bootstrap, and the form that one node is launched with. No I/O.
 * Any thread. */
#include "base/gp_base.h"

#include "base/hash.h"
#include "base/json.h"
#include "spec/spec_internal.h"

void spec_bootstrap_hash(const struct spec *spec, char dst[65]) {
    GP_AUTO_FREE char *form = spec_hash_form(spec);
    GP_AUTO_JSON json_t *j = NULL;
    if (json_parse(form, strlen(form), "the spec", &j, NULL) != 0) abort(); /* it was made from JSON */
    json_t *bootstrap = json_at(j, "bootstrap");
    GP_AUTO_FREE char *text = bootstrap != NULL ? json_text_exact(bootstrap, 0) : xstrdup("{}");
    sha256_hex(text, strlen(text), dst);
}

/* Without `baked` an image with nothing else is the default. */
static void no_baked(json_t *map) {
    json_t *image = json_object_get(map, "image");
    if (json_is_object(image)) json_object_del(image, "baked");
    if (json_is_object(image) && json_object_size(image) == 0) json_object_del(map, "image");
}

/* Removes what names a check that one node cannot run. */
static void only_alone(json_t *validate, bool (*alone)(const char *check)) {
    json_t *require = json_object_get(validate, "require"), *floors = json_object_get(validate, "floors");
    for (size_t i = json_array_size(require); i > 0; i--)
        if (!alone(json_string_value(json_array_get(require, i - 1)))) json_array_remove(require, i - 1);
    if (require != NULL && json_array_size(require) == 0) json_object_del(validate, "require");
    void *next = NULL;
    const char *key = NULL;
    json_t *value = NULL;
    json_object_foreach_safe(floors, next, key, value) if (!alone(key)) json_object_del(floors, key);
    if (floors != NULL && json_object_size(floors) == 0) json_object_del(validate, "floors");
}

char *spec_bake_form(const struct spec *spec, const char *name, bool (*alone)(const char *check)) {
    GP_AUTO_JSON json_t *j = spec_json(spec);
    size_t i = 0;
    json_t *offer = NULL, *validate = json_object_get(j, "validate");
    json_object_set_new(j, "name", json_string(name));
    json_object_set_new(j, "nodes", json_integer(1));
    no_baked(j);
    json_array_foreach(json_object_get(j, "offers"), i, offer) {
        no_baked(offer);
        if (json_object_get(offer, "market") != NULL)
            json_object_set_new(offer, "market", json_string(spec_market_name(MARKET_ON_DEMAND)));
    }
    if (validate != NULL) only_alone(validate, alone);
    return json_text_exact(j, 0);
}
