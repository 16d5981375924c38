/* SPDX-License-Identifier: Apache-2.0 */
/* The networks that may open SSH: those of the offers of a region, of the stack, and this controller's own address,
 * which a real server returns. */
#include "base/gp_base.h"

#include "providers/common/ssh_from.h"

#include "http_server.h"
#include "spec_fixture.h"

struct world {
    struct http *http;
    struct spec *spec;
    char *cidr; /* the address once it was read */
    struct strv from;
    struct gp_error err;
};

static void set_up(struct world *w, const char *offers) {
    GP_AUTO_FREE char *text = xasprintf("name: t\ngpu: A10\noffers: [%s]\n", offers);
    *w = (struct world){.spec = good(text)};
    assert_int_equal(http_open(&(struct http_options){.backoff_min_ms = 1}, &w->http, NULL), 0);
}

static void tear_down(struct world *w) {
    http_close(w->http);
    spec_free(w->spec);
    free(w->cidr);
    strv_clear(&w->from);
    unsetenv("GPUPROV_CHECKIP_URL");
}

static int read_it(struct world *w, const char *region, const char *home) {
    struct ssh_from f = {w->http, w->spec, "aws", region, home, &w->cidr};
    strv_clear(&w->from);
    w->from = (struct strv){0};
    gp_error_clear(&w->err);
    return ssh_from_read(&f, &w->from, &w->err);
}

/* path: of the server that returns this controller's address. */
static void own_address(const char *path) {
    GP_AUTO_FREE char *url = xasprintf("%s/%s", plain, path);
    setenv("GPUPROV_CHECKIP_URL", url, 1);
}

static void assert_networks(const struct world *w, const char *text) {
    GP_AUTO_FREE char *have = strv_join(&w->from, " ");
    assert_string_equal(have, text);
}

static void test_offers_of_the_region(void **state) {
    struct world w;
    (void)state;
    own_address("status?500"); /* it is not asked for */
    set_up(&w, "{provider: aws, regions: [us-east-1], ssh_from: [192.0.2.0/24, 198.51.100.0/24]}, "
               "{provider: aws, regions: [us-east-1, us-west-2], ssh_from: [192.0.2.0/24]}, "
               "{provider: aws, ssh_from: [203.0.113.0/24]}, "
               "{provider: google, regions: [us-east-1], ssh_from: [10.0.0.0/8]}");
    assert_int_equal(read_it(&w, "us-east-1", "eu-west-1"), 0);
    assert_networks(&w, "192.0.2.0/24 198.51.100.0/24");
    assert_int_equal(read_it(&w, "us-west-2", NULL), 0);
    assert_networks(&w, "192.0.2.0/24");
    assert_int_equal(read_it(&w, "eu-west-1", "eu-west-1"), 0);
    assert_networks(&w, "203.0.113.0/24");
    assert_int_equal(read_it(&w, NULL, NULL), 0);
    assert_networks(&w, "192.0.2.0/24 198.51.100.0/24 203.0.113.0/24");
    tear_down(&w);
}

static void test_own_address(void **state) {
    struct world w;
    (void)state;
    own_address("text?192.0.2.7");
    set_up(&w, "{provider: aws, regions: [us-east-1], ssh_from: [198.51.100.0/24]}, "
               "{provider: aws, regions: [us-east-1]}");
    assert_int_equal(read_it(&w, "us-east-1", NULL), 0);
    assert_networks(&w, "198.51.100.0/24 192.0.2.7/32");
    own_address("status?500"); /* it was read, and is not read again */
    assert_int_equal(read_it(&w, "us-east-1", NULL), 0);
    assert_networks(&w, "198.51.100.0/24 192.0.2.7/32");
    assert_int_equal(read_it(&w, "eu-west-1", NULL), 0); /* no offer: the stack's, which are none */
    assert_networks(&w, "192.0.2.7/32");
    tear_down(&w);
    own_address("text?2001:db8::7");
    set_up(&w, "{provider: aws}");
    assert_int_equal(read_it(&w, "eu-west-1", "eu-west-1"), 0);
    assert_networks(&w, "2001:db8::7/128");
    tear_down(&w);
}

static void test_malformed_address(void **state) {
    static const char *const replies[] = {"text?hello", "text?192.0.2.0/0", "text?", "status?404"};
    struct world w;
    (void)state;
    set_up(&w, "{provider: aws}");
    for (size_t i = 0; i < GP_ARRAY_LEN(replies); i++) {
        own_address(replies[i]);
        assert_int_equal(read_it(&w, NULL, NULL), -GP_EENV);
        assert_non_null(strstr(w.err.msg, "did not return this controller's public address"));
        assert_non_null(strstr(w.err.msg, "set access.ssh_from"));
        assert_null(w.cidr);
    }
    tear_down(&w);
}

static void test_forms_of_a_network(void **state) {
    static const struct {
        const char *x, *y;
        bool same;
    } rows[] = {
        {"192.0.2.7/32", "192.0.2.7", true},
        {"192.0.2.7/24", "192.0.2.0/24", true},
        {"192.0.2.0/24", "192.0.2.0/25", false},
        {"192.0.2.0/24", "192.0.3.0/24", false},
        {"2001:DB8:0::/32", "2001:db8::/32", true},
        {"2001:db8::1", "2001:db8::1/128", true},
        {"0.0.0.0/0", "::/0", false},
        {"pl-1", "pl-1", true},
        {"192.0.2.0/33", "192.0.2.0/33", true},
        {"192.0.2.0/33", "192.0.2.0/32", false},
    };
    (void)state;
    for (size_t i = 0; i < GP_ARRAY_LEN(rows); i++)
        if (ssh_from_same(rows[i].x, rows[i].y) != rows[i].same) fail_msg("%s and %s", rows[i].x, rows[i].y);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_offers_of_the_region),
        cmocka_unit_test(test_own_address),
        cmocka_unit_test(test_malformed_address),
        cmocka_unit_test(test_forms_of_a_network),
    };
    return cmocka_run_group_tests(tests, start_server, stop_server);
}
