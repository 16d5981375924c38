// SPDX-License-Identifier: Apache-2.0
/* Object stores: URLs, foreign keys, addresses of S3, the sizes of parts. What needs a store is in
 * tests/e2e/jobs/test_bucket.py. */
#include "base/gp_base.h"

#include "providers/aws/s3/s3_int.h"
#include "providers/bucket/bucket.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static void each_scheme_has_an_implementation(void **state) {
    (void)state;
    size_t n = 0;
    for (; bucket_url_schemes[n] != NULL; n++) {
        size_t rows = 0;
        for (size_t k = 0; bucket_registry[k] != NULL; k++)
            rows += strcmp(bucket_registry[k]->scheme, bucket_url_schemes[n]) == 0;
        assert_int_equal(rows, 1);
    }
    assert_true(n > 0);
    assert_null(bucket_registry[n]);
}

static void urls(void **state) {
    (void)state;
    static const struct {
        const char *text, *name, *prefix; /* name NULL: refused */
    } cases[] = {
        {"s3://abc", "abc", ""},
        {"s3://a.b-c/", "a.b-c", ""},
        {"s3://abc/runs/1//", "abc", "runs/1"},
        {"s3://abc/A_b.c+d@e=f,g:h~i-j", "abc", "A_b.c+d@e=f,g:h~i-j"},
        {"s3://ab", NULL, NULL},
        {"s3://", NULL, NULL},
        {"s3:///x", NULL, NULL},
        {"s3://-abc", NULL, NULL},
        {"s3://abc-", NULL, NULL},
        {"s3://a..b", NULL, NULL},
        {"s3://Abc", NULL, NULL},
        {"s3://ab_c", NULL, NULL},
        {"s3://user@abc", NULL, NULL},
        {"s3://abc:443/x", NULL, NULL},
        {"s3://abc//x", NULL, NULL},
        {"s3://abc/x//y", NULL, NULL},
        {"s3://abc/../y", NULL, NULL},
        {"s3://abc/x/.", NULL, NULL},
        {"s3://abc/x y", NULL, NULL},
        {"s3://abc/x%2fy", NULL, NULL},
        {"s3://abc/x?y", NULL, NULL},
        {"s3://abc/x\n", NULL, NULL},
        {"gs://ab_c/x", "ab_c", "x"},
        {"gs://abc/x/../y", NULL, NULL},
        {"gs:/abc", NULL, NULL},
        {"gs://", NULL, NULL},
        {"S3://abc", NULL, NULL},
        {"ftp://abc", NULL, NULL},
        {"://abc", NULL, NULL},
    };
    for (size_t i = 0; i < GP_ARRAY_LEN(cases); i++) {
        GP_AUTO_BUCKET_URL struct bucket_url b = {0};
        struct gp_error err = {0};
        int r = bucket_url_decode(cases[i].text, &b, &err);
        if (r != (cases[i].name != NULL ? 0 : -GP_EUSAGE)) fail_msg("'%s': %d %s", cases[i].text, r, err.msg);
        if (r != 0) continue;
        assert_string_equal(b.name, cases[i].name);
        assert_string_equal(b.prefix, cases[i].prefix);
    }
    struct gp_error err = {0};
    struct bucket *none = NULL;
    assert_int_equal(bucket_open("azure://abc/x", NULL, NULL, &none, &err), -GP_EUSAGE);
    assert_non_null(strstr(err.msg, "s3://"));
    assert_false(bucket_url_is("./a/b") || bucket_url_is("/x:y") || bucket_url_is(NULL));
}

static void add(struct bucket_objects *o, const char *prefix, const char *key, size_t n) {
    char text[100];
    struct bucket b = {0};
    str_put(text, sizeof text, prefix);
    b.prefix = text;
    assert_int_equal(bucket_objects_add(&b, o, key, n, 1, NULL, NULL), 0);
}

static void foreign_keys(void **state) {
    (void)state;
    char long_name[300];
    memset(long_name, 'n', sizeof long_name);
    static const struct {
        const char *key;
        size_t n; /* 0: its length */
        const char *path;
    } cases[] = {
        {"p/a", 0, "a"},
        {"p/a/b c/é", 0, "a/b c/é"},
        {"p/..a/b..", 0, "..a/b.."},
        {"p/a\\b", 0, "a\\b"},
        {"p/%2e%2e/x", 0, "%2e%2e/x"},
        {"p/.gpuprovignore", 0, ".gpuprovignore"},
        {"p/../x", 0, NULL},
        {"p/..", 0, NULL},
        {"p/a/../../x", 0, NULL},
        {"p/./x", 0, NULL},
        {"p//x", 0, NULL},
        {"p//etc/passwd", 0, NULL},
        {"p/x//y", 0, NULL},
        {"p/x/", 0, NULL}, /* with content it is no folder of a console */
        {"p/a\nb", 0, NULL},
        {"p/a\x1b[1m", 0, NULL},
        {"p/a\x7f", 0, NULL},
        {"p/a\xc2\x85", 0, NULL},
        {"p/a\xff", 0, NULL},
        {"p/a\xc3", 0, NULL},
        {"p/a\0b", 5, NULL},
        {"p/.gpuprov-part.1", 0, NULL},
        {"p/x/.gpuprov-check", 0, NULL},
        {"p", 0, NULL},
        {"p/", 0, NULL},
        {"pa", 0, NULL},
        {"pp/a", 0, NULL},
        {"/p/a", 0, NULL},
        {"", 0, NULL},
    };
    for (size_t i = 0; i < GP_ARRAY_LEN(cases); i++) {
        GP_AUTO_BUCKET_OBJECTS struct bucket_objects o = {0};
        add(&o, "p", cases[i].key, cases[i].n > 0 ? cases[i].n : strlen(cases[i].key));
        if (o.list.len != (cases[i].path != NULL) || o.left_out != (cases[i].path == NULL))
            fail_msg("'%s'", cases[i].key);
        if (cases[i].path != NULL) assert_string_equal(o.list.items[0].path, cases[i].path);
    }
    GP_AUTO_BUCKET_OBJECTS struct bucket_objects o = {0};
    add(&o, "", long_name, 255);
    add(&o, "", long_name, 256);
    add(&o, "", "b", 1);
    add(&o, "", "a", 1);
    add(&o, "", "b", 1);
    assert_int_equal(o.left_out, 1);
    bucket_objects_sort(&o);
    assert_int_equal(o.list.len, 3);
    assert_string_equal(o.list.items[0].path, "a");
    assert_non_null(bucket_objects_find(&o, "b"));
    assert_null(bucket_objects_find(&o, "c"));
}

static void folders_of_a_console_are_nothing(void **state) {
    (void)state;
    GP_AUTO_BUCKET_OBJECTS struct bucket_objects o = {0};
    char none[] = "";
    const struct bucket b = {.prefix = none};
    assert_int_equal(bucket_objects_add(&b, &o, "x/", 2, 0, NULL, NULL), 0);
    assert_int_equal(o.list.len + o.left_out, 0);
    static const char hash[] = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
    assert_int_equal(bucket_objects_add(&b, &o, "x", 1, 0, hash, NULL), 0);
    assert_int_equal(bucket_objects_add(&b, &o, "y", 1, 0, "0123456789ABCDEF", NULL), 0);
    assert_string_equal(o.list.items[0].sha256, hash);
    assert_string_equal(o.list.items[1].sha256, "");
}

static void a_list_has_a_limit(void **state) {
    (void)state;
    GP_AUTO_BUCKET_OBJECTS struct bucket_objects o = {0};
    char none[] = "", text[] = "s3://b/";
    const struct bucket b = {.prefix = none, .text = text};
    struct gp_error err = {0};
    char key[1000];
    memset(key, 'k', sizeof key);
    for (size_t i = 200; i < sizeof key; i += 200) key[i] = '/';
    int r = 0;
    for (size_t i = 0; r == 0 && i < 4000000; i++) r = bucket_objects_add(&b, &o, key, sizeof key, 1, NULL, &err);
    assert_int_equal(r, -GP_EPROTO);
    assert_non_null(strstr(err.msg, "'s3://b/': its list of objects has more than 256 MiB, after 2"));
}

/* A page with one key, and the token of the next page. */
static int page(struct bucket_pages *p, struct bucket_objects *o, const char *key, const char *next,
                struct gp_error *err) {
    char none[] = "", text[] = "s3://b/p";
    struct bucket b = {.prefix = none, .text = text};
    if (key != NULL) assert_int_equal(bucket_objects_add(&b, o, key, strlen(key), 1, NULL, NULL), 0);
    return bucket_pages_next(&b, p, o, next, err);
}

static void pages_bring_new_keys(void **state) {
    (void)state;
    GP_AUTO_BUCKET_OBJECTS struct bucket_objects o = {0};
    GP_AUTO_BUCKET_PAGES struct bucket_pages p = {0};
    struct gp_error err = {0};
    char key[20], token[20];
    for (int i = 0; i < 5000; i++) { /* in any order */
        snprintf(key, sizeof key, "k%d", 5000 - i);
        snprintf(token, sizeof token, "t%d", i);
        assert_int_equal(page(&p, &o, key, token, &err), 0);
        assert_string_equal(p.token, token);
    }
    assert_int_equal(page(&p, &o, "k17", "new", &err), -GP_EPROTO);
    assert_non_null(strstr(err.msg, "'s3://b/p': the store repeats a page"));
}

static void pages_have_no_circle(void **state) {
    (void)state;
    for (int length = 1; length < 40; length++) {
        GP_AUTO_BUCKET_OBJECTS struct bucket_objects o = {0};
        GP_AUTO_BUCKET_PAGES struct bucket_pages p = {0};
        struct gp_error err = {0};
        char key[20], token[20];
        int n = 0, r = 0;
        for (; r == 0 && n < 1000; n++) {
            snprintf(key, sizeof key, "k%d", n);
            snprintf(token, sizeof token, "t%d", n % length);
            r = page(&p, &o, key, token, &err);
        }
        assert_int_equal(r, -GP_EPROTO);
        assert_true(n <= 3 * length + 3);
    }
}

static void pages_end(void **state) {
    (void)state;
    GP_AUTO_BUCKET_OBJECTS struct bucket_objects o = {0};
    GP_AUTO_BUCKET_PAGES struct bucket_pages p = {0};
    struct gp_error err = {0};
    char token[20];
    int n = 0;
    assert_int_equal(page(&p, &o, "b", "a", &err), 0);
    assert_int_equal(page(&p, &o, NULL, "x", &err), 0); /* versions that were removed */
    assert_int_equal(page(&p, &o, "..", "y", &err), 0); /* a key that is left out */
    assert_int_equal(page(&p, &o, "a", NULL, &err), 0);
    assert_null(p.token);
    assert_int_equal(o.list.len, 2);
    assert_string_equal(o.list.items[0].path, "a");
    bucket_pages_clear(&p);
    bucket_objects_clear(&o);
    do snprintf(token, sizeof token, "t%d", n);
    while (page(&p, &o, NULL, token, &err) == 0 && ++n < 1000);
    assert_int_equal(n, 100);
    assert_non_null(strstr(err.msg, "more than 100 empty pages"));
}

/* --- keys that somebody chose: FNV-1a, the hash that most take, has equal bits 7..25 for all of them --- */

enum { CHOSEN = 200000, PAGE = 1000, HALF = 1 << 18, STATE = (1 << 26) - 1 };

/* Three or four characters of 6 bits of i. */
static void letters(uint32_t i, int n, char *dst) {
    static const char of[] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_";
    for (int k = 0; k < n; k++) dst[k] = of[(i >> (6 * k)) & 63];
    dst[n] = '\0';
}

struct half {
    uint32_t state, i;
};

static int by_state(const void *a, const void *b) {
    const struct half *x = a, *y = b;
    return (x->state > y->state) - (x->state < y->state);
}

/* The low 26 bits of FNV-1a after the first three characters, sorted. */
static struct half *begin_all(void) {
    struct half *all = xcalloc(HALF, sizeof *all);
    for (uint32_t i = 0; i < HALF; i++) {
        char s[4];
        uint64_t h = 0xcbf29ce484222325U;
        letters(i, 3, s);
        for (int k = 0; k < 3; k++) h = (h ^ (unsigned char)s[k]) * 0x100000001b3U;
        all[i] = (struct half){(uint32_t)h & STATE, i};
    }
    qsort(all, HALF, sizeof *all, by_state);
    return all;
}

/* Calls take(ctx, key) for CHOSEN keys: each end is followed back to the state from which it has the hash `low`. */
static void choose_keys(void (*take)(void *ctx, const char *key), void *ctx) {
    struct half *all = begin_all();
    bool *there = xcalloc(STATE + 1, sizeof *there); /* saves most searches */
    uint32_t inverse = 1;
    int n = 0;
    for (int i = 0; i < HALF; i++) there[all[i].state] = true;
    for (int i = 0; i < 6; i++) inverse *= 2 - 0x1b3U * inverse; /* of the prime's low 26 bits */
    for (uint32_t low = 0; low < 128 && n < CHOSEN; low++) {
        for (uint32_t end = 0; end < 1 << 24 && n < CHOSEN; end++) {
            char key[8], *tail = key + 3;
            struct half want = {low, 0};
            letters(end, 4, tail);
            for (int k = 3; k >= 0; k--) want.state = ((want.state * inverse) & STATE) ^ (unsigned char)tail[k];
            if (!there[want.state]) continue;
            const struct half *found = bsearch(&want, all, HALF, sizeof *all, by_state);
            if (found == NULL) continue;
            char first = tail[0];
            letters(found->i, 3, key);
            tail[0] = first;
            take(ctx, key);
            n++;
        }
    }
    free(there);
    free(all);
    assert_int_equal(n, CHOSEN);
}

struct listing {
    struct bucket_objects o;
    struct bucket_pages p;
    int n;
};

static void list_key(void *ctx, const char *key) {
    struct listing *l = ctx;
    char none[] = "", text[] = "s3://b/p", next[20];
    struct bucket b = {.prefix = none, .text = text};
    assert_int_equal(bucket_objects_add(&b, &l->o, key, strlen(key), 1, NULL, NULL), 0);
    if (++l->n % PAGE != 0) return;
    snprintf(next, sizeof next, "t%d", l->n);
    assert_int_equal(bucket_pages_next(&b, &l->p, &l->o, next, NULL), 0);
    assert_int_equal(l->p.len, l->n);
    assert_true(l->p.looks < 16 * (uint64_t)l->n); /* else the time grows with the square of the number */
}

static void chosen_keys_cost_no_more_than_others(void **state) {
    (void)state;
    struct listing l = {0};
    choose_keys(list_key, &l);
    bucket_pages_clear(&l.p);
    bucket_objects_clear(&l.o);
}

static enum http_wait count_looks(void *ctx, int64_t waited_ms, uint64_t moved) {
    int *looks = ctx;
    assert_int_equal(waited_ms + (int64_t)moved, 0);
    return ++*looks < 2 ? HTTP_WAIT_AGAIN : HTTP_WAIT_OVER;
}

/* One page may have all keys of a list. */
static void a_long_page_ends_early(void **state) {
    (void)state;
    char none[] = "", text[] = "s3://b/p", key[20];
    int looks = 0;
    struct gp_cancel cancel = {.efd = -1};
    const struct http_watch watch = {count_looks, &looks};
    assert_int_equal(gp_cancel_init(&cancel, NULL), 0);
    for (int i = 0; i < 2; i++) {
        GP_AUTO_BUCKET_OBJECTS struct bucket_objects o = {0};
        GP_AUTO_BUCKET_PAGES struct bucket_pages p = {0};
        struct gp_error err = {0};
        struct bucket b = {.prefix = none, .text = text, .cancel = &cancel, .watch = &watch};
        for (int k = 0; k < 20000; k++) {
            snprintf(key, sizeof key, "k%d", k);
            assert_int_equal(bucket_objects_add(&b, &o, key, strlen(key), 1, NULL, NULL), 0);
        }
        assert_int_equal(bucket_pages_next(&b, &p, &o, "t", &err), i == 0 ? -GP_ETIMEOUT : -GP_ECANCELLED);
        assert_int_equal(looks, 2);
        assert_true(p.len < 10000);
        gp_cancel_set(&cancel);
    }
    gp_cancel_clear(&cancel);
}

static void parts(void **state) {
    (void)state;
    static const uint64_t sizes[] = {1, BUCKET_WHOLE_MAX + 1, (uint64_t)200 << 30, (uint64_t)5 << 40};
    for (size_t i = 0; i < GP_ARRAY_LEN(sizes); i++) {
        uint64_t part = bucket_part_size(sizes[i]);
        assert_true(part >= BUCKET_PART && (sizes[i] + part - 1) / part <= 9000 && part % ((uint64_t)1 << 20) == 0);
    }
    assert_true(bucket_part_size(BUCKET_WHOLE_MAX + 1) == BUCKET_PART);
}

static void crc32c_has_the_published_values(void **state) {
    (void)state;
    unsigned char zeros[32] = {0};
    assert_int_equal(bucket_crc32c(0, "123456789", 9), 0xe3069283);
    assert_int_equal(bucket_crc32c(0, zeros, sizeof zeros), 0x8a9136aa); /* RFC 3720, B.4 */
    assert_int_equal(bucket_crc32c(bucket_crc32c(0, "1234", 4), "56789", 5), 0xe3069283);
}

static void addresses_of_s3(void **state) {
    (void)state;
    static const struct {
        const char *bucket, *endpoint, *region, *key, *url, *host, *path;
    } cases[] = {
        {"abc", NULL, "eu-west-3", "a b/c+d", "https://abc.s3.eu-west-3.amazonaws.com/a%20b/c%2Bd",
         "abc.s3.eu-west-3.amazonaws.com", "/a b/c+d"},
        {"abc", NULL, "cn-north-1", NULL, "https://abc.s3.cn-north-1.amazonaws.com.cn/",
         "abc.s3.cn-north-1.amazonaws.com.cn", "/"},
        {"a.bc", NULL, "us-east-1", "k", "https://s3.us-east-1.amazonaws.com/a.bc/k", "s3.us-east-1.amazonaws.com",
         "/a.bc/k"},
        {"abc", "http://127.0.0.1:9000", "us-east-1", "k", "http://127.0.0.1:9000/abc/k", "127.0.0.1:9000", "/abc/k"},
        {"abc", "https://minio/base", "us-east-1", NULL, "https://minio/base/abc/", "minio", "/base/abc/"},
    };
    for (size_t i = 0; i < GP_ARRAY_LEN(cases); i++) {
        char bucket[20], region[20], endpoint[40], profile[] = "default";
        struct s3 s = {0};
        str_put(bucket, sizeof bucket, cases[i].bucket);
        str_put(region, sizeof region, cases[i].region);
        str_put(endpoint, sizeof endpoint, cases[i].endpoint != NULL ? cases[i].endpoint : "");
        s.base.name = bucket;
        s.a.cfg.profile = profile;
        s.region = region;
        s.endpoint = cases[i].endpoint != NULL ? endpoint : NULL;
        GP_AUTO_FREE char *url = NULL, *host = NULL, *path = NULL;
        assert_int_equal(s3_address(&s, cases[i].key, &url, &host, &path, NULL), 0);
        assert_string_equal(url, cases[i].url);
        assert_string_equal(host, cases[i].host);
        assert_string_equal(path, cases[i].path);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_scheme_has_an_implementation),
        cmocka_unit_test(urls),
        cmocka_unit_test(foreign_keys),
        cmocka_unit_test(folders_of_a_console_are_nothing),
        cmocka_unit_test(a_list_has_a_limit),
        cmocka_unit_test(pages_bring_new_keys),
        cmocka_unit_test(pages_have_no_circle),
        cmocka_unit_test(pages_end),
        cmocka_unit_test(chosen_keys_cost_no_more_than_others),
        cmocka_unit_test(a_long_page_ends_early),
        cmocka_unit_test(parts),
        cmocka_unit_test(crc32c_has_the_published_values),
        cmocka_unit_test(addresses_of_s3),
    };
    return cmocka_run_group_tests_name("bucket", tests, NULL, NULL);
}
