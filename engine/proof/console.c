/* SPDX-License-Identifier: Apache-2.0 */
/* Reports why a node did not accept a login, as far as its console shows it. Runs in the verb's thread. */
#include "base/gp_base.h"

#include "engine/proof/console.h"

#include "engine/run/run_event.h"
#include "engine/run/run_node.h"
#include "engine/run/run_provider.h"

enum { NODES_MAX = 3, LINES = 20, BYTES = 8192, LINE_BYTES = 400 };

int64_t console_access_ms(const struct run *run, const struct resource *res) {
    const struct provider_ops *ops = provider_find(res->provider);
    if (run->spec != NULL && run->spec->access.timeout_ms > 0) return run->spec->access.timeout_ms;
    int64_t slow = ops->boot_timeout != NULL ? ops->boot_timeout(res->instance_type, res->gpus) : 0;
    return slow > 0 ? slow : ops->boot_timeout_ms;
}

static void report(struct run *run, struct run_node *n) {
    const struct provider_ops *ops = provider_find(n->res.provider);
    GP_AUTO_STR struct str raw = {0}, clean = {0}, lines = {0};
    struct provider *p = NULL;
    struct gp_error why = {0};
    if (ops->console == NULL) {
        run_event(run, n->slot, NODE_REACHING, EVENT_INFO, "console", "provider '%s' has no console log", ops->name);
        return;
    }
    int r = run_provider(run, ops->name, &p, &why);
    if (r == 0) r = ops->console(p, &n->res, &raw, &why);
    if (r != 0) {
        run_event(run, n->slot, NODE_REACHING, EVENT_WARN, "console", "could not be read: %s", why.msg);
        return;
    }
    if (raw.len > 0) str_add_clean(&clean, raw.s);
    const char *text = clean.s != NULL ? str_last_lines(clean.s, LINES, BYTES) : "";
    for (const char *s = text; *s != '\0';) {
        size_t len = strcspn(s, "\n");
        str_addf(&lines, "| %.*s\n", (int)GP_MIN(len, (size_t)LINE_BYTES), s);
        s += len + (s[len] == '\n');
    }
    event_send(&run->sink, (struct event){.node = n->slot,
                                          .phase = NODE_REACHING,
                                          .status = EVENT_WARN,
                                          .step = "console",
                                          .text = lines.len > 0 ? "its last lines" : "the console log is empty",
                                          .output = lines.s});
}

void console_report(struct run *run) {
    int shown = 0;
    for (int i = 0; i < run->n_nodes && !gp_cancelled(&run->e->cancel); i++) {
        struct run_node *n = &run->nodes[i];
        if (n->skip || !n->unreached || n->rc == 0) continue;
        if (shown++ < NODES_MAX) report(run, n);
    }
    if (shown > NODES_MAX)
        run_event(run, -1, NODE_REACHING, EVENT_INFO, "console", "%d more nodes were unreachable", shown - NODES_MAX);
}
