"""When a run is done: a token budget or a loss, and the batch beyond which tokens are wasted."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf

from trainwright.api.fields import Quantity, refuse
from trainwright.api.subject_fields import BatchRangeFields
from trainwright.api.terms_fields import TargetFields
from trainwright.economics.batch import batch_charge, critical_batch_tokens
from trainwright.economics.loss import Law, is_fitted, law_of
from trainwright.errors import BadInput
from trainwright.model.dlrm import is_recommender
from trainwright.model.graph import Graph, parameters
from trainwright.model.totals import active_parameters
from trainwright.units import parse_amount, parse_number, render_si

_CRITEO_SAMPLES = 4.2e9  # of the terabyte that MLPerf trains recommenders on (recalled)
_USUAL_LAW = "hoffmann"
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


def build_target(request: TargetFields, graph: Graph) -> Target:
    """The target that a request describes."""
    law, is_text = law_of(request.scaling_law or _USUAL_LAW), bool(graph.sizes.get("vocab", 0))
    if request.target_loss is not None:
        if not is_text:
            rule = f"{graph.name} has no vocabulary, and the scaling laws are of text"
            raise BadInput("--target-loss", request.target_loss, rule, "state --tokens")
        return _to_loss(request, graph, law)
    tokens, note = _budget(request.tokens, graph)
    if not is_text:
        refuse(request, ("scaling_law",), f"is of text, and {graph.name} has no vocabulary")
    if request.critical_batch is not None:
        rule = "says nothing where tokens and critical batch are stated"
        refuse(request, ("scaling_law",), rule, "leave it out, or state --target-loss")
        critical = _critical(request.critical_batch, inf)
        return Target(tokens=tokens, critical_batch_tokens=critical, note=note, how="as asked")
    if not is_text:
        return Target(tokens=tokens, critical_batch_tokens=inf, note=note)
    if isinstance(request, BatchRangeFields) and request.batch_range:
        loss = law.loss(active_parameters(graph), tokens)
        how = f"Kaplan et al. 2020, at the loss of about {loss:.2f} that the tokens reach, {law.name}"
        return Target(tokens=tokens, critical_batch_tokens=critical_batch_tokens(loss), note=note, how=how)
    return Target(
        tokens=tokens, critical_batch_tokens=inf, note=note, worth=partial(_worth, graph, law, tokens)
    )


def _to_loss(request: TargetFields, graph: Graph, law: Law) -> Target:
    size = active_parameters(graph)
    loss, least = parse_number(request.target_loss, "--target-loss", "2.1"), law.least_loss(size)
    if loss <= least:
        rule = f"{graph.name} stays above {least:.4f}, however many tokens ({law.source})"
        raise BadInput("--target-loss", request.target_loss, rule, "ask for more, or take a larger model")
    tokens = law.tokens(size, loss)
    if tokens > 1e18:
        rule = f"takes {tokens:.1e} tokens, so near is it to the {least:.4f} that {graph.name} never reaches"
        raise BadInput("--target-loss", request.target_loss, rule, "ask for more, or take a larger model")
    beyond = "" if is_fitted(size, tokens) else ", beyond the runs it was fitted to"
    note = f"Target loss {loss:g}: {render_si(tokens, 'tokens')} at a small batch ({law.source}{beyond})"
    usual = critical_batch_tokens(loss)
    critical = _critical(request.critical_batch, usual)
    how = "as asked" if request.critical_batch is not None else "Kaplan et al. 2020"
    return Target(tokens=tokens, critical_batch_tokens=critical, note=note, how=how)


def _critical(stated: Quantity | None, usual: float) -> float:
    if stated is None:
        return usual
    if stated == "none":
        return inf
    tokens = parse_amount(stated, "tokens", "--critical-batch")
    if tokens == 0:
        raise BadInput("--critical-batch", stated, "is zero", 'write it like "8M", or none')
    return tokens


def _budget(stated: Quantity | None, graph: Graph) -> tuple[float, str]:
    if stated is not None:
        tokens = parse_amount(stated, "tokens", "--tokens")
        if tokens == 0:
            raise BadInput("--tokens", stated, "is zero", 'write it like "15T"')
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
