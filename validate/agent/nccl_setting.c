/* SPDX-License-Identifier: Apache-2.0 */
/* NCCL takes its settings from the environment only, so this one file may change it: in a rank's worker, which
 * has one thread then, before NCCL is loaded or after its communicator was ended. */
#include "base/gp_base.h"

#include "gang.h"

void nccl_setting(const char *name, const char *value) { setenv(name, value, 1); }
