/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of the spec's block `bootstrap`: what is set up on every node. Only data, as spec_tables.c. */
#include "base/gp_base.h"

#include "spec/spec_internal.h"

const char *const spec_cache_names[] = {[CACHE_NONE] = "none", [CACHE_FIRST_NODE] = "first-node", NULL};
const char *const spec_fabric_names[] = {
    [FABRIC_NONE] = "none", [FABRIC_AUTO] = "auto", [FABRIC_EFA] = "efa", [FABRIC_INFINIBAND] = "infiniband", NULL};

/* Rows read as rows. */
/* clang-format off */
static const struct spec_field step_fields[] = {
    {.name = "name", .type = SPEC_TEXT, .offset = offsetof(struct spec_step, name), .required = true,
     .doc = "shown while it runs; unique", .example = "data",
     .pattern = "^[A-Za-z0-9][A-Za-z0-9._-]{0,39}$",
     .pattern_doc = "letters, digits, '.', '_' and '-', at most 40", .effect = SPEC_REPEATED},
    {.name = "run", .type = SPEC_TEXT, .offset = offsetof(struct spec_step, run), .required = true,
     .doc = "a POSIX sh script, run as the login user; another exit status than 0 fails the node",
     .example = "./fetch.sh", .script = true, .effect = SPEC_REPEATED},
    {.name = "check", .type = SPEC_TEXT, .offset = offsetof(struct spec_step, check),
     .def_doc = "`run` runs once per node",
     .doc = "a script that exits with 0 when the step is done; it runs before and after `run`",
     .example = "test -e /data/ok", .script = true, .effect = SPEC_REPEATED},
    {.name = "timeout", .type = SPEC_DURATION, .offset = offsetof(struct spec_step, timeout_ms),
     .def_doc = "none but the 45 minutes of the whole bootstrap",
     .doc = "how long each run of `run` and `check` may take; the step is killed then", .example = "10m",
     .min = 1000, .max = (int64_t)45 * 60000, .effect = SPEC_LATER},
    {.name = "tries", .type = SPEC_INT, .offset = offsetof(struct spec_step, tries), .def = "1",
     .doc = "how often `run` may run until it succeeds", .example = "3", .min = 1, .max = 10, .effect = SPEC_LATER},
    {0}};
static const struct spec_block step_block = {
    .path = "bootstrap.steps[]",
    .doc = "Your own steps. They run after the packages, in this order, as the login user: `gpuprov` in a "
            "cloud (it may use sudo), root on this machine's clones.",
    .fields = step_fields, .size = sizeof(struct spec_step), .has_pos = true,
    .pos_offset = offsetof(struct spec_step, pos)};

#define LIB_PATTERN "^(auto|none|[0-9]{1,2}([.][0-9]{1,3}){0,3})$"
#define LIB_DOC "auto, none or a version such as "
#define SOFTWARE_DEFAULT "auto on nodes that gpuprov launches; machines that existed before are left as they are"
static const struct spec_field bootstrap_fields[] = {
    {.name = "driver", .type = SPEC_SHORT, .offset = offsetof(struct spec, software.driver),
     .block = &spec_driver_block, .from_text = spec_driver_from_text, .def_doc = SOFTWARE_DEFAULT,
     .doc = "the NVIDIA driver", .example = "{branch: 580, flavour: open}", .pattern = SPEC_BRANCH_PATTERN,
     .pattern_doc = SPEC_BRANCH_DOC, .effect = SPEC_REPEATED},
    {.name = "cuda", .type = SPEC_SHORT, .offset = offsetof(struct spec, software.cuda),
     .block = &spec_cuda_block, .from_text = spec_cuda_from_text, .def_doc = SOFTWARE_DEFAULT,
     .doc = "CUDA: the runtime libraries, or the toolkit", .example = "{runtime: [13.0]}",
     .pattern = SPEC_CUDA_PATTERN, .pattern_doc = SPEC_CUDA_DOC, .effect = SPEC_REPEATED},
    {.name = "cudnn", .type = SPEC_TEXT, .offset = offsetof(struct spec, software.cudnn),
     .def_doc = SOFTWARE_DEFAULT, .doc = "cuDNN, for the CUDA that is installed", .example = "9.17.0",
     .pattern = LIB_PATTERN, .pattern_doc = LIB_DOC "9.17.0", .effect = SPEC_REPEATED},
    {.name = "nccl", .type = SPEC_TEXT, .offset = offsetof(struct spec, software.nccl),
     .def_doc = SOFTWARE_DEFAULT, .doc = "NCCL, for the CUDA that is installed", .example = "2.28.9",
     .pattern = LIB_PATTERN, .pattern_doc = LIB_DOC "2.28.9", .effect = SPEC_REPEATED},
    {.name = "packages", .type = SPEC_TEXTS, .offset = offsetof(struct spec, packages),
     .doc = "packages of the node's own distribution", .example = "[htop]",
     /* "name-" would have apt-get remove it */
     .pattern = "^[A-Za-z0-9]([A-Za-z0-9+._:=~-]{0,98}[A-Za-z0-9+~])?$", .pattern_doc = "a package's name",
     .effect = SPEC_REPEATED},
    {.name = "python", .type = SPEC_BLOCK, .offset = offsetof(struct spec, python), .block = &spec_python_block,
     .doc = "a virtual environment of Python", .example = "{packages: [numpy]}", .effect = SPEC_REPEATED},
    {.name = "container", .type = SPEC_BLOCK, .offset = offsetof(struct spec, container),
     .block = &spec_container_block, .doc = "a container engine, and images", .example = "{engine: docker}"},
    {.name = "steps", .type = SPEC_LIST, .offset = offsetof(struct spec, steps), .block = &step_block,
     .doc = "scripts to run", .example = "[{name: data, run: ./fetch.sh}]", .default_in_hash = true},
    {.name = "files", .type = SPEC_LIST, .offset = offsetof(struct spec, storage.files), .block = &spec_file_block,
     .doc = "files and folders to copy", .example = "[{from: train.py, to: /opt/train/train.py}]"},
    {.name = "mounts", .type = SPEC_LIST, .offset = offsetof(struct spec, storage.mounts), .block = &spec_mount_block,
     .doc = "file systems to mount", .example = "[{at: /data, nvme: auto}]"},
    {.name = "limits", .type = SPEC_SHORT, .offset = offsetof(struct spec, storage.limits),
     .block = &spec_node_limits_block, .from_text = spec_limits_from_text, .def_doc = "left alone",
     .doc = "limits of processes: auto or a map", .example = "auto", .pattern = "^auto$",
     .pattern_doc = "auto or a map"},
    {.name = "fabric", .type = SPEC_ENUM, .offset = offsetof(struct spec, fabric), .choices = spec_fabric_names,
     .def = "none", .doc = "the network between the nodes: `efa` installs AWS's software and its NCCL plugin, "
            "`infiniband` lets the cards reach the memory of GPUs, `auto` does what fits the node's devices",
     .example = "auto", .effect = SPEC_REPEATED},
    {.name = "cache", .type = SPEC_ENUM, .offset = offsetof(struct spec, cache), .choices = spec_cache_names,
     .def = "none", .doc = "`first-node`: the first node that is ready fetches packages for all nodes; each node "
            "checks them by the hashes in its own package lists", .example = "first-node",
     .effect = SPEC_LATER},
    {0}};
const struct spec_block spec_bootstrap_block = {
    .path = "bootstrap", .doc = "The setup of every node before its validation.",
    .fields = bootstrap_fields, .rules = spec_rule_bootstrap};
/* clang-format on */
