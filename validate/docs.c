/* SPDX-License-Identifier: Apache-2.0 */
/* docs/checks.md, made from the check table, so that the page cannot say what the program does not
 * do. Pure; any thread. */
#include "base/gp_base.h"

#include "validate/validate.h"

static void add_needs(struct str *s, unsigned needs)
{
    static const struct {
        unsigned bit;
        const char *text;
    } names[] = {{NEED_GPU, "a GPU"}, {NEED_ROOT, "root"}, {NEED_PEERS, "two nodes or more"}};
    bool any = false;
    for (size_t i = 0; i < GP_ARRAY_LEN(names); i++) {
        if (!(needs & names[i].bit))
            continue;
        str_addf(s, "%s%s", any ? ", " : "", names[i].text);
        any = true;
    }
    if (!any)
        str_add(s, "nothing");
}

static void add_limit(struct str *s, const struct check_metric_info *m, double limit)
{
    if (limit < 0)
        str_add(s, "-");
    else
        str_addf(s, "%s %.6g %s", m->ceiling ? "more than" : "less than", limit, m->unit);
}

static void add_metrics(struct str *s, const struct check_info *c)
{
    if (!c->metrics[0].name)
        return;
    str_add(s, "\n| figure | unit | fails at | degraded at | where the limit comes from |\n"
               "|---|---|---|---|---|\n");
    for (size_t i = 0; i < GP_ARRAY_LEN(c->metrics) && c->metrics[i].name; i++) {
        const struct check_metric_info *m = &c->metrics[i];
        str_addf(s, "| `%s` | %s | ", m->name, m->unit);
        add_limit(s, m, m->fail);
        str_add(s, " | ");
        add_limit(s, m, m->degraded);
        str_addf(s, " | %s |\n", m->source && *m->source ? m->source : "no limit: reported only");
    }
}

static void add_check(struct str *s, const struct check_info *c)
{
    static const char *const levels[] = {"each node", "each GPU",
                                         "all nodes together, on the CPU (device host): no GPU takes part"};
    str_addf(s, "\n## %s\n\n", c->id);
    str_addf(s, "* Runs on: %s\n* Needs: ", levels[c->level]);
    add_needs(s, c->needs);
    str_addf(s, "\n* Takes at most: %d s\n* Required: %s\n", c->seconds,
             c->required ? "yes" : "only when `validate.require` names it");
    str_addf(s, "* Finds: %s\n* How: %s\n* When it does not hold: %s\n", c->finds, c->how,
             c->suggestion);
    add_metrics(s, c);
}

char *checks_markdown(void)
{
    GP_AUTO_STR struct str s = {0};
    str_add(&s,
            "# The checks\n\n"
            "Made from the check table (`gpuprov checks --markdown`): do not edit.\n\n"
            "A verdict is `pass`, `degraded`, `fail`, `error` (the tool's own trouble) or `skipped`\n"
            "with its reason. A node is ready when every required check ran and is pass or degraded\n"
            "(only pass with `validate.strict`). `validate.floors` replaces a limit below by your\n"
            "own, and makes its check required. A figure with a limit that is missing, negative, in another\n"
            "unit or no number at all is `error`; so is a result after which its agent was killed, broke off\n"
            "or said something worse, and one of a node that does not answer any more.\n");
    for (size_t i = 0; i < check_count(); i++)
        add_check(&s, &check_table[i]);
    return str_steal(&s);
}
