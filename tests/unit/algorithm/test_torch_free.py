"""Planners know algorithms without torch."""

import subprocess
import sys

MODULES = ("registry", "charge", "partition", "anatomy", "message")
_BARRED = """
import sys
class Bar:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "torch":
            raise ImportError("torch is barred")
sys.meta_path.insert(0, Bar())
import {modules}
from trainwright.algorithm.anatomy import Anatomy, Axis, Weight
from trainwright.algorithm.charge import charge
from trainwright.algorithm.protocol import Seat
from trainwright.algorithm.registry import ALGORITHMS
weight = Weight(name="w", sizes=(8, 3), axes=(Axis(group="hidden"), None))
anatomy = Anatomy(weights=(weight,), units={{"hidden": 8}})
for kind in ALGORITHMS.values():
    assert charge(kind(), anatomy, Seat(rank=0, workers=2, steps=100)).memory_bytes > 0
"""


def test_costs_are_stated_without_torch() -> None:
    modules = ", ".join(f"trainwright.algorithm.{each}" for each in MODULES)
    result = subprocess.run(
        [sys.executable, "-c", _BARRED.format(modules=modules)], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
