/* SPDX-License-Identifier: Apache-2.0 */
/* One result per check: the worst verdict and figures of all GPUs, each GPU's own message and figures in data.gpus.
 * Does no I/O. One thread. */
#include "base/gp_base.h"

#include "suite_run.h"

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
    agent_conditions(one, ",\"conditions\":", "", s);
    if (one->data.truncated || one->data.len > room) str_add(s, ",\"dropped\":\"longer than its share of one line\"");
    else if (one->data.len > 0) str_addf(s, ",%s", one->data.s);
    str_addc(s, '}');
}

/* "gpu 3: MESSAGE", and the other GPUs that are as bad. */
static void add_words(struct agent_result *all, const struct agent_result *each, size_t n,
                      const struct agent_result *worst) {
    GP_AUTO_STR struct str others = {0};
    for (size_t i = 0; i < n; i++)
        if (&each[i] != worst && each[i].verdict == worst->verdict)
            str_addf(&others, "%s%d", others.len ? ", " : "", each[i].gpu);
    if (worst->verdict == VERDICT_PASS) {
        GP_AUTO_FREE char *said = limits_gpu_text(worst->gpu, worst->message, "");
        agent_say(all, "%s", n == 1 ? worst->message : said);
        return;
    }
    GP_AUTO_FREE char *text = limits_gpu_text(worst->gpu, worst->message, others.len ? others.s : "");
    agent_set(all, worst->verdict, worst->code, "%s", text);
    if (worst->suggestion[0]) agent_suggest(all, "%s", worst->suggestion);
}

void run_merge(struct agent_result *all, const struct agent_result *each, size_t n) {
    const struct agent_result *worst = NULL;
    bool alike = n > 0;
    size_t room = n ? (AGENT_LINE_MAX - 6000) / n : 0;
    room = room > 1000 ? room - 1000 : 0;
    for (size_t i = 0; i < n; i++) {
        if (!worst || each[i].verdict > worst->verdict) worst = &each[i];
        for (size_t k = 0; k < each[i].n_metrics; k++) agent_metric_worst(all, &each[i].metrics[k]);
        add_gpu(all, &each[i], room, i == 0);
        all->faults = GP_MAX(all->faults, each[i].faults);
        all->by_limits = GP_MAX(all->by_limits, each[i].by_limits);
        alike = alike && each[i].about.model == each[0].about.model;
    }
    if (!worst) return;
    if (alike) all->about = each[0].about;
    str_addc(&all->data, ']');
    add_words(all, each, n, worst);
}
