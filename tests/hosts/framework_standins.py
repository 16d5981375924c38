# SPDX-License-Identifier: Apache-2.0
"""Stand-ins for DeepSpeed and Horovod: small packages over torch.distributed, of a real PyTorch or of the stand-in
(torch_standin.py), with what the checks of frameworks use of them. A file standin.json beside one asks for a fault:
{"fault": NAME}."""
import json
import pathlib

ASKED = '''
import json, os, pathlib
_file = pathlib.Path(__file__).with_name("standin.json")
_fault = json.loads(_file.read_text())["fault"] if _file.exists() else ""
'''
DEEPSPEED = ASKED + '''
import types
if _fault == "import":
    raise AttributeError("module 'torch' has no attribute 'elastic'")
import torch
import torch.distributed as comm
from .version import __version__
ops = types.SimpleNamespace()


def init_distributed(dist_backend, auto_mpi_discovery, rank, world_size, timeout):
    at = "tcp://%s:%s" % (os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"])
    comm.init_process_group(dist_backend, init_method=at, rank=rank, world_size=world_size, timeout=timeout)
    assert os.environ["DS_ACCELERATOR"] == "cpu" and not auto_mpi_discovery


class Engine:
    def __init__(self, module, optimizer):
        self.module, self.optimizer = module, optimizer
        for p in module.parameters():
            comm.broadcast(p.detach(), 0)

    def __call__(self, x):
        if _fault == "die":
            os.kill(os.getpid(), 9)
        return self.module(x)

    def backward(self, loss):
        loss.backward()
        for p in self.module.parameters():
            comm.all_reduce(p.grad)
            p.grad.div_(int(os.environ["WORLD_SIZE"]) * (2 if _fault == "wrong" else 1))

    def step(self):
        self.optimizer.step()


def initialize(model, optimizer, dist_init_required, config):
    assert config["zero_optimization"] == {"stage": 1} and config["gradient_clipping"] == 0.0
    return Engine(model, optimizer), optimizer, None, None
'''
HOROVOD = "from .version import __version__\n"
HOROVOD_TORCH = ASKED + '''
import socket, time, urllib.error, urllib.request
if _fault == "import":
    raise ImportError("Extension horovod.torch has not been built")
import torch
import torch.distributed as dist
Sum = "sum"


def _store(path, value=None):
    """A key of the store that rank 0 serves, as Horovod's gloo reads and writes it."""
    at = "http://%s:%s/%s" % (os.environ["HOROVOD_GLOO_RENDEZVOUS_ADDR"], os.environ["HOROVOD_GLOO_RENDEZVOUS_PORT"],
                              path)
    end = time.monotonic() + float(os.environ["HOROVOD_GLOO_TIMEOUT_SECONDS"])
    while True:
        try:
            with urllib.request.urlopen(urllib.request.Request(at, value, method="PUT" if value else "GET")) as reply:
                return reply.read().decode()
        except urllib.error.URLError as e:  # not served yet, or 404: not there yet
            assert time.monotonic() < end, e
            time.sleep(0.02)


def init():
    import datetime
    env = {name: os.environ["HOROVOD_" + name] for name in (
        "RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE", "HOSTNAME", "GLOO_IFACE")}
    assert os.environ["HOROVOD_CONTROLLER"] == os.environ["HOROVOD_CPU_OPERATIONS"] == "gloo"
    assert int(env["LOCAL_RANK"]) < int(env["LOCAL_SIZE"]) and int(env["CROSS_RANK"]) < int(env["CROSS_SIZE"])
    socket.if_nametoindex(env["GLOO_IFACE"])
    rank, host = int(env["RANK"]), os.environ["HOROVOD_GLOO_RENDEZVOUS_ADDR"]
    if rank == 0:
        with socket.create_server((host, 0)) as s:
            free = s.getsockname()[1]
        _store("global/0", b"%d" % free)  # once it is closed: a rank must not reach this listener
    port = _store("global/0")
    dist.init_process_group("gloo", init_method="tcp://%s:%s" % (host, port), rank=rank, world_size=int(env["SIZE"]),
                            timeout=datetime.timedelta(seconds=60))


def allreduce(t, op):
    assert op == Sum
    out = t.clone()
    dist.all_reduce(out)
    return out


def broadcast_parameters(state, root_rank):
    for p in state.values():
        dist.broadcast(p.detach(), root_rank)


class DistributedOptimizer:
    def __init__(self, optimizer, named_parameters):
        self.optimizer, self.parameters = optimizer, [p for _, p in named_parameters]

    def step(self):
        if _fault == "die":
            os.kill(os.getpid(), 9)
        for p in self.parameters:
            dist.all_reduce(p.grad)
            p.grad.div_(int(os.environ["HOROVOD_SIZE"]) * (2 if _fault == "wrong" else 1))
        self.optimizer.step()
'''
FILES = {"deepspeed": {"deepspeed/__init__.py": DEEPSPEED},
         "horovod": {"horovod/__init__.py": HOROVOD, "horovod/torch.py": HOROVOD_TORCH}}


def files(name, version):
    """The files of the package, for a wheel or a folder."""
    return {**FILES[name], "%s/version.py" % name: "__version__ = %r\n" % version}


def put(folder, name, version="1.0", fault=""):
    """Puts it into a folder of packages."""
    folder = pathlib.Path(folder)
    (folder / name).mkdir()
    for path, text in files(name, version).items():
        (folder / path).write_text(text)
    if fault:
        (folder / name / "standin.json").write_text(json.dumps({"fault": fault}))
