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

const struct resource *image_choose(const struct resource_list *images, const struct image_facts *want,
                                    const char *provider, const char *region, const char *name,
                                    char *(*unfit)(const struct resource *image), char **ret_why) {
    const struct resource *best = NULL, *near = NULL;
    GP_AUTO_FREE char *near_why = NULL;
    for (size_t i = 0; i < images->list.len; i++) {
        const struct resource *r = &images->list.items[i];
        if (r->kind != RES_IMAGE || r->state == RES_GONE || !str_eq(r->provider, provider)) continue;
        char *why = unusable(r, want, region, unfit);
        if (why == NULL && newer(r, best)) best = r;
        bool own = str_eq(r->stack, name), near_own = near != NULL && str_eq(near->stack, name);
        if (why != NULL && (near == NULL || (own && !near_own) || (own == near_own && newer(r, near)))) {
            near = r;
            free(near_why);
            near_why = GP_STEAL(why);
        }
        free(why);
    }
    if (best != NULL) return best;
    if (near == NULL) *ret_why = xasprintf("no baked image of this owner is at %s %s", provider, region);
    else
        *ret_why = xasprintf("no baked image at %s %s fits: %s of '%s': %s", provider, region, near->id, near->stack,
                             near_why);
    return NULL;
}
