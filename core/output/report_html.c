/* SPDX-License-Identifier: Apache-2.0 */
/* A report as one self-contained HTML file: no script, no font, no image, no network (its own
 * Content-Security-Policy forbids them). Plots come first, then every check. Pure; any thread. */
#include "base/gp_base.h"

#include "report_forms.h"

#include "base/clock.h"
#include "report_figures.h"
#include "report_parts.h"

#include <math.h>

static const char style_sheet[] =
    ":root{color-scheme:light dark;--bg:#fff;--fg:#1b1f24;--dim:#59636e;--line:#d1d9e0;--card:#f6f8fa;"
    "--pass:#1a7f37;--warn:#9a6700;--fail:#cf222e;--bar:#4c8dd6;--bad:#cf222e;"
    "--c0:#0969da;--c1:#bc4c00;--c2:#1a7f37;--c3:#8250df;--c4:#bf3989;--c5:#9a6700;--c6:#1b7c83;--c7:#6e7781}"
    "@media(prefers-color-scheme:dark){:root{--bg:#0d1117;--fg:#e6edf3;--dim:#9198a1;--line:#3d444d;"
    "--card:#151b23;--pass:#3fb950;--warn:#d29922;--fail:#f85149;--bar:#4184e4;--bad:#f85149;"
    "--c0:#58a6ff;--c1:#f0883e;--c2:#3fb950;--c3:#bc8cff;--c4:#f778ba;--c5:#d29922;--c6:#39c5cf;--c7:#8b949e}}"
    "*{box-sizing:border-box}body{margin:0 auto;padding:24px 20px 48px;max-width:1360px;background:var(--bg);"
    "color:var(--fg);font:14px/1.5 system-ui,-apple-system,\"Segoe UI\",sans-serif}"
    "h1{font-size:22px;margin:0 0 4px}h2{font-size:17px;margin:32px 0 12px}p{margin:4px 0}"
    ".dim,small,figcaption small{color:var(--dim);font-weight:400;font-size:12.5px}"
    ".badge{display:inline-block;padding:1px 8px;border-radius:10px;font-size:12px;font-weight:600;"
    "color:var(--bg);background:var(--dim);white-space:nowrap}"
    ".badge.pass,.badge.ready{background:var(--pass)}.badge.degraded{background:var(--warn)}"
    ".badge.fail,.badge.error,.badge.notready{background:var(--fail)}"
    ".plots{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,480px),1fr));gap:16px}"
    "figure{margin:0;padding:12px 14px;background:var(--card);border:1px solid var(--line);border-radius:6px}"
    "figcaption{font-weight:600;margin-bottom:6px}svg{display:block;width:100%;height:auto;max-width:720px}"
    "svg text{font-size:12px;fill:var(--dim)}.grid{stroke:var(--line);stroke-width:1}"
    ".axis{stroke:var(--dim);fill:none}.line{fill:none;stroke-width:1.8}.level{stroke:var(--fail);"
    "stroke-dasharray:5 4;fill:none}.bar{fill:var(--bar)}.bar.bad{fill:var(--bad)}"
    ".floor{stroke:var(--fg);stroke-width:1.6}.measured{stroke:var(--pass);stroke-width:1.6;stroke-dasharray:4 3}"
    "i.key{display:inline-block;width:0;height:11px;margin:0 6px -1px 2px;border-left:2px solid var(--fg)}"
    "i.key.measured{border-left:2px dashed var(--pass)}"
    ".s0{stroke:var(--c0)}.s1{stroke:var(--c1)}.s2{stroke:var(--c2)}.s3{stroke:var(--c3)}.s4{stroke:var(--c4)}"
    ".s5{stroke:var(--c5)}.s6{stroke:var(--c6)}.s7{stroke:var(--c7)}.dot{fill:var(--card)}"
    "details{border:1px solid var(--line);border-radius:6px;margin:10px 0;background:var(--card)}"
    "summary{padding:9px 14px;cursor:pointer;font-weight:600}summary .dim{margin-left:8px}"
    ".scroll{overflow-x:auto;padding:0 14px 10px}table{border-collapse:collapse;width:100%;min-width:720px}"
    "th{text-align:left;font-weight:600;color:var(--dim);font-size:12px;padding:4px 10px 4px 0}"
    "td{vertical-align:top;padding:5px 10px 5px 0;border-top:1px solid var(--line)}"
    "tr.m td{border-top:0;padding-top:0;padding-bottom:3px;font-variant-numeric:tabular-nums}"
    "td.name{white-space:nowrap}tr.m td.name{padding-left:16px;color:var(--dim)}td.num{white-space:nowrap}"
    ".track{position:relative;display:block;width:150px;height:8px;margin-top:7px;border-radius:2px;"
    "background:var(--line)}.track b{position:absolute;left:0;top:0;bottom:0;border-radius:2px;"
    "background:var(--bar)}.track b.bad{background:var(--bad)}.track u{position:absolute;top:-3px;bottom:-3px;"
    "width:2px;background:var(--fg)}footer{margin-top:32px;color:var(--dim);font-size:12.5px}";

static void badge(struct str *out, const char *class, const char *text) {
    str_addf(out, "<span class=\"badge %s\">%s</span>", class, text);
}

static void paragraph(struct str *out, const char *text) {
    str_add(out, "<p class=\"dim\">");
    report_escape(out, text);
    str_add(out, "</p>");
}

/* --- tables --- */

static void bar_cell(struct str *out, const struct metric *m) {
    if (!report_bar_fits(m)) return;
    double top = fmax(fmax(m->value, m->floor), isfinite(m->measured) ? m->measured : 0);
    str_addf(out,
             "<span class=\"track\"><b class=\"%s\" style=\"width:%.1f%%\"></b>"
             "<u style=\"left:%.1f%%\"></u></span>",
             metric_holds(m) ? "" : "bad", m->value / top * 100, fmin(m->floor / top * 100, 98.6));
}

static void limit_cell(struct str *out, const struct metric *m) {
    char v[48];
    if (m->has_floor) {
        report_figure(v, sizeof v, m->floor);
        str_addf(out, "%s %s%s", m->ceiling ? "at most" : "at least", v, report_unit(m)[0] != '\0' ? " " : "");
        report_escape(out, report_unit(m));
    } else if (m->unrated) {
        str_add(out, "unrated");
    }
    if (m->measured > 0) {
        report_figure(v, sizeof v, m->measured);
        str_addf(out, "%sthis model reaches %s", m->has_floor ? ", " : "", v);
    }
    if (report_text_of(m->source)[0] == '\0') return;
    str_add(out, " <span class=\"dim\">(");
    report_escape(out, str_starts(m->source, "own: ") ? m->source + 5 : m->source);
    str_add(out, ")</span>");
}

static void metric_row(struct str *out, const struct metric *m) {
    char v[48];
    report_figure(v, sizeof v, m->value);
    str_add(out, "<tr class=\"m\"><td></td><td class=\"name\">");
    report_escape(out, m->name);
    str_addf(out, "</td><td class=\"num\">%s ", v);
    if (isfinite(m->value)) report_escape(out, report_unit(m));
    str_add(out, "</td><td>");
    bar_cell(out, m);
    str_add(out, "</td><td>");
    limit_cell(out, m);
    str_add(out, "</td></tr>\n");
}

/* "8 checks", or the check's name. */
static void name_cell(struct str *out, const char *check, size_t alike) {
    str_add(out, "<td class=\"name\">");
    if (alike > 1) str_addf(out, "%zu checks", alike);
    else report_escape(out, check);
    str_add(out, "</td>");
}

/* The message; of checks that did not run for the same reason also their names. */
static void message_cell(struct str *out, const struct check_result *list, size_t n, size_t i, size_t alike) {
    GP_AUTO_STR struct str text = {0}, names = {0};
    report_alike_text(list, n, i, &text);
    report_escape(out, text.s);
    if (alike < 2) return;
    report_alike_names(list, n, i, &names);
    paragraph(out, names.s);
}

static void check_rows(struct str *out, const struct check_result *list, size_t n, size_t i) {
    const struct check_result *c = &list[i];
    const char *word = verdict_name(c->verdict);
    size_t alike = report_alike(list, n, i);
    if (alike == 0) return;
    str_add(out, "<tr><td>");
    badge(out, word, word);
    str_add(out, "</td>");
    name_cell(out, c->check, alike);
    str_add(out, "<td colspan=\"3\">");
    message_cell(out, list, n, i, alike);
    if (c->verdict != VERDICT_PASS && report_text_of(c->suggestion)[0] != '\0') {
        GP_AUTO_FREE char *text = xasprintf("do: %s", c->suggestion);
        paragraph(out, text);
    }
    str_add(out, "</td></tr>\n");
    for (size_t m = 0; m < c->metrics.len; m++) metric_row(out, &c->metrics.items[m]);
}

/* together: checks that are shown for all nodes of this report are left out; NULL: none. */
static void check_table_of(struct str *out, const struct report *together, const struct check_result *list, size_t n) {
    str_add(out, "<div class=\"scroll\"><table><tr><th>verdict</th><th>check</th><th>figure</th>"
                 "<th></th><th>limit</th></tr>\n");
    for (size_t i = 0; i < n; i++)
        if (together == NULL || !report_told_together(together, &list[i])) check_rows(out, list, n, i);
    str_add(out, "</table></div>");
}

static void add_node(const struct report *r, const struct report_node *n, struct str *out) {
    GP_AUTO_STR struct str where = {0};
    const char *parts[] = {n->place, n->address, n->host, str_eq(n->id, n->host) ? NULL : n->id};
    for (size_t i = 0; i < GP_ARRAY_LEN(parts); i++)
        if (report_text_of(parts[i])[0] != '\0') str_addf(&where, "%s%s", where.len > 0 ? ", " : "", parts[i]);
    if (report_text_of(n->image)[0] != '\0') str_addf(&where, "%simage %s", where.len > 0 ? ", " : "", n->image);
    const char *driver = report_node_driver(n), *gpu = report_node_gpu(n, 0, "name");
    if (gpu[0] != '\0') str_addf(&where, "%s%s", where.len > 0 ? ", " : "", gpu);
    if (driver[0] != '\0') str_addf(&where, ", driver %s", driver);
    /* Nodes that are not ready are open when the page opens; ready nodes of a fleet stay a list. */
    str_addf(out, "<details%s><summary>", n->ready && r->nodes.len > 2 ? "" : " open");
    report_escape(out, r->stack);
    str_addf(out, "/%d ", n->slot);
    badge(out, n->ready ? "ready" : "notready", n->ready ? "READY" : "NOT READY");
    str_add(out, "<span class=\"dim\">");
    report_escape(out, where.s);
    str_add(out, "</span></summary>\n");
    check_table_of(out, r, n->checks.items, n->checks.len);
    str_add(out, "</details>\n");
}

/* --- the page --- */

static void add_bad(const char *where, const struct report *together, const struct check_result *list, size_t n,
                    struct str *out) {
    for (size_t i = 0; i < n; i++) {
        const struct check_result *c = &list[i];
        size_t alike = report_alike(list, n, i);
        if (alike == 0 || c->verdict == VERDICT_PASS || (c->verdict == VERDICT_SKIPPED && !c->required)) continue;
        if (together != NULL && report_told_together(together, c)) continue;
        str_add(out, "<tr><td class=\"name\">");
        report_escape(out, where);
        str_add(out, "</td><td>");
        badge(out, verdict_name(c->verdict), verdict_name(c->verdict));
        str_add(out, "</td>");
        name_cell(out, c->check, alike);
        str_add(out, "<td>");
        message_cell(out, list, n, i, alike);
        str_add(out, "</td></tr>\n");
    }
}

/* The checks that did not pass, first on the page. */
static void what_did_not_hold(const struct report *r, struct str *out) {
    GP_AUTO_STR struct str rows = {.max = (size_t)64 << 20};
    for (size_t i = 0; i < r->nodes.len; i++) {
        const struct report_node *n = &r->nodes.items[i];
        GP_AUTO_FREE char *where = xasprintf("%s/%d", report_text_of(r->stack), n->slot);
        add_bad(where, r, n->checks.items, n->checks.len, &rows);
    }
    add_bad("all nodes", NULL, r->gang.items, r->gang.len, &rows);
    if (rows.len == 0) return;
    str_add(out, "<h2>Checks that did not pass</h2>\n<div class=\"scroll\"><table>\n");
    str_add_mem(out, rows.s, rows.len);
    str_add(out, "</table></div>\n");
}

static void head(const struct report *r, struct str *out) {
    char took[32], at[32];
    duration_format(took, sizeof took, r->took_ms);
    time_format_utc(at, sizeof at, r->started_s);
    size_t ready = 0;
    for (size_t i = 0; i < r->nodes.len; i++) ready += r->nodes.items[i].ready;
    str_add(out, "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
                 "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
                 "'unsafe-inline'\">\n<meta name=\"viewport\" content=\"width=device-width\">\n<title>");
    report_escape(out, r->stack);
    str_addf(out, ": %s</title>\n<style>%s</style></head>\n<body><h1>", r->ready ? "ready" : "not ready", style_sheet);
    report_escape(out, r->stack);
    str_addc(out, ' ');
    badge(out, r->ready ? "ready" : "notready", r->ready ? "READY" : "NOT READY");
    str_addf(out, "</h1>\n<p class=\"dim\">%zu of %zu node%s ready%s &middot; validated %s in %s</p>\n", ready,
             r->nodes.len, r->nodes.len == 1 ? "" : "s", r->strict ? " (strict)" : "", at, took);
    if (r->outdated == NULL) return;
    GP_AUTO_FREE char *text = xasprintf("outdated: %s", r->outdated);
    paragraph(out, text);
}

static int write_html(const struct report *r, const struct report_style *style, struct str *out, struct gp_error *err) {
    (void)style;
    (void)err;
    head(r, out);
    what_did_not_hold(r, out);
    GP_AUTO_STR struct str plots = {.max = (size_t)128 << 20};
    report_figures(r, &plots);
    if (plots.len > 0) {
        str_add(out, "<h2>Figures</h2>\n<div class=\"plots\">\n");
        str_add_mem(out, plots.s, plots.len);
        str_add(out, "</div>\n");
    }
    str_add(out, "<h2>Nodes</h2>\n");
    for (size_t i = 0; i < r->nodes.len; i++) add_node(r, &r->nodes.items[i], out);
    if (r->gang.len > 0) {
        str_add(out, "<h2>All nodes together</h2>\n<details open><summary>checks over all nodes</summary>\n");
        check_table_of(out, NULL, r->gang.items, r->gang.len);
        str_add(out, "</details>\n");
    }
    str_add(out, "<footer>gpuprov " GP_VERSION ", run ");
    report_escape(out, r->run);
    str_add(out, "</footer></body></html>\n");
    return 0;
}

const struct report_ops report_form_html = {"html", "html", write_html};
