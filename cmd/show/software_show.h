/* SPDX-License-Identifier: Apache-2.0 */
/* Shows the GPU software that a spec's nodes get, for `check --explain`. */
#ifndef GP_CMD_SOFTWARE_SHOW_H
#define GP_CMD_SOFTWARE_SHOW_H

#include "base/json.h"
#include "spec/spec.h"

#include <stdio.h>

json_t *software_json(const struct spec *spec); /* an array, one object per different set; new reference */
void software_show(const struct spec *spec, FILE *to);

#endif
