/* SPDX-License-Identifier: Apache-2.0 */
/* report --history: prints each figure over the runs of a stack as a table. */
#include "base/gp_base.h"

#include "reports.h"

#include "base/json.h"
#include "output/output.h"

#include <math.h>

static const json_t *same_figure(const json_t *run, const json_t *figure) {
    const json_t *list = json_at(run, "figures");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *f = json_array_get(list, i);
        if (str_eq(json_str(f, "check", ""), json_str(figure, "check", "-")) &&
            str_eq(json_str(f, "metric", ""), json_str(figure, "metric", "-")))
            return f;
    }
    return NULL;
}

static char *number(double v) {
    char text[STR_FIGURE];
    return xstrdup(isfinite(v) ? str_figure(text, v) : "-");
}

/* "llm/1 gpu 3: 2440" */
static char *who(const char *stack, const json_t *f) {
    int64_t node = json_int(f, "worst_node", -1), gpu = json_int(f, "worst_gpu", -1);
    GP_AUTO_FREE char *value = number(json_num(f, "worst", NAN));
    if (node < 0) return GP_STEAL(value);
    if (gpu < 0) return xasprintf("%s %s/%d", value, stack, (int)node);
    return xasprintf("%s %s/%d gpu %d", value, stack, (int)node, (int)gpu);
}

static void add_row(struct table *t, const char *stack, const json_t *runs, const json_t *figure) {
    double first = NAN, last = json_num(figure, "median", NAN);
    size_t n = 0;
    for (size_t i = 0; i < json_array_size(runs); i++) {
        const json_t *f = same_figure(json_array_get(runs, i), figure);
        if (f == NULL) continue;
        if (n++ == 0) first = json_num(f, "median", NAN);
    }
    GP_AUTO_FREE char *name = xasprintf("%s.%s", json_str(figure, "check", ""), json_str(figure, "metric", ""));
    GP_AUTO_FREE char *count = xasprintf("%zu", n);
    GP_AUTO_FREE char *from = number(first), *to = number(last);
    bool tells = n > 1 && first > 0;
    GP_AUTO_FREE char *change = tells ? xasprintf("%+.1f %%", 100 * (last - first) / first) : xstrdup("-");
    GP_AUTO_FREE char *worst = who(stack, figure);
    table_row(t, name, json_str(figure, "unit", ""), count, from, to, change, worst, NULL);
}

void show_history(const json_t *history, FILE *to) {
    const json_t *runs = json_at(history, "runs");
    size_t n = json_array_size(runs), ready = 0;
    const char *stack = json_str(history, "stack", "");
    if (n == 0) return;
    const json_t *newest = json_array_get(runs, n - 1);
    for (size_t i = 0; i < n; i++) ready += json_bool(json_array_get(runs, i), "ready", false);
    GP_CLEANUP(table_clear) struct table t = {0};
    table_head(&t, "FIGURE", "UNIT", "RUNS", "FIRST", "LAST", "CHANGE", "WORST OF THE LAST", NULL);
    const json_t *figures = json_at(newest, "figures");
    for (size_t i = 0; i < json_array_size(figures); i++) add_row(&t, stack, runs, json_array_get(figures, i));
    table_print(&t, to);
    fprintf(to, "\n%s: %zu run%s from %s to %s, %zu ready; first and last are medians over GPUs or nodes\n", stack, n,
            n == 1 ? "" : "s", json_str(runs, "0.started", "?"), json_str(newest, "started", "?"), ready);
}
