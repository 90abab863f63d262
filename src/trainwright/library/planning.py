"""The best strategies for a model on a cluster."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from trainwright.cli.answer import Answer, answer_of, json_of, summary_row
from trainwright.cli.request import parse_request
from trainwright.errors import BadInput
from trainwright.library.frames import build_frame, render_html
from trainwright.library.options import options_of
from trainwright.plan.strategy import Strategy
from trainwright.report.summary import Summary
from trainwright.units import render_bytes, render_duration


@dataclass(frozen=True, slots=True, kw_only=True)
class Plans:
    """The best strategies, best first, each with its prediction; and what was assumed on the way."""

    answer: Answer

    @property
    def best(self) -> Summary:
        """The first of them."""
        return self.answer.summaries[0]

    @property
    def strategy(self) -> Strategy:
        """The strategy of the best."""
        return self.best.strategy

    @property
    def notes(self) -> tuple[str, ...]:
        """What was assumed, and what predictions rest on."""
        return self.answer.notes

    @property
    def limits(self) -> tuple[str, ...]:
        """What limits the best, in words."""
        return self.answer.limits

    def __len__(self) -> int:
        return len(self.answer.summaries)

    def __iter__(self) -> Iterator[Summary]:
        return iter(self.answer.summaries)

    def __getitem__(self, index: int) -> Summary:
        return self.answer.summaries[index]

    def to_dict(self) -> Mapping[str, object]:
        """The tree that `trainwright plan --json` writes."""
        return json_of(self.answer)

    def to_dataframe(self, library: str | None = None) -> Any:
        """A row for each strategy: its knobs, predictions, and the parts of time and memory."""
        return build_frame([summary_row(rank, each) for rank, each in enumerate(self, start=1)], library)

    def __repr__(self) -> str:
        best = self.best
        return f"Plans({len(self)}, best {best.strategy}: {render_duration(best.step_s)}, MFU {best.mfu:.1%})"

    def _repr_html_(self) -> str:
        rows = [
            {
                "#": rank, "strategy": str(each.strategy), "step": render_duration(each.step_s),
                "tok/s/dev": f"{each.tokens_per_s_per_device:,.0f}", "MFU": f"{each.mfu:.1%}",
                "memory": render_bytes(each.total_bytes),
            }
            for rank, each in enumerate(self, start=1)
        ]  # fmt: skip
        return render_html(self.notes[0], rows)


def plan(
    model: str,
    cluster: str,
    *,
    batch: int | None = None,
    seq: int | None = None,
    tokens: str | None = None,
    stack: str | None = None,
    precision: str | None = None,
    objective: str = "time",
    fix: Mapping[str, object] | None = None,
    top: int = 10,
    **options: object,
) -> Plans:
    """The best strategies for a model on a cluster; `InfeasiblePlan` if nothing fits.

    `model` and `cluster` are named as on the command line; further options are those of `trainwright plan`,
    with `_` for `-`: `max_tp=8`, `batch_tokens="16M"`, `price="2 $/h"`.
    """
    stated = {
        "batch": batch, "seq": seq, "tokens": tokens, "stack": stack, "precision": precision,
        "objective": objective, "fix": fix, "top": top,
    }  # fmt: skip
    asked = options_of("plan", [model, cluster], stated | options)
    if asked.algorithm:
        rule = "compares algorithms, which is the command line's to do"
        raise BadInput("algorithm", asked.algorithm, rule, "call trainwright plan --algorithm with --json")
    return Plans(answer=answer_of(parse_request(asked)))
