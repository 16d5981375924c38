// SPDX-License-Identifier: Apache-2.0
/* EC2's replies as a hostile or broken server could send them: parser, errors, instances, tags, images,
 * subnets. */
#include "base/gp_base.h"

#include "providers/aws/aws_int.h"

#include "base/form.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_instances(const struct xml_node *set) {
    for (size_t i = 0; set != NULL && i < set->children.len; i++) {
        struct resource r;
        if (aws_instance_read(set->children.items[i], "us-east-1", &r, NULL) == 0 && r.id[0] == '\0') abort();
        resource_clear(&r);
    }
}

static void read_image(const struct xml_node *item) {
    struct aws_image image = {0};
    struct gp_error err = {0};
    if (aws_image_read(item, "us-east-1", &image, &err) != 0) return;
    if (!form_ec2_id(image.id, "ami-") || image.n_disks > AWS_DISKS_MAX) abort();
    aws_image_clear(&image);
}

static void read_subnet(const struct xml_node *item) {
    struct aws_subnets all = {0};
    struct aws_subnet s = {0};
    struct gp_error err = {0};
    if (aws_subnet_read(item, &s, &err) != 0) return;
    if (!form_ec2_id(s.id, "subnet-") || !form_word(s.zone)) abort();
    vec_push(&all.list, s);
    aws_subnets_clear(&all);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    GP_AUTO_XML struct xml_node *root = NULL;
    struct gp_error err = {0};
    struct cloud_said said = {"", "", ""};
    if (xml_parse((const char *)data, size, "the reply", &root, NULL) != 0) return 0;
    if (aws_said_xml(root, &said)) cloud_fail(&err, "fuzz", &said, aws_error_row(said.code));
    read_instances(xml_find(root, "instancesSet"));
    const struct xml_node *all = xml_find(root, "reservationSet");
    for (size_t i = 0; all != NULL && i < all->children.len; i++)
        read_instances(xml_find(all->children.items[i], "instancesSet"));
    all = xml_find(root, "imagesSet");
    for (size_t i = 0; all != NULL && i < all->children.len; i++) read_image(all->children.items[i]);
    all = xml_find(root, "subnetSet");
    for (size_t i = 0; all != NULL && i < all->children.len; i++) read_subnet(all->children.items[i]);
    return 0;
}
