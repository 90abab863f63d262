"""Options on when a run is done: a token budget or a loss, and the batch beyond which tokens are wasted."""

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf

from trainwright.cli.refusal import refuse_given
from trainwright.economics.batch import batch_charge, critical_batch_tokens
from trainwright.economics.loss import Law, is_fitted, law_of
from trainwright.errors import BadInput
from trainwright.model.dlrm import is_recommender
from trainwright.model.graph import Graph, parameters
from trainwright.model.totals import active_parameters
from trainwright.units import parse_number, parse_quantity, render_si

_CRITEO_SAMPLES = 4.2e9  # of the terabyte that MLPerf trains recommenders on (recalled)
_TOKENS_PER_PARAMETER = 20.0  # Hoffmann et al. 2022


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Tokens to train on, at a small batch; batches are charged if the critical one is finite.

    `how` says where the critical batch is from; `worth` is what a token is worth at a batch of so many
    tokens, where batches are not charged.
    """

    tokens: float
    critical_batch_tokens: float
    note: str
    how: str = ""
    worth: Callable[[int], str] | None = None

    def notes(self, batch_tokens: Sequence[int]) -> tuple[str, ...]:
        """What to say of it, for batches of so many tokens."""
        if self.critical_batch_tokens < inf:
            return self.note, _charged(self.tokens, batch_tokens, self.critical_batch_tokens, self.how)
        return (self.note, self.worth(max(batch_tokens))) if self.worth else (self.note,)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options, in a group."""
    group = parser.add_argument_group("target")
    goal = group.add_mutually_exclusive_group()
    goal.add_argument("--tokens", metavar="N", help="token budget, like 15T (default: 20 per parameter)")
    goal.add_argument(
        "--target-loss", metavar="NATS",
        help="train until this loss by a scaling law, with more tokens for a batch near the critical one",
    )  # fmt: skip
    group.add_argument(
        "--scaling-law", default="hoffmann", metavar="NAME",
        help="hoffmann (2022) or besiroglu (2024) (default: hoffmann)",
    )  # fmt: skip
    group.add_argument(
        "--critical-batch", metavar="N",
        help="in tokens, like 8M, or none; also charges --tokens (default: by loss, Kaplan et al. 2020, and "
        "only --target-loss and --batch-range are charged)",
    )  # fmt: skip


def parse_target(options: argparse.Namespace, graph: Graph) -> Target:
    """The target that the options describe."""
    law, is_text = law_of(options.scaling_law), bool(graph.sizes.get("vocab", 0))
    if options.target_loss:
        if not is_text:
            rule = f"{graph.name} has no vocabulary, and the scaling laws are of text"
            raise BadInput("--target-loss", options.target_loss, rule, "state --tokens")
        return _to_loss(options, graph, law)
    tokens, note = _budget(options.tokens, graph)
    if not is_text:
        refuse_given(options, ("scaling_law",), f"is of text, and {graph.name} has no vocabulary")
    if options.critical_batch:
        rule = "says nothing where tokens and critical batch are stated"
        refuse_given(options, ("scaling_law",), rule, "leave it out, or state --target-loss")
        critical = _critical(options.critical_batch, inf)
        return Target(tokens=tokens, critical_batch_tokens=critical, note=note, how="as asked")
    if not is_text:
        return Target(tokens=tokens, critical_batch_tokens=inf, note=note)
    if getattr(options, "batch_range", None):
        loss = law.loss(active_parameters(graph), tokens)
        how = f"Kaplan et al. 2020, at the loss of about {loss:.2f} that the tokens reach, {law.name}"
        return Target(tokens=tokens, critical_batch_tokens=critical_batch_tokens(loss), note=note, how=how)
    return Target(
        tokens=tokens, critical_batch_tokens=inf, note=note, worth=partial(_worth, graph, law, tokens)
    )


def _to_loss(options: argparse.Namespace, graph: Graph, law: Law) -> Target:
    size = active_parameters(graph)
    loss, least = parse_number(options.target_loss, "--target-loss", "2.1"), law.least_loss(size)
    if loss <= least:
        rule = f"{graph.name} stays above {least:.4f}, however many tokens ({law.source})"
        raise BadInput("--target-loss", options.target_loss, rule, "ask for more, or take a larger model")
    tokens = law.tokens(size, loss)
    if tokens > 1e18:
        rule = f"takes {tokens:.1e} tokens, so near is it to the {least:.4f} that {graph.name} never reaches"
        raise BadInput("--target-loss", options.target_loss, rule, "ask for more, or take a larger model")
    beyond = "" if is_fitted(size, tokens) else ", beyond the runs it was fitted to"
    note = f"Target loss {loss:g}: {render_si(tokens, 'tokens')} at a small batch ({law.source}{beyond})"
    usual = critical_batch_tokens(loss)
    critical = _critical(options.critical_batch, usual)
    how = "as asked" if options.critical_batch else "Kaplan et al. 2020"
    return Target(tokens=tokens, critical_batch_tokens=critical, note=note, how=how)


def _critical(text: str | None, usual: float) -> float:
    if text is None:
        return usual
    if text == "none":
        return inf
    tokens = parse_quantity(text, "tokens", "--critical-batch")
    if tokens == 0:
        raise BadInput("--critical-batch", text, "is zero", 'write it like "8M", or none')
    return tokens


def _budget(text: str | None, graph: Graph) -> tuple[float, str]:
    if text:
        tokens = parse_quantity(text, "tokens", "--tokens")
        if tokens == 0:
            raise BadInput("--tokens", text, "is zero", 'write it like "15T"')
        return tokens, f"Token budget: {render_si(tokens, 'tokens')}"
    if is_recommender(graph):
        return _CRITEO_SAMPLES, "Budget: 4.2 billion samples (a pass over Criteo's terabyte, see --tokens)"
    tokens = _TOKENS_PER_PARAMETER * parameters(graph)
    return tokens, f"Token budget: {render_si(tokens, 'tokens')} (20 per parameter, see --tokens)"


def _charged(tokens: float, batch_tokens: Sequence[int], critical: float, how: str) -> str:
    """What the smallest and the largest batch make of the tokens that a small one needs."""
    each = [
        f"{render_si(tokens * batch_charge(batch, critical), 'tokens')} at a batch of "
        f"{render_si(batch, 'tokens')}"
        for batch in dict.fromkeys((min(batch_tokens), max(batch_tokens)))
    ]
    return f"Critical batch {render_si(critical, 'tokens')} ({how}): {', '.join(each)}"


def _worth(graph: Graph, law: Law, tokens: float, batch: int) -> str:
    """What the tokens are worth at a batch; they are not charged for it."""
    loss = law.loss(active_parameters(graph), tokens)
    critical = critical_batch_tokens(loss)
    worth = 1.0 / batch_charge(batch, critical)
    return (
        f"Loss about {loss:.2f} at a small batch ({law.name}); the critical batch is then "
        f"{render_si(critical, 'tokens')}: at {render_si(batch, 'tokens')} a token is worth {worth:.0%} of "
        "one there (see --critical-batch)"
    )
