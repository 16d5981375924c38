// SPDX-License-Identifier: Apache-2.0
/* OpenStack's part of the spec language: keys, their forms and meanings. Static data. */
#include "base/gp_base.h"

#include "providers/openstack/os_int.h"

#define PLACE_PATTERN "^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$"
#define PLACE_DOC "letters, digits and ._-"

/* clang-format off */
static const struct spec_provider_key keys[] = {
    {.name = "regions", .pattern = PLACE_PATTERN, .pattern_doc = PLACE_DOC, .example = "[RegionOne]",
     .note = "without it: the region of the credentials, else the only one of the cloud"},
    {.name = "zones", .pattern = PLACE_PATTERN, .pattern_doc = PLACE_DOC, .example = "[nova]",
     .note = "availability zones; without it nova chooses"},
    {.name = "instance_type", .pattern = "^[A-Za-z0-9][A-Za-z0-9+=,.@_:/-]{0,253}$",
     .pattern_doc = "the name of a flavor", .example = "gpu.h100.8",
     .note = "needed where the extra specs of the flavors name no GPU that gpuprov knows"},
    {.name = "network", .pattern = "^[A-Za-z0-9][A-Za-z0-9+=,.@_:/-]{0,253}$", .pattern_doc = "a name or an id",
     .example = "private", .note = "without it: the only network of the project, else the only shared one"},
    {.name = "role", .pattern = "^self-delete$", .pattern_doc = "`self-delete`", .example = "self-delete",
     .note = "each node gets an application credential with which it deletes itself at its deadline; without it only "
             "`gpuprov gc` does"},
    {.name = "image", .example = "{id: ubuntu-24.04-gpu}",
     .note = "`id` is the id or the name of an image; `os` is compared with its properties os_distro and os_version; "
             "`auto` works where the project sees one image only"},
    {.name = "ssh_from", .note = "offers of one region share a security group; it allows the networks of all of them"},
    {0}};
/* clang-format on */

const struct spec_provider openstack_spec = {
    .name = "openstack", .doc = "OpenStack (nova)", .keys = keys, .moves_deadline = true, .self_end = SELF_END_BY_ROLE};
