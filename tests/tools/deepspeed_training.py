"""A process that trains a small model under some configurations of DeepSpeed; prints losses as JSON."""

import json
import sys
from typing import Any

import deepspeed  # type: ignore[import-not-found]
import torch


def train(config: dict[str, Any]) -> dict[str, Any]:
    """The losses of 8 steps."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.Linear(32, 4))
    engine, *_ = deepspeed.initialize(
        model=model, model_parameters=model.parameters(),
        config=config | {"optimizer": {"type": "AdamW", "params": {"lr": 0.01, "torch_adam": True}}},
    )  # fmt: skip
    assert engine.zero_optimization_stage() == config["zero_optimization"]["stage"]
    assert engine.train_micro_batch_size_per_gpu() == config["train_micro_batch_size_per_gpu"]
    inputs = torch.randn(config["train_micro_batch_size_per_gpu"], 16)
    targets = inputs[:, :4] * 0.5
    if config["bf16"]["enabled"]:
        inputs, targets = inputs.bfloat16(), targets.bfloat16()
    losses = []
    for _ in range(8 * engine.gradient_accumulation_steps()):
        loss = torch.nn.functional.mse_loss(engine(inputs), targets)
        engine.backward(loss)
        engine.step()
        losses.append(float(loss.detach()))
    return {"losses": losses, "steps": engine.global_steps}


def main(paths: list[str]) -> None:
    """Train under each configuration, one after another."""
    deepspeed.comm.torch.build_shm_op = lambda: None  # a faster kernel, whose compilation takes minutes
    deepspeed.init_distributed(dist_backend="gloo", verbose=False)
    told = []
    for path in paths:
        with open(path, encoding="utf-8") as file:
            told.append(train(json.load(file)))
    if torch.distributed.get_rank() == 0:
        print("LOSSES " + json.dumps(told))
    torch.distributed.destroy_process_group()


main(sys.argv[1:])
