/* SPDX-License-Identifier: Apache-2.0 */
/* Judges the agent's results by suite/limits.h and records verdicts and messages. One thread per result. */
#include "base/gp_base.h"

#include "validate/agent/agent.h"

#include <math.h>

static void present(const struct agent_result *r, struct judged *j) {
    *j = (struct judged){.check = r->check, .about = r->about, .verdict = r->verdict, .n = r->n_metrics};
    if (r->note[0] != '\0') j->note = r->note;
    for (size_t i = 0; i < r->n_metrics; i++) {
        j->figures[i].info = r->metrics[i].info;
        j->figures[i].value = r->metrics[i].value;
    }
}

static void take_back(struct agent_result *r, const struct judged *j) {
    for (size_t i = 0; i < r->n_metrics; i++) r->metrics[i].limit = j->figures[i].limit;
    if (j->word.verdict == VERDICT_PASS || r->faults == VERDICT_SKIPPED || r->faults == VERDICT_ERROR) return;
    r->suggestion[0] = '\0'; /* it belonged to the earlier verdict */
    agent_set(r, j->word.verdict, j->word.code, "%s", j->word.message);
    if (j->word.suggestion != NULL) agent_suggest(r, "%s", j->word.suggestion);
}

enum verdict agent_limit(const struct agent_result *r, const char *metric, struct limit *ret) {
    *ret = (struct limit){.kind = LIMIT_NONE, .fail = -1, .degraded = -1, .source = ""};
    for (size_t i = 0; i < r->n_metrics; i++) {
        const struct agent_metric *m = &r->metrics[i];
        if (!str_eq(m->info->name, metric)) continue;
        *ret = limit_of(r->check, m->info, &r->about, (double)NAN);
        return limit_judge(ret, m->info, m->value, NULL).verdict;
    }
    return VERDICT_PASS;
}

void agent_judge(struct agent_result *each, size_t n, bool record) {
    GP_AUTO_FREE struct judged *all = xcalloc(n + 1, sizeof *all);
    for (size_t i = 0; i < n; i++) {
        present(&each[i], &all[i]);
        limits_judge(&all[i], NULL);
    }
    limits_compare(all, n);
    for (size_t i = 0; i < n; i++) {
        each[i].faults = each[i].verdict;
        each[i].by_limits = all[i].word.verdict;
        if (record) take_back(&each[i], &all[i]);
    }
}
