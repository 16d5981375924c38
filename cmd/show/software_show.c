/* SPDX-License-Identifier: Apache-2.0 */
/* The set of GPU software of each offer of a spec, with the reason for each version: as text and as JSON. */
#include "base/gp_base.h"

#include "cmd/show/software_show.h"

struct shown {
    struct strv providers; /* of the offers whose nodes get this set */
    struct software_wish wish;
    struct software_set set;
    bool launched;
    bool more; /* a further version of cuda.runtime: only its CUDA is installed */
};

static bool same(const struct shown *a, const struct shown *b) {
    return a->launched == b->launched && a->more == b->more && str_eq(a->wish.os, b->wish.os) &&
           str_eq(a->wish.cuda, b->wish.cuda);
}

static void put_before(struct software_value *v, const char *text) {
    GP_AUTO_FREE char *why = xasprintf("%s; %s", text, v->why);
    str_put(v->why, sizeof v->why, why);
}

/* To the solver a mirror is NVIDIA's repository. */
static void as_written(const struct spec *spec, struct software_value *source) {
    const char *wish = spec->software.driver.source;
    if (wish == NULL || !str_starts(wish, "http") || source->text[0] == '\0') return;
    str_put(source->text, sizeof source->text, "mirror");
    GP_AUTO_FREE char *why = xasprintf("the spec has it: %s", wish);
    str_put(source->why, sizeof source->why, why);
}

/* The solver judges every value; the reasons name those that this spec does not install. */
static void as_installed(const struct spec *spec, struct shown *s) {
    struct software_value *torch = &s->set.at[SOFTWARE_TORCH];
    const char *wish = spec->python.torch;
    bool fixed = wish != NULL && !str_eq(wish, "auto") && !str_eq(wish, "none");
    if (fixed && torch->text[0] == '\0') {
        str_put(torch->text, sizeof torch->text, wish);
        str_put(torch->why, sizeof torch->why, "the spec has it; it is in no table, so nothing was compared with it");
    } else if (s->wish.torch == NULL) { /* neither python.torch nor a package with its build */
        put_before(torch, "not installed, because the spec has no bootstrap.python.torch");
    }
    as_written(spec, &s->set.at[SOFTWARE_SOURCE]);
    if (spec->container.engine == ENGINE_NONE)
        put_before(&s->set.toolkit, "not installed, because the spec has no bootstrap.container");
    char why[300];
    for (size_t i = 0; i < spec->container.images.n; i++)
        if (software_image_runs(spec->container.images.v[i], &s->set, &s->wish.gpu, why, sizeof why) ==
            SOFTWARE_CONTAINER_COMPAT) {
            GP_AUTO_FREE char *note = xasprintf("image '%.100s': %s", spec->container.images.v[i], why);
            strv_add(&s->set.notes, note);
        }
    if (s->launched && s->wish.os == NULL && !spec_software_written(spec))
        strv_add(&s->set.notes, "an image that has a working driver keeps its driver and CUDA");
}

/* The offers whose sets differ. The spec has been checked, so each has a set. */
static size_t collect(const struct spec *spec, struct shown **ret) {
    size_t versions = GP_MAX(spec->software.cuda.runtime.n, (size_t)1), n = 0;
    struct shown *list = xcalloc(spec->offers.len * versions + 1, sizeof *list);
    for (size_t i = 0; i < spec->offers.len; i++) {
        for (size_t v = 0; v < versions; v++) {
            const struct spec_offer *offer = &spec->offers.items[i];
            struct shown one = {.launched = spec_offer_launched(offer), .more = v > 0};
            one.wish = spec_software_wish(spec, i, one.launched, v);
            size_t at = 0;
            while (at < n && !same(&list[at], &one)) at++;
            if (at == n) {
                if (software_solve(&one.wish, &one.set, NULL) != 0) continue;
                as_installed(spec, &one);
                list[n++] = one;
            }
            if (!strv_has(&list[at].providers, offer->provider)) strv_add(&list[at].providers, offer->provider);
        }
    }
    *ret = list;
    return n;
}

static void release(struct shown *list, size_t n) {
    for (size_t i = 0; i < n; i++) {
        strv_clear(&list[i].providers);
        software_set_clear(&list[i].set);
    }
    free(list);
}

static bool left_alone(const struct spec *spec, const struct shown *s) {
    return spec->gpu.count == 0 || (!s->launched && !spec_software_written(spec));
}

static void add_value(json_t *to, const char *name, const struct software_value *v) {
    json_object_set_new(to, name, json_pack("{s:s, s:s}", "value", v->text, "why", v->why));
}

json_t *software_json(const struct spec *spec) {
    json_t *all = json_array();
    struct shown *list = NULL;
    size_t n = collect(spec, &list);
    for (size_t i = 0; i < n; i++) {
        const struct shown *s = &list[i];
        json_t *providers = json_array();
        for (size_t k = 0; k < s->providers.n; k++) json_array_append_new(providers, json_string(s->providers.v[k]));
        json_t *j = json_pack("{s:s, s:o, s:s?, s:s?, s:b}", "provider", s->providers.v[0], "providers", providers,
                              "gpu", spec->gpu.model, "os", s->wish.os, "left_alone", (int)left_alone(spec, s));
        json_array_append_new(all, j);
        if (left_alone(spec, s)) continue;
        json_t *values = json_object(), *notes = json_array();
        if (s->more) {
            add_value(values, software_key_name(SOFTWARE_CUDA), &s->set.at[SOFTWARE_CUDA]);
            json_object_set_new(j, "values", values);
            json_decref(notes);
            continue;
        }
        for (int k = 0; k < SOFTWARE_KEYS; k++)
            add_value(values, software_key_name((enum software_key)k), &s->set.at[k]);
        add_value(values, "fabric_manager", &s->set.fabric);
        add_value(values, "imex", &s->set.imex);
        add_value(values, "container_toolkit", &s->set.toolkit);
        for (size_t k = 0; k < s->set.notes.n; k++) json_array_append_new(notes, json_string(s->set.notes.v[k]));
        json_object_set_new(j, "values", values);
        json_object_set_new(j, "driver_minimum", json_string(s->set.driver_minimum));
        json_object_set_new(j, "torch_tag", json_string(s->set.torch_tag));
        json_object_set_new(j, "notes", notes);
    }
    release(list, n);
    return all;
}

void software_show(const struct spec *spec, FILE *to) {
    struct shown *list = NULL;
    size_t n = collect(spec, &list);
    for (size_t i = 0; i < n; i++) {
        const struct shown *s = &list[i];
        GP_AUTO_FREE char *providers = strv_join(&s->providers, ", ");
        fprintf(to, "%s, %s, %s:\n", providers, spec->gpu.model != NULL ? spec->gpu.model : "no GPU",
                s->wish.os != NULL ? s->wish.os
                : s->launched      ? "an image that the provider chooses"
                                   : "the system that is there");
        if (left_alone(spec, s)) {
            fprintf(to, "  %s\n",
                    spec->gpu.count == 0
                        ? "no GPU software: the spec has no 'gpu'"
                        : "the GPU software is left as it is: the nodes are containers or existed before, and "
                          "'bootstrap' names none");
            continue;
        }
        if (s->more) {
            const struct software_value *cuda = &s->set.at[SOFTWARE_CUDA];
            fprintf(to, "  %-17s %-23s %s, beside the first one\n", software_key_name(SOFTWARE_CUDA), cuda->text,
                    cuda->why);
            continue;
        }
        GP_AUTO_FREE char *text = software_explain(&s->set);
        fputs(text, to);
    }
    release(list, n);
}
