/* SPDX-License-Identifier: Apache-2.0 */
/* The price of a resource whose provider lists none. */
#ifndef GP_ENGINE_ZERO_PRICE_H
#define GP_ENGINE_ZERO_PRICE_H

#include "model/stack.h"

/* A price of 0 of a machine that costs money is one that the cloud does not know: sets it to not known. */
void zero_price_drop(struct resource *r);

#endif
