/* SPDX-License-Identifier: Apache-2.0 */
/* Registers the providers' rows with the spec language, which must not include this folder. Call it
 * before any thread starts. */
#include "base/gp_base.h"

#include "providers/provider.h"

#define PROVIDERS_MAX 32

void provider_specs_register(void) {
    static const struct spec_provider *rows[PROVIDERS_MAX + 1];
    for (size_t i = 0; i < PROVIDERS_MAX && provider_registry[i] != NULL; i++) rows[i] = provider_registry[i]->spec;
    spec_providers_set(rows);
}
