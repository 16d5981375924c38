# SPDX-License-Identifier: Apache-2.0
"""Fits y = sin(x) with a small network, data-parallel over all ranks. Rank 0 writes a checkpoint after each epoch, and all
ranks resume from it. torchrun sets RANK, WORLD_SIZE and the address of rank 0."""
import json
import os
import pathlib

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

CHECKPOINT = pathlib.Path("checkpoints/last.pt")
STEPS, BATCH = 50, 256


def save(model, optimizer, epoch):
    """Under another name first: a copy that is fetched meanwhile is whole."""
    CHECKPOINT.parent.mkdir(exist_ok=True)
    new = CHECKPOINT.with_suffix(".new")
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}, new)
    new.rename(CHECKPOINT)


def load(model, optimizer):
    """The epoch to begin with. Only rank 0 has the file; DDP sends its parameters to the others."""
    found = torch.load(CHECKPOINT, weights_only=True) if dist.get_rank() == 0 and CHECKPOINT.exists() else None
    state = [found]
    dist.broadcast_object_list(state)
    if state[0] is None:
        return 0
    model.load_state_dict(state[0]["model"])
    optimizer.load_state_dict(state[0]["optimizer"])
    return state[0]["epoch"] + 1


def main():
    dist.init_process_group("gloo")
    rank, epochs = dist.get_rank(), int(os.environ.get("EPOCHS", "10"))
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(1, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    first = load(model, optimizer)
    ddp = DistributedDataParallel(model)
    if rank == 0:
        print(f"begins with epoch {first} of {epochs} on {dist.get_world_size()} ranks", flush=True)
    loss = torch.zeros(1)
    for epoch in range(first, epochs):
        torch.manual_seed(1000 * epoch + rank)  # each rank has data of its own
        for _ in range(STEPS):
            x = torch.rand(BATCH, 1) * 6 - 3
            loss = torch.nn.functional.mse_loss(ddp(x), torch.sin(x))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        if rank == 0:
            print(f"epoch {epoch}: loss {mean.item() / dist.get_world_size():.5f}", flush=True)
            save(model, optimizer, epoch)
    pathlib.Path("out").mkdir(exist_ok=True)
    if rank == 0:
        pathlib.Path("out/result.json").write_text(json.dumps({"epochs": epochs, "began": first}) + "\n")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
