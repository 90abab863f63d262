from trainwright.errors import BadInput as BadInput
from trainwright.errors import InfeasiblePlan as InfeasiblePlan
from trainwright.errors import TrainwrightError as TrainwrightError
from trainwright.library import advise as advise
from trainwright.library import calibrate as calibrate
from trainwright.library import catalog as catalog
from trainwright.library import compare as compare
from trainwright.library import export as export
from trainwright.library import plan as plan
from trainwright.library import simulate as simulate
from trainwright.library import study_cluster_design as study_cluster_design
from trainwright.library import study_comp_vs_comm as study_comp_vs_comm
from trainwright.library import study_flexible_plans as study_flexible_plans
from trainwright.library import study_scaling as study_scaling
from trainwright.library import study_subnetworks as study_subnetworks
from trainwright.library import sweep as sweep
from trainwright.library import validate as validate
from trainwright.runtime.tracing.trace import trace as trace

__version__: str
