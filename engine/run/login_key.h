/* SPDX-License-Identifier: Apache-2.0 */
/* The key that logs in to a stack's nodes. */
#ifndef GP_ENGINE_LOGIN_KEY_H
#define GP_ENGINE_LOGIN_KEY_H

#include "engine/run/run.h"

/* The public line of the spec's access.key; caller frees. NULL: it names none. Blocks like login_key_get. */
int login_key_named(const struct spec *spec, char **ret_pubkey, struct gp_error *err);
/* Fills run->login: access.key of the spec, else the stack's own, which is made when it is absent and `make` is
 * set. -GP_ENOTFOUND: it is not on this machine. Blocks on local files, or on the SSH agent. */
int login_key_get(struct run *run, bool make, struct gp_error *err);

#endif
