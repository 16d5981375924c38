/* SPDX-License-Identifier: Apache-2.0 */
/* Freeing of an exported stack. Pure. */
#include "base/gp_base.h"

#include "model/export.h"

static void node_clear(struct export_node *n) {
    char *const owned[] = {n->name,     n->id,   n->place,    n->type,        n->address, n->peer_address,
                           n->hostname, n->user, n->key_path, n->known_hosts, n->bastion, n->gpu_model};
    for (size_t i = 0; i < GP_ARRAY_LEN(owned); i++) free(owned[i]);
    strv_clear(&n->host_keys);
}

void export_stack_clear(struct export_stack *s) {
    for (size_t i = 0; i < s->nodes.len; i++) node_clear(&s->nodes.items[i]);
    vec_free(&s->nodes);
    free(s->name);
    free(s->owner);
    free(s->config_path);
    free(s->config);
    *s = (struct export_stack){0};
}
