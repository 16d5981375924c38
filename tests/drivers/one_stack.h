/* SPDX-License-Identifier: Apache-2.0 */
/* What programs that drive one provider without an engine share: a spec, the journal below GPUPROV_STATE_DIR, and
 * the stack that the spec describes. */
#ifndef GP_TESTS_ONE_STACK_H
#define GP_TESTS_ONE_STACK_H

#include "base/clock.h"
#include "base/fs.h"
#include "base/log.h"
#include "providers/provider.h"

/* Problems of the spec are printed. What is open after a failure is for one_stack_close() too. */
static inline int one_stack_open(const char *spec_file, struct spec **spec, struct gp_cancel *cancel, char **state_dir,
                                 struct journal **journal, struct gp_error *err) {
    struct spec_problems problems = {0};
    GP_AUTO_STR struct str text = {0};
    bool damaged = false;
    if (getenv("GPUPROV_TRACE") != NULL) log_enable(getenv("GPUPROV_TRACE"), NULL);
    int r = gp_cancel_init(cancel, err);
    provider_specs_register();
    if (r == 0) r = spec_load(spec_file, NULL, spec, &problems, err);
    spec_problems_format(&problems, spec_file, "", false, &text);
    if (text.s != NULL) fputs(text.s, stderr);
    spec_problems_clear(&problems);
    if (r == 0) r = fs_state_dir(state_dir, err);
    GP_AUTO_FREE char *file = r == 0 ? fs_join(*state_dir, "journal.db") : NULL;
    return r == 0 ? journal_open(file, journal, &damaged, err) : r;
}

/* The key of GPUPROV_TEST_KEY, else a fixed one; tests/clouds/proofs.py makes the same. */
static inline const struct proof_key *one_stack_key(void) {
    static struct proof_key key;
    const char *secret = getenv("GPUPROV_TEST_KEY") != NULL ? getenv("GPUPROV_TEST_KEY") : "fixed";
    if (!key.known) proof_key_make(&key, "test", secret, strlen(secret));
    return &key;
}

#define ONE_STACK_HOST_KEY "SHA256:contractcontractcontractcontractcontractcok"

/* Writes a host key with its proof to one machine. */
static inline int one_stack_prove(struct provider *p, const struct resource *machine, struct gp_error *err) {
    struct resource_list one = {.list = {.items = (struct resource *)(uintptr_t)machine, .len = 1, .cap = 1}};
    char proof[PROOF_SIZE];
    proof_of_machine(one_stack_key(), machine->uid, machine->provider, machine->id, machine->slot, ONE_STACK_HOST_KEY,
                     proof);
    struct late_tag tags[] = {{"hostkey", ONE_STACK_HOST_KEY}, {"proof", proof}};
    return p->ops->tag(p, &one, tags, 2, err);
}

static inline struct stack one_stack(const struct provider *p, const struct spec *spec, const char *region) {
    return (struct stack){.owner = xstrdup(p->owner),
                          .name = xstrdup(spec->name),
                          .spec_hash = xstrdup(spec->hash),
                          .provider = xstrdup(p->ops->name),
                          .region = xstrdup(region),
                          .expires_s = clock_wall_s() + p->clock_skew_s + 3600};
}

static inline void one_stack_close(struct provider *p, struct stack *s, struct spec *spec, struct gp_cancel *cancel,
                                   char *state_dir, struct journal *journal) {
    if (p != NULL) p->ops->close(p);
    journal_close(journal);
    stack_clear(s);
    spec_free(spec);
    free(state_dir);
    gp_cancel_clear(cancel);
    log_close();
}

#endif
