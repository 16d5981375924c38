/* SPDX-License-Identifier: Apache-2.0 */
/* One folder to many nodes. One thread per node: it gets the folder (from a node that has it, else from here), is
 * compared by hash with this machine, and shares it until no node waits any more. */
#include "base/gp_base.h"

#include "engine/transfer/transfer.h"

#include "base/fs.h"
#include "engine/transfer/peers.h"

#include <arpa/inet.h>
#include <pthread.h>

#define USERS_MAX 2           /* nodes that fetch from one node at a time */
#define FIRST_MS 3000         /* how long the first node may take to connect before another one becomes the first */
#define LOOK_MS 100           /* how often a waiting node looks for cancellation */
#define STACK_BYTES (1 << 20) /* listing a deep folder recurses */
#define FAILED_MAX 2          /* fetches from one node that fail, before it is no source any more */
/* For an agent to answer, beside its work: it takes the list, or the folder from another node, at 1 MB/s at least. A
 * slower one gets it from here. */
#define ANSWER_MS 120000
#define ANSWER_RATE 1000 /* bytes a ms */
#define LIST_RATE 32     /* the same of a list, which comes from here */

enum member_state { MEMBER_WAITS, MEMBER_WORKS, MEMBER_SHARES, MEMBER_LEFT };
struct fan;
struct member {
    struct fan *fan;
    struct tree_many *node;
    pthread_t thread;
    bool started;
    /* guarded by the fan's lock */
    enum member_state state;
    int users, failed;
    uint16_t port;
};
struct fan {
    const struct tree_up_req *req;
    const struct gp_cancel *cancel;
    void *list;
    size_t list_n;
    unsigned char list_hash[32]; /* what a node accepts from another one */
    uint64_t size;               /* of the files in it */
    bool folder;
    struct tree_sums *sums;
    unsigned char token[TREE_TOKEN];
    uint64_t id;
    struct member *all;
    size_t n;
    struct gp_cancel done; /* every node has finished: sharing ends */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    size_t unfinished;
};

/* An address that is routed within one network only: content goes to it without encryption. */
static bool is_private(const char *text) {
    struct in_addr v4;
    struct in6_addr v6;
    if (text != NULL && inet_pton(AF_INET, text, &v4) == 1) {
        uint32_t a = ntohl(v4.s_addr);
        return a >> 24 == 10 || a >> 20 == 0xac1 || a >> 16 == 0xc0a8 || a >> 22 == 0x191 || a >> 24 == 127;
    }
    return text != NULL && inet_pton(AF_INET6, text, &v6) == 1 && (v6.s6_addr[0] & 0xfe) == 0xfc;
}

static void set_state(struct member *m, enum member_state state) {
    struct fan *f = m->fan;
    pthread_mutex_lock(&f->lock);
    m->state = state;
    pthread_cond_broadcast(&f->changed);
    pthread_mutex_unlock(&f->lock);
}

/* The node that has the fewest users, under the lock; *ret_works: some node may become one. */
static struct member *find_source(const struct fan *f, bool *ret_works) {
    struct member *best = NULL;
    *ret_works = false;
    for (size_t i = 0; i < f->n; i++) {
        struct member *m = &f->all[i];
        if (m->failed >= FAILED_MAX) continue;
        /* one that shares, but is busy, will be free again */
        *ret_works |= m->state == MEMBER_SHARES || (m->state == MEMBER_WORKS && m->node->address != NULL);
        if (m->state == MEMBER_SHARES && m->users < USERS_MAX && (best == NULL || m->users < best->users)) best = m;
    }
    return best;
}

/* Waits for a node that shares. NULL: there is none, and none is to be expected: send from here. Only a connected node
 * calls this, so one that cannot be reached delays no other. */
static struct member *wait_for_source(struct member *m) {
    struct fan *f = m->fan;
    struct member *source = NULL;
    bool works = true;
    int64_t first_until = clock_deadline(m == f->all ? 0 : FIRST_MS);
    pthread_mutex_lock(&f->lock);
    while (f->folder && f->n > 1 && m->node->address != NULL && !gp_cancelled(f->cancel)) {
        source = find_source(f, &works);
        bool first = f->all->state == MEMBER_WAITS && clock_left_ms(first_until) > 0;
        if (source != NULL || (!works && !first)) break;
        struct timespec t;
        clock_gettime(CLOCK_REALTIME, &t);
        t.tv_nsec += LOOK_MS * 1000000L;
        t.tv_sec += t.tv_nsec / 1000000000L;
        t.tv_nsec %= 1000000000L;
        pthread_cond_timedwait(&f->changed, &f->lock, &t);
    }
    if (source != NULL) source->users++;
    m->state = MEMBER_WORKS;
    pthread_mutex_unlock(&f->lock);
    return source;
}

static struct tree_request request_of(const struct fan *f, enum tree_verb verb, const char *peer, uint16_t port) {
    struct tree_request q = {.verb = verb, .path = (char *)(uintptr_t)f->req->to, .id = f->id, .port = port};
    q.peer = (char *)(uintptr_t)peer;
    memcpy(q.token, f->token, sizeof q.token);
    memcpy(q.list, f->list_hash, sizeof q.list);
    return q;
}

/* Empty files count too: each is some dozen bytes of the list. */
static int64_t answer_ms(uint64_t size, size_t list_n) {
    uint64_t ms = size / ANSWER_RATE + list_n / LIST_RATE;
    return ANSWER_MS + (int64_t)GP_MIN(ms, (uint64_t)1 << 50);
}

static int64_t end_of(const struct fan *f) { return f->req->deadline_ms != 0 ? f->req->deadline_ms : GP_NEVER; }

static void fetch_from(struct member *m, struct member *source) {
    struct fan *f = m->fan;
    struct node_link *l = m->node->link;
    struct gp_error why = {0};
    uint64_t bytes = 0;
    const struct tree_request q = request_of(f, TREE_FETCH, source->node->address, source->port);
    const struct peer_ask a = {.link = l,
                               .request = &q,
                               .deadline_ms = end_of(f),
                               .answer_ms = answer_ms(f->size, f->list_n),
                               .cancel = l->cancel};
    int r = l->session != NULL ? 0 : node_link_ensure(l, &why);
    if (r == 0) r = peer_fetch(&a, &bytes, &why);
    m->node->stats.bytes_fetched = bytes;
    pthread_mutex_lock(&f->lock);
    source->users--;
    source->failed += r != 0;
    pthread_cond_broadcast(&f->changed);
    pthread_mutex_unlock(&f->lock);
    if (r != 0 && r != -GP_ECANCELLED)
        event_emit(l->sink, l->slot, NODE_BOOTSTRAPPING, EVENT_WARN, "transfer",
                   "could not copy from %s, copies from this machine: %s", source->node->link->target.label, why.msg);
    if (r == -GP_ELOST || r == -GP_ETIMEOUT) node_link_close(l); /* tree_up connects again */
}

static void listens(void *ctx, uint64_t port) {
    struct member *m = ctx;
    pthread_mutex_lock(&m->fan->lock);
    m->port = (uint16_t)port;
    pthread_mutex_unlock(&m->fan->lock);
    if (port > 0 && port <= 65535) set_state(m, MEMBER_SHARES);
}

static void share(struct member *m) {
    struct fan *f = m->fan;
    struct gp_error why = {0};
    const struct tree_request q = request_of(f, TREE_SHARE, m->node->address, 0);
    const struct peer_ask a = {.link = m->node->link,
                               .request = &q,
                               .list = f->list,
                               .list_n = f->list_n,
                               .deadline_ms = end_of(f),
                               .answer_ms = answer_ms(0, f->list_n),
                               .cancel = &f->done,
                               .ready = listens,
                               .ctx = m};
    if (peer_share(&a, &why) != 0)
        event_emit(m->node->link->sink, m->node->link->slot, NODE_BOOTSTRAPPING, EVENT_WARN, "transfer",
                   "does not give the folder to other nodes: %s", why.msg);
}

static bool anybody_waits(const struct fan *f) {
    for (size_t i = 0; i < f->n; i++)
        if (f->all[i].state == MEMBER_WAITS) return true;
    return false;
}

static void *work(void *arg) {
    struct member *m = arg;
    struct fan *f = m->fan;
    struct node_link *l = m->node->link;
    m->node->rc = l->session != NULL ? 0 : node_link_ensure(l, &m->node->err);
    struct member *source = m->node->rc == 0 ? wait_for_source(m) : NULL;
    if (source != NULL) fetch_from(m, source);
    struct tree_up_req up = *f->req;
    up.progress = NULL;
    up.sums = f->sums;
    up.by_hash = f->req->by_hash || source != NULL; /* another node's word is not taken for it */
    uint64_t fetched = m->node->stats.bytes_fetched;
    if (m->node->rc == 0) m->node->rc = tree_up(l, &up, &m->node->stats, &m->node->err);
    m->node->stats.bytes_fetched = fetched;
    pthread_mutex_lock(&f->lock);
    if (--f->unfinished == 0) gp_cancel_set(&f->done);
    bool useful = m->node->rc == 0 && f->folder && m->node->address != NULL && anybody_waits(f);
    if (!useful) m->state = MEMBER_LEFT;
    pthread_cond_broadcast(&f->changed);
    pthread_mutex_unlock(&f->lock);
    if (useful) {
        share(m);
        set_state(m, MEMBER_LEFT);
    }
    return NULL;
}

static int run_all(struct fan *f, struct gp_error *err) {
    pthread_attr_t attr;
    int r = 0;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, STACK_BYTES);
    for (size_t i = 0; i < f->n; i++) {
        struct member *m = &f->all[i];
        m->started = pthread_create(&m->thread, &attr, work, m) == 0;
        if (m->started) continue;
        m->node->rc = gp_fail(&m->node->err, GP_EENV, "%s: could not start a thread", m->node->link->target.label);
        pthread_mutex_lock(&f->lock);
        m->state = MEMBER_LEFT;
        if (--f->unfinished == 0) gp_cancel_set(&f->done);
        pthread_mutex_unlock(&f->lock);
    }
    pthread_attr_destroy(&attr);
    for (size_t i = 0; i < f->n; i++)
        if (f->all[i].started) pthread_join(f->all[i].thread, NULL);
    for (size_t i = 0; i < f->n && r == 0; i++) {
        r = f->all[i].node->rc;
        if (r != 0 && err != NULL) *err = f->all[i].node->err;
    }
    return r;
}

int tree_up_many(struct tree_many *nodes, size_t n, const struct tree_up_req *req, const struct gp_cancel *cancel,
                 struct gp_error *err) {
    struct fan f = {.req = req, .cancel = cancel, .n = n, .unfinished = n, .done = {.efd = -1}};
    const struct tree_give_opts give = {.root = req->from, .ignore = req->ignore, .omit = req->omit, .cancel = cancel};
    int r = n == 0 ? 0 : tree_list_bytes(&give, &f.list, &f.list_n, &f.size, &f.folder, err);
    if (r == 0 && n > 0) tree_list_hash(f.list, f.list_n, f.list_hash);
    if (r == 0) r = fs_random(f.token, sizeof f.token, err);
    if (r == 0) r = fs_random(&f.id, sizeof f.id, err);
    if (r == 0) r = gp_cancel_init(&f.done, err);
    if (r == 0) {
        pthread_mutex_init(&f.lock, NULL);
        pthread_cond_init(&f.changed, NULL);
        f.sums = tree_sums_new();
        f.all = xcalloc(n + 1, sizeof *f.all);
        for (size_t i = 0; i < n; i++) {
            f.all[i] = (struct member){.fan = &f, .node = &nodes[i]};
            if (!is_private(nodes[i].address)) nodes[i].address = NULL;
        }
        r = run_all(&f, err);
        free(f.all);
        tree_sums_free(f.sums);
        pthread_cond_destroy(&f.changed);
        pthread_mutex_destroy(&f.lock);
    }
    if (f.done.efd >= 0) gp_cancel_clear(&f.done);
    explicit_bzero(f.token, sizeof f.token);
    free(f.list);
    return r;
}
