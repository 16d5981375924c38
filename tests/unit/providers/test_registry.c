/* SPDX-License-Identifier: Apache-2.0 */
/* Every row of PROVIDER_ROWS is complete: slots, facts that fit together, keys with examples that a spec takes, a policy
 * or the reason why there is none, and its pages. It names no provider: a new row is tested by being there. Runs from
 * the repository's root. */
#include "base/gp_base.h"

#include "base/fs.h"
#include "core/spec/spec_internal.h"
#include "providers/provider.h"
#include "templates/templates.h"

#include <regex.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define HAS(p, what)                                                                        \
    do {                                                                                    \
        if (!(what)) fail_msg("provider '%s' misses or contradicts: %s", (p)->name, #what); \
    } while (0)

static bool is_text(const char *s) { return s != NULL && s[0] != '\0'; }

static void rows_are_found(void **state) {
    (void)state;
    for (size_t i = 0; provider_registry[i] != NULL; i++) {
        const struct provider_ops *p = provider_registry[i];
        HAS(p, p->name[strspn(p->name, "abcdefghijklmnopqrstuvwxyz0123456789")] == '\0'); /* a folder, a C name */
        HAS(p, provider_find(p->name) == p);
        HAS(p, strcmp(p->spec->name, p->name) == 0);
        HAS(p, spec_provider_find(p->name) == p->spec);
    }
    assert_null(provider_find("nothing-of-that-name"));
}

static void facts_fit_together(void **state) {
    (void)state;
    for (size_t i = 0; provider_registry[i] != NULL; i++) {
        const struct provider_ops *p = provider_registry[i];
        HAS(p, is_text(p->summary) && !str_ends(p->summary, "."));
        HAS(p, is_text(p->spec->doc) && !str_ends(p->spec->doc, "."));
        HAS(p, p->open != NULL && p->close != NULL && p->offers != NULL && p->prepare != NULL);
        HAS(p, p->create != NULL && p->list != NULL && p->destroy != NULL);
        HAS(p, p->ends != ENDS_BY_PROVIDER);
        HAS(p, p->lent == (p->ends == ENDS_NEVER)); /* only machines that are not ours are never ended */
        HAS(p, p->ends != ENDS_GUEST || p->guest_end == GUEST_POWEROFF);
        HAS(p, (p->guest_end == GUEST_DELETES) == (p->end_script != NULL));
        HAS(p, p->end_script == NULL || template_find(p->end_script) != NULL);
        HAS(p, p->end_script == NULL || (p->user_data && p->node_shape == NODE_VM));
        HAS(p, p->self_end == NULL || p->end_script != NULL);
        HAS(p, p->self_end == NULL || (p->self_end->make != NULL && p->self_end->confirm != NULL));
        HAS(p, !p->user_data || p->user_data_max > 0);
        HAS(p, !p->key_rotation || p->user_data);     /* the first host key came with user-data */
        HAS(p, !p->late_host_key || p->key_rotation); /* the key that is waited for */
        HAS(p, p->poll_ms > 0 && p->boot_timeout_ms > 0 && p->settle_ms >= 0 && p->replay_max_s >= 0);
        HAS(p, p->images != NULL || is_text(p->image_refusal));
        HAS(p, (p->policy != NULL) != is_text(p->policy_refusal));
        p->close(NULL);
        regex_t form;
        if (p->spec->image_id == NULL) continue;
        HAS(p, regcomp(&form, p->spec->image_id, REG_EXTENDED | REG_NOSUB) == 0);
        regfree(&form);
    }
}

static const struct spec_field *field_of(const char *key) {
    for (const struct spec_field *f = spec_offer_block.fields; f->name != NULL; f++)
        if (strcmp(f->name, key) == 0) return f;
    return NULL;
}

static const char *example_of(const struct spec_provider_key *k) {
    const struct spec_field *f = field_of(k->name);
    return k->example != NULL ? k->example : f != NULL ? f->example : NULL;
}

/* The example of each key, with those of the required keys, is a spec that the provider takes. */
static void keys_have_examples(void **state) {
    (void)state;
    for (size_t i = 0; provider_registry[i] != NULL; i++) {
        const struct spec_provider *p = provider_registry[i]->spec;
        for (const struct spec_provider_key *k = p->keys; k->name != NULL; k++) {
            GP_AUTO_STR struct str text = {0};
            GP_AUTO_SPEC struct spec *spec = NULL;
            struct spec_problems problems = {0};
            struct gp_error err = {0};
            if (field_of(k->name) == NULL) fail_msg("%s: '%s' is no key of an offer", p->name, k->name);
            if (!is_text(example_of(k))) fail_msg("%s: '%s' has no example", p->name, k->name);
            str_addf(&text, "name: t\noffers:\n  - provider: %s\n    %s: %s\n", p->name, k->name, example_of(k));
            for (const struct spec_provider_key *need = p->keys; need->name != NULL; need++)
                if (need->required && need != k) str_addf(&text, "    %s: %s\n", need->name, example_of(need));
            int r = spec_load_text("t.yaml", text.s, text.len, NULL, &spec, &problems, &err);
            if (r != 0) fail_msg("%s%s", text.s, problems.list.len > 0 ? problems.list.items[0].message : err.msg);
            spec_problems_clear(&problems);
        }
    }
}

static bool file_has(const char *path, const char *text) {
    GP_AUTO_STR struct str page = {0};
    return fs_read(path, (size_t)1 << 20, &page, NULL) == 0 && strstr(page.s, text) != NULL;
}

/* README's row: tests/lint/pages.py. */
static void pages_are_written(void **state) {
    (void)state;
    for (size_t i = 0; provider_registry[i] != NULL; i++) {
        const struct provider_ops *p = provider_registry[i];
        GP_AUTO_FREE char *page = xasprintf("docs/%s.md", p->name);
        GP_AUTO_FREE char *starter = xasprintf("templates/init/%s.yaml", p->name);
        GP_AUTO_FREE char *row = xasprintf("| [`%s`](%s.md) |", p->name, p->name);
        if (!fs_exists(page)) fail_msg("%s is missing: credentials, rights, resources, who terminates a node", page);
        if (!fs_exists(starter)) fail_msg("%s is missing: what 'gpuprov init --provider' writes", starter);
        if (!file_has("docs/providers.md", row)) fail_msg("docs/providers.md has no row '%s'", row);
    }
}

static int read_rows(void **state) {
    (void)state;
    provider_specs_register();
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_found),
        cmocka_unit_test(facts_fit_together),
        cmocka_unit_test(keys_have_examples),
        cmocka_unit_test(pages_are_written),
    };
    return cmocka_run_group_tests(tests, read_rows, NULL);
}
