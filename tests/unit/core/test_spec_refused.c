/* SPDX-License-Identifier: Apache-2.0 */
/* What a spec may not say: each row is refused with one error, at its line and column, in these words.
 * Runs from the repository's root. */
#include "base/gp_base.h"

#include "spec_fixture.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

/* The text stands on line 2, below "name: t". */
struct refusal {
    const char *rest;
    unsigned column;
    const char *part; /* of the message */
};

static void refuse(const struct refusal *rows, size_t n) {
    for (size_t i = 0; i < n; i++) {
        GP_AUTO_FREE char *text = xasprintf("name: t\n%s\n", rows[i].rest);
        bad_at(text, 2, rows[i].column, rows[i].part);
    }
}

/* the top level */
static const struct refusal in_top_level[] = {
    {"nodse: 2", 1, "unknown key 'nodse' in a spec; did you mean 'nodes'?"},
    {"zzz: 2", 1, "valid here: apiVersion, name, nodes"},
    {"cpus: 0", 7, "from 1 to 4096"},
    {"cpus: many", 7, "a whole number"},
    {"memory: 64", 9, "'memory' is 64 without a unit: write 64GB or 64GiB"},
    {"memory: 100MB", 9, "a size such as 64GB, not '100MB' (units: GB, GiB, TB, TiB)"},
    {"memory: 64 gb", 9, "a size such as 64GB"},
    {"disk: 500G", 7, "a size such as 500GB"},
    {"disk: -1GB", 7, "a size such as 500GB"},
    {"disk: 0GB", 7, "'disk' must be from 1 GiB to 65536 GiB, not 0GB"},
    {"disk: 999999999999TiB", 7, "from 1 GiB to 65536 GiB"},
    {"disk: [500GB]", 7, "'disk' must be text"},
    {"ttl: 2h", 1, "it belongs to 'limits'"},
    {"limits: {nodes: 2}", 10, "it belongs to the top level"},
    {"apiVersion: v1", 13, "'apiVersion' cannot be 'v1'"},
    {"nodes: 0", 8, "from 1 to 4096, not '0'"},
    {"nodes: 4097", 8, "from 1 to 4096"},
    {"nodes: two", 8, "whole number"},
    {"nodes: 1.5", 8, "whole number"},
    {"nodes: '2'", 8, "without quotes"},
    {"nodes: 99999999999999999999", 8, "from 1 to 4096"},
    {"nodes:", 7, "has no value"},
    {"nodes: ~", 8, "has no value"},
    {"nodes: [2]", 8, "must be text, not a list"},
};

/* gpu */
static const struct refusal in_gpus[] = {
    {"gpu: {model: H100, memory: 80}", 20, "unknown key 'memory' in gpu"},
    {"gpu: 8:H100", 6, "did you mean 'H100:8'?"},
    {"gpu: H100:0", 6, "from 1 to 16"},
    {"gpu: H100:17", 6, "from 1 to 16"},
    {"gpu: 'H100:'", 6, "from 1 to 16"},
    {"gpu: 8", 6, "model[:count]"},
    {"gpu: [H100]", 6, "gpu must be a map"},
    {"gpu: {count: 8}", 6, "gpu needs 'model'"},
    {"gpu: HL00:8", 6, "unknown GPU model 'HL00'; did you mean 'H100'?"},
    {"gpu: {count: 8, model: A1OO}", 24, "unknown GPU model 'A1OO'; did you mean 'A100'?"},
    {"gpu: {model: H100, count: eight}", 27, "whole number from 1 to 16"},
};

/* order and offers */
static const struct refusal in_orders_and_offers[] = {
    {"order: cheap", 8, "'order' cannot be 'cheap'"},
    {"order: Listed", 8, "did you mean 'listed'?"},
    {"offers: []", 9, "needs at least 1"},
    {"offers: {provider: aws}", 9, "must be a list (put '- '"},
    {"offers: aws", 9, "must be a list"},
    {"offers: [aws]", 10, "offers[] must be a map"},
    {"offers: [{}]", 10, "needs 'provider'"},
    {"offers: [{provider: aws, ssh_from: []}]", 36,
     "'ssh_from' is an empty list: remove the key for its default (`acc"},
    {"offers: [{provider: aws, regions: []}]", 35, "'regions' is an empty list: remove the key for its default"},
    {"offers: [{provider: aws, zones: []}]", 33, "'zones' is an empty list"},
    {"access: {ssh_from: []}", 20, "'ssh_from' is an empty list: remove the key for its default (this machine's own"},
    {"offers: [{provider: amazon}]", 21, "unknown provider 'amazon'; known: local, ssh"},
    {"offers: [{provider: asw}]", 21, "unknown provider 'asw'; did you mean 'aws'? known: local, ssh"},
    {"offers: [{provider: local, market: spot}]", 28, "'market' is a key of aws"},
    {"offers: [{provider: local, regions: [a1]}]", 28, "'regions' is a key of aws"},
    {"offers: [{provider: aws, hosts: x}]", 26, "'hosts' is a key of ssh"},
    {"offers: [{provider: ssh}]", 10, "needs 'hosts'"},
    {"offers: [{provider: ssh, hosts: no-such-file}]", 33, "the hosts file '/"},
    {"offers: [{provider: aws, market: spott}]", 34, "did you mean 'spot'?"},
    {"offers: [{provider: aws, regions: us-east-1}]", 35, "must be a list: [us-east-1]"},
    {"offers: [{provider: aws, regions: [US]}]", 36, "lower-case"},
    {"offers: [{provider: aws, regions: [us-east-1, us-east-1]}]", 47, "duplicate 'us-east-1' in 'regions'"},
    {"offers: [{provider: aws, regions: [us-east-1], zones: [us-west-2a]}]", 56,
     "in none of the regions of this offer (us-east-1)"},
    {"offers: [{provider: aws, regions: [us-east-1], zones: [us-east-1]}]", 56, "in none of"},
    {"offers: [{provider: aws, instance_type: big}]", 41, "p5.48xlarge"},
    {"offers: [{provider: aws, subnet: net}]", 34, "subnet-"},
    {"offers: [{provider: aws, zones: [a b]}]", 34, "one word"},
    {"offers: [{provider: aws, image: auto}]", 33, "image must be a map: {os: ...}"},
    {"offers: [{provider: aws, image: {os: a-1, id: b}}]", 43, "both 'os' and 'id'"},
    {"offers: [{provider: local, image: {os: a-1}}]", 28, "; the provider 'local' does not take it"},
    {"offers: [{provider: local, ssh_from: [10.0.0.0/8]}]", 28, "'ssh_from' is a key of aws"},
    {"offers: [{provider: ssh, hosts: examples/fleet.yaml, role: x}]", 54, "'role' is a key of aws"},
    {"offers: [{provider: aws, ssh_from: [10.0.0.1]}]", 37, "did you mean '10.0.0.1/32'?"},
};

/* limits and image */
static const struct refusal in_limits_and_images[] = {
    {"limits: {ttl: 12}", 15, "12 without a unit: write 12s, 12m or 12h"},
    {"limits: {ttl: 12 hours}", 15, "must be a duration such as 12h"},
    {"limits: {ttl: 30s}", 15, "must be from 1m to 30d"},
    {"limits: {ttl: 31d}", 15, "must be from 1m to 30d"},
    {"limits: {ttl: -5m}", 15, "must be a duration"},
    {"limits: 4h", 9, "limits must be a map: {ttl: ...}"},
    {"limits:", 8, "has no value"},
    {"image: ubuntu-24.04", 8, "did you mean {os: ubuntu-24.04}?"},
    {"image: ami-0123", 8, "did you mean {id: ami-0123}?"},
    {"image: {os: a-1, id: b}", 18, "both 'os' and 'id'"},
    {"image: {}", 8, "needs 'os' or 'id'"},
    {"image: {os: Ubuntu 24}", 13, "such as ubuntu-24.04"},
    {"image: {os: debian-12}", 13, "no offer of this spec takes 'os': nodes of local have the system that is there"},
    {"image: {id: ami-1}", 13, "no offer of this spec takes 'id': nodes of local"},
    {"image: {os: debian-12, baked: prefer}", 13, "no offer of this spec takes 'os'"},
    {"image: {os: ubunut-24.04}\noffers: [{provider: aws}]", 13,
     "aws has no system 'ubunut-24.04'; did you mean 'ubuntu-24.04'?"},
    {"bootstrap: {container: {engine: podman}}\nimage: {os: amzn-2023}\noffers: [{provider: aws}]", 33,
     "amzn-2023 has no package of podman; it has docker, containerd; "},
    {"image: {os: gentoo}\noffers: [{provider: aws}]", 13,
     "it has ubuntu-24.04, ubuntu-22.04, debian-12, debian-13, amzn-2023; "},
    {"offers: [{provider: local}, {provider: aws, image: {os: debian-1}}]", 57, "did you mean 'debian-12'?"},
};

/* access */
static const struct refusal in_access[] = {
    {"access: {public_ip: yes}", 21, "did you mean true (without quotes)?"},
    {"access: {public_ip: 'true'}", 21, "not the text 'true'"},
    {"access: {public_ip: off}", 21, "did you mean false"},
    {"access: {public_ip: maybe}", 21, "must be true or false, not 'maybe'"},
    {"access: {ssh_from: [10.0.0.1]}", 21, "did you mean '10.0.0.1/32'?"},
    {"access: {ssh_from: ['10.0.0.9/24']}", 21, "did you mean '10.0.0.0/24'?"},
    {"access: {ssh_from: ['10.0.0.0/33']}", 21, "from 0 to 32"},
    {"access: {ssh_from: ['2001:db8::1/64']}", 21, "did you mean '2001:db8::/64'?"},
    {"access: {ssh_from: [everyone]}", 21, "is not a network"},
    {"access: {bastion: 'ops@'}", 19, "[user@]host[:port]"},
    {"access: {bastion: 'a@b:0'}", 19, "from 1 to 65535"},
    {"access: {bastion: 'a@b; rm'}", 19, "[user@]host[:port]"},
};

#define A_SECRET "secrets: [{env: T, from: env:Q}]"

/* bootstrap and validate */
static const struct refusal in_bootstrap_and_checks[] = {
    {"bootstrap: {packages: ['-y']}", 24, "a package's name"},
    {"bootstrap: {packages: ['a b']}", 24, "a package's name"},
    {"bootstrap: {packages: [openssh-server-]}", 24, "a package's name"}, /* apt-get would remove it */
    {"bootstrap: {python: {}}", 21, "'python' needs one of version, venv"},
    {"bootstrap: {python: {index: https://x}}", 21, "'python' needs one of version, venv"},
    {"bootstrap: {python: {version: 3}}", 31, "a version such as 3.12"},
    {"bootstrap: {python: {version: 2.7}}", 31, "a version such as 3.12"},
    {"bootstrap: {python: {venv: env}}", 28, "an absolute path"},
    {"bootstrap: {python: {venv: /}}", 28, "an absolute path"},
    {"bootstrap: {python: {venv: /opt}}", 28, "an absolute path of two parts"},
    {"bootstrap: {python: {venv: /opt/../etc}}", 28, "an absolute path"},
    {"bootstrap: {python: {packages: ['-e.']}}", 33, "a package such as numpy"},
    {"bootstrap: {python: {packages: ['a; b']}}", 33, "a package such as numpy"},
    {"bootstrap: {python: {packages: ['a @ https://x/y.whl']}}", 33, "a package such as numpy"},
    {"bootstrap: {python: {packages: ['torch==2.9.1'], torch: auto}}", 32, "'torch' installs it too: remove one"},
    {"bootstrap: {python: {torch: newest}}", 29, "auto, none or a version such as 2.9.1"},
    {"bootstrap: {python: {packages: [a], torch_index: https://x/y}}", 50, "has no use without 'torch'"},
    {"bootstrap: {python: {packages: [a], index: 'https://me:pw@x/'}}", 44, "without a user, a password"},
    {"bootstrap: {python: {packages: [a], index: 'ftp://x/'}}", 44, "http or https URL"},
    {"bootstrap: {python: {packages: [a], index_auth: T}}", 49, "'index_auth' needs the 'index' that it is for"},
    {"bootstrap: {python: {packages: [a], index: https://x, index_auth: T}}", 67, "there is no secret 'T': add"},
    {"bootstrap: {python: {packages: [a], index: http://x/y, index_auth: T}}\n" A_SECRET, 44,
     "'index' is not https, and nodes would send the password of 'index_auth' there in clear text: use https, or set"},
    {"bootstrap: {python: {torch: auto, torch_index: http://x/y, index: https://x/y, index_auth: T}}\n" A_SECRET, 48,
     "'torch_index' is not https"},
    {"bootstrap: {python: {packages: [a], index: http://lab.example.x/y, index_auth: T}}\n" A_SECRET, 44, "not https"},
    {"bootstrap: {python: {packages: [a], index: http://127.1/y, index_auth: T}}\n" A_SECRET, 44, "not https"},
    {"bootstrap: {python: {requirements: \"a\\n-i http://x/s\\n\", index: https://x, index_auth: T}}\n" A_SECRET, 36,
     "line 2: '-i http://x/s' is fetched by http, and nodes could send the password"},
    {"bootstrap: {python: {requirements: \"a @ HTTP://x/a.whl\\n\", index: https://x, index_auth: T}}\n" A_SECRET, 36,
     "is fetched by http"},
    {"bootstrap: {python: {requirements: no-such-file.txt}}", 36, "'requirements': could not read"},
    {"bootstrap: {python: {requirements: \"a\\n-r b.txt\\n\"}}", 36, "line 2: '-r b.txt' names a file or an option"},
    {"bootstrap: {python: {requirements: \"-e .\\n\"}}", 36, "line 1: '-e .' names a file"},
    {"bootstrap: {python: {requirements: \"https://x/a.whl\\n\"}}", 36, "is not a package such as"},
    {"bootstrap: {python: {requirements: \"-i https://me:pw@x/\\n\"}}", 36, "line 1: it has a password: put it into"},
    {"bootstrap: {python: {torch: auto, requirements: \"torch>=2 # x\\n\"}}", 49, "which 'torch' installs too"},
    {"bootstrap: {steps: [{name: a, run: x}, {name: a, run: y}]}", 47, "duplicate step name 'a' (first on line 2)"},
    {"bootstrap: {container: {engine: dokcer}}", 33, "did you mean 'docker'?"},
    {"bootstrap: {container: {images: ['a:1']}}", 24, "needs 'engine'"},
    {"bootstrap: {container: {engine: none, images: ['a:1']}}", 47, "'images' needs an engine: write 'engine: docker'"},
    {"bootstrap: {container: {engine: podman, images: [busybox]}}", 50, "an image with its tag or digest"},
    {"bootstrap: {container: {engine: podman, images: ['a b:1']}}", 50, "an image with its tag or digest"},
    {"bootstrap: {container: {engine: podman, images: ['Busybox:1']}}", 50, "an image with its tag or digest"},
    {"bootstrap: {container: {engine: podman, images: ['-a:1']}}", 50, "an image with its tag or digest"},
    {"bootstrap: {container: {engine: podman, images: ['a:1@sha256:12']}}", 50, "an image with its tag or digest"},
    {"bootstrap: {container: {engine: podman, images: ['a:1'], registry_auth: A B}}", 73, "the name of a secret"},
    {"bootstrap: {container: {engine: podman, images: ['a:1'], registry_auth: A}}", 73,
     "'registry_auth' names 'A', which is no secret of this spec: add it to 'secrets'"},
    {"bootstrap: {steps: [{name: a}]}", 21, "needs 'run'"},
    {"bootstrap: {steps: [{name: a, run: ''}]}", 36, "'run' is empty"},
    {"validate: {time: 3m}", 18, "valid here: 1m, 5m, 20m"},
    {"validate: {time: 5}", 18, "without a unit"},
    {"validate: {require: [train.dpp]}", 22, "did you mean 'train.ddp'?"},
    {"validate: {require: [gpu.magic.wand]}", 22, "'gpuprov checks' lists them"},
    {"validate: {floors: {train.dpp.loss: 3}}", 21, "did you mean 'train.ddp'?"},
    {"validate: {floors: {net.pair.speed: 3 GB/s}}", 21, "has no figure 'speed'; it has: latency (us)"},
    {"validate: {floors: {net.pair.bandwidth: 300}}", 41, "needs a unit: write it as 300 GB/s"},
    {"validate: {floors: {net.pair.bandwidth: 300 ms}}", 41, "measured in GB/s, not in ms"},
    {"validate: {floors: {net.pair.bandwidth: 300 Gb/s}}", 41, "write Gbit/s or GB/s"},
    {"validate: {floors: {net.pair.bandwidth: 300 gb/s}}", 41, "did you mean 'GB/s'?"},
    {"validate: {floors: {net.pair.bandwidth: fast}}", 41, "a number and a unit"},
    {"validate: {floors: {net.pair.bandwidth: -3 GB/s}}", 41, "a number and a unit"},
    {"validate: {floors: {net.pair: 3}}", 31, "needs a unit"},
    {"validate: {floors: {net.pair: 3 %}}", 31, "has no figure in %"},
    {"validate: {floors: {net.pair: 3 GB/s, net.pair.bandwidth: 2 GB/s}}", 39, "has a floor already"},
    {"validate: {floors: [a]}", 20, "'floors' must be a map"},
};

/* secrets */
static const struct refusal in_secrets[] = {
    {"secrets: [{env: PATH, from: env:X}]", 17, "cannot be named 'PATH'"},
    {"secrets: [{env: LD_PRELOAD, from: env:X}]", 17, "cannot be named"},
    {"secrets: [{env: GPUPROV_X, from: env:X}]", 17, "cannot be named"},
    {"secrets: [{env: A-B, from: env:X}]", 17, "a variable's name"},
    {"secrets: [{env: A, from: hunter2}]", 26, "file:PATH or env:NAME"},
    {"secrets: [{env: A, from: env:X}, {env: A, from: env:Y}]", 40, "duplicate secret 'A'"},
};

/* what is YAML but no spec */
static const struct refusal in_yaml[] = {
    {"\"name\": b", 1, "duplicate key 'name' (first on line 1)"},
    {"nodes: &x 2", 8, "anchors"},
    {"nodes: *x", 8, "aliases"},
    {"nodes: !!int 2", 8, "tags"},
    {"\tnodes: 2", 1, "tab"},
    {"bootstrap: {steps: [{name: a, run: \"a\\x1bb\"}]}", 36, "control characters"},
    {"bootstrap: {steps: [{name: a, run: \"a\\0b\"}]}", 36, "NUL"},
};

static void refuses_top_level(void **state) {
    (void)state;
    refuse(in_top_level, GP_ARRAY_LEN(in_top_level));
}
static void refuses_gpus(void **state) {
    (void)state;
    refuse(in_gpus, GP_ARRAY_LEN(in_gpus));
    /* a provider that lists its models: another is refused, unless the type is given */
    bad_at("name: t\ngpu: Z999\noffers: [{provider: aws}]\n", 2, 6, "T4");
    bad_at("name: t\ngpu: Zebra\noffers: [{provider: aws}]\n", 2, 6,
           "and others ('gpuprov checks --models'); an offer");
    bad_at("name: t\ngpu: P10\noffers: [{provider: aws}]\n", 2, 6, "did you mean 'P100'?");
    spec_free(good("name: t\ngpu: Z999\noffers: [{provider: aws, instance_type: p9.large}]\n"));
    spec_free(good("name: t\ngpu: Z999\noffers: [{provider: aws}, {provider: local}]\n"));
    /* any GPU may be in a machine of one's own */
    spec_free(good("name: t\ngpu: GTX 1080\n"));
    spec_free(good("name: t\ngpu: nvidia-h100-80gb\noffers: [{provider: aws}]\n"));
    spec_free(good("name: t\ngpu: rtx pro server 6000:8\noffers: [{provider: aws}]\n"));
}
static void refuses_orders_and_offers(void **state) {
    (void)state;
    refuse(in_orders_and_offers, GP_ARRAY_LEN(in_orders_and_offers));
}
static void refuses_limits_and_images(void **state) {
    (void)state;
    refuse(in_limits_and_images, GP_ARRAY_LEN(in_limits_and_images));
}
static void refuses_access(void **state) {
    (void)state;
    refuse(in_access, GP_ARRAY_LEN(in_access));
}
static void refuses_bootstrap_and_checks(void **state) {
    (void)state;
    refuse(in_bootstrap_and_checks, GP_ARRAY_LEN(in_bootstrap_and_checks));
}
/* The rule is that of every other request with a secret: https, this machine, or a host that the user exempts. */
static void password_of_an_index(void **state) {
    (void)state;
    static const char *const urls[] = {"https://x/y", "http://lab.example/y", "http://lab.example:8080/y",
                                       "http://127.0.0.1:9/y", "http://localhost/y"};
    setenv("GPUPROV_CLEAR_TEXT", "other:1,lab.example", 1);
    for (size_t i = 0; i < GP_ARRAY_LEN(urls); i++) {
        GP_AUTO_FREE char *text = xasprintf(
            "name: t\nbootstrap: {python: {packages: [a], index: '%s', index_auth: T}}\n" A_SECRET "\n", urls[i]);
        GP_AUTO_SPEC struct spec *spec = good(text);
        assert_string_equal(spec->python.index, urls[i]);
    }
    unsetenv("GPUPROV_CLEAR_TEXT");
    GP_AUTO_SPEC struct spec *open = good("name: t\nbootstrap: {python: {packages: [a], index: 'http://x/y'}}\n");
    assert_null(open->python.index_auth);
}
static void refuses_secrets(void **state) {
    (void)state;
    refuse(in_secrets, GP_ARRAY_LEN(in_secrets));
}
static void refuses_yaml(void **state) {
    (void)state;
    refuse(in_yaml, GP_ARRAY_LEN(in_yaml));
}

static void names_of_stacks(void **state) {
    (void)state;
    bad_at("name: Llm\n", 1, 7, "lower-case");
    bad_at("name: 1a\n", 1, 7, "starting with a letter");
    bad_at("name: a_b\n", 1, 7, "lower-case");
    bad_at("name: ''\n", 1, 7, "lower-case");
    bad_at("name: aaaaaaaaaabbbbbbbbbbccccccccccddddddddddx\n", 1, 7, "at most 40");
    bad_at("name: \"a\\nb\"\n", 1, 7, "lower-case");
    bad_at("nodes: 2\n", 1, 1, "a spec needs 'name', such as name: llm");
    bad_at("", 1, 1, "the spec is empty");
    bad_at("# nothing\n---\n", 1, 1, "the spec is empty");
    bad_at("- a\n", 1, 1, "a spec must be a map");
    bad_at("just text\n", 1, 1, "a spec must be a map");
    bad_at("name: a\n---\nname: b\n", 2, 1, "more than one document");
    bad_at("name: [a\n", 2, 1, "line 1");
    bad_at("name: t\n# caf\xe9\n", 2, 6, "UTF-8");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refuses_top_level),
        cmocka_unit_test(refuses_gpus),
        cmocka_unit_test(refuses_orders_and_offers),
        cmocka_unit_test(refuses_limits_and_images),
        cmocka_unit_test(refuses_access),
        cmocka_unit_test(refuses_bootstrap_and_checks),
        cmocka_unit_test(password_of_an_index),
        cmocka_unit_test(refuses_secrets),
        cmocka_unit_test(refuses_yaml),
        cmocka_unit_test(names_of_stacks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
