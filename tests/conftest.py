"""How long laws are searched: same examples every time, few enough for every change; more on request.

`TRAINWRIGHT_EXAMPLES=1000 pytest tests/laws` looks harder. Small tensors are computed by one thread, here
and in processes that tests start: more of them only wait for one another.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

from hypothesis import HealthCheck, settings

settings.register_profile(
    "trainwright",
    max_examples=int(os.environ.get("TRAINWRIGHT_EXAMPLES", "30")),
    deadline=None,
    derandomize="TRAINWRIGHT_EXAMPLES" not in os.environ,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("trainwright")
