/* SPDX-License-Identifier: Apache-2.0 */
/* The key bootstrap.cache: whether the nodes of a run fetch packages once, through one of them. */
#ifndef GP_SPEC_CACHE_H
#define GP_SPEC_CACHE_H

enum spec_cache { CACHE_NONE, CACHE_FIRST_NODE };
extern const char *const spec_cache_names[]; /* NULL-ended */

#endif
