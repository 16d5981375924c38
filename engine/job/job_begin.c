/* SPDX-License-Identifier: Apache-2.0 */
/* Finds, starts and stops a job on the nodes of a stack. The verb's thread. */
#include "base/gp_base.h"

#include "engine/job/job_begin.h"

#include "base/form.h"
#include "base/fs.h"
#include "engine/proof/node_target.h"
#include "engine/run/run_event.h"

#define START_MS 60000
#define STOP_MS 60000
#define SHORT_MS 20000

static bool runs(const struct job_state *s) { return s->phase == JOB_SETUP || s->phase == JOB_RUNNING; }

/* "; the stack has 1 node, the spec 2", or "". Caller frees. */
static char *other_nodes(const struct run *run) {
    int n = 0;
    for (int i = 0; i < run->n_nodes; i++) n += run->nodes[i].exists;
    if (run->spec == NULL || run->spec->nodes == n) return xstrdup("");
    return xasprintf("; the stack has %d node%s, the spec %d", n, n == 1 ? "" : "s", run->spec->nodes);
}

static int busy(const struct run *run, int slot, const struct job_state *s, struct gp_error *err) {
    char when[32];
    time_format_utc(when, sizeof when, s->started_s);
    GP_AUTO_FREE char *nodes = other_nodes(run);
    int r = gp_fail(err, GP_EBUSY,
                    "%s/%d: another job runs there, %s since %s: 'gpuprov attach %s' follows it, 'gpuprov cancel %s' "
                    "ends it%s",
                    run->stack.name, slot, s->id, when, run->stack.name, run->stack.name, nodes);
    if (err != NULL) err->retryable = true;
    return r;
}

int job_find(const struct job_nodes *all, const char *key, struct job_found *ret, struct gp_error *err) {
    struct job_found f = {.ended = true};
    for (size_t i = 0; i < all->known; i++) {
        const struct job_state *s = &all->items[i].state;
        bool same = key == NULL || strcmp(s->key, key) == 0;
        if (s->phase == JOB_NONE) continue;
        if (!same && runs(s)) return busy(all->run, (int)i, s, err);
        if (i >= all->len) continue;
        if (!same || (key != NULL && s->phase == JOB_ENDED && s->collected)) continue;
        if (f.id[0] != '\0' && s->started_s <= f.started_s) continue;
        memcpy(f.id, s->id, sizeof f.id);
        f.started_s = s->started_s;
    }
    for (size_t i = 0; i < all->len && f.id[0] != '\0'; i++) {
        const struct job_node *j = &all->items[i];
        bool its = strcmp(j->state.id, f.id) == 0;
        if (j->gone) continue;
        f.running = f.running || (its && runs(&j->state));
        f.ended = f.ended && (!j->used || (its && j->state.phase == JOB_ENDED));
    }
    *ret = f;
    return 0;
}

/* --- start --- */

/* The nodes were proven, and are as they were then. */
static int check_ready(const struct job_nodes *all, struct gp_error *err) {
    const char *name = all->run->stack.name;
    for (size_t i = 0; i < all->len; i++) {
        const struct job_node *j = &all->items[i];
        const struct run_node *n = j->n;
        if (!j->used) continue;
        if (n->rec.phase != NODE_READY)
            return gp_fail(err, GP_EVALIDATE,
                           "%s/%zu is not ready%s%.200s, and a job starts on ready nodes only: 'gpuprov up' "
                           "makes it ready",
                           name, i, n->rec.note != NULL && n->rec.note[0] != '\0' ? ": " : "",
                           n->rec.note != NULL ? n->rec.note : "");
        if (j->look.boot[0] == '\0' || j->look.home[0] == '\0')
            return gp_fail(err, GP_EPROTO,
                           "%s/%zu did not print its home folder and its boot id: check the login "
                           "shell of its user",
                           name, i);
        if (!str_eq(j->look.boot, n->rec.boot_id))
            return gp_fail(err, GP_EVALIDATE,
                           "%s/%zu was rebooted since it was validated: 'gpuprov up' validates it "
                           "again",
                           name, i);
    }
    return 0;
}

/* Where the other nodes reach each one. */
static int addresses(const struct job_nodes *all, struct strv *ret, struct gp_error *err) {
    for (size_t i = 0; i < all->len; i++) {
        const struct job_node *j = &all->items[i];
        const char *ip = node_target_peer_address(j->n);
        if (j->n->res.private_ip[0] == '\0' && j->n->res.kind == RES_INSTANCE && j->look.address[0] != '\0')
            ip = j->look.address; /* a cloud that does not report it */
        if (!form_host(ip)) return gp_fail(err, GP_EREACH, "%s/%zu has no address", all->run->stack.name, i);
        strv_add(ret, ip);
    }
    return 0;
}

/* One node's request; the caller wipes it. */
static void make_request(const struct job_nodes *all, const struct job_def *def, const char *id,
                         const struct job_node *node, const struct strv *ips, struct str *ret) {
    const struct provider_ops *ops = provider_find(node->n->res.provider);
    const struct job_place place = {.rank = node->n->slot,
                                    .ranks = (int)all->len,
                                    .ips = ips,
                                    .look = &node->look,
                                    .notices = ops != NULL ? ops->notices : NULL};
    job_def_request(def, id, &place, all->run->secrets, all->run->n_secrets, ret);
}

static void wipe(struct str *texts, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (texts[i].s != NULL) explicit_bzero(texts[i].s, texts[i].len);
        str_clear(&texts[i]);
    }
    free(texts);
}

/* Starts it on the nodes [first, last) that do not have it. */
static int start_on(struct job_nodes *all, const struct job_def *def, const char *id, const struct strv *ips,
                    size_t first, size_t last, struct gp_error *err) {
    struct job_asks asks = {0};
    struct str *texts = xcalloc(all->len + 1, sizeof *texts);
    GP_AUTO_FREE char *words = xasprintf("start %s", id);
    for (size_t i = first; i < last; i++) {
        struct job_node *j = &all->items[i];
        bool has = strcmp(j->state.id, id) == 0 && !j->state.again;
        if (!j->used || has) continue;
        make_request(all, def, id, j, ips, &texts[i]);
        struct job_ask a = {.node = j, .in = texts[i].s, .in_len = texts[i].len};
        vec_push(&asks.list, a);
    }
    int r = job_ask_all(&asks, words, START_MS, &all->run->e->cancel, err);
    for (size_t i = 0; r == 0 && i < asks.list.len; i++) {
        struct job_ask *a = &asks.list.items[i];
        if (a->rc == 0) a->node->state = a->state;
        if (a->rc == 0 && a->state.busy) r = busy(all->run, a->node->n->slot, &a->state, err);
        if (a->rc == 0) continue;
        if (err != NULL) *err = a->err;
        r = a->rc;
    }
    vec_free(&asks.list);
    wipe(texts, all->len);
    return r;
}

/* Another gpuprov started the same definition on node 0 first. */
static bool joined(const struct job_nodes *all, const struct job_def *def, char id[17]) {
    const struct job_state *s = &all->items[0].state;
    if (!s->busy || strcmp(s->key, def->key) != 0) return false;
    memcpy(id, s->id, sizeof s->id);
    return true;
}

int job_begin_check(const struct job_nodes *all, struct gp_error *err) {
    GP_AUTO_STRV struct strv ips = {0};
    int r = job_nodes_missing(all, err);
    if (r == 0) r = check_ready(all, err);
    if (r == 0) r = job_def_check_secrets(all->run->secrets, all->run->n_secrets, err);
    return r == 0 ? addresses(all, &ips, err) : r;
}

int job_begin(struct job_nodes *all, const struct job_def *def, char id[17], struct gp_error *err) {
    GP_AUTO_STRV struct strv ips = {0};
    struct gp_error why = {0};
    int r = job_begin_check(all, err);
    if (r == 0) r = addresses(all, &ips, err);
    if (r != 0) return r;
    if (id[0] == '\0' && (r = fs_random_hex(id, 8, err)) != 0) return r;
    r = start_on(all, def, id, &ips, 0, 1, &why);
    if (r == -GP_EBUSY && joined(all, def, id)) r = 0;
    if (r == 0) r = start_on(all, def, id, &ips, 1, all->len, &why);
    if (r == 0) return 0;
    if (err != NULL) *err = why;
    struct gp_error second = {0};
    if (r != -GP_EBUSY) (void)job_stop(all, id, "it could not be started on every node", NULL, &second);
    return r;
}

int job_begin_again(struct job_nodes *all, const struct job_def *def, const char *id, struct job_node *node,
                    struct gp_error *err) {
    GP_AUTO_STRV struct strv ips = {0};
    size_t i = (size_t)node->n->slot;
    node->state.again = true;
    int r = addresses(all, &ips, err);
    return r == 0 ? start_on(all, def, id, &ips, i, i + 1, err) : r;
}

/* --- stop --- */

int job_stop(struct job_nodes *all, const char *id, const char *reason, const struct gp_cancel *cancel,
             struct gp_error *err) {
    struct job_asks asks = {0};
    GP_AUTO_STR struct str words = {0};
    str_addf(&words, "stop %s --reason ", id);
    str_add_shquoted(&words, reason);
    for (size_t i = 0; i < all->len; i++) {
        struct job_node *j = &all->items[i];
        bool its = strcmp(j->state.id, id) == 0;
        if (!j->used || !its || j->away || j->state.phase == JOB_ENDED) continue;
        struct job_ask a = {.node = j};
        vec_push(&asks.list, a);
    }
    int r = job_ask_all(&asks, words.s, STOP_MS, cancel, err);
    for (size_t i = 0; r == 0 && i < asks.list.len; i++) {
        struct job_ask *a = &asks.list.items[i];
        if (a->rc == 0) a->node->state = a->state;
        else
            run_event(all->run, a->node->n->slot, NODE_READY, EVENT_WARN, "job",
                      "the job could not be stopped there, and may go on until the node ends: %s", a->err.msg);
    }
    vec_free(&asks.list);
    return r;
}

void job_mark_collected(struct job_nodes *all, const char *id) {
    struct job_asks asks = {0};
    struct gp_error ignored = {0};
    GP_AUTO_FREE char *words = xasprintf("collected %s", id);
    for (size_t i = 0; i < all->len; i++) {
        struct job_node *j = &all->items[i];
        struct job_ask a = {.node = j};
        bool its = j->used && !j->away && strcmp(j->state.id, id) == 0;
        if (its && j->n->link.session != NULL) vec_push(&asks.list, a);
    }
    (void)job_ask_all(&asks, words, SHORT_MS, NULL, &ignored);
    vec_free(&asks.list);
}
