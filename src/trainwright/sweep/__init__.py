"""Sweeps: many clusters, models and strategies at once, the best strategy of each, as a dataset.

sweep = load_sweep(Path("sweep.toml"))      or parse_sweep(text), or Sweep(...)
manifest = run_sweep(sweep, Path("out"))    resumable; progress and cancelled are callbacks
Evaluator(sweep).rows(0, 100)               rows without a dataset, as arrays
query(Path("out"), "select ...")            SQL over what is finished
"""

from trainwright.sweep.evaluate import Evaluator, Rows
from trainwright.sweep.load import load_sweep, parse_sweep
from trainwright.sweep.points import axis_columns, points
from trainwright.sweep.run import run_sweep
from trainwright.sweep.types import Axis, Setting, Sweep

__all__ = [
    "Axis", "Evaluator", "Rows", "Setting", "Sweep", "axis_columns", "load_sweep", "parse_sweep", "points",
    "run_sweep",
]  # fmt: skip
