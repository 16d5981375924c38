/* SPDX-License-Identifier: Apache-2.0 */
/* Baked images as a table and as JSON. */
#include "base/gp_base.h"

#include "image_show.h"

#include "base/json.h"
#include "model/image.h"

static const char *state_text(const struct resource *r) {
    if (r->state == RES_RUNNING) return "available";
    return r->state == RES_PENDING ? "pending" : r->state == RES_STOPPED ? "failed" : resource_state_name(r->state);
}

static json_t *word(const char *s) { return s != NULL && s[0] != '\0' ? json_any_text(s) : json_null(); }

json_t *image_json(const struct resource *r) {
    struct image_facts f;
    bool known = image_facts_parse(&f, r->image);
    json_t *j =
        json_pack("{s:s, s:o, s:o, s:o, s:o, s:o, s:s, s:o, s:b, s:o, s:o}", "kind", resource_kind_name(r->kind), "id",
                  json_any_text(r->id), "provider", json_any_text(r->provider), "region", word(r->region), "spec",
                  word(r->stack), "uid", word(r->uid), "state", state_text(r), "state_reason", word(r->state_reason),
                  "billed", (int)r->billed, "created", time_json(r->created_s), "owner", word(r->owner));
    json_object_set_new(j, "proven", json_boolean(r->ours));
    if (r->kind != RES_IMAGE) return j;
    json_object_set_new(j, "bootstrap", word(known ? f.bootstrap : NULL));
    json_object_set_new(j, "arch", word(known ? f.arch : NULL));
    json_object_set_new(j, "gpu", word(known ? f.gpu : NULL));
    json_object_set_new(j, "base", word(known ? f.base : NULL));
    json_object_set_new(j, "driver", word(known ? f.driver : NULL));
    json_object_set_new(j, "cuda", word(known ? f.cuda : NULL));
    json_object_set_new(j, "verdict", word(known ? f.verdict : NULL));
    return j;
}

json_t *images_json(const struct resource_list *l) {
    json_t *list = json_array();
    for (size_t i = 0; i < l->list.len; i++) json_array_append_new(list, image_json(&l->list.items[i]));
    return list;
}

static void show_one(const struct resource *r, FILE *to) {
    struct image_facts f = {0};
    char when[40];
    time_format_utc(when, sizeof when, r->created_s);
    fprintf(to, "%s  %s %s  of '%s'  %s%s%s  %s\n", r->id, r->provider, r->region, r->stack, state_text(r),
            r->state_reason[0] != '\0' ? ": " : "", r->state_reason, when);
    if (!r->ours)
        fputs(
            "  not proven: others in the account can write its tags, so no node is made from it and gc keeps it; copy "
            "the file signing_key from the state folder of the machine that baked it, or remove it\n",
            to);
    if (r->kind != RES_IMAGE || !image_facts_parse(&f, r->image)) return;
    fprintf(to, "  %s, GPU %s, driver %s, CUDA %s, %s; bootstrap %.8s, from %s\n", f.arch,
            f.gpu[0] != '\0' ? f.gpu : "none", f.driver[0] != '\0' ? f.driver : "none",
            f.cuda[0] != '\0' ? f.cuda : "none", f.verdict, f.bootstrap, f.base[0] != '\0' ? f.base : "auto");
}

/* Each image with its snapshots below it; then snapshots whose image is gone. */
void show_images(const struct resource_list *l, FILE *to) {
    for (size_t i = 0; i < l->list.len; i++) {
        const struct resource *image = &l->list.items[i];
        if (image->kind != RES_IMAGE) continue;
        show_one(image, to);
        for (size_t k = 0; k < l->list.len; k++) {
            const struct resource *s = &l->list.items[k];
            if (s->kind == RES_SNAPSHOT && image_of_snapshot(l, s) == image) fprintf(to, "  snapshot %s\n", s->id);
        }
    }
    for (size_t i = 0; i < l->list.len; i++) {
        const struct resource *s = &l->list.items[i];
        if (s->kind != RES_SNAPSHOT || image_of_snapshot(l, s) != NULL) continue;
        fputs("snapshot without an image: ", to);
        show_one(s, to);
    }
}
