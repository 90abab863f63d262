"""Chakra's messages as a reader knows them: written from its schema, apart from our encoder."""

from collections.abc import Iterator
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, unknown_fields

_FIELD = descriptor_pb2.FieldDescriptorProto
_VALUES = {
    "double_val": (3, _FIELD.TYPE_DOUBLE), "float_val": (5, _FIELD.TYPE_FLOAT),
    "int32_val": (7, _FIELD.TYPE_INT32),
    "int64_val": (9, _FIELD.TYPE_INT64), "uint32_val": (11, _FIELD.TYPE_UINT32),
    "uint64_val": (13, _FIELD.TYPE_UINT64), "bool_val": (27, _FIELD.TYPE_BOOL),
    "string_val": (29, _FIELD.TYPE_STRING),
}  # fmt: skip
_NODE_TYPES = (
    "INVALID_NODE", "METADATA_NODE", "MEM_LOAD_NODE", "MEM_STORE_NODE", "COMP_NODE", "COMM_SEND_NODE",
    "COMM_RECV_NODE", "COMM_COLL_NODE",
)  # fmt: skip


def _add(message: Any, name: str, number: int, kind: int, *, many: bool = False, of: str = "") -> Any:
    label = _FIELD.LABEL_REPEATED if many else _FIELD.LABEL_OPTIONAL
    field = message.field.add(name=name, number=number, type=kind, label=label)
    if of:
        field.type_name = f".ChakraProtoMsg.{of}"
    return field


def _file() -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto(
        name="read_et_def.proto", package="ChakraProtoMsg", syntax="proto3"
    )
    kinds = file.enum_type.add(name="NodeType")
    for number, name in enumerate(_NODE_TYPES):
        kinds.value.add(name=name, number=number)
    attribute = file.message_type.add(name="AttributeProto")
    _add(attribute, "name", 1, _FIELD.TYPE_STRING)
    _add(attribute, "doc_string", 2, _FIELD.TYPE_STRING)
    attribute.oneof_decl.add(name="value")
    for name, (number, kind) in _VALUES.items():
        _add(attribute, name, number, kind).oneof_index = 0
    metadata = file.message_type.add(name="GlobalMetadata")
    _add(metadata, "version", 1, _FIELD.TYPE_STRING)
    _add(metadata, "attr", 2, _FIELD.TYPE_MESSAGE, many=True, of="AttributeProto")
    node = file.message_type.add(name="Node")
    _add(node, "id", 1, _FIELD.TYPE_UINT64)
    _add(node, "name", 2, _FIELD.TYPE_STRING)
    _add(node, "type", 3, _FIELD.TYPE_ENUM, of="NodeType")
    _add(node, "ctrl_deps", 4, _FIELD.TYPE_UINT64, many=True)
    _add(node, "data_deps", 5, _FIELD.TYPE_UINT64, many=True)
    _add(node, "start_time_micros", 6, _FIELD.TYPE_UINT64)
    _add(node, "duration_micros", 7, _FIELD.TYPE_UINT64)
    _add(node, "attr", 10, _FIELD.TYPE_MESSAGE, many=True, of="AttributeProto")
    return file


_POOL = descriptor_pool.DescriptorPool()
_POOL.Add(_file())
Metadata = message_factory.GetMessageClass(_POOL.FindMessageTypeByName("ChakraProtoMsg.GlobalMetadata"))
ReadNode = message_factory.GetMessageClass(_POOL.FindMessageTypeByName("ChakraProtoMsg.Node"))


def read_messages(content: bytes) -> Iterator[bytes]:
    """The messages of a file, each of which has its length before it."""
    at = 0
    while at < len(content):
        size = shift = 0
        while True:
            byte = content[at]
            at += 1
            size |= (byte & 0x7F) << shift
            shift += 7
            if not byte & 0x80:
                break
        yield content[at : at + size]
        at += size
    assert at == len(content)


def read_trace(content: bytes) -> tuple[Any, list[Any]]:
    """What a trace says of itself, and its nodes."""
    first, *rest = read_messages(content)
    nodes = [ReadNode.FromString(each) for each in rest]
    for message in nodes:
        assert not len(unknown_fields.UnknownFieldSet(message))
    return Metadata.FromString(first), nodes


def attributes(node: Any) -> dict[str, Any]:
    """The attributes of a node by name."""
    return {each.name: getattr(each, each.WhichOneof("value")) for each in node.attr}
