/* SPDX-License-Identifier: Apache-2.0 */
/* Providers without credentials, in looks at every provider (aside.h). The verb's thread. */
#include "base/gp_base.h"

#include "engine/trust/aside.h"

/* Whether the journal has a stack, a resource or a launch without a known outcome there. */
static bool is_in_journal(const struct engine *e, const char *provider) {
    struct stack_list stacks = {0};
    GP_AUTO_RESOURCES struct resource_list known = {0};
    struct intent_list open = {0};
    unsigned states = 1u << INTENT_OPEN | 1u << INTENT_TOMBSTONE;
    bool there = journal_stacks(e->journal, &stacks, NULL) != 0 ||
                 journal_resources(e->journal, NULL, &known, NULL) != 0 ||
                 journal_intents(e->journal, NULL, states, &open, NULL) != 0; /* unknown: it may be */
    for (size_t i = 0; i < stacks.list.len; i++) there = there || str_eq(stacks.list.items[i].provider, provider);
    for (size_t i = 0; i < known.list.len; i++)
        there = there || (known.list.items[i].state != RES_GONE && str_eq(known.list.items[i].provider, provider));
    for (size_t i = 0; i < open.list.len; i++) there = there || str_eq(open.list.items[i].provider, provider);
    stack_list_clear(&stacks);
    intent_list_clear(&open);
    return there;
}

static bool has_no_account(const struct look *l) {
    return !l->checked && l->region[0] == '\0' && provider_no_credentials(&l->why);
}

void look_set_aside(const struct engine *e, bool ended, struct coverage *c) {
    bool any = ended, named = e->opts.only != NULL && e->opts.only->n > 0;
    for (size_t i = 0; i < c->list.len; i++)
        any = any || (c->list.items[i].billed && !has_no_account(&c->list.items[i]));
    for (size_t i = 0; any && !named && i < c->list.len; i++) {
        struct look *l = &c->list.items[i];
        if (has_no_account(l)) l->aside = !is_in_journal(e, l->provider);
    }
}
