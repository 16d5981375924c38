// SPDX-License-Identifier: Apache-2.0
/* The claim of a stack: read, create, wait, read again; the oldest counts, and of equal times the lowest id. A key
 * whose creation took longer than half of the wait is withdrawn: another run may have read the list before it, and
 * taken the claim. So two runs agree while lists lag less than half of the wait. One thread. */
#include "base/gp_base.h"

#include "providers/lambda/lambda_int.h"

#include "base/clock.h"
#include "base/form.h"
#include "base/fs.h"
#include "providers/common/cloud_clock.h"
#include "providers/common/intents.h"
#include "providers/common/ownership.h"
#include "providers/common/settle.h"

#define CLAIM_SHARED_S 600 /* age up to which another run may still be working on a claim */
#define WAIT_MIN_MS 600    /* between creation and the read that decides; at Lambda's pace 6 s */
#define TRIES 5

struct claiming {
    struct lambda *l;
    const struct prepare_req *req;
    char *prefix;
};

static int64_t wait_ms(const struct lambda *l) { return GP_MAX(6 * l->pace_ms, (int64_t)WAIT_MIN_MS); }

static bool before(const struct lambda_claim *a, const struct lambda_claim *b) {
    if (a->since_s != b->since_s) return a->since_s < b->since_s;
    int by_uid = strcmp(a->tags.uid, b->tags.uid);
    return by_uid != 0 ? strcmp(a->id, b->id) < 0 : a->tags.created_s > b->tags.created_s;
}

/* The claim that counts; NULL: there is none. Keys of this name whose comment was changed count too: they stop the
 * caller. */
static const struct lambda_claim *winner(const struct lambda_claims *all, const char *prefix) {
    const struct lambda_claim *first = NULL;
    for (size_t i = 0; i < all->list.len; i++) {
        const struct lambda_claim *c = &all->list.items[i];
        if (str_starts(c->name, prefix) && (first == NULL || before(c, first))) first = c;
    }
    return first;
}

static const struct lambda_claim *named(const struct lambda_claims *all, const char *name) {
    for (size_t i = 0; i < all->list.len; i++)
        if (str_eq(all->list.items[i].name, name)) return &all->list.items[i];
    return NULL;
}

static void forget(struct lambda_claims *all) {
    lambda_claims_clear(all);
    *all = (struct lambda_claims){0};
}

/* Deletes a key of ours that does not count. */
static int withdraw(struct lambda *l, const char *id, struct gp_error *err) {
    int r = lambda_key_delete(l, id, err);
    return r == 0 ? journal_resource_gone(l->journal, "lambda", id, err) : r;
}

/* One POST for the intent. -GP_EUNKNOWN: the intent stays open. */
static int post(struct lambda *l, const struct intent *in, const struct stack *s, struct gp_error *err) {
    GP_AUTO_REST struct rest_reply reply = {0};
    GP_AUTO_JSON json_t *body = NULL;
    json_t *data = NULL;
    struct resource made;
    struct gp_error why = {0};
    int r = json_parse(in->body, strlen(in->body), "the request", &body, err);
    if (r != 0) return r;
    r = lambda_call(l, "POST", "/ssh-keys", body, REST_ONCE, &reply, &data, &why);
    struct lambda_claim c = {.id = (char *)(uintptr_t)json_str(data, "id", ""), .home = s->region};
    if (r == 0 && !form_word(c.id))
        r = gp_fail(&why, GP_EUNKNOWN, "lambda POST /ssh-keys: the reply has no id of a key");
    tags_of_stack(&c.tags, s);
    c.tags.created_s = s->created_s;
    c.tags.claim = true;
    lambda_claim_resource(&c, &made);
    r = cloud_thing_created(l->journal, in, r, &made, &why, err);
    resource_clear(&made);
    tags_clear(&c.tags);
    return r;
}

/* Creates a key and finds it in a list, at most TRIES times. 0: all has the list, and *ret_posted_ms the time of the
 * reply. */
static int create(struct lambda *l, const struct stack *s, int64_t since_s, int64_t pause_ms, char **ret_name,
                  int64_t *ret_posted_ms, struct lambda_claims *all, struct gp_error *err) {
    GP_AUTO_FREE char *line = NULL;
    struct intent in;
    struct gp_error last = {0};
    int r = lambda_claim_build(s, since_s, ret_name, &line, err);
    if (r != 0) return r;
    GP_AUTO_JSON json_t *body = json_pack("{s:s,s:s}", "name", *ret_name, "public_key", line);
    GP_AUTO_FREE char *text = json_dumps(body, JSON_COMPACT);
    cloud_intent_thing(s, "lambda", s->region, RES_KEY_PAIR, *ret_name, text, &in);
    in.claim = true;
    bool there = false, ended = false;
    r = journal_intent(l->journal, &in, &last);
    for (int i = 0; r == 0 && !there && i < TRIES; i++) {
        gp_error_clear(&last);
        int posted = ended ? 0 : post(l, &in, s, &last);
        if (!ended) *ret_posted_ms = clock_ms();
        ended = ended || posted == 0;
        /* A first request that was refused created nothing. A later one may be refused because of the first. */
        if (posted != 0 && posted != -GP_EUNKNOWN && i == 0) r = posted;
        if (r == 0) r = gp_sleep(pause_ms, l->cancel, posted == 0 ? &last : NULL);
        if (r != 0) break;
        forget(all);
        struct gp_error why = {0};
        r = lambda_claims_read(l, all, &why);
        if (r != 0) last = why;
        there = r == 0 && named(all, *ret_name) != NULL;
    }
    if (r == 0 && !there) {
        gp_error_clear(&last);
        r = gp_fail(&last, GP_EUNKNOWN,
                    "lambda: the SSH key %s was requested, but is not listed: run the same command again", *ret_name);
    }
    if (r != 0 && err != NULL) *err = last;
    intent_clear(&in);
    return r;
}

/* Ends the open intents of keys that are listed. */
static int settle(struct lambda *l, const struct lambda_claims *all, const char *prefix, struct gp_error *err) {
    int r = 0;
    for (size_t i = 0; r == 0 && i < all->list.len; i++) {
        const struct lambda_claim *c = &all->list.items[i];
        struct resource there;
        if (!str_starts(c->name, prefix) || c->tags.uid[0] == '\0') continue;
        lambda_claim_resource(c, &there);
        r = cloud_thing_settle(l->journal, &there, c->name, err);
        resource_clear(&there);
    }
    return r;
}

/* Reads or creates the claim; all has the list that decided, *ret the claim in it. */
static int claim(const struct claiming *c, struct lambda_claims *all, const struct lambda_claim **ret, bool *ret_made,
                 struct gp_error *err) {
    struct lambda *l = c->l;
    struct stack *s = c->req->stack;
    char uid[17];
    int r = fs_random_hex(uid, 8, err);
    for (int i = 0; r == 0 && i < TRIES; i++) {
        GP_AUTO_FREE char *name = NULL;
        int64_t began_ms = clock_ms(), posted_ms = 0;
        forget(all);
        r = lambda_claims_read(l, all, err);
        *ret = r == 0 ? winner(all, c->prefix) : NULL;
        if (r != 0 || *ret != NULL) return r;
        struct stack fresh = *s;
        fresh.uid = c->req->further ? s->uid : uid;
        fresh.created_s = cloud_now_s(&l->base);
        r = create(l, &fresh, fresh.created_s, wait_ms(l), &name, &posted_ms, all, err);
        if (r != 0) return r;
        const struct lambda_claim *own = named(all, name);
        if (own == NULL || own->tags.uid[0] == '\0') {
            if (own != NULL) withdraw(l, own->id, NULL);
            return gp_fail(err, GP_EPROTO,
                           "lambda: the SSH key %s was stored without its comment, which has the facts of "
                           "the claim: report this as a bug",
                           name);
        }
        *ret = winner(all, c->prefix);
        *ret_made = own == *ret && posted_ms - began_ms <= wait_ms(l) / 2;
        if (*ret_made) return 0;
        r = withdraw(l, own->id, err);
        if (r == 0 && own != *ret) return 0;
    }
    if (r == 0)
        r = gp_fail(err, GP_EPROTO,
                    "lambda: the API was too slow for a safe claim, %d times: run the same command again", TRIES);
    return r;
}

/* A claim that another run of the same spec created a moment ago: both runs use its times. */
static bool shares_times(const struct lambda *l, const struct tags *t, const struct stack *s) {
    int64_t age_s = cloud_now_s(&l->base) - t->created_s;
    int64_t ttl_s = s->expires_s - (s->created_s > 0 ? s->created_s : cloud_now_s(&l->base));
    return t->created_s > 0 && age_s < CLAIM_SHARED_S && age_s > -CLAIM_SHARED_S &&
           str_eq(t->spec_hash, s->spec_hash) && llabs(t->expires_s - t->created_s - ttl_s) <= 60;
}

static int record(struct lambda *l, const struct lambda_claim *c, struct gp_error *err) {
    struct resource one;
    lambda_claim_resource(c, &one);
    int r = journal_resource_put(l->journal, &one, err);
    resource_clear(&one);
    return r;
}

/* Keys cannot be changed: new times are a new key of the same uid and since, then the old ones go. */
static int renew(struct lambda *l, const struct stack *s, const char *prefix, int64_t since_s,
                 struct lambda_claims *all, const struct lambda_claim **ret, struct gp_error *err) {
    GP_AUTO_FREE char *name = NULL;
    int64_t posted_ms = 0;
    int r = create(l, s, since_s, l->pace_ms, &name, &posted_ms, all, err);
    if (r == 0) *ret = named(all, name);
    for (size_t i = 0; r == 0 && i < all->list.len; i++) {
        const struct lambda_claim *c = &all->list.items[i];
        if (c != *ret && str_starts(c->name, prefix) && str_eq(c->tags.uid, s->uid)) r = withdraw(l, c->id, err);
    }
    return r;
}

static void remember(struct lambda *l, const char *uid, const char *key) {
    resource_set(&l->claim_uid, uid);
    resource_set(&l->claim_key, key);
}

static int take(const struct claiming *c, struct lambda_claims *all, const struct lambda_claim *found, bool made,
                struct gp_error *err) {
    struct stack *s = c->req->stack;
    GP_AUTO_FREE char *what = xasprintf("lambda: the SSH key '%s'", found->name);
    int r = cloud_check_owner(&found->tags, what, s, c->req->further ? s->uid : NULL, err);
    if (r == 0) r = settle(c->l, all, c->prefix, err);
    if (r != 0) return r;
    free(s->uid);
    s->uid = xstrdup(found->tags.uid);
    resource_set(&s->region, found->home);
    if (made || shares_times(c->l, &found->tags, s)) {
        s->created_s = found->tags.created_s;
        s->expires_s = found->tags.expires_s;
    } else {
        if (s->created_s <= 0) s->created_s = cloud_now_s(&c->l->base);
        r = renew(c->l, s, c->prefix, found->since_s, all, &found, err);
    }
    if (r == 0) r = record(c->l, found, err);
    if (r == 0) remember(c->l, s->uid, found->name);
    return r;
}

static const char *home_of(const struct spec *spec) {
    for (size_t i = 0; i < spec->offers.len; i++)
        if (str_eq(spec->offers.items[i].provider, "lambda") && spec->offers.items[i].regions.n > 0)
            return spec->offers.items[i].regions.v[0];
    return "us-east-1";
}

int lambda_prepare(struct provider *p, const struct prepare_req *req, struct gp_error *err) {
    struct lambda *l = lambda_of(p);
    struct stack *s = req->stack;
    GP_AUTO_CLAIMS struct lambda_claims all = {0};
    const struct lambda_claim *found = NULL;
    bool made = false;
    if (req->known != NULL) return lambda_firewall_apply(l, req, err);
    if (s->region == NULL || s->region[0] == '\0') resource_set(&s->region, home_of(req->spec));
    struct claiming c = {l, req, lambda_claim_prefix(s->owner, s->name)};
    int r = claim(&c, &all, &found, &made, err);
    if (r == 0) r = take(&c, &all, found, made, err);
    free(c.prefix);
    return r != 0 ? gp_wrap(err, "claim of stack '%s'", s->name) : 0;
}

int lambda_claim_key(struct lambda *l, const struct stack *s, const char **ret, struct gp_error *err) {
    if (l->claim_key == NULL || !str_eq(l->claim_uid, s->uid)) {
        GP_AUTO_CLAIMS struct lambda_claims all = {0};
        GP_AUTO_FREE char *prefix = lambda_claim_prefix(s->owner, s->name);
        const struct lambda_claim *found = NULL;
        int r = lambda_claims_read(l, &all, err);
        if (r == 0) found = winner(&all, prefix);
        if (r == 0 && (found == NULL || !str_eq(found->tags.uid, s->uid)))
            r = gp_fail(err, GP_ENOTFOUND,
                        "lambda: the SSH key that claims '%s' is not listed: run the same command again", s->name);
        if (r != 0) return r;
        remember(l, s->uid, found->name);
    }
    *ret = l->claim_key;
    return 0;
}
