/* SPDX-License-Identifier: Apache-2.0 */
/* What of the machine's kernel the programs of a node may not ask for. One thread. */
#ifndef GP_LOCAL_NS_FILTER_H
#define GP_LOCAL_NS_FILTER_H

#include "base/error.h"

#include <stddef.h>

struct sock_filter;

#define FILTER_MAX 200 /* instructions */

/* For this process and all that it starts, for good: a session keyring of their own, and the filter below. Needs
 * CAP_SYS_ADMIN in its user namespace. One thread. */
int filter_enter(struct gp_error *err);
/* Writes the filter, for struct seccomp_data of each ABI that amd64 and arm64 kernels run, to out (FILTER_MAX long).
 * Returns its length. */
size_t filter_program(struct sock_filter *out);

#endif
