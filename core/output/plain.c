/* SPDX-License-Identifier: Apache-2.0 */
/* Plain progress: one line per event, for pipes and logs. A wait is a line per group of nodes every 10 s (waits.c). Any
 * thread may emit. */
#include "base/gp_base.h"

#include "output.h"

#include "progress_priv.h"
#include "width.h"

/* label: "llm/3". */
static void print_line(struct progress *p, const char *label, bool phase, const struct event *e) {
    GP_AUTO_STR struct str say = {0}, line = {0};
    progress_say(p, e, &say);
    str_addf(&line, "[%4llds] %s", (long long)((clock_ms() - p->started_ms) / 1000), label);
    if (phase) str_addf(&line, " %s", progress_phase(e));
    str_add(&line, say.len > 0 ? ": " : "");
    if (say.len > 0) text_fit(&line, say.s, SIZE_MAX);
    str_addc(&line, '\n');
    progress_output(e, &line);
    fwrite(line.s, 1, line.len, p->to);
    fflush(p->to);
}

static void plain_wait(struct progress *p, const char *label, const struct event *e) {
    print_line(p, label, strcmp(label, p->stack) != 0, e);
}

static int plain_begin(struct progress *p, struct gp_error *err) {
    return waits_start(p, plain_wait, (struct waits **)&p->priv, err);
}

static void plain_event(struct progress *p, const struct event *e) {
    int node = -1;
    bool prints = waits_news(p->priv, e) && progress_prints(p, e, &node);
    if (prints) {
        GP_AUTO_STR struct str label = {0}, say = {0};
        progress_label(p, e, node, &label);
        progress_say(p, e, &say);
        bool phase = e->node >= 0 && (e->phase != NODE_FAILED || say.len == 0);
        print_line(p, label.s, phase, e);
    }
    waits_event(p->priv, e, prints);
}

static void plain_end(struct progress *p) { waits_stop(p->priv); }

const struct progress_ops progress_plain = {"plain", plain_begin, plain_event, plain_end, NULL};
