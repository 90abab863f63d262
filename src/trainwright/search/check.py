"""Constraints that no strategy can meet, told one by one."""

from math import prod

from trainwright.errors import BadInput
from trainwright.search.find import Question
from trainwright.search.space import layer_count

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


def _text(values: tuple[int, ...]) -> str:
    return ",".join(map(str, values))
