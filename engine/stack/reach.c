/* SPDX-License-Identifier: Apache-2.0 */
/* Where else a stack may be, for the order in which gc sweeps the clouds. Runs in the verb's thread, while others list:
 * of the engine's options it changes the owner alone, which they do not read. */
#include "base/gp_base.h"

#include "engine/stack/reach.h"

#include "engine/run/run.h"
#include "engine/stack/open_known.h"

static bool record_elsewhere(struct engine *e, const struct stack *s, const char *here) {
    GP_AUTO_RESOURCES struct resource_list known = {0};
    struct intent_list all = {0};
    bool other = !str_eq(s->provider, here) || journal_resources(e->journal, s->uid, &known, NULL) != 0 ||
                 journal_intents(e->journal, s->uid, ~0u, &all, NULL) != 0;
    for (size_t i = 0; i < known.list.len; i++) other = other || !str_eq(known.list.items[i].provider, here);
    for (size_t i = 0; i < all.list.len; i++) other = other || !str_eq(all.list.items[i].provider, here);
    intent_list_clear(&all);
    return other;
}

/* Another controller launches where the spec has offers. Without the spec that is not known. */
static bool offers_elsewhere(struct engine *e, const struct stack *s, const char *here) {
    struct run *run = NULL;
    const char *owner = e->opts.owner;
    e->opts.owner = s->owner;
    bool other = run_open_remembered(e, NULL, s->name, &run, NULL) != 0 || run->spec == NULL;
    for (size_t i = 0; !other && i < run->spec->offers.len; i++)
        other = !str_eq(run->spec->offers.items[i].provider, here);
    run_close(run);
    e->opts.owner = owner;
    return other;
}

bool reach_elsewhere(struct engine *e, const char *uid, const char *here) {
    struct stack_list all = {0};
    bool other = journal_stacks(e->journal, &all, NULL) != 0;
    for (size_t i = 0; i < all.list.len && !other; i++) {
        const struct stack *s = &all.list.items[i];
        other = str_eq(s->uid, uid) && (record_elsewhere(e, s, here) || offers_elsewhere(e, s, here));
    }
    stack_list_clear(&all);
    return other;
}
