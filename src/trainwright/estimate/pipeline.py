"""How long the microbatches of a step take: the stage that holds up the others, and what they add to it.

A path through a step goes with the first microbatch forward through all stages, stays on one stage for all
microbatches, and returns with the last one's backward. The longest is looked for among those that stay on the
first stage, on the last one, or on the last in between that has most layers, if weight gradients are put off
also on the first in between; of a pipeline at several sites, on the last one before a border, whose backward
comes from beyond it.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trainwright.estimate.gathers import LayerTimes
from trainwright.estimate.offload import Copies
from trainwright.estimate.sends import Sends
from trainwright.estimate.stages import Stages
from trainwright.plan.strategy import SCHEDULES, Strategies

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]
EndTimes = tuple[Array, Array, Array]  # an end's forward, its backward, the weight gradients in that


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """What a stage takes per microbatch when it never waits, and what it adds as a microbatch passes."""

    layers: Array
    forward_s: Array
    inputs_s: Array  # the backward, without weight gradients that are put off
    weights_s: Array  # those
    passing_forward_s: Array
    passing_inputs_s: Array
    send_s: Array  # of all this: what it receives
    away_s: tuple[Array, Array]  # and shows of copies out and back

    @property
    def seconds(self) -> Array:
        """Forward and backward."""
        return self.forward_s + self.inputs_s + self.weights_s

    @property
    def offload_s(self) -> Array:
        """What it shows of copies."""
        return self.away_s[0] + self.away_s[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Busiest:
    """The stage with most work: its time per microbatch, its layers, which ends of the model it has."""

    seconds: Array
    layers: Array
    send_s: Array
    offload_s: Array
    is_first: Flags
    is_last: Flags


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """The first stage (of one, the only one), one in the middle with most layers, the last one."""

    strategies: Strategies
    first: Stage
    middle: Stage
    last: Stage
    row: Array  # of the one in the middle
    far_s: Array  # what a send to another site takes more
    sends: Sends
    passing_forward_s: Array  # of all stages
    passing_inputs_s: Array
    chunks_s: (
        Array  # of a microbatch in an interleaved schedule, its chunks each as long as the slowest row's
    )
    over_s: Array  # one send, where a pipeline stands at several sites to another one

    def busiest(self) -> Busiest:
        """The stage with most work."""
        stages, pp = (self.middle, self.first, self.last), self.strategies.pp
        most = (
            np.where(pp > 2, self.middle.seconds, 0.0), self.first.seconds,
            np.where(pp > 1, self.last.seconds, 0.0),
        )  # fmt: skip
        which = np.argmax(most, axis=0)

        def chosen(name: str) -> Array:
            return np.asarray(np.choose(which, [getattr(each, name) for each in stages]))

        return Busiest(
            seconds=chosen("seconds"), layers=chosen("layers"), send_s=chosen("send_s"),
            offload_s=chosen("offload_s"), is_first=which == 1,
            is_last=(which == 2) | (pp == 1),
        )  # fmt: skip

    def step_s(self, microbatches: Array) -> Array:
        """The longest path through all microbatches."""
        interleaved = self.strategies.vpp > 1
        longest = self._plain_s(microbatches)
        if self.sends.leaves.any():
            apart = self.sends.leaves & (self.strategies.schedule == SCHEDULES.index("gpipe"))
            far = np.where(apart, self._in_two_s(microbatches), self._over_border_s(microbatches))
            longest = np.where(apart | (self.far_s > 0), np.maximum(longest, far), longest)
        if not interleaved.any():
            return longest
        passing = self.middle.passing_forward_s + self.middle.passing_inputs_s
        rows = (self.strategies.pp - 1.0) * passing / self.strategies.vpp
        return np.where(interleaved, microbatches * self.chunks_s + rows + self._far_s(microbatches), longest)

    def _far_s(self, microbatches: Array) -> Array:
        """What borders between sites add to interleaved chunks that are as long as the slowest row's.

        The path stays on the row behind a border until only backwards are left, as many as it did forwards
        ahead of its first backward, then on the row before the border, whose backwards come over it. Of two
        rows each is at an end, and has a chunk less to receive.
        """
        strategies, ends = self.strategies, self.strategies.pp - 1.0
        ahead = (strategies.vpp - 1.0) * strategies.pp + 2.0 * (ends - 1.0 - self.row)
        ahead = np.minimum(ahead, microbatches * strategies.vpp - 1.0)
        more = (ahead + 2.0 * self.sends.borders - 1.0 - ends) * self.far_s
        return np.where(self.sends.leaves, np.where(ends > 1, more, -(microbatches + 1.0) * self.over_s), 0.0)

    def _in_two_s(self, microbatches: Array) -> Array:
        """All forwards, then all backwards: the row behind a border between sites holds up the others one
        way, the row before it the other way.
        """
        ends, forward, backward = self.strategies.pp - 1.0, np.zeros(1), np.zeros(1)
        turns = microbatches - 1.0
        for stage, more, there in (
            (self.first, np.zeros(1), ends >= 0), (self.middle, self.far_s, ends > 1),
            (self.last, np.zeros(1), ends > 0),
        ):  # fmt: skip
            out = self.passing_forward_s + turns * (stage.forward_s + more)
            back = self.passing_inputs_s + turns * (stage.inputs_s + stage.weights_s)
            forward = np.maximum(forward, np.where(there, out, 0.0))
            backward = np.maximum(backward, np.where(there, back, 0.0))
        return forward + backward

    def _plain_s(self, microbatches: Array) -> Array:
        """With one chunk per stage. Row j of p does p−j forwards ahead of its first backward, unless all
        forwards come first; it puts off weight gradients by j microbatches, and those left at the end go
        beside gradients of inputs on their way back. Of equal rows the path is longest on the last one, or,
        with weight gradients put off, on the first or the last: its length is convex over rows.
        """
        first, middle, last, ends = self.first, self.middle, self.last, self.strategies.pp - 1.0
        turns = microbatches - 1.0
        eager = self.strategies.schedule != SCHEDULES.index("gpipe")
        puts_off = (self.strategies.schedule == SCHEDULES.index("zb")) & (self.far_s == 0)
        after_first = self.passing_inputs_s - first.passing_inputs_s
        longest = microbatches * first.seconds
        stays = [
            (first, np.zeros(1), after_first, ends > 0),
            (middle, self.row, after_first - self._up_to_middle_s(), ends > 1),
            (last, ends, np.zeros(1), ends > 0),
        ]
        if puts_off.any():
            second = after_first - middle.passing_inputs_s
            stays.append((middle, np.ones(1), second, (ends > 1) & puts_off))
        for stage, row, after, there in stays:
            ahead = np.where(eager, np.minimum(ends - row, turns), 0.0) * stage.forward_s
            forward = self.passing_forward_s - stage.passing_forward_s - ahead
            before = self.passing_inputs_s - stage.passing_inputs_s - after
            put_off = first.weights_s - (1.0 + np.minimum(row, turns)) * stage.weights_s
            others = np.maximum(forward + after + np.maximum(before + put_off, 0.0), 0.0)
            longest = np.maximum(longest, np.where(there, microbatches * stage.seconds + others, 0.0))
        return longest

    def _over_border_s(self, microbatches: Array) -> Array:
        """The path that stays on the row behind a border until only backwards are left, then on the row
        before it, whose backwards come over the border.
        """
        rows, middle = self.row + 1.0, self.middle
        ahead = np.minimum(self.strategies.pp - 1.0 - rows, microbatches - 1.0)
        fill = self.first.passing_forward_s + self.row * middle.passing_forward_s
        drain = self.first.passing_inputs_s + self.row * middle.passing_inputs_s
        drain = drain - (self.row - 1.0) * self.far_s
        put_off = np.minimum(rows, microbatches - 1.0) * middle.weights_s  # done while backwards are awaited
        more = np.maximum(ahead * self.far_s - put_off, 0.0)
        return fill + microbatches * middle.seconds + more + drain

    def _up_to_middle_s(self) -> Array:
        """Backward through the stages after the first, up to the one in the middle: only that one receives
        from another site.
        """
        return self.row * self.middle.passing_inputs_s - (self.row - 1.0) * self.far_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Builder:
    """What stages are put together from."""

    strategies: Strategies
    stages: Stages  # by strategy
    layer: LayerTimes
    ends: tuple[EndTimes, EndTimes]
    copies: Copies | None
    send_s: Array  # one, beside a border between sites the mean of both ways
    far_s: Array  # what one to another site takes more
    sends: Sends
    forwards: int  # passes of a microbatch
    turns: Array  # whether the last stage's backward follows its forward at once

    def pipeline(self, layers: int) -> Pipeline:
        """The pipeline of a model of so many layers."""
        strategies, stages, layer, (first, last) = self.strategies, self.stages, self.layer, self.ends
        pp, alone = strategies.pp, strategies.pp == 1
        nothing = np.zeros(len(strategies))
        only = (first[0] + alone * last[0], first[1] + alone * last[1], first[2] + alone * last[2])
        passing = out, back = self._passing_away_s(layers / pp)
        middle = self._stage(stages.middle, (nothing, nothing, nothing), (0, 0), nothing, passing, self.far_s)
        end = self._stage(stages.last, last, (0, 1), self.turns, passing)
        through = (pp - 1.0) * self._near_s() + self.sends.borders * self.far_s
        return Pipeline(
            strategies=strategies,
            first=self._stage(stages.first, only, (1, 0), alone * self.turns, passing),
            middle=middle,
            last=end,
            row=np.where(self.far_s > 0, self.sends.row, stages.row),
            far_s=self.far_s,
            sends=self.sends,
            passing_forward_s=layers * layer.passing_forward_s + first[0] + last[0]
            + pp * out + self.forwards * through,
            passing_inputs_s=layers * layer.passing_inputs_s + first[1] + last[1]
            + pp * back + through,
            over_s=self.send_s + self.far_s / 2.0,
            chunks_s=self._chunks_s(middle, middle.offload_s - end.offload_s),
        )  # fmt: skip

    def _stage(
        self,
        layers: Array,
        end: EndTimes,
        fewer: tuple[int, int],
        turns: Array,
        passing: tuple[Array, Array],
        far_s: Array | float = 0.0,
    ) -> Stage:
        """A stage of so many layers and maybe an end, which receives `fewer` chunks forward and backward; the
        latter from a site that is `far_s` further away.
        """
        layer, vpp = self.layer, self.strategies.vpp
        away = self._away_s(layers, turns)
        near = self._near_s()
        sent = self.forwards * (vpp - fewer[0]) * near, (vpp - fewer[1]) * (near + far_s)
        return Stage(
            layers=layers,
            forward_s=layers * layer.forward_s + end[0] + away[0] + sent[0],
            inputs_s=layers * layer.inputs_s + end[1] + away[1] + sent[1],
            weights_s=layers * layer.weights_s + end[2],
            passing_forward_s=layers * layer.passing_forward_s + end[0] + passing[0] + sent[0],
            passing_inputs_s=layers * layer.passing_inputs_s + end[1] + passing[1] + sent[1],
            send_s=sent[0] + sent[1],
            away_s=away,
        )

    def _near_s(self) -> Array:
        """A send inside a site."""
        return self.send_s - self.far_s / 2.0

    def _away_s(self, layers: Array, turns: Array) -> tuple[Array, Array]:
        if self.copies is None:
            return np.zeros(1), np.zeros(1)
        return self.copies.shown_s(layers, self.strategies.vpp.astype(float), turns)

    def _passing_away_s(self, layers: Array) -> tuple[Array, Array]:
        if self.copies is None:
            return np.zeros(1), np.zeros(1)
        vpp = self.strategies.vpp
        out, back = self.copies.passing_s(layers / vpp)
        return vpp * out, vpp * back

    def _chunks_s(self, middle: Stage, stays_s: Array) -> Array:
        """Of a microbatch in an interleaved schedule: rows go chunk by chunk in step, the slowest one ahead.

        The first chunk has the first end on its first row, the last one the last end on its last row, where
        what is not offloaded saves `stays_s`. Layers that an end's row has fewer are missing from the chunk
        of the end, which may have none.
        """
        strategies, stages, (first, last) = self.strategies, self.stages, self.ends
        vpp, layer = strategies.vpp, self.layer.forward_s + self.layer.inputs_s
        more = (middle.offload_s + middle.send_s) / vpp
        most, least = np.ceil(stages.middle / vpp), np.floor(stages.middle / vpp)
        beside_first = np.maximum(most - (stages.middle - stages.first), 0.0)
        beside_last = np.maximum(least - (stages.middle - stages.last), 0.0)
        # What the chunks of the ends take longer than the others of their turn.
        start = np.maximum((beside_first - most) * layer + first[0] + first[1], 0.0)
        end = np.maximum((beside_last - least) * layer + last[0] + last[1] - stays_s, 0.0)
        return stages.middle * layer + start + end + vpp * more
