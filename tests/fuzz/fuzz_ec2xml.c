// SPDX-License-Identifier: Apache-2.0
/* EC2's replies as a hostile or broken server could send them: parser, errors, instances, tags. */
#include "base/gp_base.h"

#include "providers/aws/aws_int.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_instances(const struct xml_node *set) {
    for (size_t i = 0; set != NULL && i < set->children.len; i++) {
        struct resource r;
        if (aws_instance_read(set->children.items[i], "us-east-1", &r, NULL) == 0 && r.id[0] == '\0') abort();
        resource_clear(&r);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    GP_AUTO_XML struct xml_node *root = NULL;
    struct gp_error err = {0};
    struct aws_said said = {"", "", ""};
    if (xml_parse((const char *)data, size, "the reply", &root, NULL) != 0) return 0;
    if (aws_said_xml(root, &said)) aws_fail(&err, "fuzz", &said);
    read_instances(xml_find(root, "instancesSet"));
    const struct xml_node *all = xml_find(root, "reservationSet");
    for (size_t i = 0; all != NULL && i < all->children.len; i++)
        read_instances(xml_find(all->children.items[i], "instancesSet"));
    return 0;
}
