# SPDX-License-Identifier: Apache-2.0
"""The part of framework.deepspeed after common.py: one step of DeepSpeed's engine (ZeRO stage 1) over all ranks."""
import datetime


def step():
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = address.strip("[]"), port
    deepspeed.init_distributed(dist_backend="nccl" if wants_gpu else "gloo", auto_mpi_discovery=False, rank=rank,
                               world_size=size, timeout=datetime.timedelta(seconds=seconds))
    say("stage", "sum")
    got = torch.tensor([float(rank + 1)] * 1024, device=place)
    deepspeed.comm.all_reduce(got)
    check_total(got.tolist())
    model = known_model(place, rank)
    engine = deepspeed.initialize(
        model=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.5), dist_init_required=False,
        config={"train_micro_batch_size_per_gpu": 32, "gradient_accumulation_steps": 1, "gradient_clipping": 0.0,
                "zero_allow_untested_optimizer": True, "zero_optimization": {"stage": 1}})[0]
    say("stage", "forward")
    loss = known_loss(engine, place)
    say("stage", "backward")
    engine.backward(loss)
    engine.step()
    check_known_step(engine.module, 0, 0.5)
    say("stage", "leave")
    deepspeed.comm.barrier()


if not wants_gpu:  # else it looks for other accelerators
    os.environ["DS_ACCELERATOR"] = "cpu"
deepspeed = load("deepspeed")
# A module for ranks of one node without GPUs, which the first run would compile for minutes.
getattr(deepspeed.ops, "__compatible_ops__", {}).update(deepspeed_shm_comm=False)
say("version", deepspeed.__version__)
place, address, port = prepare()
train(step)
