"""Plans as text: one line per statement, parsed back to an equal plan."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from trainwright.errors import BadInput, UnknownName
from trainwright.plan.action import parse_actions, render_actions
from trainwright.plan.plan import (
    MOVED,
    STATE,
    Apart,
    Assign,
    Offload,
    Order,
    Plan,
    Recompute,
    Replicate,
    Shard,
    Split,
    Stage,
    Stream,
    Synchronise,
    Transform,
)
from trainwright.plan.strategy import PRECISIONS

APART_DIMS = ("batch", "heads", "ffn")
_KEEPS_RESULTS = "keep-results"


def render_plan(plan: Plan) -> str:
    """The plan as text."""
    return "\n".join(_lines(plan)) + "\n"


def _lines(plan: Plan) -> Iterable[str]:
    if plan.name:
        yield f"plan {plan.name}"
    yield f"devices {plan.devices}"
    yield f"batch {plan.batch}"
    yield f"microbatches {plan.microbatches}"
    yield f"precision {plan.precision}"
    if not plan.overlap:
        yield "no-overlap"
    if plan.mapping:
        yield "mapping " + " ".join(f"{axis}{size}" for axis, size in plan.mapping)
    for transform in plan.transforms:
        yield _transform_line(transform)
    for stage in plan.stages:
        yield f"stage {stage.ops}"
    for assign in plan.assigns:
        route = f" route {assign.route[0]}/{assign.route[1]}" if assign.route != (0, 1) else ""
        yield f"assign {assign.ops} {render_numbers(assign.devices)}{route}"
    for order in plan.orders:
        yield f"order {render_numbers(order.devices)}: {render_actions(order.actions)}"
    if plan.synchronise:
        yield f"synchronise every {plan.synchronise.every} by {plan.synchronise.by}"


def _transform_line(transform: Transform) -> str:
    match transform:
        case Split(ops=ops, dim=dim, parts=parts, sizes=sizes, serial=serial):
            amount = ":".join(map(str, sizes)) if sizes else str(parts)
            return f"{'co-split' if serial else 'split'} {ops} {dim} {amount}"
        case Replicate(ops=ops, parts=parts):
            return f"replicate {ops} {parts}"
        case Recompute(ops=ops, results=None):
            return f"recompute {ops}"
        case Recompute(ops=ops, results=results):
            return f"recompute {ops} {','.join(results) if results else _KEEPS_RESULTS}"
        case Shard(ops=ops, what=what, ranks=ranks):
            return f"shard {ops} {what}" + (f" {ranks}" if ranks else "")
        case Offload(ops=ops, what=what):
            return f"offload {ops} {what}"
        case Stream(ops=ops):
            return f"stream {ops}"
        case Apart(ops=ops, dim=dim, parts=parts):
            return f"apart {ops} {dim} {parts}"


def render_numbers(numbers: Sequence[int]) -> str:
    """Device numbers, in order, as runs with a step: `0-7`, `0-28:4`, `3,1`."""
    words: list[str] = []
    rest = list(numbers)
    while rest:
        step = rest[1] - rest[0] if len(rest) > 1 else 0
        count = 1
        while step > 0 and count < len(rest) and rest[count] == rest[0] + step * count:
            count += 1
        if count < 3:
            words.append(str(rest.pop(0)))
            continue
        words.append(f"{rest[0]}-{rest[count - 1]}" + (f":{step}" if step > 1 else ""))
        rest = rest[count:]
    return ",".join(words)


_MOST_COUNTED = 1 << 20  # devices, microbatches, and sequences of one
_RUN = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9})(?::([0-9]{1,9}))?)?$")


def parse_numbers(text: str) -> tuple[int, ...]:
    """The device numbers that `render_numbers` writes."""
    numbers: list[int] = []
    for word in text.split(","):
        match = _RUN.match(word)
        if match is None:
            raise BadInput("devices", word, "is not a number or a range", "write 0-7, 0-28:4 or 3,1")
        first, last, step = int(match[1]), int(match[2] or match[1]), int(match[3] or 1)
        if last < first or step < 1 or (last - first) // step > 1 << 20:
            raise BadInput("devices", word, "the range is empty or too long", "write 0-7 or 0-28:4")
        numbers += range(first, last + 1, step)
    return tuple(numbers)


def parse_plan(text: str) -> Plan:
    """The plan that a text describes; `#` starts a comment."""
    plan = Plan()
    seen: set[str] = set()
    for number, line in enumerate(text.splitlines(), start=1):
        head, _, rest = line.partition("#")[0].strip().partition(" ")
        if not head:
            continue
        if head not in _STATEMENTS:
            raise UnknownName(f"plan line {number}", head, tuple(_STATEMENTS))
        if head in _ONCE and head in seen:
            raise BadInput(f"plan line {number}", head, "is stated twice", "state it once")
        seen.add(head)
        try:
            plan = _STATEMENTS[head](plan, rest.strip())
        except BadInput as error:
            raise BadInput(
                f"plan line {number}: {error.thing}", error.value, error.rule, error.remedy
            ) from None
    return plan


def _words(statement: str, text: str, least: int, most: int) -> list[str]:
    words = text.split()
    if not least <= len(words) <= most:
        raise BadInput(statement, text, f"takes {least} to {most} words", f"write {_FORMS[statement]}")
    return words


def _number(statement: str, text: str) -> int:
    if not text.isdecimal() or len(text) > 9 or int(text) < 1:
        raise BadInput(statement, text, "is not a whole number from 1 up", f"write {_FORMS[statement]}")
    return int(text)


def _counted(field: str) -> Callable[[Plan, str], Plan]:
    def statement(plan: Plan, text: str) -> Plan:
        count = _number(field, text)
        if count > _MOST_COUNTED:
            raise BadInput(field, text, f"is more than {_MOST_COUNTED:,}", "write a plan of less")
        return replace(plan, **{field: count})  # type: ignore[arg-type]

    return statement


def _named(plan: Plan, text: str) -> Plan:
    return replace(plan, name=text)


def _precision(plan: Plan, text: str) -> Plan:
    if text not in PRECISIONS:
        raise BadInput("precision", text, f"is not one of {', '.join(PRECISIONS)}", "choose one of them")
    return replace(plan, precision=text)


def _no_overlap(plan: Plan, text: str) -> Plan:
    return replace(plan, overlap=False)


def _mapping(plan: Plan, text: str) -> Plan:
    found = [re.fullmatch(r"([a-z]+)([1-9]\d{0,6})", word) for word in text.split()]
    axes = tuple((match[1], int(match[2])) for match in found if match)
    if not axes or len(axes) < len(found):
        raise BadInput("mapping", text, "is not a list of axes with sizes", f"write {_FORMS['mapping']}")
    return replace(plan, mapping=axes)


def _split(serial: bool) -> Callable[[Plan, str], Plan]:
    def statement(plan: Plan, text: str) -> Plan:
        ops, dim, amount = _words("split", text, 3, 3)
        sizes = tuple(_number("split", word) for word in amount.split(":"))
        split = Split(
            ops=ops, dim=dim, parts=len(sizes) if len(sizes) > 1 else sizes[0],
            sizes=sizes if len(sizes) > 1 else (), serial=serial,
        )  # fmt: skip
        return replace(plan, transforms=(*plan.transforms, split))

    return statement


def _replicate(plan: Plan, text: str) -> Plan:
    ops, parts = _words("replicate", text, 2, 2)
    return replace(plan, transforms=(*plan.transforms, Replicate(ops=ops, parts=_number("replicate", parts))))


def _recompute(plan: Plan, text: str) -> Plan:
    ops, *rest = _words("recompute", text, 1, 2)
    results = None if not rest else () if rest == [_KEEPS_RESULTS] else tuple(rest[0].split(","))
    return replace(plan, transforms=(*plan.transforms, Recompute(ops=ops, results=results)))


def _stream(plan: Plan, text: str) -> Plan:
    (ops,) = _words("stream", text, 1, 1)
    return replace(plan, transforms=(*plan.transforms, Stream(ops=ops)))


def _shard(plan: Plan, text: str) -> Plan:
    words = _words("shard", text, 2, 3)
    if words[1] not in STATE:
        raise UnknownName("shard", words[1], STATE)
    ranks = _number("shard", words[2]) if len(words) > 2 else 0
    shard = Shard(ops=words[0], what=words[1], ranks=ranks)
    return replace(plan, transforms=(*plan.transforms, shard))


def _offload(plan: Plan, text: str) -> Plan:
    ops, what = _words("offload", text, 2, 2)
    if what not in MOVED:
        raise UnknownName("offload", what, MOVED)
    return replace(plan, transforms=(*plan.transforms, Offload(ops=ops, what=what)))


def _apart(plan: Plan, text: str) -> Plan:
    ops, dim, parts = _words("apart", text, 3, 3)
    if dim not in APART_DIMS:
        raise UnknownName("apart", dim, APART_DIMS)
    apart = Apart(ops=ops, dim=dim, parts=_number("apart", parts))
    return replace(plan, transforms=(*plan.transforms, apart))


def _synchronise(plan: Plan, text: str) -> Plan:
    match = re.fullmatch(r"every (\d{1,9}) by (\S.*)", text)
    if match is None:
        rule = "does not say every so many steps by which algorithm"
        raise BadInput("synchronise", text, rule, f"write {_FORMS['synchronise']}")
    every = _number("synchronise", match[1])
    return replace(plan, synchronise=Synchronise(every=every, by=" ".join(match[2].split())))


def _stage(plan: Plan, text: str) -> Plan:
    (ops,) = _words("stage", text, 1, 1)
    return replace(plan, stages=(*plan.stages, Stage(ops=ops)))


def _assign(plan: Plan, text: str) -> Plan:
    words = _words("assign", text, 2, 4)
    route = (0, 1)
    if len(words) > 2:
        match = re.match(r"([0-9]{1,9})/([1-9][0-9]{0,8})$", words[-1])
        if len(words) != 4 or words[2] != "route" or match is None or int(match[1]) >= int(match[2]):
            raise BadInput("assign", text, "has a bad route", f"write {_FORMS['assign']}")
        route = (int(match[1]), int(match[2]))
    assign = Assign(ops=words[0], devices=parse_numbers(words[1]), route=route)
    return replace(plan, assigns=(*plan.assigns, assign))


def _order(plan: Plan, text: str) -> Plan:
    devices, colon, actions = text.partition(":" + " ")
    if not colon:
        raise BadInput("order", text[:60], "lacks a colon", f"write {_FORMS['order']}")
    order = Order(devices=parse_numbers(devices), actions=parse_actions(actions))
    return replace(plan, orders=(*plan.orders, order))


_STATEMENTS: Mapping[str, Callable[[Plan, str], Plan]] = {
    "plan": _named,
    "devices": _counted("devices"),
    "batch": _counted("batch"),
    "microbatches": _counted("microbatches"),
    "precision": _precision,
    "no-overlap": _no_overlap,
    "mapping": _mapping,
    "split": _split(serial=False),
    "co-split": _split(serial=True),
    "replicate": _replicate,
    "recompute": _recompute,
    "stream": _stream,
    "shard": _shard,
    "offload": _offload,
    "apart": _apart,
    "stage": _stage,
    "assign": _assign,
    "order": _order,
    "synchronise": _synchronise,
}
_ONCE = ("plan", "devices", "batch", "microbatches", "precision", "no-overlap", "mapping", "synchronise")
_FORMS = {
    "devices": "devices 8",
    "batch": "batch 4",
    "microbatches": "microbatches 16",
    "mapping": "mapping tp8 pp4 dp2, after devices 64",
    "split": "split @ffn ffn 4, or split head vocab 3:5 for given sizes",
    "replicate": "replicate */norm1 4",
    "recompute": "recompute layer.0-3, recompute */ffn.up ffn.up.out or recompute @attention keep-results",
    "stream": "stream */attention.core",
    "shard": "shard * optimizer, or shard * weights 8",
    "offload": "offload * activations",
    "apart": "apart * batch 2, or apart @ffn ffn 2",
    "synchronise": "synchronise every 50 by diloco rate=0.7",
    "stage": "stage embedding,layer.0-11",
    "assign": "assign layer.0-11 0-7, or assign layer.0-11 0-7 route 1/2",
    "order": "order 0-7: F0.0 F0.1 B0.0 B0.1",
}
