"""The spaces that systems are compared by: what each of them may use, and what none of 2022 had."""

import numpy as np
import pytest

from tests.unit.search.test_flexible import setting
from trainwright.plan.strategy import OFFLOADS, RECOMPUTES, Strategies
from trainwright.search.find import space_of
from trainwright.search.findings import Findings
from trainwright.search.space import legal_strategies
from trainwright.study.flexible_plans import RIVALS
from trainwright.study.systems import SYSTEMS, best_of, question_of


def space(name: str) -> Strategies:
    findings = Findings(setting=setting(devices=8))
    return legal_strategies(space_of(question_of(SYSTEMS[name], findings, 16), 16))


@pytest.mark.parametrize("name", [each for each in RIVALS if each != "dap-2022"])
def test_no_system_of_2022_splits_tokens_or_recomputes_a_part(name: str) -> None:
    found = space(name)
    assert set(found.cp.tolist()) == {1}
    assert set(found.shard.tolist()) == {0}
    assert set(found.recompute_layers.tolist()) == {0}
    assert RECOMPUTES.index("selective") not in found.recompute


def test_megatron_has_pipelines_and_no_more_than_zero_1() -> None:
    found = space("megatron-2022")
    assert set(found.zero.tolist()) == {0, 1}
    assert found.pp.max() == 8
    assert not found.sp.any()


def test_deepspeed_has_every_zero_with_tensors_split_and_the_optimizer_on_the_host() -> None:
    found = space("deepspeed-2022")
    assert set(found.zero.tolist()) == {0, 1, 2, 3}
    assert set(found.tp.tolist()) == {1, 2, 4, 8}
    assert set(found.pp.tolist()) == {1}
    assert set(found.offload.tolist()) == {OFFLOADS.index("none"), OFFLOADS.index("optimizer")}


def test_alpa_may_split_kinds_of_layers_apart_but_does_all_of_them_again_or_none() -> None:
    freedoms = SYSTEMS["alpa-2022"].freedoms
    assert freedoms is not None
    assert freedoms.per_layer
    assert freedoms.uniform
    assert {freedoms.chunks, freedoms.interlaced, freedoms.recycles, freedoms.offload} == {False}


def test_every_knob_of_today_includes_the_systems() -> None:
    every = {tuple(row) for row in _rows(space("knobs"))}
    for name in ("megatron-2022", "deepspeed-2022", "alpa-2022"):
        assert {tuple(row) for row in _rows(space(name))} <= every


def test_axial_parallelism_is_for_models_with_alignments() -> None:
    assert best_of(SYSTEMS["dap-2022"], Findings(setting=setting()), 16) is None


def _rows(found: Strategies) -> list[list[int]]:
    columns = [getattr(found, name) for name in Strategies.__dataclass_fields__]
    return np.stack(columns, axis=1).tolist()  # type: ignore[no-any-return]
