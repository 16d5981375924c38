/* SPDX-License-Identifier: Apache-2.0 */
/* The key bootstrap.fabric: the network between nodes whose software is installed. */
#ifndef GP_SPEC_FABRIC_H
#define GP_SPEC_FABRIC_H

enum spec_fabric { FABRIC_NONE, FABRIC_AUTO, FABRIC_EFA, FABRIC_INFINIBAND };
extern const char *const spec_fabric_names[]; /* NULL-ended */

#endif
