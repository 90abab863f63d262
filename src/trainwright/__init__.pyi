from trainwright.errors import BadInput as BadInput
from trainwright.errors import InfeasiblePlan as InfeasiblePlan
from trainwright.errors import TrainwrightError as TrainwrightError
from trainwright.library import advise as advise
from trainwright.library import export as export
from trainwright.library import plan as plan
from trainwright.library import simulate as simulate
from trainwright.library import sweep as sweep
from trainwright.runtime.tracing.trace import trace as trace

__version__: str
