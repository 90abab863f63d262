"""The request for one plan in detail."""

from dataclasses import KW_ONLY, dataclass, field

from trainwright.api.fields import Whole, described, option
from trainwright.api.plan_source import PLAN_HELP, PlanSource
from trainwright.api.subject_fields import BatchFields, SubjectFields
from trainwright.api.terms_fields import TermsFields


@dataclass(frozen=True)
class SimulateRequest(TermsFields, BatchFields, SubjectFields):
    """What does a step of this plan do?"""

    plan: PlanSource = field(
        metadata=described(
            f"{PLAN_HELP}or what trainwright plan --json wrote (its best plan, with its batch, software, "
            "optimizer and imbalance of experts)", "PLAN", words=True, is_file=True,
        )
    )  # fmt: skip
    _: KW_ONLY
    algorithm: str | None = option(
        'PLAN is of one island, and islands learn by "diloco every=50", "ist", "local-sgd" or '
        '"streaming-diloco"; of a file with several, the one to take', "TEXT",
    )  # fmt: skip
    islands: Whole | None = option("how many islands (default: by the outermost level of the network)", "N")
    free: bool = option("also what each cause would save if it were free", default=False)
