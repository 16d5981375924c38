// SPDX-License-Identifier: Apache-2.0
/* Settles launches (settle.h): decides by repeated tokens, and by proofs in lists. One thread. */
#include "base/gp_base.h"

#include "providers/common/launch/settle.h"

#include "base/clock.h"
#include "providers/common/launch/launched.h"

#define SENDS_MAX 3
#define READS 3           /* of the list, which may lag behind */
#define READS_OF_TAKEN 10 /* of names that are taken: their machines exist, so the list will show them */

static int pass(const struct gp_error *why, struct gp_error *err) {
    if (err != NULL) *err = *why;
    return -(int)why->code;
}

/* Commits the ids, then returns them. Machines that could not be recorded are not a refusal: the
 * intent stays open, and the error names them. */
static int commit(const struct cloud_launch *l, struct resource_list *made, struct resource_list *ret,
                  struct gp_error *err) {
    GP_AUTO_STR struct str ids = {0};
    struct gp_error why = {0};
    for (size_t i = 0; i < made->list.len; i++) {
        struct resource *r = &made->list.items[i];
        r->ours = r->other_run ? OURS_PROVEN : OURS_LAUNCHED;
        if (l->price_usd_per_h >= 0) r->price_usd_per_h = l->price_usd_per_h;
        if (l->gpus >= 0) r->gpus = l->gpus;
        if (l->account != NULL) resource_set(&r->account, l->account);
        str_addf(&ids, "%s%s", ids.len ? ", " : "", r->id);
    }
    int r = journal_intent_done(l->journal, l->in->id, made, &why);
    for (size_t i = 0; i < made->list.len; i++) vec_push(&ret->list, made->list.items[i]);
    vec_free(&made->list);
    if (r == 0) return 0;
    return gp_fail(err, GP_EBILLED,
                   "launched in %s, but not recorded: %.160s: %s: 'gpuprov up' goes "
                   "on with them, 'gpuprov down' destroys them",
                   l->in->region, ids.s, why.msg);
}

static int refuse(const struct cloud_launch *l, const struct gp_error *why, struct gp_error *err) {
    int r = journal_intent_end(l->journal, l->in->id, INTENT_FAILED, why->detail, err);
    return r != 0 ? r : pass(why, err);
}

static int unknown(const struct gp_error *why, struct gp_error *err) {
    int r = gp_fail(err, GP_EUNKNOWN,
                    "%s: the outcome is not known yet: run 'up' or 'down' "
                    "again, both check first",
                    why->msg);
    if (err != NULL) {
        err->domain = GP_D_CLOUD;
        str_put(err->detail, sizeof err->detail, why->detail);
    }
    return r;
}

static int pause(const struct cloud_launch *l, struct gp_error *err) {
    if (gp_sleep(l->read_every_ms > 0 ? l->read_every_ms : 1000, l->cancel, NULL) == 0) return 0;
    return gp_fail(err, GP_ECANCELLED, "cancelled");
}

/* Lists the machines of the intent, up to READS times; `least` machines are enough. */
static int adopt(const struct cloud_launch *l, size_t least, struct resource_list *ret, bool *ret_found,
                 struct gp_error *err) {
    *ret_found = false;
    for (int i = 0; i < READS; i++) {
        GP_AUTO_RESOURCES struct resource_list seen = {0}, made = {0};
        int r = i > 0 ? pause(l, err) : 0;
        if (r == 0) r = l->find(l->ctx, l->in, &seen, err);
        if (r == 0) r = launched_pick(l->proof, l->in, &seen, &made, err);
        if (r != 0) return r;
        if (made.list.len < least) continue;
        *ret_found = true;
        return commit(l, &made, ret, err);
    }
    return 0;
}

/* The token is taken: this request created nothing. */
static int other_run(const struct cloud_launch *l, struct resource_list *ret, struct gp_error *err) {
    struct gp_error why = {0};
    for (int i = 0; i < READS; i++) {
        GP_AUTO_RESOURCES struct resource_list seen = {0}, made = {0};
        gp_error_clear(&why);
        int r = i > 0 ? pause(l, &why) : 0;
        if (r == 0) r = l->find(l->ctx, l->in, &seen, &why);
        if (r != 0) return unknown(&why, err);
        if (launched_by_other_run(l->proof, l->in, l->stack, &seen, &made, &why) == 0)
            return commit(l, &made, ret, err);
    }
    return refuse(l, &why, err);
}

/* True if a refusal is about the launch itself. A token that had created machines would return
 * them; a call that was not accepted (throttled, not permitted, not reached) proves nothing of an earlier one. */
static bool settles(const struct gp_error *why) {
    return why->code == GP_ECAPACITY || why->code == GP_EQUOTA || why->code == GP_EMONEY || why->code == GP_EUSAGE ||
           why->code == GP_EEXISTS;
}

/* The names of a repeated request are taken: by its first one, if the machines prove that launch. A list that does not
 * show them yet decides nothing. */
static int own_or_other_run(const struct cloud_launch *l, const struct gp_error *taken, struct resource_list *ret,
                            struct gp_error *err) {
    bool listed = false;
    for (int i = 0; !listed && i < READS_OF_TAKEN; i++) {
        GP_AUTO_RESOURCES struct resource_list seen = {0}, made = {0};
        struct gp_error why = {0};
        int r = i > 0 ? pause(l, &why) : 0;
        if (r == 0) r = l->find(l->ctx, l->in, &seen, &why);
        if (r == 0) r = launched_pick(l->proof, l->in, &seen, &made, &why);
        if (r != 0) return unknown(&why, err);
        if (made.list.len >= (size_t)l->in->slot_count) return commit(l, &made, ret, err);
        listed = seen.list.len >= (size_t)l->in->slot_count;
    }
    return listed ? other_run(l, ret, err) : unknown(taken, err);
}

/* After a request whose outcome is unknown, at a cloud without tokens. */
static int search(const struct cloud_launch *l, const struct gp_error *why, struct resource_list *ret,
                  struct gp_error *err) {
    bool found = false;
    struct gp_error listed = {0};
    int r = adopt(l, (size_t)l->in->slot_count, ret, &found, &listed);
    if (r == -GP_EBILLED) return pass(&listed, err);
    if (r == -GP_EUNKNOWN) return unknown(&listed, err);
    return r == 0 && found ? 0 : unknown(why, err);
}

/* Sends until the outcome is known, or up to the limit. open: the cloud may have acted on an earlier
 * send. The answer to a repeated token names its machines; a list only shows what somebody tagged. */
static int send(const struct cloud_launch *l, bool open, struct resource_list *ret, struct gp_error *err) {
    struct gp_error why = {0};
    for (int i = 0; i < SENDS_MAX; i++) {
        GP_AUTO_RESOURCES struct resource_list made = {0};
        bool taken = false;
        gp_error_clear(&why);
        int r = l->send(l->ctx, l->in, &made, &taken, &why);
        if (r == 0) return commit(l, &made, ret, err);
        if (taken) return open && l->own_names ? own_or_other_run(l, &why, ret, err) : other_run(l, ret, err);
        bool over = !open || settles(&why) || (l->is_over != NULL && l->is_over(l->ctx));
        if (r != -GP_EUNKNOWN) return over ? refuse(l, &why, err) : unknown(&why, err);
        open = true;
        if (gp_cancelled(l->cancel)) break;
        if (l->resend_s == 0) return search(l, &why, ret, err);
        if (i + 1 < SENDS_MAX && pause(l, NULL) != 0) break;
    }
    return unknown(&why, err);
}

int cloud_launch_run(const struct cloud_launch *l, struct resource_list *ret, struct gp_error *err) {
    int r = launched_need_key(l->proof, err);
    return r != 0 ? r : send(l, false, ret, err);
}

/* No machine exists and the request is not repeated: it is older than resend_s, or the cloud has no tokens. */
static int left_nothing(const struct cloud_launch *l, struct gp_error *err) {
    struct gp_error old = {0};
    gp_fail(&old, GP_ENOTFOUND, "%s: the launch of nodes %d..%d created nothing and is not repeated", l->in->provider,
            l->in->slot_first, l->in->slot_first + l->in->slot_count - 1);
    return refuse(l, &old, err);
}

int cloud_launch_replay(const struct cloud_launch *l, struct resource_list *ret, struct gp_error *err) {
    const struct intent *in = l->in;
    int64_t age_s = clock_wall_s() - in->created_s;
    bool over = age_s * 1000 > l->settle_ms; /* its machines would be listed by now */
    size_t least = l->resend_s == 0 && over ? 1 : (size_t)in->slot_count;
    bool found = false;
    struct gp_error why = {0};
    int r = launched_need_key(l->proof, err);
    if (r != 0) return r;
    if (l->resend_s > 0 && age_s <= l->resend_s) return send(l, true, ret, err);
    r = adopt(l, least, ret, &found, &why);
    if (r == -GP_EBILLED) return pass(&why, err);
    if (r != 0) return unknown(&why, err);
    if (found) return 0;
    if (over) return left_nothing(l, err);
    gp_fail(&why, GP_EUNKNOWN, "%s: the launch of nodes %d..%d is not listed yet", in->provider, in->slot_first,
            in->slot_first + in->slot_count - 1);
    return unknown(&why, err);
}

/* --- resources that are not nodes --- */

static int done(struct journal *j, int64_t intent, const struct resource *made, struct gp_error *err) {
    GP_AUTO_RESOURCES struct resource_list one = {0};
    struct resource copy = {0};
    resource_copy(&copy, made);
    vec_push(&one.list, copy);
    return journal_intent_done(j, intent, &one, err);
}

int cloud_thing_created(struct journal *j, const struct intent *in, int result, const struct resource *made,
                        const struct gp_error *why, struct gp_error *err) {
    if (result == 0) return done(j, in->id, made, err);
    if (result != -GP_EUNKNOWN) {
        int r = journal_intent_end(j, in->id, INTENT_FAILED, why->detail, err);
        if (r != 0) return r;
    }
    return pass(why, err);
}

int cloud_thing_settle(struct journal *j, const struct resource *there, const char *name, struct gp_error *err) {
    struct intent_list open = {0};
    int r = journal_intents(j, NULL, 1U << INTENT_OPEN | 1U << INTENT_TOMBSTONE, &open, err);
    for (size_t i = 0; r == 0 && i < open.list.len; i++) {
        const struct intent *in = &open.list.items[i];
        if (in->kind != there->kind || !str_eq(in->provider, there->provider) || !str_eq(in->region, there->region) ||
            !str_eq(in->token, name))
            continue;
        r = str_eq(in->uid, there->uid) ? done(j, in->id, there, err)
                                        : journal_intent_end(j, in->id, INTENT_FAILED, "another claim won", err);
    }
    intent_list_clear(&open);
    return r;
}
