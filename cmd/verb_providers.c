/* SPDX-License-Identifier: Apache-2.0 */
/* gpuprov providers [NAME]: what nodes can come from and who ends them; aws --policy prints the least
 * IAM policy of one owner. Only that without --owner opens a provider. */
#include "base/gp_base.h"

#include "app.h"

#include "providers/aws/aws.h"
#include "providers/provider.h"

struct opts {
    bool policy;
};
static const struct opt options[] = {{.name = "policy",
                                      .type = OPT_FLAG,
                                      .offset = offsetof(struct opts, policy),
                                      .help = "aws: print the least IAM policy of --owner (else the principal)"},
                                     {0}};

static const char *ends_name(enum provider_ends e) {
    switch (e) {
    case ENDS_SERVER: return "server";
    case ENDS_GUEST: return "guest";
    case ENDS_GC_ONLY: return "gc-only";
    case ENDS_NEVER: return "never";
    }
    return "?";
}

/* --owner, or whom the credentials stand for. Caller frees *ret. */
static int owner_of(struct invocation *inv, char **ret, struct gp_error *err) {
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
    if ((r = provider_aws.open(&env, &p, err)) != 0)
        return gp_wrap(err, "the policy is for one owner: give --owner NAME, or credentials of AWS");
    *ret = xstrdup(p->owner);
    provider_aws.close(p);
    return 0;
}

static int print_policy(struct invocation *inv, const char *name, struct gp_error *err) {
    if (name == NULL || strcmp(name, "aws") != 0)
        return gp_fail(err, GP_EUSAGE, "--policy is of aws: gpuprov providers aws --policy");
    GP_AUTO_FREE char *owner = NULL;
    GP_AUTO_FREE char *policy = NULL;
    int r = owner_of(inv, &owner, err);
    if (r == 0) r = aws_policy_json(owner, &policy, err);
    if (r == 0) fputs(policy, stdout);
    return r;
}

static int run(struct invocation *inv, struct gp_error *err) {
    const struct opts *o = inv->opts;
    const char *only = inv->n_args == 1 ? inv->args[0] : NULL;
    if (only != NULL && provider_find(only) == NULL)
        return gp_fail(err, GP_EUSAGE, "unknown provider '%s'; 'gpuprov providers' lists them", only);
    if (o->policy) return print_policy(inv, only, err);
    json_t *list = json_array();
    struct table t = {0};
    table_head(&t, "provider", "ends", "billed", "what", NULL);
    for (size_t i = 0; provider_registry[i] != NULL; i++) {
        const struct provider_ops *p = provider_registry[i];
        if (only != NULL && strcmp(only, p->name) != 0) continue;
        table_row(&t, p->name, ends_name(p->ends), p->billed ? "yes" : "no", p->summary, NULL);
        json_array_append_new(list, json_pack("{s:s, s:s, s:b, s:b, s:s}", "name", p->name, "ends", ends_name(p->ends),
                                              "billed", (int)p->billed, "unique_claim", (int)p->unique_claim, "summary",
                                              p->summary));
    }
    if (inv->common->json) print_json(json_pack("{s:O}", "providers", list));
    else table_print(&t, stdout);
    json_decref(list);
    table_clear(&t);
    return 0;
}

const struct verb verb_providers = {
    .name = "providers",
    .argspec = "[NAME]",
    .help = "where nodes can come from; 'aws --policy' prints the IAM policy",
    .details = "  ends: who ends a node at its deadline when gpuprov is gone. server: the provider itself;\n"
               "  guest: the node; gc-only: only 'gpuprov gc'; never: not ours to end.\n",
    .run = run,
    .options = options,
    .opts_size = sizeof(struct opts),
    .max_args = 1,
};
