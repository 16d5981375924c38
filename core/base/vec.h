/* SPDX-License-Identifier: Apache-2.0 */
/* VEC_OF(T): a growing array { T *items; size_t len, cap; }. vec_push copies the value in;
 * vec_free releases the array only (elements are the owner's business). */
#ifndef GP_BASE_VEC_H
#define GP_BASE_VEC_H

#include "base/gp_base.h"

#define VEC_OF(T)        \
    struct {             \
        T *items;        \
        size_t len, cap; \
    }

#define vec_push(v, value)                                                    \
    do {                                                                      \
        if ((v)->len == (v)->cap) {                                           \
            (v)->cap = (v)->cap ? (v)->cap * 2 : 8;                           \
            (v)->items = xrealloc((v)->items, (v)->cap * sizeof *(v)->items); \
        }                                                                     \
        (v)->items[(v)->len++] = (value);                                     \
    } while (0)

#define vec_free(v)              \
    do {                         \
        free((v)->items);        \
        (v)->items = NULL;       \
        (v)->len = (v)->cap = 0; \
    } while (0)

#endif
