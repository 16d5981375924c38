/* SPDX-License-Identifier: Apache-2.0 */
/* Opens and closes the engine, and keeps the ids that the second Ctrl-C prints. engine_cancel and engine_billed_ids may
 * be called from the signal thread. */
#include "base/gp_base.h"

#include "engine/engine.h"

#include "base/fs.h"
#include "engine/internal.h"

#include <errno.h>
#include <pthread.h>

/* The list behind engine_billed_ids: its lock is held for a few instructions, never across I/O. */
struct billed {
    pthread_mutex_t lock;
    struct strv ids;
};
struct engine_private {
    struct engine pub; /* first: the public part is what callers hold */
    struct billed billed;
};

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
