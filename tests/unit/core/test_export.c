/* SPDX-License-Identifier: Apache-2.0 */
/* The forms of `gpuprov export`: their texts, and values that a format cannot hold. */
#include "base/gp_base.h"

#include "output/export_forms.h"

#include "base/json.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static struct export_node node(int slot) {
    return (struct export_node){.slot = slot,
                                .name = xasprintf("llm-%d", slot),
                                .id = xasprintf("i-%d", slot),
                                .place = xstrdup("aws us-east-2a"),
                                .type = xstrdup("p5.48xlarge"),
                                .address = xasprintf("203.0.113.%d", slot),
                                .peer_address = xasprintf("10.0.0.%d", slot),
                                .hostname = xasprintf("ip-10-0-0-%d.ec2.internal", slot),
                                .user = xstrdup("ubuntu"),
                                .key_path = xstrdup("/keys/it's ${mine} %{here}"),
                                .gpu_model = xstrdup("RTX 4090"),
                                .port = 22,
                                .ready = true,
                                .gpus = 8,
                                .cpus = 96,
                                .memory_mib = 1900000};
}

static struct export_stack stack(void) {
    struct export_stack s = {.name = xstrdup("llm"),
                             .owner = xstrdup("me"),
                             .config_path = xstrdup("/home/it's/ssh_config"),
                             .config = xstrdup("Host llm-0\n"),
                             .wanted = 2};
    for (int i = 0; i < 2; i++) {
        struct export_node n = node(i);
        vec_push(&s.nodes, n);
    }
    strv_add(&s.nodes.items[0].host_keys, "ssh-ed25519 AAAA");
    return s;
}

static void expect(const char *form, const char *text) {
    GP_AUTO_EXPORT struct export_stack s = stack();
    GP_AUTO_STR struct str out = {0};
    struct gp_error err = {0};
    if (export_write(&s, export_form(form), false, &out, &err) != 0) fail_msg("%s", err.msg);
    assert_string_equal(out.s, text);
}

static void test_texts(void **state) {
    (void)state;
    expect("hostfile", "10.0.0.0 slots=8\n10.0.0.1 slots=8\n");
    expect("ssh_config", "Host llm-0\n");
    expect("gres", "# gpuprov export gres llm\n"
                   "NodeName=llm-0 Name=gpu Type=rtx_4090 File=/dev/nvidia[0-7]\n"
                   "NodeName=llm-1 Name=gpu Type=rtx_4090 File=/dev/nvidia[0-7]\n");
    expect("slurm", "# gpuprov export slurm llm\n"
                    "# slurm.conf also needs: GresTypes=gpu\n"
                    "NodeName=llm-0 NodeAddr=10.0.0.0 NodeHostname=ip-10-0-0-0 CPUs=96 RealMemory=1900000 "
                    "Gres=gpu:rtx_4090:8 State=UNKNOWN\n"
                    "NodeName=llm-1 NodeAddr=10.0.0.1 NodeHostname=ip-10-0-0-1 CPUs=96 RealMemory=1900000 "
                    "Gres=gpu:rtx_4090:8 State=UNKNOWN\n"
                    "PartitionName=llm Nodes=llm-0,llm-1 MaxTime=INFINITE State=UP\n");
}

static json_t *written(const struct export_stack *s, const char *form) {
    GP_AUTO_STR struct str out = {0};
    struct gp_error err = {0};
    json_t *j = NULL;
    if (export_write(s, export_form(form), false, &out, &err) != 0) fail_msg("%s", err.msg);
    if (json_parse(out.s, out.len, form, &j, &err) != 0) fail_msg("%s", err.msg);
    return j;
}

static void test_json_forms(void **state) {
    (void)state;
    GP_AUTO_EXPORT struct export_stack s = stack();
    GP_AUTO_JSON json_t *tf = written(&s, "terraform");
    assert_string_equal(json_str(tf, "locals.gpuprov_llm.0.key", ""), "/keys/it's $${mine} %%{here}");
    assert_string_equal(json_str(tf, "locals.gpuprov_llm.0.host_key.0", ""), "ssh-ed25519 AAAA");
    assert_null(json_at(tf, "locals.gpuprov_llm.1.host_key"));
    assert_string_equal(json_str(tf, "locals.gpuprov_llm.1.gpu", ""), "RTX 4090:8");
    assert_string_equal(json_str(tf, "output.gpuprov_llm.value", ""), "${local.gpuprov_llm}");
    GP_AUTO_JSON json_t *ansible = written(&s, "ansible");
    const json_t *host = json_at(ansible, "all.children.gpuprov_llm.hosts.llm-1");
    assert_string_equal(json_str(host, "ansible_ssh_common_args", ""), "-F '/home/it'\\''s/ssh_config'");
    assert_string_equal(json_str(host, "gpuprov_peer_address", ""), "10.0.0.1");
}

/* A value of a node, the form that must refuse it, and a part of the message. */
static void test_refused(void **state) {
    (void)state;
    static const struct {
        size_t field;
        const char *value, *form, *says;
    } bad[] = {
        {offsetof(struct export_node, peer_address), "10.0.0.1 slots=64\n10.0.0.9", "hostfile", "llm-1: the address"},
        {offsetof(struct export_node, peer_address), "fe80::1%eth0", "hostfile", "without a zone"},
        {offsetof(struct export_node, peer_address), "", "hostfile", "no address yet"},
        {offsetof(struct export_node, peer_address), "10.0.0.1 State=DOWN", "slurm", "llm-1: the address"},
        {offsetof(struct export_node, hostname), "n1 Gres=gpu:64", "slurm", "the host name 'n1 Gres=gpu:64'"},
        {offsetof(struct export_node, gpu_model), "H100:64\nNodeName=x", "slurm", "the GPU model"},
        {offsetof(struct export_node, gpu_model), "H100#", "gres", "the GPU model"},
        {offsetof(struct export_node, gpu_model), "", "gres", "the GPU model"},
        {offsetof(struct export_node, user), "{{ lookup('pipe', 'id') }}", "ansible", "template"},
        {offsetof(struct export_node, place), "aws {% raw %}", "ansible", "template"},
        {offsetof(struct export_node, address), "$(id)", "terraform", "llm-1: the address '$(id)'"},
    };
    for (size_t i = 0; i < GP_ARRAY_LEN(bad); i++) {
        GP_AUTO_EXPORT struct export_stack s = stack();
        GP_AUTO_STR struct str out = {0};
        struct gp_error err = {0};
        char **field = (char **)(void *)((char *)&s.nodes.items[1] + bad[i].field);
        free(*field);
        *field = xstrdup(bad[i].value);
        assert_int_equal(export_write(&s, export_form(bad[i].form), false, &out, &err), -GP_EUSAGE);
        if (strstr(err.msg, bad[i].says) == NULL) fail_msg("'%s' lacks '%s'", err.msg, bad[i].says);
    }
}

static void test_refused_names(void **state) {
    (void)state;
    GP_AUTO_EXPORT struct export_stack s = stack();
    GP_AUTO_STR struct str out = {0};
    struct gp_error err = {0};
    free(s.nodes.items[0].key_path);
    s.nodes.items[0].key_path = xstrdup("/keys/\xff");
    assert_int_equal(export_write(&s, export_form("terraform"), false, &out, &err), -GP_EUSAGE);
    assert_string_equal(err.msg, "llm-0: the key's path cannot be exported: it is not UTF-8");
    gp_error_clear(&err);
    free(s.config_path);
    s.config_path = xstrdup("/state/\xc3/ssh_config");
    assert_int_equal(export_write(&s, export_form("ansible"), false, &out, &err), -GP_EUSAGE);
    gp_error_clear(&err);
    free(s.name);
    s.name = xstrdup("default");
    assert_int_equal(export_write(&s, export_form("slurm"), false, &out, &err), -GP_EUSAGE);
    assert_string_equal(err.msg, "default: cannot be exported: Slurm has no partition of that name; rename the stack");
}

static void test_unproven(void **state) {
    (void)state;
    for (int missing = 0; missing < 2; missing++) {
        GP_AUTO_EXPORT struct export_stack s = stack();
        s.nodes.items[1].ready = missing != 0;
        s.wanted += missing;
        for (size_t i = 0; export_forms[i] != NULL; i++) {
            GP_AUTO_STR struct str out = {0};
            struct gp_error err = {0};
            int want = export_forms[i]->any_node ? 0 : -GP_EVALIDATE;
            assert_int_equal(export_write(&s, export_forms[i], false, &out, &err), want);
            gp_error_clear(&err);
            assert_int_equal(export_write(&s, export_forms[i], true, &out, &err), 0);
        }
    }
}

static void test_a_socket_is_no_address(void **state) {
    (void)state;
    GP_AUTO_EXPORT struct export_stack s = stack();
    GP_AUTO_STR struct str out = {0};
    struct gp_error err = {0};
    s.nodes.items[0].socket = true;
    assert_int_equal(export_write(&s, export_form("terraform"), false, &out, &err), -GP_EUSAGE);
    assert_non_null(strstr(err.msg, "llm-0: cannot be exported: it is reached through a socket"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_texts),    cmocka_unit_test(test_json_forms),
        cmocka_unit_test(test_refused),  cmocka_unit_test(test_refused_names),
        cmocka_unit_test(test_unproven), cmocka_unit_test(test_a_socket_is_no_address),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
