/* SPDX-License-Identifier: Apache-2.0 */
/* The lines for the places that were looked at and those that were not, and the table of offers. */
#include "base/gp_base.h"

#include "cmd/app.h"
#include "cmd/show/offer_show.h"
#include "cmd/show/plan_show.h"
#include "providers/provider.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static void not_looked(struct coverage *c, const char *provider, const char *region, const char *why,
                       const char *detail) {
    struct gp_error err = {0};
    gp_fail(&err, GP_EAUTH, "%s", why);
    str_put(err.detail, sizeof err.detail, detail);
    coverage_put(c, provider, region, "me", true, &err);
}

static void assert_looked(const struct coverage *c, const char *want) {
    char *text = NULL;
    size_t n = 0;
    FILE *to = open_memstream(&text, &n);
    show_looked(c, to);
    fclose(to);
    assert_string_equal(text, want);
    free(text);
}

static void every_provider_has_its_reason(void **state) {
    (void)state;
    struct coverage c = {0};
    coverage_put(&c, "local", "here", "me", false, NULL);
    assert_looked(&c, "looked at: local here (owner me)\n");
    not_looked(&c, "aws", "us-east-1", "denied", "AccessDenied");
    not_looked(&c, "aws", "us-west-2", "denied too", "AccessDenied");
    assert_looked(&c, "looked at: local here (owner me)\nnot looked at: aws us-east-1, us-west-2\n");
    not_looked(&c, "google", "", "the token has expired", "invalid_grant");
    not_looked(&c, "azure", "", "none found", PROVIDER_NO_CREDENTIALS);
    not_looked(&c, "lambda", "", "none found", PROVIDER_NO_CREDENTIALS);
    c.list.items[c.list.len - 1].aside = true;
    assert_looked(&c, "looked at: local here (owner me)\n"
                      "not looked at: aws us-east-1, us-west-2: denied\n"
                      "not looked at: google: the token has expired\n"
                      "not looked at: azure, lambda: this machine has no credentials for them\n");
    coverage_clear(&c);
}

static void a_price_that_is_not_known_is_not_free(void **state) {
    (void)state;
    static const double prices[] = {3.5, -1, 0};
    struct stack_view v = {.phase = "partial", .price_usd_per_h = -1, .spent_usd = -1};
    char *text = NULL, *id = "", *end = NULL;
    size_t n = 0;
    v.stack.name = "llm";
    for (int i = 0; i < 3; i++) {
        struct node_view node = {
            .slot = i, .id = i < 2 ? "i-1" : id, .place = "aws r1", .verdict = "ready", .price_usd_per_h = prices[i]};
        vec_push(&v.nodes, node);
    }
    FILE *to = open_memstream(&text, &n);
    show_stack(&v, to);
    fclose(to);
    assert_non_null(strstr(text, "3.50 USD/h"));
    assert_non_null(strstr(text, "llm: partial, price not known\n"));
    assert_null(strstr(text, "free"));
    end = strstr(text, "llm/2");
    assert_non_null(end);
    assert_null(strstr(end, "USD/h")); /* it has no machine */
    free(text);
    json_t *j = stack_view_json(&v);
    assert_true(json_is_null(json_object_get(j, "price_usd_per_h")));
    assert_true(json_is_null(json_object_get(j, "spent_usd")));
    assert_true(json_is_null(json_object_get(json_array_get(json_object_get(j, "nodes"), 1), "price_usd_per_h")));
    json_decref(j);
    vec_free(&v.nodes);
}

static struct offer offer(const char *provider, const char *zone, double price, const char *currency) {
    struct offer o = {.provider = xstrdup(provider),
                      .region = xstrdup(zone),
                      .zone = xstrdup(zone),
                      .instance_type = xstrdup("big"),
                      .gpu_model = xstrdup("H100"),
                      .gpus = 8,
                      .vcpus = 192,
                      .memory_gib = 2048,
                      .price_source = xstrdup("catalogue 2026-07-20"),
                      .ends = ENDS_SERVER};
    offer_set_price(&o, price, currency);
    return o;
}

static void offers_are_a_table(void **state) {
    (void)state;
    struct offer_list l = {0};
    char *text = NULL;
    size_t n = 0;
    vec_push(&l.list, offer("alibaba", "cn-a", 100, "CNY"));
    vec_push(&l.list, offer("aws", "us-east-1a", 55.04, ""));
    vec_push(&l.list, offer("other", "x", 5, "XXX"));
    l.list.items[0].stock = OFFER_STOCK_LOW;
    l.list.items[1].market = MARKET_SPOT;
    l.list.items[1].quota = xstrdup("8 of 16 GPUs used");
    FILE *to = open_memstream(&text, &n);
    offers_show(&l, to);
    fclose(to);
    assert_non_null(strstr(text, "100.00 CNY/h (14.92 USD/h)"));
    assert_non_null(strstr(text, "8 of 16 GPUs used"));
    assert_non_null(strstr(text, "5.00 XXX/h"));
    assert_non_null(
        strstr(text, "USD of other currencies: euro reference rates of the European Central Bank of 2026-10-05"));
    assert_non_null(strstr(text, "without egress"));
    free(text);
    json_t *j = offers_json(&l);
    const json_t *first = json_array_get(j, 0), *third = json_array_get(j, 2);
    assert_string_equal(json_string_value(json_object_get(first, "currency")), "CNY");
    assert_true(json_number_value(json_object_get(first, "price_per_h")) == 100);
    assert_string_equal(json_string_value(json_object_get(first, "stock")), "low");
    assert_string_equal(json_string_value(json_object_get(first, "rate_date")), "2026-10-05");
    assert_string_equal(json_string_value(json_object_get(first, "price_date")), "2026-07-20");
    assert_true(json_integer_value(json_object_get(first, "price_age_days")) > 0);
    assert_true(json_is_null(json_object_get(third, "price_usd_per_h")));
    assert_true(json_is_null(json_object_get(third, "rate_date")));
    json_decref(j);
    offer_list_clear(&l);
}

/* A price of a catalogue may be months old: the plan shows each source once, with its age. */
static void a_plan_shows_where_its_prices_are_from(void **state) {
    (void)state;
    struct spec spec = {.name = "llm", .nodes = 1};
    struct plan p = {.changes = true, .price_usd_per_h = 55.04, .dearest_usd_per_h = 60, .max_usd = 600};
    char *text = NULL, today[32], *ends = "guest";
    size_t n = 0;
    p.ends = ends;
    vec_push(&p.offers.list, offer("aws", "us-east-1a", 55.04, ""));
    vec_push(&p.offers.list, offer("aws", "us-east-1b", 55.04, ""));
    vec_push(&p.offers.list, offer("lambda", "us", 60, ""));
    vec_push(&p.offers.list, offer("openstack", "here", -1, "")); /* its price is not known */
    time_format_utc(today, sizeof today, clock_wall_s());
    free(p.offers.list.items[2].price_source);
    p.offers.list.items[2].price_source = xasprintf("instance-types %.10s", today);
    FILE *to = open_memstream(&text, &n);
    plan_show(&spec, &p, to);
    fclose(to);
    char *line = strstr(text, "prices from ");
    assert_non_null(line);
    line[strcspn(line, "\n")] = '\0';
    GP_AUTO_FREE char *old = offer_source_text(&p.offers.list.items[0]);
    assert_true(str_starts(old, "catalogue 2026-07-20, ") && str_ends(old, " days old"));
    GP_AUTO_FREE char *want = xasprintf("prices from aws: %s; lambda: instance-types %.10s", old, today);
    assert_string_equal(line, want);
    free(text);
    offer_list_clear(&p.offers);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_provider_has_its_reason),
        cmocka_unit_test(a_price_that_is_not_known_is_not_free),
        cmocka_unit_test(a_plan_shows_where_its_prices_are_from),
        cmocka_unit_test(offers_are_a_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
