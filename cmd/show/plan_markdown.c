/* SPDX-License-Identifier: Apache-2.0 */
/* A plan as Markdown, for a comment on a pull request. Everything that is not a word of this program is within a code
 * span: there GitHub and GitLab make no mention, link or HTML of it. */
#include "base/gp_base.h"

#include "plan_show.h"

#include "base/log.h"

enum { CELL_MAX = 240, ROWS_MAX = 100 };

void markdown_code(struct str *out, const char *text) {
    GP_AUTO_FREE char *line = log_redacted(text != NULL ? text : "");
    size_t n = strlen(line);
    bool cut = n > CELL_MAX;
    if (cut) {
        n = CELL_MAX;
        while (n > 0 && ((unsigned char)line[n] & 0xc0) == 0x80) n--; /* not within a character */
        line[n] = '\0';
    }
    str_one_line(line);
    char *trimmed = str_trim(line);
    if (trimmed[0] == '\0') return;
    str_add(out, "`");
    for (const char *p = trimmed; *p != '\0'; p++) /* a pipe ends a cell and a backtick the span, in any escape */
        if (*p == '|') str_add(out, "¦");
        else str_addc(out, *p == '`' ? '\'' : *p);
    str_add(out, cut ? "...`" : "`");
}

static void add_change(struct str *out, const struct plan_change *c) {
    str_addf(out, "| %s | %s", change_action_name(c->action), c->resource);
    if (c->node >= 0) str_addf(out, " %d", c->node);
    if (c->key != NULL) str_add(out, " ");
    if (c->key != NULL) markdown_code(out, c->key);
    if (c->id != NULL && c->id[0] != '\0') str_add(out, " ");
    if (c->id != NULL) markdown_code(out, c->id);
    str_add(out, " | ");
    markdown_code(out, c->before);
    str_add(out, " | ");
    markdown_code(out, c->after);
    str_add(out, " | ");
    markdown_code(out, c->reason);
    str_add(out, " |\n");
}

/* Nodes that are created alike are one row. */
static bool is_like(const struct plan_change *a, const struct plan_change *b) {
    return a->action == CHANGE_CREATE && b->action == CHANGE_CREATE && a->node >= 0 && b->node == a->node + 1 &&
           str_eq(a->after, b->after) && str_eq(a->reason, b->reason);
}

static void add_table(struct str *out, const struct plan *p) {
    size_t rows = 0, i = 0;
    str_add(out, "\n| action | resource | before | after | reason |\n|---|---|---|---|---|\n");
    for (; i < p->resource_changes.list.len && rows < ROWS_MAX; rows++) {
        const struct plan_change *c = &p->resource_changes.list.items[i];
        size_t last = i;
        while (last + 1 < p->resource_changes.list.len &&
               is_like(&p->resource_changes.list.items[last], &p->resource_changes.list.items[last + 1]))
            last++;
        if (last > i) {
            str_addf(out, "| create | nodes %d to %d | | ", c->node, p->resource_changes.list.items[last].node);
            markdown_code(out, c->after);
            str_add(out, " | ");
            markdown_code(out, c->reason);
            str_add(out, " |\n");
        } else {
            add_change(out, c);
        }
        i = last + 1;
    }
    if (i < p->resource_changes.list.len)
        str_addf(out, "\n%zu more changes: `gpuprov plan --json` lists them.\n", p->resource_changes.list.len - i);
}

static void add_price(struct str *out, const struct spec *spec, const struct plan *p) {
    char price[32], when[40];
    price_format(price, sizeof price, p->price_usd_per_h);
    if (p->expires_s > 0) time_format_utc(when, sizeof when, p->expires_s);
    else duration_format(when, sizeof when, p->ttl_ms);
    str_addf(out, "\n- Price: %d node%s, %s\n", spec->nodes, spec->nodes == 1 ? "" : "s", price);
    if (p->max_usd < 0) str_add(out, "- Worst case until the deadline: not known\n");
    else if (p->max_usd > 0) str_addf(out, "- Worst case until the deadline: %.2f USD\n", p->max_usd);
    str_addf(out, "- Deadline: %s%s (%s)\n", p->expires_s > 0 ? "" : "after ", when, ends_text(p->ends));
}

void plan_markdown(const struct spec *spec, const struct plan *p, const char *path, struct str *out) {
    str_add(out, "### gpuprov plan: ");
    markdown_code(out, spec->name);
    if (path != NULL) str_add(out, " from ");
    if (path != NULL) markdown_code(out, path);
    str_add(out, "\n");
    if (p->resource_changes.list.len > 0) add_table(out, p);
    if (p->changes) add_price(out, spec, p);
    else str_add(out, "\nNothing to do: every node runs and was validated.\n\n");
    for (size_t i = 0; i < p->notes.n; i++) {
        str_add(out, "- Note: ");
        markdown_code(out, p->notes.v[i]);
        str_add(out, "\n");
    }
    for (size_t i = 0; i < spec->notify.len; i++) {
        if (spec->notify.items[i].command == NULL) continue;
        str_addf(out, "- Note: notify[%zu] runs on this machine: ", i);
        markdown_code(out, spec->notify.items[i].command);
        str_add(out, "\n");
    }
    for (size_t i = 0; i < p->looked.list.len; i++) {
        const struct look *l = &p->looked.list.items[i];
        if (l->checked || l->aside) continue;
        str_addf(out, "- **Not looked at:** %s ", l->provider);
        markdown_code(out, l->region);
        str_add(out, ": ");
        markdown_code(out, l->why.msg);
        str_add(out, "\n");
    }
}

void plan_markdown_error(const char *what, const struct gp_error *err, const struct strv *problems, struct str *out) {
    str_add(out, "### gpuprov plan: ");
    markdown_code(out, what);
    str_add(out, "\n\n**The plan failed:** ");
    markdown_code(out, err->msg);
    str_add(out, "\n");
    for (size_t i = 0; i < problems->n && i < ROWS_MAX; i++) {
        str_add(out, i == 0 ? "\n- " : "- ");
        markdown_code(out, problems->v[i]);
        str_add(out, "\n");
    }
}
