/* SPDX-License-Identifier: Apache-2.0 */
/* Memory patterns in 64-bit words, moved 16 bytes at a time. Item i takes pairs i, i + n, i + 2n, ...
 * so that neighbouring threads touch neighbouring words; four loads are under way at once. seen[i]
 * counts the words that item i has looked at, so that a kernel that did nothing is told from memory
 * that is right. Words are even in number and 16-byte aligned. Also compiled by gcc for the tests. */
#include "kportable.h"
#include "memory.h"

enum { MEM_AHEAD = 4 };

/* Counts a wrong word. True: it was also noted, and is left as it is until the host has read it again. */
KFUNC int mem_note(struct mem_log *log, const ku64 *at, ku64 got, ku64 want) {
    if (*(volatile ku64 *)&log->logged >= MEM_LOG_MAX) return 0;
    ku64 slot = KATOMIC_ADD(&log->logged, 1);
    if (slot >= MEM_LOG_MAX) return 0;
    struct mem_wrong w = {(ku64)at, got, want};
    log->words[slot] = w;
    return 1;
}

KERNEL(gp_mem_fill, ku64 *base, ki64 words, int pattern, ku64 seed, ku64 flip) {
    struct mem_pair *to = (struct mem_pair *)base;
    KITEMS (i)
        for (ki64 p = i; p < words / 2; p += n) {
            struct mem_pair x;
            for (int j = 0; j < 2; j++) x.v[j] = mem_value((ku64)(base + 2 * p + j), 2 * p + j, pattern, seed) ^ flip;
            to[p] = x;
        }
}

/* Item i's part of one pass over all words: each is read and compared, and with `invert` overwritten by its
 * complement. down: from the last to the first. Each thread keeps that order for its own words; threads run
 * side by side. */
KFUNC void mem_pass(ki64 i, ki64 n, ku64 *base, ki64 words, int pattern, ku64 seed, ku64 flip, int invert, int down,
                    struct mem_log *log, ku64 *seen) {
    struct mem_pair *b = (struct mem_pair *)base;
    ki64 pairs = words / 2;
    ku64 wrong = 0, did = 0;
    for (ki64 p = i; p < pairs; p += MEM_AHEAD * n) {
        struct mem_pair x[MEM_AHEAD];
        for (int k = 0; k < MEM_AHEAD; k++)
            if (p + k * n < pairs) x[k] = b[down ? pairs - 1 - p - k * n : p + k * n];
        for (int k = 0; k < MEM_AHEAD; k++) {
            if (p + k * n >= pairs) continue;
            ki64 at = down ? pairs - 1 - p - k * n : p + k * n;
            for (int j = 0; j < 2; j++) {
                ku64 want = mem_value((ku64)(base + 2 * at + j), 2 * at + j, pattern, seed) ^ flip;
                did++;
                if (x[k].v[j] != want) {
                    wrong++;
                    if (mem_note(log, base + 2 * at + j, x[k].v[j], want)) continue;
                }
                if (invert) x[k].v[j] = ~want;
            }
            if (invert) b[at] = x[k];
        }
    }
    seen[i] += did;
    if (wrong) KATOMIC_ADD(&log->wrong, wrong);
}

KERNEL(gp_mem_verify, ku64 *base, ki64 words, int pattern, ku64 seed, ku64 flip, struct mem_log *log, ku64 *seen) {
    KITEMS (i) mem_pass(i, n, base, words, pattern, seed, flip, 0, 0, log, seen);
}

/* One pass of moving inversions. */
KERNEL(gp_mem_invert, ku64 *base, ki64 words, int pattern, ku64 seed, ku64 flip, int down, struct mem_log *log,
       ku64 *seen) {
    KITEMS (i) mem_pass(i, n, base, words, pattern, seed, flip, 1, down, log, seen);
}
