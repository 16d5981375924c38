/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by collective.cu and its callers. Plain C and CUDA C.
 *
 * Sums. For every element the final sum is chosen first, then each rank's share of it: shares are whole
 * numbers times one power of two, and their sizes add up to at most 2^p (p: the bits of the type's
 * significand), so that every partial sum, in whatever order, is exact and the result has one right value.
 * Which rank gets which share turns with the element; half of the elements have shares of both signs.
 * int32: any bits, added modulo 2^32. */
#ifndef GP_KERNEL_COLLECTIVE_H
#define GP_KERNEL_COLLECTIVE_H

enum coll_type { COLL_F32, COLL_F16, COLL_BF16, COLL_I32, COLL_TYPES }; /* as enum comm_type */

enum coll_kind {
    COLL_SHARE, /* element e of rank `rank`: its share of the sum */
    COLL_SUM,   /* element e: the sum over all ranks */
    COLL_BITS   /* element e of rank `rank`: any bits */
};

struct coll_found {
    unsigned long long wrong; /* elements that differed */
    unsigned long long index; /* the first of them, in elements of the buffer */
    unsigned int got, want;   /* its bits */
};

#endif
