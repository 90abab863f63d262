"""Plans that break a rule: the message names the operator, the device and the rule."""

import pytest

from tests.laws.plans import setting_of, tiny
from trainwright.errors import BadInput
from trainwright.plan.text import parse_plan
from trainwright.program.lower import lower
from trainwright.program.tabulate import tabulate
from trainwright.simulate.deadlock import Deadlock
from trainwright.simulate.simulate import simulate


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("assign embedding,layer.0-1 0", 'op "head/final_norm": is not assigned to a device; add an assign'),
        ("devices 2\nassign * 0\nassign head 1", 'op "head/final_norm": is assigned twice'),
        ("devices 2\nassign * 0,2", r"assign \*: device 2: the plan has devices 0 to 1"),
        ("devices 2\nassign * 0,0", "names a device twice"),
        ("devices 16\nsplit * batch 16\nbatch 16", "plan devices 16: the cluster has 8"),
        (
            "devices 3\nsplit * batch 3\nbatch 4",
            'split "batch 3": 4 does not divide into 3; choose a divisor',
        ),
        (
            "devices 2\nreplicate * 2\nsplit layer.0/norm1 hidden 2",
            'op layer.0/norm1: split "hidden": it is not linear in hidden, so parts cannot be summed; '
            "split it along batch, seq",
        ),
        (
            "devices 2\nreplicate * 2\nsplit layer.1/attention.core seq_kv 2",
            "op layer.1/attention.core: split .* it is not linear in seq_kv",
        ),
        (
            "devices 2\nreplicate * 2\nsplit layer.0/ffn.up vocab 2",
            "op layer.0/ffn.up: split .* it has no dim vocab",
        ),
        (
            "devices 2\nreplicate * 2\nsplit */ffn.up ffn 5:10",
            'op layer.0/ffn.up: split "ffn 5:10": the parts add up to 15, the dim to 16; let them agree',
        ),
        (
            "devices 2\nreplicate * 2\nsplit */attention.qkv heads 1:3",
            'split "heads 1:3": kv_heads is split with it, into other sizes',
        ),
        ("devices 2\nreplicate layer.0-1 2", 'op "embedding/embedding": has 1 parts for 2 devices'),
        ("devices 2\nsplit * batch 2\nbatch 2\nstage layer.0-1", 'op "embedding/embedding": is in no stage'),
        ("recompute */ffn.up ffn.down.out", 'result "ffn.down.out": it makes ffn.gate.out, ffn.up.out'),
        ("stage *\nstage head", 'op "head/final_norm": is in two stages'),
        (
            "devices 2\nbatch 2\nsplit * batch 2\nshard * weights\nshard * gradients 1",
            "shard both over the same number",
        ),
        ("devices 3\nbatch 3\nsplit * batch 3\nshard * gradients 2", "its 3 copies do not divide by 2"),
        (
            "microbatches 2\nassign * 0 route 0/2\nassign * 0 route 1/2\nassign head 0 route 0/3",
            "routes disagree",
        ),
    ],
)
def test_a_plan_that_breaks_a_rule_is_refused(text: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        lower(setting_of(tiny("llama")), parse_plan(text))


def test_a_tied_weight_that_lies_in_two_ways_is_refused() -> None:
    text = "devices 2\nsplit embedding vocab 2\nreplicate layer.0-1,head 2"
    with pytest.raises(BadInput, match=r'weight "embedding.weight": is also the weight of head/logits'):
        lower(setting_of(tiny("tied")), parse_plan(text))


def test_orders_that_wait_for_each_other_are_reported_as_the_cycle() -> None:
    text = """
    devices 2
    microbatches 2
    stage embedding,layer.0
    stage layer.1,head
    assign embedding,layer.0 0
    assign layer.1,head 1
    order 0: F0.0 B0.0 F0.1 B0.1
    order 1: F1.1 F1.0 B1.0 B1.1
    """
    # Device 0 waits for the backward of microbatch 0, device 1 for the forward of microbatch 1.
    with pytest.raises(Deadlock, match=r"of microbatch 1 on device 1.*of microbatch 0 on device 0"):
        simulate(tabulate(lower(setting_of(tiny("llama")), parse_plan(text))))
