/* SPDX-License-Identifier: Apache-2.0 */
/* The decoded spec as JSON: the form the journal keeps (a spec again) and the form that is hashed
 * (the same, with local files by their base name). Every default is written out, keys are in the
 * tables' order. No I/O. Any thread. */
#include "base/gp_base.h"

#include "base/json.h"
#include "model/spec_internal.h"

static json_t *text_json(const char *s, bool shell) {
    GP_AUTO_FREE char *escaped = spec_escape(s, shell);
    return json_string(escaped);
}

static void put(json_t *to, const char *key, const char *text) {
    if (text != NULL) json_object_set_new(to, key, text_json(text, false));
}

static void put_script(json_t *to, const char *key, const char *text) {
    if (text != NULL) json_object_set_new(to, key, text_json(text, true));
}

static void put_list(json_t *to, const char *key, const struct strv *v) {
    if (v->n == 0) return;
    json_t *list = json_array();
    for (size_t i = 0; i < v->n; i++) json_array_append_new(list, text_json(v->v[i], false));
    json_object_set_new(to, key, list);
}

static void put_path(json_t *to, const char *key, const char *path, bool hash) {
    const char *slash = path != NULL ? strrchr(path, '/') : NULL;
    put(to, key, hash && slash != NULL ? slash + 1 : path);
}

static json_t *offers_json(const struct spec *s, bool hash) {
    json_t *list = json_array();
    for (size_t i = 0; i < s->offers.len; i++) {
        const struct spec_offer *o = &s->offers.items[i];
        json_t *j = json_object();
        put(j, "provider", o->provider);
        put_list(j, "regions", &o->regions);
        put_list(j, "zones", &o->zones);
        if (spec_provider_takes(o->provider, "market")) put(j, "market", spec_market_name(o->market));
        put(j, "instance_type", o->instance_type);
        put(j, "subnet", o->subnet);
        put(j, "role", o->role);
        put_path(j, "hosts", o->hosts, hash);
        json_array_append_new(list, j);
    }
    return list;
}

static json_t *image_json(const struct spec_image *image) {
    if (image->kind == IMAGE_AUTO) return json_string("auto");
    json_t *j = json_object();
    put(j, image->kind == IMAGE_OS ? "os" : "id", image->value);
    return j;
}

static json_t *access_json(const struct spec_access *a, bool hash) {
    json_t *j = json_object();
    json_object_set_new(j, "public_ip", json_boolean(a->public_ip));
    put(j, "bastion", a->bastion);
    put_list(j, "ssh_from", &a->ssh_from);
    put_path(j, "key", a->key, hash);
    return j;
}

static json_t *bootstrap_json(const struct spec *s) {
    json_t *j = json_object();
    put_list(j, "packages", &s->packages);
    json_t *steps = json_array();
    for (size_t i = 0; i < s->steps.len; i++) {
        json_t *step = json_object();
        put(step, "name", s->steps.items[i].name);
        put_script(step, "run", s->steps.items[i].run);
        put_script(step, "check", s->steps.items[i].check);
        json_array_append_new(steps, step);
    }
    json_object_set_new(j, "steps", steps);
    return j;
}

static json_t *duration_json(int64_t ms) {
    GP_AUTO_FREE char *text = xasprintf("%lldms", (long long)ms);
    return json_string(text);
}

static json_t *validate_json(const struct spec_validate *v, bool hash) {
    json_t *j = json_object();
    json_object_set_new(j, "time", duration_json(v->time_ms));
    put_list(j, "require", &v->require);
    json_t *floors = json_object();
    for (size_t i = 0; i < v->floors.len; i++) {
        const struct spec_floor *f = &v->floors.items[i];
        bool figure = f->metric[0] != '\0';
        GP_AUTO_FREE char *key = xasprintf("%s%s%s", f->check, figure ? "." : "", f->metric);
        bool unit = f->unit[0] != '\0' && !hash;
        GP_AUTO_FREE char *value =
            xasprintf("%.12g%s%s", hash ? spec_floor_base(f) : f->value, unit ? " " : "", unit ? f->unit : "");
        json_object_set_new(floors, key, text_json(value, false));
    }
    json_object_set_new(j, "floors", floors);
    json_object_set_new(j, "strict", json_boolean(v->strict));
    put_path(j, "baseline", v->baseline, hash);
    return j;
}

static char *form(const struct spec *s, bool hash) {
    GP_AUTO_JSON json_t *j = json_object();
    put(j, "apiVersion", SPEC_API_VERSION);
    put(j, "name", s->name);
    json_object_set_new(j, "nodes", json_integer(s->nodes));
    if (s->gpu.model != NULL) {
        json_t *gpu = json_object();
        put(gpu, "model", s->gpu.model);
        json_object_set_new(gpu, "count", json_integer(s->gpu.count));
        json_object_set_new(j, "gpu", gpu);
    }
    put(j, "order", s->order == ORDER_LISTED ? "listed" : "cheapest");
    json_object_set_new(j, "offers", offers_json(s, hash));
    json_t *limits = json_object();
    json_object_set_new(limits, "ttl", duration_json(s->ttl_ms));
    json_object_set_new(j, "limits", limits);
    json_object_set_new(j, "image", image_json(&s->image));
    json_object_set_new(j, "access", access_json(&s->access, hash));
    json_object_set_new(j, "bootstrap", bootstrap_json(s));
    json_object_set_new(j, "validate", validate_json(&s->validate, hash));
    json_t *secrets = json_array();
    for (size_t i = 0; i < s->secrets.len; i++) {
        json_t *secret = json_object();
        put(secret, "env", s->secrets.items[i].env);
        const char *from = s->secrets.items[i].from;
        bool file = str_starts(from, "file:");
        GP_AUTO_FREE char *base = xasprintf("file:%s", strrchr(from, '/') ? strrchr(from, '/') + 1 : "");
        put(secret, "from", hash && file ? base : from);
        json_array_append_new(secrets, secret);
    }
    json_object_set_new(j, "secrets", secrets);
    return json_text_exact(j, 0);
}

char *spec_canonical(const struct spec *s) { return form(s, false); }
char *spec_hash_form(const struct spec *s) { return form(s, true); }
