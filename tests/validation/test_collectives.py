"""The constants of links are those that measured collectives give: nobody has moved them to reach a target.

They are fitted again here, from a table of collectives that were measured alone and a plot of all-reduces,
and compared with what is shipped. A constant that was changed by hand, or fitted to training runs, differs.
"""

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from trainwright.cost.load import PRIOR, load_constants
from trainwright.validate.collective_fit import SPREAD, Fabrics, fit_fabrics, predicted_s
from trainwright.validate.collective_rows import BUS_GB_PER_S, Measured, load_collectives

TABLE = Path(__file__).parents[3] / "shared" / "validation" / "collectives.csv"
TOLERANCE = 0.01  # of a constant: what is lost by writing six digits, and by the order of sums

pytestmark = pytest.mark.skipif(not TABLE.is_file(), reason=f"no table of collectives at {TABLE}")


@cache
def rows() -> tuple[Measured, ...]:
    return load_collectives(TABLE)


@cache
def refitted() -> Fabrics:
    return fit_fabrics(rows(), load_constants(PRIOR).fabrics)


def moved(shipped: Fabrics) -> list[str]:
    """The constants that differ from those of the measurements."""
    assert set(shipped) == set(refitted())
    return [
        f"{name}.{field}"
        for name, fabric in refitted().items()
        for field in SPREAD
        if getattr(shipped[name], field) != pytest.approx(getattr(fabric, field), rel=TOLERANCE)
    ]


def test_shipped_constants_are_those_of_the_measured_collectives() -> None:
    shipped = load_constants().fabrics
    assert moved(shipped) == []
    assert {name: each.rows for name, each in shipped.items()} == {
        name: each.rows for name, each in refitted().items()
    }


def test_a_constant_that_is_moved_to_reach_a_target_is_found() -> None:
    shipped = load_constants().fabrics
    for field in SPREAD:
        other = replace(shipped["rdma"], **{field: 1.05 * getattr(shipped["rdma"], field)})
        longer = {**shipped, "rdma": other}
        assert moved(longer) == [f"rdma.{field}"]


def test_measured_collectives_are_followed() -> None:
    truth, found = np.array([row.time_s for row in rows()]), predicted_s(rows(), load_constants().fabrics)
    off = np.abs(found / truth - 1.0)
    for fabric, most in (
        ("nvlink3", 0.10),
        ("nvlink4", 0.08),
        ("nvlink5", 0.06),
        ("rdma", 0.10),
        ("efa", 0.06),
    ):
        own = np.array([row.fabric == fabric for row in rows()])
        assert np.median(off[own]) < most, fabric


def test_every_row_of_the_plot_and_of_each_known_source_is_read() -> None:
    assert sum(row.source.startswith("arXiv 2411.13055") for row in rows()) == 7 * len(BUS_GB_PER_S)
    assert len({row.source for row in rows()}) == 12
    assert len(rows()) > 400
