// SPDX-License-Identifier: Apache-2.0
/* Compute Engine's part of the spec language: keys, their forms and meanings. Static data. */
#include "base/gp_base.h"

#include "providers/google/google_int.h"

#define PLACE_PATTERN "^[a-z][a-z0-9-]{1,62}$"
#define PLACE_DOC "lower-case letters, digits and '-'"

/* clang-format off */
static const struct spec_provider_key keys[] = {
    {.name = "regions", .pattern = PLACE_PATTERN, .pattern_doc = PLACE_DOC, .example = "[us-central1, europe-west4]",
     .note = "without it: `CLOUDSDK_COMPUTE_REGION`, or the region of gcloud's configuration"},
    {.name = "zones", .pattern = PLACE_PATTERN, .pattern_doc = PLACE_DOC, .example = "[us-central1-a]",
     .note = "each in one of the offer's regions"},
    {.name = "market", .note = "Compute Engine deletes spot instances with 30 seconds' notice"},
    {.name = "instance_type", .pattern = "^[a-z][a-z0-9]{0,15}-[a-z0-9-]{1,46}$",
     .pattern_doc = "a machine type, such as a3-highgpu-8g", .example = "a3-highgpu-8g",
     .note = "with n1-* and `gpu`, that GPU is attached"},
    {.name = "subnet", .pattern = "^[a-z][a-z0-9-]{0,62}$", .pattern_doc = "the name of a subnetwork of the region",
     .example = "training", .note = "without it: that of the network `default`; a stack is in one network"},
    {.name = "network", .pattern = "^[a-z][a-z0-9-]{0,62}$", .pattern_doc = "the name of a network of the project",
     .example = "training",
     .note = "without it: that of `subnet`, else `default`; a network in custom mode needs a `subnet`"},
    {.name = "networks", .pattern = "^[a-z][a-z0-9-]{0,62}$", .pattern_doc = "the name of a network of the project",
     .example = "[gpu-net-1, gpu-net-2, gpu-net-3, gpu-net-4]",
     .note = "with `bootstrap.fabric: auto` and several nodes: the networks of GPUDirect's interfaces, which exist "
             "already (see docs/google.md)"},
    {.name = "project", .pattern = "^[a-z][a-z0-9.:-]{3,99}$", .pattern_doc = "the id of a project",
     .example = "my-project",
     .note = "a stack is in one project; without it: `GOOGLE_CLOUD_PROJECT`, `CLOUDSDK_CORE_PROJECT`, else that of the "
             "credentials"},
    {.name = "role", .pattern = "^[a-z0-9-]{1,64}@[a-z0-9.-]{1,190}$",
     .pattern_doc = "the address of a service account", .example = "gpu-node@project.iam.gserviceaccount.com",
     .note = "the service account of the nodes; without it they have none"},
    {.name = "image", .example = "{id: projects/my-project/global/images/my-image}",
     .note = "an image id is `projects/PROJECT/global/images/NAME`, or `.../images/family/NAME`"},
    {.name = "ssh_from", .note = "offers of a stack share one firewall rule; it allows the networks of all of them"},
    {0}};
/* clang-format on */

const struct spec_provider google_spec = {.name = "google",
                                          .doc = "Google Compute Engine",
                                          .keys = keys,
                                          .zone_in_region = true,
                                          .image_id = "^projects/[a-z0-9.:-]+/global/images/",
                                          .gpu = google_gpu_at,
                                          .os = google_os};
