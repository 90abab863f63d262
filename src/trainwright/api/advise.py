"""The answer to a request for what to change in a configuration that is in use."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from trainwright.api.batch import batch_note
from trainwright.api.configured import build_job, legality_notes, read_configured
from trainwright.api.memory_limit import filled_share
from trainwright.api.requests import AdviseRequest
from trainwright.api.result import Result, Rows
from trainwright.api.subject import Subject
from trainwright.export.reading.configured import Configured
from trainwright.search.advice import Advice, Change, MemoryLimit, Rated, advise
from trainwright.search.recipe_comparison import RecipeComparison


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigurationAdvice(Result, schema="advise/1"):
    """How good a configuration is, what each change would gain, and the best there is."""

    request: AdviseRequest
    notes: tuple[str, ...]  # what matters and is not considered, too
    configured: Configured
    subject: Subject
    advice: Advice
    allowed_bytes: float  # that a plan may be predicted to fill, at the stated risk

    @property
    def today(self) -> Rated:
        """The configuration as it is."""
        return self.advice.today

    @property
    def alone(self) -> Sequence[Change]:
        """Each change by itself."""
        return self.advice.alone

    @property
    def steps(self) -> Sequence[Change]:
        """Changes one after another, to the best that the software can run."""
        return self.advice.steps

    @property
    def best(self) -> Rated | None:
        """The best there is, if it is better."""
        return self.advice.best

    @property
    def published_recipe(self) -> RecipeComparison | None:
        """The nearest published recipe; None if none is close enough."""
        return self.advice.published

    def tree(self) -> Mapping[str, object]:
        """The tree that `trainwright advise --json` writes."""
        configured = self.configured
        return {
            "notes": self.notes, "configured": configured.strategy, "global_batch": configured.global_batch,
            "allowed_bytes": self.allowed_bytes,
            "today": self.today, "alone": [_change_tree(each) for each in self.alone],
            "steps": [_change_tree(each) for each in self.steps], "best": self.best,
            "published_recipe": self.published_recipe,
        }  # fmt: skip

    def rows(self) -> Rows:
        """A row for each step: what it changes, its gain, and the step and memory after it."""
        return [
            {
                "idea": each.idea, "gain": each.gain, "strategy": str(each.after.strategy),
                "step_s": each.after.step_s, "total_bytes": each.after.total_bytes,
                "oom_risk": each.after.oom_risk,
            }
            for each in self.steps
        ]  # fmt: skip


def _change_tree(change: Change) -> dict[str, object]:
    return {"idea": change.idea, "gain": change.gain, "before": change.before, "after": change.after}


def answer_advise(request: AdviseRequest) -> ConfigurationAdvice:
    """Advice on the configuration that a request names."""
    configured = read_configured(request)
    subject, job = build_job(request, configured)
    configured = replace(configured, global_batch=int(job.global_batch))
    refused = legality_notes(configured, subject, job)
    share, limited = filled_share(request, subject.memory_spread)
    stated = (
        f"{request.config}: {configured.strategy}",
        batch_note(configured.global_batch, subject.seq, f"of {request.config}"),
        *configured.notes,
    )
    limit = MemoryLimit(spread=subject.memory_spread, filled_share=share)
    return ConfigurationAdvice(
        request=request, notes=(subject.title, *stated, *refused, limited, *subject.basis),
        configured=configured, subject=subject,
        advice=advise(job, configured.strategy, limit=limit),
        allowed_bytes=share * job.cluster.capacity_bytes,
    )  # fmt: skip
