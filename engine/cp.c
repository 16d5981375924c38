/* SPDX-License-Identifier: Apache-2.0 */
/* The verb cp: files and folders between this machine and a node, or to all nodes. Changes no resource. */
#include "base/gp_base.h"

#include "engine/engine.h"

#include "base/form.h"
#include "engine/proof/node_connect.h"
#include "engine/proof/node_target.h"
#include "engine/stack/open_known.h"
#include "engine/stack/reconcile.h"
#include "engine/transfer/pace.h"
#include "engine/transfer/transfer.h"

#include <errno.h>
#include <sys/stat.h>

#define CONNECT_MS 20000
#define RECONNECT_MS 300000 /* how long a lost connection may be away */

struct copy {
    struct run *run;
    const struct cp_req *req;
    uint64_t bytes;      /* of the sources before */
    int64_t deadline_ms; /* of all that is fetched; 0: none but that of transfer/pace.h */
    struct pace pace;    /* of all sources, which are on one node */
};

static void progress(void *ctx, const struct tree_stats *s) {
    const struct copy *c = ctx;
    char size[24];
    bytes_format(size, sizeof size, c->bytes + s->bytes_sent);
    event_emit(&c->run->e->sink, c->req->slot, NODE_READY, EVENT_PROGRESS, "cp", "%s %s", size,
               c->req->up ? "sent" : "fetched");
}

/* The target of one source. Caller frees. */
static char *target_of(const struct cp_req *req, const char *from, struct gp_error *err) {
    struct stat st;
    if (stat(from, &st) != 0) {
        gp_fail_errno(err, GP_EUSAGE, errno, "could not read '%s'", from);
        return NULL;
    }
    GP_AUTO_FREE char *name = S_ISDIR(st.st_mode) ? tree_last_part(from) : NULL;
    bool into = name == NULL && !S_ISDIR(st.st_mode) && req->from->n > 1;
    const char *slash = str_ends(req->to, "/") ? "" : "/";
    return xasprintf("%s%s%s", req->to, name != NULL || into ? slash : "", name != NULL ? name : "");
}

static struct tree_up_req up_req(struct copy *c, const char *from, const char *to) {
    const struct cp_req *req = c->req;
    return (struct tree_up_req){.from = from,
                                .to = to,
                                .ignore = req->ignore,
                                .mirror = req->mirror,
                                .by_hash = req->by_hash,
                                .progress = progress,
                                .ctx = c};
}

static int up_one(struct copy *c, struct node_link *l, const char *from, struct tree_stats *ret, struct gp_error *err) {
    GP_AUTO_FREE char *to = target_of(c->req, from, err);
    if (to == NULL) return -GP_EUSAGE;
    struct tree_up_req up = up_req(c, from, to);
    return tree_up(l, &up, ret, err);
}

static int down_one(struct copy *c, struct node_link *l, const char *from, struct tree_stats *ret,
                    struct gp_error *err) {
    const struct cp_req *req = c->req;
    const char *slash = req->from->n > 1 && !str_ends(req->to, "/") ? "/" : "";
    GP_AUTO_FREE char *to = xasprintf("%s%s", req->to, slash);
    struct tree_down_req down = {.from = from,
                                 .to = to,
                                 .keep_name = true,
                                 .mirror = req->mirror,
                                 .by_hash = req->by_hash,
                                 .deadline_ms = c->deadline_ms,
                                 .pace = &c->pace,
                                 .progress = progress,
                                 .ctx = c};
    return tree_down(l, &down, ret, err);
}

static void add(struct tree_stats *to, const struct tree_stats *s) {
    to->files += s->files;
    to->bytes += s->bytes;
    to->files_sent += s->files_sent;
    to->bytes_sent += s->bytes_sent;
    to->bytes_fetched += s->bytes_fetched;
    to->removed += s->removed;
    to->left_out += s->left_out;
    for (size_t i = 0; i < s->notes.n; i++) strv_add(&to->notes, s->notes.v[i]);
}

static int copy_all(struct run *run, const struct cp_req *req, struct tree_stats *ret, struct gp_error *err) {
    struct copy c = {.run = run, .req = req, .deadline_ms = req->fetch_ms > 0 ? clock_deadline(req->fetch_ms) : 0};
    struct node_link *l = &run->nodes[req->slot].link;
    l->reach_timeout_ms = RECONNECT_MS;
    pace_init(&c.pace, c.deadline_ms != 0);
    int r = 0;
    for (size_t i = 0; i < req->from->n && r == 0; i++) {
        GP_AUTO_TREE_STATS struct tree_stats one = {0};
        r = req->up ? up_one(&c, l, req->from->v[i], &one, err) : down_one(&c, l, req->from->v[i], &one, err);
        c.bytes += one.bytes_sent;
        add(ret, &one);
    }
    return r;
}

/* A node's loopback address is its own. */
static const char *peer_address(const struct run_node *n) {
    const char *address = node_target_peer_address(n);
    bool own = address == NULL || str_starts(address, "127.") || str_eq(address, "::1");
    return !own && form_address(address) ? address : NULL;
}

static int up_all(struct run *run, const struct cp_req *req, struct tree_stats *ret, struct gp_error *err) {
    struct copy c = {.run = run, .req = req};
    struct tree_many *nodes = xcalloc((size_t)run->n_nodes + 1, sizeof *nodes);
    size_t n = 0;
    int r = 0;
    for (int i = 0; i < run->n_nodes && r == 0; i++) {
        if (!run->nodes[i].exists) continue;
        r = node_connect_prepare(run, i, RECONNECT_MS, err);
        nodes[n++] = (struct tree_many){.link = &run->nodes[i].link, .address = peer_address(&run->nodes[i])};
    }
    if (r == 0 && n == 0) r = gp_fail(err, GP_ENOTFOUND, "'%s' has no nodes", req->name);
    for (size_t i = 0; i < req->from->n && r == 0; i++) {
        GP_AUTO_FREE char *to = target_of(req, req->from->v[i], err);
        struct tree_up_req up = up_req(&c, req->from->v[i], to);
        r = to != NULL ? tree_up_many(nodes, n, &up, &run->e->cancel, err) : -GP_EUSAGE;
        for (size_t k = 0; k < n; k++) {
            add(ret, &nodes[k].stats);
            tree_stats_clear(&nodes[k].stats);
        }
    }
    free(nodes);
    return r;
}

/* Before anything is contacted. */
static int check_sources(const struct cp_req *req, struct gp_error *err) {
    for (size_t i = 0; req->up && i < req->from->n; i++) {
        struct stat st;
        const char *from = req->from->v[i];
        if (stat(from, &st) != 0) return gp_fail_errno(err, GP_EUSAGE, errno, "could not read '%s'", from);
        if (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode))
            return gp_fail(err, GP_EUSAGE, "'%s' is neither a file nor a folder", from);
    }
    return 0;
}

int engine_cp(struct engine *e, const struct cp_req *req, struct tree_stats *ret, struct gp_error *err) {
    struct run *run = NULL;
    int r = check_sources(req, err);
    if (r == 0) r = run_open_journaled(e, req->spec, req->name, &run, err);
    if (r == 0) r = reconcile(run, NULL, err);
    if (r == 0 && req->slot < 0) r = up_all(run, req, ret, err);
    else if (r == 0) r = node_connect(run, req->slot, CONNECT_MS, err);
    if (r == 0 && req->slot >= 0) r = copy_all(run, req, ret, err);
    run_close(run);
    return r;
}
