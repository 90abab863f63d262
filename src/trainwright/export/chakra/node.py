"""The nodes of a Chakra execution trace, and their bytes.

Field numbers are those of the schema of Chakra 0.0.4 (et_def.proto of the MLCommons Chakra working group).
"""

from dataclasses import dataclass, field

from trainwright.export.chakra import wire

VERSION = "0.0.4"
METADATA, MEM_LOAD, MEM_STORE, COMP, COMM_SEND, COMM_RECV, COMM_COLL = range(1, 8)  # NodeType
# CollectiveCommType
COLLECTIVES = {"all_reduce": 0, "all_gather": 2, "broadcast": 5, "all_to_all": 6, "reduce_scatter": 7}
_INT32, _INT64, _UINT64, _BOOL, _STRING = 7, 9, 13, 27, 29  # members of AttributeProto.value
_TYPES = {
    "is_cpu_op": _BOOL, "num_ops": _INT64, "tensor_size": _UINT64, "comm_type": _INT64, "comm_size": _INT64,
    "pg_name": _STRING, "comm_src": _INT32, "comm_dst": _INT32, "comm_tag": _INT32, "microbatch": _INT32,
    "cause": _STRING,
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One thing that a device does, and the nodes that must end before it begins."""

    number: int
    name: str
    kind: int
    data_deps: tuple[int, ...] = ()
    ctrl_deps: tuple[int, ...] = ()
    duration_micros: int = 0
    attributes: dict[str, int | str | bool] = field(default_factory=dict)


def encode_node(node: Node) -> bytes:
    """The node as a message."""
    parts = [
        wire.whole(1, node.number), wire.text(2, node.name), wire.whole(3, node.kind),
        wire.packed(4, node.ctrl_deps), wire.packed(5, node.data_deps),
        wire.whole(7, node.duration_micros) if node.duration_micros else b"",
    ]  # fmt: skip
    return b"".join([*parts, *(_attribute(name, value) for name, value in node.attributes.items())])


def encode_metadata(about: dict[str, str]) -> bytes:
    """The first message of a file."""
    attributes = b"".join(
        wire.data(2, wire.text(1, name) + wire.text(29, value)) for name, value in about.items()
    )
    return wire.text(1, VERSION) + attributes


def _attribute(name: str, value: int | str | bool) -> bytes:
    kind = _TYPES[name]
    held = wire.text(kind, value) if isinstance(value, str) else wire.whole(kind, int(value))
    return wire.data(10, wire.text(1, name) + held)
