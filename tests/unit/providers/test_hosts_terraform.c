/* SPDX-License-Identifier: Apache-2.0 */
/* Hosts from saved outputs of Terraform: what is decoded, and each wrong output in one line. */
#include "base/gp_base.h"

#include "providers/ssh/hosts.h"

#include "base/fs.h"
#include "folder.h"

#include <setjmp.h>
#include <stdarg.h>
#include <unistd.h>

#include <cmocka.h>

static char *path; /* of the file, with "terraform:" */

static int load(const char *outputs, struct ssh_host_list *l, struct gp_error *err) {
    struct gp_error why = {0};
    if (fs_write_atomic(path + strlen("terraform:"), outputs, strlen(outputs), 0600, &why) != 0)
        fail_msg("%s", why.msg);
    return ssh_hosts_load(path, NULL, l, err);
}

/* As Terraform 1.11 prints it: an attribute that an object of the list lacks is null. */
static void test_objects(void **state) {
    (void)state;
    GP_AUTO_SSH_HOSTS struct ssh_host_list l = {0};
    struct gp_error err = {0};
    int r =
        load("{\n  \"gpuprov_hosts\": {\n    \"sensitive\": false,\n    \"type\": [\"tuple\", []],\n    \"value\": [\n"
             "{\"address\": \"10.0.0.5\", \"gpu\": \"H100:8\", \"port\": 2222, \"key\": \"id\", \"user\": null},\n"
             "{\"address\": \"gpu-3.example\", \"host_key\": [\"SHA256:uNiVztksCsDhcc0u9e8BrrJXVGDUcZiiwKSRO0LK6wc\"],"
             "\"user\": \"ops\"}]},\n\"other\": {\"sensitive\": true, \"type\": \"bool\", \"value\": true}}",
             &l, &err);
    if (r != 0) fail_msg("%s", err.msg);
    assert_int_equal(l.list.len, 2);
    const struct ssh_host *a = &l.list.items[0], *b = &l.list.items[1];
    assert_string_equal(a->address, "10.0.0.5");
    assert_int_equal(a->port, 2222);
    assert_int_equal(a->gpus, 8);
    GP_AUTO_FREE char *key = fs_relative_to(path + strlen("terraform:"), "id");
    assert_string_equal(a->key, key);
    assert_string_equal(b->user, "ops");
    assert_int_equal(b->host_keys.n, 1);
    assert_int_equal(b->port, 22);
}

static void test_addresses(void **state) {
    (void)state;
    GP_AUTO_SSH_HOSTS struct ssh_host_list l = {0};
    struct gp_error err = {0};
    if (load("{\"gpuprov_hosts\": {\"value\": [\"10.0.0.5\", \"fe80::1\"]}}", &l, &err) != 0) fail_msg("%s", err.msg);
    assert_int_equal(l.list.len, 2);
    assert_string_equal(l.list.items[1].address, "fe80::1");
}

static void test_wrong_outputs(void **state) {
    (void)state;
    static const struct {
        const char *outputs, *says;
    } bad[] = {
        {"", "the output of Terraform"},
        {"{", "the output of Terraform"},
        {"[]", "no output 'gpuprov_hosts'"},
        {"{}", "no output 'gpuprov_hosts': declare it as the list of hosts and run 'terraform apply'"},
        {"{\"gpuprov_hosts\": {\"value\": []}}", "a list with at least one host"},
        {"{\"gpuprov_hosts\": {\"value\": \"10.0.0.5\"}}", "a list with at least one host"},
        {"{\"gpuprov_hosts\": [\"10.0.0.5\"]}", "a list with at least one host"},
        {"{\"gpuprov_hosts\": {\"value\": [true]}}", "gpuprov_hosts[0] must be an address or an object"},
        {"{\"gpuprov_hosts\": {\"value\": [\"a\", {\"address\": 1.5}]}}",
         "gpuprov_hosts[1] must be an address or an object"},
        {"{\"gpuprov_hosts\": {\"value\": [[[[[[\"a\"]]]]]]}}", "gpuprov_hosts[0] must be"},
        {"{\"gpuprov_hosts\": {\"value\": [{\"user\": \"ops\"}]}}", "gpuprov_hosts[0]: the host has no 'address'"},
        {"{\"gpuprov_hosts\": {\"value\": [\"a\", \"-oProxyCommand=id\"]}}",
         "gpuprov_hosts[1]: '-oProxyCommand=id' cannot be a host's address"},
        {"{\"gpuprov_hosts\": {\"value\": [{\"address\": \"a\", \"usr\": \"ops\"}]}}",
         "gpuprov_hosts[0]: unknown key 'usr' in a host (did you mean 'user'?)"},
        {"{\"gpuprov_hosts\": {\"value\": [{\"address\": \"a\", \"user\": [\"ops\"]}]}}",
         "gpuprov_hosts[0]: 'user' takes"},
        {"{\"gpuprov_hosts\": {\"value\": [{\"address\": \"a\", \"port\": 99999}, \"$(id)\"]}}",
         "gpuprov_hosts[0]: '99999' is not a port (1 to 65535); at [1]: '$(id)' cannot be"},
        {"{\"gpuprov_hosts\": {\"value\": [\"a\", \"a\"]}}", "gpuprov_hosts[1]: duplicate host a:22"},
        {"{\"gpuprov_hosts\": {\"value\": [\"a\\u0000b\"]}}", "the output of Terraform"},
    };
    for (size_t i = 0; i < GP_ARRAY_LEN(bad); i++) {
        GP_AUTO_SSH_HOSTS struct ssh_host_list l = {0};
        struct gp_error err = {0};
        assert_int_equal(load(bad[i].outputs, &l, &err), -GP_EUSAGE);
        if (strstr(err.msg, bad[i].says) == NULL) fail_msg("%s: '%s'", bad[i].outputs, err.msg);
        if (!str_starts(err.msg, path) || strchr(err.msg, '\n') != NULL) fail_msg("'%s'", err.msg);
    }
}

static void test_no_file(void **state) {
    (void)state;
    GP_AUTO_SSH_HOSTS struct ssh_host_list l = {0};
    struct gp_error err = {0};
    assert_int_equal(ssh_hosts_load("terraform:/nonexistent/o.json", NULL, &l, &err), -GP_EUSAGE);
    assert_true(str_starts(err.msg, "terraform:/nonexistent/o.json: "));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_objects),
        cmocka_unit_test(test_addresses),
        cmocka_unit_test(test_wrong_outputs),
        cmocka_unit_test(test_no_file),
    };
    char dir[256];
    if (make_folder(dir, sizeof dir, "outputs") == NULL) return 1;
    path = xasprintf("terraform:%s/o.json", dir);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    (void)fs_remove_tree(dir, NULL);
    free(path);
    return failed;
}
