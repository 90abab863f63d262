"""Rungs of recomputation and offloading, and which can be left out once another fits."""

from dataclasses import replace

import pytest

from tests.builders import gpt
from trainwright.plan.strategy import OFFLOADS, RECOMPUTES
from trainwright.search.ladder import Rung, bottom, never_slower, rungs, without_gpipe
from trainwright.search.space import Space

FULL = RECOMPUTES.index("full")


def space(**fixed: tuple[int, ...]) -> Space:
    return Space(graph=gpt(), devices=8, seq=1024, global_batch=32, fixed=fixed, most={})


def rung(recompute: str, offload: str = "none", *, counted: bool = False) -> Rung:
    choice, moved = RECOMPUTES.index(recompute), OFFLOADS.index(offload)
    return Rung(recompute=choice, layers=0, offload=moved, counted=counted)


def some(offload: str) -> Rung:
    """With activations of some layers on the host."""
    return replace(rung("none", offload), counts_offloaded=True)


@pytest.mark.parametrize(
    ("less", "more"),
    [
        (rung("none"), rung("selective")),
        (rung("norm"), rung("selective")),
        (rung("norm+act"), rung("norm+act+moe", "optimizer")),
        (rung("none"), rung("full", counted=True)),
        (rung("none", "optimizer"), rung("full", "both")),
        (rung("selective"), rung("selective", "activations")),
        (rung("full"), rung("full", "both")),
        (rung("none"), some("activations")),
        (rung("none", "optimizer"), some("both")),
    ],
)
def test_less_is_never_slower(less: Rung, more: Rung) -> None:
    assert never_slower(less, more)


@pytest.mark.parametrize(
    ("less", "more"),
    [
        (rung("none", "activations"), rung("full", "activations")),  # which has less to move
        (rung("mlp"), rung("selective")),  # neither contains the other
        (rung("selective"), rung("norm")),
        (rung("norm", "activations"), rung("selective", "activations")),
        (rung("selective"), rung("full", counted=True)),  # one layer of many may be quicker than a bit of all
        (
            rung("full", counted=True),
            rung("full", "optimizer", counted=True),
        ),  # which may recompute fewer layers
        (rung("none", "optimizer"), rung("none", "activations")),
        (rung("none", "both"), rung("none", "optimizer")),
        (some("activations"), some("both")),  # which may offload fewer layers
    ],
)
def test_what_may_go_either_way_is_not_ordered(less: Rung, more: Rung) -> None:
    assert not never_slower(less, more)


def test_a_free_space_starts_with_nothing_recomputed_or_moved() -> None:
    assert bottom(space()) == rung("none")
    assert len(rungs(space())) == 4 * 4


@pytest.mark.parametrize("fixed", [{"offload": (2,)}, {"offload": (1, 2)}, {"recompute": (1, FULL)}])
def test_some_spaces_have_no_fastest_rung(fixed: dict[str, tuple[int, ...]]) -> None:
    assert bottom(space(**fixed)) is None


def test_layers_are_counted_where_activations_stay_and_nothing_is_fixed() -> None:
    assert [OFFLOADS[each.offload] for each in rungs(space()) if each.counted] == ["none", "optimizer"]
    assert not any(each.counted for each in rungs(space(recompute=(FULL,))))
    assert {each.layers for each in rungs(space(recompute_layers=(0, 2, 3)))} == {0, 2, 3}


def test_offloaded_layers_are_counted_where_the_software_counts_and_no_number_is_fixed() -> None:
    counting = replace(space(), counts_offloaded_layers=True)
    found = [
        OFFLOADS[each.offload] for each in rungs(counting) if each.counts_offloaded and not each.recompute
    ]
    assert found == ["activations", "both"]
    assert not any(each.counts_offloaded for each in rungs(space()))
    fixed = replace(counting, fixed={"offload_layers": (2, 3)})
    assert not any(each.counts_offloaded for each in rungs(fixed))
    assert {each.offload_layers for each in rungs(fixed)} == {2, 3}


def test_gpipe_is_left_out_only_beside_1f1b() -> None:
    assert without_gpipe(space()).fixed["schedule"] == (1, 2, 3)
    assert without_gpipe(space(schedule=(0, 3))).fixed["schedule"] == (0, 3)
