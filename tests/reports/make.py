#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes fleet.json: a report of two 8-GPU nodes with every kind of figure and verdict, for looking at
the report writers. The same every time (seeded). usage: make.py >fleet.json"""
import json
import math
import random

R = random.Random(7)


def metric(name, value, unit, floor=None, ceiling=None, source="", measured=None, unrated=False):
    m = {"name": name, "value": value, "unit": unit}
    if floor is not None:
        m["floor"] = floor
    if ceiling is not None:
        m["ceiling"] = ceiling
    if source:
        m["source"] = source
    if measured is not None:
        m["measured"] = measured
    if unrated:
        m["unrated"] = True
    return m


def check(name, verdict="pass", metrics=(), data=None, message="", required=True, code="", suggestion="", took=1200):
    c = {"check": name, "verdict": verdict, "required": required, "code": code, "message": message,
         "suggestion": suggestion, "took_ms": took, "metrics": list(metrics)}
    if data is not None:
        c["data"] = data
    return c


def gpus(figures, slow=None, more=None):
    """8 GPUs; figures: {name: typical}; slow: (gpu, name, factor)."""
    out = []
    for g in range(8):
        values = {n: round(v * R.uniform(0.985, 1.012), 2) for n, v in figures.items()}
        verdict = "pass"
        if slow and slow[0] == g:
            values[slow[1]] = round(values[slow[1]] * slow[2], 2)
            verdict = "fail"
        out.append({"gpu": g, "verdict": verdict, "metrics": values, **(more(g) if more else {})})
    return out


def worst(data, name):
    return min(g["metrics"][name] for g in data)


def node(slot, bad):
    ident = [{"gpu": g, "verdict": "pass", "metrics": {}, "uuid": f"GPU-{slot:08x}-0000-4000-8000-{g:012x}",
              "name": "NVIDIA H100 80GB HBM3", "pci": f"0000:{0x1b + g:02x}:00.0", "pci_id": "2330",
              "serial": f"16516230{slot}{g:03d}", "vbios": "96.00.74.00.01", "memory_mib": 81559} for g in range(8)]
    bw = gpus({"copy": 2902, "read": 3010, "h2d": 53.6, "d2h": 54.1}, (5, "copy", 0.52) if bad else None)
    gemm = gpus({"fp32": 51.2, "tf32": 373, "bf16": 728, "fp16": 722, "fp8": 1403})
    mem = gpus({"wrong_words": 0, "tested": 93.4, "rate": 2200})
    def samples(g):
        return {"samples": [{"t_ms": 500 * i, "rate": round(728 - 22 * (1 - math.exp(-i / 9)) + R.gauss(0, 2), 1),
                             "clock": round(1980 - 210 * (1 - math.exp(-i / 8))),
                             "temperature": round(38 + 27 * (1 - math.exp(-i / 12)), 1),
                             "power": round(690 + R.gauss(0, 4), 1)} for i in range(40)]}
    stress = gpus({"rate": 706}, more=samples)
    why = "H100 SXM5: 3 machines measured 2540 to 2900 GB/s; fail under 80 %"
    checks = [
        check("host.cores", metrics=[metric("usable", 192, "cores", floor=0.5, source="own: below half a core nothing "
              "else can be measured"), metric("evenness", 0.973, "ratio")], message="192 of 192 cores usable"),
        check("host.clock", metrics=[metric("offset", 0.012, "s", ceiling=240, source="signed cloud requests are "
              "refused beyond 5 minutes")], message="within 0.1 s of the controller"),
        check("host.kernlog", "skipped", required=False, code="not_readable", message="the kernel log may not be read here"),
        check("gpu.presence", metrics=[metric("gpus", 8, "GPUs")], data={"driver": "580.65.06", "cuda": "13.0",
              "nvml": "13.580.65.06", "gpus": ident}, message="8 NVIDIA H100 80GB HBM3, driver 580.65.06"),
        check("gpu.memory", metrics=[metric("wrong_words", 0, "words", ceiling=0, source="memory is exact"),
              metric("tested", worst(mem, "tested"), "%", floor=90, source="DCGM's memory test needs 75 %"),
              metric("rate", worst(mem, "rate"), "GB/s", unrated=True)], data={"gpus": mem}, message="93.4 % of the memory held"),
        check("gpu.bandwidth", "fail" if bad else "pass",
              [metric("copy", worst(bw, "copy"), "GB/s", floor=2320, source=why, measured=2900),
               metric("read", worst(bw, "read"), "GB/s", floor=2400, source=why, measured=3000),
               metric("h2d", worst(bw, "h2d"), "GB/s", floor=43, source="PCIe gen5 x16", measured=53.7),
               metric("d2h", worst(bw, "d2h"), "GB/s", floor=43, source="PCIe gen5 x16", measured=54)], {"gpus": bw},
              "gpu 5: copy reaches 52 % of what this model reaches" if bad else "all 8 GPUs within 2 % of their model",
              code="slow" if bad else "", suggestion="replace the node; give the provider the GPU's serial number" if bad else ""),
        check("gpu.gemm", metrics=[metric(n, worst(gemm, n), "TFLOP/s", floor=round(0.8 * v, 1), source="FRY, ML-MAMF",
              measured=v) for n, v in (("fp32", 51), ("tf32", 373), ("bf16", 730), ("fp16", 724), ("fp8", 1403))],
              data={"gpus": gemm}, message="8 GPUs"),
        check("gpu.stress", "degraded" if bad else "pass", [metric("rate", worst(stress, "rate"), "TFLOP/s", floor=584,
              measured=730), metric("decay", 3.1, "%", ceiling=10)], {"gpus": stress},
              "clocks fell by 11 %: power cap" if bad else "steady"),
        check("gpu.sdc", "error" if bad else "pass", [metric("wrong_tiles", None if bad else 0, "tiles", ceiling=0,
              source="integers in floats are exact")], message="the worker of gpu.sdc was killed by SIGKILL" if bad else
              "9,216 products, none wrong", code="crashed" if bad else "", suggestion="run validate again" if bad else ""),
    ]
    return {"slot": slot, "id": f"i-0abc{slot}", "place": "aws us-east-2a", "address": f"203.0.113.{7 + slot}",
            "host": f"ip-10-0-0-{7 + slot}", "boot_id": f"{slot}5e460ee-cf77-4929-9227-3c8f949a3a35",
            "ready": not bad, "checks": checks}


def sizes():
    out = []
    for op, top in (("all_reduce", 471), ("all_gather", 362), ("reduce_scatter", 359), ("broadcast", 340), ("all_to_all", 331)):
        for kind in ("float32", "float16", "bfloat16", "int32"):
            for p in range(3, 34, 2):
                b = 2 ** p
                t = 18e-6 + b / (top * 1e9)
                rate = b / t / 1e9 * R.uniform(0.96, 1.02)
                out.append({"op": op, "type": kind, "bytes": b, "time_us": round(t * 1e6, 2), "algbw": round(rate / 1.75, 4),
                            "busbw": round(rate, 4), "wrong": 0})
    return out


loss = [round(1.386 + 2.83 * math.exp(-i / 5) + abs(R.gauss(0, 0.012)), 5) for i in range(41)]
gang = [
    check("nccl.bandwidth", metrics=[metric("busbw", 468.2, "GB/s", floor=368, source="H100 SXM5, 8 GPUs, 8 GiB, NVLS",
          measured=460)], data={"sizes": sizes(), "transport": "NVLink, IB", "version": "2.28.9"},
          message="16 ranks, NVLink and IB"),
    check("train.ddp", metrics=[metric("loss", 1.421, "nats", ceiling=1.55, source="the source's entropy is ln 4 = 1.386"),
          metric("tokens_per_s", 1842000, "tokens/s"), metric("efficiency", 0.94, "ratio", floor=0.8),
          metric("straggler", 1.04, "ratio", ceiling=3)],
          data={"device": "cuda", "loss_curve": loss, "loss_curve_stride": 5, "steps": 200, "ranks": 16,
                "step_ms_0_10_50_90_100": [4.01, 4.08, 4.13, 4.31, 5.92],
                "tokens_per_s_per_rank": [round(118000 * R.uniform(0.98, 1.02)) for _ in range(15)] + [70100],
                "gradient_ms_per_rank": [round(3.1 * R.uniform(0.98, 1.03), 3) for _ in range(16)]},
          message="loss 1.421 after 200 steps (entropy 1.386), 16 ranks bit-identical after every step"),
]
print(json.dumps({"schema": "gpuprov/report/v1", "stack": "llm", "uid": "58afe42c53f9dcd8", "run": "9885e94bd33e4e52",
                  "started": "2026-11-21T07:03:10Z", "took_ms": 61523, "strict": False, "ready": False,
                  "nodes": [node(0, False), node(1, True)], "gang": gang}, indent=1))
