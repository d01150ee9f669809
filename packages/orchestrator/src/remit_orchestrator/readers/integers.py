"""Makes a model with integer weights multiply integers, which is twice as fast as floating point.

Such a model (ONNX) converts its weights to floating point, scales their columns, and multiplies with these. The new
model rounds the input to integers, multiplies, and scales the output.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from math import prod
from typing import NamedTuple

# Numbers of fields and types from onnx.proto.
_GRAPH, _NODE, _TENSOR = 7, 1, 5
_INPUT, _OUTPUT, _OPERATOR, _ATTRIBUTE = 1, 2, 4, 5
_SIZES, _TYPE, _NAME, _CONTENT = 1, 2, 8, 9
_FLOAT, _UINT8, _INT8 = 1, 2, 3
_ATTRIBUTE_NAME, _ATTRIBUTE_INTEGER, _ATTRIBUTE_TYPE, _IS_INTEGER = 1, 3, 20, 2

# Older processors multiply unsigned by signed bytes with saturated sums. So all values, and the zero point, are shifted
# up.
_MOVED_UP = bytes(byte ^ 0x80 for byte in range(256))
_ZERO, _ZERO_BYTE = "remit/zero", b"\x80"


class _Field(NamedTuple):
    number: int
    value: int | memoryview
    whole: memoryview
    """As in the file, including its field number and length."""


class _Node(NamedTuple):
    operator: str
    inputs: Sequence[str]
    outputs: Sequence[str]


class _Tensor(NamedTuple):
    name: str
    kind: int
    sizes: Sequence[int]
    is_here: bool
    """Whether its content is in the file itself, and not in another one."""


class _Weights(NamedTuple):
    integers: str
    fractions: str
    scale: str


def in_integers(model: bytes) -> bytes | None:
    """Return a model that multiplies integers wherever this one can; None if it cannot anywhere, or is not a model."""
    try:
        fields = list(_fields(memoryview(model)))
        [graph] = [_message(field) for field in fields if field.number == _GRAPH]
        changed = _changed(list(_fields(graph)))
    except (ValueError, IndexError):
        return None
    if changed is None:
        return None
    return b"".join(_encode_field(_GRAPH, changed) if field.number == _GRAPH else field.whole for field in fields)


def _changed(graph: Sequence[_Field]) -> bytes | None:
    nodes = {place: _node(_message(field)) for place, field in enumerate(graph) if field.number == _NODE}
    tensors = [_tensor(_message(field)) for field in graph if field.number == _TENSOR]
    weights = _weights(list(nodes.values()), {tensor.name: tensor for tensor in tensors})
    if not weights:
        return None
    moved = {each.integers for each in weights.values()}
    unused = weights.keys() | {each.fractions for each in weights.values()}
    parts: list[bytes | memoryview] = []
    rounded: set[str] = set()
    for place, field in enumerate(graph):
        node = nodes.get(place)
        if node is None:
            parts.append(_moved_up(field, moved))
        elif node.operator == "MatMul" and node.inputs[1] in weights:
            parts += _multiplied(node, weights[node.inputs[1]], rounded)
        elif node.outputs[0] not in unused:
            parts.append(field.whole)
    zero = _counted(_TYPE, _UINT8) + _encode_field(_NAME, _ZERO.encode()) + _encode_field(_CONTENT, _ZERO_BYTE)
    return b"".join((*parts, _encode_field(_TENSOR, zero)))


def _weights(nodes: Sequence[_Node], tensors: Mapping[str, _Tensor]) -> dict[str, _Weights]:
    """Return the weights that are integers times a scale for each column, and are used only for a multiplication."""
    made_by = {node.outputs[0]: node for node in nodes}
    uses = Counter(name for node in nodes for name in node.inputs)
    by_product: dict[str, _Weights] = {}
    for product, times in Counter(node.inputs[1] for node in nodes if node.operator == "MatMul").items():
        scaled = made_by.get(product)
        if scaled is None or scaled.operator != "Mul" or uses[product] > times:
            continue
        fractions, scale = scaled.inputs
        cast = made_by.get(fractions)
        if cast is None or cast.operator != "Cast" or uses[fractions] > 1 or uses[cast.inputs[0]] > 1:
            continue
        weights, by = tensors.get(cast.inputs[0]), tensors.get(scale)
        if weights is not None and by is not None and _is_by_column(weights, by):
            by_product[product] = _Weights(weights.name, fractions, scale)
    return by_product


def _is_by_column(weights: _Tensor, scale: _Tensor) -> bool:
    if weights.kind != _INT8 or not weights.is_here or len(weights.sizes) != 2:
        return False
    return prod(scale.sizes) == 1 or (prod(scale.sizes) == weights.sizes[1] == scale.sizes[-1])


def _multiplied(node: _Node, weights: _Weights, rounded: set[str]) -> Iterator[bytes]:
    """Return the nodes that replace a multiplication; its input is *rounded* once for all multiplications that
    use it.
    """
    [given, _], [result] = node.inputs, node.outputs
    whole, step, zero = (f"{given}/{part}" for part in ("whole", "step", "zero"))
    if given not in rounded:
        rounded.add(given)
        yield _operation("DynamicQuantizeLinear", [given], [whole, step, zero])
    yield _operation("MatMulInteger", [whole, weights.integers, zero, _ZERO], [f"{result}/whole"])
    yield _operation("Cast", [f"{result}/whole"], [f"{result}/fraction"], to=_FLOAT)
    yield _operation("Mul", [step, weights.scale], [f"{result}/step"])
    yield _operation("Mul", [f"{result}/fraction", f"{result}/step"], [result])


def _moved_up(field: _Field, names: Collection[str]) -> bytes | memoryview:
    if field.number != _TENSOR or _tensor(_message(field)).name not in names:
        return field.whole
    parts: list[bytes | memoryview] = []
    for each in _fields(_message(field)):
        if each.number == _TYPE:
            parts.append(_counted(_TYPE, _UINT8))
        elif each.number == _CONTENT:
            parts.append(_encode_field(_CONTENT, bytes(_message(each)).translate(_MOVED_UP)))
        else:
            parts.append(each.whole)
    return _encode_field(_TENSOR, b"".join(parts))


# ── protocol buffers ──────────────────────────────────────────────────────────────────────────────────────────────────


def _node(message: memoryview) -> _Node:
    fields = list(_fields(message))
    return _Node("".join(_texts(fields, _OPERATOR)), _texts(fields, _INPUT), _texts(fields, _OUTPUT))


def _tensor(message: memoryview) -> _Tensor:
    fields = list(_fields(message))
    sizes: list[int] = []
    for field in fields:
        if field.number == _SIZES:
            sizes += [field.value] if isinstance(field.value, int) else _numbers(field.value)
    kind = next((field.value for field in fields if field.number == _TYPE and isinstance(field.value, int)), 0)
    is_here = any(field.number == _CONTENT for field in fields)
    return _Tensor("".join(_texts(fields, _NAME)), kind, sizes, is_here)


def _texts(fields: Sequence[_Field], number: int) -> list[str]:
    return [str(_message(field), "utf-8") for field in fields if field.number == number]


def _message(field: _Field) -> memoryview:
    if isinstance(field.value, int):
        raise ValueError("a number where a message should be")
    return field.value


def _fields(message: memoryview) -> Iterator[_Field]:
    at = 0
    while at < len(message):
        start = at
        key, at = _number(message, at)
        match key & 7:
            case 0:
                value, at = _number(message, at)
            case 1 | 5 as kind:
                end = at + (8 if kind == 1 else 4)
                value, at = message[at:end], end
            case 2:
                length, at = _number(message, at)
                value, at = message[at : at + length], at + length
            case _:
                raise ValueError("not a message")
        if at > len(message):
            raise ValueError("cut off")
        yield _Field(key >> 3, value, message[start:at])


def _numbers(message: memoryview) -> Iterator[int]:
    at = 0
    while at < len(message):
        number, at = _number(message, at)
        yield number


def _number(message: memoryview, at: int) -> tuple[int, int]:
    """Return a varint and where it ends: seven bits in each byte, lowest first."""
    number = shift = 0
    while True:
        byte = message[at]
        number |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return number, at


def _operation(operator: str, inputs: Sequence[str], outputs: Sequence[str], **attributes: int) -> bytes:
    parts = [
        *(_encode_field(_INPUT, name.encode()) for name in inputs),
        *(_encode_field(_OUTPUT, name.encode()) for name in outputs),
        _encode_field(_OPERATOR, operator.encode()),
        *(_encode_field(_ATTRIBUTE, _attribute(name, value)) for name, value in attributes.items()),
    ]
    return _encode_field(_NODE, b"".join(parts))


def _attribute(name: str, value: int) -> bytes:
    encoded_name = _encode_field(_ATTRIBUTE_NAME, name.encode())
    return encoded_name + _counted(_ATTRIBUTE_INTEGER, value) + _counted(_ATTRIBUTE_TYPE, _IS_INTEGER)


def _encode_field(number: int, content: bytes) -> bytes:
    return _written(number << 3 | 2) + _written(len(content)) + content


def _counted(number: int, value: int) -> bytes:
    return _written(number << 3) + _written(value)


def _written(number: int) -> bytes:
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)
