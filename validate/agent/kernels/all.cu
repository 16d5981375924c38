/* SPDX-License-Identifier: Apache-2.0 */
/* Every kernel in one fatbin. */
#include "gemm.cu"
#include "memory.cu"
#include "train.cu"
#include "train_mixed.cu"
