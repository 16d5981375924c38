/* SPDX-License-Identifier: Apache-2.0 */
/* The local provider's ops: stacks on this machine, without an account and without a daemon. The
 * cloud here is the state folder (claim.h) and one holder process per stack (holder.h); this file
 * asks and tells them and runs nothing of a node itself. Threads: as providers/provider.h says. */
#include "base/gp_base.h"

#include "providers/local/local.h"
#include "providers/local/lower.h"

#include "base/fs.h"
#include "base/hash.h"
#include "base/json.h"
#include "providers/common/ownership.h"
#include "providers/local/ask.h"
#include "providers/local/decode.h"
#include "providers/local/holder.h"
#include "providers/local/local_claim.h"
#include "providers/local/local_images.h"
#include "providers/local/offers.h"
#include "providers/provider.h"

#include <errno.h>
#include <poll.h>
#include <unistd.h>

#define REGION LOCAL_REGION
#define LOCK_MS 30000
#define START_MS 40000
#define CREATE_MS 30000
#define LIST_MS 60000 /* the holder waits for a node that it ends, whose files the kernel may write first */
#define END_MS 180000
#define KILL_MS 180000
#define DYING_MS 3000
#define CONSOLE_BYTES ((size_t)64 << 10)
#define CLAIM_SHARED_S 600 /* how long after its making a claim may be a run's that is at work */

struct local {
    struct provider base;
    struct gp_cancel *cancel;
    struct journal *journal;
    char *stacks; /* STATE/local */
};

static struct local *self(struct provider *p) { return (struct local *)(void *)p; }

static int local_open(const struct provider_env *env, struct provider **ret, struct gp_error *err) {
    struct local *l = xcalloc(1, sizeof *l);
    l->base.ops = &provider_local;
    l->cancel = env->cancel;
    l->journal = env->journal;
    l->base.owner = env->owner != NULL ? xstrdup(env->owner) : owner_of_login();
    int r = local_base(env->state_dir, &l->stacks, err);
    if (r != 0) {
        free(l->base.owner);
        free(l);
        return r;
    }
    local_tidy(l->stacks);
    *ret = &l->base;
    return 0;
}

static void local_close(struct provider *p) {
    if (p == NULL) return;
    free(self(p)->stacks);
    free(p->owner);
    free(p);
}

/* --- resources --- */

static void common_fields(struct resource *r, const struct local_claim *c) {
    resource_set(&r->region, REGION);
    resource_set(&r->owner, c->owner);
    resource_set(&r->stack, c->name);
    resource_set(&r->uid, c->uid);
    resource_set(&r->spec_hash, c->spec_hash);
    resource_set(&r->unit, c->unit);
    r->expires_s = c->expires_s;
    r->price_usd_per_h = 0;
    r->billed = false;
}

static void push_holder(const struct local_claim *c, enum resource_state state, const char *why,
                        struct resource_list *ret) {
    struct resource r = {0};
    GP_AUTO_FREE char *id = xasprintf("local-%s", c->uid);
    resource_init(&r, RES_HOLDER, "local");
    common_fields(&r, c);
    resource_set(&r.id, id);
    resource_set(&r.state_reason, why);
    resource_set(&r.regions, REGION);
    r.slot = -1;
    r.claim = true;
    r.state = state;
    r.created_s = c->created_s;
    vec_push(&ret->list, r);
}

static enum resource_state state_of(const char *word) {
    if (strcmp(word, "running") == 0) return RES_RUNNING;
    if (strcmp(word, "starting") == 0) return RES_PENDING;
    return strcmp(word, "ended") == 0 ? RES_GONE : RES_STOPPED;
}

static int push_node(const struct local_claim *c, const json_t *j, struct resource_list *ret, struct gp_error *err) {
    struct resource r = {0};
    struct local_seen n = {0};
    int rc = local_decode_node(j, c->uid, &n, err);
    if (rc != 0) return rc;
    GP_AUTO_FREE char *ctl = fs_join(c->dir, "ctl");
    resource_init(&r, RES_INSTANCE, "local");
    common_fields(&r, c);
    resource_set(&r.id, n.id);
    resource_set(&r.instance_type, "node");
    resource_set(&r.private_ip, n.ip);
    resource_set(&r.host_keys, n.host_key);
    resource_set(&r.state_reason, n.why);
    str_one_line(r.state_reason); /* what its sshd wrote may be in it */
    resource_set(&r.dial_socket, ctl);
    resource_set(&r.user, "root");
    GP_AUTO_FREE char *image = n.image[0] != '\0' ? xasprintf(LOCAL_IMAGE_PREFIX "%s", n.image) : NULL;
    resource_set(&r.image, image);
    r.slot = n.slot;
    r.attempt = n.attempt;
    r.state = state_of(n.state);
    r.created_s = n.created_s;
    r.gpus = n.gpus;
    vec_push(&ret->list, r);
    return 0;
}

/* --- prepare --- */

static void take_claim(struct stack *s, const struct local_claim *c, bool existed) {
    free(s->uid);
    s->uid = xstrdup(c->uid);
    s->created_s = c->created_s;
    if (existed) s->expires_s = c->expires_s;
}

/* Another run of the same spec made it a moment ago and may be at work: both go on with its times. Any other
 * claim whose holder never ran makes room, so that the spec's deadline counts. */
static bool shares_times(const struct local_claim *c, const struct stack *s) {
    int64_t now = clock_wall_s(), ttl_s = s->expires_s - (s->created_s > 0 ? s->created_s : now);
    return c->expires_s > now && llabs(now - c->created_s) < CLAIM_SHARED_S && str_eq(c->spec_hash, s->spec_hash) &&
           llabs(c->expires_s - c->created_s - ttl_s) <= 60;
}

/* What an expired stack, or a run that was cut before its first node, left makes room. */
static int clear_expired(struct local *l, const struct local_claim *c, struct gp_error *err) {
    int r = local_holder_kill(c->dir, clock_deadline(KILL_MS), err);
    return r != 0 ? r : local_remove(l->stacks, c->dir, c->uid, err);
}

static int claim_new(struct local *l, const struct prepare_req *req, const char *dir, struct gp_error *err) {
    struct stack *s = req->stack;
    char uid[17];
    int r = fs_random_hex(uid, 8, err);
    if (r != 0) return r;
    if (req->further) str_put(uid, sizeof uid, s->uid);
    struct local_claim c = {.dir = xstrdup(dir),
                            .owner = xstrdup(s->owner),
                            .name = xstrdup(s->name),
                            .uid = xstrdup(uid),
                            .spec_hash = xstrdup(s->spec_hash),
                            .unit = xstrdup(s->unit),
                            .created_s = clock_wall_s(),
                            .expires_s = s->expires_s};
    struct intent in = {.uid = c.uid,
                        .provider = (char[]){"local"},
                        .region = (char[]){REGION},
                        .zone = (char[]){""},
                        .kind = RES_HOLDER,
                        .claim = true,
                        .slot_first = -1,
                        .token = c.uid,
                        .body = c.dir,
                        .offer = (char[]){""},
                        .created_s = c.created_s,
                        .deadline_s = c.created_s + LOCK_MS / 1000,
                        .state = INTENT_OPEN,
                        .note = (char[]){""}};
    GP_AUTO_RESOURCES struct resource_list made = {0};
    r = journal_intent(l->journal, &in, err);
    if (r == 0) {
        r = local_claim_make(l->stacks, &c, err);
        if (r != 0) journal_intent_end(l->journal, in.id, INTENT_FAILED, err ? err->detail : "", NULL);
    }
    if (r == 0) {
        take_claim(s, &c, false);
        push_holder(&c, RES_PENDING, "", &made);
        r = journal_intent_done(l->journal, in.id, &made, err);
    }
    local_claim_clear(&c);
    return r;
}

/* The holder enforces the deadline, so it moves it. */
static int move_deadline(struct local *l, const struct stack *s, const char *dir, struct gp_error *err) {
    GP_AUTO_CLAIM struct local_claim c = {0};
    GP_AUTO_STR struct str answer = {0};
    int r = local_claim_read(dir, &c, err);
    if (r == -GP_ENOTFOUND) gp_error_clear(err); /* the stack's nodes are at another provider */
    if (r == -GP_ENOTFOUND || (r == 0 && (!str_eq(c.uid, s->uid) || c.expires_s == s->expires_s))) return 0;
    GP_AUTO_FREE char *line = xasprintf("deadline %lld", (long long)s->expires_s);
    if (r == 0) r = local_ask(dir, line, clock_deadline(LOCK_MS), l->cancel, &answer, err);
    if (r != 0) return gp_wrap(err, "could not move the deadline of '%s'", s->name);
    if (str_eq(str_trim(answer.s), "ok")) return 0;
    return gp_fail(err, GP_EENV, "could not move the deadline of '%s': %.200s", s->name, str_trim(answer.s));
}

static int local_prepare(struct provider *p, const struct prepare_req *req, struct gp_error *err) {
    struct local *l = self(p);
    struct stack *s = req->stack;
    GP_AUTO_FREE char *dir = local_dir(l->stacks, s->owner, s->name);
    GP_AUTO_FD int lock = -1;
    GP_AUTO_CLAIM struct local_claim c = {0};
    struct gp_error why = {0};
    if (req->known != NULL) return move_deadline(l, s, dir, err); /* no key changes who may reach a local node */
    int r = local_lock(l->stacks, clock_deadline(LOCK_MS), l->cancel, &lock, err);
    if (r != 0) return r;
    r = local_claim_read(dir, &c, &why);
    GP_AUTO_FD int alive = r == 0 ? local_holder_pidfd(dir) : -1; /* it may have nodes by now */
    if (r == 0 && c.expires_s > clock_wall_s() && (alive >= 0 || shares_times(&c, s))) {
        take_claim(s, &c, true);
        return 0;
    }
    if (r == 0) r = clear_expired(l, &c, err);
    else if (r == -GP_ENOTFOUND) r = 0;
    else return gp_fail(err, why.code, "%s", why.msg);
    return r == 0 ? claim_new(l, req, dir, err) : r;
}

/* --- create --- */

static void make_token(const struct create_req *q, char dst[65]) {
    GP_AUTO_FREE char *text = xasprintf("%s|instance|%d|%d|%d|local|" REGION "|node", q->stack->uid, q->slot_first,
                                        q->slot_count, q->attempt);
    sha256_hex(text, strlen(text), dst);
}

/* The URLs that bootstrap.python names. */
static json_t *python_indexes(const struct spec *spec) {
    json_t *list = json_array();
    if (spec->python.index != NULL) json_array_append_new(list, json_string(spec->python.index));
    if (spec->python.torch_index != NULL) json_array_append_new(list, json_string(spec->python.torch_index));
    return list;
}

/* Starts the holder when it does not run; finds it running: success. */
static int ensure_holder(struct local *l, const struct local_claim *c, int nodes, json_t *indexes,
                         struct gp_error *err) {
    GP_AUTO_FD int alive = local_holder_pidfd(c->dir);
    const char *http = getenv("http_proxy"), *https = getenv("https_proxy"), *no = getenv("no_proxy");
    if (alive >= 0) return 0;
    GP_AUTO_JSON json_t *j =
        json_pack("{s:s, s:s, s:s, s:I, s:I, s:i, s:O}", "base", l->stacks, "uid", c->uid, "name", c->name, "created",
                  (json_int_t)c->created_s, "expires", (json_int_t)c->expires_s, "nodes", nodes, "indexes", indexes);
    if (j == NULL) return gp_fail(err, GP_EUSAGE, "the state folder's path is not valid UTF-8");
    GP_AUTO_FREE char *head = json_text(j, 0);
    GP_AUTO_FREE char *input = xasprintf("%s\n%s\n%s\n%s\n", head, http ? http : "", https ? https : "", no ? no : "");
    GP_AUTO_STR struct str out = {.max = 2048};
    int code = GP_EENV, used = 0;
    bool ok = false;
    int r = local_spawn("start", c->dir, input, clock_deadline(START_MS), l->cancel, &out, &ok, err);
    if (r != 0) return r;
    if (ok) return 0;
    char *text = out.s != NULL ? str_trim(out.s) : NULL;
    if (text == NULL || sscanf(text, "error %d %n", &code, &used) != 1 || used == 0)
        return gp_fail(err, GP_EENV, "the starter of the local stack died");
    return gp_fail(err, code > 0 && code <= GP_CODE_MAX ? (enum gp_code)code : GP_EENV, "%s", text + used);
}

/* The request body, all that a replay needs. */
static char *create_body(const struct create_req *q, const char *token) {
    bool baked = q->offer != NULL && q->offer->image != NULL && str_starts(q->offer->image, LOCAL_IMAGE_PREFIX);
    GP_AUTO_JSON json_t *j =
        json_pack("{s:s, s:i, s:i, s:i, s:i, s:i, s:s, s:s, s:o}", "token", token, "slot_first", q->slot_first,
                  "slot_count", q->slot_count, "attempt", q->attempt, "gpus", q->spec->gpu.count, "nodes",
                  q->spec->nodes, "login_pubkey", q->login_pubkey, "image",
                  baked ? q->offer->image + strlen(LOCAL_IMAGE_PREFIX) : "", "indexes", python_indexes(q->spec));
    return j != NULL ? json_text(j, 0) : NULL;
}

static int ask_for_nodes(struct local *l, const struct local_claim *c, const char *body, struct resource_list *made,
                         struct gp_error *err) {
    GP_AUTO_STR struct str answer = {0};
    GP_AUTO_JSON json_t *j = NULL, *want = NULL;
    GP_AUTO_FREE char *line = xasprintf("create %s", body);
    int r = json_parse(body, strlen(body), "the intent's body", &want, err);
    GP_AUTO_JSON json_t *none = json_array(); /* an intent of an older version has no indexes */
    json_t *indexes = json_object_get(want, "indexes");
    if (r == 0) r = ensure_holder(l, c, (int)json_int(want, "nodes", 1), indexes != NULL ? indexes : none, err);
    if (r == 0) r = local_await(c->dir, clock_deadline(START_MS), l->cancel, err);
    if (r == 0) r = local_ask(c->dir, line, clock_deadline(CREATE_MS), l->cancel, &answer, err);
    if (r == 0) r = json_parse(answer.s, answer.len, "the holder's answer", &j, err);
    if (r != 0) return r;
    if (json_at(j, "code") == NULL && !json_is_array(json_at(j, "nodes")))
        return gp_fail(err, GP_EUNKNOWN, "the holder's answer names no nodes");
    int64_t code = json_int(j, "code", 0);
    if (code != 0)
        return gp_fail(err, code > 0 && code <= GP_CODE_MAX ? (enum gp_code)code : GP_EENV, "%s",
                       json_str(j, "error", ""));
    int64_t first = json_int(want, "slot_first", 0), count = json_int(want, "slot_count", 0);
    struct gp_error why = {0};
    size_t i = 0;
    json_t *n = NULL;
    json_array_foreach(json_at(j, "nodes"), i, n) {
        int64_t slot = json_int(n, "slot", -1);
        if (slot >= first && slot < first + count && strcmp(json_str(n, "state", ""), "ended") != 0)
            r = push_node(c, n, made, &why);
        if (r != 0) return gp_fail(err, GP_EUNKNOWN, "%s", why.msg); /* nodes were made: which is open */
    }
    return 0;
}

static int commit_intent(struct local *l, const struct create_req *q, const char *token, char *body, int64_t *ret_id,
                         struct gp_error *err) {
    GP_AUTO_FREE char *t = xstrdup(token);
    GP_AUTO_FREE char *hash = xstrdup(q->spec->hash);
    struct intent in = {.uid = q->stack->uid,
                        .spec_hash = hash,
                        .provider = (char[]){"local"},
                        .region = (char[]){REGION},
                        .zone = (char[]){""},
                        .kind = RES_INSTANCE,
                        .slot_first = q->slot_first,
                        .slot_count = q->slot_count,
                        .attempt = q->attempt,
                        .token = t,
                        .body = body,
                        .offer = (char[]){""},
                        .created_s = clock_wall_s(),
                        .deadline_s = q->stack->expires_s,
                        .state = INTENT_OPEN,
                        .note = (char[]){""}};
    int r = journal_intent(l->journal, &in, err);
    if (r == 0) *ret_id = in.id;
    return r;
}

/* Whether a failure left the outcome open. */
static bool is_open(const struct gp_error *e) { return e->code == GP_EUNKNOWN || e->code == GP_ECANCELLED; }

static int local_create(struct provider *p, const struct create_req *req, struct resource_list *ret,
                        struct gp_error *err) {
    struct local *l = self(p);
    GP_AUTO_FREE char *dir = local_dir(l->stacks, req->stack->owner, req->stack->name);
    GP_AUTO_CLAIM struct local_claim c = {0};
    GP_AUTO_RESOURCES struct resource_list made = {0};
    char token[65];
    make_token(req, token);
    GP_AUTO_FREE char *body = req->replay ? xstrdup(req->replay->body) : create_body(req, token);
    int64_t id = req->replay ? req->replay->id : 0;
    struct gp_error why = {0};
    if (body == NULL) return gp_fail(err, GP_EUSAGE, "the login key is not valid UTF-8");
    int r = req->replay ? 0 : commit_intent(l, req, token, body, &id, err);
    if (r != 0) return r;
    r = local_claim_read(dir, &c, &why);
    if (r == 0 && strcmp(c.uid, req->stack->uid) != 0) r = -GP_ENOTFOUND;
    if (r == -GP_ENOTFOUND) {
        gp_error_clear(&why);
        gp_fail(&why, GP_ENOTFOUND, "local stack '%s' was destroyed meanwhile", req->stack->name);
    }
    if (r == 0) r = ask_for_nodes(l, &c, body, &made, &why);
    if (r == 0) {
        r = journal_intent_done(l->journal, id, &made, err);
        for (size_t i = 0; r == 0 && i < made.list.len; i++) {
            struct resource copy = {0};
            resource_copy(&copy, &made.list.items[i]);
            vec_push(&ret->list, copy);
        }
        return r;
    }
    if (!is_open(&why)) journal_intent_end(l->journal, id, INTENT_FAILED, gp_code_name(why.code), NULL);
    if (err != NULL) *err = why;
    return r;
}

/* --- list --- */

/* What a stack without a living holder is: not started yet, dead, or gone by now. */
static void list_without_holder(const struct local_claim *c, struct resource_list *ret) {
    GP_AUTO_CLAIM struct local_claim now = {0};
    GP_AUTO_FREE char *record = fs_join(c->dir, "holder.json");
    if (local_claim_read(c->dir, &now, NULL) != 0 || strcmp(now.uid, c->uid) != 0) return;
    bool ran = fs_exists(record);
    push_holder(c, ran ? RES_STOPPED : RES_PENDING, ran ? "its process is gone, its folder still exists" : "", ret);
}

/* One whose answer was lost may be at its end: its sockets close a moment before it is dead. */
static bool is_dying(int pidfd) { return gp_wait_fd(pidfd, POLLIN, clock_deadline(DYING_MS), NULL, NULL, NULL) == 0; }

static int list_stack(struct local *l, const struct local_claim *c, struct resource_list *ret, struct gp_error *err) {
    GP_AUTO_FD int alive = local_holder_pidfd(c->dir);
    GP_AUTO_STR struct str answer = {0};
    GP_AUTO_JSON json_t *j = NULL;
    struct gp_error why = {0};
    if (alive < 0) {
        list_without_holder(c, ret);
        return 0;
    }
    int r = local_ask(c->dir, "list", clock_deadline(LIST_MS), l->cancel, &answer, &why);
    if (r == -GP_ENOTFOUND && fs_exists(c->dir)) { /* it is still being set up */
        push_holder(c, RES_PENDING, "", ret);
        return 0;
    }
    if (r == 0) r = json_parse(answer.s, answer.len, "the holder's answer", &j, &why);
    if (r == 0 && !json_is_array(json_at(j, "nodes")))
        r = gp_fail(&why, GP_EPROTO, "the holder's answer names no nodes");
    if (r != 0 && gp_cancelled(l->cancel)) return gp_fail(err, GP_ECANCELLED, "cancelled");
    if (r != 0 && is_dying(alive)) {
        list_without_holder(c, ret);
        return 0;
    }
    /* one that lives and does not answer: no node of it may be taken for absent */
    if (r != 0) return gp_fail(err, GP_EIO, "%s", why.msg);
    push_holder(c, RES_RUNNING, "", ret);
    size_t i = 0;
    json_t *n = NULL;
    json_array_foreach(json_at(j, "nodes"), i, n) {
        int rc = push_node(c, n, ret, r == 0 ? err : NULL);
        if (r == 0) r = rc;
    }
    return r;
}

static int list_claims(struct local *l, const struct list_req *req, struct resource_list *ret, struct gp_error *err) {
    GP_AUTO_CLAIMS struct local_claims claims = {0};
    int r = local_claims_read(l->stacks, req->owner, req->stack, &claims, err);
    for (size_t i = 0; i < claims.list.len; i++) { /* what can be read is listed, whatever cannot */
        int rc = list_stack(l, &claims.list.items[i], ret, r == 0 ? err : NULL);
        if (r == 0) r = rc;
    }
    return r;
}

static int local_list(struct provider *p, const struct list_req *req, struct resource_list *ret, struct gp_error *err) {
    struct gp_error why = {0};
    if (req->regions != NULL && !req->everywhere && !strv_has(req->regions, REGION)) return 0;
    int r =
        req->images ? local_images_list(self(p)->stacks, req->owner, ret, &why) : list_claims(self(p), req, ret, &why);
    if (req->looked != NULL) coverage_put(req->looked, "local", REGION, req->owner, false, r != 0 ? &why : NULL);
    if (r != 0 && err != NULL) *err = why;
    return r;
}

/* --- destroy --- */

static const struct local_claim *claim_of(const struct local_claims *all, const char *uid) {
    for (size_t i = 0; i < all->list.len; i++)
        if (strcmp(all->list.items[i].uid, uid) == 0) return &all->list.items[i];
    return NULL;
}

static bool ends_whole_stack(const struct resource_list *what, const char *uid) {
    for (size_t i = 0; i < what->list.len; i++)
        if (what->list.items[i].kind == RES_HOLDER && strcmp(what->list.items[i].uid, uid) == 0) return true;
    return false;
}

static int end_node(const struct local_claim *c, const char *id, struct gp_error *err) {
    GP_AUTO_FD int alive = local_holder_pidfd(c->dir);
    GP_AUTO_STR struct str answer = {0};
    GP_AUTO_FREE char *line = xasprintf("end %s", id);
    struct gp_error why = {0};
    if (alive < 0) return 0;
    int r = local_ask(c->dir, line, clock_deadline(END_MS), NULL, &answer, &why);
    if (r == 0 || is_dying(alive)) return 0;
    return gp_fail(err, GP_EIO, "could not destroy node %s: %s", id, why.msg);
}

static int end_stack(struct local *l, const struct local_claim *c, struct gp_error *err) {
    GP_AUTO_FD int lock = -1;
    GP_AUTO_CLAIM struct local_claim now = {0};
    int r = local_lock(l->stacks, clock_deadline(LOCK_MS), NULL, &lock, err);
    if (r != 0) return r;
    if (local_claim_read(c->dir, &now, NULL) != 0 || strcmp(now.uid, c->uid) != 0) return 0;
    r = local_holder_kill(c->dir, clock_deadline(KILL_MS), err);
    return r != 0 ? r : local_remove(l->stacks, c->dir, c->uid, err);
}

static int local_destroy(struct provider *p, const struct resource_list *what, struct gp_error *err) {
    struct local *l = self(p);
    GP_AUTO_CLAIMS struct local_claims claims = {0};
    struct gp_error unread = {0};
    int worst = 0, unknown = local_claims_read(l->stacks, NULL, NULL, &claims, &unread);
    for (size_t i = 0; i < what->list.len; i++) {
        const struct resource *r = &what->list.items[i];
        const struct local_claim *c = claim_of(&claims, r->uid);
        struct gp_error why = {0};
        int rc = 0;
        if (r->kind == RES_IMAGE) {
            rc = local_image_remove(l->stacks, r, l->cancel, &why);
            if (rc != 0 && worst == 0 && err != NULL) *err = why;
            if (worst == 0) worst = rc;
            continue;
        }
        if (c == NULL && unknown == 0) continue;
        if (c == NULL) { /* it may be the one that cannot be read */
            rc = unknown;
            why = unread;
        } else if (r->kind == RES_HOLDER) {
            rc = end_stack(l, c, &why);
        } else if (r->kind == RES_INSTANCE && !ends_whole_stack(what, r->uid)) {
            rc = end_node(c, r->id, &why);
        }
        if (rc == 0 || worst != 0) continue;
        worst = rc;
        if (err != NULL) *err = why;
    }
    return worst;
}

/* --- console --- */

/* What the node's first process and sshd report. */
static int local_console(struct provider *p, const struct resource *machine, struct str *ret, struct gp_error *err) {
    struct local *l = self(p);
    GP_AUTO_CLAIMS struct local_claims claims = {0};
    int r = local_claims_read(l->stacks, NULL, NULL, &claims, err);
    if (r != 0) return r;
    const struct local_claim *c = claim_of(&claims, machine->uid);
    if (c == NULL) return gp_fail(err, GP_ENOTFOUND, "local: the stack of %s is gone", machine->id);
    /* its folder is the part of its id after the stack's uid */
    GP_AUTO_FREE char *prefix = xasprintf("local-%s-", c->uid);
    const char *dir = str_starts(machine->id, prefix) ? machine->id + strlen(prefix) : "";
    if (dir[0] == '\0' || strchr(dir, '/') != NULL)
        return gp_fail(err, GP_ENOTFOUND, "local: '%s' is not a node's id", machine->id);
    GP_AUTO_FREE char *path = xasprintf("%s/nodes/%s/console", c->dir, dir);
    return fs_read_end(path, CONSOLE_BYTES, ret, err);
}

/* --- images --- */

const char *local_folder(struct provider *p) { return self(p)->stacks; }

int local_offered_image(struct provider *p, const struct spec *spec, size_t index, char **ret_id, char **ret_name,
                        struct gp_error *err) {
    return local_image_choose(self(p)->stacks, p->owner, spec, index, ret_id, ret_name, err);
}

static int make_image(struct provider *p, const struct image_req *q, struct resource *ret, struct gp_error *err) {
    struct local *l = self(p);
    return local_image_make(&(struct local_images){l->stacks, l->journal, l->cancel}, q, ret, err);
}

static const struct image_ops local_image_ops = {.make = make_image};

static const struct spec_provider_key spec_keys[] = {{0}};
static const struct spec_provider local_spec = {
    .name = "local", .doc = "Nodes on this machine", .keys = spec_keys, .by_default = true, .moves_deadline = true};

const struct provider_ops provider_local = {
    .name = "local",
    .summary = "nodes on this machine: namespace clones of it, no account, no daemon",
    .spec = &local_spec,
    .note = "local: nodes are clones of this machine and share its kernel: no security boundary",
    .ends = ENDS_SERVER,
    .guest_end = GUEST_NOTHING,
    .node_shape = NODE_CLONE,
    .poll_ms = 5000,
    .replay_max_s = 12 * 3600, /* the holder knows its nodes by token */
    .unique_claim = true,
    .user_data = false,
    .key_rotation = false,
    .billed = false,
    .boot_timeout_ms = 30000,
    .settle_ms = 0,
    .policy_refusal = "there is no account",
    .packages = local_packages_ok,
    .images = &local_image_ops,
    .trouble = local_trouble,
    .open = local_open,
    .close = local_close,
    .offers = local_offers,
    .prepare = local_prepare,
    .create = local_create,
    .list = local_list,
    .destroy = local_destroy,
    .own_list = true,
    .tag = NULL,
    .console = local_console,
};
