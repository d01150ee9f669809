"""ONNX files for tests, written byte by byte: small graphs, and a model that reads pairs of sentences."""

import json
from array import array
from collections.abc import Mapping, Sequence
from pathlib import Path

# As onnx.proto numbers them.
GRAPH, NODE, TENSOR, INPUT, OUTPUT, OPERATOR, SIZES, TYPE, NAME, CONTENT = 7, 1, 5, 1, 2, 4, 1, 2, 8, 9
VERSION, OPSET, FLOAT, INT8, INT64 = 1, 8, 1, 3, 7
GRAPH_INPUT, GRAPH_OUTPUT, VALUE_TYPE, TENSOR_TYPE, SHAPE, DIMENSION, FIXED, NAMED = 11, 12, 2, 1, 2, 1, 1, 2


def number(field: int, value: int) -> bytes:
    return bytes((field << 3, value))


def delimited(field: int, content: bytes | str) -> bytes:
    content = content.encode() if isinstance(content, str) else content
    return bytes((field << 3 | 2, len(content) & 0x7F | 0x80, len(content) >> 7)) + content


def node(operator: str, inputs: list[str], output: str) -> bytes:
    names = b"".join(delimited(INPUT, name) for name in inputs)
    return delimited(NODE, names + delimited(OUTPUT, output) + delimited(OPERATOR, operator))


def tensor(name: str, kind: int, sizes: list[int], content: bytes) -> bytes:
    each = b"".join(number(SIZES, size) for size in sizes)
    return delimited(TENSOR, each + number(TYPE, kind) + delimited(NAME, name) + delimited(CONTENT, content))


def model(*graph: bytes) -> bytes:
    return number(VERSION, 10) + delimited(GRAPH, b"".join(graph)) + delimited(OPSET, number(2, 17))


def value(field: int, name: str, kind: int, sizes: Sequence[int | str]) -> bytes:
    """Return an input or output of a graph; a size that is a text may be any."""
    each = [number(FIXED, size) if isinstance(size, int) else delimited(NAMED, size) for size in sizes]
    shape = delimited(SHAPE, b"".join(delimited(DIMENSION, size) for size in each))
    return delimited(field, delimited(1, name) + delimited(VALUE_TYPE, delimited(TENSOR_TYPE, number(1, kind) + shape)))


# ── a model of entailment ─────────────────────────────────────────────────────────────────────────────────────────────

LABELS = ("contradiction", "entailment", "neutral")
WORDS = (
    *("[UNK]", "[CLS]", "[SEP]", ".", "the", "invoice", "is", "still", "open", "has", "been", "paid", "not", "shipped"),
    *("ward", "3", "5", "full", "empty"),
)
# Two of these make a contradiction of a pair; a second sentence of at least five words makes it a sure one.
OPPOSED = {"paid": 4.0, "open": 4.0, "full": 4.0, "empty": 4.0}
_USUALLY_NEUTRAL, _LESS_BY_EACH_WORD = 7.0, -0.3


def entailment_graph(labels: Sequence[str] = LABELS, inputs: Sequence[str] = ()) -> bytes:
    """Return a model that adds up what each word counts for each label, and each word of the second sentence."""
    place, bias = labels.index("contradiction") if "contradiction" in labels else 0, len(labels) - 1
    words = [[0.0] * len(labels) for _ in WORDS]
    words[WORDS.index("[CLS]")][bias] = _USUALLY_NEUTRAL
    for word, weight in OPPOSED.items():
        words[WORDS.index(word)][place] = weight
    kinds = [[0.0] * len(labels), [0.0] * bias + [_LESS_BY_EACH_WORD]]
    names = inputs or ("input_ids", "attention_mask", "token_type_ids")
    return model(
        node("Gather", ["words", names[0]], "by_word"),
        node("Gather", ["kinds", names[-1]], "by_sentence"),
        node("Add", ["by_word", "by_sentence"], "each"),
        node("ReduceSum", ["each", "axis"], "sum"),
        node("Squeeze", ["sum", "axis"], "logits"),
        tensor("words", FLOAT, [len(WORDS), len(labels)], _floats(words)),
        tensor("kinds", FLOAT, [2, len(labels)], _floats(kinds)),
        tensor("axis", INT64, [1], (1).to_bytes(8, "little")),
        *(value(GRAPH_INPUT, name, INT64, ["batch", "length"]) for name in names),
        value(GRAPH_OUTPUT, "logits", FLOAT, ["batch", len(labels)]),
    )


def tokenizer() -> str:
    """Return a tokenizer file: known words in small letters, and two sentences told apart as models of BERT do."""
    special = [
        {"id": WORDS.index(word), "content": word, "special": True}
        | dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
        for word in ("[UNK]", "[CLS]", "[SEP]")
    ]

    def sentence(name: str, kind: int) -> dict[str, object]:
        return {"Sequence": {"id": name, "type_id": kind}}

    def sign(name: str, kind: int) -> dict[str, object]:
        return {"SpecialToken": {"id": name, "type_id": kind}}

    one = [sign("[CLS]", 0), sentence("A", 0), sign("[SEP]", 0)]
    known = {word: {"id": word, "ids": [WORDS.index(word)], "tokens": [word]} for word in ("[CLS]", "[SEP]")}
    return json.dumps(
        {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": special,
            "normalizer": {"type": "Lowercase"},
            "pre_tokenizer": {"type": "Whitespace"},
            "post_processor": {
                "type": "TemplateProcessing",
                "single": one,
                "pair": [*one, sentence("B", 1), sign("[SEP]", 1)],
                "special_tokens": known,
            },
            "decoder": None,
            "model": {
                "type": "WordLevel",
                "vocab": {word: place for place, word in enumerate(WORDS)},
                "unk_token": "[UNK]",
            },
        }
    )


def write_entailment_model(folder: Path, *, graph: bytes | None = None, labels: Sequence[str] | None = LABELS) -> Path:
    """Write a model with its tokenizer and, unless *labels* is None, its config; return the path of the model."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "model.onnx"
    file.write_bytes(entailment_graph(labels or LABELS) if graph is None else graph)
    (folder / "tokenizer.json").write_text(tokenizer(), encoding="utf-8")
    if labels is not None:
        named: Mapping[str, str] = {str(place): label for place, label in enumerate(labels)}
        (folder / "config.json").write_text(json.dumps({"id2label": named}), encoding="utf-8")
    return file


def _floats(rows: Sequence[Sequence[float]]) -> bytes:
    return array("f", [each for row in rows for each in row]).tobytes()
