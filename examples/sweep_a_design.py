"""A small design space: how fast a model trains as memory bandwidth and link speed change.

python examples/sweep_a_design.py [FOLDER]
"""

import sys
import tempfile
from pathlib import Path

import trainwright

FOLDER = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(tempfile.mkdtemp()) / "sweep"
SWEEP = Path(__file__).with_name("sweep_a_design.toml")

found = trainwright.sweep(SWEEP, FOLDER, workers=1)
print(f"{FOLDER}: a dataset")
print(found.to_dataframe())
