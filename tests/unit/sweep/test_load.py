"""A sweep file says what is swept; what it gets wrong is told in a line."""

from pathlib import Path

import pytest

from tests.unit.sweep.small import TEXT, changed, small_sweep
from trainwright.errors import BadInput, TrainwrightError
from trainwright.sweep.load import EXAMPLES, load_sweep, parse_sweep
from trainwright.sweep.points import axis_columns, points

HEAD = 'model = "llama3-8b"\ncluster = "h100:8"\n'


def axis_of(text: str) -> list[object]:
    """The labels of the one axis of a sweep."""
    return list(parse_sweep(f"{HEAD}[[axis]]\n{text}").axes[0].labels)


@pytest.mark.parametrize(
    ("text", "labels"),
    [
        ('field = "cluster.count"\nvalues = [8, 16]', [8, 16]),
        ('field = "cluster.memory.0.capacity"\nvalues = ["80 GB", "1 GiB"]', [80e9, 2.0**30]),
        ('field = "model.layers"\nrange = { from = 16, to = 32, step = 8 }', [16, 24, 32]),
        ('field = "cluster.pue"\nrange = { from = 1, to = 2, count = 3 }', [1.0, 1.5, 2.0]),
        ('field = "cluster.levels.0.bandwidth"\nlog = { from = "100 GB/s", to = "450 GB/s", factor = 2 }',
         [1e11, 2e11, 4e11]),
        ('field = "cluster.count"\nlog = { from = 8, to = 64, count = 4 }', [8, 16, 32, 64]),
        ('field = "compute"\nratio = [1, 2, 4]', [1.0, 2.0, 4.0]),
        ('field = "compute"\nvalues = "x1, x2, 4x"', [1.0, 2.0, 4.0]),
        ('field = "strategy.tp"\nvalues = [1, 2]', [1, 2]),
        ('field = "strategy.recompute"\nvalues = ["none", "full"]', ["none", "full"]),
        ('field = "strategy"\nvalues = ["dp8", "dp4 tp2"]', ["dp8", "dp4 tp2"]),
        ('field = "cluster.device"\nvalues = ["a100", "h100"]', ["a100", "h100"]),
        ('field = "cluster"\nvalues = ["a100:8", "h100:8"]', ["a100:8", "h100:8"]),
        ('field = "model"\nvalues = ["llama3-8b", "gpt3-175b"]', ["llama3-8b", "gpt3-175b"]),
        ('field = "stack"\nvalues = ["megatron-core", "generic"]', ["megatron-core", "generic"]),
        ('field = "seq"\nvalues = [2048, 4096]', [2048, 4096]),
        ('field = "cluster.levels.0.in_network_reduction"\nvalues = [true, false]', [True, False]),
    ],
)  # fmt: skip
def test_axes_are_lists_ranges_logarithmic_ranges_and_ratios(text: str, labels: list[object]) -> None:
    assert axis_of(text) == pytest.approx(labels) if isinstance(labels[0], float) else axis_of(text) == labels


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ('field = "cluster.memory.0.capacity"\nvalues = [80]', 'write it like "80 GiB"'),
        ('field = "cluster.memory.0.capacity"\nvalues = []', "has no values"),
        ('field = "cluster.count"\nvalues = [8.5]', "is not a whole number"),
        ('field = "cluster.count"\nvalues = "8"', "is not a number"),
        ('field = "cluster.memory"\nvalues = ["80 GB"]', "name one part of it"),
        ('field = "cluster.levels.0.bandwidth"\nvalues = ["0 GB/s"]', "a rate of zero moves nothing"),
        ('field = "cluster.count"', "states its values not once"),
        ('field = "cluster.count"\nvalues = [1]\nratio = [2]', "states its values not once"),
        ('field = "cluster.count"\nratio = [0]', "is no ratio above zero"),
        ('field = "cluster.name"\nratio = [2]', "is no number"),
        ('field = "cluster.count"\nrange = { from = 8, to = 1, step = 1 }', "ends before it starts"),
        ('field = "cluster.count"\nrange = { from = 8, step = 1 }', "needs from, to, and step or count"),
        ('field = "cluster.count"\nlog = { from = 1, to = 8, factor = 1 }', "steps lead nowhere"),
        ('field = "cluster.count"\nrange = { from = 1, to = 2e12, step = 1e-3 }', "too many"),
        ('field = "cluster.count"\nvalues = [8]\nname = "step_s"', "of a result"),
        ('field = "cluster.count"\nvalues = [8]\nname = "a b"', "is no word"),
        ('field = "cluster.count"\nvalue = [8]', 'did you mean "values"'),
        ('field = "strategy.tpp"\nvalues = [8]', 'did you mean "tp"'),
        ('field = "strategy.recompute"\nvalues = ["ful"]', 'did you mean "full"'),
        ('field = "strategy"\nvalues = ["dp8 xx3"]', "no such name"),
        ('field = "model"\nvalues = ["llama9"]', "no such name"),
        ("values = [8]", "is not text"),
    ],
)
def test_an_axis_that_says_nothing_is_told(text: str, match: str) -> None:
    with pytest.raises(TrainwrightError, match=match):
        axis_of(text)


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ('cluster = "h100:8"', "sweep model"),
        (f'{HEAD}modle = "x"', 'did you mean "model"'),
        (f'{HEAD}where = ["stepp_s < 3"]', 'did you mean "step_s"'),
        (f'{HEAD}where = ["step_s < 3"]', 'is about results, .*add search = "every"'),
        (f'{HEAD}columns = ["stepp_s"]', 'did you mean "step_s"'),
        (f'{HEAD}rows = "all"', 'add search = "every"'),
        (f'{HEAD}objective = "speed"', "no such name"),
        (f"{HEAD}batch = 0", "whole number above zero"),
        (f'{HEAD}cost = "profiled:x.toml"', "sweep cost"),
        (f"{HEAD}strategy = 3", "is not a table"),
        (f"{HEAD}axis = 3", "is no list of tables"),
        ("model = ", "is not TOML"),
    ],
)
def test_a_file_that_is_no_sweep_is_told(text: str, match: str) -> None:
    with pytest.raises(TrainwrightError, match=match):
        parse_sweep(text)


def test_points_are_all_combinations_the_last_axis_fastest() -> None:
    sweep = small_sweep()
    assert len(sweep) == 3 * 2 * 3
    columns = axis_columns(sweep, points(sweep, 0, 4))
    assert columns["inner"].tolist() == [1e11, 2e11, 4e11, 1e11]
    assert columns["compute"].tolist() == [1, 1, 1, 2]
    assert columns["capacity"].tolist() == [20e9] * 4


def test_zipped_axes_go_together() -> None:
    sweep = changed("ratio = [1, 2]", 'ratio = [1, 2, 3]\nzip = "chip"')
    zipped = parse_sweep(sweep.text.replace('name = "capacity"', 'name = "capacity"\nzip = "chip"'))
    assert len(zipped) == 3 * 3
    columns = axis_columns(zipped, points(zipped))
    pairs = set(zip(columns["capacity"].tolist(), columns["compute"].tolist(), strict=True))
    assert pairs == {(20e9, 1.0), (80e9, 2.0), (160e9, 3.0)}


def test_zipped_axes_of_different_lengths_are_refused() -> None:
    with pytest.raises(BadInput, match="differ in length"):
        parse_sweep(TEXT.replace("ratio = [1, 2]", 'ratio = [1, 2]\nzip = "a"').replace(
            'name = "inner"', 'name = "inner"\nzip = "a"'))  # fmt: skip


def test_constraints_on_axes_leave_points_out() -> None:
    sweep = small_sweep('where = ["capacity / compute <= 80e9"]\n')
    left = points(sweep)
    assert len(left) == 5 * 3  # of 3 capacities and 2 ratios, all but 160 GB at ratio 1
    columns = axis_columns(sweep, left)
    assert (columns["capacity"] / columns["compute"] <= 80e9).all()


def test_files_are_found_beside_the_sweep(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text('count = 16\ndevice = "h100"\n')
    (tmp_path / "sweep.toml").write_text('model = "llama3-8b"\ncluster = "mine.toml"\n')
    assert load_sweep(tmp_path / "sweep.toml").setting.cluster.count == 16


def test_a_cluster_may_be_a_table_of_the_sweep() -> None:
    text = 'model = "llama3-8b"\n[cluster]\ncount = 16\n[cluster.device]\nbase = "h100"\n'
    tier = '[[cluster.device.memory]]\nname = "cxl"\ncapacity = "1 TB"\nbandwidth = "1 TB/s"\n'
    axis = '[[axis]]\nfield = "cluster.memory.cxl.capacity"\nvalues = ["1 TB", "2 TB"]\n'
    sweep = parse_sweep(text + tier + axis)
    assert sweep.setting.cluster.count == 16
    assert sweep.axes[0].name == "device_memory_2_capacity_bytes"
    with pytest.raises(BadInput, match="no such name"):
        parse_sweep(text.replace('"h100"', '"h1000"'))


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.toml")), ids=lambda path: path.stem)
def test_every_example_can_be_read(path: Path) -> None:
    assert len(load_sweep(path)) > 10


class TestBatchTarget:
    def test_tokens_are_a_target_with_a_tolerance(self) -> None:
        sweep = parse_sweep(small_sweep().text.replace("batch = 16\n", 'batch_tokens = "1M"\n'))
        assert (sweep.setting.batch_tokens, sweep.setting.batch_tolerance) == (2**20, 0.03)
        text = sweep.text.replace('"1M"', '"1M"\nbatch_tolerance = "5%"')
        assert parse_sweep(text).setting.batch_tolerance == pytest.approx(0.05)

    @pytest.mark.parametrize(
        ("lines", "words"),
        [
            ('batch = 16\nbatch_tokens = "1M"', "batch is one in sequences"),
            ('batch = 16\nbatch_tolerance = "5%"', "batch is one in sequences"),
            ('batch_tolerance = "5%"', "goes with batch_tokens"),
            ('batch_tokens = "1M"\nbatch_tolerance = "5"', "has no unit"),
            ('batch_tokens = "1M"\nbatch_tolerance = 5', "is not text"),
        ],
    )
    def test_what_would_be_ignored_is_refused(self, lines: str, words: str) -> None:
        with pytest.raises(BadInput, match=words):
            parse_sweep(small_sweep().text.replace("batch = 16", lines))
