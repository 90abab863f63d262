"""A user's configuration and the job that it describes, read from the options."""

import argparse
import re
from dataclasses import replace
from pathlib import Path

from trainwright.cli.batch import parse_batch
from trainwright.cli.named_plan import is_file
from trainwright.cli.subject import Subject, parse_subject
from trainwright.cluster.load import load_cluster
from trainwright.cluster.types import Cluster
from trainwright.errors import BadInput, TrainwrightError, UnknownName
from trainwright.estimate.types import Job
from trainwright.export.canonical import canonical
from trainwright.export.divides import check_divides
from trainwright.export.gaps import said, written
from trainwright.export.reading.configured import Configured, StatedSettings
from trainwright.export.reading.read import read_file, read_text
from trainwright.model.architecture import Architecture
from trainwright.model.load import load_model
from trainwright.plan.expand import count_microbatches
from trainwright.plan.legality import discouraged, plan_facts, violations
from trainwright.plan.strategy import PRECISIONS, parse_strategy, stack_strategies
from trainwright.search.usual import MOST_BATCH, check_batch
from trainwright.units import parse_whole

_MOST_VOCAB = 100_000_000


def parse_configured(options: argparse.Namespace) -> Configured:
    """What CONFIG says, on the devices of the cluster."""
    cluster = load_cluster(options.cluster)
    stated = _stated(options, cluster)
    path, function = _path_and_function(options.config)
    if is_file(path):
        return read_file(Path(path), replace(stated, function=function))
    if options.config.lstrip().startswith("--"):
        return read_text(options.config, "CONFIG", stated=stated)
    if "/" in options.config and Path(options.config).is_dir():
        raise BadInput("CONFIG", options.config, "is a directory", "name a file in it")
    if _is_path(options.config):
        raise BadInput("CONFIG", options.config, "no such file", "check the path")
    return _of_strategy(options, cluster, stated)


def _of_strategy(options: argparse.Namespace, cluster: Cluster, stated: StatedSettings) -> Configured:
    try:
        strategy = parse_strategy(options.config)
    except TrainwrightError as error:
        raise BadInput(
            "CONFIG", options.config, f"is no file, and no strategy: {error}", "check it"
        ) from None
    for name, value in (("--micro-batch", stated.micro_batch), ("--precision", stated.precision)):
        if value:
            raise BadInput(name, value, "CONFIG is a strategy, which says it", f"leave {name} out")
    for name in stated.variables:
        raise BadInput("--set", name, "CONFIG is a strategy, and has no variables", "leave --set out")
    if not set(PRECISIONS) & set(options.config.split()):
        strategy = replace(strategy, precision=cluster.device.usual_precision)
    return Configured(strategy=strategy, global_batch=0, stack="")


def _stated(options: argparse.Namespace, cluster: Cluster) -> StatedSettings:
    """What the user states where CONFIG leaves it open."""
    variables = {}
    for text in options.set or ():
        name, equals, value = text.partition("=")
        if not equals or not re.fullmatch(r"[A-Za-z_]\w*|[1-9]\d?", name):
            raise BadInput("--set", text, "must be NAME=VALUE", "write it like TP=4, or 1=8b for $1")
        if name in variables:
            raise BadInput("--set", text, f"sets {name} a second time", "state it once")
        variables[name] = value
    precision = options.precision
    if precision and precision not in PRECISIONS:
        raise UnknownName("--precision", precision, PRECISIONS)
    return StatedSettings(
        devices=cluster.count, device_family=cluster.device.family,
        architecture=load_model(options.model) if options.model else None,
        micro_batch=_whole(options.micro_batch, "--micro-batch", MOST_BATCH),
        global_batch=_whole(options.batch, "--batch", MOST_BATCH),
        vocab=_whole(options.vocab, "--vocab", _MOST_VOCAB), precision=precision, variables=variables,
    )  # fmt: skip


def _whole(text: str | None, thing: str, most: int) -> int | None:
    return parse_whole(text, thing, most=most) if text else None


def _path_and_function(text: str) -> tuple[str, str]:
    """The file and the function of `FILE.py:FUNCTION`."""
    found = re.fullmatch(r"(.+\.py):([A-Za-z_]\w*)", text, re.DOTALL)
    return (found[1], found[2]) if found and not is_file(text) else (text, "")


def _is_path(text: str) -> bool:
    """Whether a text can only be meant as a file."""
    path = _path_and_function(text)[0]
    return len(text.split()) == 1 and ("/" in text or Path(path).suffix[1:].isalpha())


def parse_job(options: argparse.Namespace, configured: Configured) -> tuple[Subject, Job]:
    """The model on the cluster as CONFIG has them; what the user states goes before."""
    stated = argparse.Namespace(**vars(options))
    stated.model = options.model or configured.model
    stated.seq = options.seq or (str(configured.seq) if configured.seq else None)
    stated.stack = options.stack or configured.stack or None
    stated.optimizer = options.optimizer or configured.optimizer
    stated.grad_dtype = options.grad_dtype or configured.grad_dtype
    stated.expert_imbalance = options.expert_imbalance or configured.expert_imbalance
    architecture = _architecture(options, stated.model, configured)
    subject = parse_subject(stated, architecture=architecture)
    batch = configured.global_batch
    check_batch(batch, "global batch")
    if options.batch:
        batch = parse_whole(options.batch, "--batch", most=MOST_BATCH)
    elif not batch:
        batch, _ = parse_batch(stated, subject)
    _check(options, configured, subject, batch)
    check_divides(configured.strategy, architecture, subject.seq)
    job = Job(
        graph=subject.graph, cluster=subject.cluster, stack=subject.stack, efficiency=subject.efficiency,
        seq=subject.seq, global_batch=batch,
    )  # fmt: skip
    return subject, job


def legality_notes(configured: Configured, subject: Subject, job: Job) -> tuple[str, ...]:
    """What the software would refuse of a configuration, a line each, and what it advises against."""
    able, strategy = subject.stack.capability, configured.strategy
    facts = plan_facts(
        subject.graph, seq=subject.seq, global_batch=int(job.global_batch),
        device_family=subject.cluster.device.family,
        optimizer=subject.stack.optimizer.name if subject.stack.optimizer else "",
        grad_dtype=subject.stack.grad_dtype,
    )  # fmt: skip
    stated = {"optimizer": facts.optimizer, "grad_dtype": facts.grad_dtype}
    rows = stack_strategies([canonical(strategy)])
    found = configured.refused or tuple(
        f"The software would refuse {said(each.knob)} "
        f"{stated.get(each.knob) or written(getattr(strategy, each.knob))}: {each.reason(strategy)}."
        for each in violations(able, rows, facts)
    )
    if discouraged(able, rows, facts)[0]:
        found += (f"{able.title} advises against zero {strategy.zero} with tp or cp before Blackwell.",)
    return found


def _architecture(options: argparse.Namespace, model: str | None, configured: Configured) -> Architecture:
    """The model that is stated, or the one of CONFIG; with the vocabulary that is stated."""
    found = load_model(model) if model else configured.architecture
    if found is None:
        raise BadInput("CONFIG", "no model", "does not say which model it trains", "state --model")
    vocab = _whole(options.vocab, "--vocab", _MOST_VOCAB)
    if vocab and not found.vocab:
        raise BadInput("--vocab", vocab, f"{found.name} has no vocabulary", "leave --vocab out")
    return replace(found, vocab=vocab) if vocab else found


def _check(options: argparse.Namespace, configured: Configured, subject: Subject, batch: int) -> None:
    devices, count = configured.strategy.devices, subject.cluster.count
    if devices != count:
        raise BadInput(
            options.config, str(configured.strategy),
            f"is for {devices} devices, and the cluster has {count}",
            "name a cluster of as many",
        )  # fmt: skip
    count_microbatches(configured.strategy, batch)
