/* SPDX-License-Identifier: Apache-2.0 */
/* YAML through libyaml into a tree that keeps line and column of every node. Block and flow forms;
 * anchors and aliases are refused (a spec is read by people), as are tags and several documents. */
#ifndef GP_BASE_YAML_H
#define GP_BASE_YAML_H

#include "base/error.h"
#include "base/vec.h"

enum yaml_kind { YAML_SCALAR, YAML_MAP, YAML_LIST };

struct yaml_node {
    enum yaml_kind kind;
    unsigned line, column;            /* 1-based, of the node's first character */
    bool quoted;                      /* scalar in quotes: never a number, bool or null */
    char *value;                      /* scalar text; NULL otherwise */
    char *source;                     /* what the file has, where value is a replacement of it; NULL: the same */
    VEC_OF(struct yaml_node *) items; /* LIST: elements. MAP: key, value, key, value, ... */
};

/* name: as shown in messages ("spec.yaml"). Syntax errors: -GP_EUSAGE "name:line:col: ...".
 * An empty document yields *ret == NULL and 0. Depth at most 32, nodes at most 100,000. */
int yaml_parse(const char *name, const char *text, size_t n, struct yaml_node **ret, struct gp_error *err);
/* Not yaml_node_free: libyaml exports a function of that name for itself. */
void yaml_node_free(struct yaml_node *node);
/* Value of a key of a MAP, or NULL. */
const struct yaml_node *yaml_get(const struct yaml_node *map, const char *key);

#endif
