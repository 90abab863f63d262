import pytest

from tests.builders import gpt
from tests.unit.plan.zoo_runs import experts, fold, plan_of, program_of, run, timeline_of, two_stacks
from trainwright.errors import BadInput, UnknownName
from trainwright.model.build import build_graph
from trainwright.model.flow import wire
from trainwright.model.load import load_model
from trainwright.plan.plan import Plan
from trainwright.plan.select import select
from trainwright.plan.text import parse_plan, render_plan
from trainwright.plan.zoo import ZOO, build_zoo, parse_zoo, render_zoo
from trainwright.program.lower import Program
from trainwright.simulate.memory import peaks

MODELS = {
    "gpt": lambda: gpt(layers=8, heads=16),
    "experts": experts,
    "two stacks": two_stacks,
    "fold": fold,
    "dlrm": lambda: build_graph(load_model("dlrm-mlperf")),
    "swin": lambda: build_graph(load_model("swinv2-base")),
}
CASES = [
    ("data-parallel", "gpt"),
    ("data-parallel", "fold"),
    ("zero-1", "gpt"),
    ("zero-2", "gpt"),
    ("zero-3 recompute=full", "gpt"),
    ("fsdp", "gpt"),
    ("hsdp shard=4", "gpt"),
    ("tensor-parallel", "gpt"),
    ("tensor-parallel tp=2 zero=1", "swin"),
    ("sequence-parallel tp=4", "gpt"),
    ("context-parallel", "gpt"),
    ("context-parallel kind=allgather cp=4 tp=2", "gpt"),
    ("context-parallel kind=ulysses", "gpt"),
    ("context-parallel kind=ulysses cp=4 tp=2", "gpt"),
    ("expert-parallel", "experts"),
    ("expert-parallel ep=4 pp=2", "experts"),
    ("table-parallel", "dlrm"),
    ("table-parallel tables=2 rows=2 columns=2 zero=1", "dlrm"),
    ("gpipe pp=4 tp=2", "gpt"),
    ("gpipe pp=4", "swin"),
    ("1f1b pp=4", "two stacks"),
    ("1f1b pp=4 zero=3 recompute=full", "gpt"),
    ("interleaved pp=4", "gpt"),
    ("looped-bfs pp=2 vpp=4 zero=1", "gpt"),
    ("zb-h1 pp=4", "gpt"),
    ("zb-v pp=4", "gpt"),
    ("dualpipe pp=4", "gpt"),
    ("dualpipe pp=4 zero=1", "gpt"),
    ("dualpipe-v pp=4 tp=2", "gpt"),
    ("chimera pp=4", "gpt"),
    ("chimera pp=4 zero=3", "gpt"),
    ("co-shard tp=2 chunks=4", "gpt"),
    ("co-shard chunks=2 regions=ffn layers=0-3 zero=1", "gpt"),
    ("co-shard chunks=2 pp=2 tp=2", "gpt"),
    ("co-shard chunks=2 tp=2", "swin"),
    ("interlaced pp=4", "gpt"),
    ("interlaced pp=4 tp=2", "gpt"),
    ("interlaced pp=4", "two stacks"),
    ("3f1b pp=4", "fold"),
    ("3f1b pp=2 tp=2", "fold"),
    ("per-layer layers=0-3:tp4dp2,4-:tp2dp4", "gpt"),
    ("mixed pp=2 counts=3:5 again=layer.0-3 chunked=layer.4-5 chunks=2", "gpt"),
    ("uneven-stages pp=4", "gpt"),
    ("uneven-stages pp=4 counts=1:2:2:3", "gpt"),
    ("recompute", "gpt"),
    ("recompute ops=layer.0-3,*/%attention pp=2", "gpt"),
    ("offload", "gpt"),
    ("offload what=both", "gpt"),
]


def test_every_plan_of_the_zoo_is_run_below() -> None:
    assert {text.split()[0] for text, _ in CASES} == set(ZOO)


@pytest.mark.parametrize(("text", "model"), CASES)
def test_a_plan_of_the_zoo_lowers_and_simulates(text: str, model: str) -> None:
    timeline = run(text, MODELS[model](), batch=32)
    assert timeline.step_s > 0.0
    assert (peaks(timeline).peak_bytes > 0.0).all()


@pytest.mark.parametrize(("text", "model"), CASES)
def test_a_plan_of_the_zoo_is_a_value_with_a_text(text: str, model: str) -> None:
    plan = plan_of(text, MODELS[model]())
    assert plan.name == text
    assert parse_plan(render_plan(plan)) == plan


@pytest.mark.parametrize(("text", "model"), CASES)
def test_every_operator_is_in_one_stage_on_every_route(text: str, model: str) -> None:
    graph = MODELS[model]()
    plan, instances = plan_of(text, graph), wire(graph)
    if not plan.stages:
        return
    everywhere = list(range(len(instances)))
    assert sorted(index for stage in plan.stages for index in select(instances, stage.ops)) == everywhere
    for route in range(plan.assigns[0].route[1]):
        mine = [assign for assign in plan.assigns if assign.route[0] == route]
        assert sorted(index for each in mine for index in select(instances, each.ops)) == everywhere


def test_a_model_that_recycles_goes_through_1f1b_three_times() -> None:
    graph = fold()
    plain, recycling = (plan_of(f"{name} pp=4", graph) for name in ("1f1b", "3f1b"))
    assert plain.orders == recycling.orders
    with pytest.raises(BadInput, match="the model has 3 forwards a step; use 1f1b"):
        plan_of("gpipe pp=4", graph)


def test_parameters_are_read_as_their_defaults_are() -> None:
    name, parameters = parse_zoo("interlaced pp=4 forward=1.5 sp mb=2 counts=1:2:3:2 overlap=false")
    assert name == "interlaced"
    assert parameters == {
        "pp": 4, "forward": 1.5, "sp": True, "micro_batch": 2, "counts": "1:2:3:2", "overlap": False,
    }  # fmt: skip
    assert parse_zoo(render_zoo(name, parameters)) == (name, parameters)


def test_unknown_names_and_parameters_suggest_known_ones() -> None:
    with pytest.raises(UnknownName, match='"co-shart": no such name; did you mean "co-shard"'):
        parse_zoo("co-shart")
    with pytest.raises(UnknownName, match='"chunk": no such name; did you mean "chunks"'):
        parse_zoo("co-shard chunk=4")
    with pytest.raises(UnknownName, match='"zero": no such name'):
        build_zoo("zero-1", gpt(), 8, 8, zero=2)


def test_parameters_that_cannot_be_are_explained() -> None:
    with pytest.raises(BadInput, match='pp "many": is not a whole number'):
        parse_zoo("gpipe pp=many")
    with pytest.raises(BadInput, match="pp is stated twice"):
        parse_zoo("gpipe pp=2 pp=4")
    with pytest.raises(BadInput, match="does not divide 8 devices"):
        plan_of("tensor-parallel tp=3", gpt())
    with pytest.raises(BadInput, match="the model has no experts"):
        plan_of("expert-parallel", gpt())
    with pytest.raises(BadInput, match="is in no range"):
        plan_of("per-layer layers=0-3:tp4dp2", gpt())
    with pytest.raises(BadInput, match="do not add up to the model's 8 layers"):
        plan_of("uneven-stages pp=2 counts=3:4", gpt())


@pytest.mark.parametrize(("schedule", "stages"), [("1f1b", 2), ("zb-v", 4)])
def test_counts_for_another_number_of_stages_are_refused(schedule: str, stages: int) -> None:
    with pytest.raises(BadInput, match=f"{schedule} on 2 rows has {stages} stages"):
        plan_of(f"mixed pp=2 schedule={schedule} counts=2:2:4", gpt())


def test_per_layer_degrees_trade_one_split_for_the_other_where_ranges_meet() -> None:
    graph = gpt(layers=4)
    steps = program_of(plan_of("per-layer layers=0-1:tp4dp2,2-:tp2dp4", graph), graph).routes[0].steps
    # Batch in 2 parts, four times each, becomes 4 parts, twice each: sliced; its gradient is gathered.
    assert [(each.phase, each.kind) for each in steps if each.kind in ("slice", "all_gather")] == [
        ("F", "slice"), ("I", "all_gather"),
    ]  # fmt: skip


def test_ulysses_trades_tokens_for_heads_around_attention() -> None:
    graph = gpt(layers=1)
    steps = program_of(plan_of("context-parallel kind=ulysses", graph), graph).routes[0].steps
    moves = [each for each in steps if each.cause == "cp"]
    assert {each.kind for each in moves} == {"all_to_all"}
    # Forward: queries, keys with values, the result. Backward: the gradient of each.
    assert sum(each.phase == "F" for each in moves) == 3
    assert sum(each.phase == "I" for each in moves) == 4


def test_bidirectional_pipelines_sum_both_copies_of_a_stage_once_a_step() -> None:
    graph = gpt(layers=8)
    program = program_of(plan_of("chimera pp=4", graph, devices=4), graph)
    assert len(program.routes) == 2
    for route in program.routes:
        sums = [each for each in route.steps if each.phase == "S"]
        assert {each.kind for each in sums} == {"all_reduce"}
        assert {frozenset(each.groups[0]) for each in sums} == {frozenset({0, 3}), frozenset({1, 2})}


def test_the_sum_of_two_copies_waits_for_both() -> None:
    graph = gpt(layers=8)
    timeline = timeline_of(program_of(plan_of("chimera pp=4", graph, devices=4, batch=8), graph))
    table = timeline.table
    names = [table.labels[label] for label in table.label]
    # Stage 0 is on rows 0 and 3, its sum one bucket that starts when the gradients of both are there.
    first = min(
        timeline.start_s[i] for i, name in enumerate(names) if name == "gradients/embedding all_reduce S"
    )
    last = max(timeline.end_s[i] for i, name in enumerate(names) if name == "layer.0/attention.qkv W")
    assert first >= last


def test_interlaced_deals_the_vocabulary_to_all_devices() -> None:
    graph = gpt(layers=8, tied=True)
    plan = plan_of("interlaced pp=4", graph, devices=4)
    program = program_of(plan, graph)
    (ends,) = [each for each in program.routes[0].bundles if each.block == "embedding"]
    # 8192 rows of 1024 over 4 devices; the head has no bundle of its own but its norm, on the last row.
    tables = 8192 * 1024 / 4
    assert ends.elements - tables == pytest.approx(2048 * 1024)  # the table of positions is not split
    assert not [each for each in program.routes[0].bundles if each.block == "head" and each.elements > 4096]


def test_interlaced_takes_less_memory_on_the_fullest_device_than_1f1b() -> None:
    graph = gpt(layers=8, vocab=65536, tied=True)
    interlaced, plain = (
        peaks(run(f"{name} pp=4", graph, devices=4, batch=8)) for name in ("interlaced", "1f1b")
    )
    assert interlaced.peak_bytes.max() < 0.65 * plain.peak_bytes.max()


def _sends(program: Program) -> list[tuple[str, int, int]]:
    return [(each.name, each.stage, each.passes) for each in program.routes[0].steps if each.cause == "pp"]


def test_recycling_sends_the_result_of_a_pass_back_to_the_first_stage() -> None:
    graph = fold()
    program = program_of(plan_of("3f1b pp=4", graph, devices=4), graph)
    # Two passes are recycled: the first row from the head, the pairs from the last layer.
    back = [
        each for each in _sends(program) if each[1] == 3 and "^" in each[0] and each[0].startswith("head")
    ]
    assert [(name, passes) for name, _, passes in back] == [
        ("head/single.row^0", 0),
        ("head/single.row^1", 1),
    ]


def test_offloaded_activations_leave_the_device() -> None:
    graph = gpt(layers=8)
    kept, away = (
        peaks(run(text, graph, devices=1, batch=1)).category_bytes[0].sum()
        for text in ("data-parallel", "offload what=activations zero=0")
    )
    assert away < kept


def test_a_plan_of_knobs_has_the_degrees_that_are_left_as_dp() -> None:
    plan = plan_of("1f1b pp=2 tp=2", gpt(), devices=8, batch=64)
    assert (plan.devices, plan.batch, plan.microbatches) == (8, 2, 32)
    assert isinstance(plan, Plan)
