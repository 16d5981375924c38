/* SPDX-License-Identifier: Apache-2.0 */
/* What memory.cu and its callers share. Plain C and CUDA C. */
#ifndef GP_KERNEL_MEMORY_H
#define GP_KERNEL_MEMORY_H

enum mem_pattern {
    MEM_ADDRESS, /* each word holds its own device address: finds stuck and crossed address lines */
    MEM_RANDOM,  /* a hash of index and seed */
    MEM_INVERSE, /* its complement: every bit has held 0 and 1 */
    MEM_PATTERNS
};

struct mem_found {
    unsigned long long wrong; /* words that differed */
    unsigned long long index, got, want; /* the first of them; index in words */
};

#endif
