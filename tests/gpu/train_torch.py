#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The model of `gpuprov-agent train` in PyTorch, on the current GPU: the same sizes, precision, optimizer
and work per step. One JSON object a line: {"mode": "eager", "tokens_per_s": ...}, then "compile".

The precision is PyTorch's own way of doing the same: autocast over fp32 weights, a GradScaler with fp16,
fused AdamW, scaled_dot_product_attention. Sizes come from our own result (--like FILE, the line that
`gpuprov-agent train --json` wrote), so that both did the same work."""
import argparse
import json
import statistics
import sys
import time

import torch
from torch import nn
from torch.nn import functional


class Block(nn.Module):
    def __init__(self, width, heads, inner):
        super().__init__()
        self.heads = heads
        self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, inner), nn.Linear(inner, width)

    def forward(self, x):
        batch, context, width = x.shape
        q, k, v = self.qkv(self.ln1(x)).view(batch, context, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        attended = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, context, width))
        return x + self.down(functional.gelu(self.up(self.ln2(x)), approximate="tanh"))


class Model(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.token = nn.Embedding(size["vocabulary"], size["width"])
        self.place = nn.Embedding(size["context"], size["width"])
        self.blocks = nn.Sequential(*(Block(size["width"], size["heads"], size["inner"])
                                      for _ in range(size["layers"])))
        self.norm = nn.LayerNorm(size["width"])
        self.head = nn.Linear(size["width"], size["vocabulary"], bias=False)

    def forward(self, tokens, targets):
        places = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.blocks(self.token(tokens) + self.place(places))
        return functional.cross_entropy(self.head(self.norm(x)).flatten(0, 1), targets.flatten())


def rate(model, size, seconds):
    """Tokens per second: the median of the steps within `seconds`, after three that are not counted."""
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}[size["type"]]
    adam = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.98), eps=1e-8, weight_decay=0.01,
                             fused=True)
    scaler = torch.amp.GradScaler("cuda", enabled=dtype == torch.float16)
    shape = (size["micro_batches"], size["batch"], size["context"])
    times, began = [], None
    while began is None or time.monotonic() - began < seconds or len(times) < 3:
        tokens = torch.randint(size["vocabulary"], (*shape, 2), device="cuda")
        torch.cuda.synchronize()
        at = time.monotonic()
        for micro in tokens:
            with torch.autocast("cuda", dtype=dtype):
                loss = model(micro[..., 0], micro[..., 1])
            scaler.scale(loss / len(tokens)).backward()
        scaler.step(adam)
        scaler.update()
        adam.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        times.append(time.monotonic() - at)
        if began is None and len(times) == 3:
            times, began = [], time.monotonic()
    return shape[0] * shape[1] * shape[2] / statistics.median(times)


def sizes(path):
    with open(path, encoding="utf-8") as lines:
        results = [json.loads(line) for line in lines]
    return next(r["data"]["timed"] for r in results if "timed" in r.get("data", {}))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--like", required=True, help="what gpuprov-agent train --json wrote")
    parser.add_argument("--seconds", type=float, default=8)
    options = parser.parse_args()
    size = sizes(options.like)
    torch.manual_seed(1)
    for mode in ("eager", "compile"):
        try:
            model = Model(size).cuda()
            parameters = sum(p.numel() for p in model.parameters())
            value = rate(torch.compile(model) if mode == "compile" else model, size, options.seconds)
            print(json.dumps({"mode": mode, "tokens_per_s": value, "parameters": parameters}), flush=True)
        except RuntimeError as e:  # no compiler on this machine, or not enough memory
            print(f"{mode}: {e}", file=sys.stderr)
        finally:
            model = None
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
