/* SPDX-License-Identifier: Apache-2.0 */
/* Shows offers: a table with footnotes for people, JSON for programs. */
#include "base/gp_base.h"

#include "offer_show.h"

#include "base/json.h"
#include "model/currency.h"

static const char *or_empty(const char *s) { return s != NULL ? s : ""; }
static bool is_set(const char *s) { return s != NULL && s[0] != '\0'; }

/* The date at the end of "catalogue 2026-07-20"; false: there is none. */
static bool price_date(const struct offer *o, char dst[11], int64_t *ret_days) {
    const char *text = or_empty(o->price_source);
    size_t n = strlen(text);
    char stamp[24];
    int64_t then = 0;
    if (n < 10) return false;
    snprintf(stamp, sizeof stamp, "%.10sT00:00:00Z", text + n - 10);
    if (!time_parse_utc(stamp, &then)) return false;
    str_put(dst, 11, text + n - 10);
    *ret_days = GP_MAX((clock_wall_s() - then) / 86400, (int64_t)0);
    return true;
}

static json_t *text_json(const char *s) { return is_set(s) ? json_any_text(s) : json_null(); }
static json_t *price_json(double v) { return v >= 0 ? json_real(v) : json_null(); }

static json_t *offer_json(const struct offer *o) {
    char date[11];
    int64_t days = 0;
    bool dated = price_date(o, date, &days);
    json_t *j = json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:i, s:o, s:s}", "provider", o->provider, "region",
                          or_empty(o->region), "zone", or_empty(o->zone), "type", or_empty(o->instance_type), "market",
                          spec_market_name(o->market), "gpu", or_empty(o->gpu_model), "gpus", o->gpus,
                          "price_usd_per_h", price_json(o->price_usd_per_h), "price_source", or_empty(o->price_source));
    json_object_set_new(j, "price_date", dated ? json_string(date) : json_null());
    json_object_set_new(j, "price_age_days", dated ? json_integer(days) : json_null());
    json_object_set_new(j, "vcpus", o->vcpus > 0 ? json_integer(o->vcpus) : json_null());
    json_object_set_new(j, "memory_gib", o->memory_gib > 0 ? json_real(o->memory_gib) : json_null());
    json_object_set_new(j, "disk_gib", o->disk_gib > 0 ? json_integer(o->disk_gib) : json_null());
    json_object_set_new(j, "disk_usd_per_h", o->disk_usd_per_h > 0 ? json_real(o->disk_usd_per_h) : json_null());
    json_object_set_new(j, "currency", json_string(is_set(o->currency) ? o->currency : "USD"));
    if (is_set(o->currency)) {
        json_object_set_new(j, "price_per_h", price_json(o->price_in_currency));
        json_object_set_new(j, "rate_date", text_json(o->rate_date));
    }
    json_object_set_new(j, "stock", text_json(offer_stock_name(o->stock)));
    json_object_set_new(j, "quota", text_json(o->quota));
    json_object_set_new(j, "max_nodes", o->max_count > 0 ? json_integer(o->max_count) : json_null());
    json_object_set_new(j, "fabric", json_string(or_empty(o->fabric)));
    json_object_set_new(j, "ends", json_string(offer_ends_name(o->ends)));
    return j;
}

json_t *offers_json(const struct offer_list *l) {
    json_t *list = json_array();
    for (size_t i = 0; i < l->list.len; i++) json_array_append_new(list, offer_json(&l->list.items[i]));
    return list;
}

json_t *offers_result_json(const struct spec *spec, const struct offers_result *res) {
    json_t *gaps = json_array();
    for (size_t i = 0; i < res->gaps.len; i++)
        json_array_append_new(gaps, json_pack("{s:s, s:o}", "provider", res->gaps.items[i].provider, "error",
                                              error_json(&res->gaps.items[i].why)));
    return json_pack("{s:i, s:o, s:o, s:b, s:{s:s, s:s}}", "nodes", spec->nodes, "offers", offers_json(&res->offers),
                     "not_listed", gaps, "egress_included", 0, "rates", "date", currency_date, "source",
                     currency_source);
}

/* "154.45 CNY/h (20.56 USD/h)" */
static char *price_text(const struct offer *o) {
    char usd[32];
    price_format(usd, sizeof usd, o->price_usd_per_h);
    if (!is_set(o->currency) || o->price_in_currency < 0) return xstrdup(usd);
    if (o->price_usd_per_h < 0) return xasprintf("%.2f %s/h", o->price_in_currency, o->currency);
    return xasprintf("%.2f %s/h (%s)", o->price_in_currency, o->currency, usd);
}

char *offer_source_text(const struct offer *o) {
    char date[11];
    int64_t days = 0;
    if (!price_date(o, date, &days) || days < 1) return xstrdup(or_empty(o->price_source));
    return xasprintf("%s, %lld day%s old", o->price_source, (long long)days, days == 1 ? "" : "s");
}

/* One line of the table. */
enum { COLUMNS = 11 };
static const char *const heads[COLUMNS] = {"provider", "place", "type",  "GPUs",  "CPUs",  "memory",
                                           "price",    "spot",  "stock", "quota", "source"};

static void fill_row(struct strv *row, const struct offer *o) {
    bool here = str_eq(o->region, "here"); /* a provider without places */
    char vcpus[16] = "", memory[24] = "";
    if (o->vcpus > 0) snprintf(vcpus, sizeof vcpus, "%d", o->vcpus);
    if (o->memory_gib > 0) snprintf(memory, sizeof memory, "%.0f GiB", o->memory_gib);
    strv_add(row, o->provider);
    strv_add(row, here ? "" : is_set(o->zone) ? o->zone : or_empty(o->region));
    strv_add(row, or_empty(o->instance_type));
    strv_take(row, o->gpus > 0 ? xasprintf("%d x %s", o->gpus, or_empty(o->gpu_model)) : xstrdup(""));
    strv_add(row, vcpus);
    strv_add(row, memory);
    strv_take(row, price_text(o));
    strv_add(row, o->market == MARKET_SPOT ? "spot" : "");
    strv_add(row, offer_stock_name(o->stock));
    strv_add(row, or_empty(o->quota));
    strv_take(row, offer_source_text(o));
}

/* Columns without any content are left out. */
static void print_rows(const struct strv *rows, size_t n, FILE *to) {
    struct table t = {0};
    bool used[COLUMNS] = {false};
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < COLUMNS; k++) used[k] = used[k] || rows[i].v[k][0] != '\0';
    for (size_t k = 0; k < COLUMNS; k++)
        if (used[k]) strv_add(&t.head, heads[k]);
    for (size_t i = 0; i < n; i++) {
        struct strv row = {0};
        for (size_t k = 0; k < COLUMNS; k++)
            if (used[k]) strv_add(&row, rows[i].v[k]);
        vec_push(&t.rows, row);
    }
    table_print(&t, to);
    table_clear(&t);
}

void offers_show(const struct offer_list *l, FILE *to) {
    bool converted = false, priced = false;
    struct strv *rows = xcalloc(l->list.len + 1, sizeof *rows);
    for (size_t i = 0; i < l->list.len; i++) {
        fill_row(&rows[i], &l->list.items[i]);
        converted = converted || is_set(l->list.items[i].rate_date);
        priced = priced || l->list.items[i].price_usd_per_h != 0;
    }
    if (l->list.len > 0) print_rows(rows, l->list.len, to);
    for (size_t i = 0; i < l->list.len; i++) strv_clear(&rows[i]);
    free(rows);
    if (priced) fputs("prices are of one node, without egress (traffic out of the cloud)\n", to);
    if (converted)
        fprintf(to, "USD of other currencies: %s of %s, for the order and for limits only\n", currency_source,
                currency_date);
}
