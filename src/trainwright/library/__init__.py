"""Trainwright as a library: the questions of the command line as functions, their answers as objects.

`trainwright.plan(...)`, `trainwright.simulate(...)`, `trainwright.sweep(...)`, `trainwright.export(...)` and
`trainwright.advise(...)` are these; `trainwright.trace(module)` reads a PyTorch module. See docs/library.md.
"""

from trainwright.library.advising import advise
from trainwright.library.exporting import export
from trainwright.library.planning import Plans, plan
from trainwright.library.simulating import Simulation, simulate
from trainwright.library.sweeping import Swept, sweep

__all__ = ["Plans", "Simulation", "Swept", "advise", "export", "plan", "simulate", "sweep"]
