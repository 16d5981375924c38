/* SPDX-License-Identifier: Apache-2.0 */
/* exp, log and tanh in fp32 from + - * / and bit operations only: the same bits on every CPU (and, without
 * contraction, on a GPU), which libm does not guarantee. Compile with -ffp-contract=off. Also read by nvcc: the
 * kernels use the same functions (NUM_FUNC declares them for both). Pure. */
#ifndef GP_AGENT_NUMERIC_H
#define GP_AGENT_NUMERIC_H

#include <stdint.h>
#include <string.h>

#ifndef NUM_FUNC
#define NUM_FUNC static inline
#endif

NUM_FUNC float num_from_bits(uint32_t u) {
    float f = 0;
    memcpy(&f, &u, sizeof f);
    return f;
}

NUM_FUNC uint32_t num_bits(float f) {
    uint32_t u = 0;
    memcpy(&u, &f, sizeof u);
    return u;
}

/* e^x, relative error below 3e-7 for x in [-87, 88]; clamped outside; NaN stays NaN. Without branches, so that a
 * compiler can do several at once: each has the same bits. */
NUM_FUNC float num_exp(float x) {
    float c = x > 88.0f ? 88.0f : x;
    c = c < -87.0f ? -87.0f : c;
    float t = (c == c ? c : 0.0f) * 1.44269504f;
    int32_t n = (int32_t)(t + (t >= 0.0f ? 0.5f : -0.5f));
    float fn = (float)n;
    float r = c - fn * 0.693359375f; /* ln 2 in two parts; the first product is exact */
    r = r - fn * -2.12194440e-4f;
    float p = 1.9875691500e-4f; /* Cephes expf */
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * (r * r) + r + 1.0f;
    n = x < -87.0f ? -127 : n; /* times 0 */
    return p * num_from_bits((uint32_t)(n + 127) << 23);
}

/* ln x for normal x > 0, relative error below 3e-7 away from 1, absolute 1e-7 near it. */
NUM_FUNC float num_log(float x) {
    if (!(x > 0.0f)) return num_from_bits(0x7fc00000u);
    uint32_t u = num_bits(x);
    int32_t e = (int32_t)(u >> 23) - 127;
    float m = num_from_bits((u & 0x007fffffu) | 0x3f800000u); /* [1, 2) */
    if (m > 1.41421356f) {
        m = m * 0.5f;
        e = e + 1;
    }
    float s = (m - 1.0f) / (m + 1.0f);
    float z = s * s;
    float p = 0.22222222f; /* 2 atanh(s) = 2s (1 + z/3 + z^2/5 + ...) */
    p = p * z + 0.28571429f;
    p = p * z + 0.4f;
    p = p * z + 0.66666667f;
    p = p * z;
    float lm = s * 2.0f + s * p;
    float fe = (float)e;
    return fe * 0.693359375f + (lm + fe * -2.12194440e-4f);
}

/* tanh x, absolute error below 3e-7. */
NUM_FUNC float num_tanh(float x) {
    float a = x < 0.0f ? -x : x;
    float t = 1.0f - 2.0f / (num_exp(a * 2.0f) + 1.0f);
    return x < 0.0f ? -t : t;
}

/* IEEE: exactly rounded */
#ifdef __CUDACC__
NUM_FUNC float num_sqrt(float x) { return __fsqrt_rn(x); }
#else
NUM_FUNC float num_sqrt(float x) { return __builtin_sqrtf(x); }
#endif

/* --- 16-bit floats as bit patterns, rounded to nearest even; NaN stays NaN --- */

NUM_FUNC float num_from_bf16(uint16_t h) { return num_from_bits((uint32_t)h << 16); }

NUM_FUNC uint16_t num_to_bf16(float x) {
    uint32_t u = num_bits(x);
    if ((u & 0x7fffffffu) > 0x7f800000u) return (uint16_t)(u >> 16 | 0x40u);
    return (uint16_t)((u + 0x7fffu + (u >> 16 & 1u)) >> 16);
}

NUM_FUNC float num_from_f16(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, rest = (uint32_t)(h & 0x7fffu) << 13;
    if (rest >= 0x0f800000u) return num_from_bits(sign | (rest + 0x70000000u)); /* infinity, NaN */
    /* times 2^112: exact, also for subnormals */
    return num_from_bits(num_bits(num_from_bits(rest) * num_from_bits(0x77800000u)) | sign);
}

NUM_FUNC uint16_t num_to_f16(float x) {
    uint32_t u = num_bits(x), sign = u >> 16 & 0x8000u, a = u & 0x7fffffffu;
    if (a > 0x7f800000u) return (uint16_t)(sign | 0x7e00u);
    if (a >= 0x477ff000u) return (uint16_t)(sign | 0x7c00u); /* rounds to 65536 and above */
    if (a < 0x38800000u) {                                   /* subnormal: adding 1/2 rounds to a multiple of 2^-24 */
        return (uint16_t)(sign | (num_bits(num_from_bits(a) + 0.5f) - 0x3f000000u));
    }
    return (uint16_t)(sign | ((a - 0x38000000u + 0xfffu + (a >> 13 & 1u)) >> 13));
}

/* fp8 E4M3: 4 bits of exponent, 3 of mantissa, largest 448, no infinity. */
NUM_FUNC float num_from_e4m3(uint8_t h) {
    uint32_t sign = (uint32_t)(h & 0x80u) << 24, rest = h & 0x7fu;
    if (rest == 0x7fu) return num_from_bits(sign | 0x7fc00000u);
    /* times 2^120: exact, also for subnormals */
    return num_from_bits(num_bits(num_from_bits(rest << 20) * num_from_bits(0x7b800000u)) | sign);
}

/* Too large values become 448, as in the GPU's conversion. */
NUM_FUNC uint8_t num_to_e4m3(float x) {
    uint32_t u = num_bits(x), sign = u >> 24 & 0x80u, a = u & 0x7fffffffu;
    if (a > 0x7f800000u) return (uint8_t)(sign | 0x7fu);
    if (a >= 0x43e00000u) return (uint8_t)(sign | 0x7eu);
    if (a < 0x3c800000u) /* subnormal: adding 2^14 rounds to a multiple of 2^-9 */
        return (uint8_t)(sign | (num_bits(num_from_bits(a) + 16384.0f) - 0x46800000u));
    return (uint8_t)(sign | ((a - 0x3c000000u + 0x7ffffu + (a >> 20 & 1u)) >> 20));
}

/* splitmix64: the source of random numbers that must be equal on all devices. */
NUM_FUNC uint64_t num_mix(uint64_t z) {
    z += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

#endif
