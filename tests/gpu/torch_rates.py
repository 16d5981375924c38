#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch's copy and matmul on the current GPU, for check.sh: "CHECK METRIC VALUE pytorch" lines. Timed by
CUDA events, median of 20 after warm-up; the copy counts bytes read and written, as ours does."""
import statistics

import torch


def seconds(work, n=20):
    for _ in range(5):
        work()
    times = []
    for _ in range(n):
        a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        a.record()
        work()
        b.record()
        b.synchronize()
        times.append(a.elapsed_time(b) / 1e3)
    return statistics.median(times)


def say(check, metric, value):
    print(check, metric, f"{value:.6g}", "pytorch", flush=True)


def bandwidth():
    free, _ = torch.cuda.mem_get_info()
    n = min(4 << 30, free // 4) // 4
    src, dst = torch.rand(n, device="cuda"), torch.empty(n, device="cuda")
    say("gpu.bandwidth", "copy", 2 * 4 * n / seconds(lambda d=dst, s=src: d.copy_(s)) / 1e9)
    del src, dst
    host = torch.empty(512 << 20, dtype=torch.uint8, pin_memory=True)
    dev = torch.empty(512 << 20, dtype=torch.uint8, device="cuda")
    say("gpu.bandwidth", "h2d", host.numel() / seconds(lambda: dev.copy_(host, non_blocking=True)) / 1e9)
    say("gpu.bandwidth", "d2h", host.numel() / seconds(lambda: host.copy_(dev, non_blocking=True)) / 1e9)


def matmul():
    n = 8192
    flop = 2.0 * n**3
    for metric, dtype, tf32 in [("fp32", torch.float32, False), ("tf32", torch.float32, True),
                                ("bf16", torch.bfloat16, False), ("fp16", torch.float16, False)]:
        torch.backends.cuda.matmul.allow_tf32 = tf32
        a, b = (torch.randn(n, n, device="cuda").to(dtype) for _ in range(2))
        c = torch.empty(n, n, device="cuda", dtype=dtype)
        say("gpu.gemm", metric, flop / seconds(lambda a=a, b=b, c=c: torch.matmul(a, b, out=c)) / 1e12)


if __name__ == "__main__":
    bandwidth()
    matmul()
