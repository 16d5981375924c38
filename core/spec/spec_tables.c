/* SPDX-License-Identifier: Apache-2.0 */
/* The spec language: one row per key. Errors, the JSON Schema and docs/spec.md come from these rows,
 * so a key without a row does not exist. Only data; no decoding. */
#include "base/gp_base.h"

#include "spec/spec_internal.h"

#define NAME_PATTERN "^[a-z][a-z0-9-]{0,39}$"
#define NAME_DOC "lower-case letters, digits and '-', starting with a letter, at most 40"
#define WORD_PATTERN "^[A-Za-z0-9+=,.@_:/-]{1,256}$"
#define WORD_DOC "one word of at most 256 letters, digits and +=,.@_:/-"

static const char *const api_versions[] = {SPEC_API_VERSION, NULL};
static const char *const orders[] = {[ORDER_CHEAPEST] = "cheapest", [ORDER_LISTED] = "listed", NULL};
static const char *const unattended[] = {"refuse", "accept", NULL};
static const char *const markets[] = {[MARKET_ON_DEMAND] = "on-demand", [MARKET_SPOT] = "spot", NULL};
static const char *const baked[] = {BAKED_REQUIRE, BAKED_PREFER, NULL};
static const char *const times[] = {"1m", "5m", "20m", NULL};

const char *spec_market_name(enum spec_market m) {
    return m == MARKET_SPOT ? markets[MARKET_SPOT] : markets[MARKET_ON_DEMAND];
}

/* Rows read as rows. */
/* clang-format off */
static const struct spec_field gpu_fields[] = {
    {.name = "model", .type = SPEC_TEXT, .offset = offsetof(struct spec_gpu, model), .required = true,
     .doc = "the GPU model, as its maker names it", .example = "H100",
     .pattern = "^[A-Za-z][A-Za-z0-9 ._-]{0,39}$", .pattern_doc = "a GPU model such as H100"},
    {.name = "count", .type = SPEC_INT, .offset = offsetof(struct spec_gpu, count), .def = "1",
     .doc = "how many each node has", .example = "8", .min = 1, .max = 16, .default_in_hash = true},
    {0}};
static const struct spec_block gpu_block = {
    .path = "gpu", .doc = "The GPUs of every node; also in short: `gpu: H100:8` or `gpu: H100`.",
    .fields = gpu_fields, .has_pos = true, .pos_offset = offsetof(struct spec_gpu, pos),
    .rules = spec_rule_gpu};

static const struct spec_field image_fields[] = {
    {.name = "os", .type = SPEC_TEXT, .offset = offsetof(struct spec_image, os),
     .doc = "the provider's newest image of this system", .example = "ubuntu-24.04",
     .pattern = "^[a-z][a-z0-9]{0,30}(-[a-z0-9.]{1,30})*$",
     .pattern_doc = "a system and its version, such as ubuntu-24.04"},
    {.name = "id", .type = SPEC_TEXT, .offset = offsetof(struct spec_image, id),
     .doc = "exactly this image", .example = "image-0123",
     .pattern = "^[A-Za-z0-9][A-Za-z0-9._:/@-]{0,254}$", .pattern_doc = "an image id"},
    {.name = "baked", .type = SPEC_TEXT, .offset = offsetof(struct spec_image, baked), .choices = baked,
     .doc = "the newest image that `gpuprov bake` made and that fits: the same `bootstrap`, provider, region, "
            "architecture and GPU model, and the same `os` or `id` where one is named. `require`: without such an "
            "image nothing is launched; `prefer`: then `os`, `id` or `auto` counts",
     .example = "prefer"},
    {0}};
static const struct spec_block image_block = {
    .path = "image",
    .doc = "The image that nodes boot; in short `image: auto`: with `gpu` the provider's newest image that has "
           "the driver, without it the newest Ubuntu LTS; in short `image: baked`: `{baked: require}`. The map has "
           "`os` or `id`, `baked`, or both.",
    .fields = image_fields, .rules = spec_rule_image};

/* Keys that a provider may take. A provider's own row selects them, and defines their form and meaning there. */
static const struct spec_field offer_fields[] = {
    {.name = "provider", .type = SPEC_TEXT, .offset = offsetof(struct spec_offer, provider),
     .required = true, .names = spec_provider_names, .doc = "where the nodes come from; see below", .example = "NAME",
     .effect = SPEC_REFUSED},
    {.name = "regions", .type = SPEC_TEXTS, .min_items = 1, .offset = offsetof(struct spec_offer, regions),
     .def_doc = "the provider's default region", .doc = "regions to buy in, in this order",
     .pattern = WORD_PATTERN, .pattern_doc = WORD_DOC, .effect = SPEC_REFUSED},
    {.name = "zones", .type = SPEC_TEXTS, .min_items = 1, .offset = offsetof(struct spec_offer, zones),
     .def_doc = "every zone of the regions", .doc = "zones to buy in",
     .pattern = WORD_PATTERN, .pattern_doc = WORD_DOC, .effect = SPEC_REFUSED},
    {.name = "market", .type = SPEC_ENUM, .offset = offsetof(struct spec_offer, market),
     .choices = markets, .def = "on-demand", .doc = "`spot` is cheaper and can be reclaimed at short notice",
     .example = "spot", .default_in_hash = true, .effect = SPEC_REFUSED},
    {.name = "instance_type", .type = SPEC_TEXT, .offset = offsetof(struct spec_offer, instance_type),
     .def_doc = "chosen from `gpu`", .doc = "the instance type",
     .pattern = WORD_PATTERN, .pattern_doc = WORD_DOC, .effect = SPEC_REFUSED},
    {.name = "subnet", .type = SPEC_TEXT, .offset = offsetof(struct spec_offer, subnet),
     .def_doc = "the zone's default subnet", .doc = "the subnet that nodes are in",
     .pattern = WORD_PATTERN, .pattern_doc = WORD_DOC, .effect = SPEC_REFUSED},
    {.name = "network", .type = SPEC_TEXT, .offset = offsetof(struct spec_offer, network),
     .def_doc = "the provider's choice", .doc = "the network that nodes are in",
     .pattern = WORD_PATTERN, .pattern_doc = WORD_DOC, .effect = SPEC_REFUSED},
    {.name = "networks", .type = SPEC_TEXTS, .min_items = 1, .offset = offsetof(struct spec_offer, networks),
     .def_doc = "none", .doc = "further networks of the nodes, for the traffic between their GPUs",
     .pattern = WORD_PATTERN, .pattern_doc = WORD_DOC, .effect = SPEC_REFUSED},
    {.name = "project", .type = SPEC_TEXT, .offset = offsetof(struct spec_offer, project),
     .def_doc = "that of the credentials", .doc = "the project at the provider that owns and pays the nodes",
     .pattern = WORD_PATTERN, .pattern_doc = WORD_DOC, .effect = SPEC_REFUSED},
    {.name = "role", .type = SPEC_TEXT, .offset = offsetof(struct spec_offer, role),
     .def_doc = "none", .doc = "the permissions of the nodes at the provider",
     .pattern = WORD_PATTERN, .pattern_doc = WORD_DOC, .effect = SPEC_REFUSED},
    {.name = "reservation", .type = SPEC_TEXT, .offset = offsetof(struct spec_offer, reservation),
     .def_doc = "none", .doc = "capacity that was reserved before, by its id at the provider",
     .pattern = WORD_PATTERN, .pattern_doc = WORD_DOC, .effect = SPEC_REFUSED},
    {.name = "hosts", .type = SPEC_TEXT, .offset = offsetof(struct spec_offer, hosts),
     .doc = "the file that lists the machines, relative to the spec",
     .basename_in_hash = true, .effect = SPEC_REFUSED},
    {.name = "image", .type = SPEC_BLOCK, .offset = offsetof(struct spec_offer, image), .block = &image_block,
     .def_doc = "the stack's `image`", .doc = "the image of this offer's nodes", .example = "{os: ubuntu-24.04}",
     .effect = SPEC_REFUSED},
    {.name = "ssh_from", .type = SPEC_TEXTS, .min_items = 1, .offset = offsetof(struct spec_offer, ssh_from),
     .def_doc = "`access.ssh_from`", .doc = "networks that may reach SSH of nodes of this offer",
     .example = "[203.0.113.0/24]", .check = spec_check_cidr, .effect = SPEC_ACCESS},
    {0}};
const struct spec_block spec_offer_block = {
    .path = "offers[]",
    .doc = "The offers of nodes. They are tried until one has room for all nodes. Each provider takes the keys "
            "that are listed under its name.",
    .fields = offer_fields, .size = sizeof(struct spec_offer), .has_pos = true,
    .pos_offset = offsetof(struct spec_offer, pos), .takes = spec_offer_takes, .rules = spec_rule_offer};

static const struct spec_field limits_fields[] = {
    {.name = "ttl", .type = SPEC_DURATION, .offset = offsetof(struct spec, ttl_ms), .def = "4h",
     .doc = "how long the nodes live; they are terminated then, also when gpuprov or this machine is gone; "
            "machines that existed before are never terminated; where it is not written, `max_cost` may shorten it",
     .example = "12h",
     .min = 60000, .max = (int64_t)30 * 86400000, .default_in_hash = true, .effect = SPEC_DEADLINE},
    {.name = "idle", .type = SPEC_DURATION, .offset = offsetof(struct spec, idle_ms), .def_doc = "none",
     .doc = "how long a node may have no job, no login and no GPU use; then it ends. CPU load does not count. Needs "
            "nodes that end themselves", .example = "30m",
     .min = 60000, .max = (int64_t)30 * 86400000, .effect = SPEC_DEADLINE},
    {.name = "controller", .type = SPEC_DURATION, .offset = offsetof(struct spec, controller_ms), .def_doc = "none",
     .doc = "how long a node may be without a connection of gpuprov or a terminal; then it ends. Needs nodes that end "
            "themselves", .example = "30m",
     .min = 60000, .max = (int64_t)30 * 86400000, .effect = SPEC_DEADLINE},
    {.name = "max_price", .type = SPEC_MONEY, .offset = offsetof(struct spec, max_price), .unit = "USD/h",
     .def_doc = "none", .doc = "the highest price of one node for an hour; dearer offers, and offers whose price is "
            "not known, are passed over; it is also the price limit of spot requests", .example = "60 USD/h",
     .min = 1, .max = (int64_t)1000000 * 1000000, .effect = SPEC_LATER},
    {.name = "max_cost", .type = SPEC_MONEY, .offset = offsetof(struct spec, max_cost), .unit = "USD",
     .def_doc = "none",
     .doc = "the highest cost of the whole stack until its deadline, which is earlier for it where `ttl` is not "
            "written; offers that could still exceed it are passed over", .example = "500 USD",
     .min = 1, .max = (int64_t)1000000000 * 1000000, .effect = SPEC_LATER},
    {.name = "unattended", .type = SPEC_ENUM, .offset = offsetof(struct spec, unattended), .choices = unattended,
     .def = "refuse", .doc = "whether to buy nodes that neither the cloud nor the node itself terminates at the "
            "deadline: only a running `gpuprov gc` does", .example = "accept", .effect = SPEC_LATER},
    {0}};
static const struct spec_block limits_block = {
    .path = "limits", .doc = "Limits of the whole stack.", .fields = limits_fields, .rules = spec_rule_limits};

static const struct spec_field access_fields[] = {
    {.name = "public_ip", .type = SPEC_BOOL, .offset = offsetof(struct spec_access, public_ip),
     .def = "true", .doc = "whether nodes have a public address", .example = "false", .default_in_hash = true,
     .effect = SPEC_REFUSED},
    {.name = "bastion", .type = SPEC_TEXT, .offset = offsetof(struct spec_access, bastion),
     .def_doc = "none", .doc = "reach nodes through this host: [user@]host[:port]",
     .example = "ops@bastion.example", .check = spec_check_bastion, .effect = SPEC_LATER},
    {.name = "ssh_from", .type = SPEC_TEXTS, .min_items = 1, .offset = offsetof(struct spec_access, ssh_from),
     .def_doc = "this machine's own public address", .doc = "networks that may reach SSH",
     .example = "[203.0.113.0/24]", .check = spec_check_cidr, .effect = SPEC_ACCESS},
    {.name = "key", .type = SPEC_TEXT, .offset = offsetof(struct spec_access, key),
     .def_doc = "a key created for the stack",
     .doc = "the private key for login, relative to the spec; `agent` uses ssh-agent",
     .example = "~/.ssh/id_ed25519", .basename_in_hash = true, .effect = SPEC_REFUSED},
    {.name = "timeout", .type = SPEC_DURATION, .offset = offsetof(struct spec_access, timeout_ms),
     .def_doc = "10m in a cloud, 20m with 8 GPUs, 40m on a metal type; 30s for machines that run already",
     .doc = "how long a node may take until it accepts a login", .example = "15m",
     .min = 1000, .max = (int64_t)4 * 3600000, .effect = SPEC_LATER},
    {0}};
static const struct spec_block access_block = {
    .path = "access", .doc = "The access to nodes.", .fields = access_fields,
    .rules = spec_rule_access};

static const struct spec_field validate_fields[] = {
    {.name = "time", .type = SPEC_DURATION, .offset = offsetof(struct spec_validate, time_ms),
     .choices = times, .def = "5m", 
     .doc = "the duration that selects the checks: always the core, then required ones, then others, cheapest first",
     .example = "20m", .default_in_hash = true, .effect = SPEC_REPEATED},
    {.name = "require", .type = SPEC_TEXTS, .offset = offsetof(struct spec_validate, require),
     .doc = "checks that are required besides the core; a node is not ready if one of them did not run",
     .example = "[train.ddp]", .pattern = "^[a-z][a-z0-9_]*([.][a-z][a-z0-9_]*)*$",
     .pattern_doc = "a check's name, such as train.ddp", .check = spec_check_known, .effect = SPEC_REPEATED},
    {.name = "floors", .type = SPEC_FLOORS, .offset = offsetof(struct spec_validate, floors),
     .def_doc = "the table's",
     .doc = "limits of your own, by figure (`check.figure`) or check (its first figure in that unit)",
     .example = "{net.pair.bandwidth: 10 Gbit/s}", .default_in_hash = true, .effect = SPEC_REPEATED},
    {.name = "strict", .type = SPEC_BOOL, .offset = offsetof(struct spec_validate, strict),
     .def = "false", .doc = "whether degraded counts as failed", .example = "true", .default_in_hash = true,
     .effect = SPEC_REPEATED},
    {.name = "baseline", .type = SPEC_TEXT, .offset = offsetof(struct spec_validate, baseline),
     .def_doc = "`baseline.json` of the state folder, where there is one",
     .doc = "your fleet's own figures, relative to the spec; later runs are compared with them too; `gpuprov "
            "validate STACK --calibrate` writes it",
     .example = "baseline.json", .basename_in_hash = true, .effect = SPEC_REPEATED},
    {0}};
static const struct spec_block validate_block = {
    .path = "validate", .doc = "The validation of every node before it is ready.",
    .fields = validate_fields, .rules = spec_rule_validate};

static const struct spec_field secret_fields[] = {
    {.name = "env", .type = SPEC_TEXT, .offset = offsetof(struct spec_secret, env), .required = true,
     .doc = "the environment variable of steps and of the job; not PATH, LD_* or GPUPROV_*", .example = "HF_TOKEN",
     .pattern = "^[A-Za-z_][A-Za-z0-9_]{0,99}$", .pattern_doc = "a variable's name",
     .check = spec_check_env, .effect = SPEC_REPEATED},
    {.name = "from", .type = SPEC_TEXT, .offset = offsetof(struct spec_secret, from), .required = true,
     .doc = "`file:PATH` or `env:NAME` of this machine, read when it is needed and never kept",
     .example = "file:/run/secrets/hf", .pattern = "^(file:.+|env:[A-Za-z_][A-Za-z0-9_]*)$",
     .pattern_doc = "file:PATH or env:NAME", .basename_in_hash = true, .effect = SPEC_REPEATED},
    {0}};
static const struct spec_block secret_block = {
    .path = "secrets[]", .doc = "Values for steps and the job that must stay secret.",
    .fields = secret_fields, .size = sizeof(struct spec_secret), .has_pos = true,
    .pos_offset = offsetof(struct spec_secret, pos), .rules = spec_rule_secret};

static const struct spec_field root_fields[] = {
    {.name = "apiVersion", .type = SPEC_TEXT, .offset = SIZE_MAX, .choices = api_versions,
     .def_doc = SPEC_API_VERSION, .doc = "the language of this file", .example = SPEC_API_VERSION},
    {.name = "name", .type = SPEC_TEXT, .offset = offsetof(struct spec, name), .required = true, .is_public = true,
     .doc = "the stack; unique per owner", .example = "llm", .pattern = NAME_PATTERN,
     .pattern_doc = NAME_DOC, .effect = SPEC_STACK},
    {.name = "nodes", .type = SPEC_INT, .offset = offsetof(struct spec, nodes), .def = "1",
     .doc = "how many nodes, all alike", .example = "2", .min = 1, .max = 4096, .default_in_hash = true,
     .effect = SPEC_SCALED},
    {.name = "gpu", .type = SPEC_SHORT, .offset = offsetof(struct spec, gpu), .block = &gpu_block,
     .from_text = spec_gpu_from_text, .def_doc = "nodes without GPUs",
     .doc = "the GPUs of every node: model[:count]", .example = "H100:8",
     .pattern = "^[A-Za-z][A-Za-z0-9 ._-]{0,39}(:([1-9]|1[0-6]))?$", .pattern_doc = "model[:count]",
     .effect = SPEC_REFUSED},
    {.name = "cpus", .type = SPEC_INT, .offset = offsetof(struct spec, cpus), .def_doc = "any",
     .doc = "how many CPUs (as the provider counts them: vCPUs) each node has at least", .example = "16", .min = 1,
     .max = 4096, .effect = SPEC_REFUSED},
    {.name = "memory", .type = SPEC_SIZE, .offset = offsetof(struct spec, memory_gib), .def_doc = "any",
     .doc = "how much memory each node has at least", .example = "64GB", .min = 1, .max = 65536,
     .effect = SPEC_REFUSED},
    {.name = "disk", .type = SPEC_SIZE, .offset = offsetof(struct spec, disk_gib), .def_doc = "the image's",
     .doc = "the size of each node's root disk; its price is part of the node's", .example = "500GB", .min = 1,
     .max = 65536, .effect = SPEC_REFUSED},
    {.name = "order", .type = SPEC_ENUM, .offset = offsetof(struct spec, order), .choices = orders,
     .def = "cheapest", .doc = "the order in which offers are tried", .example = "listed", .default_in_hash = true,
     .effect = SPEC_LATER},
    {.name = "offers", .type = SPEC_LIST, .offset = offsetof(struct spec, offers), .block = &spec_offer_block,
     .min_items = 1,
     .def_doc = "this machine", .doc = "the offers of nodes",
     .example = "[{provider: NAME}]"},
    {.name = "limits", .type = SPEC_BLOCK, .block = &limits_block, .doc = "limits of the stack",
     .example = "{ttl: 12h}"},
    {.name = "image", .type = SPEC_SHORT, .offset = offsetof(struct spec, image),
     .block = &image_block, .from_text = spec_image_from_text, .def = "auto",
     .doc = "the image that nodes boot", .example = "{os: ubuntu-24.04}", .pattern = "^(auto|baked)$",
     .pattern_doc = "auto, baked, {os: NAME} or {id: IMAGE}", .default_in_hash = true, .effect = SPEC_REFUSED},
    {.name = "access", .type = SPEC_BLOCK, .offset = offsetof(struct spec, access),
     .block = &access_block, .doc = "the access to nodes", .example = "{public_ip: false}"},
    {.name = "bootstrap", .type = SPEC_BLOCK, .block = &spec_bootstrap_block,
     .doc = "the setup of every node", .example = "{packages: [htop]}"},
    {.name = "validate", .type = SPEC_BLOCK, .offset = offsetof(struct spec, validate),
     .block = &validate_block, .doc = "the validation of nodes", .example = "{time: 5m}"},
    {.name = "secrets", .type = SPEC_LIST, .offset = offsetof(struct spec, secrets), .block = &secret_block,
     .doc = "values for steps and the job", .example = "[{env: HF_TOKEN, from: env:HF_TOKEN}]",
     .default_in_hash = true},
    {.name = "estimate", .type = SPEC_BLOCK, .offset = offsetof(struct spec, estimate), .block = &spec_estimate_block,
     .def_doc = "none", .doc = "the size of a training, for its time and cost in `plan`",
     .example = "{params: 7B, tokens: 300B}"},
    {.name = "job", .type = SPEC_BLOCK, .offset = offsetof(struct spec, job), .block = &spec_job_block,
     .def_doc = "none", .doc = "the command of `gpuprov run`", .example = "{run: python train.py}"},
    {.name = "notify", .type = SPEC_LIST, .offset = offsetof(struct spec, notify), .block = &spec_notify_block,
     .def_doc = "none", .doc = "receivers of the stack's events; no part of the spec's hash and no change of nodes",
     .example = "[{url: env:WEBHOOK, on: [failed, leaked]}]", .apart = true},
    {0}};
const struct spec_block spec_root = {
    .path = "", .doc = "The whole file is one map.", .fields = root_fields,
    .rules = spec_rule_root};
/* clang-format on */

static bool has_script(const struct spec_block *b, const char *key) {
    for (const struct spec_field *f = b->fields; f->name != NULL; f++)
        if ((f->script && strcmp(f->name, key) == 0) || (f->block != NULL && has_script(f->block, key))) return true;
    return false;
}

bool spec_key_is_script(const char *key) { return has_script(&spec_root, key); }
