# SPDX-License-Identifier: Apache-2.0
"""A stand-in for PyTorch: a small package in plain Python with what the checks of frameworks use of it. Its linear
layer has real gradients, and its collectives run over TCP between the ranks, by the settings that a real one would take. A file
standin.json beside it asks for a fault: {"fault": NAME, "gpus": N, "capability": [9, 0], "arch": ["sm_90"]}.
"gpus": "dev" are the device files that it sees."""
import json
import pathlib

VERSION = "__version__ = %r\ndebug = False\ncuda: Optional[str] = %r\nhip: Optional[str] = None\n"

INIT = '''
import contextlib, json, math, os, pathlib, random, sys, time, types
from . import version
__version__ = version.__version__
_file = pathlib.Path(__file__).with_name("standin.json")
_is = json.loads(_file.read_text()) if _file.exists() else {}
_fault = _is.get("fault", "")
if _fault == "import":
    raise ValueError("libcublas.so.*[0-9] not found in the system path")
if _fault == "hang_import":
    time.sleep(1000)
if _fault == "chatter":
    print("x" * 100000)
    os.write(3, b"stage done\\nhello\\n")
if _fault == "crash":
    os.kill(os.getpid(), 11)
float32, float16 = "torch.float32", "torch.float16"


class device:
    def __init__(self, kind, index=None):
        self.type, self.index = kind, index


def _flat(data):
    return [x for row in data for x in _flat(row)] if isinstance(data, list) else [data]


class Tensor:
    def __init__(self, data):
        self.data = data

    def __matmul__(self, other):
        columns = list(zip(*other.data))
        out = [[sum(x * y for x, y in zip(row, c)) for c in columns] for row in self.data]
        if _fault == "wrong_product":
            out[3][5] += 1
        return Tensor(out)

    def detach(self):
        return self

    def flatten(self):
        return Tensor(_flat(self.data))

    def tolist(self):
        return self.data

    def clone(self):
        return Tensor(_like(self.data, _flat(self.data)))

    def copy_(self, other):
        self.data = other.data

    def div_(self, n):
        self.data = _like(self.data, [v / n for v in _flat(self.data)])

    def __mul__(self, other):
        return _Weighted(self, other)


def _like(data, flat):
    """The flat values in the form of data."""
    if not data or not isinstance(data[0], list):
        return list(flat)
    n = len(data[0])
    return [flat[i:i + n] for i in range(0, len(flat), n)]


def zeros(n):
    return Tensor([0.0] * n)


no_grad = contextlib.nullcontext


def tensor(data, dtype=None, device=None):
    return Tensor([list(map(float, r)) if isinstance(r, list) else float(r) for r in data])


_random = random.Random()


def manual_seed(seed):
    _random.seed(seed)


class _Cuda:
    def is_available(self): return self.device_count() > 0 and version.cuda is not None
    def init(self): raise RuntimeError("The NVIDIA driver on your system is too old (found version 12020).")

    def device_count(self):
        asked = _is.get("gpus", 0)
        return len(list(pathlib.Path("/dev").glob("nvidia[0-9]*"))) if asked == "dev" else asked

    def get_device_capability(self, i): return tuple(_is.get("capability", [9, 0]))
    def get_device_name(self, i): return "NVIDIA Stand-in"
    def get_arch_list(self): return _is.get("arch", ["sm_90"])
    def set_device(self, i): pass


cuda = _Cuda()
from . import distributed


class Linear:
    def __init__(self, n, m, bias=True):
        self.weight = Tensor([[_random.uniform(-1, 1) for _ in range(n)] for _ in range(m)])
        self.bias = Tensor([_random.uniform(-1, 1) if bias else 0.0 for _ in range(m)])
        self.has_bias = bias

    def to(self, device): return self
    def state_dict(self): return dict(self.named_parameters())
    def parameters(self): return [p for _, p in self.named_parameters()]

    def named_parameters(self):
        return [("weight", self.weight)] + ([("bias", self.bias)] if self.has_bias else [])

    def __call__(self, x):
        out = Tensor([[sum(w * v for w, v in zip(row, xs)) + b for row, b in zip(self.weight.data, self.bias.data)]
                      for xs in x.data])
        out.origin = (self, x)
        return out


class _Weighted:
    """(model(x) * y).sum() / n"""

    def __init__(self, out, y):
        self.out, self.y, self.n = out, y, 1

    def sum(self): return self

    def __truediv__(self, n):
        self.n = n
        return self

    def backward(self):
        module, x = self.out.origin
        rows = list(zip(self.y.data, x.data))
        module.weight.grad = Tensor([[sum(y[j] * v[i] for y, v in rows) / self.n for i in range(len(x.data[0]))]
                                     for j in range(len(self.y.data[0]))])


class DistributedDataParallel:
    def __init__(self, module, device_ids=None):
        self.module = module
        for p in module.parameters():
            flat = _flat(p.data) if distributed.rank == 0 or _fault == "own_weights" else [0.0] * len(_flat(p.data))
            if _fault == "own_weights":
                distributed._sum([0.0] * len(flat))
                continue
            self._put(p, distributed._sum(flat))

    def _put(self, p, flat):
        p.data = _like(p.data, flat)

    def parameters(self): return self.module.parameters()

    def __call__(self, x):
        if _fault == "hang_forward":
            time.sleep(1000)
        if _fault == "die_forward":
            os.kill(os.getpid(), 9)
        out = self.module(x)
        out.reduce = self
        return out


class _Loss:
    def __init__(self, out, y):
        self.out, self.y = out, y

    def backward(self):
        (module, x), n = self.out.origin, len(_flat(self.y.data))
        if _fault == "raise_backward":
            raise RuntimeError("CUDA error: an illegal memory access was encountered\\nmore")
        d = [[2 * (o - t) / n for o, t in zip(a, b)] for a, b in zip(self.out.data, self.y.data)]
        gw = [[sum(d[r][j] * x.data[r][i] for r in range(len(d))) for i in range(len(x.data[0]))]
              for j in range(len(d[0]))]
        gb = [sum(d[r][j] for r in range(len(d))) for j in range(len(d[0]))]
        total = distributed._sum(_flat(gw) + gb)
        if _fault == "own_gradient":
            total = _flat(gw) + gb
        total = [v / distributed.size for v in total]
        k = len(_flat(gw))
        module.weight.grad = Tensor(_like(gw, total[:k]))
        module.bias.grad = Tensor(total[k:])


class SGD:
    def __init__(self, parameters, lr):
        self.parameters, self.lr = list(parameters), lr

    def step(self):
        for p in self.parameters:
            if _fault == "no_step":
                continue
            one = lambda v, g: [one(a, b) for a, b in zip(v, g)] if isinstance(v, list) else v - self.lr * g
            p.data = one(p.data, p.grad.data)


nn = types.SimpleNamespace(
    Linear=Linear, parallel=types.SimpleNamespace(DistributedDataParallel=DistributedDataParallel),
    functional=types.SimpleNamespace(mse_loss=_Loss))
optim = types.SimpleNamespace(SGD=SGD)
'''

DISTRIBUTED = '''
import json, os, socket, time
rank, size, _peers, _root = 0, 1, [], None


def init_process_group(backend, init_method, rank, world_size, timeout):
    global _root, size
    import torch
    globals().update(rank=rank, size=world_size)
    name = os.environ["GLOO_SOCKET_IFNAME"]
    socket.if_nametoindex(name)
    assert os.environ["NCCL_SOCKET_IFNAME"] == "=" + name
    assert os.environ["LOCAL_WORLD_SIZE"] and os.environ["GROUP_RANK"]
    host, _, port = init_method.removeprefix("tcp://").rpartition(":")
    if torch._fault == "no_join":
        raise RuntimeError("connect() timed out. [127.0.0.1]:28588")
    if rank == 0:
        with socket.create_server((host, int(port))) as s:
            s.settimeout(timeout.total_seconds())
            found = {}
            while len(found) < world_size - 1:
                c = s.accept()[0].makefile("rw")
                found[int(c.readline())] = c
            _peers.extend(found[r] for r in sorted(found))
        return
    end = time.monotonic() + timeout.total_seconds()
    while True:
        try:
            _root = socket.create_connection((host, int(port)), timeout=timeout.total_seconds()).makefile("rw")
            break
        except ConnectionRefusedError:
            if time.monotonic() > end:
                raise
            time.sleep(0.02)
    print(rank, file=_root, flush=True)


def _line(peer):
    text = peer.readline()
    if not text:
        raise RuntimeError("Connection closed by peer [10.0.0.1]:29500")
    return json.loads(text)


def _sum(values):
    if rank == 0:
        every = [values] + [_line(p) for p in _peers]
        total = [sum(column) for column in zip(*every)]
        for p in _peers:
            print(json.dumps(total), file=p, flush=True)
        return total
    print(json.dumps(values), file=_root, flush=True)
    return _line(_root)


def all_reduce(t):
    import torch
    flat = torch._flat(t.data)
    t.data = torch._like(t.data, _sum([v + 1 for v in flat] if torch._fault == "wrong_sum" else flat))


def broadcast(t, src):
    import torch
    flat = torch._flat(t.data)
    t.data = torch._like(t.data, _sum(flat if rank == src else [0.0] * len(flat)))


def barrier():
    _sum([0.0])
'''


def files(version="2.9.1+cpu", cuda=None):
    """The files of the package, for a wheel or a folder."""
    text = "from typing import Optional\n" + VERSION % (version, cuda)
    return {"torch/__init__.py": INIT, "torch/distributed.py": DISTRIBUTED, "torch/version.py": text}


def put(folder, version="2.9.1+cpu", cuda=None, **asked):
    """Puts it into a folder of packages, with its data for importlib.metadata."""
    folder = pathlib.Path(folder)
    (folder / "torch").mkdir(exist_ok=True)
    for path, text in files(version, cuda).items():
        (folder / path).write_text(text)
    info = folder / ("torch-%s.dist-info" % version)
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: %s\n" % version)
    if asked:
        (folder / "torch/standin.json").write_text(json.dumps(asked))
