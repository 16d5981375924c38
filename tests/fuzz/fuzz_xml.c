/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as a cloud's XML reply: refused with one line, or a tree that can be walked and freed. */
#include "base/gp_base.h"

#include "base/str.h"
#include "base/xml.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static size_t walk(const struct xml_node *node, const struct xml_node *parent) {
    if (node->name == NULL || node->text == NULL || node->parent != parent) abort();
    size_t n = 1;
    for (size_t i = 0; i < node->children.len; i++) n += walk(node->children.items[i], node);
    return n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    GP_AUTO_XML struct xml_node *root = NULL;
    struct gp_error err = {0};
    int r = xml_parse((const char *)data, size, "the reply", &root, &err);
    if ((r == 0) != (root != NULL) || (r != 0) != (err.msg[0] != '\0')) abort();
    if (root != NULL) {
        walk(root, NULL);
        (void)xml_str(root, "reservationSet/item/instancesSet/item/instanceId", "");
        (void)xml_str(root, "Errors/Error/Code", "");
    }
    return 0;
}
