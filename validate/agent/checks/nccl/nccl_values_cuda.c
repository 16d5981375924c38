/* SPDX-License-Identifier: Apache-2.0 */
/* nccl.values: every collective, type and size with values that have one right result, compared bit for bit on every
 * rank, in place too. Reports the first wrong element and its source. One thread. */
#include "base/gp_base.h"

#include "nccl_check_cuda.h"

#include "base/clock.h"

#define SWEEP_MS 40000 /* sizes beyond are left out */

#define CAP_BYTES ((size_t)256 << 20)
#define FREE_PART 256 /* this part of the free memory, so that a small GPU has small buffers */
enum { TYPES = 4 };

struct values_record { /* each rank's record at the end */
    uint64_t wrong[NCCL_OPS][TYPES];
    uint64_t total, calls, elements;
    struct nccl_wrong first;
    int32_t op, type, in_place;
    int64_t bytes;
    uint64_t sources;
    double took_s;
};

static void note(struct values_record *rec, const struct nccl_trial_args *a, const struct nccl_wrong *w) {
    rec->calls++;
    rec->elements += nccl_elements(a->op, a->type, a->bytes, a->size, NULL);
    rec->wrong[a->op][a->type] += w->wrong;
    rec->sources |= w->sources;
    if (w->wrong > 0 && rec->total == 0) {
        rec->first = *w;
        rec->op = (int32_t)a->op;
        rec->type = (int32_t)a->type;
        rec->in_place = a->in_place;
        rec->bytes = (int64_t)a->bytes;
    }
    rec->total += w->wrong;
}

static int sweep(struct check_ctx *c, struct nccl_buffers *b, struct values_record *rec, struct gp_error *err) {
    const size_t sizes[] = {8, 1032, 65544, (size_t)1 << 20, b->bytes};
    struct nccl_trial_args a = {.comm = c->data, .rank = c->rank, .size = c->size, .seed = c->seed << 20};
    for (size_t s = 0; s < GP_ARRAY_LEN(sizes); s++) {
        if (sizes[s] > b->bytes || (s > 0 && sizes[s] <= sizes[s - 1])) continue;
        for (int op = 0; op < NCCL_OPS; op++)
            for (int type = 0; type < TYPES; type++)
                for (int in_place = 0; in_place < (op == NCCL_ALL_TO_ALL ? 1 : 2); in_place++) {
                    struct nccl_wrong w = {0};
                    a.op = (enum nccl_op)op;
                    a.type = (enum comm_type)type;
                    a.in_place = in_place;
                    a.bytes = sizes[s];
                    a.seed++;
                    size_t real = 0;
                    nccl_elements(a.op, a.type, a.bytes, a.size, &real);
                    if (real > b->bytes) continue;
                    int rc = nccl_known_values(b, &a, &w, err);
                    if (rc != 0) return rc;
                    note(rec, &a, &w);
                }
    }
    return nccl_wait(c->data, 0, err); /* reports a failure of the last verification */
}

/* Unsummed data identify their source: the source that several ranks receive wrong, else the rank that receives
 * several sources wrong. -1: neither. */
static int blamed_by_sources(const struct check_ctx *c, const struct values_record *all) {
    int best = -1, most = 1, n = GP_MIN(c->size, 64);
    for (int k = 0; k < n; k++) {
        int heard = 0;
        for (int i = 0; i < c->size; i++) heard += (int)(all[i].sources >> k & 1);
        if (heard > most) {
            best = k;
            most = heard;
        } else if (heard == most && heard > 1) {
            best = -2; /* several alike: no one source */
        }
    }
    if (best >= 0) return best;
    int who = -1, several = 0;
    for (int i = 0; i < c->size; i++)
        if (__builtin_popcountll(all[i].sources) > 1) {
            who = i;
            several++;
        }
    return several == 1 ? who : -1;
}

static void say_first(const struct check_ctx *c, const struct values_record *all, char *dst, size_t n) {
    int i = 0;
    while (i < c->size - 1 && all[i].total == 0) i++;
    char name[120];
    gang_name(c, i, name, sizeof name);
    const struct values_record *f = &all[i];
    snprintf(dst, n, "first on %s: %s of %s, %lld bytes%s, element %llu is 0x%x instead of 0x%x", name,
             nccl_op_name((enum nccl_op)GP_MIN(GP_MAX(f->op, 0), NCCL_OPS - 1)),
             comm_type_name((enum comm_type)(f->type & 3)), (long long)f->bytes, f->in_place ? ", in place" : "",
             (unsigned long long)f->first.index, f->first.got, f->first.want);
}

static void add_table(struct agent_result *r, const struct check_ctx *c, const struct values_record *all,
                      size_t bytes) {
    str_add(&r->data, r->data.len ? ",\"sizes\":[" : "\"sizes\":[");
    for (int op = 0; op < NCCL_OPS; op++)
        for (int type = 0; type < TYPES; type++) {
            uint64_t wrong = 0;
            for (int i = 0; i < c->size; i++) wrong += all[i].wrong[op][type];
            str_addf(&r->data, "%s{\"op\":\"%s\",\"type\":\"%s\",\"bytes\":%zu,\"wrong\":%llu}", op + type ? "," : "",
                     nccl_op_name((enum nccl_op)op), comm_type_name((enum comm_type)type), bytes,
                     (unsigned long long)wrong);
        }
    str_addc(&r->data, ']');
}

static void conclude(struct check_ctx *c, struct agent_result *r, struct nccl_buffers *b,
                     const struct values_record *all, int64_t until_ms) {
    uint64_t wrong = 0;
    int ranks = 0;
    for (int i = 0; i < c->size; i++) {
        wrong += all[i].total;
        ranks += all[i].total > 0;
    }
    agent_metric(r, "wrong", (double)wrong);
    add_table(r, c, all, b->bytes);
    if (wrong == 0) {
        agent_say(r, "%llu collectives over %d GPUs, up to %.4g MiB, exact in every element",
                  (unsigned long long)all[0].calls, c->size, (double)b->bytes / (1 << 20));
        return;
    }
    GP_AUTO_STR struct str who = {.max = 300};
    char first[300], name[120];
    say_first(c, all, first, sizeof first);
    int culprit = blamed_by_sources(c, all);
    if (culprit >= 0) {
        gang_name(c, culprit, name, sizeof name);
        agent_culprit(r, culprit);
        str_addf(&who, "; to blame: %s", name);
    } else {
        nccl_isolate(c, r, b, NCCL_WRONG, GP_MIN(b->bytes, (size_t)1 << 20), until_ms, &who);
    }
    agent_set(r, VERDICT_FAIL, "wrong_values", "%llu wrong elements on %d of %d ranks%s; %s", (unsigned long long)wrong,
              ranks, c->size, who.len ? who.s : "", first);
}

void nccl_values_run(struct check_ctx *c, struct agent_result *r) {
    struct nccl_buffers b;
    struct gp_error err = {0};
    struct values_record rec = {0}, *all = xcalloc((size_t)c->size, sizeof *all);
    int64_t until = GP_MIN(c->deadline_ms, clock_deadline(SWEEP_MS));
    char version[16];
    nccl_version_text(nccl_version(c->data), version);
    agent_data_str(r, "version", version);
    agent_data_str(r, "library", nccl_path());
    if (!nccl_buffers_open(c, r, CAP_BYTES, FREE_PART, &b)) {
        free(all);
        return;
    }
    if (sweep(c, &b, &rec, &err) != 0) nccl_broken(c, r, &b, &err);
    else if (gang_gather(c, r, &rec, all, sizeof rec)) conclude(c, r, &b, all, until);
    if (nccl_one_gpu_for_all(c)) agent_data_bool(r, "logic_only", true);
    nccl_buffers_close(&b);
    free(all);
}
