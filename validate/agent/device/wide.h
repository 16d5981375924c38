/* SPDX-License-Identifier: Apache-2.0 */
/* HOST_WIDE, in front of a function: compiled a second time for CPUs with AVX2, chosen when the program starts. The
 * bits of its results are the same, because every sum keeps its order and nothing is contracted (-ffp-contract=off). */
#ifndef GP_AGENT_WIDE_H
#define GP_AGENT_WIDE_H

/* A sanitizer cannot run the choice, which comes before its own start. Clang refuses it for functions like these. */
#if defined(__x86_64__) && !defined(__clang__) && !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
#define HOST_WIDE __attribute__((target_clones("avx2", "default")))
#else
#define HOST_WIDE __attribute__((noinline))
#endif

#endif
