/* SPDX-License-Identifier: Apache-2.0 */
/* XML through expat into a small tree: elements and text, no attributes, no entities beyond the
 * five, DOCTYPE refused, capped (bytes by the caller, depth 64, 2,000,000 elements). */
#ifndef GP_BASE_XML_H
#define GP_BASE_XML_H

#include "base/error.h"
#include "base/vec.h"

struct xml_node {
    char *name;
    char *text; /* concatenated character data; never NULL */
    struct xml_node *parent;
    VEC_OF(struct xml_node *) children;
};

int xml_parse(const char *text, size_t n, const char *what, struct xml_node **ret_root, struct gp_error *err);
void xml_free(struct xml_node *root);
void xml_cleanup(struct xml_node **root);
#define GP_AUTO_XML GP_CLEANUP(xml_cleanup)
/* First descendant along "a/b/c" from (not including) node, or NULL. */
const struct xml_node *xml_find(const struct xml_node *node, const char *path);
/* Its text, or def. Borrowed. */
const char *xml_str(const struct xml_node *node, const char *path, const char *def);

#endif
