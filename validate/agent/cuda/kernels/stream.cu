/* SPDX-License-Identifier: Apache-2.0 */
/* Memory rate: copy and read as in STREAM, 16 bytes a load, four loads of a thread in flight. A thread's loads are
 * one block's width apart, so that a block moves one piece of 4 * block * 16 bytes; blocks take pieces grid by grid.
 * Also compiled by gcc for the tests. */
#include "kportable.h"
#include "memory.h"

enum { STREAM_AHEAD = 4 };

/* n: threads of the whole grid; tile: threads that share a piece (the block's size). */
KERNEL(gp_stream_copy, ku64 *to, const ku64 *from, ki64 words, int tile) {
    struct mem_pair *d = (struct mem_pair *)to;
    const struct mem_pair *s = (const struct mem_pair *)from;
    ki64 pairs = words / 2;
    KITEMS (i)
        for (ki64 p = i / tile * tile * STREAM_AHEAD + i % tile; p < pairs; p += n * STREAM_AHEAD) {
            struct mem_pair x[STREAM_AHEAD];
            for (int k = 0; k < STREAM_AHEAD; k++)
                if (p + (ki64)k * tile < pairs) x[k] = s[p + (ki64)k * tile];
            for (int k = 0; k < STREAM_AHEAD; k++)
                if (p + (ki64)k * tile < pairs) d[p + (ki64)k * tile] = x[k];
        }
}

/* sums[i]: the sum modulo 2^64 of all words that item i read. */
KERNEL(gp_stream_read, const ku64 *from, ki64 words, int tile, ku64 *sums) {
    const struct mem_pair *s = (const struct mem_pair *)from;
    ki64 pairs = words / 2;
    KITEMS (i) {
        ku64 sum = 0;
        for (ki64 p = i / tile * tile * STREAM_AHEAD + i % tile; p < pairs; p += n * STREAM_AHEAD) {
            struct mem_pair x[STREAM_AHEAD];
            for (int k = 0; k < STREAM_AHEAD; k++) {
                struct mem_pair none = {{0, 0}};
                x[k] = p + (ki64)k * tile < pairs ? s[p + (ki64)k * tile] : none;
            }
            for (int k = 0; k < STREAM_AHEAD; k++) sum += x[k].v[0] + x[k].v[1];
        }
        sums[i] = sum;
    }
}
