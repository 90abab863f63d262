"""Carrying out experiments: data, networks of both sizes, all workers in this process."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

import torch
import torch.nn.functional as F

from trainwright.algorithm.corpus import VOCAB, draw_windows, read_corpus
from trainwright.algorithm.coupling import Coupling, coupling
from trainwright.algorithm.digits import SIDE, draw_digits
from trainwright.algorithm.experiment import BATCHES, Contest, Curve, Experiment, Given, Mark
from trainwright.algorithm.ist import Ist
from trainwright.algorithm.learning import Learning
from trainwright.algorithm.network import Batch, Mlp, Network, Values
from trainwright.algorithm.registry import parse_algorithm
from trainwright.algorithm.samples import read_samples
from trainwright.algorithm.teacher import build_task
from trainwright.algorithm.train import Course, Order, Task, train
from trainwright.algorithm.transformer import Transformer

_SEQ = 32
_NOISE = 0.05  # of the digits


@dataclass(frozen=True, slots=True, kw_only=True)
class _Lesson:
    """What a network learns from, whatever its size, and what it is judged by."""

    batch: Callable[[int], Batch]
    validation: Batch
    test: Batch


def rehearse(experiment: Experiment) -> Curve:
    """Train, and judge on the way."""
    lesson = _lesson(experiment.network, experiment.seed, experiment.given)
    if experiment.kind == "ensemble":
        return _ensemble(experiment, lesson)
    network = build_network(experiment.network, experiment.share, experiment.given)
    course = train(_task(network, lesson), _order(experiment, experiment.workers))
    marks = tuple(
        Mark(step=each.step, sent_bytes=each.sent_bytes, **_apart(each.judged)) for each in course.points
    )
    return Curve(experiment=experiment, marks=marks)


def build_network(contest: Contest, share: float = 1.0, given: Given | None = None) -> Network:
    """The network, or one with a share of its units: ends and the residual stream stay as they are."""
    if contest != "transformer":
        width = round(share * 256)
        inputs, classes = read_samples(given).shape if given else (SIDE * SIDE, 10)
        return Mlp(inputs=inputs, hidden=(width, width), classes=classes)
    return Transformer(
        vocab=VOCAB, seq=_SEQ, layers=2, hidden=32, heads=round(share * 4), head_dim=8, ffn=round(share * 128)
    )


def couplings(experiment: Experiment, cuts: Sequence[str], samples: int) -> list[Coupling]:
    """What the coupling of the network that an experiment trains says of cuts by algorithms.

    It is asked on samples of the training: there the network is near a minimum, as the estimate takes it.
    """
    network = build_network(experiment.network, given=experiment.given)
    lesson = _lesson(experiment.network, experiment.seed, experiment.given)
    values = train(_task(network, lesson), _order(experiment, experiment.workers)).values
    batches = [lesson.batch(number) for number in range(-(-samples // BATCHES[experiment.network]))]
    chosen = Batch(
        torch.cat([each.inputs for each in batches])[:samples],
        torch.cat([each.targets for each in batches])[:samples],
    )
    algorithms = [parse_algorithm(each) for each in cuts]
    divided = [each.cut(network.anatomy, experiment.workers) for each in algorithms if isinstance(each, Ist)]
    return coupling(network, values, chosen, divided)


@cache
def _lesson(contest: Contest, seed: int, given: Given | None) -> _Lesson:
    if contest != "transformer":
        if given is None:
            data = draw_digits(train=4000, held=3000, seed=seed, noise=_NOISE)
        else:
            data = read_samples(given).divided(seed)
        network = build_network(contest, given=given)
        return _Lesson(
            batch=build_task(network, data.train, data.test, BATCHES[contest], seed).batch,
            validation=data.validation, test=data.test,
        )  # fmt: skip
    corpus = read_corpus()
    return _Lesson(
        batch=lambda step: draw_windows(corpus.train, _SEQ, BATCHES[contest], 1_000_003 * seed + step),
        validation=draw_windows(corpus.validation, _SEQ, 256, seed),
        test=draw_windows(corpus.test, _SEQ, 256, seed),
    )


def _task(network: Network, lesson: _Lesson) -> Task:
    def judge(values: Values) -> Mapping[str, float]:
        parts = {"validation": lesson.validation, "test": lesson.test}
        return _named(
            {
                name: _scores(network.outputs(values, each.inputs).softmax(-1), each)
                for name, each in parts.items()
            }
        )

    return Task(network=network, batch=lesson.batch, judge=judge)


def _scores(chances: torch.Tensor, batch: Batch) -> dict[str, float]:
    """Loss and accuracy of what a model holds each answer for."""
    flat, targets = chances.flatten(0, -2), batch.targets.flatten()
    loss = F.nll_loss(flat.clamp(min=1e-30).log(), targets)
    return {"loss": float(loss), "accuracy": float((flat.argmax(1) == targets).float().mean())}


def _named(scores: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    return {f"{part} {name}": value for part, each in scores.items() for name, value in each.items()}


def _apart(judged: Mapping[str, float]) -> dict[str, dict[str, float]]:
    return {
        part: {name.split()[1]: value for name, value in judged.items() if name.startswith(part)}
        for part in ("validation", "test")
    }


def _order(experiment: Experiment, workers: int) -> Order:
    steps = experiment.steps
    learning = Learning(
        optimizer="adamw",
        rate=experiment.rate,
        clip=1.0,
        fused=True,
        share=lambda step: 1.0 - 0.9 * step / steps,
    )
    return Order(
        algorithm=parse_algorithm(experiment.algorithm), learning=learning, workers=workers,
        steps=steps, seed=experiment.seed, judge_every=experiment.judge_every,
    )  # fmt: skip


def _ensemble(experiment: Experiment, lesson: _Lesson) -> Curve:
    """Networks that never meet, each with its own first weights and its worker's samples."""
    network = build_network(experiment.network, experiment.share, experiment.given)
    parts = {"validation": lesson.validation, "test": lesson.test}
    sums: list[dict[str, torch.Tensor]] = []
    steps: list[int] = []
    for rank in range(experiment.workers):
        found: list[dict[str, torch.Tensor]] = []
        steps = [each.step for each in _alone(experiment, network, lesson, rank, found).points]
        sums = _added(sums, found)
    marks = [
        Mark(
            step=step, sent_bytes=0.0,
            **{name: _scores(each[name] / experiment.workers, part) for name, part in parts.items()},
        )
        for step, each in zip(steps, sums, strict=True)
    ]  # fmt: skip
    return Curve(experiment=experiment, marks=tuple(marks))


def _alone(
    experiment: Experiment, network: Network, lesson: _Lesson, rank: int, found: list[dict[str, torch.Tensor]]
) -> Course:
    """One member trained; what it holds each answer for is added to `found` wherever it is judged."""

    def keep(values: Values) -> Mapping[str, float]:
        parts = {"validation": lesson.validation, "test": lesson.test}
        found.append({name: network.outputs(values, each.inputs).softmax(-1) for name, each in parts.items()})
        return {}

    task = Task(
        network=network, batch=lambda step: lesson.batch(step).part(rank, experiment.workers), judge=keep
    )
    order = _order(experiment, 1)
    return train(task, replace(order, seed=1009 * (experiment.seed + 1) + rank))


def _added(
    sums: list[dict[str, torch.Tensor]], found: list[dict[str, torch.Tensor]]
) -> list[dict[str, torch.Tensor]]:
    if not sums:
        return found
    return [
        {name: before[name] + each[name] for name in each} for before, each in zip(sums, found, strict=True)
    ]
