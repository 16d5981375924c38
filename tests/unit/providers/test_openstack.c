// SPDX-License-Identifier: Apache-2.0
/* OpenStack's own forms: claims in the comment of a key, tags in a description, GPUs of flavors, codes of errors. What
 * comes back is decoded strictly. */
#include "base/gp_base.h"

#include "base/clock.h"
#include "base/json.h"
#include "providers/openstack/os_int.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define OWNER "0123456789abcdef0123456789abcdef-gpu"

static void make_tags(struct tags *t) {
    struct stack s = {.owner = (char *)OWNER,
                      .name = (char *)"llm",
                      .uid = (char *)"00112233445566aa",
                      .spec_hash = (char *)"00000000000000000000000000000000000000000000000000000000000000ff",
                      .expires_s = 1800000000};
    tags_of_stack(t, &s);
    t->created_s = 1790000000;
    t->claim = true;
    resource_set(&t->regions, "RegionOne RegionTwo");
}

static void claims(void **state) {
    (void)state;
    struct tags t, back;
    make_tags(&t);
    GP_AUTO_FREE char *name = os_claim_name(t.owner, t.stack);
    GP_AUTO_FREE char *key = os_claim_key(&t);
    assert_true(os_claim_read(name, key, &back));
    assert_string_equal(back.bad, "");
    assert_string_equal(back.owner, OWNER);
    assert_string_equal(back.uid, t.uid);
    assert_string_equal(back.spec_hash, t.spec_hash);
    assert_string_equal(back.regions, "RegionOne RegionTwo");
    assert_int_equal(back.expires_s, t.expires_s);
    assert_true(back.claim);
    tags_clear(&back);
    /* another name, a key without a comment, a comment without the mark, a foreign key */
    GP_AUTO_FREE char *other = os_claim_name(t.owner, "other");
    static const char *const foreign[] = {"",
                                          "ssh-ed25519",
                                          "ssh-ed25519 AAAA",
                                          "ssh-ed25519 AAAA me@laptop",
                                          "ssh-ed25519 AAAA gpuprov",
                                          "ssh-ed25519 AAAA gpuprov owner=../x stack=llm"};
    assert_false(os_claim_read(other, key, &back));
    tags_clear(&back);
    for (size_t i = 0; i < GP_ARRAY_LEN(foreign); i++) {
        assert_false(os_claim_read(name, foreign[i], &back));
        tags_clear(&back);
    }
    /* a value that gpuprov would not write is reported, not used */
    GP_AUTO_FREE char *bad = xasprintf("ssh-ed25519 AAAA gpuprov owner=%s stack=llm uid=../../etc", OWNER);
    assert_true(os_claim_read(name, bad, &back));
    assert_string_equal(back.uid, "");
    assert_true(back.bad[0] != '\0');
    tags_clear(&back);
    tags_clear(&t);
}

static void descriptions(void **state) {
    (void)state;
    struct tags t, back;
    GP_AUTO_STR struct str text = {0}, longest = {0};
    make_tags(&t);
    t.slot_first = 3;
    t.slot_count = 1;
    t.attempt = 2;
    assert_true(os_description(&t, &text));
    assert_true(os_description_read(text.s, &back));
    assert_string_equal(back.uid, t.uid);
    assert_int_equal(back.slot_first, 3);
    assert_int_equal(back.attempt, 2);
    tags_clear(&back);
    static const char *const foreign[] = {"", "Default security group", "gpuprovx owner=a", "Gpuprov owner=a"};
    for (size_t i = 0; i < GP_ARRAY_LEN(foreign); i++) {
        assert_false(os_description_read(foreign[i], &back));
        tags_clear(&back);
    }
    assert_true(os_description_read("gpuprov owner=a word uid=00112233445566aa", &back));
    assert_true(back.bad[0] != '\0');
    tags_clear(&back);
    char owner[129];
    memset(owner, 'o', sizeof owner - 1);
    owner[128] = '\0';
    resource_set(&t.owner, owner);
    resource_set(&t.stack, "a123456789012345678901234567890123456789");
    t.slot_count = 0;
    assert_true(os_description(&t, &longest)); /* neutron takes 255 characters */
    assert_true(longest.len <= 255);
    tags_clear(&t);
}

static void flavors(void **state) {
    (void)state;
    static const struct {
        const char *specs, *gpu;
        int gpus;
    } rows[] = {{"{}", "", 0},
                {"{\"hw:cpu_policy\": \"dedicated\"}", "", 0},
                {"{\"pci_passthrough:alias\": \"h100:8\"}", "H100", 8},
                {"{\"pci_passthrough:alias\": \"h100:8,ib:8\"}", "H100", 8},
                {"{\"pci_passthrough:alias\": \"H100:4, h100:4\"}", "H100", 8},
                {"{\"pci_passthrough:alias\": \"h100:1,l4:1\"}", "", -1},
                {"{\"pci_passthrough:alias\": \"mystery:2\"}", "", -1},
                {"{\"pci_passthrough:alias\": \"h100:99999999999999999999\"}", "", -1},
                {"{\"pci_passthrough:alias\": 7}", "", 0},
                {"{\"resources:VGPU\": \"1\"}", "", -1},
                {"{\"resources:PGPU\": \"2\"}", "", -1},
                {"{\"accel:device_profile\": \"a100\"}", "", -1}};
    for (size_t i = 0; i < GP_ARRAY_LEN(rows); i++) {
        GP_AUTO_JSON json_t *j = json_loads(rows[i].specs, 0, NULL);
        struct os_flavor f = {0};
        os_flavor_gpu(j, &f);
        if (strcmp(f.gpu, rows[i].gpu) != 0 || f.gpus != rows[i].gpus)
            fail_msg("%s: %d x '%s'", rows[i].specs, f.gpus, f.gpu);
    }
}

static void codes(void **state) {
    (void)state;
    static const struct {
        int status;
        const char *body, *code;
        enum gp_code gp;
        enum cloud_class class;
    } rows[] = {{403, "{\"forbidden\": {\"code\": 403, \"message\": \"Quota exceeded for instances\"}}", "forbidden",
                 GP_EQUOTA, CLOUD_NO},
                {403, "{\"forbidden\": {\"code\": 403, \"message\": \"Policy doesn't allow it\"}}", "forbidden",
                 GP_EAUTH, CLOUD_NO},
                {401, "{\"error\": {\"code\": 401, \"title\": \"Unauthorized\", \"message\": \"x\"}}", "Unauthorized",
                 GP_EAUTH, CLOUD_STALE},
                {409, "{\"NeutronError\": {\"type\": \"OverQuota\", \"message\": \"x\", \"detail\": \"\"}}",
                 "OverQuota", GP_EQUOTA, CLOUD_NO},
                {409, "{\"conflictingRequest\": {\"code\": 409, \"message\": \"Key pair exists\"}}",
                 "conflictingRequest", GP_EEXISTS, CLOUD_NO},
                {429, "{\"overLimit\": {\"code\": 429, \"message\": \"slow\"}}", "HTTP 429", GP_ETHROTTLED, CLOUD_SLOW},
                {500, "{\"computeFault\": {\"code\": 500, \"message\": \"Unexpected API Error\"}}", "computeFault",
                 GP_EPROTO, CLOUD_TROUBLE},
                {503, "", "HTTP 503", GP_EPROTO, CLOUD_TROUBLE},
                {404, "[]", "HTTP 404", GP_ENOTFOUND, CLOUD_NO},
                {400, "{\"a\": 1}", "HTTP 400", GP_EUSAGE, CLOUD_NO},
                {200, "{\"forbidden\": {\"message\": \"a server of that name\"}}", "", GP_OK, CLOUD_NO}};
    for (size_t i = 0; i < GP_ARRAY_LEN(rows); i++) {
        GP_AUTO_JSON json_t *j = json_loads(rows[i].body, 0, NULL);
        struct http_resp resp = {.status = rows[i].status};
        struct cloud_said said;
        os_said(&resp, j, &said);
        assert_string_equal(said.code, rows[i].code);
        if (said.code[0] == '\0') continue;
        const struct cloud_error *row = cloud_error_find(os_errors, os_error_count, &said);
        if (row->gp != rows[i].gp || row->class != rows[i].class) fail_msg("%s: %d", rows[i].body, (int)row->gp);
    }
    struct gp_error e = {0};
    assert_int_equal(os_fault(&e, "node 0", "No valid host was found. There are not enough hosts"), -GP_ECAPACITY);
    assert_int_equal(e.scope, GP_SCOPE_ZONE);
}

/* Of a catalogue with a malformed endpoint the regions are unknown: no call goes on with those that stand before it. */
static void catalogue(void **state) {
    (void)state;
    static const struct {
        const char *region;
        size_t tokens;
    } rows[] = {{"RegionTwo", 5}, {"no region", 0}};
    for (size_t i = 0; i < GP_ARRAY_LEN(rows); i++) {
        char url[] = "https://keystone.example/v3", type[] = "v3password", source[] = "test", open[] = "public";
        struct os o = {.cfg = {.interface = open, .auth_url = url, .auth_type = type, .source = source}};
        struct gp_error err = {0};
        char end[32];
        time_format_utc(end, sizeof end, clock_wall_s() + 3600);
        GP_AUTO_FREE char *text = xasprintf(
            "{\"token\":{\"expires_at\":\"%s\",\"user\":{\"id\":\"u\"},\"project\":{\"id\":\"p\"},\"catalog\":[{\"type\":"
            "\"compute\",\"endpoints\":[{\"interface\":\"public\",\"region\":\"RegionOne\",\"url\":\"https://one.example\"},"
            "{\"interface\":\"public\",\"region\":\"%s\",\"url\":\"https://two.example\"}]}]}}",
            end, rows[i].region);
        struct rest_reply reply = {0};
        assert_int_equal(json_parse(text, strlen(text), "the reply", &reply.json, NULL), 0);
        http_fields_add(&reply.headers, "X-Subject-Token", "token");
        assert_int_equal(os_take_token(&o, &reply, &err) == 0, rows[i].tokens > 0);
        assert_int_equal(o.token.len, rows[i].tokens);
        json_decref(reply.json);
        http_fields_clear(&reply.headers);
        os_session_clear(&o);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(claims), cmocka_unit_test(descriptions), cmocka_unit_test(flavors),
        cmocka_unit_test(codes),  cmocka_unit_test(catalogue),
    };
    return cmocka_run_group_tests_name("openstack", tests, NULL, NULL);
}
