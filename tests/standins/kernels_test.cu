/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels that only the tests run: each word of kportable.h once. Compiled by nvcc too (and run on a GPU
 * by nobody), so that the two forms stay one source. */
#include "validate/agent/cuda/kernels/kportable.h"

/* out[block]: the sum of x over its items, once by a tree in shared memory, once by warps; and what the
 * block ran on. seen: how many threads ran, the least and the greatest item. */
KBLOCK_KERNEL(gp_test_sums, 256, const int *x, ki64 count, int *tree, int *warps, int *sm, int *seen) {
    KSHARED(int, part, 256);
    KSHARED(int, warp_part, 8);
    KLOCAL(int, mine);
    KLOCALS(int, ends, 2);
    KTHREADS {
        K(mine) = 0;
        K(ends)[0] = 1 << 30;
        K(ends)[1] = -1;
        for (ki64 i = KINDEX; i < count; i += K_STRIDE) {
            K(mine) += x[i];
            K(ends)[0] = K(ends)[0] < (int)i ? K(ends)[0] : (int)i;
            K(ends)[1] = (int)i;
        }
        part[tid] = K(mine);
        if (tid % 2) continue; /* ends the phase for this thread only */
        KATOMIC_ADD(&seen[0], 2);
    }
    KTHREADS {
        KATOMIC_MIN(&seen[1], K(ends)[0]);
        KATOMIC_MAX(&seen[2], K(ends)[1]);
    }
    for (int half = KBLOCK_THREADS / 2; half > 0; half /= 2) {
        KSYNC;
        KTHREADS {
            if (tid < half) part[tid] += part[tid + half];
        }
    }
    KWARP_SUM(mine);
    KTHREADS {
        if (tid % 32 == 31) warp_part[tid / 32] = K(mine);
    }
    KSYNC;
    KTHREADS {
        if (tid == 0) {
            int sum = 0;
            for (int w = 0; w < KBLOCK_THREADS / 32; w++) sum += warp_part[w];
            tree[KBLOCK] = part[0];
            warps[KBLOCK] = sum;
            sm[KBLOCK] = KSMID;
        }
    }
    (void)n;
}
