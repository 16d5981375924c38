/* SPDX-License-Identifier: Apache-2.0 */
/* Shows the result of `up`. */
#include "base/gp_base.h"

#include "up_show.h"

#include "reports.h"

json_t *up_json(const struct up_result *res, json_t *plan) {
    bool has_view = res->view.stack.name != NULL, has_report = res->report.nodes.len > 0;
    json_t *j = json_object();
    json_object_set_new(j, "stack", has_view ? stack_view_json(&res->view) : json_null());
    json_object_set_new(j, "report", has_report ? report_to_json(&res->report) : json_null());
    json_object_set_new(j, "nothing_to_do", json_boolean(res->nothing_to_do));
    json_object_set_new(j, "looked", looked_json(&res->looked));
    json_object_set(j, "plan", plan != NULL ? plan : json_null());
    return j;
}

/* The report above has the reasons. */
static void cut_reasons(struct stack_view *v) {
    for (size_t i = 0; i < v->nodes.len; i++) {
        struct node_view *n = &v->nodes.items[i];
        if (n->phase == NODE_FAILED && n->verdict != NULL && str_starts(n->verdict, "failed:"))
            n->verdict[strlen("failed")] = '\0';
    }
}

void up_show(struct up_result *res, const struct gp_error *err) {
    /* A run that a signal cut short gives no verdict on a node. */
    bool reported = res->report.nodes.len > 0 && !res->nothing_to_do && err->code != GP_ECANCELLED;
    if (reported) {
        GP_AUTO_STR struct str text = {0};
        const struct report_style style = output_style(stdout);
        report_brief(&res->report, &style, &text);
        fputs(text.s, stdout);
        putchar('\n');
        cut_reasons(&res->view);
    }
    if (res->nothing_to_do)
        puts(res->deadline_moved ? "the deadline was moved: every node is ready already"
                                 : "nothing to do: every node is ready already");
    if (res->nothing_to_do) show_looked(&res->looked, stdout);
    if (res->view.stack.name != NULL) show_stack(&res->view, stdout);
}
