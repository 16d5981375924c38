# SPDX-License-Identifier: Apache-2.0
"""The part of framework.torch after common.py: one step of DistributedDataParallel over all ranks."""
import datetime
import math


def one_step(device):
    """Ranks begin with different weights and have different data: only torch makes them equal."""
    torch.manual_seed(1 + rank)
    model = torch.nn.parallel.DistributedDataParallel(
        torch.nn.Linear(16, 8).to(device), device_ids=[local] if wants_gpu else None)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    before = weights(model)
    x = batch(device, rank, 16)
    y = torch.tensor([[float((r + c + rank) % 3) for c in range(8)] for r in range(32)], device=device)
    say("stage", "forward")
    loss = torch.nn.functional.mse_loss(model(x), y)
    say("stage", "backward")
    loss.backward()
    optimizer.step()
    after = weights(model)
    if before == after or not all(math.isfinite(v) for v in after):
        fail("no_step", "a step of training left the weights " + ("as they were" if before == after else "not finite"))
    say("step_hash", hashlib.sha256(repr(after).encode()).hexdigest())


def step():
    dist.init_process_group("nccl" if wants_gpu else "gloo", init_method="tcp://%s:%s" % (address, port),
                            rank=rank, world_size=size, timeout=datetime.timedelta(seconds=seconds))
    say("stage", "sum")
    got = torch.tensor([float(rank + 1)] * 1024, device=place)
    dist.all_reduce(got)
    check_total(got.tolist())
    one_step(place)
    say("stage", "leave")
    dist.barrier()


say("version", torch.__version__)
place, address, port = prepare()
train(step)
