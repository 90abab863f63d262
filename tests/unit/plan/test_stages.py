"""Layers of each stage of a pipeline."""

import pytest

from trainwright.plan.stages import even_counts, stage_counts

ROUTES = {
    "interleaved": lambda pp, vpp: [row for _ in range(vpp) for row in range(pp)],
    "v": lambda pp, _: [*range(pp), *reversed(range(pp))],
}


@pytest.mark.parametrize("layers", range(1, 40))
@pytest.mark.parametrize("pp", [1, 2, 4, 8])
@pytest.mark.parametrize(
    ("shape", "vpp"), [("interleaved", 1), ("interleaved", 2), ("interleaved", 3), ("v", 2)]
)
def test_stages_share_out_every_layer_and_none_has_fewer_than_none(
    layers: int, pp: int, shape: str, vpp: int
) -> None:
    route = ROUTES[shape](pp, vpp)
    rows = even_counts(layers, pp, vpp)
    counts = stage_counts(rows, route)
    assert min(counts) >= 0
    by_row = [sum(n for n, each in zip(counts, route, strict=True) if each == row) for row in range(pp)]
    assert by_row == rows
    assert sum(counts) == layers


def test_the_first_and_last_stages_have_what_their_rows_have_less() -> None:
    assert stage_counts([3, 4, 4, 3], [0, 1, 2, 3, 0, 1, 2, 3]) == [1, 2, 2, 2, 2, 2, 2, 1]
