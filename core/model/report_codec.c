/* SPDX-License-Identifier: Apache-2.0 */
/* Reports and check results as JSON, both ways. Unknown fields are ignored; an error names a missing required
 * field. A figure that is not finite is null. Any thread. */
#include "base/gp_base.h"

#include "base/clock.h"
#include "base/json.h"
#include "model/report.h"
#include "model/tags.h"

#include <math.h>

#define REPORT_SCHEMA "gpuprov/report/v1"
#define TOOK_MAX_MS ((int64_t)366 * 86400 * 1000)

/* Text from a node may have any bytes; JSON requires UTF-8. */
static json_t *text_json(const char *s) {
    if (s == NULL) s = "";
    json_t *j = json_string(s);
    if (j != NULL) return j;
    GP_AUTO_FREE char *clean = xstrdup(s);
    for (char *p = clean; *p; p++)
        if ((unsigned char)*p >= 0x80) *p = '?';
    return json_string(clean);
}

static json_t *number_json(double v) { return isfinite(v) ? json_real(v) : json_null(); }

static json_t *metric_to_json(const struct metric *m) {
    json_t *j = json_object();
    json_object_set_new(j, "name", text_json(m->name));
    json_object_set_new(j, "value", number_json(m->value));
    json_object_set_new(j, "unit", text_json(m->unit));
    if (m->has_floor) json_object_set_new(j, m->ceiling ? "ceiling" : "floor", number_json(m->floor));
    if (m->has_degraded) json_object_set_new(j, "degraded", number_json(m->degraded));
    if (m->unrated) json_object_set_new(j, "unrated", json_true());
    if (m->source != NULL && m->source[0] != '\0') json_object_set_new(j, "source", text_json(m->source));
    if (m->measured > 0) json_object_set_new(j, "measured", number_json(m->measured));
    return j;
}

json_t *check_result_to_json(const struct check_result *r) {
    json_t *j = json_object();
    json_object_set_new(j, "check", text_json(r->check));
    json_object_set_new(j, "verdict", json_string(verdict_name(r->verdict)));
    json_object_set_new(j, "required", json_boolean(r->required));
    json_object_set_new(j, "code", text_json(r->code));
    json_object_set_new(j, "message", text_json(r->message));
    json_object_set_new(j, "suggestion", text_json(r->suggestion));
    json_object_set_new(j, "took_ms", json_integer(r->took_ms));
    json_t *metrics = json_array();
    for (size_t i = 0; i < r->metrics.len; i++) json_array_append_new(metrics, metric_to_json(&r->metrics.items[i]));
    json_object_set_new(j, "metrics", metrics);
    if (r->data != NULL) json_object_set(j, "data", r->data);
    return j;
}

static json_t *checks_to_json(const struct check_result *items, size_t n) {
    json_t *j = json_array();
    for (size_t i = 0; i < n; i++) json_array_append_new(j, check_result_to_json(&items[i]));
    return j;
}

json_t *report_to_json(const struct report *r) {
    char started[32];
    time_format_utc(started, sizeof started, r->started_s);
    json_t *j = json_object();
    json_object_set_new(j, "schema", json_string(REPORT_SCHEMA));
    json_object_set_new(j, "stack", text_json(r->stack));
    json_object_set_new(j, "uid", text_json(r->uid));
    json_object_set_new(j, "run", text_json(r->run));
    json_object_set_new(j, "started", json_string(started));
    json_object_set_new(j, "took_ms", json_integer(r->took_ms));
    json_object_set_new(j, "strict", json_boolean(r->strict));
    json_object_set_new(j, "ready", json_boolean(r->ready));
    if (r->outdated != NULL) json_object_set_new(j, "outdated", text_json(r->outdated));
    json_t *nodes = json_array();
    for (size_t i = 0; i < r->nodes.len; i++) {
        const struct report_node *n = &r->nodes.items[i];
        json_t *node = json_object();
        json_object_set_new(node, "slot", json_integer(n->slot));
        json_object_set_new(node, "id", text_json(n->id));
        json_object_set_new(node, "place", text_json(n->place));
        if (n->image != NULL && n->image[0] != '\0') json_object_set_new(node, "image", text_json(n->image));
        if (n->load_ms > 0) json_object_set_new(node, "load_ms", json_integer(n->load_ms));
        json_object_set_new(node, "address", text_json(n->address));
        json_object_set_new(node, "host", text_json(n->host));
        json_object_set_new(node, "boot_id", text_json(n->boot_id));
        json_object_set_new(node, "ready", json_boolean(n->ready));
        json_object_set_new(node, "checks", checks_to_json(n->checks.items, n->checks.len));
        json_array_append_new(nodes, node);
    }
    json_object_set_new(j, "nodes", nodes);
    json_object_set_new(j, "gang", checks_to_json(r->gang.items, r->gang.len));
    return j;
}

static int metric_from_json(const json_t *j, struct metric *ret, struct gp_error *err) {
    const char *name = json_str(j, "name", "");
    if (name[0] == '\0') return gp_fail(err, GP_EPROTO, "a metric has no name");
    const json_t *ceiling = json_at(j, "ceiling"), *floor = json_at(j, "floor");
    const json_t *degraded = json_at(j, "degraded");
    *ret = (struct metric){
        .name = xstrdup(name),
        .value = json_num(j, "value", NAN),
        .unit = xstrdup(json_str(j, "unit", "")),
        .has_floor = json_is_number(ceiling) || json_is_number(floor),
        .ceiling = json_is_number(ceiling),
        .has_degraded = json_is_number(degraded),
        .degraded = json_is_number(degraded) ? json_number_value(degraded) : 0,
        .unrated = json_bool(j, "unrated", false),
        .source = xstrdup(json_str(j, "source", "")),
        .measured = json_num(j, "measured", 0),
    };
    if (ret->has_floor) ret->floor = json_number_value(ret->ceiling ? ceiling : floor);
    return 0;
}

static int read_check_result(const json_t *j, struct check_result *r, struct gp_error *err) {
    const char *check = json_str(j, "check", "");
    if (check[0] == '\0') return gp_fail(err, GP_EPROTO, "a check result has no 'check'");
    const char *verdict = json_str(j, "verdict", "");
    if (!verdict_parse(verdict, &r->verdict))
        return gp_fail(err, GP_EPROTO, "the result of %s has no known verdict ('%s')", check, verdict);
    r->check = xstrdup(check);
    r->required = json_bool(j, "required", false);
    r->code = xstrdup(json_str(j, "code", ""));
    r->message = xstrdup(json_str(j, "message", ""));
    r->suggestion = xstrdup(json_str(j, "suggestion", ""));
    r->took_ms = json_int_in(j, "took_ms", 0, TOOK_MAX_MS, 0);
    const json_t *metrics = json_at(j, "metrics");
    for (size_t i = 0; i < json_array_size(metrics); i++) {
        struct metric m;
        int rc = metric_from_json(json_array_get(metrics, i), &m, err);
        if (rc != 0) return gp_wrap(err, "the result of %s", check);
        vec_push(&r->metrics, m);
    }
    json_t *data = json_at(j, "data");
    if (data != NULL && !json_is_null(data)) r->data = json_incref(data);
    return 0;
}

int check_result_from_json(const json_t *j, struct check_result *ret, struct gp_error *err) {
    struct check_result r = {0};
    int rc = read_check_result(j, &r, err);
    if (rc == 0) *ret = r;
    else check_result_clear(&r);
    return rc;
}

static int read_node(const json_t *j, struct report *r, struct gp_error *err) {
    struct report_node empty = {0};
    vec_push(&r->nodes, empty); /* first, so that report_clear frees it also after an error */
    struct report_node *n = &r->nodes.items[r->nodes.len - 1];
    n->slot = (int)json_int_in(j, "slot", 0, TAGS_SLOTS_MAX - 1, -1);
    n->id = xstrdup(json_str(j, "id", ""));
    n->place = xstrdup(json_str(j, "place", ""));
    n->image = xstrdup(json_str(j, "image", ""));
    n->load_ms = json_int_in(j, "load_ms", 0, TOOK_MAX_MS, 0);
    n->address = xstrdup(json_str(j, "address", ""));
    n->host = xstrdup(json_str(j, "host", ""));
    str_put(n->boot_id, sizeof n->boot_id, json_str(j, "boot_id", ""));
    n->ready = json_bool(j, "ready", false);
    const json_t *checks = json_at(j, "checks");
    for (size_t i = 0; i < json_array_size(checks); i++) {
        struct check_result c;
        int rc = check_result_from_json(json_array_get(checks, i), &c, err);
        if (rc != 0) return gp_wrap(err, "node %d", n->slot);
        vec_push(&n->checks, c);
    }
    return 0;
}

static int read_report(const json_t *j, struct report *r, struct gp_error *err) {
    const char *schema = json_str(j, "schema", "");
    if (strcmp(schema, REPORT_SCHEMA) != 0)
        return gp_fail(err, GP_EPROTO, "the report's version is not supported (schema '%s', expected '%s')", schema,
                       REPORT_SCHEMA);
    const char *started = json_str(j, "started", "");
    if (!time_parse_utc(started, &r->started_s))
        return gp_fail(err, GP_EPROTO, "the report has no usable start time ('%s')", started);
    r->stack = xstrdup(json_str(j, "stack", ""));
    r->uid = xstrdup(json_str(j, "uid", ""));
    r->run = xstrdup(json_str(j, "run", ""));
    r->took_ms = json_int_in(j, "took_ms", 0, TOOK_MAX_MS, 0);
    r->strict = json_bool(j, "strict", false);
    r->ready = json_bool(j, "ready", false);
    const json_t *nodes = json_at(j, "nodes"), *gang = json_at(j, "gang");
    for (size_t i = 0; i < json_array_size(nodes); i++) {
        int rc = read_node(json_array_get(nodes, i), r, err);
        if (rc != 0) return rc;
    }
    for (size_t i = 0; i < json_array_size(gang); i++) {
        struct check_result c;
        int rc = check_result_from_json(json_array_get(gang, i), &c, err);
        if (rc != 0) return rc;
        vec_push(&r->gang, c);
    }
    return 0;
}

int report_from_json(const json_t *j, struct report *ret, struct gp_error *err) {
    struct report r = {0};
    int rc = read_report(j, &r, err);
    if (rc == 0) *ret = r;
    else report_clear(&r);
    return rc;
}
