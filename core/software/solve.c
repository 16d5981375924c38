/* SPDX-License-Identifier: Apache-2.0 */
/* The search: values are tried newest first, key by key; a value stays only if each later key still has one. Pure; any
 * thread. */
#include "base/gp_base.h"

#include "base/error.h"
#include "software/rows.h"

#define CANDIDATES_MAX 40

/* Rows of all tables begin with their name. */
const char *software_row_name(const void *row) {
    const char *name = NULL;
    memcpy(&name, row, sizeof name);
    return name;
}

static const struct {
    const void *rows;
    size_t size;
    size_t offset; /* of the value in struct pick */
} tables[SOFTWARE_KEYS] = {
    [SOFTWARE_DRIVER] = {software_branches, sizeof(struct branch_row), offsetof(struct pick, branch)},
    [SOFTWARE_FLAVOUR] = {software_flavours, sizeof(struct word_row), offsetof(struct pick, flavour)},
    [SOFTWARE_SOURCE] = {software_sources, sizeof(struct word_row), offsetof(struct pick, origin)},
    [SOFTWARE_CUDA] = {software_cudas, sizeof(struct cuda_row), offsetof(struct pick, cuda)},
    [SOFTWARE_CUDNN] = {software_cudnns, sizeof(struct cudnn_row), offsetof(struct pick, cudnn)},
    [SOFTWARE_NCCL] = {software_nccls, sizeof(struct nccl_row), offsetof(struct pick, nccl)},
    [SOFTWARE_TORCH] = {software_torches, sizeof(struct torch_row), offsetof(struct pick, torch)},
};

const void *software_row(enum software_key k, size_t i) {
    const char *row = (const char *)tables[k].rows + i * tables[k].size;
    return software_row_name(row) != NULL ? row : NULL;
}

const void *software_get(const struct pick *p, enum software_key k) {
    const void *row = NULL;
    memcpy(&row, (const char *)p + tables[k].offset, sizeof row);
    return row;
}

void software_put(struct pick *p, enum software_key k, const void *row) {
    memcpy((char *)p + tables[k].offset, &row, sizeof row);
}

const char *software_text(const struct software_wish *w, enum software_key k) {
    switch (k) {
    case SOFTWARE_DRIVER: return w->driver;
    case SOFTWARE_FLAVOUR: return w->flavour;
    case SOFTWARE_SOURCE: return w->source;
    case SOFTWARE_CUDA: return w->cuda;
    case SOFTWARE_CUDNN: return w->cudnn;
    case SOFTWARE_NCCL: return w->nccl;
    case SOFTWARE_TORCH: return w->torch;
    default: return NULL;
    }
}

bool software_is_fixed(const struct software_wish *w, enum software_key k) {
    const char *text = software_text(w, k);
    return text != NULL && strcmp(text, "auto") != 0 && strcmp(text, "none") != 0;
}

/* "2.9", "cu126", "2.9.1+cu126". */
static bool torch_is(const struct torch_row *t, const char *text) {
    const char *plus = strchr(text, '+');
    if (plus == NULL) return strcmp(t->tag, text) == 0 || software_version_is(t->name, text);
    GP_AUTO_FREE char *version = xstrndup(text, (size_t)(plus - text));
    return strcmp(t->tag, plus + 1) == 0 && software_version_is(t->name, version);
}

bool software_matches(enum software_key k, const void *row, const char *text) {
    if (k == SOFTWARE_TORCH) return torch_is(row, text);
    /* A wish may be longer than the row: "580.65.06", "12.9.1", "9.10.2.21", "2.30.7-1". */
    return software_version_is(software_row_name(row), text) ||
           (k != SOFTWARE_FLAVOUR && k != SOFTWARE_SOURCE && software_version_is(text, software_row_name(row)));
}

/* Nothing is decided about this key. */
static bool left_alone(const struct software_wish *w, enum software_key k, unsigned active) {
    const char *text = software_text(w, k);
    bool wished = software_is_fixed(w, SOFTWARE_DRIVER) && (active & BIT(SOFTWARE_DRIVER)) != 0;
    bool stays = !wished && (w->loaded != NULL || (w->driver != NULL && strcmp(w->driver, "none") == 0));
    bool known = w->loaded != NULL && (active & BIT(SOFTWARE_LOADED)) != 0 && software_branch_of(w->loaded) != NULL;
    if (k == SOFTWARE_DRIVER) return stays && !known;
    if (k == SOFTWARE_FLAVOUR || k == SOFTWARE_SOURCE) return stays;
    return text != NULL && strcmp(text, "none") == 0;
}

struct search {
    struct world w; /* with the exact driver version of the active wishes */
    unsigned active;
    const struct pick *prefer;
    struct pick p;
    unsigned done; /* keys that have a value, or stay alone */
};

/* Whether all rules hold that look at k, at keys that are decided, and at active facts. */
static bool holds(const struct search *s, enum software_key k) {
    unsigned known = s->done | BIT(k) | (s->active & ~(BIT(SOFTWARE_KEYS) - 1));
    for (const struct rule *r = software_rules; r->id != NULL; r++)
        if ((r->keys & BIT(k)) != 0 && (r->keys & ~known) == 0 && software_applies(r, &s->w, &s->p) &&
            !r->holds(&s->w, &s->p))
            return false;
    return true;
}

/* Lower is better. Without a preference newer rows are; but CUDA and wheels that the driver runs without limits go
 * before others. */
static size_t score(const struct search *s, enum software_key k, size_t i, const void *row) {
    if (s->prefer != NULL && software_get(s->prefer, k) != NULL) {
        size_t at = 0;
        while (software_row(k, at) != software_get(s->prefer, k)) at++;
        return at > i ? (at - i) * 2 : (i - at) * 2 + 1;
    }
    if (s->p.branch == NULL || row == NULL) return i;
    const char *cuda = k == SOFTWARE_CUDA    ? software_row_name(row)
                       : k == SOFTWARE_TORCH ? ((const struct torch_row *)row)->cuda
                                             : NULL;
    bool beyond = cuda != NULL && software_version_compare(cuda, s->p.branch->cuda) > 0;
    return beyond ? i + (k == SOFTWARE_CUDA ? 100 : 3) : i;
}

/* cuDNN and NCCL are packages for one CUDA: without it, and not in the spec, they would be for a CUDA of chance. */
static bool without_cuda(const struct search *s, enum software_key k) {
    return (k == SOFTWARE_CUDNN || k == SOFTWARE_NCCL) && software_text(s->w.wish, k) == NULL && s->p.cuda == NULL &&
           (s->done & BIT(SOFTWARE_CUDA)) != 0;
}

/* The candidates of a key in their order; NULL stands for "left alone". */
static size_t candidates(const struct search *s, enum software_key k, const void *ret[CANDIDATES_MAX]) {
    const struct software_wish *wish = s->w.wish;
    size_t n = 0, scores[CANDIDATES_MAX];
    if (left_alone(wish, k, s->active) || without_cuda(s, k)) {
        ret[n++] = NULL;
        return n;
    }
    bool fixed = (s->active & BIT(k)) != 0 && software_is_fixed(wish, k);
    for (size_t i = 0; software_row(k, i) != NULL && n + 1 < CANDIDATES_MAX; i++) {
        const void *row = software_row(k, i);
        if (fixed && !software_matches(k, row, software_text(wish, k))) continue;
        size_t mine = score(s, k, i, row), at = n++;
        for (; at > 0 && scores[at - 1] > mine; at--) {
            scores[at] = scores[at - 1];
            ret[at] = ret[at - 1];
        }
        scores[at] = mine;
        ret[at] = row;
    }
    bool given_up = software_is_fixed(wish, k) && !fixed;
    if (k >= SOFTWARE_CUDA && (software_text(wish, k) == NULL || given_up)) ret[n++] = NULL; /* better than a refusal */
    return n;
}

/* Whether each later key has a value that fits those before. */
static bool all_can(struct search *s, int from) {
    const void *list[CANDIDATES_MAX];
    for (int k = from; k < SOFTWARE_KEYS; k++) {
        size_t n = candidates(s, (enum software_key)k, list), i = 0;
        for (; i < n; i++) {
            software_put(&s->p, (enum software_key)k, list[i]);
            if (holds(s, (enum software_key)k)) break;
        }
        software_put(&s->p, (enum software_key)k, NULL);
        if (i == n) return false;
    }
    return true;
}

static bool descend(struct search *s, int k) {
    if (k == SOFTWARE_KEYS) return true;
    const void *list[CANDIDATES_MAX];
    size_t n = candidates(s, (enum software_key)k, list);
    for (size_t i = 0; i < n; i++) {
        software_put(&s->p, (enum software_key)k, list[i]);
        if (!holds(s, (enum software_key)k)) continue;
        s->done |= BIT(k);
        if (all_can(s, k + 1) && descend(s, k + 1)) return true;
        s->done &= ~BIT(k);
    }
    software_put(&s->p, (enum software_key)k, NULL);
    return false;
}

/* Rules about facts alone. */
static bool facts_hold(const struct search *s) {
    for (const struct rule *r = software_rules; r->id != NULL; r++)
        if ((r->keys & (BIT(SOFTWARE_KEYS) - 1)) == 0 && (r->keys & ~s->active) == 0 &&
            software_applies(r, &s->w, &s->p) && !r->holds(&s->w, &s->p))
            return false;
    return true;
}

bool software_search(const struct world *w, unsigned active, const struct pick *prefer, struct pick *ret) {
    struct search s = {.w = *w, .active = active, .prefer = prefer};
    software_exact(&s.w, active);
    if (!facts_hold(&s) || !all_can(&s, 0) || !descend(&s, 0)) return false;
    *ret = s.p;
    return true;
}

void software_exact(struct world *w, unsigned active) {
    const struct software_wish *wish = w->wish;
    w->driver_exact[0] = '\0';
    if ((active & BIT(SOFTWARE_LOADED)) != 0 && wish->loaded != NULL)
        snprintf(w->driver_exact, sizeof w->driver_exact, "%s", wish->loaded);
    else if ((active & BIT(SOFTWARE_DRIVER)) != 0 && software_is_fixed(wish, SOFTWARE_DRIVER) &&
             strchr(wish->driver, '.') != NULL)
        snprintf(w->driver_exact, sizeof w->driver_exact, "%s", wish->driver);
}

void software_world(const struct software_wish *wish, struct world *ret) {
    *ret = (struct world){.wish = wish, .os = software_system(wish->os)};
    software_exact(ret, ~0u);
}

int software_solve(const struct software_wish *wish, struct software_set *ret, struct software_clashes *clashes) {
    struct world w;
    struct pick p;
    software_world(wish, &w);
    if (software_search(&w, ~0u, NULL, &p)) {
        software_fill(&w, &p, ret);
        return 0;
    }
    if (clashes != NULL) software_find_clashes(&w, clashes);
    return -GP_EUSAGE;
}
