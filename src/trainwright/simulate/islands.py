"""A plan of islands simulated from end to end: the step of one of them, and a round with its meetings."""

from dataclasses import dataclass, replace

from trainwright.errors import BadInput
from trainwright.model.graph import parameters
from trainwright.plan.islands import algorithm_of, island_plan, islands_of
from trainwright.plan.plan import Plan
from trainwright.program.meetings import (
    Apartness,
    Meeting,
    beside_bytes,
    build_apartness,
    build_meetings,
    held_share,
    island_cluster,
    island_graph,
)
from trainwright.program.setting import Setting
from trainwright.simulate.rounds import Round, simulate_round
from trainwright.simulate.whole import Simulated, simulate_plan


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedApart:
    """The step of one island, its round, and how the islands meet."""

    plan: Plan
    setting: Setting  # of all islands
    step: Simulated
    apart: Apartness
    meetings: tuple[Meeting, ...]
    round: Round
    beside_bytes: float  # that each device holds for the algorithm

    @property
    def reserved_bytes(self) -> float:
        """What the algorithm takes of a device's memory, a reserve for fragments included."""
        return (1.0 + self.setting.stack.reserve_share) * self.beside_bytes

    @property
    def step_s(self) -> float:
        """The mean time of a step, over a round."""
        return self.round.round_s / self.apart.every


def simulate_apart(setting: Setting, plan: Plan) -> SimulatedApart:
    """A plan of islands on a whole cluster, whether it fits or not."""
    islands, algorithm = islands_of(plan), algorithm_of(plan)
    if plan.devices * islands != setting.cluster.count:
        rule = (
            f"is for {islands} islands of {plan.devices} devices, and the cluster has {setting.cluster.count}"
        )
        raise BadInput("plan", plan.name, rule, "use a cluster of as many devices")
    apart = build_apartness(setting.graph, setting.seq, algorithm, islands)
    graph = island_graph(setting.graph, apart)
    island = replace(setting, graph=graph, cluster=island_cluster(setting.cluster, islands))
    beside = beside_bytes(apart, parameters(graph), plan.devices)
    step = simulate_plan(island, island_plan(plan), beside)
    weights = max(need.category_bytes["weights"] for need in step.needs)
    held = held_share(setting.stack, plan.precision, weights, graph, setting.cluster.device.family)
    meetings = build_meetings(setting, apart, held)
    return SimulatedApart(
        plan=plan, setting=setting, step=step, apart=apart, meetings=meetings,
        round=simulate_round(step.timeline, apart.every, meetings), beside_bytes=beside,
    )  # fmt: skip
