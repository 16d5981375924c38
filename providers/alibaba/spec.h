/* SPDX-License-Identifier: Apache-2.0 */
/* ECS's row of the spec language. Static data. */
#ifndef GP_ALIBABA_SPEC_H
#define GP_ALIBABA_SPEC_H

#include "spec/spec_provider.h"

extern const struct spec_provider alibaba_spec;

#endif
