"""Constraints that no strategy can meet, told one by one."""

from math import prod

from trainwright.errors import BadInput
from trainwright.plan.strategy import ACTIVATION_OFFLOADS, OFFLOADS, RECOMPUTES, SCHEDULES
from trainwright.search.find import Question
from trainwright.search.space import layer_count, layers_per_stage

_DEGREES = ("tp", "cp", "pp", "dp")


def check_constraints(question: Question) -> None:
    """Raise for the first fixed knob that cannot hold on this cluster, model and batch."""
    job, fixed = question.job, question.fixed
    devices = job.cluster.count
    for knob in _DEGREES:
        values = fixed.get(knob, ())
        if values and all(devices % value for value in values):
            raise BadInput(
                f"--fix {knob}", _text(values), f"does not divide {devices} devices", "use a divisor"
            )
    if all(len(fixed.get(knob, ())) == 1 for knob in _DEGREES):
        product = prod(fixed[knob][0] for knob in _DEGREES)
        if product != devices:
            raise BadInput(
                "--fix", f"tp·cp·pp·dp = {product}", f"is not {devices} devices", "leave one of them open"
            )
    layers = layer_count(job.graph)
    if "pp" in fixed and min(fixed["pp"]) > layers:
        raise BadInput("--fix pp", _text(fixed["pp"]), f"the model has {layers} layers", "use fewer stages")
    heads = job.graph.sizes["heads"]
    if "tp" in fixed and all(heads % value for value in fixed["tp"]):
        raise BadInput(
            "--fix tp", _text(fixed["tp"]), f"does not divide {heads} attention heads", "use a divisor"
        )
    if "dp" in fixed and all(batch % value for batch in question.batches for value in fixed["dp"]):
        batches = ", ".join(map(str, question.batches))
        raise BadInput(
            "--fix dp", _text(fixed["dp"]), f"does not divide the batch {batches}", "change --batch"
        )
    if "ep" in fixed and max(fixed["ep"]) > 1:
        experts = job.graph.sizes.get("experts", 0)
        if not experts or all(experts % value for value in fixed["ep"]):
            raise BadInput(
                "--fix ep", _text(fixed["ep"]), f"does not divide {experts} experts", "use a divisor"
            )
    if "etp" in fixed and min(fixed["etp"]) > 1 and not job.graph.sizes.get("experts", 0):
        raise BadInput("--fix etp", _text(fixed["etp"]), "the model has no experts", "drop it")

    _check_shard(question)
    _check_schedule(question)
    _check_recompute_layers(question)
    _check_offload_layers(question)


def _check_shard(question: Question) -> None:
    """Groups that share ZeRO's shards go with stage 3, and are smaller than all ranks."""
    values, devices = question.fixed.get("shard", ()), question.job.cluster.count
    if not values or 0 in values:
        return
    if 3 not in question.fixed.get("zero", (3,)):
        raise BadInput("--fix hsdp", _text(values), "hybrid sharding is of ZeRO stage 3", "fix zero=3")
    if not any(1 < value < devices and devices % value == 0 for value in values):
        rule = f"is not a part of {devices} devices that divides them"
        raise BadInput("--fix hsdp", _text(values), rule, "use a divisor, or 0 for all")


def _check_schedule(question: Question) -> None:
    """Only 1f1b goes without a pipeline."""
    values = question.fixed.get("schedule", ())
    stages = max(question.fixed.get("pp", (question.job.cluster.count,)))
    if values and SCHEDULES.index("1f1b") not in values and min(stages, question.most.get("pp", stages)) == 1:
        names = ",".join(SCHEDULES[value] for value in values)
        raise BadInput("--fix schedule", names, "needs pp > 1", "raise pp, or drop it")


def _check_recompute_layers(question: Question) -> None:
    """A number of layers goes with full recomputation, and a stage has as many."""
    values = question.fixed.get("recompute_layers", ())
    if not values or 0 in values:
        return
    full = RECOMPUTES.index("full")
    if full not in question.fixed.get("recompute", (full,)):
        raise BadInput(
            "--fix recompute_layers", _text(values), "needs full recomputation", "fix recompute=full"
        )
    layers = layers_per_stage(question.job.graph, min(question.fixed.get("pp", (1,))))
    if min(values) > layers:
        raise BadInput("--fix recompute_layers", _text(values), f"a stage has {layers} layers", "use fewer")


def _check_offload_layers(question: Question) -> None:
    """A number of layers goes with activations on the host in software that counts, and a stage has more."""
    values, able = question.fixed.get("offload_layers", ()), question.job.stack.capability
    if not any(values):
        return
    if not able.counts_offloaded_layers:
        every = {*ACTIVATION_OFFLOADS} & {*able.offloads}
        has = "activations of every layer or none" if every else "no activations"
        rule = f"{able.title} offloads {has}"
        raise BadInput("--fix offload_layers", _text(values), rule, "use a stack that counts them")
    if 0 in values:
        return
    moving = {OFFLOADS.index(name) for name in ACTIVATION_OFFLOADS}
    if not moving & {*question.fixed.get("offload", moving)}:
        rule = "needs activations on the host"
        raise BadInput("--fix offload_layers", _text(values), rule, "fix offload=activations")
    stages = min(question.fixed.get("pp", (1,)))
    if stages > 1 and not able.activation_offload_pipeline:
        rule = f"{able.title} offloads activations without pp"
        raise BadInput("--fix offload_layers", _text(values), rule, "fix pp=1")
    layers = layers_per_stage(question.job.graph, stages)
    if min(values) >= layers:
        remedy = "use fewer, or 0 for all"
        raise BadInput("--fix offload_layers", _text(values), f"a stage has {layers} layers", remedy)


def _text(values: tuple[int, ...]) -> str:
    return ",".join(map(str, values))
