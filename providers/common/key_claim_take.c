// SPDX-License-Identifier: Apache-2.0
/* The claim of a stack by an SSH key: read, create, wait, read again; the oldest counts, and of equal times the lowest
 * uid. A key whose creation took longer than half of the wait is withdrawn: another run may have read the list before
 * it, and taken the claim. So two runs agree while lists lag less than half of the wait. One thread. */
#include "base/gp_base.h"

#include "providers/common/key_claim.h"

#include "base/clock.h"
#include "base/form.h"
#include "base/fs.h"
#include "providers/common/cloud_clock.h"
#include "providers/common/intents.h"
#include "providers/common/launch/settle.h"
#include "providers/common/ownership.h"

#define CLAIM_SHARED_S 600 /* age up to which another run may still be working on a claim */
#define TRIES 5

struct claiming {
    struct key_claimer *k;
    const struct prepare_req *req;
    char *prefix;
};

static bool before(const struct key_claim *a, const struct key_claim *b) {
    if (a->since_s != b->since_s) return a->since_s < b->since_s;
    int by_uid = strcmp(a->tags.uid, b->tags.uid);
    return by_uid != 0 ? strcmp(a->id, b->id) < 0 : a->tags.created_s > b->tags.created_s;
}

/* The claim that counts; NULL: there is none. Keys of this name whose comment was changed count too: they stop the
 * caller. */
static const struct key_claim *winner(const struct key_claims *all, const char *prefix) {
    const struct key_claim *first = NULL;
    for (size_t i = 0; i < all->list.len; i++) {
        const struct key_claim *c = &all->list.items[i];
        if (str_starts(c->name, prefix) && (first == NULL || before(c, first))) first = c;
    }
    return first;
}

static const struct key_claim *named(const struct key_claims *all, const char *name) {
    for (size_t i = 0; i < all->list.len; i++)
        if (str_eq(all->list.items[i].name, name)) return &all->list.items[i];
    return NULL;
}

static void forget(struct key_claims *all) {
    key_claims_clear(all);
    *all = (struct key_claims){0};
}

/* Deletes a key of ours that does not count. */
static int withdraw(struct key_claimer *k, const char *id, struct gp_error *err) {
    int r = k->ops->remove(k->ctx, id, err);
    return r == 0 ? journal_resource_gone(k->journal, k->ops->provider, RES_KEY_PAIR, id, err) : r;
}

/* One request for the intent. -GP_EUNKNOWN: the intent stays open. */
static int post(struct key_claimer *k, const struct intent *in, const char *line, const struct stack *s,
                struct gp_error *err) {
    struct key_claim c = {.home = s->region};
    struct resource made;
    struct gp_error why = {0};
    int r = k->ops->add(k->ctx, in->token, line, &c.id, &why);
    if (r == 0 && !form_word(c.id))
        r = gp_fail(&why, GP_EUNKNOWN, "%s: the reply has no id of an SSH key", k->ops->provider);
    tags_of_stack(&c.tags, s);
    c.tags.created_s = s->created_s;
    c.tags.claim = true;
    key_claim_resource(k, &c, &made);
    r = cloud_thing_created(k->journal, in, r, &made, &why, err);
    resource_clear(&made);
    tags_clear(&c.tags);
    free(c.id);
    return r;
}

/* Creates a key and finds it in a list, at most TRIES times. 0: all has the list, and *ret_posted_ms the time of the
 * reply. */
static int create(struct key_claimer *k, const struct stack *s, int64_t since_s, int64_t pause_ms, char **ret_name,
                  int64_t *ret_posted_ms, struct key_claims *all, struct gp_error *err) {
    GP_AUTO_FREE char *line = NULL;
    struct intent in;
    struct gp_error last = {0};
    int r = key_claim_build(k, s, since_s, ret_name, &line, err);
    if (r != 0) return r;
    cloud_intent_thing(s, k->ops->provider, s->region, RES_KEY_PAIR, *ret_name, line, &in);
    in.claim = true;
    bool there = false, ended = false;
    r = journal_intent(k->journal, &in, &last);
    for (int i = 0; r == 0 && !there && i < TRIES; i++) {
        gp_error_clear(&last);
        int posted = ended ? 0 : post(k, &in, line, s, &last);
        if (!ended) *ret_posted_ms = clock_ms();
        ended = ended || posted == 0;
        /* A first request that was refused created nothing. A later one may be refused because of the first. */
        if (posted != 0 && posted != -GP_EUNKNOWN && i == 0) r = posted;
        if (r == 0) r = gp_sleep(pause_ms, k->cancel, posted == 0 ? &last : NULL);
        if (r != 0) break;
        forget(all);
        struct gp_error why = {0};
        r = key_claims_read(k, all, &why);
        if (r != 0) last = why;
        there = r == 0 && named(all, *ret_name) != NULL;
    }
    if (r == 0 && !there) {
        gp_error_clear(&last);
        r = gp_fail(&last, GP_EUNKNOWN,
                    "%s: the SSH key %s was requested, but is not listed: run the same command again", k->ops->provider,
                    *ret_name);
    }
    if (r != 0 && err != NULL) *err = last;
    intent_clear(&in);
    return r;
}

/* Ends the open intents of keys that are listed. */
static int settle(struct key_claimer *k, const struct key_claims *all, const char *prefix, struct gp_error *err) {
    int r = 0;
    for (size_t i = 0; r == 0 && i < all->list.len; i++) {
        const struct key_claim *c = &all->list.items[i];
        struct resource there;
        if (!str_starts(c->name, prefix) || c->tags.uid[0] == '\0') continue;
        key_claim_resource(k, c, &there);
        r = cloud_thing_settle(k->journal, &there, c->name, err);
        resource_clear(&there);
    }
    return r;
}

/* Reads or creates the claim; all has the list that decided, *ret the claim in it. */
static int claim(const struct claiming *c, struct key_claims *all, const struct key_claim **ret, bool *ret_made,
                 struct gp_error *err) {
    struct key_claimer *k = c->k;
    struct stack *s = c->req->stack;
    char uid[17];
    int r = fs_random_hex(uid, 8, err);
    for (int i = 0; r == 0 && i < TRIES; i++) {
        GP_AUTO_FREE char *name = NULL;
        int64_t began_ms = clock_ms(), posted_ms = 0;
        forget(all);
        r = key_claims_read(k, all, err);
        *ret = r == 0 ? winner(all, c->prefix) : NULL;
        if (r != 0 || *ret != NULL) return r;
        struct stack fresh = *s;
        fresh.uid = c->req->further ? s->uid : uid;
        fresh.created_s = cloud_now_s(k->p);
        r = create(k, &fresh, fresh.created_s, k->wait_ms, &name, &posted_ms, all, err);
        if (r != 0) return r;
        const struct key_claim *own = named(all, name);
        if (own == NULL || own->tags.uid[0] == '\0') {
            if (own != NULL) withdraw(k, own->id, NULL);
            return gp_fail(
                err, GP_EPROTO,
                "%s: the SSH key %s was stored without its comment, which has the facts of the claim: report "
                "this as a bug",
                k->ops->provider, name);
        }
        *ret = winner(all, c->prefix);
        *ret_made = own == *ret && posted_ms - began_ms <= k->wait_ms / 2;
        if (*ret_made) return 0;
        r = withdraw(k, own->id, err);
        if (r == 0 && own != *ret) return 0;
    }
    if (r == 0)
        r = gp_fail(err, GP_EPROTO, "%s: the API was too slow for a safe claim, %d times: run the same command again",
                    k->ops->provider, TRIES);
    return r;
}

/* A claim that another run of the same spec created a moment ago: both runs use its times. */
static bool shares_times(const struct key_claimer *k, const struct tags *t, const struct stack *s) {
    int64_t age_s = cloud_now_s(k->p) - t->created_s;
    int64_t ttl_s = s->expires_s - (s->created_s > 0 ? s->created_s : cloud_now_s(k->p));
    return t->created_s > 0 && age_s < CLAIM_SHARED_S && age_s > -CLAIM_SHARED_S &&
           str_eq(t->spec_hash, s->spec_hash) && llabs(t->expires_s - t->created_s - ttl_s) <= 60;
}

static int record(struct key_claimer *k, const struct key_claim *c, struct gp_error *err) {
    struct resource one;
    key_claim_resource(k, c, &one);
    int r = journal_resource_put(k->journal, &one, err);
    resource_clear(&one);
    return r;
}

/* Keys cannot be changed: new times are a new key of the same uid and since, then the old ones go. */
static int renew(struct key_claimer *k, const struct stack *s, const char *prefix, int64_t since_s,
                 struct key_claims *all, const struct key_claim **ret, struct gp_error *err) {
    GP_AUTO_FREE char *name = NULL;
    int64_t posted_ms = 0;
    int r = create(k, s, since_s, k->ops->pause_ms, &name, &posted_ms, all, err);
    if (r == 0) *ret = named(all, name);
    for (size_t i = 0; r == 0 && i < all->list.len; i++) {
        const struct key_claim *c = &all->list.items[i];
        if (c != *ret && str_starts(c->name, prefix) && str_eq(c->tags.uid, s->uid)) r = withdraw(k, c->id, err);
    }
    return r;
}

static void remember(struct key_claimer *k, const char *uid, const struct key_claim *c) {
    resource_set(&k->uid, uid);
    resource_set(&k->name, c->name);
    resource_set(&k->id, c->id);
}

static int take(const struct claiming *c, struct key_claims *all, const struct key_claim *found, bool made,
                struct gp_error *err) {
    struct stack *s = c->req->stack;
    GP_AUTO_FREE char *what = xasprintf("%s: the SSH key '%s'", c->k->ops->provider, found->name);
    int r = cloud_check_owner(&found->tags, what, s, c->req->further ? s->uid : NULL, err);
    if (r == 0) r = settle(c->k, all, c->prefix, err);
    if (r != 0) return r;
    free(s->uid);
    s->uid = xstrdup(found->tags.uid);
    resource_set(&s->region, found->home);
    if (made || shares_times(c->k, &found->tags, s)) {
        s->created_s = found->tags.created_s;
        s->expires_s = found->tags.expires_s;
    } else {
        if (s->created_s <= 0) s->created_s = cloud_now_s(c->k->p);
        r = renew(c->k, s, c->prefix, found->since_s, all, &found, err);
    }
    if (r == 0) r = record(c->k, found, err);
    if (r == 0) remember(c->k, s->uid, found);
    return r;
}

int key_claim_take(struct key_claimer *k, const struct prepare_req *req, struct gp_error *err) {
    struct stack *s = req->stack;
    GP_AUTO_KEY_CLAIMS struct key_claims all = {0};
    const struct key_claim *found = NULL;
    bool made = false;
    struct claiming c = {k, req, key_claim_prefix(s->owner, s->name)};
    int r = claim(&c, &all, &found, &made, err);
    if (r == 0) r = take(&c, &all, found, made, err);
    free(c.prefix);
    return r != 0 ? gp_wrap(err, "claim of stack '%s'", s->name) : 0;
}

int key_claim_of(struct key_claimer *k, const struct stack *s, struct gp_error *err) {
    if (k->name != NULL && str_eq(k->uid, s->uid)) return 0;
    GP_AUTO_KEY_CLAIMS struct key_claims all = {0};
    GP_AUTO_FREE char *prefix = key_claim_prefix(s->owner, s->name);
    const struct key_claim *found = NULL;
    int r = key_claims_read(k, &all, err);
    if (r != 0) return r;
    found = winner(&all, prefix);
    if (found == NULL || !str_eq(found->tags.uid, s->uid))
        return gp_fail(err, GP_ENOTFOUND, "%s: the SSH key that claims '%s' is not listed: run the same command again",
                       k->ops->provider, s->name);
    remember(k, s->uid, found);
    return 0;
}

void key_claim_ended(struct key_claimer *k, const char *uid) {
    if (str_eq(k->uid, uid)) resource_set(&k->uid, "");
}

void key_claimer_clear(struct key_claimer *k) {
    free(k->uid);
    free(k->name);
    free(k->id);
}
