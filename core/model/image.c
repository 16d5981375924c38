/* SPDX-License-Identifier: Apache-2.0 */
/* The text of a baked image's facts, and the choice of an image. */
#include "base/gp_base.h"

#include "model/image.h"

#include "base/form.h"
#include "base/hash.h"

#include <ctype.h>
#include <strings.h>

#define VERSION "v1"
#define WORD_CHARS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-+:/"

struct fact {
    const char *key;
    size_t offset;
};
/* In this order, each once. */
static const struct fact facts[] = {
    {"bootstrap", offsetof(struct image_facts, bootstrap)},
    {"arch", offsetof(struct image_facts, arch)},
    {"gpu", offsetof(struct image_facts, gpu)},
    {"base", offsetof(struct image_facts, base)},
    {"driver", offsetof(struct image_facts, driver)},
    {"cuda", offsetof(struct image_facts, cuda)},
    {"verdict", offsetof(struct image_facts, verdict)},
};

static size_t room(const struct fact *f) { return strcmp(f->key, "bootstrap") == 0 ? 65 : IMAGE_WORD; }

void image_facts_text(const struct image_facts *f, struct str *out) {
    str_add(out, VERSION);
    for (size_t i = 0; i < GP_ARRAY_LEN(facts); i++) {
        const char *value = (const char *)f + facts[i].offset;
        str_addf(out, " %s=%s", facts[i].key, value[0] != '\0' ? value : "-");
    }
}

bool image_facts_parse(struct image_facts *f, const char *text) {
    GP_AUTO_STRV struct strv words = {0};
    *f = (struct image_facts){0};
    if (text == NULL || strlen(text) > 256) return false;
    strv_split(&words, text, " ");
    if (words.n != GP_ARRAY_LEN(facts) + 1 || strcmp(words.v[0], VERSION) != 0) return false;
    for (size_t i = 0; i < GP_ARRAY_LEN(facts); i++) {
        const char *word = words.v[i + 1];
        size_t n = strlen(facts[i].key);
        if (strncmp(word, facts[i].key, n) != 0 || word[n] != '=') return false;
        const char *value = word + n + 1;
        if (value[0] == '\0' || strspn(value, WORD_CHARS) != strlen(value) || strlen(value) >= room(&facts[i]))
            return false;
        if (strcmp(value, "-") != 0) str_put((char *)f + facts[i].offset, room(&facts[i]), value);
    }
    return form_spec_hash(f->bootstrap) && f->arch[0] != '\0';
}

/* Names of GPUs and systems become words of the tag. Two long ones that begin alike have different hashes. */
static void put_word(char dst[IMAGE_WORD], const char *text) {
    char hash[65];
    size_t n = text != NULL ? strlen(text) : 0;
    if (n >= IMAGE_WORD) {
        GP_AUTO_FREE char *lower = xstrdup(text); /* names of GPUs are compared without case */
        for (char *c = lower; *c != '\0'; c++) *c = (char)tolower((unsigned char)*c);
        sha256_hex(lower, n, hash);
        snprintf(dst, IMAGE_WORD, "%.*s-%.8s", IMAGE_WORD - 10, text, hash);
    } else {
        str_put(dst, IMAGE_WORD, text != NULL ? text : "");
    }
    for (char *c = dst; *c != '\0'; c++)
        if (strchr(WORD_CHARS, *c) == NULL) *c = '-';
}

void image_facts_wanted(const struct spec *spec, const struct spec_image *image, const char *arch,
                        struct image_facts *ret) {
    *ret = (struct image_facts){0};
    spec_bootstrap_hash(spec, ret->bootstrap);
    put_word(ret->arch, arch);
    put_word(ret->gpu, spec->gpu.count > 0 ? spec->gpu.model : NULL);
    put_word(ret->base, image->id != NULL ? image->id : image->os);
}

static const char *or_none(const char *s) { return s[0] != '\0' ? s : "none"; }

char *image_differs(const struct image_facts *want, const struct image_facts *has) {
    if (strcmp(want->arch, has->arch) != 0) return xasprintf("it is for %s, the node is %s", has->arch, want->arch);
    if (strcasecmp(want->gpu, has->gpu) != 0)
        return xasprintf("its GPU model is %s, the spec's is %s", or_none(has->gpu), or_none(want->gpu));
    if (want->base[0] != '\0' && strcmp(want->base, has->base) != 0)
        return xasprintf("it was baked from %s, the spec names %s", has->base[0] != '\0' ? has->base : "auto",
                         want->base);
    if (strcmp(want->bootstrap, has->bootstrap) != 0)
        return xasprintf("'bootstrap' of the spec was changed since (%.8s, now %.8s)", has->bootstrap, want->bootstrap);
    return NULL;
}

/* --- whose it is --- */

void image_record(const struct resource *image, struct resource *ret) {
    char hash[65];
    resource_init(ret, RES_IMAGE, image->provider);
    resource_set(&ret->region, image->region);
    resource_set(&ret->id, image->id);
    resource_set(&ret->owner, image->owner);
    resource_set(&ret->stack, image->stack);
    resource_set(&ret->uid, IMAGE_RECORD_UID);
    sha256_hex(image->image, strlen(image->image), hash);
    resource_set(&ret->spec_hash, hash);
    ret->state = RES_RUNNING;
    ret->billed = image->billed;
    ret->ours = true;
}

static const struct resource *record_of(const struct resource_list *records, const char *provider, const char *id) {
    for (size_t i = 0; i < records->list.len; i++) {
        const struct resource *k = &records->list.items[i];
        if (k->kind == RES_IMAGE && k->ours && str_eq(k->provider, provider) && str_eq(k->id, id)) return k;
    }
    return NULL;
}

static bool is_recorded(const struct resource_list *records, const struct resource *r) {
    char hash[65];
    if (r->kind == RES_SNAPSHOT) return r->of_image[0] != '\0' && record_of(records, r->provider, r->of_image) != NULL;
    const struct resource *k = record_of(records, r->provider, r->id);
    sha256_hex(r->image, strlen(r->image), hash);
    return k != NULL && str_eq(k->spec_hash, hash);
}

void image_mark_ours(struct resource_list *listed, const struct resource_list *records, const struct proof_key *key) {
    for (size_t i = 0; i < listed->list.len; i++) {
        struct resource *r = &listed->list.items[i];
        if (r->kind != RES_IMAGE && r->kind != RES_SNAPSHOT) continue;
        r->ours = is_recorded(records, r) || (key != NULL && proof_image_holds(key, r));
    }
}

static bool has_word(const char *words, const char *word) {
    GP_AUTO_STRV struct strv all = {0};
    strv_split(&all, words, " ");
    return strv_has(&all, word);
}

const struct resource *image_of_snapshot(const struct resource_list *l, const struct resource *snapshot) {
    const struct resource *found = NULL;
    for (size_t i = 0; i < l->list.len; i++) {
        const struct resource *r = &l->list.items[i];
        bool near = r->kind == RES_IMAGE && r->state != RES_GONE && str_eq(r->provider, snapshot->provider) &&
                    str_eq(r->region, snapshot->region);
        if (!near || !(has_word(r->snapshots, snapshot->id) || str_eq(r->id, snapshot->of_image))) continue;
        if (found == NULL || (r->ours && !found->ours)) found = r; /* anybody may register an image with it */
    }
    return found;
}

/* --- the choice --- */

#define UNPROVEN_NAMED 3 /* ids that the reason names */

static bool newer(const struct resource *a, const struct resource *b) {
    return b == NULL || a->created_s > b->created_s || (a->created_s == b->created_s && strcmp(a->id, b->id) > 0);
}

/* Why one image is not used; NULL: it is. Caller frees. */
static char *unusable(const struct resource *r, const struct image_facts *want, const char *region,
                      char *(*unfit)(const struct resource *image)) {
    struct image_facts has;
    if (!image_facts_parse(&has, r->image)) return xstrdup("its tag 'image' is not one that gpuprov writes");
    if (r->state != RES_RUNNING)
        return xasprintf("it is %s", r->state == RES_PENDING ? "not available yet" : "failed or being removed");
    if (!str_eq(r->region, region)) return xasprintf("it is in %s", r->region);
    if (strcmp(has.verdict, "ready") != 0) return xasprintf("its node was '%s'", has.verdict);
    char *why = image_differs(want, &has);
    return why == NULL && unfit != NULL ? unfit(r) : why;
}

/* Of two that are not used: the one that the reason names. */
static bool nearer(const struct resource *a, const struct resource *b, const char *name) {
    bool own_a = str_eq(a->stack, name), own_b = str_eq(b->stack, name);
    if (a->ours != b->ours) return a->ours;
    return own_a != own_b ? own_a : newer(a, b);
}

/* Images that would fit if anything proved that this owner baked them. */
struct unproven {
    struct strv ids;
    size_t more;
};

static void note_unproven(struct unproven *u, const struct resource *r) {
    if (u->ids.n < UNPROVEN_NAMED) strv_add(&u->ids, r->id);
    else u->more++;
}

static char *reason(const struct resource *near, const char *near_why, const struct unproven *u, const char *provider,
                    const char *region) {
    GP_AUTO_STR struct str s = {0};
    if (near != NULL)
        str_addf(&s, "no baked image at %s %s fits: %s of '%s': %s", provider, region, near->id, near->stack, near_why);
    else if (u->ids.n == 0) str_addf(&s, "no baked image of this owner is at %s %s", provider, region);
    else str_addf(&s, "no baked image at %s %s is proven", provider, region);
    if (u->ids.n > 0) {
        GP_AUTO_FREE char *ids = strv_join(&u->ids, ", ");
        str_addf(&s, ": %s", ids);
        if (u->more > 0) str_addf(&s, " and %zu more", u->more);
        str_addf(&s,
                 " fit%s by tags, which others in the account can write, and nothing proves that this owner baked "
                 "%s: copy the file signing_key from the state folder of the machine that did, or bake again",
                 u->ids.n + u->more > 1 ? "" : "s", u->ids.n + u->more > 1 ? "them" : "it");
    }
    return str_steal(&s);
}

const struct resource *image_choose(const struct resource_list *images, const struct image_facts *want,
                                    const char *provider, const char *region, const char *name,
                                    char *(*unfit)(const struct resource *image), char **ret_why) {
    const struct resource *best = NULL, *near = NULL;
    GP_AUTO_FREE char *near_why = NULL;
    struct unproven foreign = {0};
    for (size_t i = 0; i < images->list.len; i++) {
        const struct resource *r = &images->list.items[i];
        if (r->kind != RES_IMAGE || r->state == RES_GONE || !str_eq(r->provider, provider)) continue;
        char *why = unusable(r, want, region, unfit);
        if (why == NULL && !r->ours) note_unproven(&foreign, r);
        else if (why == NULL && newer(r, best)) best = r;
        if (why != NULL && (near == NULL || nearer(r, near, name))) {
            near = r;
            free(near_why);
            near_why = GP_STEAL(why);
        }
        free(why);
    }
    if (best == NULL) *ret_why = reason(near, near_why, &foreign, provider, region);
    strv_clear(&foreign.ids);
    return best;
}
