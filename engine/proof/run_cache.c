/* SPDX-License-Identifier: Apache-2.0 */
/* Decides which node runs the package cache, and keeps it: one thread that renews its lease, tells it the addresses of
 * the nodes, and starts it again after a reboot. A cache that fails costs time, never a node. */
#include "base/gp_base.h"

#include "engine/proof/run_cache.h"

#include "base/form.h"
#include "engine/proof/console.h"
#include "engine/proof/node_target.h"
#include "engine/run/run_event.h"

#define WAIT_MS (60 * 1000)        /* of a node for the cache */
#define SCRIPT_MS (30 * 1000)      /* one attempt */
#define RENEW_MS (15 * 1000)       /* a quarter of the lease */
#define TROUBLE_MS (5 * 60 * 1000) /* for the connection to come back, such as after a reboot */
#define END_MS (10 * 1000)
#define STARTS_MAX 2 /* nodes on which it is tried */

enum cache_state { CACHE_ABSENT, CACHE_STARTS, CACHE_SERVES, CACHE_GIVEN_UP };

struct run_cache {
    struct run *run;
    struct gp_cancel cancel; /* of the keeper */
    struct node_link link;   /* the keeper's own */
    char bind[64];
    pthread_t keeper;
    bool kept; /* the keeper was started: join it */
    atomic_bool closing, left;

    pthread_mutex_t lock; /* guards the rest */
    enum cache_state state;
    int starts;
    struct strv peers; /* addresses of the nodes that asked */
    size_t known;      /* the first of them, which the cache answers */
    char url[96];
};

static void say(const struct run_cache *c, enum event_status status, const char *text, const char *what) {
    run_event(c->run, c->link.slot, NODE_BOOTSTRAPPING, status, "cache", "%s: %s", text, what);
}

/* --- the keeper --- */

/* Runs the script on the cache's node: starts the cache or renews its lease; `end`: ends it. */
static int keep_once(struct run_cache *c, bool end, int64_t limit_ms, struct gp_error *err) {
    GP_AUTO_STR struct str script = {0};
    GP_AUTO_SSH_RESULT struct ssh_result r = {0};
    pthread_mutex_lock(&c->lock);
    GP_AUTO_FREE char *peers = strv_join(&c->peers, "\n");
    size_t n = c->peers.n;
    pthread_mutex_unlock(&c->lock);
    struct bootstrap_cache_place place = {
        .uid = c->run->stack.uid, .bind = c->bind, .peers = peers, .spec = c->run->spec};
    int rc = c->link.session != NULL ? 0 : node_link_ensure(&c->link, err);
    if (rc == 0) rc = bootstrap_cache_script(&place, end, &script, err);
    if (rc == 0)
        rc = node_link_sh(&c->link, "keeping the package cache", &script, SCRIPT_MS, clock_deadline(limit_ms), &r, err);
    if (rc != 0 || end) return rc;
    const char *said = r.out.s != NULL ? strstr(r.out.s, "\n::cache ") : NULL;
    const char *why = r.out.s != NULL ? strstr(r.out.s, "\n::error ") : NULL;
    GP_AUTO_FREE char *line = said != NULL ? xstrndup(said + 9, strcspn(said + 9, "\n")) : NULL;
    int64_t port = 0;
    if (line == NULL || !str_to_i64(line, 1, 65535, &port)) {
        GP_AUTO_STR struct str clean = {0};
        str_add_clean(&clean, why != NULL ? why + 9 : "its node did not answer as a POSIX sh does");
        clean.s[strcspn(clean.s, "\n")] = '\0';
        return gp_fail(err, GP_EBOOTSTRAP, "%s: %.300s", c->link.target.label, clean.s);
    }
    bool v6 = strchr(c->bind, ':') != NULL;
    pthread_mutex_lock(&c->lock);
    snprintf(c->url, sizeof c->url, v6 ? "http://[%s]:%d" : "http://%s:%d", c->bind, (int)port);
    c->known = n;
    c->state = CACHE_SERVES;
    pthread_mutex_unlock(&c->lock);
    return 0;
}

/* Until it is time to renew the lease, a node asks that the cache does not answer yet, or the run closes. */
static void rest(struct run_cache *c, bool lost) {
    for (int64_t end = clock_deadline(RENEW_MS); clock_left_ms(end) > 0 && !atomic_load(&c->closing);) {
        pthread_mutex_lock(&c->lock);
        bool asked = c->peers.n > c->known;
        pthread_mutex_unlock(&c->lock);
        if ((asked && !lost) || gp_sleep(50, &c->cancel, NULL) != 0) return;
    }
}

static void *keep(void *arg) {
    struct run_cache *c = arg;
    struct gp_error err = {0};
    int rc = keep_once(c, false, WAIT_MS, &err);
    bool serves = rc == 0, said = false;
    if (serves) {
        say(c, EVENT_PROGRESS, "serves packages to the nodes", c->url);
    } else {
        say(c, EVENT_WARN, "the package cache did not start", err.msg);
        pthread_mutex_lock(&c->lock);
        c->state = c->starts < STARTS_MAX ? CACHE_ABSENT : CACHE_GIVEN_UP;
        pthread_mutex_unlock(&c->lock);
    }
    while (serves && !atomic_load(&c->closing) && !gp_cancelled(&c->cancel)) {
        rest(c, rc != 0);
        gp_error_clear(&err);
        if (!atomic_load(&c->closing)) rc = keep_once(c, false, TROUBLE_MS, &err);
        if (rc != 0 && !said && !gp_cancelled(&c->cancel))
            say(c, EVENT_WARN, "the package cache does not answer", err.msg);
        said |= rc != 0;
    }
    gp_error_clear(&err);
    if (serves && keep_once(c, true, END_MS, &err) != 0 && !gp_cancelled(&c->cancel))
        say(c, EVENT_WARN, "the package cache could not be ended, and ends by itself in a minute", err.msg);
    node_link_close(&c->link);
    atomic_store(&c->left, true);
    return NULL;
}

/* --- the nodes --- */

/* Puts the agent on this node and starts the keeper. Failures are reported; the next node tries. */
static void host(struct run_cache *c, struct run_node *n, int (*prepare)(void *of, struct gp_error *err), void *of) {
    struct gp_error err = {0};
    if (c->kept) { /* of a node on which it did not start */
        pthread_join(c->keeper, NULL);
        c->kept = false;
    }
    atomic_store(&c->left, false);
    ssh_target_clear(&c->link.target);
    c->link = (struct node_link){.slot = n->slot, .cancel = &c->cancel, .sink = &c->run->sink};
    c->link.reach_timeout_ms = console_access_ms(c->run, &n->res);
    str_put(c->bind, sizeof c->bind, node_target_peer_address(n));
    int r = prepare(of, &err);
    if (r == 0) r = node_target(c->run, n, &c->link.target, &err);
    if (r == 0 && pthread_create(&c->keeper, NULL, keep, c) != 0)
        r = gp_fail(&err, GP_EENV, "could not start a thread");
    if (r == 0) {
        c->kept = true;
        return;
    }
    say(c, EVENT_WARN, "the package cache did not start", err.msg);
    pthread_mutex_lock(&c->lock);
    c->state = c->starts < STARTS_MAX ? CACHE_ABSENT : CACHE_GIVEN_UP;
    pthread_mutex_unlock(&c->lock);
}

/* The state for this node: CACHE_SERVES with the address; CACHE_ABSENT: this node shall run it. */
static enum cache_state look(struct run_cache *c, const char *address, char **ret_url) {
    pthread_mutex_lock(&c->lock);
    if (!strv_has(&c->peers, address)) strv_add(&c->peers, address);
    enum cache_state state = c->state;
    if (state == CACHE_ABSENT) {
        c->state = CACHE_STARTS;
        c->starts++;
    } else if (state == CACHE_SERVES) {
        state = CACHE_STARTS;
        for (size_t i = 0; i < c->known; i++)
            if (str_eq(c->peers.v[i], address)) state = CACHE_SERVES;
        if (state == CACHE_SERVES) *ret_url = xstrdup(c->url);
    }
    pthread_mutex_unlock(&c->lock);
    return state;
}

static char *use(void *ctx, int (*prepare)(void *of, struct gp_error *err), void *of) {
    struct run_node *n = ctx;
    struct run_cache *c = n->run->cache;
    const char *address = node_target_peer_address(n), *why = "it did not answer within a minute";
    char *url = NULL;
    if (!form_address(address)) why = "this node has no private address";
    else
        for (int64_t end = clock_deadline(WAIT_MS); clock_left_ms(end) > 0;) {
            enum cache_state state = look(c, address, &url);
            if (state == CACHE_SERVES) return url;
            if (state == CACHE_ABSENT) host(c, n, prepare, of);
            if (state == CACHE_GIVEN_UP) why = "it did not start";
            if (state == CACHE_GIVEN_UP || gp_sleep(50, &n->cancel, NULL) != 0) break;
        }
    if (!gp_cancelled(&n->cancel))
        run_event(n->run, n->slot, NODE_BOOTSTRAPPING, EVENT_WARN, "cache",
                  "fetches packages directly, without the package cache: %s", why);
    return NULL;
}

struct bootstrap_cache run_cache_of(struct run_node *n) {
    return (struct bootstrap_cache){.use = n->run->cache != NULL ? use : NULL, .ctx = n};
}

void run_cache_open(struct run *run) {
    int nodes = 0;
    for (int i = 0; i < run->n_nodes; i++) nodes += !run->nodes[i].skip;
    if (run->spec == NULL || run->spec->cache == CACHE_NONE || nodes < 2) return;
    struct run_cache *c = xcalloc(1, sizeof *c);
    struct gp_error err = {0};
    if (gp_cancel_init(&c->cancel, &err) != 0) {
        free(c);
        run_event(run, -1, NODE_BOOTSTRAPPING, EVENT_WARN, "cache", "there is no package cache: %s", err.msg);
        return;
    }
    c->run = run;
    pthread_mutex_init(&c->lock, NULL);
    run->cache = c;
}

void run_cache_close(struct run *run) {
    struct run_cache *c = run->cache;
    if (c == NULL) return;
    run->cache = NULL;
    atomic_store(&c->closing, true);
    if (gp_cancelled(&run->e->cancel)) gp_cancel_set(&c->cancel);
    for (int64_t end = clock_deadline(2 * END_MS); c->kept && !atomic_load(&c->left) && clock_left_ms(end) > 0;)
        gp_sleep(20, NULL, NULL);
    gp_cancel_set(&c->cancel);
    if (c->kept) pthread_join(c->keeper, NULL);
    ssh_target_clear(&c->link.target);
    strv_clear(&c->peers);
    gp_cancel_clear(&c->cancel);
    pthread_mutex_destroy(&c->lock);
    free(c);
}
