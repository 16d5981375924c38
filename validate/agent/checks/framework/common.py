# SPDX-License-Identifier: Apache-2.0
"""The first part of each framework's program, which runs in the node's Python, or in that of a container image: one
process per rank. framework_run.c starts it and decodes its report: lines "NAME VALUE" on file descriptor 3, in a
container on stdout. Its stdin is one line "ADDRESS PORT" of rank 0 once all ranks are ready; the end of stdin ends it.
The rank is in the environment, as torchrun gives it."""
import ctypes
import faulthandler
import hashlib
import importlib
import os
import signal
import sys
import time

in_container = "GPUPROV_IMAGE" in os.environ
if in_container:  # engines pass no other descriptor on; what else is printed goes to stderr
    report = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
else:
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


def load(name):
    """Imports a module. One that is not there at all is absent; one that is there and fails is a fault."""
    try:
        return importlib.import_module(name)
    except BaseException as e:
        top = name.partition(".")[0]
        if isinstance(e, ModuleNotFoundError) and e.name == top:
            fail("absent", "%s has no %s" % (sys.executable, top))
        fail("import", "import %s: %s" % (name, words(e)))


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


def check_total(got):
    """Each rank gave rank + 1."""
    want = size * (size + 1) // 2
    wrong = [x for x in got if x != want]
    if wrong:
        fail("wrong_sum", "a sum over all ranks is wrong: %r instead of %d" % (wrong[0], want))


def cell(r, c, of):
    return (r * 5 + c * 3 + of) % 7 - 3


def batch(device, of, n):
    """Input of a rank: 32 rows of n small integers."""
    rows = [[float(cell(r, c, of)) for c in range(n)] for r in range(32)]
    return torch.tensor(rows, device=device)


def weights(model):
    return [v for p in model.parameters() for v in p.detach().flatten().tolist()]


def known_model(device, start):
    """A layer whose weights are known, and others on each rank."""
    model = torch.nn.Linear(16, 8, bias=False)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[float(start + (j + i) % 5 - 2) for i in range(16)] for j in range(8)]))
    return model.to(device)


def known_loss(model, device):
    """It is linear in the weights, so the gradient is known: the mean of y * x over the rows."""
    return (model(batch(device, rank, 16)) * batch(device, rank + 1, 8)).sum() / 32


def known_step(start, rate):
    """The weights after one step with the mean of all ranks' gradients, from the weights of rank 0."""
    def step(j, i):
        return sum(cell(r, i, k) * cell(r, j, k + 1) for k in range(size) for r in range(32)) / 32 / size
    return [start + (j + i) % 5 - 2 - rate * step(j, i) for j in range(8) for i in range(16)]


def check_known_step(model, start, rate):
    after, want = weights(model), known_step(start, rate)
    for got, right in zip(after, want):
        if not abs(got - right) <= 1e-4:
            fail("wrong_step", "after one step of training a weight is %r instead of %r" % (got, right))
    say("step_hash", hashlib.sha256(repr(after).encode()).hexdigest())


def prepare():
    """Chooses the device and tries it. Returns it with rank 0's address and port, once all ranks are ready."""
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
    return place, line[0], line[1]


def train(one_step):
    """one_step joins the ranks, trains, and leaves; it reports its stages."""
    begin = time.monotonic()
    try:
        say("stage", "join")
        one_step()
        say("step_s", "%.3f" % (time.monotonic() - begin))
        say("stage", "done")
    except Exception as e:
        fail("training", words(e))
    os._exit(0)  # without the teardown of drivers, which may wait for ranks that are gone


began = time.monotonic()
if in_container:  # nobody may be left to kill it
    faulthandler.dump_traceback_later(float(os.environ["GPUPROV_ENDS"]), exit=True)
else:  # the rank that started this one may be killed: nothing of this program stays
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
say("stage", "import")
torch = load("torch")
dist = load("torch.distributed")
say("torch", torch.__version__)
say("cuda", torch.version.cuda or "none")
