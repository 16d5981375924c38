// SPDX-License-Identifier: Apache-2.0
/* Lambda's part of the spec language: keys, their forms and meanings. Static data. */
#include "base/gp_base.h"

#include "providers/lambda/lambda_int.h"

/* clang-format off */
static const struct spec_provider_key keys[] = {
    {.name = "regions", .pattern = "^[a-z][a-z0-9-]{1,62}$", .pattern_doc = "lower-case letters, digits and '-'",
     .example = "[us-west-1, us-east-1]", .note = "without it: every region that has capacity for the type"},
    {.name = "instance_type", .pattern = "^[a-z][a-z0-9_]{1,62}$",
     .pattern_doc = "lower-case letters, digits and '_', such as gpu_8x_h100_sxm5", .example = "gpu_8x_h100_sxm5"},
    {.name = "image", .example = "{id: lambda-stack-24-04}",
     .note = "`id` is the id of an image or the name of an image family; `image: auto` is the newest Lambda Stack, "
             "which has the driver"},
    {.name = "ssh_from", .note = "IPv4 networks; offers of one region share a firewall ruleset, beside which the "
     "account's global rules count"},
    {0}};

/* Families seen in public clients of 2026-08: lambda-stack-22-04, lambda-stack-24-04, gpu-base-22-04, gpu-base-24-04.
 * The API description has ubuntu-lts with the version 24.04.01. */
const struct lambda_os lambda_systems[] = {
    {"ubuntu-24.04", "ubuntu-lts", "24.04"}, {"ubuntu-24.04", "ubuntu-24-04", ""},
    {"ubuntu-24.04", "gpu-base-24-04", ""},  {"ubuntu-24.04", "lambda-stack-24-04", ""},
    {"ubuntu-22.04", "ubuntu-lts", "22.04"}, {"ubuntu-22.04", "ubuntu-22-04", ""},
    {"ubuntu-22.04", "gpu-base-22-04", ""},  {"ubuntu-22.04", "lambda-stack-22-04", ""},
    {NULL, NULL, NULL}};
/* clang-format on */

static const char *os(size_t i) {
    static const char *const names[] = {"ubuntu-24.04", "ubuntu-22.04"};
    return i < GP_ARRAY_LEN(names) ? names[i] : NULL;
}

/* No list of GPU models: GET /instance-types has them, also new ones. */
const struct spec_provider lambda_spec = {.name = "lambda", .doc = "Lambda Cloud, on demand", .keys = keys, .os = os};
