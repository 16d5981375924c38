/* SPDX-License-Identifier: Apache-2.0 */
/* One result per check: of all GPUs the worst verdict and the worst figures, each GPU's own words and
 * figures in data.gpus. Text and numbers only; writes nothing. One thread. */
#include "base/gp_base.h"

#include "run.h"

static void worse_metric(struct agent_result *all, const struct agent_metric *m) {
    for (size_t i = 0; i < all->n_metrics; i++) {
        if (all->metrics[i].info != m->info) continue;
        bool worse = m->info->ceiling ? m->value > all->metrics[i].value : m->value < all->metrics[i].value;
        if (worse) all->metrics[i] = *m;
        return;
    }
    all->metrics[all->n_metrics++] = *m;
}

static void add_gpu(struct agent_result *all, const struct agent_result *one, size_t room, bool first) {
    struct str *s = &all->data;
    str_addf(s, "%s{\"gpu\":%d,\"verdict\":\"%s\"", first ? "\"gpus\":[" : ",", one->gpu, verdict_name(one->verdict));
    if (one->verdict != VERDICT_PASS) {
        str_add(s, ",\"code\":\"");
        str_add_json(s, one->code, strlen(one->code));
        str_add(s, "\",\"message\":\"");
        str_add_json(s, one->message, strlen(one->message));
        str_addc(s, '"');
    }
    str_addf(s, ",\"took_ms\":%lld,\"metrics\":{", (long long)one->took_ms);
    for (size_t i = 0; i < one->n_metrics; i++) {
        str_addf(s, "%s\"%s\":", i ? "," : "", one->metrics[i].info->name);
        agent_json_num(s, one->metrics[i].value);
    }
    str_addc(s, '}');
    if (one->data.truncated || one->data.len > room) str_add(s, ",\"dropped\":\"longer than its share of one line\"");
    else if (one->data.len > 0) str_addf(s, ",%s", one->data.s);
    str_addc(s, '}');
}

/* "gpu 3: MESSAGE", and which others are as bad. */
static void add_words(struct agent_result *all, const struct agent_result *each, size_t n,
                      const struct agent_result *worst) {
    GP_AUTO_STR struct str others = {0};
    for (size_t i = 0; i < n; i++)
        if (&each[i] != worst && each[i].verdict == worst->verdict)
            str_addf(&others, "%s%d", others.len ? ", " : "", each[i].gpu);
    GP_AUTO_FREE char *prefix = xasprintf("gpu %d: ", worst->gpu);
    bool named = str_starts(worst->message, prefix);
    if (worst->verdict == VERDICT_PASS) {
        agent_say(all, "%s%s", named || n == 1 ? "" : prefix, worst->message);
        return;
    }
    agent_set(all, worst->verdict, worst->code, "%s%s%s%s%s", named ? "" : prefix, worst->message,
              others.len ? " (also gpu " : "", others.len ? others.s : "", others.len ? ")" : "");
    if (worst->suggestion[0]) agent_suggest(all, "%s", worst->suggestion);
}

void run_merge(struct agent_result *all, const struct agent_result *each, size_t n) {
    const struct agent_result *worst = NULL;
    size_t room = n ? (AGENT_LINE_MAX - 6000) / n : 0;
    room = room > 1000 ? room - 1000 : 0;
    for (size_t i = 0; i < n; i++) {
        if (!worst || each[i].verdict > worst->verdict) worst = &each[i];
        for (size_t k = 0; k < each[i].n_metrics; k++) worse_metric(all, &each[i].metrics[k]);
        add_gpu(all, &each[i], room, i == 0);
    }
    if (!worst) return;
    str_addc(&all->data, ']');
    add_words(all, each, n, worst);
}
