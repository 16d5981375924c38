// SPDX-License-Identifier: Apache-2.0
/* SSH keys as claims: their names and comments, written and read. The name of a key carries who claims (a hash of owner
 * and stack), the uid and the time; its comment carries the tags. key_claim_take.c chooses the one that counts. */
#include "base/gp_base.h"

#include "providers/common/key_claim.h"

#include "base/form.h"
#include "base/fs.h"
#include "base/hash.h"
#include "model/labels.h"

#define NAME "gpuprov-"
#define HEX "0123456789abcdef"
#define NAME_LEN (8 + 16 + 1 + 16 + 1 + 8 + 1 + 4) /* gpuprov-HASH-UID-SINCE-RANDOM: 55 of 64 */
#define COMMENT "gpuprov"
#define SINCE_MIN ((int64_t)1577836800) /* 2020-01-01 */

void key_claims_clear(struct key_claims *c) {
    for (size_t i = 0; i < c->list.len; i++) {
        struct key_claim *one = &c->list.items[i];
        free(one->id);
        free(one->name);
        free(one->home);
        tags_clear(&one->tags);
    }
    vec_free(&c->list);
}

char *key_claim_prefix(const char *owner, const char *stack) {
    char hex[65];
    GP_AUTO_FREE char *text = xasprintf("%s\n%s", owner, stack);
    sha256_hex(text, strlen(text), hex);
    return xasprintf(NAME "%.16s-", hex);
}

/* --- write --- */

static bool add_facts(const struct stack *s, struct str *out) {
    GP_AUTO_LABELS struct label_list labels = {0};
    struct tags tags;
    tags_of_stack(&tags, s);
    tags.created_s = s->created_s;
    tags.claim = true;
    resource_set(&tags.regions, TAGS_EVERYWHERE); /* one list shows the whole account */
    bool whole = labels_write(&labels_ssh_key, &tags, &labels);
    str_add(out, COMMENT);
    for (size_t i = 0; i < labels.list.len; i++)
        str_addf(out, " %s=%s", labels.list.items[i].key, labels.list.items[i].value);
    str_addf(out, " home=%s", s->region);
    tags_clear(&tags);
    return whole;
}

int key_claim_build(const struct key_claimer *k, const struct stack *s, int64_t since_s, char **ret_name,
                    char **ret_line, struct gp_error *err) {
    GP_AUTO_SECRET struct secret unused = {0};
    GP_AUTO_FREE char *line = NULL;
    GP_AUTO_STR struct str facts = {0};
    char random[5];
    if (!form_word(s->region))
        return gp_fail(err, GP_EUSAGE, "%s: '%.80s' is not a region: correct regions", k->ops->provider, s->region);
    if (!add_facts(s, &facts))
        return gp_fail(err, GP_EINTERNAL, "%s: the facts of the claim are too long", k->ops->provider);
    int r = fs_random_hex(random, 2, err);
    if (r == 0) r = k->ops->new_key("x", &unused, &line, err);
    if (r != 0) return r;
    char *last = strrchr(line, ' ');
    if (last != NULL) *last = '\0'; /* without its comment */
    GP_AUTO_FREE char *prefix = key_claim_prefix(s->owner, s->name);
    *ret_name = xasprintf("%s%s-%08llx-%s", prefix, s->uid, (unsigned long long)since_s & 0xffffffffU, random);
    *ret_line = xasprintf("%s %s", line, facts.s);
    return 0;
}

/* --- read --- */

/* False: not the name of a claim. */
static bool name_read(const char *name, char uid[17], int64_t *ret_since) {
    static const int dashes[] = {24, 41, 50};
    if (strlen(name) != NAME_LEN || !str_starts(name, NAME)) return false;
    for (int i = 8; i < NAME_LEN; i++) {
        bool dash = false;
        for (size_t k = 0; k < GP_ARRAY_LEN(dashes); k++) dash = dash || dashes[k] == i;
        if (dash ? name[i] != '-' : strchr(HEX, name[i]) == NULL) return false;
    }
    snprintf(uid, 17, "%.16s", name + 25);
    *ret_since = (int64_t)strtoull(name + 42, NULL, 16);
    return *ret_since >= SINCE_MIN;
}

/* The tags in "ssh-ed25519 AAAA gpuprov KEY=VALUE ...". A comment that does not belong to the name is bad. */
static void facts_read(const char *line, struct key_claim *c, const char *uid) {
    GP_AUTO_LABELS struct label_list labels = {0};
    GP_AUTO_STRV struct strv words = {0};
    const char *home = "";
    strv_split(&words, line, " ");
    bool ours = words.n > 3 && str_eq(words.v[2], COMMENT);
    for (size_t i = 3; ours && i < words.n; i++) {
        char *eq = strchr(words.v[i], '=');
        if (eq == NULL) continue;
        *eq = '\0';
        if (str_eq(words.v[i], "home")) home = eq + 1;
        else labels_add(&labels, words.v[i], eq + 1);
    }
    labels_read(&labels_ssh_key, &labels, &c->tags);
    GP_AUTO_FREE char *prefix = key_claim_prefix(c->tags.owner, c->tags.stack);
    bool same = tags_identify(&c->tags) && str_starts(c->name, prefix) && str_eq(c->tags.uid, uid) && form_word(home);
    if (!same) {
        tags_complain(&c->tags, "uid", "that of the key's name and comment");
        resource_set(&c->tags.uid, ""); /* without identity: reported, never destroyed */
    }
    c->home = xstrdup(same ? home : "");
}

struct reading {
    const struct key_claimer *k;
    struct key_claims *out;
    int result;
    struct gp_error *err;
};

static void on_key(void *arg, const char *id, const char *name, const char *line) {
    struct reading *r = arg;
    struct key_claim c = {0};
    char uid[17];
    if (r->result != 0 || !name_read(name, uid, &c.since_s)) return;
    if (!form_word(id)) {
        r->result = gp_fail(r->err, GP_EPROTO,
                            "%s: the SSH key '%s' has an id that is not one of this cloud: run the "
                            "same command again",
                            r->k->ops->provider, name);
        return;
    }
    c.id = xstrdup(id);
    c.name = xstrdup(name);
    facts_read(line, &c, uid);
    vec_push(&r->out->list, c);
}

int key_claims_read(struct key_claimer *k, struct key_claims *ret, struct gp_error *err) {
    struct reading reading = {k, ret, 0, err};
    int r = k->ops->list(k->ctx, on_key, &reading, err);
    return r != 0 ? r : reading.result;
}

void key_claim_resource(const struct key_claimer *k, const struct key_claim *c, struct resource *ret) {
    resource_init(ret, RES_KEY_PAIR, k->ops->provider);
    resource_set(&ret->region, c->home);
    resource_set(&ret->id, c->id);
    tags_to_resource(&c->tags, -1, ret);
    ret->state = RES_RUNNING;
    ret->price_usd_per_h = 0;
    resource_set(&ret->account, k->p->account);
}
