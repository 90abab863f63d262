"""Trainwright as a library: the questions of the command line as functions, their answers as objects.

`trainwright.plan(...)`, `trainwright.simulate(...)`, `trainwright.sweep(...)`, `trainwright.export(...)` and
`trainwright.advise(...)` are these; `trainwright.trace(module)` reads a PyTorch module. See docs/library.md.
"""

from trainwright.library.advising import advise
from trainwright.library.exporting import export
from trainwright.library.islands import IslandPlans
from trainwright.library.planning import plan
from trainwright.library.plans import Plans
from trainwright.library.recommenders import TablePlans
from trainwright.library.simulating import Simulation, simulate
from trainwright.library.sweeping import Swept, sweep

__all__ = [
    "IslandPlans", "Plans", "Simulation", "Swept", "TablePlans", "advise", "export", "plan", "simulate",
    "sweep",
]  # fmt: skip
