/* SPDX-License-Identifier: Apache-2.0 */
/* The limits of transfers with a bucket, without a store: the watch is called as HTTP calls it. */
#include "base/gp_base.h"

#include "engine/transfer/bucket_pace.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

/* A pace with a bucket that was opened. */
static void begin(struct bucket_pace *p, struct bucket *b, int64_t limit_ms) {
    *b = (struct bucket){0};
    bucket_pace_init(p, limit_ms);
    p->b = b;
}

static enum http_wait wait_s(struct bucket_pace *p, int64_t s, uint64_t moved) {
    return p->watch.waited(p->watch.ctx, s * 1000, moved);
}

static void a_store_without_progress_is_tried_three_times(void **state) {
    (void)state;
    struct bucket_pace p;
    struct bucket b;
    struct gp_error err = {0};
    begin(&p, &b, 0);
    assert_int_equal(wait_s(&p, 119, 0), HTTP_WAIT_ON);
    assert_int_equal(wait_s(&p, 1, 0), HTTP_WAIT_AGAIN);
    assert_int_equal(wait_s(&p, 120, 1000000), HTTP_WAIT_AGAIN); /* of a request that moves no content */
    assert_int_equal(wait_s(&p, 120, 0), HTTP_WAIT_OVER);
    assert_int_equal(wait_s(&p, 0, 0), HTTP_WAIT_OVER);
    assert_int_equal(bucket_pace_end(&p, "s3://b/p", -GP_EAUTH, &err), -GP_ETIMEOUT);
    assert_non_null(strstr(err.msg, "'s3://b/p': the store makes no progress (3 times less than 60 kB in 120 s)"));
}

static void content_that_is_sent_again_is_no_progress(void **state) {
    (void)state;
    struct bucket_pace p;
    struct bucket b;
    int64_t s = 0;
    begin(&p, &b, 0);
    for (int i = 0; i < 100; i++) { /* 500 bytes a second */
        bucket_moves(&b, 0, 1000000);
        assert_int_equal(wait_s(&p, 1, (uint64_t)(i + 1) * 500), HTTP_WAIT_ON);
    }
    while (wait_s(&p, 10, 50000) != HTTP_WAIT_OVER) s += 10;
    assert_true(s >= 350 && s < 370);
    begin(&p, &b, 0);
    for (s = 0; s < 100000; s++) { /* a part of 16 MiB each second, of which the store keeps a byte */
        bucket_moves(&b, (uint64_t)s, BUCKET_PART);
        if (wait_s(&p, 1, BUCKET_PART) == HTTP_WAIT_OVER) break;
    }
    assert_true(s < 1000);
}

static void what_moves_is_never_cut(void **state) {
    (void)state;
    struct bucket_pace p;
    struct bucket b;
    begin(&p, &b, 0);
    for (int i = 0; i < 20000; i++) { /* 32 kB a second, object after object */
        bucket_moves(&b, 0, 100000);
        assert_int_equal(wait_s(&p, 2, 64000), HTTP_WAIT_ON);
        bucket_moved(&b, 64000);
        bucket_pace_object(&p);
    }
    for (int i = 0; i < 20000; i++) { /* small ones */
        assert_int_equal(wait_s(&p, 1, 0), HTTP_WAIT_ON);
        bucket_pace_object(&p);
    }
    assert_int_equal(bucket_pace_end(&p, "s3://b/p", -GP_EAUTH, NULL), -GP_EAUTH);
}

static void a_list_that_only_grows_has_an_end(void **state) {
    (void)state;
    struct bucket_pace p;
    struct bucket b;
    struct gp_error err = {0};
    int64_t s = 0;
    begin(&p, &b, 0);
    for (; s < 100000 && wait_s(&p, 2, 1000000) == HTTP_WAIT_ON; s += 2) b.so_far.keys++;
    assert_true(s >= 3600 && s < 3700);
    assert_int_equal(bucket_pace_end(&p, "s3://b/p", -GP_ELOST, &err), -GP_ETIMEOUT);
    assert_non_null(strstr(err.msg, "did not finish in time"));
}

static void a_limit_is_for_all(void **state) {
    (void)state;
    struct bucket_pace p;
    struct bucket b;
    struct bucket *none = NULL;
    struct gp_error err = {0};
    begin(&p, &b, 100);
    b.so_far.keys = 1000;
    assert_int_equal(wait_s(&p, 100, 0), HTTP_WAIT_ON);
    assert_int_equal(gp_sleep(150, NULL, NULL), 0);
    b.so_far.keys = 1000000;
    assert_int_equal(wait_s(&p, 0, 0), HTTP_WAIT_OVER);
    assert_int_equal(bucket_pace_end(&p, "s3://b/p", -GP_ETIMEOUT, &err), -GP_ETIMEOUT);
    assert_non_null(strstr(err.msg, "'s3://b/p': the store did not finish within "));
    assert_int_equal(bucket_pace_open(&p, "azure://b", NULL, &none, NULL), -GP_EUSAGE);
    assert_int_equal(wait_s(&p, 0, 0), HTTP_WAIT_OVER);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_store_without_progress_is_tried_three_times),
        cmocka_unit_test(content_that_is_sent_again_is_no_progress),
        cmocka_unit_test(what_moves_is_never_cut),
        cmocka_unit_test(a_list_that_only_grows_has_an_end),
        cmocka_unit_test(a_limit_is_for_all),
    };
    return cmocka_run_group_tests_name("bucket_pace", tests, NULL, NULL);
}
