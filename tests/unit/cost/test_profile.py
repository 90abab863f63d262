"""Times from a profile: between what was measured, or in proportion to one layer."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.builders import floats
from tests.tables import PROFILE
from trainwright.cluster.load import load_cluster
from trainwright.cost.collective import Link, all_gather_s, all_reduce_s, reduce_scatter_s, send_s, span
from trainwright.cost.expected import collective_errors, interpolation_errors, projection_errors
from trainwright.cost.kernels import build_kernels
from trainwright.cost.load import load_constants
from trainwright.cost.operators import Machine, op_time
from trainwright.cost.profile import Collective, Kernel, Profile, build_profile
from trainwright.cost.source import build_source, load_profile
from trainwright.cost.table import build_table
from trainwright.errors import BadInput, TrainwrightError, UnknownName
from trainwright.model.build import build_graph
from trainwright.model.load import load_model


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "profile.toml"
    file.write_text(PROFILE)
    return file


@pytest.fixture
def profile(path: Path) -> Profile:
    return load_profile(path)[0]


def test_a_measured_shape_has_its_measured_time(path: Path) -> None:
    found, cluster = load_profile(path)
    kernels = build_kernels("profiled", found, cluster.device)
    for each in found.kernels:
        assert kernels.seconds(each.work, *map(floats, each.sizes)) == pytest.approx(each.seconds, rel=1e-3)


def test_a_product_is_projected_in_proportion_to_its_flops(path: Path) -> None:
    found, cluster = load_profile(path)
    kernels = build_kernels("projected", found, cluster.device)
    # The baseline: 512 x 256 x 256 in 1 ms. Twice the rows, and twice the width both ways: 8 ms.
    assert kernels.seconds("product.forward", floats(1024), floats(512), floats(512)) == pytest.approx(8e-3)


def test_a_projection_uses_nothing_but_the_layer(path: Path) -> None:
    found, cluster = load_profile(path)
    only = replace(found, kernels=tuple(each for each in found.kernels if each.region))
    one, two = (build_kernels("projected", each, cluster.device) for each in (found, only))
    sizes = (floats(64), floats(64), floats(64))
    assert one.seconds("product.forward", *sizes) == two.seconds("product.forward", *sizes)


def test_what_was_not_measured_is_timed_as_what_is_most_alike(path: Path) -> None:
    found, cluster = load_profile(path)
    kernels = build_kernels("profiled", found, cluster.device)
    assert kernels.stand_in("rms_norm.backward") == "norm.backward"
    assert kernels.stand_in("optimizer") == "add.forward"


def test_a_device_with_twice_the_rate_takes_half_the_time(path: Path) -> None:
    found, cluster = load_profile(path)
    kernels = build_kernels("projected", found, cluster.device)
    device = cluster.device
    fast = replace(device, peak_flops_per_s={key: 2 * rate for key, rate in device.peak_flops_per_s.items()})
    source = build_source("profiled", str(path), cluster, load_constants(), None)
    op = next(each for each in build_graph(load_model("gpt2")).segments[1].block.ops if each.name == "ffn.up")
    sizes = {"batch": floats(2), "seq": floats(256), "hidden": floats(256), "ffn": floats(1024)}
    own = {
        "efficiency": replace(source.efficiency, kernels=kernels),
        "stack": source.stack,
        "precision": "fp32",
    }
    slow_s, fast_s = (op_time(op, sizes, Machine(device=each, **own)).forward_s for each in (device, fast))  # type: ignore[arg-type]
    assert slow_s == pytest.approx(2.0 * (fast_s - found.operator_s) + found.operator_s)


def test_collectives_pass_through_what_was_measured_and_follow_it_beyond() -> None:
    points = [(1e3, 1e-4), (1e6, 1e-3), (1e7, 1e-2)]
    table = build_table(
        [
            Collective(kind="all_reduce", members=n, size_bytes=size, seconds=s * n / 2)
            for size, s in points
            for n in (2, 4)
        ]
    )
    assert table is not None
    for size, seconds in points:
        assert table.seconds("all_reduce", floats(2), floats(size)) == pytest.approx(seconds)
    assert table.seconds("all_reduce", floats(2), floats(1e8)) == pytest.approx(0.1)  # ten times the largest
    assert table.seconds("all_reduce", floats(2), floats(1)) == pytest.approx(1e-4)  # as the smallest
    assert 1e-3 < table.seconds("all_reduce", floats(3), floats(1e6))[0] < 2e-3  # between two and four
    assert table.seconds("all_reduce", floats(1), floats(1e6)) == 0.0
    # Eight members: seven hops for three, and 7/8 of the bytes for 3/4.
    expected = 2e-4 * 7 / 3 + (2e-3 - 2e-4) * (7 / 8) / (3 / 4)
    assert table.seconds("all_reduce", floats(8), floats(1e6)) == pytest.approx(expected)


def test_a_measured_collective_goes_before_the_formula() -> None:
    table = build_table([Collective(kind="all_gather", members=2, size_bytes=1e6, seconds=5e-3)])
    link = Link(inside=8, bytes_per_s=1e9, latency_s=0.0, reduction=False, table=table)
    where = span((link,), floats(2), floats(1))
    assert all_gather_s((link,), where, floats(1e6)) == pytest.approx(5e-3)
    assert reduce_scatter_s((link,), where, floats(1e6)) == pytest.approx(5e-3)  # as long as a gather
    assert send_s((link,), floats(1), floats(1e6)) == pytest.approx(5e-3)
    assert all_reduce_s((link,), where, floats(1e6)) == pytest.approx(
        1e-3
    )  # 2·(1/2)·1 MB / 1 GB/s: not measured


def test_a_profile_tells_how_far_off_it_is(profile: Profile, path: Path) -> None:
    device = load_cluster(str(path)).device
    errors = projection_errors(profile, device)["products"].errors
    # 64 x 64 x 64 at 1 ms for 2·512·256·256 FLOPs: 7.8 us, against 10 us that were measured.
    assert errors == pytest.approx((abs(1e-3 * 64**3 / (512 * 256 * 256) / 10e-6 - 1.0),))
    assert not interpolation_errors(profile, device).errors  # too few shapes to judge one by the others
    more = [Kernel(work="copy", sizes=(2.0**n,), seconds=2.0**n / 1e9) for n in range(10, 15)]
    found = interpolation_errors(replace(profile, kernels=tuple(more)), device)
    assert found.median == pytest.approx(0.0, abs=1e-9)
    line = [Collective(kind="send", members=2, size_bytes=s, seconds=s / 1e9) for s in (1e4, 1e5, 1e6)]
    assert collective_errors(line).median == pytest.approx(0.0, abs=1e-9)


def test_a_profile_is_a_cluster_and_its_own_source(path: Path) -> None:
    cluster = load_cluster(str(path))
    assert (cluster.count, cluster.at_once, cluster.crowding) == (4, 2, 2.0)
    source = build_source(None, str(path), cluster, load_constants(), None)
    assert source.stack.name == "trainwright"
    assert source.efficiency.table is not None
    assert "measured on here" in source.notes[0]


def test_a_profile_is_carried_over_to_another_device_with_a_wide_range(path: Path) -> None:
    cluster = load_cluster("h100:8")
    source = build_source(f"projected:{path}", "h100:8", cluster, load_constants(), None)
    assert source.efficiency.table is None
    assert any("carried over to h100" in each for each in source.notes)
    assert source.interval.high / source.interval.low > 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("guessed", "no such name"),
        ("profiled", "names no file"),
        ("projected:nowhere.toml", "does not exist"),
    ],
)
def test_a_source_that_there_is_not_is_told(text: str, message: str) -> None:
    with pytest.raises(TrainwrightError, match=message):
        build_source(text, "h100:8", load_cluster("h100:8"), load_constants(), None)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kernel": [{"work": "product.sideways", "sizes": [1, 1, 1], "time": "1 ms"}]}, "sideways"),
        ({"kernel": [{"work": "product.data", "sizes": [1, 1], "time": "1 ms"}]}, "are not 3 numbers"),
        ({"kernel": [{"work": "copy", "sizes": [1], "time": 3.0}]}, "time"),
        ({"kernel": [{"work": "copy", "sizes": [1], "time": "0 s"}]}, "is not above zero"),
        ({"collective": [{"kind": "shout", "members": 2, "bytes": 1, "time": "1 s"}]}, "shout"),
        ({"block": {"batch": 0}}, "whole number"),
        ({"kernel": [1]}, "is not a table"),
        ({"collective": 5}, "is not a list"),
        ({"missing": 3}, "is not a list"),
        ({"dtype": "foo"}, "foo"),
        ({"speed": 1}, "speed"),
    ],
)
def test_a_profile_with_a_mistake_is_refused(change: dict[str, object], message: str) -> None:
    block = {"batch": 1, "seq": 1, "hidden": 1, "ffn": 1, "heads": 1, "vocab": 1}
    table = {"dtype": "fp32", "software": "x", "measured": "y", "kernel": [], "block": block}
    with pytest.raises((BadInput, UnknownName), match=message):
        build_profile(table | change, "profile")


def test_amounts_are_flops_or_bytes() -> None:
    assert Kernel(work="product.data", sizes=(2.0, 3.0, 4.0), seconds=1.0).amount == 48.0
    assert Kernel(work="attention.backward", sizes=(1.0, 2.0, 3.0, 4.0), seconds=1.0).amount == 5 * 24.0
    assert Kernel(work="copy", sizes=(7.0,), seconds=1.0).amount == 7.0
    assert np.isclose(Kernel(work="attention.forward", sizes=(1.0, 2.0, 3.0, 4.0), seconds=1.0).amount, 48.0)


def test_what_was_never_measured_nor_anything_like_it_is_told(path: Path) -> None:
    found, cluster = load_profile(path)
    products = replace(
        found, kernels=tuple(each for each in found.kernels if each.work.startswith("product"))
    )
    kernels = build_kernels("profiled", products, cluster.device)
    with pytest.raises(BadInput, match="nor anything like it"):
        kernels.seconds("norm.forward", floats(1e6))


def test_a_backward_pass_that_is_timed_as_a_forward_one_counts_its_own_work(path: Path) -> None:
    found, cluster = load_profile(path)
    only = replace(found, kernels=tuple(each for each in found.kernels if each.work == "attention.forward"))
    kernels = build_kernels("profiled", only, cluster.device)
    sizes = tuple(map(floats, (16, 256, 256, 64)))
    # Five products for two: 2.5 times 5 ms.
    assert kernels.seconds("attention.backward", *sizes) == pytest.approx(12.5e-3, rel=1e-3)
    assert kernels.seconds("unfused.forward", *sizes) == pytest.approx(5e-3, rel=1e-3)


def test_a_profiled_cpu_is_asked_in_the_format_that_it_was_measured_in(path: Path) -> None:
    path.write_text(PROFILE.replace('family = "here"', 'family = "cpu"'))
    assert load_cluster(str(path)).device.usual_precision == "fp32"
    assert load_cluster("h100:8").device.usual_precision == "bf16"
