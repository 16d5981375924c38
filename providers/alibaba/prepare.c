// SPDX-License-Identifier: Apache-2.0
/* The claim of a stack: a key pair in the home region, whose name is made of owner and stack and which has uid, spec
 * and expiry as tags of the same call. ECS keeps the name unique, so of two concurrent claims one wins and the other
 * reads the winner. No machine uses the key pair. One thread. */
#include "base/gp_base.h"

#include "providers/alibaba/ali_int.h"

#include "base/clock.h"
#include "base/fs.h"
#include "base/hash.h"
#include "providers/common/cloud_clock.h"
#include "providers/common/intents.h"
#include "providers/common/launch/settle.h"
#include "providers/common/ownership.h"

#define CLAIM_SHARED_S 600 /* age up to which another run may still be working on a claim */
#define MODULUS_BYTES 256

struct claim {
    char *name, *region;
    struct tags tags;
    bool there;
};

static void claim_clear(struct claim *c) {
    free(c->name);
    free(c->region);
    if (c->there) tags_clear(&c->tags);
}

/* A name has letters, digits, ':', '_' and '-', an owner more: of it and the stack there is a hash. */
static char *claim_name(const char *owner, const char *stack) {
    char hex[65];
    GP_AUTO_FREE char *both = xasprintf("%s/%s", owner, stack);
    sha256_hex(both, strlen(both), hex);
    return xasprintf("gpuprov-%s-%.32s", stack, hex);
}

static void add_number(struct str *out, const void *bytes, size_t n) {
    unsigned char len[4] = {(unsigned char)(n >> 24), (unsigned char)(n >> 16), (unsigned char)(n >> 8),
                            (unsigned char)n};
    str_add_mem(out, len, sizeof len);
    str_add_mem(out, bytes, n);
}

/* An RSA public key in OpenSSH's form whose modulus is hashes of the name: nobody has a private half of it. */
static char *nobodys_key(const char *name) {
    static const unsigned char exponent[] = {1, 0, 1};
    unsigned char modulus[1 + MODULUS_BYTES] = {0};
    GP_AUTO_STR struct str blob = {0};
    for (size_t i = 0; i < MODULUS_BYTES / SHA256_BYTES; i++) {
        GP_AUTO_FREE char *part = xasprintf("%s/%zu", name, i);
        sha256_bytes(part, strlen(part), modulus + 1 + i * SHA256_BYTES);
    }
    modulus[1] |= 0x80;
    modulus[MODULUS_BYTES] |= 1;
    add_number(&blob, "ssh-rsa", 7);
    add_number(&blob, exponent, sizeof exponent);
    add_number(&blob, modulus, sizeof modulus);
    GP_AUTO_FREE char *coded = base64_text(blob.s, blob.len);
    return xasprintf("ssh-rsa %s gpuprov", coded);
}

/* --- the cloud's claim --- */

static int on_pair(void *ctx, const json_t *item, struct gp_error *err) {
    struct claim *c = ctx;
    (void)err;
    if (c->there || strcmp(json_str(item, "KeyPairName", ""), c->name) != 0) return 0;
    ali_tags_decode(item, &c->tags);
    c->there = true;
    return 0;
}

static int find(struct ali *a, struct claim *c, struct gp_error *err) {
    struct ali_list l = {.service = ALI_ECS,
                         .region = c->region,
                         .action = "DescribeKeyPairs",
                         .items = "KeyPairs.KeyPair",
                         .page = 50,
                         .numbered = true,
                         .each = on_pair,
                         .ctx = c};
    ali_begin(&l.query, c->region);
    ali_param(&l.query, "KeyPairName", c->name);
    return ali_list_one(a, &l, err);
}

static void resource_of(const struct claim *c, struct resource *ret) {
    resource_init(ret, RES_KEY_PAIR, "alibaba");
    resource_set(&ret->region, c->region);
    resource_set(&ret->id, c->name);
    tags_to_resource(&c->tags, -1, ret);
    ret->state = RES_RUNNING;
    ret->price_usd_per_h = 0;
}

/* All regions in one value that fits a tag of this cloud. */
static char *regions_text(const struct strv *regions) {
    char *text = tags_regions_text(regions);
    if (strlen(text) <= labels_alibaba.value_max) return text;
    free(text);
    return xstrdup(TAGS_EVERYWHERE);
}

static int create(struct ali *a, const struct stack *s, const char *regions, struct claim *c, struct gp_error *err) {
    GP_AUTO_STR struct str query = {0};
    GP_AUTO_REST struct rest_reply reply = {0};
    GP_AUTO_FREE char *key = nobodys_key(c->name);
    struct resource one;
    struct gp_error why = {0};
    struct intent in;
    struct claim made = {.name = c->name, .region = c->region, .there = true};
    tags_of_stack(&made.tags, s);
    made.tags.created_s = s->created_s;
    made.tags.claim = true;
    resource_set(&made.tags.regions, regions);
    ali_begin(&query, c->region);
    ali_param(&query, "KeyPairName", c->name);
    ali_param(&query, "PublicKeyBody", key);
    ali_tags_add(&query, &made.tags);
    cloud_intent_thing(s, "alibaba", c->region, RES_KEY_PAIR, c->name, query.s, &in);
    in.claim = true;
    int r = journal_intent(a->journal, &in, err);
    if (r == 0) {
        r = ali_call(a, ALI_ECS, c->region, "ImportKeyPair", &query, REST_ONCE, &reply, &why);
        resource_of(&made, &one);
        r = cloud_thing_created(a->journal, &in, r, &one, &why, err);
        resource_clear(&one);
    }
    intent_clear(&in);
    if (r == 0) {
        c->tags = made.tags;
        c->there = true;
    } else {
        tags_clear(&made.tags);
    }
    return r;
}

/* --- tags of a claim --- */

/* The regions where a stack of this spec may have resources here. */
static void spec_regions(const struct ali *a, const struct spec *spec, const char *home, struct strv *ret) {
    strv_add(ret, home);
    for (size_t i = 0; i < spec->offers.len; i++) {
        const struct spec_offer *o = &spec->offers.items[i];
        if (!str_eq(o->provider, "alibaba")) continue;
        for (size_t k = 0; k < o->regions.n; k++)
            if (!strv_has(ret, o->regions.v[k])) strv_add(ret, o->regions.v[k]);
        if (o->regions.n == 0 && !strv_has(ret, ali_home(a))) strv_add(ret, ali_home(a));
    }
}

/* A claim that another run of the same spec created a moment ago: both runs use its times, so that both send equal
 * requests. The spec's times replace those of any other claim without machines. */
static bool shares_times(const struct ali *a, const struct tags *t, const struct stack *s) {
    int64_t now_s = cloud_now_s(&a->base), age_s = now_s - t->created_s;
    int64_t ttl_s = s->expires_s - (s->created_s > 0 ? s->created_s : now_s);
    return t->created_s > 0 && age_s < CLAIM_SHARED_S && age_s > -CLAIM_SHARED_S &&
           str_eq(t->spec_hash, s->spec_hash) && llabs(t->expires_s - t->created_s - ttl_s) <= 60;
}

static void add_tag(struct str *query, int *n, const char *key, const char *value) {
    (*n)++;
    ali_paramf(query, key, "Tag.%d.Key", *n);
    ali_paramf(query, value, "Tag.%d.Value", *n);
}

/* Adds each region that the claim does not name yet, one tag per region, so that two concurrent runs do not overwrite
 * each other; with `times` also those of the stack. */
static int retag(struct ali *a, const struct stack *s, const struct strv *regions, bool times, struct claim *c,
                 struct gp_error *err) {
    GP_AUTO_STR struct str query = {0};
    GP_AUTO_REST struct rest_reply reply = {0};
    GP_AUTO_FREE char *named = tags_regions(&c->tags);
    GP_AUTO_STRV struct strv before = {0};
    char when[32];
    int n = 0;
    bool all = !tags_regions_split(named, &before);
    ali_begin(&query, c->region);
    ali_param(&query, "ResourceType", "keypair");
    ali_param(&query, "ResourceId.1", c->name);
    for (size_t i = 0; !all && i < regions->n; i++) {
        if (strv_has(&before, regions->v[i])) continue;
        GP_AUTO_FREE char *key = xasprintf(ALI_TAG TAGS_REGION "%s", regions->v[i]);
        add_tag(&query, &n, key, TAGS_YES);
    }
    if (times) {
        time_format_utc(when, sizeof when, s->created_s);
        add_tag(&query, &n, ALI_TAG "created", when);
        time_format_utc(when, sizeof when, s->expires_s);
        add_tag(&query, &n, ALI_TAG "expires", when);
        add_tag(&query, &n, ALI_TAG "spec", s->spec_hash);
    }
    if (n == 0) return 0;
    int r = ali_call(a, ALI_ECS, c->region, "TagResources", &query, 0, &reply, err);
    if (r != 0) return gp_wrap(err, "could not update the claim %s", c->name);
    if (!times) return 0;
    c->tags.created_s = s->created_s;
    c->tags.expires_s = s->expires_s;
    resource_set(&c->tags.spec_hash, s->spec_hash);
    return 0;
}

/* --- prepare --- */

/* Reads or creates the claim. An unseen claim is not read first: if it exists, its name is refused. */
static int claim(struct ali *a, const struct prepare_req *req, struct claim *c, bool *ret_made, struct gp_error *err) {
    struct stack *s = req->stack;
    GP_AUTO_STRV struct strv names = {0};
    spec_regions(a, req->spec, s->region, &names);
    GP_AUTO_FREE char *regions = regions_text(&names);
    struct gp_error last = {0};
    char uid[17];
    int r = fs_random_hex(uid, 8, err);
    if (r != 0) return r;
    bool read = s->uid != NULL;
    for (int i = 0; i < 8; i++, read = true) {
        if (read) r = find(a, c, err);
        if (r != 0 || c->there) return r;
        if (i > 0 && gp_sleep(100 << i, a->cancel, NULL) != 0) return gp_fail(err, GP_ECANCELLED, "cancelled");
        struct stack fresh = {.owner = s->owner,
                              .name = s->name,
                              .uid = req->further ? s->uid : uid,
                              .spec_hash = s->spec_hash,
                              .unit = s->unit,
                              .created_s = cloud_now_s(&a->base),
                              .expires_s = s->expires_s};
        gp_error_clear(&last);
        r = create(a, &fresh, regions, c, &last);
        *ret_made = r == 0;
        if (r == 0) return 0;
        /* The name is taken, or the outcome is unknown: reading settles both. */
        if (r != -GP_EEXISTS && r != -GP_EUNKNOWN) break;
        r = 0;
    }
    if (err != NULL) *err = last;
    return -(int)last.code;
}

/* Continues with the claim as the cloud has it. made: this call created it. */
static int take(struct ali *a, const struct prepare_req *req, bool made, struct claim *c, struct gp_error *err) {
    struct stack *s = req->stack;
    GP_AUTO_STRV struct strv regions = {0};
    bool shared = made || shares_times(a, &c->tags, s);
    free(s->uid);
    s->uid = xstrdup(c->tags.uid);
    if (shared) {
        s->created_s = c->tags.created_s;
        s->expires_s = c->tags.expires_s;
    }
    spec_regions(a, req->spec, s->region, &regions);
    return retag(a, s, &regions, !shared, c, err);
}

/* A stack that has machines keeps its claim: its groups get the rules of the current spec, its machines the deadline,
 * their interfaces the tags that they lack, and the claim the regions and the times. */
static int apply(struct ali *a, const struct prepare_req *req, struct gp_error *err) {
    int r = ali_release_move(a, req->stack, req->known, err);
    if (r == 0) ali_fabric_complete(a, req->spec, req->stack, req->known);
    for (size_t i = 0; r == 0 && i < req->known->list.len; i++) {
        const struct resource *k = &req->known->list.items[i];
        if (k->state == RES_GONE || !str_eq(k->provider, "alibaba") || !str_eq(k->uid, req->stack->uid)) continue;
        if (k->kind == RES_GROUP) r = ali_group_rules(a, req->spec, k->region, k->id, false, err);
        if (k->kind != RES_KEY_PAIR || !k->claim) continue;
        struct claim c = {.name = xstrdup(k->id), .region = xstrdup(k->region)};
        GP_AUTO_FREE char *what = xasprintf("alibaba: the key pair '%s'", c.name);
        GP_AUTO_STRV struct strv regions = {0};
        spec_regions(a, req->spec, k->region, &regions);
        r = find(a, &c, err);
        if (r == 0 && c.there) r = cloud_check_owner(&c.tags, what, req->stack, req->stack->uid, err);
        if (r == 0 && c.there) r = retag(a, req->stack, &regions, c.tags.expires_s != req->stack->expires_s, &c, err);
        claim_clear(&c);
    }
    return r != 0 ? gp_wrap(err, "changes of stack '%s'", req->stack->name) : 0;
}

int ali_prepare(struct provider *p, const struct prepare_req *req, struct gp_error *err) {
    struct ali *a = ali_of(p);
    struct stack *s = req->stack;
    struct resource one;
    bool made = false;
    if (req->known != NULL) return apply(a, req, err);
    if (s->region == NULL || s->region[0] == '\0') {
        free(s->region);
        s->region = xstrdup(ali_home(a));
    }
    struct claim c = {.name = claim_name(s->owner, s->name), .region = xstrdup(s->region)};
    GP_AUTO_FREE char *what = xasprintf("alibaba: the key pair '%s'", c.name);
    int r = claim(a, req, &c, &made, err);
    if (r == 0) r = cloud_check_owner(&c.tags, what, s, req->further ? s->uid : NULL, err);
    if (r == 0) {
        resource_of(&c, &one);
        r = cloud_thing_settle(a->journal, &one, c.name, err);
        resource_clear(&one);
    }
    if (r == 0) r = take(a, req, made, &c, err);
    if (r == 0) {
        resource_of(&c, &one);
        r = journal_resource_put(a->journal, &one, err);
        resource_clear(&one);
    }
    claim_clear(&c);
    if (r == 0) resource_set(&a->cache->claim_made, made && !req->further ? s->uid : "");
    return r != 0 ? gp_wrap(err, "claim of stack '%s'", s->name) : 0;
}
