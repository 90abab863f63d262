"""Hugging Face models, unchanged, trained under a plan beside themselves on one device."""

from copy import deepcopy
from dataclasses import replace
from functools import cache

import torch
import transformers
from torch import nn

import trainwright
from tests.runtime.equality import RECIPE, Difference
from trainwright.plan.expand import expand
from trainwright.plan.strategy import parse_strategy
from trainwright.program.lower import lower
from trainwright.runtime.machine import build_setting
from trainwright.runtime.tracing.traced import Traced
from trainwright.runtime.tracing.whole import evaluate
from trainwright.runtime.trainer import Trainer, build_trainer, initialize
from trainwright.runtime.worker import Microbatch, build_worker

SIZES = {
    "vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 4,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 32,
    "bos_token_id": 0, "eos_token_id": 0,
}  # fmt: skip
GPT2_SIZES = {
    "vocab_size": 64, "n_embd": 32, "n_layer": 4, "n_head": 4, "n_positions": 32, "attn_pdrop": 0.0,
    "resid_pdrop": 0.0, "embd_pdrop": 0.0, "bos_token_id": 0, "eos_token_id": 0,
}  # fmt: skip
ARCHITECTURES = {
    "gpt2": ("GPT2Config", "GPT2LMHeadModel", GPT2_SIZES),
    "llama": ("LlamaConfig", "LlamaForCausalLM", SIZES),
    "qwen2": ("Qwen2Config", "Qwen2ForCausalLM", SIZES),
}
SEQ = 16


def build_module(name: str, **changes: object) -> nn.Module:
    """A small model with random weights, the same in every process."""
    config, model, sizes = ARCHITECTURES[name]
    torch.manual_seed(0)
    stated = {"use_cache": False, **sizes, **changes}
    built: nn.Module = getattr(transformers, model)(getattr(transformers, config)(**stated))
    return built


def build_inputs(samples: int, seed: int) -> dict[str, torch.Tensor]:
    """Random tokens, of which the first three are not asked for."""
    random = torch.Generator().manual_seed(seed)
    tokens = torch.randint(64, (samples, SEQ), generator=random)
    labels = tokens.clone()
    labels[:, :3] = -100
    return {"input_ids": tokens, "labels": labels}


@cache
def _traced(name: str) -> tuple[nn.Module, Traced]:
    """A small model, not to be trained itself, and its trace."""
    module = build_module(name)
    return module, trainwright.trace(module, build_inputs(2, 0))


def _build(
    rank: int, module: nn.Module, traced: Traced, text: str
) -> tuple[Trainer, dict[str, nn.Parameter]]:
    """A trainer under a strategy with the module's own weights, and those."""
    plan = replace(expand(parse_strategy(text), traced.graph, 8), precision="fp32")
    program = lower(build_setting(traced.graph, plan.devices, SEQ, "fp32"), plan)
    trainer = build_trainer(build_worker(program, rank, traced.kernels, torch.device("cpu")), RECIPE)
    parameters = dict(module.named_parameters(remove_duplicate=False))
    initialize(
        trainer.worker, lambda key, sizes: traced.weights[key].load(parameters[traced.weights[key].names[0]])
    )
    return trainer, parameters


def compare_traced(rank: int, name: str, text: str, steps: int = 5) -> Difference:
    """Train a model under a strategy and on one device; this process's share of the differences."""
    first, traced = _traced(name)
    module = deepcopy(first)
    trainer, parameters = _build(rank, module, traced, text)
    plan = trainer.worker.program.plan
    optimizer = torch.optim.AdamW(
        _decayed(traced, parameters), lr=RECIPE.rate, betas=RECIPE.betas, eps=RECIPE.epsilon
    )
    found = Difference(loss=0.0, gradient=0.0, norm=0.0, where="")
    for step in range(steps):
        batches = [build_inputs(plan.batch, 100 * step + number) for number in range(plan.microbatches)]
        outcome = trainer.take([_microbatch(traced, each) for each in batches])
        optimizer.zero_grad()
        loss = sum((module(**each).loss for each in batches), torch.zeros(())) / len(batches)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(module.parameters(), RECIPE.clip)
        error, where = _worst(trainer, traced, parameters)
        found = Difference(
            loss=max(found.loss, abs(outcome.loss - float(loss))),
            gradient=max(found.gradient, error),
            norm=max(found.norm, abs(outcome.gradient_norm - float(norm))),
            where=where if error > found.gradient else found.where,
        )
        for group in optimizer.param_groups:
            group["lr"] = RECIPE.rate * RECIPE.share(step)
        optimizer.step()
    trainer.worker.groups.close()
    return found


@cache
def _dropping() -> tuple[nn.Module, Traced]:
    module = build_module("gpt2", resid_pdrop=0.2, embd_pdrop=0.2, attn_pdrop=0.2).train()
    return module, trainwright.trace(module, build_inputs(2, 0))


def compare_dropped(rank: int, text: str) -> Difference:
    """One step of GPT-2 with dropout, beside the same masks on one device over all samples at once."""
    first, traced = _dropping()
    module = deepcopy(first)
    trainer, parameters = _build(rank, module, traced, text)
    plan = trainer.worker.program.plan
    trainer.worker.computer.seed = 5
    batches = [build_inputs(plan.batch, number) for number in range(plan.microbatches)]
    outcome = trainer.take([_microbatch(traced, each) for each in batches])
    together = {name: torch.cat([each[name] for each in batches]) for name in batches[0]}
    loss = evaluate(traced, parameters, together, seed=5)["loss"]
    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(module.parameters(), RECIPE.clip)
    error, where = _worst(trainer, traced, parameters)
    trainer.worker.groups.close()
    return Difference(
        loss=abs(outcome.loss - float(loss.detach())), gradient=error,
        norm=abs(outcome.gradient_norm - float(norm)), where=where,
    )  # fmt: skip


def _microbatch(traced: Traced, inputs: dict[str, torch.Tensor]) -> Microbatch:
    given = {value: each.load(inputs[each.name]) for value, each in traced.inputs.items()}
    return Microbatch(given=given, targets={name: of(inputs) for name, of in traced.targets.items()})


def _decayed(traced: Traced, parameters: dict[str, nn.Parameter]) -> list[dict[str, object]]:
    """Weights that decay as the trainer lets them: those that have two dims or more in the graph."""
    wide = {
        name
        for key, each in traced.weights.items()
        if len(each.shape) > 1 and not key.endswith("bias")
        for name in each.names
    }
    unique = {id(each): (name, each) for name, each in parameters.items()}
    plain = [each for name, each in unique.values() if name not in wide]
    decayed = [each for name, each in unique.values() if name in wide]
    return [{"params": decayed, "weight_decay": RECIPE.decay}, {"params": plain, "weight_decay": 0.0}]


def _worst(trainer: Trainer, traced: Traced, parameters: dict[str, nn.Parameter]) -> tuple[float, str]:
    found = (0.0, "")
    for key, (slot, first, last, values) in trainer.pieces.items():
        grad = parameters[traced.weights[key].names[0]].grad
        assert grad is not None
        assert values.grad is not None
        whole = traced.weights[key].load(grad)
        part = whole[tuple(slice(low, high) for low, high in slot.region.values())].reshape(-1)
        found = max(found, (float((values.grad - part[first:last]).abs().max()), key))
    return found
