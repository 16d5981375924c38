/* SPDX-License-Identifier: Apache-2.0 */
/* Every kernel in one fatbin. */
#include "checksum.cu"
#include "collective.cu"
#include "gemm.cu"
#include "gemm_mma.cu"
#include "memory.cu"
#include "stream.cu"
#include "train.cu"
#include "train_mixed.cu"
