/* SPDX-License-Identifier: Apache-2.0 */
/* docs/checks.md, made from the check table, so that the page cannot say what the program does not
 * do. docs_models.c makes the page of GPU models. Pure; any thread. */
#include "base/gp_base.h"

#include "validate/samples.h"
#include "validate/validate.h"

static const char intro[] =
    "# The checks\n\n"
    "Made from the check table (`gpuprov checks --markdown`): do not edit. What GPUs of each "
    "model reach is in\n"
    "[gpu-models.md](gpu-models.md), how to make a baseline of your own fleet in "
    "[validation.md](validation.md).\n\n"
    "| verdict | means |\n"
    "|---|---|\n"
    "| `pass` | it ran on this node, and all of it held |\n"
    "| `degraded` | it works, slower or with less than it should: ready, unless `validate.strict` |\n"
    "| `fail` | it does not hold: the node is not ready, and is replaced |\n"
    "| `error` | nobody can tell: the tool's own trouble or the surroundings' |\n"
    "| `skipped` | it did not run, for the reason that is given; of a required check this is never a pass |\n\n"
    "A node is ready when every required check ran and passed or is degraded. `validate.floors` puts your own\n"
    "limit in the place of one below, and makes its check required. A figure with a limit "
    "that is missing, negative,\n"
    "in another unit or no number at all is `error`; so is a result after which its agent "
    "was killed, broke off or\n"
    "said something worse, and one of a node that does not answer any more.\n\n"
    "Rates of GPUs are judged three ways, and the worst counts:\n\n"
    "* **by model**: under 80 % of what sound GPUs of this model were measured to reach "
    "elsewhere is `fail`, under 90 %\n"
    "  `degraded`. Where nobody published a figure it is *unrated*: it has no part in the "
    "verdict, and is never\n"
    "  invented.\n"
    "* **by peers**: more than 8 % and 3.5 deviations (median absolute deviation) to the bad "
    "side of the median of the\n"
    "  other GPUs of this model, in the node and over all nodes of the run, four at least: "
    "`degraded` (`outlier`), and\n"
    "  the GPU is named.\n"
    "* **by your fleet's baseline**, where there is one.\n";

static void add_needs(struct str *s, const struct check_info *c) {
    static const struct {
        unsigned bit;
        const char *text;
    } names[] = {
        {NEED_GPU, "a GPU"}, {NEED_GPUS, "two GPUs or more"}, {NEED_ROOT, "root"}, {NEED_PEERS, "two nodes or more"}};
    bool any = false;
    for (size_t i = 0; i < GP_ARRAY_LEN(names); i++) {
        if (!(c->needs & names[i].bit)) continue;
        str_addf(s, "%s%s", any ? ", " : ", needs ", names[i].text);
        any = true;
    }
}

static void add_limit(struct str *s, const struct check_metric_info *m, double limit, const char *share) {
    if (m->by_model) str_addf(s, "under %s of the model's", share);
    else if (limit < 0) str_add(s, "-");
    else str_addf(s, "%s %.6g %s", m->ceiling ? "more than" : "less than", limit, m->unit);
}

static void add_source(struct str *s, const struct check_metric_info *m) {
    if (m->by_model) str_add(s, "[what this model reaches](gpu-models.md); peers; baseline");
    else if (m->peers) str_add(s, "peers; baseline");
    else if (m->source && str_starts(m->source, "own: ")) str_addf(s, "gpuprov: %s", m->source + 5);
    else str_add(s, m->source && *m->source ? m->source : "no limit: reported only");
}

static void add_metrics(struct str *s, const struct check_info *c) {
    if (!c->metrics[0].name) return;
    str_add(s, "\n| figure | unit | fails at | degraded at | where the limit comes from |\n"
               "|---|---|---|---|---|\n");
    for (size_t i = 0; i < GP_ARRAY_LEN(c->metrics) && c->metrics[i].name; i++) {
        const struct check_metric_info *m = &c->metrics[i];
        str_addf(s, "| `%s` | %s | ", m->name, m->unit);
        add_limit(s, m, m->fail, "80 %");
        str_add(s, " | ");
        add_limit(s, m, m->degraded, "90 %");
        str_add(s, " | ");
        add_source(s, m);
        str_add(s, " |\n");
    }
}

static const char *where(const struct check_info *c) {
    if (c->level == CHECK_GANG) return "over all nodes together";
    if (c->level == CHECK_NODE) return "on each node";
    if (!(c->needs & NEED_GPU)) return "once on each node, over all its GPUs";
    return c->together ? "on all GPUs of each node, side by side"
                       : "on each GPU, one after the other while the "
                         "others are idle";
}

/* A sentence: the table's words begin small and end without a full stop. */
static void sentence(struct str *s, const char *label, const char *text) {
    if (!text || !*text) return;
    str_addf(s, "\n**%s** ", label);
    str_addc(s, *text >= 'a' && *text <= 'z' ? (char)(*text - 'a' + 'A') : *text);
    str_add(s, text + 1);
    str_add(s, str_ends(text, ".") ? "\n" : ".\n");
}

static void add_check(struct str *s, const struct check_info *c) {
    str_addf(s, "\n### %s\n\nRuns %s", c->id, where(c));
    add_needs(s, c);
    str_addf(s, "; takes at most %d s on a sound node%s; %s.\n", c->seconds,
             c->stretch ? ", and what `validate.time` leaves beyond that" : "",
             c->core       ? "required, whatever the time"
             : c->required ? "required where the time reaches"
                           : "required only when `validate.require` names it");
    sentence(s, "Finds", c->finds);
    sentence(s, "How", c->how);
    sentence(s, "When it does not hold:", c->suggestion);
    sentence(s, "Only a real GPU can show:", c->gpu_only);
    add_metrics(s, c);
}

struct family {
    const char *prefix, *title, *about;
};
static const struct family families[] = {
    {"host.", "The machine", "Of any node, with GPUs or without."},
    {"gpu.", "Its GPUs",
     "One worker process for each GPU lives through the suite, so that the driver starts once; a check "
     "begins when no GPU is busy any more. The driver's counters (ECC, remapped rows, NVLink, PCIe, "
     "throttling, Xid) are read before and after each check that loads a GPU, and what moved is "
     "held against that check."},
    {"nccl.", "NCCL", "One process for each GPU of all nodes, over the communicator that a training run would have."},
    {"", "All nodes together", "After every node's own checks; one that failed there takes no part."}};

/* The first family that has it. */
static const struct family *family_of(const struct check_info *c) {
    const struct family *f = families;
    while (!str_starts(c->id, f->prefix)) f++;
    return f;
}

static void add_glance(struct str *s) {
    str_add(s, "\n## At a glance\n\n| check | runs | s | required | rates judged |\n|---|---|---|---|---|\n");
    for (const struct check_info *c = check_table; c->id; c++) {
        GP_AUTO_STR struct str anchor = {0}, rates = {0};
        for (const char *p = c->id; *p; p++)
            if (*p != '.') /* as renderers of Markdown make anchors of headings */
                str_addc(&anchor, *p);
        for (size_t i = 0; i < GP_ARRAY_LEN(c->metrics) && c->metrics[i].name; i++)
            if (sample_is_rate(&c->metrics[i])) str_addf(&rates, "%s%s", rates.len ? ", " : "", c->metrics[i].name);
        str_addf(s, "| [%s](#%s) | %s | %d | %s | %s |\n", c->id, anchor.s,
                 c->level == CHECK_NODE  ? "each node"
                 : c->level == CHECK_GPU ? "each GPU"
                                         : "all nodes",
                 c->seconds,
                 c->core       ? "always"
                 : c->required ? "yes"
                               : "",
                 rates.s ? rates.s : "");
    }
}

char *checks_markdown(void) {
    GP_AUTO_STR struct str s = {0};
    str_add(&s, intro);
    add_glance(&s);
    for (size_t f = 0; f < GP_ARRAY_LEN(families); f++) {
        bool any = false;
        for (const struct check_info *c = check_table; c->id; c++) {
            if (family_of(c) != &families[f]) continue;
            if (!any) str_addf(&s, "\n## %s\n\n%s\n", families[f].title, families[f].about);
            any = true;
            add_check(&s, c);
        }
    }
    return str_steal(&s);
}
