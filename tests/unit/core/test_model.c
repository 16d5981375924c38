/* SPDX-License-Identifier: Apache-2.0 */
/* Stacks, resources, phases, offers and events as plain data. */
#include "base/gp_base.h"

#include "model/currency.h"
#include "model/event.h"
#include "model/offer.h"
#include "model/stack.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static void names_there_and_back(void **state) {
    (void)state;
    for (int i = 0; i <= RES_KIND_MAX; i++) {
        enum resource_kind k = RES_INSTANCE;
        assert_true(resource_kind_parse(resource_kind_name((enum resource_kind)i), &k));
        assert_int_equal(k, i);
    }
    for (int i = 0; i <= RES_GONE; i++) {
        enum resource_state s = RES_PENDING;
        assert_true(resource_state_parse(resource_state_name((enum resource_state)i), &s));
        assert_int_equal(s, i);
    }
    for (int i = 0; i <= NODE_PHASE_MAX; i++) {
        enum node_phase p = NODE_PLANNED;
        assert_true(node_phase_parse(node_phase_name((enum node_phase)i), &p));
        assert_int_equal(p, i);
    }
    enum node_phase p = NODE_GANG;
    assert_false(node_phase_parse("", &p));
    assert_false(node_phase_parse(NULL, &p));
    assert_int_equal(p, NODE_GANG);
    for (int i = EVENT_INFO; i <= EVENT_FAIL; i++) assert_true(event_status_name((enum event_status)i)[0]);
}

static void phases_move_forward(void **state) {
    (void)state;
    for (int from = 0; from <= NODE_PHASE_MAX; from++) {
        for (int to = 0; to <= NODE_PHASE_MAX; to++) {
            bool want = from == NODE_GONE     ? to == NODE_GONE
                        : to >= NODE_FAILED   ? true
                        : from == NODE_FAILED ? to == NODE_LAUNCHING
                                              : to >= from;
            assert_int_equal(node_phase_legal((enum node_phase)from, (enum node_phase)to), want);
        }
    }
    assert_false(node_phase_legal(NODE_READY, NODE_CHECKING));
    assert_true(node_phase_legal(NODE_READY, NODE_FAILED));
}

static void resources_are_copied_whole(void **state) {
    (void)state;
    struct resource a, b = {0};
    resource_init(&a, RES_INSTANCE, "aws");
    assert_string_equal(a.login_key, "");
    assert_int_equal(a.slot, -1);
    assert_true(a.price_usd_per_h < 0);
    char **const fields[] = {&a.provider,   &a.region,    &a.zone,        &a.id,           &a.owner,
                             &a.stack,      &a.uid,       &a.spec_hash,   &a.state_reason, &a.instance_type,
                             &a.private_ip, &a.public_ip, &a.dial_socket, &a.user,         &a.host_keys,
                             &a.bastion,    &a.login_key, &a.known_hosts};
    for (size_t i = 0; i < GP_ARRAY_LEN(fields); i++) {
        GP_AUTO_FREE char *text = xasprintf("text %zu", i);
        resource_set(fields[i], text);
    }
    /* every pointer of the struct was set: one that the copy forgot would be shared and freed twice */
    size_t strings = sizeof fields / sizeof fields[0];
    assert_int_equal(strings, 18);
    a.slot = 3;
    resource_copy(&b, &a);
    assert_string_equal(b.known_hosts, "text 17");
    assert_ptr_not_equal(b.id, a.id);
    resource_copy(&b, &b);
    resource_set(&a.id, NULL);
    assert_string_equal(a.id, "");
    resource_clear(&a);
    assert_int_equal(b.slot, 3);
    assert_string_equal(b.id, "text 3");
    struct resource_list l = {0};
    vec_push(&l.list, b);
    resource_list_clear(&l);
    resource_list_clear(&l);
    struct resource zeroed = {0};
    resource_clear(&zeroed);
}

static void stacks_are_copied_whole(void **state) {
    (void)state;
    struct stack a = {.owner = xstrdup("me"), .name = xstrdup("s"), .region = xstrdup("r"), .expires_s = 7};
    struct stack b = {.name = xstrdup("old")};
    stack_copy(&b, &a);
    stack_copy(&b, &b);
    stack_clear(&a);
    assert_string_equal(b.owner, "me");
    assert_null(b.uid);
    assert_int_equal(b.expires_s, 7);
    stack_clear(&b);
}

static struct offer offer(size_t index, const char *zone, double price) {
    return (struct offer){.spec_index = index,
                          .provider = xstrdup("aws"),
                          .region = xstrdup("us-east-2"),
                          .zone = xstrdup(zone),
                          .instance_type = xstrdup("p5.48xlarge"),
                          .market = MARKET_SPOT,
                          .price_usd_per_h = price};
}

static void assert_order(const struct offer_list *l, const char *want) {
    char got[16] = "";
    for (size_t i = 0; i < l->list.len; i++) got[i] = l->list.items[i].zone[0];
    assert_string_equal(got, want);
}

static void offers_are_ranked(void **state) {
    (void)state;
    GP_AUTO_OFFERS struct offer_list l = {0};
    vec_push(&l.list, offer(1, "a", -1));
    vec_push(&l.list, offer(1, "b", 5));
    vec_push(&l.list, offer(0, "c", 9));
    vec_push(&l.list, offer(0, "d", 5));
    vec_push(&l.list, offer(1, "e", 5));
    vec_push(&l.list, offer(0, "f", -1));
    offer_list_sort(&l, ORDER_CHEAPEST);
    assert_order(&l, "dbecfa"); /* unknown prices last; ties by the spec's list, then as they came */
    offer_list_sort(&l, ORDER_LISTED);
    assert_order(&l, "dcfbea");
    GP_AUTO_FREE char *text = offer_text(&l.list.items[0]);
    assert_string_equal(text, "aws d p5.48xlarge spot");
    struct offer copy = {0};
    offer_copy(&copy, &l.list.items[0]);
    offer_copy(&copy, &copy);
    assert_string_equal(copy.zone, "d");
    offer_clear(&copy);
    char name[] = "local", here[] = "here";
    struct offer local = {.provider = name, .region = here};
    GP_AUTO_FREE char *short_text = offer_text(&local);
    assert_string_equal(short_text, "local");
}

/* Money of another currency ranks by its USD, and offers that the cloud reports as sold out come last. */
static void currencies_are_ranked(void **state) {
    (void)state;
    double eur = 0;
    assert_string_equal(currency_at(0, &eur), "EUR");
    assert_true(eur == 1 && currency_usd("EUR") > 1.1203 && currency_usd("EUR") < 1.1205);
    assert_true(currency_usd("CNY") > 0.14915 && currency_usd("CNY") < 0.14916); /* 1.1204 / 7.5118 */
    assert_true(currency_usd(NULL) == 1 && currency_usd("") == 1 && currency_usd("USD") == 1);
    assert_true(currency_usd("XAU") < 0 && currency_usd("cny") < 0);
    GP_AUTO_OFFERS struct offer_list l = {0};
    vec_push(&l.list, offer(0, "a", 20));
    vec_push(&l.list, offer(0, "b", 0));
    vec_push(&l.list, offer(0, "c", 1));
    vec_push(&l.list, offer(0, "d", 0));
    offer_set_price(&l.list.items[1], 100, "CNY");
    offer_set_price(&l.list.items[3], 5, "XXX");
    l.list.items[2].stock = OFFER_STOCK_NONE;
    offer_list_sort(&l, ORDER_CHEAPEST);
    assert_order(&l, "badc");
    struct offer copy = {0};
    offer_copy(&copy, &l.list.items[0]);
    GP_AUTO_FREE char *note = offer_price_note(&copy), *none = offer_price_note(&l.list.items[1]);
    GP_AUTO_FREE char *unknown = offer_price_note(&l.list.items[2]);
    assert_string_equal(note, " (100.00 CNY/h at the rate of 2026-10-05)");
    assert_string_equal(none, "");
    assert_string_equal(unknown, " (5.00 XXX/h; no rate to USD)");
    assert_true(l.list.items[2].price_usd_per_h < 0);
    assert_true(copy.price_usd_per_h > 14.915 && copy.price_usd_per_h < 14.916);
    offer_set_price(&copy, 3, "USD");
    assert_string_equal(copy.currency, "");
    assert_true(copy.price_usd_per_h == 3);
    offer_clear(&copy);
}

static void minimums_fit(void **state) {
    (void)state;
    struct offer o = offer(0, "a", 1);
    struct spec spec = {0};
    static const struct {
        int cpus, memory, disk; /* of the spec */
        const char *why;        /* NULL: it fits */
    } cases[] = {
        {0, 0, 0, NULL},
        {8, 16, 100, NULL},
        {9, 0, 0, "aws a p5.48xlarge spot has 8 CPUs, fewer than 'cpus: 9'"},
        {0, 17, 0, "aws a p5.48xlarge spot has 16.5 GiB of memory, less than 'memory: 17 GiB'"},
        {0, 0, 101, "aws a p5.48xlarge spot has a root disk of 100 GiB, less than 'disk: 101 GiB'"},
    };
    o.vcpus = 8, o.memory_gib = 16.5, o.disk_gib = 100;
    for (size_t i = 0; i < GP_ARRAY_LEN(cases); i++) {
        GP_AUTO_STR struct str why = {0};
        spec.cpus = cases[i].cpus, spec.memory_gib = cases[i].memory, spec.disk_gib = cases[i].disk;
        assert_int_equal(offer_fits(&o, &spec, &why), cases[i].why == NULL);
        if (cases[i].why != NULL) assert_string_equal(why.s, cases[i].why);
    }
    GP_AUTO_STR struct str why = {0};
    o.vcpus = 0, o.memory_gib = 0, o.disk_gib = 0;
    spec = (struct spec){.cpus = 1};
    assert_false(offer_fits(&o, &spec, &why));
    spec = (struct spec){.memory_gib = 1};
    assert_false(offer_fits(&o, &spec, &why));
    spec = (struct spec){.disk_gib = 1};
    assert_false(offer_fits(&o, &spec, &why));
    offer_clear(&o);
}

struct seen {
    struct event e;
    char text[1100], step[32];
    int n;
};

static void see(void *ctx, const struct event *e) {
    struct seen *s = ctx;
    s->e = *e;
    s->n++;
    snprintf(s->text, sizeof s->text, "%s", e->text);
    snprintf(s->step, sizeof s->step, "%s", e->step);
}

static void events(void **state) {
    (void)state;
    struct seen s = {0};
    struct event_sink sink = {see, &s};
    event_emit(&sink, 2, NODE_REACHING, EVENT_PROGRESS, NULL, "two\nlines \x1b[31m %d", 7);
    assert_int_equal(s.n, 1);
    assert_string_equal(s.text, "two lines ?[31m 7");
    assert_string_equal(s.step, "");
    assert_int_equal(s.e.node, 2);
    assert_true(s.e.wall_ms > 1700000000000);
    char big[3000];
    memset(big, 'x', sizeof big - 1);
    big[sizeof big - 1] = '\0';
    event_emit(&sink, -1, NODE_READY, EVENT_DONE, "packages", "%s", big);
    assert_int_equal(strlen(s.text), 1023);
    event_emit(NULL, 0, NODE_READY, EVENT_DONE, "", "x");
    event_emit(&(struct event_sink){0}, 0, NODE_READY, EVENT_DONE, "", "x");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_there_and_back),       cmocka_unit_test(phases_move_forward),
        cmocka_unit_test(resources_are_copied_whole), cmocka_unit_test(stacks_are_copied_whole),
        cmocka_unit_test(currencies_are_ranked),      cmocka_unit_test(minimums_fit),
        cmocka_unit_test(offers_are_ranked),          cmocka_unit_test(events),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
