# SPDX-License-Identifier: Apache-2.0
"""The part of framework.torch that runs in the node's Python, one process per rank. torch_check.c starts it and
decodes its report: lines "NAME VALUE" on file descriptor 3. Its stdin is one line "ADDRESS PORT" of rank 0 once all
ranks are ready; the end of stdin ends it. The rank is in the environment, as torchrun gives it."""
import ctypes
import datetime
import hashlib
import math
import os
import signal
import sys
import time

report = os.fdopen(3, "w", buffering=1)
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
local = int(os.environ["LOCAL_RANK"])
wants_gpu = os.environ["GPUPROV_GPU"] == "1"
seconds = float(os.environ["GPUPROV_SECONDS"])


def say(name, value):
    text = " ".join("".join(c if 32 < ord(c) < 127 else " " for c in str(value)).split())
    report.write("%s %s\n" % (name, text[:180]))


def fail(code, text):
    say("error", "%s %s" % (code, text))
    os._exit(0)


def words(e):
    """An exception in one line; torch adds C++ frames below it."""
    text = str(e).strip().splitlines()
    return "%s: %s" % (type(e).__name__, text[0] if text else "no message")


def known(n, a, b):
    """A matrix of small integers: products of two are exact in every order of addition."""
    return [[(i * a + j * b) % 11 - 5 for j in range(n)] for i in range(n)]


def check_arch():
    """A wheel runs on a GPU by code for its architecture, or one of the same generation, or PTX of an older one."""
    major, minor = torch.cuda.get_device_capability(local)
    have = torch.cuda.get_arch_list()
    say("gpu", torch.cuda.get_device_name(local))
    for arch in have:
        kind, _, number = arch.partition("_")
        digits = number.rstrip("af")
        if not digits.isdigit():
            continue
        exact = number.endswith("a")  # sm_90a: this one only; sm_100f: its whole family
        m, n = int(digits) // 10, int(digits) % 10
        if (m, n) == (major, minor) or (not exact and kind == "sm" and m == major and n <= minor):
            return
        if not exact and kind == "compute" and (m, n) <= (major, minor):
            return
    fail("no_arch", "torch %s has code for %s, and this GPU (%s) is sm_%d%d" % (
        torch.__version__, " ".join(have) or "no GPU", torch.cuda.get_device_name(local), major, minor))


def choose_device():
    """The GPU of this rank, or the CPU where the node has none."""
    cuda = torch.version.cuda or getattr(torch.version, "hip", None)
    if not wants_gpu:
        return torch.device("cpu")
    if not cuda:
        fail("cpu_build", "torch %s is the build for CPUs, and this node has GPUs" % torch.__version__)
    if not torch.cuda.is_available():
        why = "torch.cuda.is_available() is False"
        try:
            torch.cuda.init()
        except Exception as e:
            why = words(e)
        fail("no_cuda", "torch %s for CUDA %s cannot use the GPUs: %s" % (torch.__version__, cuda, why))
    if torch.cuda.device_count() <= local:
        fail("gpu_missing", "torch sees %d GPUs, and this rank has GPU %d" % (torch.cuda.device_count(), local))
    check_arch()
    torch.cuda.set_device(local)
    return torch.device("cuda", local)


def check_product(device, kind):
    n = 64
    a, b = known(n, 7, 3), known(n, 5, 2)
    got = (torch.tensor(a, dtype=kind, device=device) @ torch.tensor(b, dtype=kind, device=device)).tolist()
    for i in range(n):
        for j in range(n):
            want = sum(a[i][k] * b[k][j] for k in range(n))
            if got[i][j] != want:
                fail("wrong_result", "a product of integers in %s is wrong at %d,%d: %r instead of %d" % (
                    str(kind).rpartition(".")[2], i, j, got[i][j], want))


def check_sum(device):
    t = torch.tensor([float(rank + 1)] * 1024, device=device)
    dist.all_reduce(t)
    want = size * (size + 1) // 2
    wrong = [x for x in t.tolist() if x != want]
    if wrong:
        fail("wrong_sum", "a sum over all ranks is wrong: %r instead of %d" % (wrong[0], want))


def one_step(device):
    """Ranks begin with different weights and have different data: only torch makes them equal."""
    torch.manual_seed(1 + rank)
    model = torch.nn.parallel.DistributedDataParallel(
        torch.nn.Linear(16, 8).to(device), device_ids=[local] if wants_gpu else None)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    before = weights(model)
    x = torch.tensor([[float((r * 5 + c * 3 + rank) % 7 - 3) for c in range(16)] for r in range(32)], device=device)
    y = torch.tensor([[float((r + c + rank) % 3) for c in range(8)] for r in range(32)], device=device)
    say("stage", "forward")
    loss = torch.nn.functional.mse_loss(model(x), y)
    say("stage", "backward")
    loss.backward()
    optimizer.step()
    after = weights(model)
    if before == after or not all(math.isfinite(v) for v in after):
        fail("no_step", "a step of training left the weights " + ("as they were" if before == after else "not finite"))
    return hashlib.sha256(repr(after).encode()).hexdigest()


def weights(model):
    return [v for p in model.parameters() for v in p.detach().flatten().tolist()]


# The rank that started this one may be killed: nothing of this program stays.
ctypes.CDLL(None).prctl(1, signal.SIGKILL)
began = time.monotonic()
say("stage", "import")
try:
    import torch
    import torch.distributed as dist
except BaseException as e:
    if isinstance(e, ModuleNotFoundError) and e.name == "torch":
        fail("absent", "%s has no torch" % sys.executable)
    fail("import", "import torch: %s" % words(e))
say("torch", torch.__version__)
say("cuda", torch.version.cuda or "none")
try:
    say("stage", "device")
    place = choose_device()
    say("stage", "product")
    check_product(place, torch.float32)
    if wants_gpu:
        check_product(place, torch.float16)
except Exception as e:
    fail("device", words(e))
say("start_s", "%.3f" % (time.monotonic() - began))
say("stage", "ready")
line = sys.stdin.readline().split()
if len(line) != 2:
    os._exit(0)
began = time.monotonic()
try:
    say("stage", "join")
    dist.init_process_group("nccl" if wants_gpu else "gloo", init_method="tcp://%s:%s" % (line[0], line[1]),
                            rank=rank, world_size=size, timeout=datetime.timedelta(seconds=seconds))
    say("stage", "sum")
    check_sum(place)
    say("step_hash", one_step(place))
    say("step_s", "%.3f" % (time.monotonic() - began))
    say("stage", "leave")
    dist.barrier()
    say("stage", "done")
except Exception as e:
    fail("training", words(e))
os._exit(0)  # without the teardown of drivers, which may wait for ranks that are gone
