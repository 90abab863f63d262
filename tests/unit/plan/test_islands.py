"""Islands in the language of plans."""

from dataclasses import replace

import pytest

from trainwright.algorithm.registry import parse_algorithm
from trainwright.errors import BadInput, UnknownName
from trainwright.plan.islands import algorithm_of, island_plan, islands_of, parse_island_algorithm, set_apart
from trainwright.plan.plan import Apart, Plan, Synchronise
from trainwright.plan.text import parse_plan, render_plan

INNER = Plan(name="dp4", devices=4, batch=4, microbatches=2)


@pytest.mark.parametrize(
    "text",
    [
        "diloco every=50 rate=0.7 momentum=0.9",
        "local-sgd every=8 exact=0",
        "streaming-diloco every=50 fragments=4 delay=2 mixed=0.5 rate=0.7 momentum=0.9",
        "ist every=20 coverage=0.5 warmup=0 finish=10 scale=share",
        "compressed by=rand-k share=0.1 levels=7 feedback=no",
        "power-sgd rank=8",
        "ef21 by=top-k share=0.05 levels=7",
    ],
)
def test_a_plan_of_islands_is_read_back_as_it_was_written(text: str) -> None:
    algorithm = parse_algorithm(text)
    plan = set_apart(INNER, algorithm, 2)
    assert parse_plan(render_plan(plan)) == plan
    assert islands_of(plan) == 2
    assert algorithm_of(plan) == algorithm
    assert island_plan(plan) == INNER


def test_subnetworks_set_heads_and_neurons_apart_and_others_only_samples() -> None:
    plan = set_apart(INNER, parse_algorithm("ist"), 3)
    assert [each.dim for each in plan.transforms if isinstance(each, Apart)] == ["batch", "heads", "ffn"]
    plan = set_apart(INNER, parse_algorithm("diloco"), 3)
    assert plan.transforms == (Apart(ops="*", dim="batch", parts=3),)


@pytest.mark.parametrize(
    ("lines", "match"),
    [
        ("apart * batch 2", "how they meet"),
        ("synchronise every 50 by diloco", "how many islands"),
        ("apart * batch 1\nsynchronise every 50 by diloco", "2 or more"),
        ("apart * batch 2\napart @ffn ffn 2\nsynchronise every 50 by diloco", "sets apart ffn"),
        ("apart * batch 2\nsynchronise every 50 by ist", "sets apart no units"),
        ("apart * batch 2\napart @attention heads 4\nsynchronise every 9 by ist", "not one count"),
    ],
)
def test_statements_about_islands_must_agree(lines: str, match: str) -> None:
    with pytest.raises(BadInput, match=match):
        islands_of(parse_plan(lines))


def test_what_islands_cannot_be_is_told() -> None:
    with pytest.raises(BadInput, match="no such name; known: batch, ffn, heads"):
        parse_plan("apart * seq 2")
    with pytest.raises(BadInput, match="every so many steps"):
        parse_plan("synchronise sometimes by diloco")
    with pytest.raises(BadInput, match="takes most gradients twice"):
        parse_island_algorithm("marina")
    with pytest.raises(BadInput, match="is exact training, which is planned"):
        parse_island_algorithm("ddp")
    with pytest.raises(BadInput, match="tells something in every step, and the plan says every 5"):
        algorithm_of(replace(INNER, synchronise=Synchronise(every=5, by="power-sgd rank=2")))
    with pytest.raises(UnknownName, match="hyperparameter of diloco"):
        algorithm_of(replace(INNER, synchronise=Synchronise(every=5, by="diloco speed=2")))
