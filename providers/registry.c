/* SPDX-License-Identifier: Apache-2.0 */
/* The list of providers, made from the rows of provider.h. */
#include "base/gp_base.h"

#include "providers/provider.h"

#define PROVIDER_ADDRESS(name) &provider_##name,
const struct provider_ops *const provider_registry[] = {PROVIDER_ROWS(PROVIDER_ADDRESS) NULL};

const struct provider_ops *provider_find(const char *name) {
    for (size_t i = 0; provider_registry[i] != NULL; i++)
        if (strcmp(provider_registry[i]->name, name) == 0) return provider_registry[i];
    return NULL;
}
