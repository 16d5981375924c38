/* SPDX-License-Identifier: Apache-2.0 */
/* XML as EC2 sends it, and what must never be read. */
#include "base/gp_base.h"

#include "base/str.h"
#include "base/xml.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static void reads_a_reply(void **state) {
    (void)state;
    const char *text = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
                       "<DescribeInstancesResponse xmlns=\"http://ec2.amazonaws.com/doc/2016-11-15/\">\n"
                       "  <reservationSet>\n    <item><empty/></item>\n"
                       "    <item><instancesSet><item><instanceId>i-1</instanceId>"
                       "<name>a &lt;b&gt; &amp; &#67;<!-- no --><![CDATA[<d>]]></name><blank> </blank></item>\n"
                       "<item><instanceId>i-2</instanceId></item></instancesSet></item>\n"
                       "  </reservationSet>\n</DescribeInstancesResponse>\n";
    GP_AUTO_XML struct xml_node *root = NULL;
    struct gp_error err = {0};
    assert_int_equal(xml_parse(text, strlen(text), "the reply", &root, &err), 0);
    assert_string_equal(root->name, "DescribeInstancesResponse");
    assert_string_equal(root->text, ""); /* only white space between elements */
    assert_int_equal(root->children.len, 1);
    /* the path is found although the first item leads nowhere */
    const struct xml_node *set = xml_find(root, "reservationSet/item/instancesSet");
    assert_non_null(set);
    assert_int_equal(set->children.len, 2);
    assert_string_equal(xml_str(set->children.items[1], "instanceId", ""), "i-2");
    assert_string_equal(xml_str(set, "item/name", ""), "a <b> & C<d>");
    assert_string_equal(xml_str(set, "item/blank", ""), " ");
    assert_string_equal(xml_str(root, "reservationSet/item/empty", "x"), "");
    assert_string_equal(xml_str(root, "reservationSet/none", "x"), "x");
    assert_null(xml_find(root, "reservationSe"));
    assert_null(xml_find(root, ""));
    assert_null(xml_find(NULL, "a"));
    assert_ptr_equal(set->children.items[0]->parent, set);
}

static void refuses(void **state) {
    (void)state;
    static const struct {
        const char *text, *part;
    } rows[] = {
        {"", "no element found"},
        {"<a><b>", "line 1, column 7: no element found"},
        {"<a></b>", "mismatched tag"},
        {"<a/><b/>", "junk after document element"},
        {"{\"message\": 1}", "not well-formed"},
        {"<a>&x;</a>", "undefined entity"},
        {"<!DOCTYPE a><a/>", "it has a DOCTYPE"},
        {"<!DOCTYPE a [<!ENTITY x SYSTEM \"file:///etc/passwd\">]><a>&x;</a>", "it has a DOCTYPE"},
        {"<a>\xff</a>", "not well-formed"},
        {"<a b='1' b='2'/>", "duplicate attribute"},
    };
    for (size_t i = 0; i < GP_ARRAY_LEN(rows); i++) {
        struct xml_node *root = NULL;
        struct gp_error err = {0};
        assert_int_equal(xml_parse(rows[i].text, strlen(rows[i].text), "the reply of X", &root, &err), -GP_EPROTO);
        assert_null(root);
        if (!str_starts(err.msg, "the reply of X is not usable XML: line ") || strstr(err.msg, rows[i].part) == NULL)
            fail_msg("'%s' has no '%s'", err.msg, rows[i].part);
    }
    struct xml_node *root = NULL;
    struct gp_error err = {0};
    assert_int_equal(xml_parse("<a>x\0y</a>", 10, "r", &root, &err), -GP_EPROTO);
}

static void depth(void **state) {
    (void)state;
    for (int deep = 64; deep <= 65; deep++) {
        GP_AUTO_STR struct str text = {0};
        for (int i = 0; i < deep; i++) str_add(&text, "<a>");
        for (int i = 0; i < deep; i++) str_add(&text, "</a>");
        GP_AUTO_XML struct xml_node *root = NULL;
        struct gp_error err = {0};
        int r = xml_parse(text.s, text.len, "r", &root, &err);
        assert_int_equal(r, deep == 64 ? 0 : -GP_EPROTO);
        if (r != 0) assert_non_null(strstr(err.msg, "nested too deeply"));
    }
}

/* Every prefix of a reply: a connection can be lost anywhere. */
static void every_truncation(void **state) {
    (void)state;
    const char *text = "<?xml version='1.0'?><R><Errors><Error><Code>X</Code></Error></Errors></R>";
    for (size_t n = 0; n < strlen(text); n++) {
        struct xml_node *root = NULL;
        struct gp_error err = {0};
        assert_int_equal(xml_parse(text, n, "r", &root, &err), -GP_EPROTO);
        assert_null(root);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_a_reply),
        cmocka_unit_test(refuses),
        cmocka_unit_test(depth),
        cmocka_unit_test(every_truncation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
