/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by memory.cu, stream.cu and their callers. Plain C and CUDA C. */
#ifndef GP_KERNEL_MEMORY_H
#define GP_KERNEL_MEMORY_H

#include "kportable.h"

/* The value of a word; `flip` (0 or all ones) is added to each by exclusive or. */
enum mem_pattern {
    MEM_ADDRESS, /* its own device address: finds stuck and crossed address lines */
    MEM_RANDOM,  /* a hash of its index and the seed */
    MEM_ZEROS,
    MEM_STRIPES, /* 0101...: neighbouring bits differ */
    MEM_PAIRED,  /* a hash and its complement in turn: the sum of 2 words is 2^64 - 1 */
    MEM_PATTERNS
};

enum { MEM_LOG_MAX = 32 };

/* The data that a thread moves at once. */
struct KALIGNED(16) mem_pair {
    unsigned long long v[2];
};

struct mem_wrong {
    unsigned long long at, got, want; /* at: device address of the 8-byte word */
};

/* Zeroed before a pass. */
struct mem_log {
    unsigned long long wrong;  /* words that differed */
    unsigned long long logged; /* of which the first MEM_LOG_MAX are in words, in no order */
    struct mem_wrong words[MEM_LOG_MAX];
};

KFUNC ku64 mem_hash(ku64 x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

/* at: the word's device address. */
KFUNC ku64 mem_value(ku64 at, ki64 index, int pattern, ku64 seed) {
    switch (pattern) {
    case MEM_ADDRESS: return at;
    case MEM_RANDOM: return mem_hash((ku64)index + seed);
    case MEM_PAIRED: return mem_hash((ku64)(index >> 1) + seed) ^ (index & 1 ? ~0ull : 0);
    case MEM_STRIPES: return 0x5555555555555555ull;
    default: return 0;
    }
}

#endif
