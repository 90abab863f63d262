"""A configuration in use, and the job that it describes."""

import re
from dataclasses import replace
from pathlib import Path

from trainwright.api.batch import choose_batch_size
from trainwright.api.fields import Whole, pair_texts
from trainwright.api.named_plan import is_file
from trainwright.api.requests import AdviseRequest
from trainwright.api.sources import read_architecture, read_cluster
from trainwright.api.subject import Subject, build_subject
from trainwright.api.subject_fields import SubjectFields
from trainwright.cluster.types import Cluster
from trainwright.errors import BadInput, TrainwrightError, UnknownName
from trainwright.estimate.types import Job
from trainwright.export.canonical import canonical
from trainwright.export.divides import check_divides
from trainwright.export.gaps import said, written
from trainwright.export.reading.configured import Configured, StatedSettings
from trainwright.export.reading.read import read_file, read_text
from trainwright.model.architecture import Architecture
from trainwright.plan.expand import count_microbatches
from trainwright.plan.legality import discouraged, plan_facts, violations
from trainwright.plan.strategy import PRECISIONS, parse_strategy, stack_strategies
from trainwright.search.usual import MOST_BATCH, check_batch
from trainwright.units import parse_whole

_MOST_VOCAB = 100_000_000


def read_configured(request: AdviseRequest) -> Configured:
    """What CONFIG says, on the devices of the cluster."""
    cluster = read_cluster(request.cluster)
    stated = _stated(request, cluster)
    config = str(request.config)
    path, function = _path_and_function(config)
    if is_file(path):
        return read_file(Path(path), replace(stated, function=function))
    if config.lstrip().startswith("--"):
        return read_text(config, "CONFIG", stated=stated)
    if "/" in config and Path(config).is_dir():
        raise BadInput("CONFIG", config, "is a directory", "name a file in it")
    if _is_path(config):
        raise BadInput("CONFIG", config, "no such file", "check the path")
    return _of_strategy(config, cluster, stated)


def _of_strategy(config: str, cluster: Cluster, stated: StatedSettings) -> Configured:
    try:
        strategy = parse_strategy(config)
    except TrainwrightError as error:
        raise BadInput("CONFIG", config, f"is no file, and no strategy: {error}", "check it") from None
    for name, value in (("--micro-batch", stated.micro_batch), ("--precision", stated.precision)):
        if value:
            raise BadInput(name, value, "CONFIG is a strategy, which says it", f"leave {name} out")
    for name in stated.variables:
        raise BadInput("--set", name, "CONFIG is a strategy, and has no variables", "leave --set out")
    if not set(PRECISIONS) & set(config.split()):
        strategy = replace(strategy, precision=cluster.device.usual_precision)
    return Configured(strategy=strategy, global_batch=0, stack="")


def _stated(request: AdviseRequest, cluster: Cluster) -> StatedSettings:
    """What the user states where CONFIG leaves it open."""
    variables = {}
    for text in pair_texts(request.set):
        name, equals, value = text.partition("=")
        if not equals or not re.fullmatch(r"[A-Za-z_]\w*|[1-9]\d?", name):
            raise BadInput("--set", text, "must be NAME=VALUE", "write it like TP=4, or 1=8b for $1")
        if name in variables:
            raise BadInput("--set", text, f"sets {name} a second time", "state it once")
        variables[name] = value
    precision = request.precision
    if precision and precision not in PRECISIONS:
        raise UnknownName("--precision", precision, PRECISIONS)
    return StatedSettings(
        devices=cluster.count, device_family=cluster.device.family,
        architecture=None if request.model is None else read_architecture(request.model),
        micro_batch=_whole(request.micro_batch, "--micro-batch", MOST_BATCH),
        global_batch=_whole(request.batch, "--batch", MOST_BATCH),
        vocab=_whole(request.vocab, "--vocab", _MOST_VOCAB), precision=precision, variables=variables,
    )  # fmt: skip


def _whole(stated: Whole | None, thing: str, most: int) -> int | None:
    return None if stated is None else parse_whole(stated, thing, most=most)


def _path_and_function(text: str) -> tuple[str, str]:
    """The file and the function of `FILE.py:FUNCTION`."""
    found = re.fullmatch(r"(.+\.py):([A-Za-z_]\w*)", text, re.DOTALL)
    return (found[1], found[2]) if found and not is_file(text) else (text, "")


def _is_path(text: str) -> bool:
    """Whether a text can only be meant as a file."""
    path = _path_and_function(text)[0]
    return len(text.split()) == 1 and ("/" in text or Path(path).suffix[1:].isalpha())


def build_job(request: AdviseRequest, configured: Configured) -> tuple[Subject, Job]:
    """The model on the cluster as CONFIG has them; what the request states goes before."""
    architecture = _architecture(request, configured)
    subject = build_subject(
        SubjectFields(
            model=architecture, cluster=request.cluster, cost=request.cost,
            seq=(configured.seq or None) if request.seq is None else request.seq,
            stack=request.stack or configured.stack or None,
            optimizer=request.optimizer or configured.optimizer or None,
            grad_dtype=request.grad_dtype or configured.grad_dtype or None,
            expert_imbalance=(
                (configured.expert_imbalance or None)
                if request.expert_imbalance is None
                else request.expert_imbalance
            ),
        )
    )  # fmt: skip
    batch = configured.global_batch
    check_batch(batch, "global batch")
    if request.batch is not None or not batch:
        batch, _ = choose_batch_size(request.batch, subject)
    _check(request, configured, subject, batch)
    check_divides(configured.strategy, architecture, subject.seq)
    return subject, subject.job(batch)


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


def _architecture(request: AdviseRequest, configured: Configured) -> Architecture:
    """The model that is stated, or the one of CONFIG; with the vocabulary that is stated."""
    model = request.model if request.model is not None else configured.model
    found = read_architecture(model) if model else configured.architecture
    if found is None:
        raise BadInput("CONFIG", "no model", "does not say which model it trains", "state --model")
    vocab = _whole(request.vocab, "--vocab", _MOST_VOCAB)
    if vocab and not found.vocab:
        raise BadInput("--vocab", vocab, f"{found.name} has no vocabulary", "leave --vocab out")
    return replace(found, vocab=vocab) if vocab else found


def _check(request: AdviseRequest, configured: Configured, subject: Subject, batch: int) -> None:
    devices, count = configured.strategy.devices, subject.cluster.count
    if devices != count:
        raise BadInput(
            str(request.config), str(configured.strategy),
            f"is for {devices} devices, and the cluster has {count}",
            "name a cluster of as many",
        )  # fmt: skip
    count_microbatches(configured.strategy, batch)
