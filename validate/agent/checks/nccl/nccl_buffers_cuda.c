/* SPDX-License-Identifier: Apache-2.0 */
/* Buffers of the nccl.* checks, filled and verified by kernels/collective.cu: each rank makes its own part and knows
 * the exact bits of every result. One thread. */
#include "base/gp_base.h"

#include "nccl_check_cuda.h"

#include "base/clock.h"
#include "validate/agent/cuda/kernels/collective.h"

enum { FOUND_MAX = 16384 };

bool nccl_buffers_open(struct check_ctx *c, struct agent_result *r, size_t bytes, size_t part_of_free,
                       struct nccl_buffers *ret) {
    struct gp_error err = {0};
    size_t free_bytes = 0, total = 0;
    *ret = (struct nccl_buffers){.c = c};
    if (cuda_memory(c->dev, &free_bytes, &total, &err) != 0) free_bytes = 0;
    uint64_t mine = GP_MIN(bytes, free_bytes / part_of_free) / 4096 * 4096;
    uint64_t *all = xcalloc((size_t)c->size, sizeof *all);
    bool ok = gang_gather(c, r, &mine, all, sizeof mine);
    for (int i = 0; ok && i < c->size; i++) mine = GP_MIN(mine, all[i]);
    ret->bytes = (size_t)mine;
    uint64_t good = ok && mine >= 4096 && c->dev_ops->alloc(c->dev, ret->bytes, &ret->a, &err) == 0 &&
                    c->dev_ops->alloc(c->dev, ret->bytes, &ret->b, &err) == 0 &&
                    c->dev_ops->alloc(c->dev, FOUND_MAX * sizeof *ret->seen, &ret->found, &err) == 0;
    if (ok) ok = gang_gather(c, r, &good, all, sizeof good);
    int without = -1;
    for (int i = 0; ok && i < c->size; i++)
        if (!all[i]) without = i;
    free(all);
    if (ok && without >= 0) {
        char name[120];
        gang_name(c, without, name, sizeof name);
        agent_set(r, VERDICT_ERROR, "no_memory", "%s has no memory left for the buffers%s%s", name,
                  without == c->rank && err.code ? ": " : "", without == c->rank ? err.msg : "");
        agent_suggest(r, "end the processes that hold the GPU (see nvidia-smi)");
    }
    ret->seen = xcalloc(FOUND_MAX, sizeof *ret->seen);
    if (ok && without < 0) return true;
    nccl_buffers_close(ret);
    return false;
}

void nccl_buffers_close(struct nccl_buffers *b) {
    const struct check_ctx *c = b->c;
    if (c == NULL) return;
    c->dev_ops->free(c->dev, b->a);
    c->dev_ops->free(c->dev, b->b);
    c->dev_ops->free(c->dev, b->found);
    free(b->seen);
    *b = (struct nccl_buffers){0};
}

size_t nccl_elements(enum nccl_op op, enum comm_type t, size_t bytes, int size, size_t *ret_bytes) {
    size_t parts = op == NCCL_ALL_REDUCE || op == NCCL_BROADCAST ? 1 : (size_t)size;
    size_t count = GP_MAX(bytes / comm_type_bytes(t) / parts, (size_t)1);
    if (ret_bytes != NULL) *ret_bytes = count * parts * comm_type_bytes(t);
    return count;
}

double nccl_bus_factor(enum nccl_op op, int size) {
    double n = size;
    if (op == NCCL_ALL_REDUCE) return 2 * (n - 1) / n;
    return op == NCCL_BROADCAST ? 1 : (n - 1) / n;
}

void nccl_queue_plain(struct nccl_buffers *b, struct comm *comm, enum nccl_op op, enum comm_type t, size_t count,
                      int root) {
    struct nccl_call call = {.op = op, .type = t, .count = count, .send = b->a, .recv = b->b, .root = root};
    nccl_queue(comm, &call);
}

/* --- known values --- */

struct block { /* elements of one rank, or a sum */
    dev_addr at;
    size_t count;
    int kind, rank, source;
    int64_t first;
};

static int fill(struct nccl_buffers *b, const struct nccl_trial_args *a, const struct block *k, struct gp_error *err) {
    const union kernel_arg args[] = {{.p = k->at},     {.i = (int64_t)k->count}, {.i32 = (int32_t)a->type},
                                     {.i32 = k->kind}, {.i32 = k->rank},         {.i32 = a->size},
                                     {.u = a->seed},   {.i = k->first}};
    struct launch_args l = {.kernel = "gp_coll_fill",
                            .items = (int64_t)GP_MIN(k->count, (size_t)1 << 20),
                            .args = args,
                            .n_args = GP_ARRAY_LEN(args)};
    return b->c->dev_ops->launch(b->c->dev, &l, err);
}

/* The values of each block before the call and after it. */
static size_t blocks_before(const struct nccl_trial_args *a, size_t count, dev_addr send, struct block *ret) {
    size_t bytes = count * comm_type_bytes(a->type);
    switch (a->op) {
    case NCCL_ALL_REDUCE:
        ret[0] = (struct block){.at = send, .count = count, .kind = COLL_SHARE, .rank = a->rank};
        return 1;
    case NCCL_REDUCE_SCATTER:
        ret[0] = (struct block){.at = send, .count = count * (size_t)a->size, .kind = COLL_SHARE, .rank = a->rank};
        return 1;
    case NCCL_ALL_TO_ALL:
        for (int d = 0; d < a->size; d++)
            ret[d] = (struct block){
                .at = send + (size_t)d * bytes, .count = count, .kind = COLL_BITS, .rank = a->rank * a->size + d};
        return (size_t)a->size;
    case NCCL_ALL_GATHER:
    case NCCL_BROADCAST:
    case NCCL_OPS: break;
    }
    ret[0] = (struct block){.at = send, .count = count, .kind = COLL_BITS, .rank = a->rank};
    return 1;
}

static size_t blocks_after(const struct nccl_trial_args *a, size_t count, dev_addr recv, int root, struct block *ret) {
    size_t bytes = count * comm_type_bytes(a->type);
    bool gather = a->op == NCCL_ALL_GATHER;
    if (a->op == NCCL_ALL_REDUCE || a->op == NCCL_REDUCE_SCATTER) {
        bool part = a->op == NCCL_REDUCE_SCATTER;
        ret[0] = (struct block){
            .at = recv, .count = count, .kind = COLL_SUM, .source = -1, .first = part ? (int64_t)count * a->rank : 0};
        return 1;
    }
    if (a->op == NCCL_BROADCAST) {
        ret[0] = (struct block){.at = recv, .count = count, .kind = COLL_BITS, .rank = root, .source = root};
        return 1;
    }
    for (int s = 0; s < a->size; s++)
        ret[s] = (struct block){.at = recv + (size_t)s * bytes,
                                .count = count,
                                .kind = COLL_BITS,
                                .rank = gather ? s : s * a->size + a->rank,
                                .source = s};
    return (size_t)a->size;
}

static void verify(struct nccl_buffers *b, const struct nccl_trial_args *a, const struct block *blocks, size_t n,
                   struct nccl_wrong *ret) {
    const struct device_ops *ops = b->c->dev_ops;
    size_t each = GP_MAX(FOUND_MAX / n, (size_t)1), used = 0;
    struct gp_error own = {0};
    int rc = 0;
    for (size_t i = 0; i < n && rc == 0 && used < FOUND_MAX; i++) {
        const struct block *k = &blocks[i];
        size_t items = GP_MIN(k->count, each);
        const union kernel_arg args[] = {
            {.p = k->at},     {.i = (int64_t)k->count}, {.i32 = (int32_t)a->type},
            {.i32 = k->kind}, {.i32 = k->rank},         {.i32 = a->size},
            {.u = a->seed},   {.i = k->first},          {.p = b->found + used * sizeof *b->seen}};
        struct launch_args l = {
            .kernel = "gp_coll_verify", .items = (int64_t)items, .args = args, .n_args = GP_ARRAY_LEN(args)};
        rc = ops->launch(b->c->dev, &l, &own);
        used += items;
    }
    struct copy_args get = {
        .kind = COPY_FROM_DEVICE, .dev = b->found, .host = b->seen, .bytes = used * sizeof *b->seen};
    if (rc == 0) rc = ops->sync(b->c->dev, b->c->deadline_ms, &own);
    if (rc == 0) rc = ops->copy(b->c->dev, &get, &own);
    *ret = (struct nccl_wrong){.source = -1};
    if (rc != 0) { /* only this rank knows: the next wait reports it to all */
        nccl_keep(a->comm, &own);
        return;
    }
    used = 0;
    for (size_t i = 0; i < n && used < FOUND_MAX; i++)
        for (size_t k = GP_MIN(blocks[i].count, each); k > 0; k--, used++) {
            const struct coll_found *f = &b->seen[used];
            if (f->wrong == 0) continue;
            size_t before = (size_t)(blocks[i].at - blocks[0].at) / comm_type_bytes(a->type);
            if (ret->wrong == 0) {
                ret->index = before + f->index;
                ret->got = f->got;
                ret->want = f->want;
                ret->source = blocks[i].source;
            }
            ret->wrong += f->wrong;
            if (blocks[i].source >= 0 && blocks[i].source < 64) ret->sources |= 1ull << blocks[i].source;
        }
}

int nccl_known_values(struct nccl_buffers *b, const struct nccl_trial_args *a, struct nccl_wrong *ret,
                      struct gp_error *err) {
    struct gp_error own = {0};
    int root = (int)((a->seed * 0x9e3779b97f4a7c15u >> 33) % (uint64_t)a->size);
    size_t count = nccl_elements(a->op, a->type, a->bytes, a->size, NULL);
    size_t part = count * comm_type_bytes(a->type) * (size_t)a->rank;
    struct nccl_call call = {.op = a->op, .type = a->type, .count = count, .send = b->a, .recv = b->b, .root = root};
    if (a->in_place) {
        call.recv = b->a;
        if (a->op == NCCL_ALL_GATHER) call.send = b->a + part;
        if (a->op == NCCL_REDUCE_SCATTER) call.recv = b->a + part;
    }
    struct block *blocks = xcalloc((size_t)a->size, sizeof *blocks);
    size_t n = blocks_before(a, count, call.send, blocks);
    int rc = 0;
    for (size_t i = 0; i < n && rc == 0; i++) rc = fill(b, a, &blocks[i], &own);
    if (rc == 0) rc = nccl_follow_device(a->comm, &own);
    if (rc == 0) nccl_queue(a->comm, &call);
    else nccl_keep(a->comm, &own);
    rc = nccl_wait(a->comm, 1000, err);
    n = rc == 0 ? blocks_after(a, count, call.recv, root, blocks) : 0;
    if (rc == 0) verify(b, a, blocks, n, ret);
    free(blocks);
    return rc;
}
