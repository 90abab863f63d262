"""A user's configuration and the job that it describes, read from the options."""

import argparse
from dataclasses import replace
from pathlib import Path

from trainwright.cli.named_plan import is_file
from trainwright.cli.subject import MOST_BATCH, Subject, parse_batch, parse_subject
from trainwright.cluster.load import load_cluster
from trainwright.errors import BadInput, TrainwrightError
from trainwright.estimate.types import Job
from trainwright.export.divides import check_divides
from trainwright.export.reading.configured import Configured
from trainwright.export.reading.read import read_file, read_text
from trainwright.model.architecture import Architecture
from trainwright.model.load import load_model
from trainwright.plan.expand import count_microbatches
from trainwright.plan.strategy import PRECISIONS, parse_strategy
from trainwright.units import parse_whole


def parse_configured(options: argparse.Namespace) -> Configured:
    """What CONFIG says, on the devices of the cluster."""
    cluster = load_cluster(options.cluster)
    if is_file(options.config):
        return read_file(Path(options.config), cluster.count)
    if options.config.lstrip().startswith("--"):
        return read_text(options.config, "CONFIG", cluster.count)
    try:
        strategy = parse_strategy(options.config)
    except TrainwrightError as error:
        raise BadInput(
            "CONFIG", options.config, f"is no file, and no strategy: {error}", "check it"
        ) from None
    if not set(PRECISIONS) & set(options.config.split()):
        strategy = replace(strategy, precision=cluster.device.usual_precision)
    return Configured(strategy=strategy, global_batch=0, stack="")


def parse_job(options: argparse.Namespace, configured: Configured) -> tuple[Subject, Job]:
    """The model on the cluster as CONFIG has them; what the user states goes before."""
    stated = argparse.Namespace(**vars(options))
    stated.model = options.model or configured.model
    stated.seq = options.seq or (str(configured.seq) if configured.seq else None)
    stated.stack = options.stack or configured.stack or None
    stated.batch_tokens = None
    subject = parse_subject(stated, architecture=_architecture(stated.model, configured))
    batch = configured.global_batch
    if options.batch:
        batch = parse_whole(options.batch, "--batch", most=MOST_BATCH)
    elif not batch:
        batch, _ = parse_batch(stated, subject)
    _check(options, configured, subject, batch)
    known = load_model(stated.model) if stated.model else configured.architecture
    if known:
        check_divides(configured.strategy, known, subject.seq)
    job = Job(
        graph=subject.graph, cluster=subject.cluster, stack=subject.stack, efficiency=subject.efficiency,
        seq=subject.seq, global_batch=batch,
    )  # fmt: skip
    return subject, job


def _architecture(model: str | None, configured: Configured) -> Architecture | None:
    if model is None and configured.architecture is None:
        raise BadInput("CONFIG", "no model", "does not say which model it trains", "state --model")
    return None if model else configured.architecture


def _check(options: argparse.Namespace, configured: Configured, subject: Subject, batch: int) -> None:
    devices, count = configured.strategy.devices, subject.cluster.count
    if devices != count:
        raise BadInput(
            options.config, str(configured.strategy),
            f"is for {devices} devices, and the cluster has {count}",
            "name a cluster of as many",
        )  # fmt: skip
    count_microbatches(configured.strategy, batch)
