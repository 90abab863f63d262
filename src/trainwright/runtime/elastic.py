"""Another plan for the processes that are left: the best strategy for their count, by estimate."""

from trainwright.errors import BadInput
from trainwright.estimate.types import Job
from trainwright.model.graph import Graph
from trainwright.plan.expand import expand
from trainwright.plan.plan import Plan
from trainwright.plan.strategy import OFFLOADS, PRECISIONS, SCHEDULES
from trainwright.runtime.machine import build_setting
from trainwright.search.find import Question, find_plans


def replan(graph: Graph, count: int, batch: int, seq: int, precision: str) -> Plan:
    """The fastest plan by estimate on `count` processes of this machine, or on the most below that have one.

    The batch stays, so that the run goes on with the same data.
    """
    for number in range(count, 0, -1):
        plan = _fastest(graph, number, batch, seq, precision)
        if plan is not None:
            return plan
    raise BadInput("--elastic", count, "no plan is left for so few processes", "start more of them")


def _fastest(graph: Graph, count: int, batch: int, seq: int, precision: str) -> Plan | None:
    setting = build_setting(graph, count, seq, precision)
    job = Job(
        graph=graph, cluster=setting.cluster, stack=setting.stack, efficiency=setting.efficiency, seq=seq,
        global_batch=batch,
    )  # fmt: skip
    fixed = {
        "precision": (PRECISIONS.index(precision),),
        "schedule": (SCHEDULES.index("1f1b"),),
        "offload": (OFFLOADS.index("none"),),
    }
    try:
        found = find_plans(Question(job=job, batches=(batch,), fixed=fixed, most={}, top=1))
    except BadInput:  # no degrees make this count, or divide the batch
        return None
    return expand(found.best.strategies[0], graph, batch) if len(found.best) else None
