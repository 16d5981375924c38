/* SPDX-License-Identifier: Apache-2.0 */
/* gpuprov offers [SPEC]: lists everything that could be bought now, over all providers. Buys nothing. */
#include "base/gp_base.h"

#include "show/offer_show.h"

#include "base/form.h"
#include "providers/provider.h"
#include "validate/validate.h"

struct opts {
    const char *gpu;
    int nodes, market; /* an index of the option's values */
    struct opt_list providers, regions;
};
enum { ANY_MARKET, ON_DEMAND, SPOT };
static const struct opt options[] = {{.name = "gpu",
                                      .type = OPT_TEXT,
                                      .offset = offsetof(struct opts, gpu),
                                      .arg = "MODEL[:N]",
                                      .help = "GPUs of each node, as the spec's key; without it and SPEC: none"},
                                     {.name = "nodes",
                                      .type = OPT_INT,
                                      .offset = offsetof(struct opts, nodes),
                                      .arg = "N",
                                      .help = "how many nodes (default 1)",
                                      .min = 1,
                                      .max = 4096},
                                     {.name = "market",
                                      .type = OPT_ENUM,
                                      .offset = offsetof(struct opts, market),
                                      .arg = "any|on-demand|spot",
                                      .help = "the market; any: the spec's, else on-demand"},
                                     {.name = "provider",
                                      .type = OPT_LIST,
                                      .offset = offsetof(struct opts, providers),
                                      .arg = "NAME",
                                      .help = "only this provider; may be repeated"},
                                     {.name = "region",
                                      .type = OPT_LIST,
                                      .offset = offsetof(struct opts, regions),
                                      .arg = "[PROVIDER:]NAME",
                                      .help = "only this region, else the provider's default; may be repeated"},
                                     {0}};

/* Loads a spec that is made of options, so that its rules and its errors apply. */
static int load_text(const char *text, const char *what, struct spec **ret, struct gp_error *err) {
    struct spec_problems problems = {0};
    struct gp_error why = {0};
    int r = spec_load_text("(options)", text, strlen(text), validate_names(), ret, &problems, &why);
    if (r != 0)
        gp_fail(err, why.code, "%s: %s", what, problems.list.len > 0 ? problems.list.items[0].message : why.msg);
    spec_problems_clear(&problems);
    return r;
}

static const struct spec_provider_key *required_key(const struct provider_ops *ops) {
    for (const struct spec_provider_key *k = ops->spec->keys; k->name != NULL; k++)
        if (k->required) return k;
    return NULL;
}

static bool is_wanted(const struct opts *o, const char *provider) {
    bool any = o->providers.n == 0;
    for (size_t i = 0; i < o->providers.n; i++) any = any || strcmp(o->providers.v[i], provider) == 0;
    return any;
}

/* The regions of the options for a provider: NAME is for all of them, PROVIDER:NAME for that one. */
static void regions_for(const struct opts *o, const char *provider, struct strv *ret) {
    for (size_t i = 0; i < o->regions.n; i++) {
        const char *region = o->regions.v[i], *colon = strchr(region, ':');
        size_t n = colon != NULL ? (size_t)(colon - region) : 0;
        if (colon == NULL) strv_add(ret, region);
        else if (strlen(provider) == n && strncmp(region, provider, n) == 0) strv_add(ret, colon + 1);
    }
}

/* `- {provider: NAME, regions: [...]}` of a provider that takes regions, after a look at their form. */
static int region_offer(const struct strv *given, const struct provider_ops *ops, struct str *ret,
                        struct gp_error *err) {
    bool regions = given->n > 0 && spec_provider_key(ops->spec, "regions") != NULL;
    str_addf(ret, "  - {provider: %s", ops->name);
    for (size_t i = 0; regions && i < given->n; i++)
        str_addf(ret, "%s'%s'", i > 0 ? ", " : ", regions: [", given->v[i]);
    str_addf(ret, "%s}\n", regions ? "]" : "");
    GP_AUTO_FREE char *alone = xasprintf("name: offers\noffers:\n%s", ret->s);
    GP_AUTO_SPEC struct spec *one = NULL;
    return regions ? load_text(alone, "--region", &one, err) : 0;
}

/* Appends an offer of this provider, with the regions of the options if it takes regions: by the spec's own rules. */
static int add_offer(const struct opts *o, const struct provider_ops *ops, struct str *text, struct gp_error *err) {
    const struct spec_provider_key *need = required_key(ops);
    GP_AUTO_STRV struct strv regions = {0};
    regions_for(o, ops->name, &regions);
    bool by_region = need != NULL && strcmp(need->name, "regions") == 0;
    if (need != NULL && !by_region)
        return gp_fail(err, GP_EUSAGE, "it needs '%s': give a SPEC with an offer of it", need->name);
    if (by_region && regions.n == 0)
        return gp_fail(err, GP_EUSAGE, "it needs 'regions': give --region %s:NAME, or a SPEC with an offer of it",
                       ops->name);
    GP_AUTO_STR struct str offer = {0};
    int r = region_offer(&regions, ops, &offer, err);
    if (r == 0) str_add(text, offer.s);
    return r;
}

/* A spec with an offer of every provider. Those that need more are in ret_left_out. */
static int spec_of_all(const struct opts *o, struct spec **ret, struct offers_result *ret_left_out,
                       struct gp_error *err) {
    GP_AUTO_STR struct str text = {0};
    size_t n = 0;
    str_add(&text, "name: offers\nlimits: {unattended: accept}\noffers:\n");
    for (size_t i = 0; provider_registry[i] != NULL; i++) {
        const struct provider_ops *ops = provider_registry[i];
        struct offers_gap gap = {0};
        if (!is_wanted(o, ops->name)) continue;
        if (add_offer(o, ops, &text, &gap.why) == 0) {
            n++;
            continue;
        }
        gap.provider = xstrdup(ops->name);
        vec_push(&ret_left_out->gaps, gap);
        if (o->providers.n == 1) return gp_fail(err, GP_EUSAGE, "%s: %s", ops->name, gap.why.msg);
    }
    if (n == 0) return gp_fail(err, GP_EUSAGE, "no provider is left to query");
    return load_text(text.s, "offers", ret, err);
}

static int set_gpu(const char *gpu, struct spec *spec, struct gp_error *err) {
    GP_AUTO_SPEC struct spec *one = NULL;
    if (strspn(gpu, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789 ._:-") != strlen(gpu))
        return gp_fail(err, GP_EUSAGE, "--gpu must be model[:count], such as H100:8, not '%.60s'", gpu);
    GP_AUTO_FREE char *text = xasprintf("name: offers\ngpu: '%s'\n", gpu);
    int r = load_text(text, "--gpu", &one, err);
    if (r != 0 || one == NULL) return r;
    free(spec->gpu.model);
    spec->gpu = one->gpu;
    one->gpu = (struct spec_gpu){0};
    return 0;
}

/* Options replace the spec's values. keys: those of offers[] that every provider must take then. */
static int apply(const struct opts *o, struct spec *spec, struct strv *keys, struct gp_error *err) {
    if (o->nodes > 0) spec->nodes = o->nodes;
    int r = o->gpu != NULL ? set_gpu(o->gpu, spec, err) : 0;
    if (o->market == SPOT) strv_add(keys, "market");
    bool for_all = false;
    for (size_t i = 0; i < o->regions.n; i++) for_all = for_all || strchr(o->regions.v[i], ':') == NULL;
    if (for_all) strv_add(keys, "regions");
    for (size_t i = 0; r == 0 && i < spec->offers.len; i++) {
        struct spec_offer *one = &spec->offers.items[i];
        if (o->market != ANY_MARKET) one->market = o->market == SPOT ? MARKET_SPOT : MARKET_ON_DEMAND;
        const struct provider_ops *ops = provider_find(one->provider);
        const struct spec_provider_key *need = ops != NULL ? required_key(ops) : NULL;
        bool alone = ops != NULL && (need == NULL || strcmp(need->name, "regions") == 0);
        GP_AUTO_STR struct str text = {0};
        GP_AUTO_STRV struct strv regions = {0};
        regions_for(o, one->provider, &regions);
        if (regions.n == 0) continue;
        if (alone) r = region_offer(&regions, ops, &text, err);
        if (r != 0) return gp_wrap(err, "%s", ops->name);
        strv_clear(&one->regions);
        strv_copy(&one->regions, &regions);
    }
    return r;
}

static int check_regions(const struct opts *o, struct gp_error *err) {
    for (size_t i = 0; i < o->regions.n; i++) {
        const char *region = o->regions.v[i], *colon = strchr(region, ':');
        GP_AUTO_FREE char *name = colon != NULL ? xstrndup(region, (size_t)(colon - region)) : NULL;
        const struct provider_ops *ops = name != NULL ? provider_find(name) : NULL;
        if (!form_word(colon != NULL ? colon + 1 : region))
            return gp_fail(err, GP_EUSAGE, "--region: '%.60s' is not a region's name", region);
        if (name != NULL && (ops == NULL || spec_provider_key(ops->spec, "regions") == NULL))
            return gp_fail(err, GP_EUSAGE,
                           "--region: '%.40s' is no provider with regions: 'gpuprov providers' lists them", name);
    }
    return 0;
}

static int check_providers(const struct opts *o, const struct spec *spec, struct gp_error *err) {
    for (size_t i = 0; i < o->providers.n; i++) {
        bool named = spec == NULL;
        if (provider_find(o->providers.v[i]) == NULL)
            return gp_fail(err, GP_EUSAGE, "--provider: there is no provider '%s': 'gpuprov providers' lists them",
                           o->providers.v[i]);
        for (size_t k = 0; spec != NULL && k < spec->offers.len; k++)
            named = named || strcmp(spec->offers.items[k].provider, o->providers.v[i]) == 0;
        if (!named)
            return gp_fail(err, GP_EUSAGE, "--provider: %s has no offer of '%s': add one, or leave the SPEC out",
                           spec->path, o->providers.v[i]);
    }
    return 0;
}

static void show(struct invocation *inv, const struct spec *spec, const struct offers_result *res, int r,
                 const struct gp_error *err) {
    if (inv->common->json) {
        json_t *j = offers_result_json(spec, res);
        if (r != 0) result_error(inv, j, err);
        print_json(j);
        return;
    }
    offers_show(&res->offers, stdout);
    for (size_t i = 0; i < res->gaps.len; i++)
        printf("not listed: %s: %s\n", res->gaps.items[i].provider,
               str_without_name(res->gaps.items[i].why.msg, res->gaps.items[i].provider));
}

static int run(struct invocation *inv, struct gp_error *err) {
    const struct opts *o = inv->opts;
    GP_AUTO_SPEC struct spec *spec = NULL;
    GP_AUTO_STRV struct strv keys = {0};
    struct offers_result res = {0};
    struct engine *e = NULL;
    int r = check_regions(o, err);
    if (r == 0) r = check_providers(o, NULL, err);
    if (r == 0 && inv->n_args > 0) {
        r = app_spec(inv, inv->args[0], &spec, err);
        if (r == 0) r = check_providers(o, spec, err);
    } else if (r == 0) {
        r = spec_of_all(o, &spec, &res, err);
    }
    if (r == 0 && spec != NULL) r = apply(o, spec, &keys, err);
    if (r == 0) r = app_engine(inv, &e, err);
    GP_AUTO_STRV struct strv only = {0};
    for (size_t i = 0; i < o->providers.n; i++) strv_add(&only, o->providers.v[i]);
    if (r == 0 && spec != NULL) {
        struct offers_req req = {.spec = spec, .keys = &keys, .only = only.n > 0 ? &only : NULL};
        r = engine_offers(e, &req, &res, err);
        GP_AUTO_FREE char *near =
            r != 0 && spec->gpu.model != NULL ? spec_gpu_near(spec->gpu.model, validate_names()) : NULL;
        if (near != NULL) gp_wrap(err, "no GPU model '%s' is known; did you mean '%s'?", spec->gpu.model, near);
        if (r != -GP_ECANCELLED) show(inv, spec, &res, r, err);
    }
    offers_result_clear(&res);
    return r;
}

const struct verb verb_offers = {
    .name = "offers",
    .argspec = "[SPEC]",
    .help = "lists what could be bought now, over all providers; buys nothing",
    .details = "  Without SPEC: one offer of every provider, in its default region. Options replace the\n"
               "  values of SPEC. Sorted by the price of a node in USD; prices in other currencies are\n"
               "  converted at dated rates. A provider without an offer is named with the reason; the\n"
               "  exit code is 0 if any provider has one.\n",
    .examples = "  gpuprov offers --gpu H100:8                  # every provider with credentials here\n"
                "  gpuprov offers --gpu L4 --market spot --provider aws --region us-east-1\n"
                "  gpuprov offers --gpu L4 --region azure:eastus --region google:us-central1\n"
                "  gpuprov offers --json gpuprov.yaml           # the offers of a spec\n",
    .run = run,
    .options = options,
    .opts_size = sizeof(struct opts),
    .max_args = 1,
};
