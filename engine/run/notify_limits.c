/* SPDX-License-Identifier: Apache-2.0 */
/* Notifications that follow from time and money: they are due when the journal shows it, and each is sent once, which
 * the stack's folder remembers. */
#include "base/gp_base.h"

#include "engine/run/notify_priv.h"

#include "base/fs.h"
#include "base/hash.h"
#include "engine/run/stack_dir.h"
#include "engine/run/zero_price.h"

/* --- what is due --- */

/* Negative: the price of a machine is not known. */
static double spent(const struct resource_list *all, const struct stack *s, int64_t now_s) {
    double usd = 0;
    for (size_t i = 0; i < all->list.len; i++) {
        struct resource *r = &all->list.items[i];
        if (!resource_is_machine(r)) continue;
        zero_price_drop(r);
        int64_t since = r->created_s > 0 ? r->created_s : s->created_s;
        int64_t until = r->state != RES_GONE ? now_s : r->gone_s;
        if (r->price_usd_per_h < 0) return -1;
        usd += r->price_usd_per_h * (double)GP_MAX(until - since, (int64_t)0) / 3600;
    }
    return usd;
}

/* once: what the message is about; it is due again when that changes. */
static void push_once(struct notify_stack *s, enum notify_kind kind, const struct stack *known, char **ret_looked,
                      const char *once, const char *text) {
    struct event e = {.wall_ms = clock_wall_s() * 1000, .node = -1, .step = "", .text = text, .stack = s->name};
    struct notify *n = s->n;
    pthread_mutex_lock(&n->lock);
    e.owner = s->owner != NULL ? s->owner : known->owner;
    e.run = s->run;
    bool again = str_eq(*ret_looked, once);
    if (!again) {
        free(*ret_looked);
        *ret_looked = xstrdup(once);
        n->push(s, kind, &e, known->uid, once);
    }
    pthread_mutex_unlock(&n->lock);
}

static void look_deadline(struct notify_stack *s, const struct stack *known, int64_t now_s) {
    char left[32], when[40];
    if (!notify_deadline_near(s->ttl_s, known->created_s, known->expires_s, now_s)) return;
    duration_format(left, sizeof left, (known->expires_s - now_s) * 1000);
    time_format_utc(when, sizeof when, known->expires_s);
    GP_AUTO_FREE char *once = xasprintf("%lld", (long long)known->expires_s);
    GP_AUTO_FREE char *text =
        xasprintf("its nodes end in %s, at %s: 'gpuprov extend %s TIME' moves the deadline", left, when, s->name);
    push_once(s, NOTIFY_DEADLINE, known, &s->looked[0], once, text);
}

static void look_money(struct notify_stack *s, const struct stack *known, int64_t now_s) {
    GP_AUTO_RESOURCES struct resource_list all = {0};
    char limit[48];
    if (s->max_cost == 0 || journal_resources(s->n->journal, known->uid, &all, NULL) != 0) return;
    double usd = spent(&all, known, now_s);
    if (!notify_spent_most(usd, s->max_cost)) return;
    spec_money_text(limit, sizeof limit, s->max_cost, "USD");
    GP_AUTO_FREE char *once = xasprintf("%lld", (long long)s->max_cost);
    GP_AUTO_FREE char *text = xasprintf("%.2f USD are spent, %.0f %% of limits.max_cost %s: 'gpuprov down %s' ends the "
                                        "nodes before their deadline",
                                        usd, usd * 1e6 / (double)s->max_cost * 100, limit, s->name);
    push_once(s, NOTIFY_SPENT, known, &s->looked[1], once, text);
}

static bool wanted(const struct notify_stack *s, enum notify_kind kind) {
    for (size_t i = 0; i < s->receivers.len; i++)
        if (spec_notify_wants(&s->receivers.items[i]->def, kind)) return true;
    return false;
}

static void look(struct notify_stack *s, const struct stack_list *all) {
    int64_t now_s = clock_wall_s();
    pthread_mutex_lock(&s->n->lock);
    GP_AUTO_FREE char *owner = xstrdup(s->owner);
    pthread_mutex_unlock(&s->n->lock);
    for (size_t i = 0; i < all->list.len; i++) {
        const struct stack *known = &all->list.items[i];
        if (!str_eq(known->name, s->name) || (owner != NULL && !str_eq(known->owner, owner))) continue;
        if (wanted(s, NOTIFY_DEADLINE)) look_deadline(s, known, now_s);
        if (wanted(s, NOTIFY_SPENT)) look_money(s, known, now_s);
    }
}

void notify_limits(struct notify *n) {
    VEC_OF(struct notify_stack *) stacks = {0};
    struct stack_list all = {0};
    pthread_mutex_lock(&n->lock); /* a stack lives as long as n: only the list of them moves */
    for (size_t i = 0; i < n->stacks.len; i++) vec_push(&stacks, n->stacks.items[i]);
    pthread_mutex_unlock(&n->lock);
    if (stacks.len > 0 && journal_stacks(n->journal, &all, NULL) == 0)
        for (size_t i = 0; i < stacks.len; i++) look(stacks.items[i], &all);
    stack_list_clear(&all);
    vec_free(&stacks);
}

/* --- once --- */

/* One file per receiver, kind and stack: another order of the receivers changes nothing. NULL: no folder. */
static char *mark_path(const struct notify_receiver *r, const struct notify_message *m) {
    char sum[65];
    GP_AUTO_FREE char *dir = NULL;
    GP_AUTO_FREE char *who =
        xasprintf("%s\n%s", r->def.url != NULL ? r->def.url : "", r->def.command != NULL ? r->def.command : "");
    if (m->once == NULL || r->of->n->state_dir == NULL) return NULL;
    if (stack_dir_in(r->of->n->state_dir, m->uid, &dir, NULL) != 0 || !fs_exists(dir)) return NULL;
    sha256_hex(who, strlen(who), sum);
    return xasprintf("%s/notified-%s-%.16s", dir, spec_notify_kinds[m->kind], sum);
}

bool notify_was_sent(const struct notify_receiver *r, const struct notify_message *m) {
    GP_AUTO_FREE char *path = mark_path(r, m);
    GP_AUTO_STR struct str text = {0};
    return path != NULL && fs_read(path, 64, &text, NULL) == 0 && text.s != NULL && str_eq(text.s, m->once);
}

/* Without the mark it is sent again, with the same id. */
void notify_note_sent(const struct notify_receiver *r, const struct notify_message *m) {
    GP_AUTO_FREE char *path = mark_path(r, m);
    if (path != NULL) (void)fs_write_atomic(path, m->once, strlen(m->once), 0600, NULL);
}
