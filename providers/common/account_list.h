/* SPDX-License-Identifier: Apache-2.0 */
/* One list shows the resources of the whole account: which of them a caller of provider_ops.list gets. Pure; any
 * thread. */
#ifndef GP_COMMON_ACCOUNT_LIST_H
#define GP_COMMON_ACCOUNT_LIST_H

#include "providers/provider.h"

bool account_list_knows(const struct resource_list *known, const char *id); /* known may be NULL */
/* Resources whose tags do not decode are wanted: they are reported. */
bool account_list_wants(const struct list_req *req, const struct resource *r);
/* Moves those with this uid and region to ret; the others are cleared, and all is empty. */
void account_list_take(struct resource_list *all, const char *region, const char *uid, struct resource_list *ret);

#endif
