/* SPDX-License-Identifier: Apache-2.0 */
/* For the tests of the engine: a cloud in memory that misbehaves on command, linked in place of the
 * registry, and an engine in a folder of its own. One program, one cloud, one thread. */
#ifndef GP_TEST_ENGINE_CLOUD_H
#define GP_TEST_ENGINE_CLOUD_H

#include "base/fs.h"
#include "engine/plan.h"
#include "engine/run/lock.h"
#include "engine/run/login_key.h"
#include "engine/run/run_node.h"
#include "engine/run/run_provider.h"
#include "engine/stack/adopt.h"
#include "engine/stack/extras.h"
#include "engine/stack/launch.h"
#include "engine/stack/reconcile.h"
#include "engine/stack/settle.h"
#include "engine/trust/proof_key.h"
#include "folder.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <unistd.h>
#include <cmocka.h>

/* --- the cloud --- */
struct refusal {
    enum gp_code code;
    enum gp_scope scope;
    const char *detail;
};
static struct {
    struct resource_list things;
    struct refusal script[16];                               /* answer to the n-th create; code 0: it works */
    struct refusal no_offers[4];                             /* answer to offers, by the spec's entry */
    int creates, lose_reply_at, list_lag, lists, gone_after; /* gone_after: lists until STOPPING ends */
    int max_count[3];                                        /* of the offers, by zone; 0: unknown */
    bool opens_meet, lists_meet;                             /* as queries do (meeting) */
    bool looks_nowhere;                                      /* its lists fill no `looked` */
    bool list_fails, open_fails, no_credentials;             /* no_credentials: why open fails */
    bool service_says;                                       /* that is the service's own code */
    enum gp_code list_code;                                  /* of list_fails; 0: GP_EAUTH */
    const char *account;                                     /* that the credentials are for */
    const char *principal, *login;           /* whose credentials they are; who is logged in here: owner of "local" */
    const char *keeps;                       /* the id of a machine that it refuses to terminate */
    int refusals;                            /* how often it did */
    bool list_is_partial;                    /* it fails after it showed what it has: one region did not answer */
    bool other_open_fails, other_list_fails; /* of the second provider, "local" */
    bool other_no_credentials;               /* why its open fails */
    const char *other_principal;             /* of the second provider's credentials; NULL: it has no principals */
    const char *other_currency;              /* of its prices; NULL: USD */
    bool name_providers;                     /* `tried` has the offers' providers too */
    int64_t skew_s;                          /* the clouds' clocks minus ours */
    int64_t other_skew_s;                    /* of the second one, more than skew_s */
    int list_fails_at, hide_instances_at;    /* the n-th list and all after it; that one list only */
    char tried[512];
    int double_create;    /* creates two machines for every slot */
    enum offer_ends ends; /* of the first zone's offer, which is the cheapest */
    bool ends_all;        /* of every offer */
    bool no_prices;       /* of no offer is the price known */
    int partial[16];      /* so many slots that the n-th create makes before its refusal */
    bool group_lingers;
    struct engine *cancel_in_create; /* Ctrl-C while the first create is under way */
    const char *launched_meanwhile;  /* a machine of another controller, which appears with the first create */
    bool never_made;                 /* the lost create made nothing */
    char *under_way;                 /* what the second Ctrl-C would print then */
    struct strv known;               /* the ids that prepare got of a stack with machines */
    void (*at_open)(void);           /* what somebody else does meanwhile */
    void (*at_create)(const struct create_req *req);
    void (*at_list)(void);
    void (*at_destroy)(void);
} cloud;

static void cloud_reset(void) {
    resource_list_clear(&cloud.things);
    free(cloud.under_way);
    strv_clear(&cloud.known);
    memset(&cloud, 0, sizeof cloud);
    cloud.lose_reply_at = -1;
}

static void meet(void);
static int open_as(const struct provider_ops *ops, const struct provider_env *env, struct provider **ret) {
    struct fake {
        struct provider base;
        struct journal *journal;
    } *f = xcalloc(1, sizeof *f);
    f->base.ops = ops;
    f->base.clock_skew_s = cloud.skew_s + (ops == &provider_local ? cloud.other_skew_s : 0);
    f->base.account = ops == &provider_aws ? cloud.account : NULL;
    const char *principal = ops == &provider_aws ? cloud.principal : cloud.other_principal;
    const char *own = principal != NULL || ops == &provider_aws ? principal : cloud.login;
    f->base.principal_owner = principal;
    f->base.owner = xstrdup(env->owner ? env->owner : own ? own : "me");
    f->journal = env->journal;
    *ret = &f->base;
    return 0;
}
static int fake_open(const struct provider_env *env, struct provider **ret, struct gp_error *err) {
    if (cloud.opens_meet) meet();
    if (cloud.at_open != NULL) cloud.at_open();
    if (cloud.open_fails) {
        int r = gp_fail(err, GP_EAUTH, "no credentials");
        if (cloud.no_credentials) str_put(err->detail, sizeof err->detail, PROVIDER_NO_CREDENTIALS);
        err->domain = cloud.service_says ? GP_D_CLOUD : GP_D_NONE;
        return r;
    }
    return open_as(&provider_aws, env, ret);
}
static int other_open(const struct provider_env *env, struct provider **ret, struct gp_error *err) {
    if (cloud.opens_meet) meet();
    if (cloud.other_open_fails) {
        int r = gp_fail(err, GP_EENV, "no way in there");
        if (cloud.other_no_credentials) str_put(err->detail, sizeof err->detail, PROVIDER_NO_CREDENTIALS);
        return r;
    }
    return open_as(&provider_local, env, ret);
}
static struct journal *journal_of(struct provider *p) {
    struct fake {
        struct provider base;
        struct journal *journal;
    } *f = (void *)p;
    return f->journal;
}
static void fake_close(struct provider *p) {
    if (p == NULL) return;
    free(p->owner);
    free(p);
}

/* Queries of both providers at the same time wait for one another; one that stays alone for 10 s does not. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t change;
    int inside, together; /* now; the most so far */
    bool on;
} meeting = {.lock = PTHREAD_MUTEX_INITIALIZER, .change = PTHREAD_COND_INITIALIZER};

static void meet(void) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 10;
    pthread_mutex_lock(&meeting.lock);
    meeting.inside++;
    meeting.together = GP_MAX(meeting.together, meeting.inside);
    pthread_cond_broadcast(&meeting.change);
    while (meeting.on && meeting.together < 2 && pthread_cond_timedwait(&meeting.change, &meeting.lock, &until) == 0) {
    }
    meeting.inside--;
    pthread_mutex_unlock(&meeting.lock);
}

static int fake_offers(struct provider *p, const struct spec *spec, size_t index, struct offer_list *ret,
                       struct gp_error *err) {
    const struct refusal *no = &cloud.no_offers[index];
    meet();
    if (no->code != GP_OK) {
        int r = gp_fail(err, no->code, "refused: %s", no->detail);
        err->scope = no->scope;
        return r;
    }
    static const char *const zones[] = {"r1-a", "r1-b", "r2-a"};
    for (size_t i = 0; i < GP_ARRAY_LEN(zones); i++) {
        struct offer o = {.spec_index = index,
                          .provider = xstrdup(p->ops->name),
                          .region = xstrndup(zones[i], 2),
                          .zone = xstrdup(zones[i]),
                          .instance_type = xstrdup("t"),
                          .market = spec->offers.items[index].market,
                          .image = xstrdup(""),
                          .image_name = xstrdup(""),
                          .subnet = xstrdup(""),
                          .gpu_model = xstrdup(""),
                          .price_usd_per_h = cloud.no_prices ? -1 : (double)(i + 1),
                          .price_source = xstrdup(""),
                          .max_count = cloud.max_count[i],
                          .ends = i == 0 || cloud.ends_all ? cloud.ends : ENDS_BY_PROVIDER};
        if (p->ops == &provider_local && cloud.other_currency != NULL)
            offer_set_price(&o, (double)(i + 1), cloud.other_currency);
        vec_push(&ret->list, o);
    }
    return 0;
}

static struct resource *add(enum resource_kind kind, const char *id, const struct stack *s, int slot) {
    struct resource r = {0};
    resource_init(&r, kind, "aws");
    resource_set(&r.id, id);
    resource_set(&r.owner, s->owner);
    resource_set(&r.stack, s->name);
    resource_set(&r.uid, s->uid);
    resource_set(&r.spec_hash, s->spec_hash);
    resource_set(&r.unit, s->unit);
    resource_set(&r.region, "r1");
    r.slot = slot;
    r.state = RES_RUNNING;
    r.billed = kind == RES_INSTANCE;
    r.claim = kind == RES_GROUP;
    r.expires_s = s->expires_s;
    vec_push(&cloud.things.list, r);
    return &cloud.things.list.items[cloud.things.list.len - 1];
}
/* One of a stack that these tests did not launch. expires_s: 0 for none. */
GP_UNUSED static struct resource *add_of(enum resource_kind kind, const char *id, int slot, const char *owner,
                                         const char *name, const char *uid, int64_t expires_s) {
    struct stack s = {.owner = xstrdup(owner),
                      .name = xstrdup(name),
                      .uid = xstrdup(uid),
                      .spec_hash = xstrdup(""),
                      .expires_s = expires_s};
    struct resource *r = add(kind, id, &s, slot);
    stack_clear(&s);
    return r;
}

#define FAKE_KEY "SHA256:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
/* Gives a machine the tags with which its stack proves that it is its own. */
static void prove(const struct proof_key *key, struct resource *r) {
    char proof[PROOF_SIZE];
    resource_set(&r->host_keys, FAKE_KEY);
    proof_of_machine(key, r->uid, r->provider, r->id, r->slot, FAKE_KEY, proof);
    resource_set(&r->proof, proof);
    r->slot_first = r->slot;
    r->slot_count = 1;
    proof_of_launch(key, r->uid, r->slot, 1, r->attempt, proof);
    resource_set(&r->launch, proof);
    proof_of_deadline(key, r->uid, r->expires_s, proof);
    resource_set(&r->deadline, proof);
}

/* Records it as a machine of a launch of this journal. */
GP_UNUSED static void record_launched(struct journal *j, struct resource *r) {
    struct gp_error err = {0};
    r->ours = OURS_LAUNCHED;
    if (journal_resource_put(j, r, &err) != 0) fail_msg("%s", err.msg);
    r->ours = OURS_NOT; /* a cloud does not say so */
}

static int fake_prepare(struct provider *p, const struct prepare_req *req, struct gp_error *err) {
    for (size_t i = 0; req->known != NULL && i < req->known->list.len; i++)
        if (p->ops == &provider_aws) strv_add(&cloud.known, req->known->list.items[i].id);
    if (req->known != NULL) return 0;
    for (size_t i = 0; i < cloud.things.list.len; i++) {
        struct resource *r = &cloud.things.list.items[i];
        if (!r->claim || strcmp(r->stack, req->stack->name) != 0 || r->state == RES_GONE) continue;
        free(req->stack->uid);
        req->stack->uid = xstrdup(r->uid);
        r->expires_s = req->stack->expires_s;
        return 0;
    }
    if (req->stack->uid == NULL) {
        char uid[17];
        if (fs_random_hex(uid, 8, err) != 0) return -(int)GP_EENV;
        req->stack->uid = xstrdup(uid);
    }
    struct intent in = {.uid = xstrdup(req->stack->uid),
                        .provider = xstrdup("aws"),
                        .kind = RES_GROUP,
                        .slot_first = -1,
                        .created_s = clock_wall_s()};
    int r = journal_intent(journal_of(p), &in, err);
    if (r == 0) {
        GP_AUTO_RESOURCES struct resource_list made = {0};
        struct resource *group = add(RES_GROUP, "sg-1", req->stack, -1);
        resource_set(&group->regions, "r1 r2");
        resource_list_add(&made, group);
        r = journal_intent_done(journal_of(p), in.id, &made, err);
    }
    intent_clear(&in);
    return r;
}

static int fake_create(struct provider *p, const struct create_req *req, struct resource_list *ret,
                       struct gp_error *err) {
    struct journal *j = journal_of(p);
    int n = cloud.creates++;
    if (cloud.at_create != NULL) cloud.at_create(req);
    if (cloud.launched_meanwhile != NULL && n == 0) add(RES_INSTANCE, cloud.launched_meanwhile, req->stack, 0);
    if (cloud.cancel_in_create != NULL) {
        if (gp_cancelled(&cloud.cancel_in_create->cancel)) return gp_fail(err, GP_ECANCELLED, "cancelled");
        cloud.under_way = engine_billed_ids(cloud.cancel_in_create);
        engine_cancel(cloud.cancel_in_create);
    }
    struct intent in = {.provider = xstrdup("aws"),
                        .uid = xstrdup(req->stack->uid),
                        .spec_hash = xstrdup(req->spec->hash),
                        .kind = RES_INSTANCE,
                        .slot_first = req->slot_first,
                        .slot_count = req->slot_count,
                        .attempt = req->attempt,
                        .created_s = clock_wall_s()};
    if (req->replay != NULL) in.id = req->replay->id;
    else if (journal_intent(j, &in, err) != 0) return -(int)GP_EIO;
    size_t len = strlen(cloud.tried);
    snprintf(cloud.tried + len, sizeof cloud.tried - len, "%s%s%s ", cloud.name_providers ? p->ops->name : "",
             cloud.name_providers ? "/" : "", req->replay ? "replay" : req->offer->zone);
    int r = 0;
    const struct refusal *no = &cloud.script[n];
    if (no->code != GP_OK) {
        r = gp_fail(err, no->code, "refused: %s", no->detail);
        err->scope = no->scope;
        str_put(err->detail, sizeof err->detail, no->detail);
        journal_intent_end(j, in.id, INTENT_FAILED, no->detail, NULL);
    }
    int make = r == 0 && !cloud.never_made ? req->slot_count : n < 16 ? cloud.partial[n] : 0;
    for (int s = req->slot_first; s < req->slot_first + make; s++) {
        char id[32];
        for (int twin = 0; twin <= cloud.double_create; twin++) {
            snprintf(id, sizeof id, "i-%d%s", s, twin ? "-twin" : "");
            bool there = false;
            for (size_t i = 0; i < cloud.things.list.len; i++)
                there = there || (strcmp(cloud.things.list.items[i].id, id) == 0 &&
                                  cloud.things.list.items[i].state != RES_GONE);
            struct resource *res = there ? NULL : add(RES_INSTANCE, id, req->stack, s);
            if (res != NULL) res->attempt = req->attempt;
            if (res != NULL) prove(req->proof, res);
        }
        for (size_t i = 0; i < cloud.things.list.len; i++) {
            snprintf(id, sizeof id, "i-%d", s);
            if (strcmp(cloud.things.list.items[i].id, id) != 0 || cloud.things.list.items[i].state == RES_GONE)
                continue;
            struct resource copy = {0};
            resource_copy(&copy, &cloud.things.list.items[i]);
            copy.ours = OURS_LAUNCHED; /* the reply names it */
            vec_push(&ret->list, copy);
        }
    }
    if (r == 0 && n == cloud.lose_reply_at) {
        resource_list_clear(ret);
        r = gp_fail(err, GP_EUNKNOWN, "the reply was lost");
    } else if (r == 0) {
        r = journal_intent_done(j, in.id, ret, err);
    }
    intent_clear(&in);
    return r;
}

/* The regions that this list looks in, and that it does wholly. */
static void fake_looked(struct provider *p, const struct list_req *req) {
    static const char *const regions[] = {"r1", "r2"};
    if (req->looked == NULL || cloud.looks_nowhere) return;
    if (p->ops == &provider_local) {
        coverage_put(req->looked, "local", "here", req->owner, false, NULL);
        for (size_t i = 0; req->regions != NULL && i < req->regions->n; i++)
            coverage_put(req->looked, "local", req->regions->v[i], req->owner, false, NULL);
        return;
    }
    struct gp_error denied = {0};
    if (cloud.list_is_partial) {
        gp_fail(&denied, GP_EAUTH, "r9 is not for you");
        coverage_put(req->looked, "aws", "r9", req->owner, true, &denied);
    }
    for (size_t i = 0; i < GP_ARRAY_LEN(regions); i++)
        coverage_put(req->looked, "aws", regions[i], req->owner, true, NULL);
    for (size_t i = 0; !cloud.list_is_partial && req->regions != NULL && i < req->regions->n; i++)
        coverage_put(req->looked, "aws", req->regions->v[i], req->owner, true, NULL);
}

static int list_things(struct provider *p, const struct list_req *req, struct resource_list *ret,
                       struct gp_error *err) {
    bool other = p->ops == &provider_local;
    if (other && cloud.other_list_fails) return gp_fail(err, GP_EENDPOINT, "it does not answer");
    if (!other) cloud.lists++;
    if (!other && cloud.at_list != NULL) cloud.at_list();
    bool from_here = cloud.list_fails_at > 0 && cloud.lists >= cloud.list_fails_at;
    if (!other && (cloud.list_fails || from_here))
        return gp_fail(err, cloud.list_code != GP_OK ? cloud.list_code : GP_EAUTH, "no credentials");
    for (size_t i = 0; i < cloud.things.list.len; i++) {
        struct resource *r = &cloud.things.list.items[i];
        if (r->state == RES_STOPPING && --cloud.gone_after <= 0) {
            r->state = RES_GONE;
            r->billed = false;
        }
        bool by_uid = req->uid != NULL && str_eq(req->uid, r->uid);
        if (req->stack != NULL && strcmp(req->stack, r->stack) != 0 && !by_uid) continue;
        if (strcmp(req->owner, r->owner) != 0 || strcmp(r->provider, p->ops->name) != 0) continue;
        if (!other && r->kind == RES_INSTANCE && cloud.lists <= cloud.list_lag) continue;
        if (!other && r->kind == RES_INSTANCE && cloud.lists == cloud.hide_instances_at) continue;
        if (r->kind == RES_GROUP && r->state == RES_GONE) continue;
        struct resource copy = {0};
        resource_copy(&copy, r);
        vec_push(&ret->list, copy);
    }
    fake_looked(p, req);
    if (!other && cloud.list_is_partial) return gp_fail(err, GP_EAUTH, "r9 is not for you");
    return 0;
}

/* Both providers are listed at the same time, and there is one cloud. */
static int fake_list(struct provider *p, const struct list_req *req, struct resource_list *ret, struct gp_error *err) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    if (cloud.lists_meet) meet();
    pthread_mutex_lock(&lock);
    int r = list_things(p, req, ret, err);
    pthread_mutex_unlock(&lock);
    return r;
}

static int fake_destroy(struct provider *p, const struct resource_list *what, struct gp_error *err) {
    bool refused = false;
    if (cloud.at_destroy != NULL) cloud.at_destroy();
    for (size_t i = 0; i < what->list.len; i++) {
        if (cloud.keeps != NULL && strcmp(cloud.keeps, what->list.items[i].id) == 0) {
            cloud.refusals++;
            refused = true;
            continue;
        }
        for (size_t k = 0; k < cloud.things.list.len; k++) {
            struct resource *r = &cloud.things.list.items[k];
            if (strcmp(r->id, what->list.items[i].id) != 0 || r->state == RES_GONE ||
                strcmp(r->provider, p->ops->name) != 0)
                continue;
            if (r->kind == RES_INSTANCE) r->state = RES_STOPPING;
            else {
                bool used = cloud.group_lingers;
                for (size_t m = 0; m < cloud.things.list.len; m++)
                    used = used || (cloud.things.list.items[m].kind == RES_INSTANCE &&
                                    strcmp(cloud.things.list.items[m].uid, r->uid) == 0 &&
                                    strcmp(cloud.things.list.items[m].provider, r->provider) == 0 &&
                                    cloud.things.list.items[m].state != RES_GONE);
                if (!used) r->state = RES_GONE;
            }
        }
    }
    return refused ? gp_fail(err, GP_EAUTH, "%s is protected against termination", cloud.keeps) : 0;
}

const struct provider_ops provider_aws = {.name = "aws",
                                          .spec = &aws_spec,
                                          .summary = "in memory",
                                          .ends = ENDS_GUEST,
                                          .guest_end = GUEST_POWEROFF,
                                          .user_data_max = 16384,
                                          .poll_ms = 5000,
                                          .replay_max_s = 12 * 3600,
                                          .principal = true,
                                          .unique_claim = true,
                                          .billed = true,
                                          .boot_timeout_ms = 1000,
                                          .settle_ms = 300,
                                          .open = fake_open,
                                          .close = fake_close,
                                          .offers = fake_offers,
                                          .prepare = fake_prepare,
                                          .create = fake_create,
                                          .list = fake_list,
                                          .destroy = fake_destroy};
/* A second cloud, where tests put things by hand. */
static const struct spec_provider_key no_keys[] = {{0}};
static const struct spec_provider local_spec = {.name = "local", .doc = "", .keys = no_keys, .by_default = true};
const struct provider_ops provider_local = {.name = "local",
                                            .spec = &local_spec,
                                            .summary = "in memory",
                                            .ends = ENDS_SERVER,
                                            .poll_ms = 5000,
                                            .replay_max_s = 12 * 3600,
                                            .unique_claim = true,
                                            .boot_timeout_ms = 1000,
                                            .open = other_open,
                                            .close = fake_close,
                                            .offers = fake_offers,
                                            .prepare = fake_prepare,
                                            .create = fake_create,
                                            .list = fake_list,
                                            .destroy = fake_destroy};
const struct provider_ops *const provider_registry[] = {&provider_aws, &provider_local, NULL};
const struct provider_ops *provider_find(const char *name) {
    if (strcmp(name, "local") == 0) return &provider_local;
    return strcmp(name, "aws") == 0 ? &provider_aws : NULL;
}

/* --- fixture --- */
struct fixture {
    char dir[64];
    struct engine *e;
    struct spec *spec;
    struct run *run;
};

static void load(struct fixture *f, const char *text) {
    spec_free(f->spec);
    f->spec = NULL;
    struct spec_problems problems = {0};
    struct gp_error err = {0};
    provider_specs_register();
    if (spec_load_text("t.yaml", text, strlen(text), NULL, &f->spec, &problems, &err) != 0)
        fail_msg("%s: %s", err.msg, problems.list.len ? problems.list.items[0].message : "");
}

static int setup(void **state) {
    struct fixture *f = xcalloc(1, sizeof *f);
    if (make_folder(f->dir, sizeof f->dir, "engine") == NULL) return -1;
    setenv("GPUPROV_STATE_DIR", f->dir, 1);
    cloud_reset();
    struct gp_error err = {0};
    if (engine_open(&(struct engine_opts){.owner = "me"}, &f->e, &err) != 0) return -1;
    load(f, "name: t\nnodes: 2\noffers: [{provider: aws}]\n");
    *state = f;
    return 0;
}

static int finish(void **state) {
    struct fixture *f = *state;
    run_close(f->run);
    engine_close(f->e);
    spec_free(f->spec);
    cloud_reset();
    struct gp_error err = {0};
    int r = fs_remove_tree(f->dir, &err);
    free(f);
    return r;
}

/* The first half of up: claim, reconcile, settle, launch. */
__attribute__((unused)) static int launch(struct fixture *f, struct gp_error *err) {
    struct offer_list offers = {0};
    GP_AUTO_FINDING struct finding found = {0};
    run_close(f->run);
    f->run = NULL;
    int r = run_open(f->e, f->spec, "t", &f->run, err);
    if (r == 0) r = run_open_offers(f->run, err);
    if (r == 0) r = run_lock(f->run, err);
    if (r == 0) r = adopt_stack(f->run, &found, err);
    if (r == 0 && f->run->stack.uid == NULL) {
        struct stack s = {.owner = xstrdup("me"),
                          .name = xstrdup("t"),
                          .provider = xstrdup("aws"),
                          .region = xstrdup("r1"),
                          .spec_hash = xstrdup(f->spec->hash),
                          .expires_s = clock_wall_s() + 3600};
        stack_clear(&f->run->stack);
        f->run->stack = s;
    }
    struct prepare_req req = {.stack = &f->run->stack, .spec = f->spec};
    if (r == 0) r = f->run->home->ops->prepare(f->run->home, &req, err);
    GP_AUTO_FREE char *canonical = spec_canonical(f->spec);
    if (r == 0) r = journal_stack_put(f->e->journal, &f->run->stack, canonical, err);
    if (r == 0) r = login_key_get(f->run, true, err);
    if (r == 0) r = run_proof_key(f->run, true, err);
    run_nodes_alloc(f->run, f->spec->nodes);
    if (r == 0) r = settle_launches(f->run, &found, err);
    if (r == 0) r = extras_end(f->run, &found, err);
    if (r == 0) r = plan_offers(f->run, &offers, err);
    if (r == 0) r = launch_missing(f->run, &offers, err);
    offer_list_clear(&offers);
    if (f->run != NULL && f->run->lock.fd >= 0) close(f->run->lock.fd); /* for the verbs that follow */
    if (f->run != NULL) f->run->lock.fd = -1;
    return r;
}

/* Gives the stack that deadline, in the journal and in all tags. */
GP_UNUSED static void deadline_is(struct fixture *f, int64_t at_s) {
    struct gp_error err = {0};
    for (size_t i = 0; i < cloud.things.list.len; i++) cloud.things.list.items[i].expires_s = at_s;
    f->run->stack.expires_s = at_s;
    if (journal_stack_put(f->e->journal, &f->run->stack, NULL, &err) != 0) fail_msg("%s", err.msg);
}

__attribute__((unused)) static int running(void) {
    int n = 0;
    for (size_t i = 0; i < cloud.things.list.len; i++)
        n += cloud.things.list.items[i].kind == RES_INSTANCE && cloud.things.list.items[i].state == RES_RUNNING;
    return n;
}

__attribute__((unused)) static int alive(void) {
    int n = 0;
    for (size_t i = 0; i < cloud.things.list.len; i++) n += cloud.things.list.items[i].state != RES_GONE;
    return n;
}

__attribute__((unused)) static void down_ok(struct fixture *f) {
    struct down_result res = {0};
    struct gp_error err = {0};
    int r = engine_down(f->e, &(struct down_req){.name = "t"}, &res, &err);
    if (r != 0) fail_msg("%s", err.msg);
    assert_int_equal(res.left.list.len, 0);
    down_result_clear(&res);
    assert_int_equal(alive(), 0);
}

#endif
