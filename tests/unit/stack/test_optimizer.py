"""Optimizers of each stack: bytes per parameter counted by hand, and one line on what a stack has."""

import re
from pathlib import Path

import pytest

import trainwright.web as web
from trainwright.cost.chosen_optimizer import check_optimizer, with_optimizer
from trainwright.cost.load import load_constants
from trainwright.cost.state import StateWidths, state_widths
from trainwright.errors import BadInput
from trainwright.stack.load import capability_of, stack_entries
from trainwright.stack.optimizer import GRADIENT_BYTES, OPTIMIZERS

OPTIONS = ("--optimizer", "--grad-dtype")


def widths(
    stack: str, optimizer: str = "", grad_dtype: str = "", precision: str = "bf16", family: str = "hopper"
) -> StateWidths:
    chosen = with_optimizer(load_constants().stack(stack), optimizer, grad_dtype)
    return state_widths(chosen, family, precision)


@pytest.mark.parametrize(
    ("stack", "weight", "gradient", "optimizer"),
    [
        ("megatron-core", 2, 4, 12),  # 18 bytes: 2 + 4 + 4 (master) + 8
        ("nemo", 2, 4, 12),
        ("torchtitan", 2, 4, 10),  # 16 bytes: 4 (of which 2 count as weight) + 4 + 8
        ("maxtext", 2, 4, 10),
        ("llm-foundry", 2, 4, 10),
        ("accelerate", 2, 4, 10),
        ("nanotron", 2, 6, 12),  # fp32 sums beside the gradients of a microbatch
        ("deepspeed", 2, 6, 12),  # bf16 gradients beside fp32 sums
    ],
)
def test_a_stacks_own_state(stack: str, weight: float, gradient: float, optimizer: float) -> None:
    found = widths(stack)
    assert (found.weight, found.stored, found.gradient) == (weight, weight, gradient)
    assert (found.optimizer, found.end_optimizer) == (optimizer, optimizer)


@pytest.mark.parametrize(
    ("optimizer", "bf16", "fp8", "fp32"),
    [
        ("adamw", 4 + 8, 4 + 8, 8),
        ("adamw-bf16", 4 + 4, 4 + 4, 4),
        ("adamw-8bit", 4 + 2 * (1 + 4 / 2048), 4 + 2 * (1 + 4 / 2048), 2 * (1 + 4 / 2048)),
        ("precision-aware", 2 + 8, 4 + 8, 8),  # the 16 missing bits of bf16 weights; of fp8 ones all 32
        ("precision-aware-bf16", 2 + 4, 4 + 4, 4),
        ("precision-aware-fp8", 2 + 2, 4 + 2, 2),
        ("muon", 4 + 4, 4 + 4, 4),
        ("adafactor", 4, 4, 0),
        ("sgd", 4 + 4, 4 + 4, 4),
        ("lion", 4 + 4, 4 + 4, 4),
    ],
)
def test_each_optimizer_on_megatron(optimizer: str, bf16: float, fp8: float, fp32: float) -> None:
    found = {precision: widths("megatron-core", optimizer, "", precision) for precision in ("bf16", "fp8")}
    assert found["bf16"].optimizer == pytest.approx(bf16)
    assert found["fp8"].optimizer == pytest.approx(fp8)
    assert widths("megatron-core", optimizer, "", "fp32").optimizer == pytest.approx(fp32)


def test_muon_leaves_the_ends_to_adamw() -> None:
    assert widths("torchtitan", "muon").optimizer == 2 + 4
    assert widths("torchtitan", "muon").end_optimizer == 2 + 8


def test_moments_of_16_bits_in_torchtitan_make_12_bytes() -> None:
    found = widths("torchtitan", "adamw-bf16")
    assert found.weight + found.gradient + found.optimizer == 12  # 4 + 4 + 2 + 2


@pytest.mark.parametrize(
    ("stack", "dtype", "kept", "sent"),
    [
        ("megatron-core", "bf16", 2, 2),
        ("megatron-core", "fp32", 4, 4),
        ("deepspeed", "fp32", 6, 4),  # sums beside 16-bit gradients
        ("deepspeed", "bf16", 2, 2),
        ("aleph-alpha-scaling", "fp32", 4, 4),
    ],
)
def test_gradients_as_stated(stack: str, dtype: str, kept: float, sent: float) -> None:
    found = widths(stack, "", dtype)
    assert (found.gradient, found.reduced) == (kept, sent)


def test_stated_gradients_hold_in_fp16_too() -> None:
    assert widths("megatron-core", "", "", "fp16").gradient == 2
    assert widths("megatron-core", "", "fp32", "fp16").gradient == 4


@pytest.mark.parametrize(
    ("precision", "family", "stored"),
    [
        ("bf16", "hopper", 2),
        ("fp8", "hopper", 1 + 1),  # the weight and its transpose
        ("fp8", "blackwell", 2 * (1 + 1 / 32)),  # mxfp8 by row and by column
        ("fp4", "blackwell", 2 * (1 / 2 + 1 / 16)),  # nvfp4 by row and by column
    ],
)
def test_low_weights_of_megatron_by_device(precision: str, family: str, stored: float) -> None:
    found = widths("megatron-core", precision=precision, family=family)
    assert (found.weight, found.stored) == (2, stored)
    assert widths("torchtitan", precision=precision, family=family).stored == 2


def test_a_host_updates_in_fp32_whatever_the_device_would_keep() -> None:
    # Master and two moments, and the gradient, read and written; the weight written.
    assert widths("megatron-core", "precision-aware-bf16", "bf16").host_traffic == 2 * 12 + 2 * 4 + 2
    assert widths("megatron-core").host_traffic == 2 * 12 + 2 * 4 + 2


@pytest.mark.parametrize("stack", sorted(stack_entries()))
def test_what_a_stack_lacks_is_one_line_with_what_it_has(stack: str) -> None:
    able = capability_of(stack)
    for optimizer in OPTIMIZERS:
        if optimizer in able.optimizers:
            check_optimizer(able, optimizer, "", OPTIONS)
            continue
        with pytest.raises(BadInput, match=re.escape(f"has {', '.join(able.optimizers)}")):
            check_optimizer(able, optimizer, "", OPTIONS)
    with pytest.raises(BadInput, match=r'^--optimizer "adamm": .* has adamw'):
        check_optimizer(able, "adamm", "", OPTIONS)
    for dtype in GRADIENT_BYTES:
        if dtype not in able.grad_dtypes:
            with pytest.raises(BadInput, match=f"has {', '.join(able.grad_dtypes)}"):
                check_optimizer(able, "", dtype, OPTIONS)


def test_every_stack_runs_adamw_unless_stated() -> None:
    assert {entry.capability.optimizers[0] for entry in stack_entries().values()} == {"adamw"}


def test_each_optimizer_has_a_source_and_the_page_lists_them_all() -> None:
    assert all(each.source for each in OPTIMIZERS.values())
    page = (Path(web.__file__).parent / "static" / "app.js").read_text(encoding="utf-8")
    listed = re.search(r"const OPTIMIZERS = \[(.*?)\];", page)
    assert listed
    assert [each.strip(' "') for each in listed[1].split(",")] == [*OPTIMIZERS]
