// SPDX-License-Identifier: Apache-2.0
/* Which of several resources with one id keeps it, and where a resource stands in a very long list. */
#include "base/gp_base.h"

#include "model/resource_index.h"
#include "model/same_id.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static void add(struct resource_list *l, enum resource_kind kind, const char *id) {
    struct resource r;
    resource_init(&r, kind, "alibaba");
    resource_set(&r.id, id);
    vec_push(&l->list, r);
}

static void who_keeps_the_id(void **state) {
    (void)state;
    static const struct {
        enum resource_kind journal; /* RES_KIND_MAX: none */
        enum resource_kind listed[3];
        bool yields[3];
    } rows[] = {
        {RES_KIND_MAX, {RES_KEY_PAIR, RES_INSTANCE, RES_GROUP}, {true, false, true}},
        {RES_KIND_MAX, {RES_INSTANCE, RES_KEY_PAIR, RES_KEY_PAIR}, {false, true, true}},
        {RES_INSTANCE, {RES_KEY_PAIR, RES_GROUP, RES_SUBNET}, {true, true, true}},
        {RES_KEY_PAIR, {RES_NETWORK, RES_KEY_PAIR, RES_GROUP}, {true, false, true}},
        {RES_KIND_MAX, {RES_KEY_PAIR, RES_NETWORK, RES_SUBNET}, {true, false, true}},
        {RES_KIND_MAX, {RES_NETWORK, RES_SUBNET, RES_KEY_PAIR}, {false, true, true}},
        {RES_KIND_MAX, {RES_KEY_PAIR, RES_KEY_PAIR, RES_KEY_PAIR}, {false, false, false}},
    };
    for (size_t i = 0; i < GP_ARRAY_LEN(rows); i++) {
        GP_AUTO_RESOURCES struct resource_list journal = {0}, listed = {0};
        if (rows[i].journal != RES_KIND_MAX) add(&journal, rows[i].journal, "same");
        add(&journal, RES_VOLUME, "z-other");
        for (int k = 0; k < 3; k++) add(&listed, rows[i].listed[k], "same");
        add(&listed, RES_KEY_PAIR, "another");
        bool *got = same_id_of_another(&journal, &listed);
        for (int k = 0; k < 3; k++)
            if (got[k] != rows[i].yields[k]) fail_msg("row %zu, %d: %d", i, k, got[k]);
        assert_false(got[3]);
        free(got);
    }
}

/* With one comparison for each pair this takes an hour. */
static void long_lists(void **state) {
    (void)state;
    enum { MANY = 400000 };
    GP_AUTO_RESOURCES struct resource_list listed = {0}, none = {0};
    GP_AUTO_INDEX struct resource_index x = {0};
    char id[32];
    for (int i = 0; i < MANY; i++) {
        snprintf(id, sizeof id, "i-%d", i % (MANY / 2)); /* each twice, as a key pair and as a group */
        add(&listed, i < MANY / 2 ? RES_KEY_PAIR : RES_GROUP, id);
    }
    bool *got = same_id_of_another(&none, &listed);
    resource_index_fill(&x, &listed);
    for (size_t i = 0; i < MANY; i++) {
        assert_int_equal(got[i], i < MANY / 2);
        assert_int_equal(resource_index_find(&x, &listed.list.items[i]), i);
    }
    free(got);
    resource_index_put(&x, &listed.list.items[7], 70);
    assert_int_equal(resource_index_find(&x, &listed.list.items[7]), 70);
    struct resource other = listed.list.items[7]; /* borrows */
    other.kind = RES_VOLUME;
    assert_int_equal(resource_index_find(&x, &other), RESOURCE_NOWHERE);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_keeps_the_id),
        cmocka_unit_test(long_lists),
    };
    return cmocka_run_group_tests_name("same_id", tests, NULL, NULL);
}
