/* SPDX-License-Identifier: Apache-2.0 */
/* The Markov source that training learns. Integers only, from a seed: every rank computes any sequence by itself.
 * Pure. */
#include "base/gp_base.h"

#include "train_model.h"
#include "validate/agent/device/numeric.h"

static void permute(unsigned char *p, int n, uint64_t seed) {
    for (int i = 0; i < n; i++) p[i] = (unsigned char)i;
    for (int i = n - 1; i > 0; i--) {
        seed = num_mix(seed);
        int j = (int)(seed % (uint64_t)(i + 1));
        unsigned char t = p[i];
        p[i] = p[j];
        p[j] = t;
    }
}

/* next(s) = q[(p[s] + d) mod 64] for four distinct d: successors are distinct, and every symbol is the
 * successor of exactly four, so that all symbols are equally frequent (unigram entropy ln 64). */
void markov_init(struct markov *m, uint64_t seed) {
    unsigned char p[GPT_VOCAB], q[GPT_VOCAB], d[GPT_VOCAB];
    permute(p, GPT_VOCAB, num_mix(seed ^ 0x70));
    permute(q, GPT_VOCAB, num_mix(seed ^ 0x71));
    permute(d, GPT_VOCAB, num_mix(seed ^ 0x64));
    for (int s = 0; s < GPT_VOCAB; s++)
        for (int k = 0; k < 4; k++) m->next[s][k] = q[(p[s] + d[k]) % GPT_VOCAB];
}

void markov_sequence(const struct markov *m, uint64_t seed, int step, int64_t index, int n, int32_t *ret_in,
                     int32_t *ret_next) {
    uint64_t z = num_mix(num_mix(seed + (uint64_t)step) + (uint64_t)index);
    int s = (int)(z >> 58);
    for (int t = 0; t < n; t++) {
        ret_in[t] = s;
        z = num_mix(z);
        s = m->next[s][z >> 62];
        ret_next[t] = s;
    }
}
