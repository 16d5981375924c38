/* SPDX-License-Identifier: Apache-2.0 */
/* Memory fill and verify, 64-bit words. Item i takes words i, i + n, i + 2n, ... so that neighbouring
 * threads touch neighbouring words. Also compiled by gcc for the tests. */
#include "kportable.h"
#include "memory.h"

KFUNC ku64 expected(const ku64 *at, ki64 index, int pattern, ku64 seed)
{
    if (pattern == MEM_ADDRESS)
        return (ku64)at;
    ku64 x = (ku64)index + seed;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    x ^= x >> 31;
    return pattern == MEM_INVERSE ? ~x : x;
}

KERNEL(gp_mem_fill, ku64 *base, ki64 words, int pattern, ku64 seed)
{
    KITEMS(i)
        for (ki64 w = i; w < words; w += n)
            base[w] = expected(base + w, w, pattern, seed);
}

/* found[i]: what item i saw. */
KERNEL(gp_mem_verify, const ku64 *base, ki64 words, int pattern, ku64 seed, struct mem_found *found)
{
    KITEMS(i) {
        struct mem_found f = {0, 0, 0, 0};
        for (ki64 w = i; w < words; w += n) {
            ku64 want = expected(base + w, w, pattern, seed);
            ku64 got = base[w];
            if (got == want)
                continue;
            if (!f.wrong) {
                f.index = (ku64)w;
                f.got = got;
                f.want = want;
            }
            f.wrong++;
        }
        found[i] = f;
    }
}
