/* SPDX-License-Identifier: Apache-2.0 */
/* Why a wish cannot be: the smallest sets of wishes and facts that no assignment holds together, and the nearest
 * assignment. Pure; any thread. */
#include "base/gp_base.h"

#include "software/rows.h"

#define FACTS (BIT(SOFTWARE_GPU) | BIT(SOFTWARE_OS) | BIT(SOFTWARE_KERNEL) | BIT(SOFTWARE_LOADED))
#define CLASH_KEYS_MAX 4

/* Fixed wishes and known facts. */
static unsigned elements(const struct world *w) {
    unsigned all = 0;
    for (int k = 0; k < SOFTWARE_KEYS; k++)
        if (software_is_fixed(w->wish, (enum software_key)k)) all |= BIT(k);
    if (w->wish->gpu.cc != 0) all |= BIT(SOFTWARE_GPU);
    if (w->os != NULL) all |= BIT(SOFTWARE_OS);
    if (w->wish->kernel != NULL) all |= BIT(SOFTWARE_KERNEL);
    if (w->wish->loaded != NULL) all |= BIT(SOFTWARE_LOADED);
    if (w->wish->tensorflow != NULL) all |= BIT(SOFTWARE_TENSORFLOW);
    if (w->wish->horovod != NULL) all |= BIT(SOFTWARE_HOROVOD);
    if (w->wish->deepspeed != NULL) all |= BIT(SOFTWARE_DEEPSPEED);
    if (w->wish->python != NULL) all |= BIT(SOFTWARE_PYTHON);
    return all;
}

/* The wishes as rows: the first that each matches. */
static void as_wished(const struct world *w, struct pick *ret) {
    *ret = (struct pick){0};
    for (int k = 0; k < SOFTWARE_KEYS; k++) {
        if (!software_is_fixed(w->wish, (enum software_key)k)) continue;
        const void *row = NULL;
        for (size_t i = 0; (row = software_row((enum software_key)k, i)) != NULL; i++)
            if (software_matches((enum software_key)k, row, software_text(w->wish, (enum software_key)k))) break;
        software_put(ret, (enum software_key)k, row);
    }
    if (w->wish->loaded != NULL && ret->branch == NULL) ret->branch = software_branch_of(w->wish->loaded);
}

/* A wish that is in no row. */
static bool unknown(const struct world *w, const struct pick *wished, unsigned keys, struct str *out) {
    for (int k = 0; k < SOFTWARE_KEYS; k++) {
        if (keys != BIT(k) || software_get(wished, (enum software_key)k) != NULL) continue;
        str_addf(out, "%s %.40s is not in the table of versions; it has", software_key_name((enum software_key)k),
                 software_text(w->wish, (enum software_key)k));
        const char *last = "";
        for (size_t i = 0; software_row((enum software_key)k, i) != NULL; i++) {
            const char *name = software_row_name(software_row((enum software_key)k, i));
            if (strcmp(name, last) != 0) str_addf(out, "%s %s", last[0] != '\0' ? "," : "", name);
            last = name;
        }
        return true;
    }
    return false;
}

static void names(const struct world *w, const struct pick *p, unsigned keys, struct str *out) {
    static const enum software_key order[] = {
        SOFTWARE_GPU,    SOFTWARE_OS,         SOFTWARE_KERNEL,  SOFTWARE_LOADED,    SOFTWARE_DRIVER,
        SOFTWARE_SOURCE, SOFTWARE_FLAVOUR,    SOFTWARE_CUDA,    SOFTWARE_CUDNN,     SOFTWARE_NCCL,
        SOFTWARE_TORCH,  SOFTWARE_TENSORFLOW, SOFTWARE_HOROVOD, SOFTWARE_DEEPSPEED, SOFTWARE_PYTHON};
    size_t n = 0;
    for (size_t i = 0; i < GP_ARRAY_LEN(order); i++) {
        char text[96];
        if ((keys & BIT(order[i])) == 0) continue;
        const char *wished = order[i] < SOFTWARE_KEYS ? software_text(w->wish, order[i]) : NULL;
        software_name(w, p, order[i], text, sizeof text);
        if (order[i] == SOFTWARE_CUDA) snprintf(text, sizeof text, "CUDA %.40s", wished);
        else if (order[i] == SOFTWARE_CUDNN) snprintf(text, sizeof text, "cuDNN %.40s", wished);
        else if (order[i] == SOFTWARE_NCCL) snprintf(text, sizeof text, "NCCL %.40s", wished);
        else if (order[i] == SOFTWARE_TORCH) snprintf(text, sizeof text, "PyTorch %.40s", wished);
        str_addf(out, "%s%s", n++ == 0 ? "" : " and ", text);
    }
}

static bool broken(const struct rule *r, const struct world *w, const struct pick *p) {
    return software_applies(r, w, p) && !r->holds(w, p);
}

static const char *source_of(const struct rule *r, const struct world *w, const struct pick *p) {
    return r->source != NULL ? r->source(w, p) : r->from;
}

/* A rule that looks at nothing but these. */
static const struct rule *direct(const struct world *w, const struct pick *p, unsigned keys) {
    for (const struct rule *r = software_rules; r->id != NULL; r++)
        if ((r->keys & ~keys) == 0 && broken(r, w, p)) return r;
    return NULL;
}

struct reasons {
    const struct rule *seen[4];
    size_t n;
    struct str text;
};

static void add_reason(struct reasons *to, const struct rule *r, const struct world *w, const struct pick *p) {
    for (size_t i = 0; i < to->n; i++)
        if (to->seen[i] == r) return;
    if (to->n == GP_ARRAY_LEN(to->seen)) return;
    char why[240];
    r->why(w, p, why, sizeof why);
    str_addf(&to->text, "%s%s", to->n == 0 ? "" : "; ", why);
    to->seen[to->n++] = r;
}

/* Without any of its values nothing works: it is not left out where none fits. */
static bool needed(const struct world *w, enum software_key k) {
    const char *text = software_text(w->wish, k);
    return k < SOFTWARE_CUDA ? text == NULL || strcmp(text, "none") != 0 : text != NULL && strcmp(text, "auto") == 0;
}

/* Whether each row of the free key k breaks a rule with `keys`, or leaves another free key (depth more) no row. */
static bool no_row(const struct world *w, struct pick *p, unsigned keys, enum software_key k, int depth,
                   struct reasons *to) {
    bool none = true;
    const void *row = NULL;
    for (size_t i = 0; none && (row = software_row(k, i)) != NULL; i++) {
        software_put(p, k, row);
        const struct rule *r = direct(w, p, keys | BIT(k));
        if (r != NULL) {
            add_reason(to, r, w, p);
            continue;
        }
        none = false;
        for (int m = 0; !none && depth > 0 && m < SOFTWARE_KEYS; m++)
            if (((keys | BIT(k)) & BIT(m)) == 0 && needed(w, (enum software_key)m))
                none = no_row(w, p, keys | BIT(k), (enum software_key)m, depth - 1, to);
    }
    software_put(p, k, NULL);
    return none;
}

/* The reasons of a clash that no single rule tells: those of a free key that has no row left. */
static bool by_free_key(const struct world *w, const struct pick *p, unsigned keys, struct str *out) {
    for (int depth = 0; depth < 2; depth++) {
        for (int k = 0; k < SOFTWARE_KEYS; k++) {
            if ((keys & BIT(k)) != 0 || !needed(w, (enum software_key)k)) continue;
            struct reasons reasons = {.text = {.max = 400}};
            struct pick q = *p;
            bool found = no_row(w, &q, keys, (enum software_key)k, depth, &reasons) && reasons.n > 0;
            if (found) str_add(out, reasons.text.s);
            str_clear(&reasons.text);
            if (found) return true;
        }
    }
    return false;
}

static void describe(const struct world *all, unsigned keys, struct software_clash *ret) {
    struct world w = *all;
    software_exact(&w, keys);
    struct pick wished, p;
    as_wished(&w, &wished);
    p = wished;
    for (int k = 0; k < SOFTWARE_KEYS; k++)
        if ((keys & BIT(k)) == 0) software_put(&p, (enum software_key)k, NULL);
    if ((keys & BIT(SOFTWARE_LOADED)) != 0 && p.branch == NULL) p.branch = software_branch_of(w.wish->loaded);
    GP_AUTO_STR struct str out = {.max = sizeof ret->facts - 1};
    ret->source = NULL;
    if (!unknown(&w, &wished, keys, &out)) {
        names(&w, &p, keys, &out);
        str_add(&out, ": ");
        unsigned known = keys | ((keys & BIT(SOFTWARE_LOADED)) != 0 ? BIT(SOFTWARE_DRIVER) : 0u);
        const struct rule *r = direct(&w, &p, known);
        if (r != NULL) {
            char why[240];
            r->why(&w, &p, why, sizeof why);
            str_add(&out, why);
            ret->source = source_of(r, &w, &p);
        } else if (!by_free_key(&w, &p, known, &out)) {
            str_add(&out, "no set of the table has them together");
        }
    }
    snprintf(ret->facts, sizeof ret->facts, "%s", out.s != NULL ? out.s : "");
}

/* --- the nearest set --- */

/* Given up in this order; what stays longest is what programs need. */
static const enum software_key give_up[] = {SOFTWARE_FLAVOUR, SOFTWARE_SOURCE,     SOFTWARE_NCCL,      SOFTWARE_CUDNN,
                                            SOFTWARE_DRIVER,  SOFTWARE_HOROVOD,    SOFTWARE_PYTHON,    SOFTWARE_TORCH,
                                            SOFTWARE_CUDA,    SOFTWARE_TENSORFLOW, SOFTWARE_DEEPSPEED, SOFTWARE_LOADED,
                                            SOFTWARE_KERNEL,  SOFTWARE_OS};

static int bits(unsigned x) {
    int n = 0;
    for (; x != 0; x &= x - 1) n++;
    return n;
}

/* The fewest wishes, then facts, without which the rest holds. 0: none. */
static unsigned least(const struct world *w, unsigned all, const struct pick *wished, const struct software_clashes *c,
                      struct pick *ret) {
    const unsigned n = GP_ARRAY_LEN(give_up);
    for (int facts = 0; facts < 2; facts++) {
        for (int size = 1; size <= (int)n; size++) {
            for (unsigned set = 1; set < 1u << n; set++) {
                unsigned keys = 0;
                if (bits(set) != size) continue;
                for (unsigned i = 0; i < n; i++)
                    if ((set & BIT(i)) != 0) keys |= BIT(give_up[i]);
                if ((keys & ~all) != 0 || (facts == 0) != ((keys & FACTS) == 0)) continue;
                bool all_broken = true; /* a clash of which nothing is given up stays one */
                for (size_t i = 0; all_broken && i < c->n; i++) all_broken = (keys & c->at[i].keys) != 0;
                if (!all_broken) continue;
                if (software_search(w, all & ~keys, wished, ret)) return keys;
            }
        }
    }
    return 0;
}

static void near_text(const struct world *all, const struct pick *p, unsigned dropped, char *dst, size_t n) {
    static const enum software_key order[] = {SOFTWARE_DRIVER, SOFTWARE_SOURCE, SOFTWARE_FLAVOUR, SOFTWARE_CUDA,
                                              SOFTWARE_CUDNN,  SOFTWARE_NCCL,   SOFTWARE_TORCH};
    struct world w = *all;
    software_exact(&w, ~dropped);
    GP_AUTO_STR struct str out = {.max = n - 1};
    if ((dropped & BIT(SOFTWARE_KERNEL)) != 0) str_add(&out, "another kernel");
    if ((dropped & BIT(SOFTWARE_OS)) != 0) str_addf(&out, "%sanother system", out.len > 0 ? ", " : "");
    if ((dropped & BIT(SOFTWARE_LOADED)) != 0) str_addf(&out, "%sa replaced driver", out.len > 0 ? ", " : "");
    if ((dropped & BIT(SOFTWARE_PYTHON)) != 0 && p->torch != NULL)
        str_addf(&out, "%sPython %s or later", out.len > 0 ? ", " : "", p->torch->python);
    for (int k = SOFTWARE_TENSORFLOW; k < SOFTWARE_PYTHON; k++)
        if ((dropped & BIT(k)) != 0)
            str_addf(&out, "%sno %s", out.len > 0 ? ", " : "", software_key_name((enum software_key)k));
    for (size_t i = 0; i < GP_ARRAY_LEN(order); i++) {
        enum software_key k = order[i];
        char text[96];
        bool main = k == SOFTWARE_DRIVER || k == SOFTWARE_FLAVOUR || k == SOFTWARE_CUDA;
        if (!main && (dropped & BIT(k)) == 0 && !software_is_fixed(w.wish, k)) continue;
        software_name(&w, p, k, text, sizeof text);
        if (text[0] == '\0' && (dropped & BIT(k)) != 0) snprintf(text, sizeof text, "no %s", software_key_name(k));
        if (text[0] != '\0') str_addf(&out, "%s%s", out.len > 0 ? ", " : "", text);
    }
    snprintf(dst, n, "%s", out.s != NULL ? out.s : "");
}

/* The key that the reader changes first. */
static enum software_key key_of(unsigned keys, unsigned dropped) {
    for (size_t i = 0; i < GP_ARRAY_LEN(give_up); i++)
        if ((keys & dropped & BIT(give_up[i])) != 0) return give_up[i];
    for (size_t i = 0; i < GP_ARRAY_LEN(give_up); i++)
        if ((keys & BIT(give_up[i])) != 0) return give_up[i];
    return SOFTWARE_GPU;
}

void software_find_clashes(const struct world *w, struct software_clashes *ret) {
    const unsigned all = elements(w);
    unsigned found[SOFTWARE_CLASHES_MAX] = {0};
    struct pick wished, p = {0};
    *ret = (struct software_clashes){0};
    for (int size = 0; size <= CLASH_KEYS_MAX || (ret->n == 0 && size <= bits(all)); size++) {
        if (size == CLASH_KEYS_MAX && ret->n > 0) break;
        /* Subsets of `all` in falling order; 0 comes last. */
        for (unsigned keys = all;; keys = (keys - 1) & all) {
            bool more = bits(keys) == size;
            for (size_t i = 0; more && i < ret->n; i++) more = (keys & found[i]) != found[i];
            if (more && ret->n < SOFTWARE_CLASHES_MAX && !software_search(w, keys, NULL, &p)) {
                ret->at[ret->n].keys = keys;
                describe(w, keys, &ret->at[ret->n]);
                found[ret->n++] = keys;
            }
            if (keys == 0) break;
        }
    }
    as_wished(w, &wished);
    unsigned dropped = least(w, all, &wished, ret, &p);
    for (size_t i = 0; i < ret->n; i++) {
        ret->at[i].key = key_of(ret->at[i].keys, dropped);
        if (dropped != 0) near_text(w, &p, dropped, ret->at[i].nearest, sizeof ret->at[i].nearest);
    }
}
