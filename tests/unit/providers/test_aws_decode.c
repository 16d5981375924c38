// SPDX-License-Identifier: Apache-2.0
/* From EC2's XML and names to our data: instances, tags, GPU names, quotas, group names, bodies. */
#include "base/gp_base.h"

#include "providers/aws/aws.h"
#include "providers/aws/aws_int.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static const char instance[] =
    "<item><instanceId>i-0123456789abcdef0</instanceId><instanceState><code>16</code><name>running</name>"
    "</instanceState><amiLaunchIndex>2</amiLaunchIndex><instanceType>p5.48xlarge</instanceType>"
    "<launchTime>2026-11-21T05:00:00.000Z</launchTime><placement><availabilityZone>us-east-1a"
    "</availabilityZone></placement><privateIpAddress>10.0.0.4</privateIpAddress>"
    "<ipAddress>203.0.113.9</ipAddress><tagSet>"
    "<item><key>Name</key><value>x</value></item>"
    "<item><key>gpuprov:owner</key><value>me@you</value></item>"
    "<item><key>gpuprov:stack</key><value>llm</value></item>"
    "<item><key>gpuprov:uid</key><value>0123456789abcdef</value></item>"
    "<item><key>gpuprov:slots</key><value>4+8</value></item>"
    "<item><key>gpuprov:attempt</key><value>3</value></item>"
    "<item><key>gpuprov:expires</key><value>2026-11-21T10:00:00Z</value></item>"
    "</tagSet></item>";

static void read_one(const char *text, struct resource *r) {
    GP_AUTO_XML struct xml_node *root = NULL;
    assert_int_equal(xml_parse(text, strlen(text), "test", &root, NULL), 0);
    struct gp_error err = {0};
    assert_int_equal(aws_instance_read(root, "us-east-1", r, &err), 0);
}

static void test_instance(void **state) {
    (void)state;
    struct resource r;
    read_one(instance, &r);
    assert_string_equal(r.id, "i-0123456789abcdef0");
    assert_string_equal(r.owner, "me@you");
    assert_string_equal(r.zone, "us-east-1a");
    assert_string_equal(r.public_ip, "203.0.113.9");
    assert_string_equal(r.user, "gpuprov");
    assert_int_equal(r.slot, 6); /* 4 + launch index 2 */
    assert_int_equal(r.attempt, 3);
    assert_int_equal(r.state, RES_RUNNING);
    assert_true(r.billed);
    assert_int_equal(r.gpus, 8);
    assert_true(r.price_usd_per_h > 50 && r.price_usd_per_h < 60);
    assert_int_equal(r.expires_s, 1795255200);
    assert_int_equal(r.created_s, 1795237200);
    resource_clear(&r);
}

static void test_efa(void **state) {
    (void)state;
    struct resource r;
    read_one(
        "<item><instanceId>i-01234567</instanceId><networkInterfaceSet><item><interfaceType>efa</interfaceType></item>"
        "<item><interfaceType>efa-only</interfaceType></item><item><interfaceType>interface</interfaceType></item>"
        "</networkInterfaceSet></item>",
        &r);
    assert_int_equal(r.rdma, 2);
    resource_clear(&r);
    read_one("<item><instanceId>i-01234567</instanceId></item>", &r);
    assert_int_equal(r.rdma, -1);
    resource_clear(&r);
}

static void test_price(void **state) {
    (void)state;
    static const struct {
        const char *tag;
        double want;
    } rows[] = {{"1.25", 1.25}, {"", -1}, {"nan", -1}, {"x", -1}};
    for (size_t i = 0; i < GP_ARRAY_LEN(rows); i++) {
        GP_AUTO_FREE char *text = xasprintf(
            "<item><instanceId>i-01234567</instanceId><instanceLifecycle>spot</instanceLifecycle><instanceType>p5.48xlarge</instanceType>"
            "<tagSet><item><key>gpuprov:price</key><value>%s</value></item></tagSet></item>",
            rows[i].tag);
        struct resource r;
        read_one(text, &r);
        assert_true(r.price_usd_per_h == rows[i].want);
        resource_clear(&r);
    }
}

static void test_instance_states(void **state) {
    (void)state;
    static const struct {
        const char *name;
        enum resource_state state;
        bool billed;
    } want[] = {{"pending", RES_PENDING, true},        {"running", RES_RUNNING, true},
                {"shutting-down", RES_STOPPING, true}, {"stopping", RES_STOPPING, true},
                {"stopped", RES_STOPPED, true},        {"terminated", RES_GONE, false},
                {"something-new", RES_STOPPING, true}};
    for (size_t i = 0; i < GP_ARRAY_LEN(want); i++) {
        GP_AUTO_FREE char *text = xasprintf("<item><instanceId>i-01234567</instanceId><instanceState><name>%s</name>"
                                            "</instanceState></item>",
                                            want[i].name);
        struct resource r;
        read_one(text, &r);
        assert_int_equal(r.state, want[i].state);
        assert_int_equal(r.billed, want[i].billed);
        assert_int_equal(r.slot, -1); /* no tag: nobody's slot */
        resource_clear(&r);
    }
}

static void test_bad_slots(void **state) {
    (void)state;
    static const char *const bad[] = {"", "+", "x+2", "-1+2", "99999999999+1"};
    for (size_t i = 0; i < GP_ARRAY_LEN(bad); i++) {
        GP_AUTO_FREE char *text = xasprintf(
            "<item><instanceId>i-01234567</instanceId><amiLaunchIndex>0</amiLaunchIndex><tagSet><item><key>gpuprov:slots</key>"
            "<value>%s</value></item></tagSet></item>",
            bad[i]);
        struct resource r;
        read_one(text, &r);
        assert_int_equal(r.slot, -1);
        resource_clear(&r);
    }
}

static void test_gpu_names(void **state) {
    (void)state;
    static char h100[] = "H100", a100[] = "A100", l4[] = "L4", a10g[] = "A10G", t4[] = "T4",
                rtx[] = "RTX PRO Server 6000";
    struct aws_type p5 = {.gpu_name = h100, .gpu_mib = 81920};
    struct aws_type p4d = {.gpu_name = a100, .gpu_mib = 40960};
    struct aws_type p4de = {.gpu_name = a100, .gpu_mib = 81920};
    struct aws_type g6 = {.gpu_name = l4, .gpu_mib = 22888};
    struct aws_type g5 = {.gpu_name = a10g, .gpu_mib = 22888};
    struct aws_type g4 = {.gpu_name = t4, .gpu_mib = 16384};
    struct aws_type g7e = {.gpu_name = rtx, .gpu_mib = 98304};
    static const char *const h[] = {"H100",           "h100",           "NVIDIA H100", "H100-80GB",
                                    "H100 80GB HBM3", "H100-SXM5-80GB", "nvidia_h100"};
    for (size_t i = 0; i < GP_ARRAY_LEN(h); i++)
        if (!aws_gpu_matches(h[i], &p5)) fail_msg("%s", h[i]);
    assert_true(aws_gpu_matches("A100", &p4d) && aws_gpu_matches("A100", &p4de));
    assert_true(aws_gpu_matches("A100-40GB", &p4d) && !aws_gpu_matches("A100-40GB", &p4de));
    assert_true(aws_gpu_matches("A100-80G", &p4de) && !aws_gpu_matches("A100-80G", &p4d));
    assert_true(aws_gpu_matches("L4", &g6) && aws_gpu_matches("L4-24GB", &g6));
    assert_true(aws_gpu_matches("Tesla T4", &g4) && !aws_gpu_matches("T4g", &g4));
    assert_true(aws_gpu_matches("RTX-PRO-6000", &g7e) && aws_gpu_matches("RTXPRO6000", &g7e));
    assert_false(aws_gpu_matches("A10", &g5) || aws_gpu_matches("L40S", &g6));
    assert_false(aws_gpu_matches("H100-94GB", &p5) || aws_gpu_matches("", &p5));
    assert_false(aws_gpu_matches("H100-PCIE", &p5));
}

/* --- images and subnets --- */

static int image_of(const char *inside, struct aws_image *image, struct gp_error *err) {
    GP_AUTO_FREE char *text = xasprintf("<item>%s</item>", inside);
    GP_AUTO_XML struct xml_node *root = NULL;
    assert_int_equal(xml_parse(text, strlen(text), "test", &root, NULL), 0);
    return aws_image_read(root, "us-east-1", image, err);
}

#define IMAGE_ID "<imageId>ami-0123456789abcdef0</imageId>"
#define DISK(device, size) \
    "<item><deviceName>" device "</deviceName><ebs><volumeSize>" size "</volumeSize></ebs></item>"

static void test_image_disks(void **state) {
    (void)state;
    struct aws_image i = {0};
    assert_int_equal(
        image_of(IMAGE_ID
                 "<name>base</name><architecture>arm64</architecture>"
                 "<rootDeviceName>/dev/xvda</rootDeviceName><blockDeviceMapping>" DISK("/dev/xvda", "75")
                     DISK("/dev/sdb",
                          "30") "<item><deviceName>xvdc</deviceName><ebs/></item>"
                                "<item><deviceName>/dev/sdc</deviceName><virtualName>ephemeral0</virtualName></item>"
                                "<item><deviceName>/dev/sdd</deviceName><noDevice/></item>"
                                "</blockDeviceMapping>",
                 &i, NULL),
        0);
    assert_string_equal(i.arch, "arm64");
    assert_int_equal(i.root_gib, 75);
    assert_int_equal(i.n_disks, 2);
    assert_string_equal(i.disks[0].device, "/dev/sdb");
    assert_int_equal(i.disks[0].gib, 30);
    assert_string_equal(i.disks[1].device, "xvdc");
    assert_int_equal(i.disks[1].gib, 0);
    aws_image_clear(&i);
}

/* Without a root device's name the root is /dev/sda1, and no further disk. */
static void test_image_root(void **state) {
    (void)state;
    struct aws_image i = {0};
    assert_int_equal(image_of(IMAGE_ID "<blockDeviceMapping>" DISK("/dev/sda1", "8")
                                  DISK("/dev/sdb", "9") "</blockDeviceMapping>",
                              &i, NULL),
                     0);
    assert_string_equal(i.root_device, "/dev/sda1");
    assert_int_equal(i.root_gib, 8);
    assert_int_equal(i.n_disks, 1);
    aws_image_clear(&i);
}

static void test_images_refused(void **state) {
    (void)state;
    static const char *const bad[] = {"",
                                      "<imageId>img-1</imageId>",
                                      "<imageId>ami-0123456789abcdefg</imageId>",
                                      IMAGE_ID "<rootDeviceName>/etc/passwd</rootDeviceName>",
                                      IMAGE_ID "<architecture>x86 64</architecture>",
                                      IMAGE_ID "<blockDeviceMapping>" DISK("/dev/sd b", "1") "</blockDeviceMapping>",
                                      IMAGE_ID "<blockDeviceMapping>" DISK("/dev/", "1") "</blockDeviceMapping>",
                                      IMAGE_ID "<blockDeviceMapping>" DISK("/dev/sdb", "1.5") "</blockDeviceMapping>",
                                      IMAGE_ID "<blockDeviceMapping>" DISK("/dev/sdb", "65537") "</blockDeviceMapping>",
                                      IMAGE_ID "<blockDeviceMapping>" DISK(
                                          "/dev/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "1") "</blockDeviceMapping>"};
    for (size_t i = 0; i < GP_ARRAY_LEN(bad); i++) {
        struct aws_image image = {0};
        struct gp_error e = {0};
        if (image_of(bad[i], &image, &e) != -GP_EPROTO) fail_msg("taken: %s", bad[i]);
        assert_null(image.id);
        assert_true(e.msg[0] != '\0');
    }
}

static int subnet_of(const char *id, const char *vpc, const char *zone, const char *more, struct aws_subnet *s) {
    GP_AUTO_FREE char *text = xasprintf("<item><subnetId>%s</subnetId><vpcId>%s</vpcId><availabilityZone>%s"
                                        "</availabilityZone>%s</item>",
                                        id, vpc, zone, more);
    GP_AUTO_XML struct xml_node *root = NULL;
    assert_int_equal(xml_parse(text, strlen(text), "test", &root, NULL), 0);
    struct gp_error e = {0};
    return aws_subnet_read(root, s, &e);
}

static void test_subnets(void **state) {
    (void)state;
    static const struct {
        const char *more;
        bool ipv6_only, is_default;
    } good[] = {{"", false, false},
                {"<ipv6Native>false</ipv6Native><defaultForAz>true</defaultForAz>", false, true},
                {"<ipv6Native>true</ipv6Native><assignIpv6AddressOnCreation>true"
                 "</assignIpv6AddressOnCreation>",
                 true, false},
                {"<cidrBlock>10.0.0.0/24</cidrBlock><assignIpv6AddressOnCreation>true"
                 "</assignIpv6AddressOnCreation><ipv6Native>false</ipv6Native>",
                 false, false}};
    for (size_t i = 0; i < GP_ARRAY_LEN(good); i++) {
        struct aws_subnet s = {0};
        assert_int_equal(subnet_of("subnet-0123abcd", "vpc-0123abcd", "us-east-1a", good[i].more, &s), 0);
        assert_int_equal(s.ipv6_only, good[i].ipv6_only);
        assert_int_equal(s.is_default, good[i].is_default);
        struct aws_subnets all = {0};
        vec_push(&all.list, s);
        aws_subnets_clear(&all);
    }
    static const char *const bad[][3] = {{"", "vpc-0123abcd", "us-east-1a"},
                                         {"subnet-0123abcd", "", "us-east-1a"},
                                         {"subnet-0123abcd", "vpc-0123abcd", ""},
                                         {"subnet-0123ABCD", "vpc-0123abcd", "us-east-1a"},
                                         {"subnet-0123abcd", "vpc-0123abcd", "us east"}};
    for (size_t i = 0; i < GP_ARRAY_LEN(bad); i++) {
        struct aws_subnet s = {0};
        assert_int_equal(subnet_of(bad[i][0], bad[i][1], bad[i][2], "", &s), -GP_EPROTO);
    }
}

static void test_old_gpus(void **state) {
    (void)state;
    static const struct {
        const char *gpu, *architecture;
        int branch;
    } old[] = {{"V100", "Volta", 580},      {"Tesla V100", "Volta", 580}, {"P100", "Pascal", 580},
               {"P4", "Pascal", 580},       {"M60", "Maxwell", 580},      {"K80", "Kepler", 470},
               {"Tesla K80", "Kepler", 470}};
    for (size_t i = 0; i < GP_ARRAY_LEN(old); i++) {
        const struct aws_old_gpu *o = aws_old_gpu(old[i].gpu);
        assert_non_null(o);
        assert_string_equal(o->architecture, old[i].architecture);
        assert_int_equal(o->last_branch, old[i].branch);
    }
    /* every other NVIDIA name of DescribeInstanceTypes */
    static const char *const newer[] = {"T4",           "T4g",  "A10G", "A100", "L4",    "L40S",
                                        "H100",         "H200", "B200", "B300", "GB200", "RTX PRO Server 6000",
                                        "RTX PRO 4500", ""};
    for (size_t i = 0; i < GP_ARRAY_LEN(newer); i++) assert_null(aws_old_gpu(newer[i]));
}

static void test_quotas(void **state) {
    (void)state;
    assert_string_equal(aws_quota_code("p5.48xlarge", MARKET_ON_DEMAND), "L-417A185B");
    assert_string_equal(aws_quota_code("p5en.48xlarge", MARKET_SPOT), "L-C4BD4855");
    assert_string_equal(aws_quota_code("p4d.24xlarge", MARKET_SPOT), "L-7212CCBC");
    assert_string_equal(aws_quota_code("g6e.xlarge", MARKET_ON_DEMAND), "L-DB2E81BA");
    assert_string_equal(aws_quota_code("gr6.4xlarge", MARKET_SPOT), "L-3819A6DF");
    assert_string_equal(aws_quota_code("t3.medium", MARKET_ON_DEMAND), "L-1216C47A");
    assert_string_equal(aws_quota_code("d3.xlarge", MARKET_SPOT), "L-34B43A08");
    assert_null(aws_quota_code("dl1.24xlarge", MARKET_ON_DEMAND));
    assert_null(aws_quota_code("p6-b200.48xlarge", MARKET_SPOT));
    assert_null(aws_quota_code("trn1.2xlarge", MARKET_ON_DEMAND));
}

static void test_group_names(void **state) {
    (void)state;
    static const struct {
        const char *owner, *stack;
    } pairs[] = {{"123-me@x", "llm"}, {"ci", "gpu-x"}, {"ci-gpu", "x"}, {"ci-gpu-x", "x"}};
    struct strv seen = {0};
    for (size_t i = 0; i < GP_ARRAY_LEN(pairs); i++) {
        GP_AUTO_FREE char *claim = aws_group_name(pairs[i].owner, pairs[i].stack, NULL);
        GP_AUTO_FREE char *other = aws_group_name(pairs[i].owner, pairs[i].stack, "0011223344556677");
        assert_false(strv_has(&seen, claim) || strv_has(&seen, other)); /* no two stacks share a name */
        strv_add(&seen, claim);
        strv_add(&seen, other);
    }
    assert_string_equal(seen.v[0], "gpuprov-123-me@x/llm");
    assert_string_equal(seen.v[1], "gpuprov-123-me@x/llm/0011223344556677");
    strv_clear(&seen);
}

static void test_foreign_replies(void **state) {
    (void)state;
    static const char *const ids[] = {"", "i-", "i-1", "../x", "i-0123456789abcdef0;id", "I-01234567", "sg-01234567"};
    for (size_t i = 0; i < GP_ARRAY_LEN(ids); i++) {
        GP_AUTO_XML struct xml_node *root = NULL;
        GP_AUTO_FREE char *text = xasprintf("<item><instanceId>%s</instanceId></item>", ids[i]);
        struct resource r;
        struct gp_error err = {0};
        assert_int_equal(xml_parse(text, strlen(text), "test", &root, NULL), 0);
        assert_int_equal(aws_instance_read(root, "us-east-1", &r, &err), -GP_EPROTO);
        assert_string_equal(r.id, "");
        resource_clear(&r);
    }
    struct resource r;
    read_one("<item><instanceId>i-01234567</instanceId><privateIpAddress>10.0.0.1;x</privateIpAddress>"
             "<ipAddress>$(id)</ipAddress><instanceType>a b</instanceType><placement><availabilityZone>../z"
             "</availabilityZone></placement><reason>a\nb</reason></item>",
             &r);
    assert_string_equal(r.private_ip, "");
    assert_string_equal(r.public_ip, "");
    assert_string_equal(r.instance_type, "");
    assert_string_equal(r.zone, "");
    assert_null(strpbrk(r.state_reason, "\n\x1b"));
    resource_clear(&r);
}

/* IPv6-only: no IPv4 address anywhere. */
static void test_ipv6_only(void **state) {
    (void)state;
    struct resource r;
    read_one("<item><instanceId>i-01234567</instanceId><networkInterfaceSet><item><ipv6AddressesSet><item>"
             "<ipv6Address>2001:db8::5</ipv6Address></item></ipv6AddressesSet></item></networkInterfaceSet></item>",
             &r);
    assert_string_equal(r.private_ip, "2001:db8::5");
    assert_string_equal(r.public_ip, "2001:db8::5");
    resource_clear(&r);
}

static void test_bodies(void **state) {
    (void)state;
    GP_AUTO_STR struct str b = {0};
    aws_begin(&b, "X");
    aws_param(&b, "A", "a b&c=d/\xc3\xa9~*");
    aws_paramf(&b, "", "B.%d", 2);
    aws_param_int(&b, "N", -3);
    aws_filter(&b, 1, "tag:gpuprov:uid", "1");
    assert_string_equal(b.s, "Action=X&Version=2016-11-15&A=a+b%26c%3Dd%2F%C3%A9~%2A&B.2=&N=-3"
                             "&Filter.1.Name=tag%3Agpuprov%3Auid&Filter.1.Value.1=1");
}

/* What its statements allow is tests/e2e/aws/test_aws_policy.py's. */
static void test_policy(void **state) {
    (void)state;
    GP_AUTO_FREE char *text = NULL;
    GP_AUTO_JSON json_t *j = NULL;
    struct gp_error e = {0};
    assert_int_equal(aws_policy_json("me", &text, NULL), 0);
    assert_int_equal(json_parse(text, strlen(text), "policy", &j, NULL), 0);
    assert_string_equal(json_str(j, "Version", ""), "2012-10-17");
    size_t n = json_array_size(json_at(j, "Statement"));
    assert_true(n >= 8);
    for (size_t i = 0; i < n; i++) {
        const json_t *s = json_array_get(json_at(j, "Statement"), i);
        assert_string_equal(json_str(s, "Effect", ""), "Allow");
        for (size_t k = 0; k < json_array_size(json_at(s, "Action")); k++)
            assert_null(strchr(json_string_value(json_array_get(json_at(s, "Action"), k)), '*'));
    }
    static const char *const bad[] = {"", "*", "a?", "${aws:username}", "a\"b", "a\nb"};
    for (size_t i = 0; i < GP_ARRAY_LEN(bad); i++, e = (struct gp_error){0}) {
        char *none = NULL;
        assert_int_equal(aws_policy_json(bad[i], &none, &e), -GP_EUSAGE);
        assert_null(none);
    }
    assert_int_equal(aws_policy_json(NULL, &text, &e), -GP_EUSAGE);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_instance),    cmocka_unit_test(test_instance_states),
        cmocka_unit_test(test_bad_slots),   cmocka_unit_test(test_efa),
        cmocka_unit_test(test_price),       cmocka_unit_test(test_gpu_names),
        cmocka_unit_test(test_old_gpus),    cmocka_unit_test(test_image_disks),
        cmocka_unit_test(test_image_root),  cmocka_unit_test(test_images_refused),
        cmocka_unit_test(test_subnets),     cmocka_unit_test(test_quotas),
        cmocka_unit_test(test_group_names), cmocka_unit_test(test_foreign_replies),
        cmocka_unit_test(test_ipv6_only),   cmocka_unit_test(test_bodies),
        cmocka_unit_test(test_policy),
    };
    return cmocka_run_group_tests_name("aws decoding", tests, NULL, NULL);
}
