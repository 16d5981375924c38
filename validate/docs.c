/* SPDX-License-Identifier: Apache-2.0 */
/* Makes docs/checks.md from the check table, so that page and program agree. docs_models.c makes the page of GPU
 * models. Pure; any thread. */
#include "base/gp_base.h"

#include "validate/samples.h"
#include "validate/validate.h"

static const char intro[] =
    "# Checks\n\n"
    "This page lists every check with its figures and limits. It is for people who read a report or choose checks. "
    "Generated from the\n"
    "check table (`gpuprov checks --markdown`): do not edit. [gpu-models](gpu-models.md) has the figures of each GPU "
    "model,\n"
    "[validation](validation.md) explains verdicts of rates and a baseline of your own fleet.\n\n"
    "| verdict | meaning |\n"
    "|---|---|\n"
    "| `pass` | the check ran on this node and every condition was met |\n"
    "| `degraded` | the node works, but more slowly or with less than expected; ready, unless `validate.strict` |\n"
    "| `fail` | a condition was not met; the node is not ready |\n"
    "| `error` | no result: the check or its environment failed |\n"
    "| `skipped` | the check did not run, for the stated reason; a skipped required check is never a pass "
    "|\n\n"
    "A check is required only where it applies. A check of GPUs needs a GPU. A gang check needs a second GPU or "
    "node; in a stack\n`train.ddp` also runs on one node. `host.clock` needs another clock to compare with. A "
    "check that does not apply is skipped and\nnot required. The same goes for a check that does not fit "
    "`validate.time`; if it is `always` required, `up` refuses the spec.\n`validate.require` makes a check "
    "required in every case; if it cannot run at all, `up` refuses the spec.\n\n"
    "A node is ready when every required check ran and passed or is degraded. `validate.floors` replaces a limit "
    "below by your own\nand makes its check required. A figure with a limit is `error` if it is missing, negative, "
    "in another unit or "
    "not a number. A result is\n"
    "`error` if its agent was killed, broke off or reported something worse afterwards, or if its node no longer "
    "answers.\n\n"
    "Rates of GPUs are judged three ways, and the worst verdict counts:\n\n"
    "* **By model.** Under 80 % of the figure that sound GPUs of this model were measured to reach is `fail`, under "
    "90 % `degraded`.\n"
    "  Without a published figure the rate is *unrated*: it is no part of the verdict. No figure is invented.\n"
    "* **By peers.** More than 8 % and 3.5 deviations (median absolute deviation) worse than the median of the other "
    "GPUs of this\n"
    "  model is `degraded` (`outlier`), and the GPU is named. Peers are in the node and over all nodes of the run, at "
    "least four.\n"
    "* **By your fleet's baseline**, if there is one.\n";

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
    if (m->by_model) str_addf(s, "under %s of the model's figure", share);
    else if (limit < 0) str_add(s, "-");
    else str_addf(s, "%s %.6g %s", m->ceiling ? "more than" : "less than", limit, m->unit);
}

static void add_source(struct str *s, const struct check_metric_info *m) {
    if (m->by_model) str_add(s, "[this model's figure](gpu-models.md); peers; baseline");
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
    str_addf(s, "; takes at most %d s on a sound node%s; %s.\n", check_stated(c, GPUS_USUAL) + c->longer,
             c->stretch ? ", and the rest of `validate.time`" : "",
             c->core       ? "always required"
             : c->required ? "required if the time suffices"
                           : "required only when `validate.require` names it");
    sentence(s, "Finds", c->finds);
    sentence(s, "How", c->how);
    sentence(s, "If it fails:", c->suggestion);
    sentence(s, "Only a real GPU can show:", c->gpu_only);
    add_metrics(s, c);
}

char *check_markdown(const struct check_info *check) {
    struct str s = {0};
    add_check(&s, check);
    memmove(s.s, s.s + 1, s.len); /* the empty line before a section of the page */
    return s.s;
}

struct family {
    const char *prefix, *title, *about;
};
static const struct family families[] = {
    {"host.", "The machine", "Of any node, with GPUs or without."},
    {"gpu.", "Its GPUs",
     "One worker process for each GPU lives through the suite, so that the driver starts once; a check "
     "begins when no GPU is busy. The driver's counters (ECC, remapped rows, NVLink, PCIe, "
     "throttling, Xid) are read before and after each check that loads a GPU. A counter that moved worsens the "
     "verdict of that check."},
    {"nccl.", "NCCL", "One process for each GPU of all nodes, over the same communicator as in a training run."},
    {"", "All nodes together", "After every node's own checks; a node that failed them takes no part."}};

/* The first family whose prefix matches. */
static const struct family *family_of(const struct check_info *c) {
    const struct family *f = families;
    while (!str_starts(c->id, f->prefix)) f++;
    return f;
}

static void add_glance(struct str *s) {
    str_add(s, "\n## At a glance\n\nSeconds are those of a sound node with eight GPUs.\n\n"
               "| check | runs | s | required | rates judged |\n|---|---|---|---|---|\n");
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
                 check_stated(c, GPUS_USUAL) + c->longer,
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
