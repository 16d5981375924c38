/* SPDX-License-Identifier: Apache-2.0 */
/* Opens and closes the engine, and keeps what the second Ctrl-C prints. engine_cancel, engine_billed_ids and
 * engine_left_text may be called from the signal thread. */
#include "base/gp_base.h"

#include "engine/engine.h"

#include "base/fs.h"
#include "engine/internal.h"

#include <errno.h>
#include <pthread.h>

/* The lists behind engine_billed_ids and engine_left_text. Their lock is held for a few instructions, never across
 * I/O. */
struct machine {
    char *id, *stack, *owner;
    int slot;
    int64_t expires_s; /* 0: not known */
};
struct billed {
    pthread_mutex_t lock;
    struct strv ids;
    VEC_OF(struct machine) machines; /* billed or not; by stack, then slot */
};
struct engine_private {
    struct engine pub; /* first: the public part is what callers hold */
    struct billed billed;
};

static void machine_clear(struct machine *m) {
    free(m->id);
    free(m->stack);
    free(m->owner);
}

int engine_scratch_folder(struct engine *e, struct gp_error *err) {
    const char *tmp = getenv("TMPDIR");
    char *dir = xasprintf("%s/gpuprov.XXXXXX", tmp != NULL && tmp[0] == '/' ? tmp : "/tmp");
    if (mkdtemp(dir) == NULL) {
        gp_fail_errno(err, GP_EENV, errno, "could not create the folder '%s'", dir);
        free(dir);
        return -GP_EENV;
    }
    e->state_dir = dir;
    return 0;
}

int engine_open(const struct engine_opts *opts, struct engine **ret, struct gp_error *err) {
    struct engine_private *p = xcalloc(1, sizeof *p);
    struct engine *e = &p->pub;
    pthread_mutex_init(&p->billed.lock, NULL);
    e->opts = *opts;
    if (e->opts.jobs <= 0) e->opts.jobs = 64;
    if (e->opts.lock_timeout_ms == 0) e->opts.lock_timeout_ms = LOCK_TIMEOUT_MS;
    e->cancel.efd = -1;
    e->notify = notify_new();
    bool damaged = false;
    int r = gp_cancel_init(&e->cancel, err);
    if (r == 0 && opts->scratch) r = journal_open(NULL, &e->journal, NULL, err);
    if (r == 0 && !opts->scratch) r = fs_state_dir(&e->state_dir, err);
    if (r == 0 && !opts->scratch) {
        GP_AUTO_FREE char *path = fs_join(e->state_dir, "journal.db");
        r = journal_open(path, &e->journal, &damaged, err);
    }
    if (r != 0) {
        engine_close(e);
        return r;
    }
    e->journal_damaged = damaged;
    *ret = e;
    return 0;
}

void engine_close(struct engine *e) {
    if (e == NULL) return;
    struct engine_private *p = (struct engine_private *)e;
    notify_free(e->notify);
    journal_close(e->journal);
    if (e->opts.scratch && e->state_dir != NULL) fs_remove_tree(e->state_dir, NULL);
    gp_cancel_clear(&e->cancel);
    free(e->state_dir);
    strv_clear(&p->billed.ids);
    for (size_t i = 0; i < p->billed.machines.len; i++) machine_clear(&p->billed.machines.items[i]);
    vec_free(&p->billed.machines);
    pthread_mutex_destroy(&p->billed.lock);
    free(p);
}

int engine_knows(struct engine *e, const char *name, bool *ret, struct gp_error *err) {
    struct stack_list all = {0};
    int r = journal_stacks(e->journal, &all, err);
    for (size_t i = 0; i < all.list.len; i++) *ret = *ret || str_eq(all.list.items[i].name, name);
    stack_list_clear(&all);
    return r;
}

void engine_cancel(struct engine *e) { gp_cancel_set(&e->cancel); }

void engine_go_on(struct engine *e) { gp_cancel_reset(&e->cancel); }

void engine_note_billed(struct engine *e, const char *id, bool billed) {
    struct billed *b = &((struct engine_private *)e)->billed;
    pthread_mutex_lock(&b->lock);
    size_t at = 0;
    while (at < b->ids.n && strcmp(b->ids.v[at], id) != 0) at++;
    if (billed && at == b->ids.n) {
        strv_add(&b->ids, id);
    } else if (!billed && at < b->ids.n) {
        free(b->ids.v[at]);
        memmove(&b->ids.v[at], &b->ids.v[at + 1], (b->ids.n - at) * sizeof *b->ids.v);
        b->ids.n--;
    }
    pthread_mutex_unlock(&b->lock);
}

char *engine_billed_ids(struct engine *e) {
    struct billed *b = &((struct engine_private *)e)->billed;
    pthread_mutex_lock(&b->lock);
    char *out = b->ids.n > 0 ? strv_join(&b->ids, "\n") : xstrdup("");
    pthread_mutex_unlock(&b->lock);
    return out;
}

/* --- machines --- */

static int machine_order(const struct machine *a, const struct machine *b) {
    int by = strcmp(a->stack, b->stack);
    if (by == 0) by = strcmp(a->owner, b->owner);
    return by != 0 ? by : a->slot - b->slot;
}

/* Removes the machine, if it is there. */
static void machine_drop(struct billed *b, const char *id, const char *stack) {
    for (size_t i = 0; i < b->machines.len; i++) {
        struct machine *m = &b->machines.items[i];
        if (strcmp(m->id, id) != 0 || strcmp(m->stack, stack) != 0) continue;
        machine_clear(m);
        memmove(m, m + 1, (b->machines.len - i - 1) * sizeof *m);
        b->machines.len--;
        return;
    }
}

static void machine_add(struct billed *b, const struct resource *r) {
    struct machine m = {.slot = r->slot, .expires_s = r->expires_s};
    m.id = xstrdup(r->id);
    m.stack = xstrdup(r->stack);
    m.owner = xstrdup(r->owner);
    vec_push(&b->machines, m);
    for (size_t i = b->machines.len - 1; i > 0; i--) {
        struct machine *at = &b->machines.items[i], *before = at - 1;
        if (machine_order(before, at) <= 0) break;
        struct machine swap = *at;
        *at = *before;
        *before = swap;
    }
}

void engine_note_resource(struct engine *e, const struct resource *r, bool there) {
    struct billed *b = &((struct engine_private *)e)->billed;
    there = there && r->state != RES_GONE;
    if (r->billed || !there) engine_note_billed(e, r->id, there);
    /* without a stack `down` has nothing to destroy */
    if (!resource_is_machine(r) || e->opts.scratch || r->slot < 0 || r->stack == NULL || r->stack[0] == '\0') return;
    pthread_mutex_lock(&b->lock);
    machine_drop(b, r->id, r->stack);
    if (there) machine_add(b, r);
    pthread_mutex_unlock(&b->lock);
}

static bool is_machine(const struct billed *b, const char *id) {
    for (size_t i = 0; i < b->machines.len; i++)
        if (strcmp(b->machines.items[i].id, id) == 0) return true;
    return false;
}

static void add_machine(const struct machine *m, struct str *out) {
    char until[32];
    time_format_utc(until, sizeof until, m->expires_s);
    str_addf(out, "  %s/%d  %s%s%s\n", m->stack, m->slot, m->id, m->expires_s > 0 ? "  until its deadline " : "",
             m->expires_s > 0 ? until : "");
}

char *engine_left_text(struct engine *e) {
    struct billed *b = &((struct engine_private *)e)->billed;
    GP_AUTO_STR struct str out = {0};
    size_t others = 0;
    pthread_mutex_lock(&b->lock);
    for (size_t i = 0, k = 0; i < b->machines.len; i = k) {
        const struct machine *first = &b->machines.items[i];
        for (k = i; k < b->machines.len && str_eq(b->machines.items[k].stack, first->stack); k++) {
        }
        str_addf(&out, "%zu node%s of '%s' stay%s; 'gpuprov down %s' destroys %s:\n", k - i, k - i == 1 ? "" : "s",
                 first->stack, k - i == 1 ? "s" : "", first->stack, k - i == 1 ? "it" : "them");
        for (size_t n = i; n < k; n++) add_machine(&b->machines.items[n], &out);
    }
    for (size_t i = 0; i < b->ids.n; i++) {
        if (is_machine(b, b->ids.v[i])) continue;
        if (others++ == 0) str_add(&out, "may still be billed ('gpuprov down' or 'gpuprov gc' destroys it):\n");
        str_addf(&out, "  %s\n", b->ids.v[i]);
    }
    pthread_mutex_unlock(&b->lock);
    return out.len > 0 ? str_steal(&out) : xstrdup("");
}
