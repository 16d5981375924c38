/* SPDX-License-Identifier: Apache-2.0 */
/* Creates a gang with one request per machine: commits the intents, sends them, records each reply's
 * outcome, polls accepted requests until they are placed, settles lost replies, reports the worst. */
#include "base/gp_base.h"

#include "providers/common/launch/slot_create.h"

#include "base/clock.h"
#include "base/str.h"
#include "providers/common/intents.h"
#include "providers/common/launch/launched.h"

#define SENDS_MAX 3 /* of one token */
#define READS_APART_MS 1000

struct slot {
    struct intent *in;
    struct slot_outcome out;
    bool ended;    /* its intent is ended in the journal */
    bool repeated; /* sent once more after the lists had shown nothing */
    bool rivals;   /* the last list showed several machines that may be it */
    int sends;
    bool another; /* another run's machine has the name: it decides about it */
};
struct slots {
    const struct slot_create *c;
    const struct create_req *req;
    struct resource_list *ret;
    struct slot *items;
    size_t n;
    int64_t began_s;        /* wall: the last time at which a request may have been under way */
    struct gp_error billed; /* the first failure to remove or to record */
};

/* --- intents --- */

static int add_intent(const struct slot_create *c, const struct create_req *req, int slot, struct intent_list *list,
                      struct gp_error *err) {
    GP_AUTO_STR struct str body = {0};
    struct create_req one = *req;
    struct intent in;
    one.slot_first = slot;
    one.slot_count = 1;
    GP_AUTO_FREE char *token = NULL;
    int r = cloud_launch_token(&one, c->account, &token, err);
    if (r == 0) r = c->ops->body(c->ctx, req, slot, token, &body, err);
    if (r != 0) return r;
    cloud_intent_nodes(&one, c->account, GP_STEAL(token), xstrdup(body.s), &in);
    in.operation = xstrdup("");
    vec_push(&list->list, in);
    return 0;
}

static void reset(struct slot *s, const char *provider) {
    char *operation = GP_STEAL(s->out.operation);
    resource_clear(&s->out.made);
    s->out = (struct slot_outcome){.operation = operation};
    s->another = false; /* what it met may be gone: the next request may make a machine */
    resource_init(&s->out.made, RES_INSTANCE, provider);
}

/* --- outcomes of replies --- */

static void note_billed(struct slots *all, const char *id, const char *what, const struct gp_error *why) {
    if (all->billed.code != GP_OK) return;
    gp_fail(&all->billed, GP_EBILLED, "%s %.80s %s: %.200s: 'gpuprov down' destroys it", all->c->ops->provider, id,
            what, why->msg);
}

static void made(struct slots *all, struct slot *s) {
    struct resource_list one = {0};
    struct gp_error why = {0};
    struct resource *m = &s->out.made;
    double price = -1;
    int gpus = -1;
    cloud_offer_facts(s->in, &price, &gpus);
    if (m->price_usd_per_h < 0) m->price_usd_per_h = price;
    if (m->gpus < 0) m->gpus = gpus;
    if (m->account[0] == '\0') resource_set(&m->account, all->c->account);
    m->ours = m->other_run ? OURS_PROVEN : OURS_LAUNCHED;
    vec_push(&one.list, *m);
    if (journal_intent_done(all->c->journal, s->in->id, &one, &why) == 0) s->ended = true;
    else note_billed(all, m->id, "was launched, but not recorded", &why);
    vec_push(&all->ret->list, *m); /* moves it */
    vec_free(&one.list);
    resource_init(m, RES_INSTANCE, all->c->ops->provider);
}

/* Removes a machine that failed after the cloud had returned its id, then ends the intent. One of another run stays. */
static void refused(struct slots *all, struct slot *s) {
    struct gp_error why = {0};
    if (s->out.made.id[0] != '\0' && !s->another) {
        struct resource_list left = {0};
        vec_push(&left.list, s->out.made);
        int r = all->c->ops->destroy(all->c->ctx, &left, &why);
        vec_free(&left.list);
        if (r != 0) {
            note_billed(all, s->out.made.id, "failed and could not be removed", &why);
            return;
        }
        if (journal_resource_gone(all->c->journal, all->c->ops->provider, s->out.made.kind, s->out.made.id, &why) != 0)
            note_billed(all, s->out.made.id, "is being removed, but that could not be recorded", &why);
    }
    if (journal_intent_end(all->c->journal, s->in->id, INTENT_FAILED, s->out.err.detail, &why) == 0) s->ended = true;
    else if (all->billed.code == GP_OK) all->billed = why;
}

/* Commits the operation, and the id where there is one, before anything waits. */
static void accepted(struct slots *all, struct slot *s) {
    struct gp_error why = {0};
    int r = 0;
    if (s->out.operation != NULL && !str_eq(s->out.operation, s->in->operation)) {
        r = journal_intent_operation(all->c->journal, s->in->id, s->out.operation, &why);
        if (r == 0) resource_set(&s->in->operation, s->out.operation);
    }
    if (s->out.made.account[0] == '\0') resource_set(&s->out.made.account, all->c->account);
    s->out.made.ours = s->another ? OURS_PROVEN : OURS_LAUNCHED;
    if (r == 0 && s->out.made.id[0] != '\0') r = journal_resource_put(all->c->journal, &s->out.made, &why);
    if (r != 0) note_billed(all, s->out.made.id, "was requested, but not recorded", &why);
}

/* A machine has the name of the request, which only holders of the key can know before it is used: an earlier request
 * of this intent made it, or another run. */
static void existing(struct slots *all, struct slot *s) {
    GP_AUTO_RESOURCES struct resource_list one = {0}, proven = {0};
    struct gp_error why = {0};
    bool before = s->sends > 1 || all->req->replay != NULL;
    s->out.exists = false;
    if (s->out.made.id[0] == '\0' && s->out.state != SLOT_REFUSED) { /* read again */
        s->out.state = SLOT_UNKNOWN;
        if (s->out.err.code == GP_OK) gp_fail(&s->out.err, GP_EUNKNOWN, "its machine exists, but could not be read");
        return;
    }
    if (s->out.made.id[0] != '\0') resource_list_add(&one, &s->out.made);
    int r = launched_by_other_run(all->req->proof, s->in, all->req->stack->name, &one, &proven, &why);
    s->another = r == 0;
    if (r == 0 || (before && launched_proven(all->req->proof, s->in, &s->out.made))) return;
    resource_clear(&s->out.made); /* not ours: nothing is to be removed */
    resource_init(&s->out.made, RES_INSTANCE, all->c->ops->provider);
    s->out.state = SLOT_REFUSED;
    s->out.err = why;
}

static void record(struct slots *all, struct slot *s) {
    if (s->out.exists) existing(all, s);
    s->out.made.other_run = s->another;
    if (s->out.made.id[0] != '\0') launched_identify(s->in, all->req->stack, 0, &s->out.made);
    switch (s->out.state) {
    case SLOT_MADE: made(all, s); break;
    case SLOT_REFUSED: refused(all, s); break;
    case SLOT_ACCEPTED: accepted(all, s); break;
    case SLOT_UNKNOWN: break;
    }
}

static bool is_open(const struct slot *s, enum slot_state state) { return !s->ended && s->out.state == state; }

static size_t count_open(const struct slots *all, enum slot_state state) {
    size_t n = 0;
    for (size_t i = 0; i < all->n; i++) n += is_open(&all->items[i], state);
    return n;
}

/* Calls f for the open slots in that state of [from, to) together, and records each outcome. */
static void ask(struct slots *all, size_t from, size_t to, enum slot_state state,
                void (*f)(void *ctx, const struct intent *const *in, size_t n, struct slot_outcome *ret)) {
    size_t n = 0, *which = xcalloc(all->n, sizeof *which);
    const struct intent **in = xcalloc(all->n, sizeof *in);
    struct slot_outcome *out = xcalloc(all->n, sizeof *out);
    for (size_t i = from; i < to; i++) {
        struct slot *s = &all->items[i];
        if (!is_open(s, state)) continue;
        if (state == SLOT_UNKNOWN) reset(s, all->c->ops->provider);
        in[n] = s->in;
        out[n] = s->out;
        which[n++] = i;
    }
    if (n > 0) f(all->c->ctx, in, n, out);
    for (size_t k = 0; k < n; k++) {
        struct slot *s = &all->items[which[k]];
        s->out = out[k];
        record(all, s);
    }
    free(out);
    free(in);
    free(which);
}

static bool refuses_all(const struct gp_error *e) {
    return e->code == GP_ECAPACITY || e->code == GP_EQUOTA || e->code == GP_EAUTH || e->code == GP_EMONEY ||
           e->code == GP_EUSAGE || e->code == GP_ENOTFOUND || e->code == GP_ECANCELLED;
}

static void send_in_turn(struct slots *all) {
    struct gp_error stop = {0};
    for (size_t i = 0; i < all->n; i++) {
        struct slot *s = &all->items[i];
        if (!is_open(s, SLOT_UNKNOWN)) continue;
        if (stop.code == GP_OK) {
            s->sends++;
            ask(all, i, i + 1, SLOT_UNKNOWN, all->c->ops->send);
            if (s->out.state == SLOT_REFUSED && refuses_all(&s->out.err)) stop = s->out.err;
            else if (all->billed.code != GP_OK) stop = all->billed;
        } else if (s->sends == 0) { /* one that was sent before stays unknown */
            s->out.state = SLOT_REFUSED;
            s->out.err = stop;
            record(all, s);
        }
    }
}

static void send_open(struct slots *all) {
    if (all->c->ops->one_by_one) {
        send_in_turn(all);
        return;
    }
    for (size_t i = 0; i < all->n; i++)
        if (is_open(&all->items[i], SLOT_UNKNOWN)) all->items[i].sends++;
    ask(all, 0, all->n, SLOT_UNKNOWN, all->c->ops->send);
}

static void undecided(struct slot *s, const char *text) {
    s->out.state = SLOT_UNKNOWN;
    gp_error_clear(&s->out.err);
    gp_fail(&s->out.err, GP_EUNKNOWN, "%s", text);
}

static void wait_for_placement(struct slots *all) {
    int64_t until = clock_deadline(all->c->ops->placement_ms);
    while (count_open(all, SLOT_ACCEPTED) > 0) {
        bool late = clock_left_ms(until) == 0;
        if (late || gp_sleep(all->c->ops->poll_ms, all->c->cancel, NULL) != 0) {
            for (size_t i = 0; i < all->n; i++)
                if (is_open(&all->items[i], SLOT_ACCEPTED))
                    undecided(&all->items[i], late ? "the cloud accepted it, but has not placed it in time"
                                                   : "cancelled while the cloud was placing it");
            return;
        }
        ask(all, 0, all->n, SLOT_ACCEPTED, all->c->ops->poll);
    }
}

/* --- lost replies --- */

/* One list for all unknown slots; those that it proves are created. */
static int adopt(struct slots *all, struct gp_error *err) {
    GP_AUTO_RESOURCES struct resource_list seen = {0};
    int r = all->c->ops->list(all->c->ctx, all->req->offer->region, all->req->stack->uid, &seen, err);
    if (r != 0) return r;
    for (size_t i = 0; i < all->n; i++) {
        struct slot *s = &all->items[i];
        GP_AUTO_RESOURCES struct resource_list one = {0};
        struct gp_error why = {0};
        if (!is_open(s, SLOT_UNKNOWN)) continue;
        s->rivals = launched_pick(all->req->proof, s->in, &seen, &one, &why) != 0;
        if (s->rivals) s->out.err = why;
        if (one.list.len == 0) continue;
        resource_clear(&s->out.made);
        s->out.made = one.list.items[0]; /* moves it */
        vec_free(&one.list);
        s->out.state = SLOT_MADE;
        made(all, s);
    }
    return 0;
}

/* The clock may have been set back since the intent, so a cloud without tokens needs its own condition. */
static bool may_send_again(const struct slots *all, const struct slot *s) {
    int64_t max_s = all->c->ops->replay_max_s;
    return max_s > 0 && !s->rivals && clock_wall_s() - s->in->created_s < max_s && s->sends < SENDS_MAX;
}

/* No list shows it, and the longest lag of a list has passed. */
static void left_nothing(struct slots *all, struct slot *s) {
    struct gp_error why = {.domain = GP_D_CLOUD, .scope = GP_SCOPE_ZONE};
    gp_fail(&why, GP_ELOST, "%s %s: the request for node %d got no reply and created nothing: %.160s",
            all->c->ops->provider, s->in->region, s->in->slot_first, s->out.err.msg);
    str_put(why.detail, sizeof why.detail, s->out.err.detail);
    s->out.err = why;
    s->out.state = SLOT_REFUSED;
    refused(all, s);
}

/* The cloud accepted it and did not return an id: it may still be placed, and only its operation has the outcome. */
static bool is_placing(const struct slot *s) {
    return s->in->operation != NULL && s->in->operation[0] != '\0' && s->out.made.id[0] == '\0';
}

/* Without tokens the lists must have been quiet for their lag. A body is too old when its times are. */
static bool may_repeat(const struct slots *all, const struct slot *s) {
    int64_t age_s = clock_wall_s() - s->in->created_s;
    return !s->repeated && !s->rivals && !is_placing(s) && age_s >= 0 && age_s < all->c->ops->repeat_max_s;
}

static void send_again(struct slots *all, bool (*may)(const struct slots *all, const struct slot *s)) {
    struct slots some = *all;
    some.items = xcalloc(all->n, sizeof *some.items);
    some.n = 0;
    size_t *which = xcalloc(all->n, sizeof *which);
    for (size_t i = 0; i < all->n; i++)
        if (is_open(&all->items[i], SLOT_UNKNOWN) && may(all, &all->items[i])) {
            which[some.n] = i;
            all->items[i].repeated = true;
            some.items[some.n++] = all->items[i];
        }
    if (some.n > 0) {
        send_open(&some);
        wait_for_placement(&some);
    }
    for (size_t k = 0; k < some.n; k++) all->items[which[k]] = some.items[k];
    all->billed = some.billed;
    free(which);
    free(some.items);
}

static bool any_may(const struct slots *all, bool (*may)(const struct slots *all, const struct slot *s)) {
    for (size_t i = 0; i < all->n; i++)
        if (is_open(&all->items[i], SLOT_UNKNOWN) && may(all, &all->items[i])) return true;
    return false;
}

static bool sent_twice(const struct slots *all, const struct slot *s) { return s->sends > 1 && may_send_again(all, s); }

/* Runs until no outcome is unknown, or no more can be learned now. */
static void settle(struct slots *all) {
    int64_t until = clock_deadline(all->c->ops->settle_ms); /* the wall clock may have been set back */
    int quiet = 0; /* lists after the lag that did not show the unknown slots */
    while (count_open(all, SLOT_UNKNOWN) > 0) {
        struct gp_error why = {0};
        bool again = any_may(all, may_send_again);
        if (again && gp_cancelled(all->c->cancel)) return;
        if (again) { /* its answer decides; a list only shows what somebody tagged */
            if (any_may(all, sent_twice) && gp_sleep(READS_APART_MS, all->c->cancel, NULL) != 0) return;
            send_again(all, may_send_again);
            quiet = 0;
            continue;
        }
        if (adopt(all, &why) != 0 || count_open(all, SLOT_UNKNOWN) == 0 || gp_cancelled(all->c->cancel)) return;
        bool over = clock_left_ms(until) == 0 || (clock_wall_s() - all->began_s) * 1000 > all->c->ops->settle_ms;
        if (all->c->ops->replay_max_s > 0 && !over) return; /* tokens are repeated later instead of waiting */
        quiet = over ? quiet + 1 : 0;
        if (quiet >= 2 && any_may(all, may_repeat)) {
            send_again(all, may_repeat);
            until = clock_deadline(all->c->ops->settle_ms);
            all->began_s = clock_wall_s();
            quiet = 0;
            continue;
        }
        if (quiet >= 2) {
            for (size_t i = 0; i < all->n; i++)
                if (is_open(&all->items[i], SLOT_UNKNOWN) && !is_placing(&all->items[i]) && !all->items[i].rivals)
                    left_nothing(all, &all->items[i]);
            return;
        }
        if (gp_sleep(READS_APART_MS, all->c->cancel, NULL) != 0) return;
    }
}

/* --- the result --- */

static int verdict(const struct slots *all, struct gp_error *err) {
    const struct slot *bad = NULL;
    size_t unknown = 0;
    for (size_t i = 0; i < all->n; i++) {
        const struct slot *s = &all->items[i];
        if (s->out.state == SLOT_UNKNOWN) unknown++;
        if (s->out.state != SLOT_MADE && (bad == NULL || (s->out.state == SLOT_UNKNOWN && unknown == 1))) bad = s;
    }
    if (all->billed.code != GP_OK) {
        if (err != NULL) *err = all->billed;
        return -(int)all->billed.code;
    }
    if (unknown > 0) {
        int r = gp_fail(err, GP_EUNKNOWN,
                        "%s: the outcome of %zu of %zu nodes is not known yet (node %d: %.160s): run 'up' or 'down' "
                        "again, both check first",
                        all->c->ops->provider, unknown, all->n, bad->in->slot_first, bad->out.err.msg);
        if (err != NULL) {
            err->domain = GP_D_CLOUD;
            str_put(err->detail, sizeof err->detail, bad->out.err.detail);
        }
        return r;
    }
    if (bad == NULL) return 0;
    if (err != NULL) *err = bad->out.err;
    return -(int)bad->out.err.code;
}

static void open_replay(struct slots *all) {
    struct slot *s = &all->items[0];
    if (s->in->operation != NULL && s->in->operation[0] != '\0') {
        s->out.operation = xstrdup(s->in->operation);
        s->out.state = SLOT_ACCEPTED;
        wait_for_placement(all);
    } else {
        undecided(s, "an earlier request has no known outcome");
    }
}

int slot_create(const struct slot_create *c, const struct create_req *req, struct resource_list *ret,
                struct gp_error *err) {
    struct intent_list list = {0};
    struct slots all = {.c = c, .req = req, .ret = ret};
    struct intent replayed = {0};
    int r = launched_need_key(req->proof, err);
    if (r != 0) return r;
    if (gp_cancelled(c->cancel)) return gp_fail(err, GP_ECANCELLED, "cancelled");
    if (req->replay != NULL) {
        replayed = *req->replay;
        replayed.operation = xstrdup(req->replay->operation ? req->replay->operation : "");
        vec_push(&list.list, replayed); /* borrowed except the operation */
    }
    for (int s = req->slot_first; r == 0 && req->replay == NULL && s < req->slot_first + req->slot_count; s++)
        r = add_intent(c, req, s, &list, err);
    if (r == 0 && req->replay == NULL) r = journal_intents_put(c->journal, &list, err);
    if (r == 0) {
        all.n = list.list.len;
        all.items = xcalloc(all.n, sizeof *all.items);
        all.began_s = list.list.items[0].created_s;
        for (size_t i = 0; i < all.n; i++) {
            all.items[i].in = &list.list.items[i];
            reset(&all.items[i], c->ops->provider);
        }
        if (req->replay != NULL) {
            open_replay(&all);
        } else {
            send_open(&all);
            wait_for_placement(&all);
            all.began_s = clock_wall_s();
        }
        settle(&all);
        r = verdict(&all, err);
    }
    for (size_t i = 0; i < all.n; i++) {
        resource_clear(&all.items[i].out.made);
        free(all.items[i].out.operation);
    }
    free(all.items);
    if (req->replay != NULL) {
        free(list.list.items[0].operation);
        vec_free(&list.list);
    } else {
        intent_list_clear(&list);
    }
    return r;
}
