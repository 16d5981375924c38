/* SPDX-License-Identifier: Apache-2.0 */
/* gpuprov providers [NAME]: lists the providers and who enforces their deadlines. NAME --policy prints the least
 * permissions of one owner; without --owner it opens the provider to read the principal. */
#include "base/gp_base.h"

#include "app.h"

#include "providers/provider.h"

struct opts {
    bool policy, node;
};
static const struct opt options[] = {
    {.name = "policy",
     .type = OPT_FLAG,
     .offset = offsetof(struct opts, policy),
     .help = "print NAME's least permissions for --owner (else the principal), where it has such a form"},
    {.name = "node",
     .type = OPT_FLAG,
     .offset = offsetof(struct opts, node),
     .help = "with --policy: the rights that a node itself gets, where an offer has `role`"},
    {0}};

/* --owner, else the principal of the credentials. Caller frees *ret. */
static int owner_of(struct invocation *inv, const struct provider_ops *ops, char **ret, struct gp_error *err) {
    struct engine *e = NULL;
    struct provider *p = NULL;
    inv->app->engine_opts.scratch = true; /* nothing is launched: no journal on disk */
    int r = app_engine(inv, &e, err);
    if (r != 0) return r;
    if (e->opts.owner != NULL) {
        *ret = xstrdup(e->opts.owner);
        return 0;
    }
    struct provider_env env = {.cancel = &e->cancel, .journal = e->journal, .sink = &e->sink};
    if ((r = ops->open(&env, &p, err)) != 0)
        return gp_wrap(err, "the policy is for one owner: give --owner NAME, or credentials of %s", ops->name);
    *ret = xstrdup(p->owner);
    ops->close(p);
    return 0;
}

static int print_policy(struct invocation *inv, const char *name, bool node, struct gp_error *err) {
    const struct provider_ops *ops = name != NULL ? provider_find(name) : NULL;
    if (ops != NULL && ops->policy == NULL && ops->policy_refusal != NULL)
        return gp_fail(err, GP_EUSAGE, "%s has no policy: %s", name, ops->policy_refusal);
    if (ops == NULL || ops->policy == NULL) {
        GP_AUTO_STRV struct strv with = {0};
        for (size_t i = 0; provider_registry[i] != NULL; i++)
            if (provider_registry[i]->policy != NULL) strv_add(&with, provider_registry[i]->name);
        GP_AUTO_FREE char *names = strv_join(&with, ", ");
        return gp_fail(err, GP_EUSAGE,
                       "--policy requires a provider that has a policy: gpuprov providers NAME --policy (%s)", names);
    }
    if (node && ops->node_policy == NULL)
        return gp_fail(err, GP_EUSAGE, "--node: %s gives its nodes no rights of a policy: leave --node out", name);
    GP_AUTO_FREE char *owner = NULL;
    GP_AUTO_FREE char *policy = NULL;
    int r = owner_of(inv, ops, &owner, err);
    if (r == 0) r = (node ? ops->node_policy : ops->policy)(owner, &policy, err);
    if (r == 0) fputs(policy, stdout);
    return r;
}

static json_t *keys_json(const struct spec_provider *p) {
    json_t *keys = json_array();
    for (const struct spec_provider_key *k = p->keys; k->name != NULL; k++)
        json_array_append_new(keys, json_string(k->name));
    return keys;
}

/* The keys of an offer in short; 'gpuprov schema --markdown' has the full description. */
static void print_keys(const struct spec_provider *p) {
    struct table t = {0};
    table_head(&t, "key of an offer", "value", "meaning", NULL);
    for (const struct spec_provider_key *k = p->keys; k->name != NULL; k++)
        table_row(&t, k->name, k->pattern_doc != NULL ? k->pattern_doc : "", k->note != NULL ? k->note : "", NULL);
    if (p->keys->name != NULL) putchar('\n');
    if (p->keys->name != NULL) table_print(&t, stdout);
    table_clear(&t);
}

static int unknown(const char *name, struct gp_error *err) {
    const char *names[32] = {NULL};
    GP_AUTO_STRV struct strv known = {0};
    for (size_t i = 0; provider_registry[i] != NULL && i + 1 < GP_ARRAY_LEN(names); i++) {
        names[i] = provider_registry[i]->name;
        strv_add(&known, names[i]);
    }
    const char *near = str_closest(name, names);
    GP_AUTO_FREE char *list = strv_join(&known, ", ");
    return gp_fail(err, GP_EUSAGE, "unknown provider '%s'%s%s%s known: %s", name,
                   near != NULL ? "; did you mean '" : ";", near != NULL ? near : "", near != NULL ? "'?" : "", list);
}

static int run(struct invocation *inv, struct gp_error *err) {
    const struct opts *o = inv->opts;
    const char *only = inv->n_args == 1 ? inv->args[0] : NULL;
    if (only != NULL && provider_find(only) == NULL) return unknown(only, err);
    if (o->node && !o->policy)
        return gp_fail(err, GP_EUSAGE, "--node is for --policy: gpuprov providers azure --policy --node");
    if (o->policy) return print_policy(inv, only, o->node, err);
    json_t *list = json_array();
    struct table t = {0};
    table_head(&t, "provider", "ends", "billed", "description", NULL);
    for (size_t i = 0; provider_registry[i] != NULL; i++) {
        const struct provider_ops *p = provider_registry[i];
        if (only != NULL && strcmp(only, p->name) != 0) continue;
        table_row(&t, p->name, offer_ends_name(p->ends), p->billed ? "yes" : "no", p->summary, NULL);
        json_array_append_new(list, json_pack("{s:s, s:s, s:b, s:b, s:s, s:o}", "name", p->name, "ends",
                                              offer_ends_name(p->ends), "billed", (int)p->billed, "unique_claim",
                                              (int)p->unique_claim, "summary", p->summary, "keys", keys_json(p->spec)));
    }
    if (inv->common->json) print_json(json_pack("{s:O}", "providers", list));
    else table_print(&t, stdout);
    if (only != NULL && !inv->common->json) print_keys(provider_find(only)->spec);
    json_decref(list);
    table_clear(&t);
    return 0;
}

const struct verb verb_providers = {
    .name = "providers",
    .argspec = "[NAME]",
    .help = "lists the providers; 'NAME --policy' prints the least permissions",
    .details = "  ends: who terminates a node at its deadline without gpuprov. server: the provider; guest: the\n"
               "  node; gc-only: nobody until 'gpuprov gc' runs; never: nobody, it is an existing machine.\n"
               "  With NAME: also the keys that an offer of that provider takes.\n"
               "  --policy prints what the cloud takes: an IAM or RAM policy, a role, access rules. Clouds whose\n"
               "  API keys have all rights of the account have none.\n",
    .examples = "  gpuprov providers azure                          # the keys of its offers\n"
                "  gpuprov providers google --policy --owner me     # a custom role\n",
    .run = run,
    .options = options,
    .opts_size = sizeof(struct opts),
    .max_args = 1,
};
