/* SPDX-License-Identifier: Apache-2.0 */
/* One watcher lists all nodes at their providers. Node threads wait here for their machine and are cancelled when it
 * terminates. While the watcher runs, the providers belong to its thread. */
#include "base/gp_base.h"

#include "engine/proof/watch.h"

#include "engine/run/run_event.h"
#include "engine/run/run_node.h"

#include <poll.h>

#define POLL_FIRST_MS 200
#define WAIT_STEP_MS 20

struct seen {
    char *provider, *region, *id; /* what is waited for; fixed while the watcher runs */
    bool wanted;
    struct resource res;
    bool valid;
    bool dead;  /* it was there and is not any more */
    int absent; /* lists in a row without it; the watcher's own */
};
struct watch {
    struct run *run;
    pthread_t thread;
    pthread_mutex_t lock;
    struct seen *seen; /* one per slot */
    struct gp_cancel stop;
    char trouble[GP_ERROR_MSG_MAX]; /* last listing's error; "" */
};

static bool usable(const struct resource *r) {
    return r->state == RES_RUNNING && (r->private_ip[0] != '\0' || r->public_ip[0] != '\0');
}

/* Marks the node's machine as gone and cancels its thread. */
static void bury(struct watch *w, int slot, const char *why) {
    pthread_mutex_lock(&w->lock);
    bool first = !w->seen[slot].dead;
    w->seen[slot].dead = true;
    pthread_mutex_unlock(&w->lock);
    if (!first) return;
    run_event(w->run, slot, NODE_REACHING, EVENT_WARN, "watch", "%s is %s", w->seen[slot].id, why);
    gp_cancel_set(&w->run->nodes[slot].cancel);
}

/* The slot that waits for this machine, by its id: tags may have been changed under it. -1: none. */
static int slot_of(const struct watch *w, const struct resource *r) {
    for (int i = 0; i < w->run->n_nodes; i++) {
        const struct seen *s = &w->seen[i];
        if (s->wanted && strcmp(r->id, s->id) == 0 && strcmp(r->provider, s->provider) == 0) return i;
    }
    return -1;
}

static void take(struct watch *w, const struct resource *r) {
    int slot = slot_of(w, r);
    if (slot < 0) return;
    struct seen *s = &w->seen[slot];
    pthread_mutex_lock(&w->lock);
    resource_clear(&s->res);
    resource_copy(&s->res, r);
    s->res.slot = slot;
    resource_set(&s->res.owner, w->run->stack.owner);
    resource_set(&s->res.stack, w->run->stack.name);
    resource_set(&s->res.uid, w->run->stack.uid);
    s->valid = true;
    pthread_mutex_unlock(&w->lock);
    s->absent = -1; /* counted up below */
    if (r->state == RES_PENDING || r->state == RES_RUNNING) return;
    GP_AUTO_FREE char *why =
        xasprintf("%s%s%s", resource_state_name(r->state), r->state_reason[0] ? ": " : "", r->state_reason);
    bury(w, slot, why);
}

/* Call it after a complete list of one provider: a machine that is missing three times in a row is gone. */
static void count_absent(struct watch *w, const struct provider *p) {
    for (int i = 0; i < w->run->n_nodes; i++) {
        struct seen *s = &w->seen[i];
        if (!s->wanted || !s->valid || strcmp(s->provider, p->ops->name) != 0) continue;
        if (++s->absent >= 3) bury(w, i, "not listed any more");
    }
}

/* One listing of every provider in use; false when all nodes have what they wait for. */
static bool look(struct watch *w) {
    struct run *run = w->run;
    for (size_t i = 0; i < run->providers.len; i++) {
        struct provider *p = run->providers.items[i];
        GP_AUTO_RESOURCES struct resource_list list = {0};
        struct gp_error err = {0};
        struct resource_list known = {0}; /* borrowed: also found when their tags were changed */
        struct list_req req = {.owner = p->owner, .stack = run->stack.name, .regions = NULL, .nodes_only = true};
        GP_AUTO_STRV struct strv regions = {0};
        for (int k = 0; k < run->n_nodes; k++) {
            const struct seen *s = &w->seen[k];
            if (!s->wanted || strcmp(s->provider, p->ops->name) != 0) continue;
            if (!strv_has(&regions, s->region)) strv_add(&regions, s->region);
            if (s->valid) vec_push(&known.list, s->res);
        }
        if (regions.n == 0) continue;
        req.regions = &regions;
        req.known = &known;
        int r = p->ops->list(p, &req, &list, &err);
        vec_free(&known.list);
        pthread_mutex_lock(&w->lock);
        str_put(w->trouble, sizeof w->trouble, r == 0 ? "" : err.msg);
        pthread_mutex_unlock(&w->lock);
        for (size_t k = 0; r == 0 && k < list.list.len; k++) {
            const struct resource *res = &list.list.items[k];
            if (resource_is_machine(res)) take(w, res);
        }
        if (r == 0) count_absent(w, p);
    }
    bool waiting = false;
    pthread_mutex_lock(&w->lock);
    for (int i = 0; i < run->n_nodes; i++)
        if (w->seen[i].wanted && !(w->seen[i].valid && usable(&w->seen[i].res))) waiting = true;
    pthread_mutex_unlock(&w->lock);
    return waiting;
}

static void cancel_all(struct run *run) {
    for (int i = 0; i < run->n_nodes; i++) gp_cancel_set(&run->nodes[i].cancel);
}

/* Waits until the next poll is due; false: stopped. Passes a cancellation of the run on to the nodes. */
static bool pause_for(struct watch *w, int64_t ms, bool *passed_on) {
    int64_t deadline = clock_deadline(ms);
    for (;;) {
        if (gp_cancelled(&w->stop)) return false;
        if (!*passed_on && gp_cancelled(&w->run->e->cancel)) {
            cancel_all(w->run);
            *passed_on = true;
        }
        if (clock_left_ms(deadline) == 0) return true;
        struct gp_error err = {0};
        const struct gp_cancel *also = *passed_on ? NULL : &w->run->e->cancel;
        int r = gp_wait_fd(w->stop.efd, POLLIN, deadline, also, NULL, &err);
        if (r == -GP_EIO) return false;
    }
}

/* The poll interval of the slowest provider. */
static int64_t poll_ms(const struct run *run) {
    int64_t ms = POLL_FIRST_MS;
    for (size_t i = 0; i < run->providers.len; i++) ms = GP_MAX(ms, run->providers.items[i]->ops->poll_ms);
    return ms;
}

static void *watcher(void *arg) {
    struct watch *w = arg;
    int64_t wait_ms = POLL_FIRST_MS, slow_ms = poll_ms(w->run);
    bool passed_on = false;
    /* machines that reconcile or launch just listed need no poll */
    bool waiting = false;
    for (int i = 0; i < w->run->n_nodes; i++)
        if (w->seen[i].wanted && !w->seen[i].valid) waiting = true;
    while (pause_for(w, waiting ? wait_ms : slow_ms, &passed_on)) {
        if (passed_on) continue;
        waiting = look(w);
        wait_ms = GP_MIN(wait_ms * 3 / 2, slow_ms);
    }
    return NULL;
}

static void watch_free(struct watch *w) {
    for (int i = 0; i < w->run->n_nodes; i++) {
        free(w->seen[i].provider);
        free(w->seen[i].region);
        free(w->seen[i].id);
        resource_clear(&w->seen[i].res);
    }
    free(w->seen);
    gp_cancel_clear(&w->stop);
    pthread_mutex_destroy(&w->lock);
    free(w);
}

int watch_start(struct run *run, struct gp_error *err) {
    struct watch *w = xcalloc(1, sizeof *w);
    w->run = run;
    w->stop.efd = -1;
    w->seen = xcalloc((size_t)GP_MAX(run->n_nodes, 1), sizeof *w->seen);
    pthread_mutex_init(&w->lock, NULL);
    int r = gp_cancel_init(&w->stop, err);
    for (int i = 0; r == 0 && i < run->n_nodes; i++) {
        struct run_node *n = &run->nodes[i];
        if (n->cancel.efd < 0) r = gp_cancel_init(&n->cancel, err);
        struct seen *s = &w->seen[i];
        s->wanted = !n->skip && n->exists;
        s->provider = xstrdup(n->res.provider);
        s->region = xstrdup(n->res.region);
        s->id = xstrdup(n->res.id);
        if (n->exists && usable(&n->res)) {
            resource_copy(&s->res, &n->res);
            s->valid = true;
        }
    }
    if (r == 0) {
        int rc = pthread_create(&w->thread, NULL, watcher, w);
        if (rc != 0) r = gp_fail_errno(err, GP_EENV, rc, "could not start the watcher thread");
    }
    if (r != 0) {
        watch_free(w);
        return r;
    }
    run->watch = w;
    return 0;
}

void watch_stop(struct run *run) {
    struct watch *w = run->watch;
    if (w == NULL) return;
    gp_cancel_set(&w->stop);
    pthread_join(w->thread, NULL);
    watch_free(w);
    run->watch = NULL;
}

/* Copies what was seen last; true when the machine runs and has an address. */
static bool peek(struct run_node *n, bool *ret_dead, char *ret_trouble, size_t trouble_size) {
    struct watch *w = n->run->watch;
    pthread_mutex_lock(&w->lock);
    struct seen *s = &w->seen[n->slot];
    *ret_dead = s->dead;
    str_put(ret_trouble, trouble_size, w->trouble);
    bool ready = s->valid && usable(&s->res);
    if (s->valid) {
        enum resource_ours ours = n->res.ours; /* which no list says */
        resource_clear(&n->res);
        resource_copy(&n->res, &s->res);
        n->res.ours = ours;
    }
    pthread_mutex_unlock(&w->lock);
    return ready;
}

int watch_wait_running(struct run_node *n, int64_t deadline_ms, struct gp_error *err) {
    char trouble[GP_ERROR_MSG_MAX];
    bool said = false;
    for (;;) {
        bool dead = false;
        if (peek(n, &dead, trouble, sizeof trouble)) return 0;
        if (dead)
            return gp_fail(err, GP_EREACH, "%s/%d: %s terminated before it was reachable: %s%s%s", n->run->stack.name,
                           n->slot, n->res.id, resource_state_name(n->res.state), n->res.state_reason[0] ? ", " : "",
                           n->res.state_reason);
        if (clock_left_ms(deadline_ms) == 0)
            return gp_fail(err, GP_EREACH,
                           "%s/%d: %s is still not running with an address%s%s: check it in the "
                           "cloud's console, or run 'gpuprov down %s'",
                           n->run->stack.name, n->slot, n->rec.resource_id, trouble[0] ? "; last error: " : "", trouble,
                           n->run->stack.name);
        if (!said)
            run_event(n->run, n->slot, NODE_REACHING, EVENT_PROGRESS, "boot", "waiting for %s to run",
                      n->rec.resource_id);
        said = true;
        int r = gp_sleep(WAIT_STEP_MS, &n->cancel, err);
        if (r != 0) return r;
    }
}
