"""Protocol buffers on the wire: as much of the encoding as a trace needs.

A field is a key (its number and wire type) and a value: a varint, eight bytes, or bytes with their length
before them (protobuf.dev/programming-guides/encoding).
"""

import struct
from collections.abc import Iterable

_VARINT, _FIXED64, _LENGTH = 0, 1, 2


def varint(value: int) -> bytes:
    """A whole number in groups of seven bits, the lowest first; a negative one as its 64-bit complement."""
    rest, found = value & (1 << 64) - 1, bytearray()
    while rest > 0x7F:
        found.append(rest & 0x7F | 0x80)
        rest >>= 7
    found.append(rest)
    return bytes(found)


def whole(field: int, value: int) -> bytes:
    """A field of a whole number, a truth or a choice."""
    return varint(field << 3 | _VARINT) + varint(value)


def real(field: int, value: float) -> bytes:
    """A field of a double."""
    return varint(field << 3 | _FIXED64) + struct.pack("<d", value)


def data(field: int, content: bytes) -> bytes:
    """A field of bytes, or of a message."""
    return varint(field << 3 | _LENGTH) + varint(len(content)) + content


def text(field: int, value: str) -> bytes:
    """A field of text."""
    return data(field, value.encode())


def packed(field: int, values: Iterable[int]) -> bytes:
    """A repeated field of whole numbers; nothing, if there are none."""
    content = b"".join(map(varint, values))
    return data(field, content) if content else b""


def delimited(message: bytes) -> bytes:
    """A message with its length before it, as messages follow one another in a file."""
    return varint(len(message)) + message
