// SPDX-License-Identifier: Apache-2.0
/* ECS's part of the spec language: keys, their forms and meanings. Static data. */
#include "base/gp_base.h"

#include "providers/alibaba/spec.h"

#include "providers/alibaba/ali_int.h"

#define PLACE_PATTERN "^[a-z][a-z0-9-]{1,39}$"
#define PLACE_DOC "lower-case letters, digits and '-'"

/* clang-format off */
static const struct spec_provider_key keys[] = {
    {.name = "regions", .pattern = PLACE_PATTERN, .pattern_doc = PLACE_DOC, .example = "[ap-southeast-1, cn-hangzhou]",
     .note = "without it: `ALIBABA_CLOUD_REGION_ID`, else the region of the profile"},
    {.name = "zones", .pattern = PLACE_PATTERN, .pattern_doc = PLACE_DOC, .example = "[ap-southeast-1a]",
     .note = "each in one of the offer's regions"},
    {.name = "market", .note = "ECS reclaims spot instances with five minutes' notice"},
    {.name = "instance_type", .pattern = "^ecs[.][a-z0-9-]{1,40}([.][a-z0-9-]{1,30})?$",
     .pattern_doc = "a type of ECS, such as ecs.gn7i-c8g1.2xlarge", .example = "ecs.gn7i-c8g1.2xlarge"},
    {.name = "subnet", .pattern = "^vsw-[a-z0-9]{4,40}$", .pattern_doc = "the id of a VSwitch",
     .example = "vsw-0jlabc1234567890abcde",
     .note = "without it: the default VSwitch of the zone, or a VPC and a VSwitch of the stack's own"},
    {.name = "role", .pattern = "^[A-Za-z0-9_.-]{1,64}$", .pattern_doc = "the name of a RAM role",
     .example = "gpu-node", .note = "the instance RAM role of the nodes"},
    {.name = "image", .example = "{id: m-0jlabc1234567890abcde}", .note = "an image id is valid in one region"},
    {.name = "ssh_from", .note = "offers of one region share a security group; it allows the networks of all of them"},
    {0}};
/* clang-format on */

const struct spec_provider alibaba_spec = {.name = "alibaba",
                                           .doc = "Alibaba Cloud ECS",
                                           .keys = keys,
                                           .moves_deadline = true,
                                           .zone_in_region = true,
                                           .os = ali_image_os};
