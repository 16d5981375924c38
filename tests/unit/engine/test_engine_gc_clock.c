/* SPDX-License-Identifier: Apache-2.0 */
/* Which clock gc compares deadlines with, if the Date of a cloud's replies and this machine's clock differ. */
#include "base/gp_base.h"

#include "engine/gc/gc_clock.h"
#include "engine_cloud.h"

#define H 3600

/* Each row: the skews of this cloud and of another one, in hours; whether the clock is sure; now and later, in hours
 * from this machine's clock. */
static void test_choice(void **state) {
    (void)state;
    static const struct {
        int64_t skew, other;
        bool sure;
        int64_t now, later;
    } rows[] = {
        {0, 5, true, 0, 0},    {5, 5, true, 5, 5},   {-5, -5, true, -5, -5}, {5, 0, false, 0, 5},
        {-5, 0, false, -5, 0}, {5, -5, false, 0, 5}, {-5, 5, false, -5, 0},
    };
    for (size_t i = 0; i < GP_ARRAY_LEN(rows); i++) {
        struct gc_clocks c = {0};
        gc_clocks_add(&c, "aws", rows[i].skew * H);
        gc_clocks_add(&c, "azure", rows[i].other * H);
        gc_clocks_add(&c, "aws", rows[i].skew * H); /* of another owner's sweep: it confirms nothing */
        assert_int_equal(c.list.len, 2);
        struct gc_time t = gc_time_of(&c, "aws", rows[i].skew * H, 1000000);
        assert_int_equal(gc_clock_is_sure(&c, "aws", rows[i].skew * H), rows[i].sure);
        assert_int_equal(t.now_s - 1000000, rows[i].now * H);
        assert_int_equal(t.later_s - 1000000, rows[i].later * H);
        vec_free(&c.list);
    }
    struct gc_clocks none = {0};
    assert_true(gc_clock_is_sure(&none, "aws", GC_CLOCKS_AGREE_S));
    assert_true(gc_clock_is_sure(&none, "aws", -GC_CLOCKS_AGREE_S));
    assert_false(gc_clock_is_sure(&none, "aws", GC_CLOCKS_AGREE_S + 1));
    assert_false(gc_clock_is_sure(&none, "aws", -GC_CLOCKS_AGREE_S - 1));
}

static char said[8192];

static void hear(void *ctx, const struct event *e) {
    (void)ctx;
    size_t len = strlen(said);
    if (e->status == EVENT_WARN) snprintf(said + len, sizeof said - len, "%s\n", e->text);
}

/* Runs gc with both clouds' skews; `code` GP_OK: it succeeds. */
static void gc_at(struct fixture *f, int64_t skew_s, int64_t other_s, enum gp_code code, struct gp_error *err) {
    struct gc_result res = {0};
    said[0] = '\0';
    cloud.skew_s = skew_s;
    cloud.other_skew_s = other_s - skew_s;
    f->e->sink = (struct event_sink){.emit = hear};
    gp_error_clear(err);
    assert_int_equal(engine_gc(f->e, NULL, false, &res, err), -(int)code);
    gc_result_clear(&res);
}

/* A Date of the future, such as that of a proxy with a wrong clock, ends nothing before its deadline. */
static void test_a_date_of_the_future(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    assert_int_equal(launch(f, &err), 0); /* it has an hour */
    gc_at(f, 5 * H, 0, GP_EBILLED, &err);
    assert_int_equal(running(), 2);
    assert_non_null(strstr(err.msg, "aws: kept: "));
    assert_non_null(strstr(err.msg, "i-0"));
    assert_non_null(strstr(err.msg, "the cloud's is 5h ahead of this machine's"));
    assert_non_null(
        strstr(said, "aws: its clock is 5h ahead of this machine's: a deadline counts as passed only when"));
    gc_at(f, 0, 0, GP_OK, &err); /* and it is still within its deadline */
    assert_int_equal(running(), 2);
    assert_string_equal(said, "");
    gc_at(f, 5 * H, 5 * H, GP_OK, &err); /* two clouds agree: this machine's clock is wrong */
    assert_int_equal(running(), 0);
    assert_non_null(strstr(said, "another cloud's agrees with it"));
}

/* A Date of the past, such as that of an old reply: nothing is destroyed early, and gc fails until the clocks agree. */
static void test_a_date_of_the_past(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    assert_int_equal(launch(f, &err), 0);
    struct stack s = {0};
    stack_copy(&s, &f->run->stack);
    s.expires_s = clock_wall_s() - 60;
    assert_int_equal(journal_stack_put(f->e->journal, &s, NULL, &err), 0);
    stack_clear(&s);
    for (size_t i = 0; i < cloud.things.list.len; i++) cloud.things.list.items[i].expires_s = clock_wall_s() - 60;
    gc_at(f, -5 * H, 0, GP_EBILLED, &err);
    assert_int_equal(running(), 2);
    assert_non_null(strstr(err.msg, "5h behind this machine's"));
    gc_at(f, -300, 0, GP_OK, &err); /* the same minute, nearly: the cloud's clock counts */
    assert_int_equal(running(), 2);
    gc_at(f, 300, 0, GP_OK, &err);
    assert_int_equal(running(), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_choice),
        cmocka_unit_test_setup_teardown(test_a_date_of_the_future, setup, finish),
        cmocka_unit_test_setup_teardown(test_a_date_of_the_past, setup, finish),
    };
    return cmocka_run_group_tests_name("engine gc clock", tests, NULL, NULL);
}
