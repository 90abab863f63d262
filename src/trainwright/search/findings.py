"""What was found out of one model on one cluster: its layers measured, its plans tried, each once."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from trainwright.plan.plan import Plan
from trainwright.plan.strategy import Strategy
from trainwright.program.setting import Setting
from trainwright.search.blocks import MODES, Costs, Floats, Parts, Profile, measure_blocks
from trainwright.search.trial import Trial, try_plan

_Key = tuple[object, ...]


@dataclass(slots=True, kw_only=True)
class Findings:
    """Profiles of splits, and trials of plans; what was measured or simulated is kept."""

    setting: Setting
    measured: int = 0  # times that a profile was
    _known: dict[_Key, Profile] = field(default_factory=dict)
    _tried: dict[tuple[str, int], Trial] = field(default_factory=dict)

    def profile(
        self,
        strategy: Strategy,
        modes: Sequence[str] = MODES,
        *,
        parts: Parts | None = None,
        apart: bool = False,
    ) -> Profile:
        """The profile of a strategy's split in some modes, vocabularies apart if so said."""
        key = self._key(strategy, parts, apart)
        known = self._known.get(key)
        missing = [mode for mode in modes if known is None or mode not in known.costs]
        if missing:
            self.measured += 1
            made = measure_blocks(self.setting, strategy, missing, parts=parts, apart=apart)
            self._known[key] = replace(known, costs={**known.costs, **made.costs}) if known else made
        found = self._known[key]
        return replace(found, costs={mode: found.costs[mode] for mode in modes})

    def trial(self, plan: Plan, rows: int = 1) -> Trial:
        """The plan simulated; its line of text and its batch tell it from others."""
        key = (plan.name, plan.batch * plan.microbatches)
        if key not in self._tried:
            self._tried[key] = try_plan(self.setting, plan, rows)
        return self._tried[key]

    def has(self, strategy: Strategy, modes: Sequence[str]) -> bool:
        """Whether nothing needs to be measured for these modes."""
        known = self._known.get(self._key(strategy))
        return known is not None and all(mode in known.costs for mode in modes)

    def _key(self, strategy: Strategy, parts: Parts | None = None, apart: bool = False) -> _Key:
        split = (strategy.tp, strategy.sp, strategy.cp, strategy.cp_kind, strategy.micro_batch)
        return (*split, parts, apart, strategy.pp > 1 and not apart and bool(self.setting.graph.tied))


def joined(listed: Sequence[Profile], firsts: Sequence[int]) -> Profile:
    """One profile whose layers, from each of `firsts` on, are those of the next in the list."""
    if len(listed) == 1:
        return listed[0]

    def pieced(columns: Sequence[Floats]) -> Floats:
        ends = [*firsts[1:], len(columns[0])]
        return np.concatenate([each[a:b] for each, a, b in zip(columns, firsts, ends, strict=True)])

    return replace(
        listed[0],
        costs={
            mode: Costs(
                time_s=pieced([each.costs[mode].time_s for each in listed]),
                kept_bytes=pieced([each.costs[mode].kept_bytes for each in listed]),
                work_bytes=pieced([each.costs[mode].work_bytes for each in listed]),
            )
            for mode in listed[0].costs
        },
        state_bytes={
            what: pieced([each.state_bytes[what] for each in listed]) for what in listed[0].state_bytes
        },
    )
