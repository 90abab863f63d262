"""A table of runs is read, grouped and predicted; a row that cannot be read says why and stops nothing."""

from pathlib import Path

import numpy as np
import pytest

from tests.builders import free_stack
from tests.unit.validate.test_rows import ROW
from trainwright.cluster.types import Device
from trainwright.cost.constants import Efficiency, Stack
from trainwright.errors import BadInput
from trainwright.plan.strategy import OFFLOADS, PRECISIONS
from trainwright.stack.capability import Capability
from trainwright.stack.load import capability_of, stack_entries
from trainwright.validate.dataset import (
    build_dataset,
    candidates,
    load_rows,
    measured,
    predict,
    stack_name,
)
from trainwright.validate.rows import parse_case


def stack_of(name: str) -> Stack:
    return free_stack(name=name)


def efficiency_of(device: Device) -> Efficiency:
    return Efficiency()


def table(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "runs.csv"
    path.write_text(text, encoding="utf-8")
    return path


class TestLoad:
    def test_rows_are_read_by_column(self, tmp_path: Path) -> None:
        path = table(tmp_path, ",".join(ROW) + "\n" + ",".join(ROW.values()) + "\n")
        assert load_rows(path) == (ROW,)

    def test_a_byte_order_mark_is_not_part_of_the_first_column(self, tmp_path: Path) -> None:
        path = table(tmp_path, "\ufeff" + ",".join(ROW) + "\n" + ",".join(ROW.values()) + "\n")
        assert load_rows(path)[0]["id"] == "r1"

    @pytest.mark.parametrize("text", ["", "hardware,gpus\n"])
    def test_a_table_without_rows_is_refused(self, tmp_path: Path, text: str) -> None:
        with pytest.raises(BadInput, match="has no rows"):
            load_rows(table(tmp_path, text))

    def test_a_missing_column_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(BadInput, match="lacks column gpus, layers"):
            load_rows(table(tmp_path, "hardware,hidden,heads,seq_len\nh100,1,1,1\n"))

    def test_a_missing_file_is_an_error_of_the_user(self, tmp_path: Path) -> None:
        with pytest.raises(BadInput, match="cannot be read as CSV"):
            load_rows(tmp_path / "none.csv")

    def test_a_file_that_is_not_text_is_refused(self, tmp_path: Path) -> None:
        path = tmp_path / "runs.csv"
        path.write_bytes(b"\xff\xfe\x00\x01")
        with pytest.raises(BadInput, match="cannot be read as CSV"):
            load_rows(path)


class TestDataset:
    def test_rows_that_differ_in_batch_and_strategy_share_a_group(self) -> None:
        rows = [ROW, ROW | {"global_batch": "1024"}, ROW | {"tp": "8", "dp": "8"}]
        (group,) = build_dataset(rows, stack_of).groups
        assert group.indices == (0, 1, 2)

    def test_rows_of_other_models_or_software_do_not(self) -> None:
        rows = [ROW, ROW | {"layers": "12"}, ROW | {"framework": "nanotron"}, ROW | {"seq_len": "1024"}]
        assert len(build_dataset(rows, stack_of).groups) == 4

    def test_a_row_that_cannot_be_read_says_why(self) -> None:
        dataset = build_dataset([ROW, ROW | {"gpus": "many"}], stack_of)
        assert dataset.cases[1] is None
        assert dataset.reasons == (
            "",
            'column gpus "many": is not a number; correct the cell or leave it empty',
        )

    def test_stated_knobs_leave_few_candidates_and_open_ones_many(self) -> None:
        stack = free_stack(capability=Capability(usual_recomputes=("none",)))
        stated = ROW | {"precision": "bf16"}
        assert len(candidates(parse_case(stated), stack)) == 1
        assert len(candidates(parse_case(stated | {"micro_batch": ""}), stack)) > 1

    @pytest.mark.parametrize("name", stack_entries())
    def test_what_a_row_leaves_out_is_as_the_stack_can_run_it(self, name: str) -> None:
        able = capability_of(name)
        blank = dict.fromkeys(("dp", "tp", "pp", "micro_batch", "recompute", "zero", "sequence_parallel"), "")
        every = candidates(parse_case(ROW | blank), free_stack(capability=able))
        assert set(every.zero) == {able.usual_zero} <= set(able.zeros)
        assert all((getattr(every, axis) == 1).all() for axis in ("tp", "pp", "vpp") if axis not in able.axes)
        assert able.sequence_parallel != "never" or not every.sp.any()
        assert {OFFLOADS[each] for each in set(every.offload)} <= set(able.offloads)

    def test_every_replica_has_a_microbatch(self) -> None:
        row = ROW | {"dp": "", "tp": "", "pp": "", "micro_batch": "", "global_batch": "4"}
        every = candidates(parse_case(row), free_stack())
        assert (every.dp * every.micro_batch <= 4).all()

    def test_a_precision_that_is_not_stated_is_each_in_use(self) -> None:
        row = ROW | {"hardware": "H100-SXM-80GB"}
        found = {PRECISIONS[each] for each in candidates(parse_case(row), free_stack()).precision}
        assert found == {"bf16", "fp8"}
        rows = (row, row | {"precision": "bf16"}, row | {"precision": "fp8"})
        predictions = predict(build_dataset(rows, stack_of), stack_of, efficiency_of)
        unknown, wide, narrow = predictions.step_s
        assert unknown == pytest.approx(np.sqrt(wide * narrow))
        assert predictions.doubt == pytest.approx([np.sqrt(wide / narrow), 1.0, 1.0])

    def test_every_candidate_uses_all_devices(self) -> None:
        every = candidates(parse_case(ROW | {"dp": "", "tp": "", "pp": "", "micro_batch": ""}), free_stack())
        assert len(every) > 10
        assert set(every.dp * every.tp * every.cp * every.pp) == {64}

    @pytest.mark.parametrize(
        ("cells", "name"),
        [
            ({"framework": "megatron-lm", "attention": "unfused"}, "megatron-lm"),
            ({"framework": "megatron-lm", "attention": "flash"}, "megatron-core"),
            ({"framework": "nanotron"}, "nanotron"),
            ({"framework": ""}, "generic"),
        ],
    )
    def test_a_framework_names_a_stack(self, cells: dict[str, str], name: str) -> None:
        assert stack_name(parse_case(ROW | cells)) == name


class TestPredict:
    def test_each_row_is_predicted_in_its_place(self) -> None:
        rows = [ROW, ROW | {"gpus": "many"}, ROW | {"layers": "48"}, ROW | {"global_batch": "1024"}]
        result = predict(build_dataset(rows, stack_of), stack_of, efficiency_of)
        assert np.isnan(result.step_s).tolist() == [False, True, False, False]
        assert result.step_s[2] > result.step_s[0]
        assert result.step_s[3] > result.step_s[0]
        assert result.fits.tolist() == [True, False, True, True]

    def test_grouping_changes_no_prediction(self) -> None:
        rows = [ROW, ROW | {"global_batch": "1024"}, ROW | {"tp": "8", "dp": "8"}]
        together = predict(build_dataset(rows, stack_of), stack_of, efficiency_of)
        alone = [predict(build_dataset([row], stack_of), stack_of, efficiency_of).step_s[0] for row in rows]
        assert together.step_s == pytest.approx(alone, rel=1e-12)

    def test_an_open_knob_is_chosen_for_speed(self) -> None:
        sizes = ("1", "2", "4")
        stated = [ROW | {"micro_batch": size} for size in sizes]
        open_ = [ROW | {"micro_batch": ""}]
        best = predict(build_dataset(open_, stack_of), stack_of, efficiency_of).step_s[0]
        assert best <= predict(build_dataset(stated, stack_of), stack_of, efficiency_of).step_s.min()

    def test_what_cannot_fit_says_so(self) -> None:
        huge = ROW | {
            "hidden": "32768",
            "heads": "128",
            "gpus": "8",
            "dp": "1",
            "tp": "8",
            "global_batch": "8",
        }
        assert predict(build_dataset([huge], stack_of), stack_of, efficiency_of).fits.tolist() == [False]

    def test_only_chosen_groups_are_predicted(self) -> None:
        dataset = build_dataset([ROW, ROW | {"layers": "12"}], stack_of)
        result = predict(dataset, stack_of, efficiency_of, groups=[1])
        assert np.isnan(result.step_s).tolist() == [True, False]


def test_measurements_are_not_numbers_where_they_are_not_stated() -> None:
    dataset = build_dataset([ROW, ROW | {"step_time_s": "", "memory_gib": ""}], stack_of)
    values = measured(dataset)
    assert values["step_s"][0] == 3.5
    assert values["memory_bytes"][0] == 41.5 * 2**30
    assert np.isnan(values["step_s"][1])
    assert np.isnan(values["memory_bytes"][1])
