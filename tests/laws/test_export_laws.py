"""Laws of handing plans over: nothing is dropped in silence, and what is read back is the same plan."""

import os
from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from trainwright.errors import BadInput
from trainwright.export.canonical import canonical
from trainwright.export.gaps import Gap, capability_gaps, target_capability, without
from trainwright.export.handover import Handover
from trainwright.export.reading.configured import StatedSettings
from trainwright.export.reading.read import read_text
from trainwright.export.targets import TARGETS, export_text
from trainwright.model.load import load_model
from trainwright.plan.mapping import ORDERS
from trainwright.plan.strategy import (
    ACTIVATION_OFFLOADS,
    CP_KINDS,
    OFFLOADS,
    PRECISIONS,
    RECOMPUTES,
    Strategy,
)
from trainwright.stack.capability import ANY, Capability

MORE = 10 if os.environ.get("THOROUGH") else 1
READABLE = tuple(sorted({*TARGETS} - {"torchrun", "slurm"}))
NEED_MODEL = ("trainwright",)
NAMES = {
    "megatron-bridge": "plan.py", "nemo": "plan.py", "torchtitan": "plan.py", "torchtitan-toml": "plan.toml",
    "nanotron": "plan.yaml", "nanotron-0.4": "plan.yaml", "maxtext": "plan.yaml", "accelerate": "plan.yaml",
}  # fmt: skip
LLAMA, MIXTRAL, UNEVEN = (load_model(name) for name in ("llama3-8b", "mixtral-8x7b", "deepseek-v3"))


def degrees(*values: int) -> st.SearchStrategy[int]:
    return st.sampled_from(values)


@st.composite
def strategies(draw: st.DrawFn) -> Strategy:
    """Any strategy that makes sense in itself, whatever tool could run it."""
    dp, cp, pp = draw(degrees(1, 2, 3, 4, 8)), draw(degrees(1, 2, 4)), draw(degrees(1, 2, 3, 4))
    schedule = draw(st.sampled_from(["1f1b", "interleaved", "gpipe", "zb"])) if pp > 1 else "1f1b"
    recompute = draw(st.sampled_from(RECOMPUTES))
    offload = draw(st.sampled_from(OFFLOADS))
    shards = [each for each in range(2, dp * cp) if dp * cp % each == 0]
    return Strategy(
        dp=dp, tp=draw(degrees(1, 2, 4, 8)), sp=draw(st.booleans()), cp=cp, pp=pp,
        cp_kind=draw(st.sampled_from(CP_KINDS)) if cp > 1 else "ring",
        vpp=draw(degrees(1, 2, 4)) if schedule == "interleaved" else 1, schedule=schedule,
        ep=draw(degrees(1, 2, 4)), etp=draw(degrees(1, 2)), zero=draw(degrees(0, 1, 2, 3)),
        shard=draw(st.sampled_from([0, *shards])), micro_batch=draw(degrees(1, 2, 4)), recompute=recompute,
        recompute_layers=draw(degrees(0, 2, 3)) if recompute == "full" else 0,
        offload=offload, offload_layers=draw(degrees(0, 2, 5)) if offload in ACTIVATION_OFFLOADS else 0,
        precision=draw(st.sampled_from(PRECISIONS)),
        overlap=draw(st.booleans()), order=draw(st.sampled_from([ORDERS[0], ORDERS[0], *ORDERS])),
    )  # fmt: skip


@st.composite
def handovers(draw: st.DrawFn) -> Handover:
    strategy = draw(strategies())
    arch = draw(st.sampled_from([None, LLAMA, MIXTRAL, UNEVEN]))
    if arch is LLAMA:  # which has no experts
        strategy = replace(strategy, ep=1, etp=1)
    return Handover(
        strategy=strategy, global_batch=strategy.dp * strategy.micro_batch * draw(degrees(1, 8)),
        architecture=arch, model=arch.name if arch else None, seq=draw(st.sampled_from([1024, 8192])),
    )  # fmt: skip


def capability(to: str) -> Capability:
    return target_capability(TARGETS[to].stack) if TARGETS[to].stack else ANY


def legal(handover: Handover, to: str) -> Handover:
    """A handover that the target's stack can run, changed where it cannot."""
    able = capability(to)
    for _ in range(8):
        gaps = list(capability_gaps(handover, able))
        if not gaps:
            return handover
        if any(gap.knob.startswith("model") for gap in gaps):
            handover = replace(handover, architecture=None, model=None)
        knobs = {gap.knob for gap in gaps if not gap.knob.startswith("model")}
        handover = replace(handover, strategy=_changed(handover.strategy, knobs, able))
        unit = handover.strategy.dp * handover.strategy.micro_batch * handover.strategy.pp
        handover = replace(handover, global_batch=unit * 4)
    assume(False)
    raise AssertionError


def _changed(strategy: Strategy, knobs: set[str], able: Capability) -> Strategy:
    """A strategy with other values of some knobs: those that a stack has, or the defaults."""
    found = without(strategy, [Gap(knob=knob, value="", reason="") for knob in knobs])
    if "zero" in knobs or "shard" in knobs:
        found = replace(found, zero=max(able.zeros) if strategy.zero == 0 or found.ep > 1 else 0, shard=0)
    if "cp_kind" in knobs and found.cp > 1:
        found = replace(found, cp_kind="ring" if strategy.cp_kind == "allgather" else "allgather")
    if "sp" in knobs:
        found = replace(found, sp=not strategy.sp)
    if "overlap" in knobs:
        found = replace(found, overlap=not strategy.overlap)
    if "schedule" in knobs and found.pp > 1:
        found = replace(found, schedule=next(each for each in able.schedules if each != "interleaved"), vpp=1)
    if "offload" in knobs and found.zero == 0 and "optimizer" in able.offloads:
        found = replace(found, offload="none")
    return found


@pytest.mark.parametrize("to", READABLE)
@settings(max_examples=40 * MORE, deadline=None)
@given(handover=handovers())
def test_a_plan_exported_and_read_back_is_the_same_plan(to: str, handover: Handover) -> None:
    """Whatever the tool can run: recomputation, offload, precisions, hybrid shards, uneven stages, orders."""
    if to in NEED_MODEL and handover.architecture is None:
        handover = replace(handover, architecture=LLAMA, model=LLAMA.name)
        handover = replace(handover, strategy=replace(handover.strategy, ep=1, etp=1))
    told = legal(handover, to)
    assume(to not in NEED_MODEL or told.architecture is not None)
    stated = StatedSettings(devices=told.strategy.devices)
    found = read_text(export_text(told, to), NAMES.get(to, "exported"), stated=stated)
    assert canonical(found.strategy) == canonical(told.strategy)
    assert not any("considered" in note or "predicted" in note for note in found.notes)
    assert (found.global_batch, found.seq or told.seq) == (told.global_batch, told.seq)
    assert found.refused == ()


@pytest.mark.parametrize("to", sorted({*TARGETS} - {"torchrun", "trainwright"}))
@settings(max_examples=8 * MORE, deadline=None)
@given(handover=handovers())
def test_leniently_everything_is_exported_and_every_gap_is_named(to: str, handover: Handover) -> None:
    handover = replace(handover, architecture=None, model=None)
    gaps = list(capability_gaps(handover, capability(to))) if TARGETS[to].stack else []
    text = export_text(handover, to, lenient=True)
    for gap in gaps:
        assert f"NOT EXPRESSED: {gap}" in text
    if gaps:
        with pytest.raises(BadInput, match="cannot express plan"):
            export_text(handover, to)


@pytest.mark.parametrize("to", sorted({*TARGETS} - {"torchrun", "trainwright"}))
@settings(max_examples=25 * MORE, deadline=None)
@given(handover=handovers(), data=st.data())
def test_no_knob_is_dropped_in_silence(to: str, handover: Handover, data: st.DataObject) -> None:
    """Two plans that are not the same never give the same text, their heading left out."""
    first = legal(replace(handover, architecture=None, model="m" if to == "slurm" else None), to)
    other = data.draw(strategies())
    knob = data.draw(st.sampled_from([*Strategy.__dataclass_fields__]))
    try:
        changed = replace(first.strategy, **{knob: getattr(other, knob)})
        second = replace(first, strategy=changed, global_batch=first.global_batch)
        text = export_text(second, to)
    except BadInput:
        assume(False)
    if canonical(changed) != canonical(first.strategy):
        assert _body(text) != _body(export_text(first, to))


def _body(text: str) -> str:
    """A text without the line that repeats the strategy."""
    return "\n".join(line for line in text.splitlines() if "a global batch of" not in line)
