// SPDX-License-Identifier: Apache-2.0
/* EC2's part of the spec language: keys, their forms and meanings. Static data. */
#include "base/gp_base.h"

#include "base/str.h"
#include "providers/aws/systems.h"
#include "providers/catalog/catalog.h"
#include "providers/provider.h"

#define PLACE_PATTERN "^[a-z0-9][a-z0-9-]{1,62}$"
#define PLACE_DOC "lower-case letters, digits and '-'"

/* clang-format off */
static const struct spec_provider_key keys[] = {
    {.name = "regions", .pattern = PLACE_PATTERN, .pattern_doc = PLACE_DOC, .example = "[us-east-2, us-west-2]",
     .note = "without it: `AWS_REGION`, else the region of the profile, else of this machine"},
    {.name = "zones", .pattern = PLACE_PATTERN, .pattern_doc = PLACE_DOC, .example = "[us-east-2a]",
     .note = "each in one of the offer's regions"},
    {.name = "market", .note = "EC2 reclaims spot instances with two minutes' notice"},
    {.name = "instance_type", .pattern = "^[a-z][a-z0-9-]{0,30}[.][a-z0-9-]{1,30}$",
     .pattern_doc = "a family, a dot and a size, such as p5.48xlarge", .example = "p5.48xlarge"},
    {.name = "subnet", .pattern = "^subnet-[0-9a-f]{8,17}$", .pattern_doc = "subnet- and 8 to 17 hex digits",
     .example = "subnet-0abc1234"},
    {.name = "role", .pattern = "^[A-Za-z0-9+=,.@_:/-]{1,256}$", .pattern_doc = "a name or ARN",
     .example = "gpu-node", .note = "the instance profile of the nodes"},
    {.name = "reservation", .pattern = "^cr-[0-9a-f]{8,17}$", .pattern_doc = "cr- and 8 to 17 hex digits",
     .example = "cr-0abc1234def567890", .note = "an On-Demand Capacity Reservation or a Capacity Block; it decides "
     "zone and instance type"},
    {.name = "image", .example = "{id: ami-0123456789abcdef0}", .note = "an image id is valid in one region"},
    {.name = "ssh_from", .note = "offers of one region share a security group; it allows the networks of all of them"},
    {0}};
/* clang-format on */

/* GPUs of EC2 that no type of the catalogue has, and a shorter name. */
static const char *const further[] = {"RTX PRO 6000", "P100", "M60", "K80"};

static const char *gpu(size_t i) {
    for (size_t k = 0; catalog_aws[k].type != NULL; k++) {
        bool seen = false;
        for (size_t j = 0; j < k && !seen; j++) seen = strcmp(catalog_aws[j].gpu_model, catalog_aws[k].gpu_model) == 0;
        if (!seen && i-- == 0) return catalog_aws[k].gpu_model;
    }
    return i < GP_ARRAY_LEN(further) ? further[i] : NULL;
}

const struct spec_provider aws_spec = {.name = "aws",
                                       .doc = "Amazon EC2",
                                       .keys = keys,
                                       .moves_deadline = true,
                                       .self_end = SELF_END_ALWAYS,
                                       .zone_in_region = true,
                                       .image_id = "^ami-",
                                       .gpu = gpu,
                                       .os = aws_image_os};
