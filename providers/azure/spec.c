// SPDX-License-Identifier: Apache-2.0
/* Azure's part of the spec language: keys, their forms and meanings. Static data. */
#include "base/gp_base.h"

#include "providers/azure/azure_int.h"
#include "providers/catalog/catalog.h"

/* clang-format off */
static const struct spec_provider_key keys[] = {
    {.name = "regions", .pattern = "^[a-z][a-z0-9]{2,40}$", .pattern_doc = "lower-case letters and digits, as 'az "
     "account list-locations' prints names", .example = "[eastus, westeurope]", .required = true},
    {.name = "zones", .pattern = "^[a-z][a-z0-9]{2,40}-[1-9]$", .pattern_doc = "a region, '-' and the number of a zone",
     .example = "[eastus-1, eastus-2]", .note = "a number is another building in another subscription"},
    {.name = "market", .note = "Azure evicts spot nodes with 30 seconds' notice; evicted nodes are deleted"},
    {.name = "instance_type", .pattern = "^(Standard|Basic)_[A-Za-z0-9_-]{1,60}$",
     .pattern_doc = "a size, such as Standard_ND96isr_H100_v5", .example = "Standard_ND96isr_H100_v5"},
    {.name = "subnet",
     .pattern = "^/subscriptions/[0-9a-fA-F-]{36}/resourceGroups/[A-Za-z0-9._-]{1,90}/providers/Microsoft.Network/"
                "virtualNetworks/[A-Za-z0-9._-]{1,80}/subnets/[A-Za-z0-9._-]{1,80}$",
     .pattern_doc = "the whole id of a subnet: /subscriptions/../resourceGroups/../providers/Microsoft.Network/"
                    "virtualNetworks/../subnets/..",
     .example = "/subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/net/providers/Microsoft.Network/"
                "virtualNetworks/main/subnets/gpu",
     .note = "without it a network of the stack's own is made"},
    {.name = "image", .example = "{id: \"Canonical:ubuntu-24_04-lts:server:latest\"}",
     .note = "`id`: publisher:offer:sku:version, or the id of an image or of a gallery's image, without its first '/'"},
    {.name = "role", .pattern = "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$",
     .pattern_doc = "the GUID of a role definition, in lower case", .example = "5f0c1a52-7d0b-4b8e-9a55-0c2f5a1d3e77",
     .note = "each node deletes itself at its deadline by this role; 'gpuprov providers azure --policy --node' prints "
             "it"},
    {.name = "ssh_from", .note = "offers of one region share a security group; it allows the networks of all of them"},
    {0}};
/* clang-format on */

static const char *gpu(size_t i) {
    for (size_t k = 0; catalog_azure[k].name != NULL; k++) {
        bool seen = catalog_azure[k].vgpu; /* none that a spec can ask for by GPU */
        for (size_t j = 0; j < k && !seen; j++)
            seen = !catalog_azure[j].vgpu && strcmp(catalog_azure[j].gpu_model, catalog_azure[k].gpu_model) == 0;
        if (!seen && i-- == 0) return catalog_azure[k].gpu_model;
    }
    return NULL;
}

const struct spec_provider azure_spec = {.name = "azure",
                                         .doc = "Microsoft Azure",
                                         .keys = keys,
                                         .moves_deadline = true,
                                         .self_end = SELF_END_BY_ROLE,
                                         .zone_in_region = true,
                                         .image_id = "^(subscriptions/|[A-Za-z0-9._-]+:[A-Za-z0-9._-]+:)",
                                         .gpu = gpu,
                                         .os = azure_image_os};
