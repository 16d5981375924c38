// SPDX-License-Identifier: Apache-2.0
/* EC2's error codes: by code only, both XML forms, JSON, one line without end or secret. */
#include "base/gp_base.h"

#include "base/str.h"
#include "providers/aws/errors.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static void test_scopes(void **state) {
    (void)state;
    static const struct {
        const char *code;
        enum gp_code gp;
        enum gp_scope scope;
        enum cloud_class class;
    } want[] = {
        {"InsufficientInstanceCapacity", GP_ECAPACITY, GP_SCOPE_ZONE, CLOUD_NO},
        {"SpotMaxPriceTooLow", GP_ECAPACITY, GP_SCOPE_ZONE, CLOUD_NO},
        {"InsufficientFreeAddressesInSubnet", GP_ECAPACITY, GP_SCOPE_ZONE, CLOUD_NO},
        {"Unsupported", GP_EUSAGE, GP_SCOPE_ZONE, CLOUD_NO},
        {"VcpuLimitExceeded", GP_EQUOTA, GP_SCOPE_REGION, CLOUD_NO},
        {"PendingVerification", GP_EQUOTA, GP_SCOPE_REGION, CLOUD_NO},
        {"UnauthorizedOperation", GP_EAUTH, GP_SCOPE_PROVIDER, CLOUD_NO},
        {"AuthFailure", GP_EAUTH, GP_SCOPE_PROVIDER, CLOUD_NO},
        {"AuthFailure.Whatever", GP_EAUTH, GP_SCOPE_PROVIDER, CLOUD_NO},
        {"AuthFailure.ServiceLinkedRoleCreationNotPermitted", GP_EAUTH, GP_SCOPE_OFFER, CLOUD_NO},
        {"InvalidAMIID.NotFound", GP_EUSAGE, GP_SCOPE_OFFER, CLOUD_NO},
        {"RequestLimitExceeded", GP_ETHROTTLED, GP_SCOPE_REGION, CLOUD_SLOW},
        {"Throttling", GP_ETHROTTLED, GP_SCOPE_REGION, CLOUD_SLOW},
        {"InternalError", GP_EPROTO, GP_SCOPE_REGION, CLOUD_TROUBLE},
        {"ServiceUnavailable", GP_EPROTO, GP_SCOPE_REGION, CLOUD_TROUBLE},
        {"ExpiredToken", GP_EAUTH, GP_SCOPE_PROVIDER, CLOUD_STALE},
        {"RequestExpired", GP_EAUTH, GP_SCOPE_PROVIDER, CLOUD_CLOCK},
        {"InvalidInstanceID.NotFound", GP_ENOTFOUND, GP_SCOPE_NONE, CLOUD_NO},
        {"InvalidGroup.Duplicate", GP_EEXISTS, GP_SCOPE_NONE, CLOUD_NO},
        {"DependencyViolation", GP_EEXISTS, GP_SCOPE_NONE, CLOUD_NO},
        {"NeverHeardOf", GP_EPROTO, GP_SCOPE_OFFER, CLOUD_NO},
        {"InsufficientInstanceCapacityX", GP_EPROTO, GP_SCOPE_OFFER, CLOUD_NO},
    };
    for (size_t i = 0; i < GP_ARRAY_LEN(want); i++) {
        const struct cloud_error *row = aws_error_row(want[i].code);
        if (row->gp != want[i].gp || row->scope != want[i].scope || row->class != want[i].class)
            fail_msg("%s", want[i].code);
    }
}

static bool said(const char *text, struct xml_node **root, struct cloud_said *s) {
    *s = (struct cloud_said){"", "", ""};
    assert_int_equal(xml_parse(text, strlen(text), "test", root, NULL), 0);
    return aws_said_xml(*root, s);
}

static void test_xml_forms(void **state) {
    (void)state;
    static const char *const forms[] = {
        "<Response><Errors><Error><Code>C</Code><Message>m</Message></Error></Errors>"
        "<RequestID>r</RequestID></Response>",
        "<ErrorResponse><Errors><Error><Code>C</Code><Message>m</Message></Error></Errors>"
        "<RequestID>r</RequestID></ErrorResponse>",
        "<ErrorResponse xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\"><Error><Type>Sender</Type>"
        "<Code>C</Code><Message>m</Message></Error><RequestId>r</RequestId></ErrorResponse>",
    };
    for (size_t i = 0; i < GP_ARRAY_LEN(forms); i++) {
        GP_AUTO_XML struct xml_node *root = NULL;
        struct cloud_said s;
        assert_true(said(forms[i], &root, &s));
        assert_string_equal(s.code, "C");
        assert_string_equal(s.message, "m");
        assert_string_equal(s.request_id, "r");
    }
    static const char *const none[] = {
        ("<DescribeInstancesResponse><Errors><Error><Code>C</Code></Error></Errors>"
         "</DescribeInstancesResponse>"),
        "<Response><Errors/></Response>",
        "<html><body>500</body></html>",
        "<Response/>",
        "<Response><Errors><Error><Code></Code></Error></Errors></Response>",
    };
    for (size_t i = 0; i < GP_ARRAY_LEN(none); i++) {
        GP_AUTO_XML struct xml_node *root = NULL;
        struct cloud_said s;
        assert_false(said(none[i], &root, &s));
    }
}

static void test_json_form(void **state) {
    (void)state;
    struct cloud_said s = {"", "", ""};
    GP_AUTO_JSON json_t *j =
        json_pack("{s:s,s:s}", "__type", "com.amazonaws.servicequotas#NoSuchResourceException", "message", "none");
    assert_true(aws_said_json(j, &s));
    assert_string_equal(s.code, "NoSuchResourceException");
    assert_string_equal(s.message, "none");
    GP_AUTO_JSON json_t *fine = json_pack("{s:{s:i}}", "Quota", "Value", 4);
    assert_false(aws_said_json(fine, &s));
}

static void test_message(void **state) {
    (void)state;
    char long_text[4000];
    memset(long_text, 'x', sizeof long_text - 1);
    long_text[sizeof long_text - 1] = '\0';
    struct gp_error e = {0};
    struct cloud_said s = {"UnauthorizedOperation", long_text, "req-1"};
    assert_int_equal(cloud_fail(&e, "ec2 RunInstances in us-east-1", &s, aws_error_row(s.code)), -GP_EAUTH);
    assert_non_null(strstr(e.msg, "--policy"));
    assert_non_null(strstr(e.msg, "req-1"));
    assert_string_equal(e.detail, "UnauthorizedOperation");
    assert_int_equal(e.domain, GP_D_CLOUD);
    struct gp_error two = {0};
    struct cloud_said lines = {"RequestLimitExceeded", "Request limit\nexceeded.", ""};
    assert_int_equal(cloud_fail(&two, "x", &lines, aws_error_row(lines.code)), -GP_ETHROTTLED);
    assert_null(strchr(two.msg, '\n'));
    assert_true(two.retryable);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_scopes),
        cmocka_unit_test(test_xml_forms),
        cmocka_unit_test(test_json_form),
        cmocka_unit_test(test_message),
    };
    return cmocka_run_group_tests_name("aws errors", tests, NULL, NULL);
}
