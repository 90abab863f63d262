"""When every task of a table runs, fast.

The event loop is in `kernel`; `reference` says the same in plain Python, with the same arithmetic in the
same order, so both give the same bytes. A compute task that starts at `t` ends at `t + seconds / rate`. When
the rate of its place changes at `t`, its remaining work falls by `(t - since) * old rate`, not below 0, and
it ends at `t + remaining / rate`. The rate is `1 - min(load, 0.9)`; the load is the sum, in order of units,
of what the tasks on the other units of the place take. It is settled after the ends and starts of a round; a
round is what happens at one time, and tasks of no length make further rounds at the same time.
"""

import numpy as np

from trainwright.program.table import Floats, Table
from trainwright.simulate.state import build_state


def run(table: Table) -> tuple[Floats, Floats]:
    """When each task starts and ends; NaN for those that never do, because they wait for each other."""
    from trainwright.simulate.kernel import consumers_of, play

    consumers = consumers_of(np.array(table.first_input, np.int64), np.array(table.inputs, np.int32))
    start_s, end_s = np.full((2, len(table)), np.nan)
    play(*build_state(table, *consumers), start_s, end_s)
    return start_s, end_s
