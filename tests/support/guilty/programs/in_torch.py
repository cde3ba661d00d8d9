"""Data-parallel steps with torch and gloo."""

import datetime
import os

import fault
import torch
import torch.distributed as dist

SECONDS = float(os.environ["PATIENCE"])

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=SECONDS))
rank, size = dist.get_rank(), dist.get_world_size()
weights = torch.zeros(1000)
for step in range(1, 200):
    fault.trouble(step, rank)
    gradients = torch.full((1000,), float(rank))
    dist.all_reduce(gradients)
    weights -= gradients / size
    if rank == 0:
        print(f"step {step} loss {1 / step:.3f}", flush=True)
dist.destroy_process_group()
