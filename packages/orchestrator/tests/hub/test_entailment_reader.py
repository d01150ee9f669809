"""An entailment model as second reader of conflicts (K9): a real ONNX graph with a real tokenizer, made here."""

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from onnx_files import LABELS, entailment_graph, write_entailment_model
from remit import Answer, Brief, Hub, RemitError, Response, Step, Workflow
from remit.installed import install_command
from remit.protocol.errors import Code
from remit_orchestrator import EntailmentModel, add_orchestrator, add_workflow
from remit_orchestrator import conflict_reader as entailment

PACKAGES = ("numpy", "onnxruntime", "tokenizers")
needs_the_extra = pytest.mark.skipif(not all(map(find_spec, PACKAGES)), reason="needs the extra intent")

PAID, OPEN = "The invoice has been paid.", "The invoice is still open."


async def check(hub: Hub, model: EntailmentModel, *texts: str, compare: tuple[str, ...] = ("one", "other")) -> Response:
    for name, text in zip("ab", texts, strict=True):

        @hub.agent(name)
        async def answer(_: Brief, text: str = text) -> Answer:
            return Answer(text, confidence=0.8)

    steps = (Step(name="one", agent="a"), Step(name="other", agent="b"))
    add_workflow(hub, Workflow(name="check", steps=steps, compare=compare))
    add_orchestrator(hub, conflicts=model)
    async with hub:
        return await hub.ask("check", "Is it paid?", user="u")


def problem_of(model: EntailmentModel) -> str:
    with pytest.raises(RemitError) as raised:
        model.check()
    assert raised.value.fault.code is Code.TEAM_INVALID
    return raised.value.fault.message


# ── reading ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@needs_the_extra
async def test_a_contradiction_that_the_model_sees_is_asked_about_like_any_conflict(hub: Hub, tmp_path: Path) -> None:
    model = EntailmentModel(write_entailment_model(tmp_path))
    response = await check(hub, model, f"We looked. {PAID}", OPEN)
    (conflict,) = response.metadata["conflicts"]
    assert [each["value"] for each in conflict["values"]] == [PAID, OPEN]
    assert response.requires_followup
    read = {key: response.metadata[key] for key in ("second_reader", "pointed_out", "pairs", "pairs_read")}
    assert read == {"second_reader": "entailment", "pointed_out": 1, "pairs": 1, "pairs_read": 1}


@needs_the_extra
async def test_what_the_rules_found_stays_and_is_not_found_twice(hub: Hub, tmp_path: Path) -> None:
    model = EntailmentModel(write_entailment_model(tmp_path))
    response = await check(hub, model, f"The ward is full. {PAID}", f"The ward is empty. {OPEN}")
    assert len(response.metadata["conflicts"]) == 2
    assert response.metadata["pointed_out"] == 1


@needs_the_extra
async def test_nothing_is_pointed_out_where_the_model_sees_nothing(hub: Hub, tmp_path: Path) -> None:
    model = EntailmentModel(write_entailment_model(tmp_path))
    response = await check(hub, model, PAID, "The invoice is not shipped.")
    assert (response.metadata["conflicts"], response.metadata["pairs_read"]) == ([], 1)


async def test_the_model_is_not_loaded_where_nothing_is_compared(hub: Hub, tmp_path: Path) -> None:
    response = await check(hub, EntailmentModel(tmp_path / "none.onnx"), PAID, OPEN, compare=())
    assert "second_reader" not in response.metadata


async def test_where_the_model_cannot_be_loaded_the_rules_alone_are_heard(hub: Hub, tmp_path: Path) -> None:
    """K10: nothing that was found is lost."""
    response = await check(hub, EntailmentModel(tmp_path / "none.onnx"), "The ward is full.", "The ward is empty.")
    assert (len(response.metadata["conflicts"]), response.metadata["second_reader"]) == (1, "none")
    assert response.metadata["not_read"]


@needs_the_extra
def test_a_pair_has_to_be_a_contradiction_both_ways_round(tmp_path: Path) -> None:
    model = EntailmentModel(write_entailment_model(tmp_path))
    assert model.contradicts(PAID, OPEN) == model.contradicts(OPEN, PAID) == pytest.approx(0.96, abs=0.01)
    assert model.contradicts("Paid.", OPEN) is None, "with so short a second sentence this model is not sure"


@needs_the_extra
def test_the_threshold_says_how_sure_the_model_has_to_be(tmp_path: Path) -> None:
    file = write_entailment_model(tmp_path)
    assert EntailmentModel(file, threshold=0.99).contradicts(PAID, OPEN) is None
    assert EntailmentModel(file, threshold=0.8).contradicts("Paid.", OPEN) is not None


@needs_the_extra
@pytest.mark.parametrize("order", [LABELS, LABELS[::-1], ("ENTAILMENT", "Contradiction", "neutral")])
def test_the_labels_say_which_output_is_the_contradiction(tmp_path: Path, order: tuple[str, ...]) -> None:
    graph = entailment_graph(tuple(label.lower() for label in order))
    beside = EntailmentModel(write_entailment_model(tmp_path / "a", graph=graph, labels=order))
    given = EntailmentModel(write_entailment_model(tmp_path / "b", graph=graph, labels=None), labels=order)
    for model in (beside, given):
        model.check()
        assert model.contradicts(PAID, OPEN) is not None


@needs_the_extra
def test_a_model_is_loaded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[bool] = []
    monkeypatch.setattr(entailment, "_opened", _counting(entailment._opened, opened))  # pyright: ignore
    model = EntailmentModel(write_entailment_model(tmp_path))
    assert opened == []
    for _ in range(3):
        assert model.contradicts(PAID, OPEN) is not None
    assert opened == [True]


def _counting(function: Any, opened: list[bool]) -> Any:
    def counted(runtime: Any, model: Path, optimised: bool) -> Any:
        opened.append(optimised)
        return function(runtime, model, optimised)

    return counted


# ── what is wrong with a model ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("package", PACKAGES)
def test_without_its_packages_it_says_how_to_install_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    monkeypatch.setattr(entailment, "find_spec", lambda name: None if name == package else sys)  # pyright: ignore
    problem = problem_of(EntailmentModel(write_entailment_model(tmp_path)))
    assert problem == f"an entailment model needs {package}; install it with {install_command('intent')}"


@needs_the_extra
@pytest.mark.parametrize("file", ["model.onnx", "tokenizer.json"])
def test_a_file_that_is_missing_is_named(tmp_path: Path, file: str) -> None:
    model = EntailmentModel(write_entailment_model(tmp_path))
    (tmp_path / file).unlink()
    assert f"{tmp_path / file} does not exist" in problem_of(model)


@needs_the_extra
@pytest.mark.parametrize(
    ("file", "why"), [("model.onnx", "is not an ONNX model that can be loaded"), ("tokenizer.json", "not a tokenizer")]
)
def test_a_file_of_another_kind_is_named(tmp_path: Path, file: str, why: str) -> None:
    model = EntailmentModel(write_entailment_model(tmp_path))
    (tmp_path / file).write_bytes(b"{}")
    assert why in problem_of(model)


@needs_the_extra
def test_a_model_with_other_inputs_is_refused(tmp_path: Path) -> None:
    graph = entailment_graph(inputs=("pixels", "token_type_ids"))
    model = EntailmentModel(write_entailment_model(tmp_path, graph=graph))
    assert "has the input `pixels`; it needs input_ids" in problem_of(model)


@needs_the_extra
def test_a_model_of_two_outputs_is_refused_and_the_reason_given(tmp_path: Path) -> None:
    two = ("entailment", "not_entailment")
    problem = problem_of(EntailmentModel(write_entailment_model(tmp_path, labels=two)))
    assert "two outputs (entailment, not_entailment): what is not entailed need not be contradicted" in problem
    assert "tells entailment, neutral and contradiction apart" in problem


@needs_the_extra
def test_more_labels_than_the_model_has_outputs_are_refused(tmp_path: Path) -> None:
    file = write_entailment_model(tmp_path, graph=entailment_graph(("contradiction", "other")))
    assert "(1, 3) was expected" in problem_of(EntailmentModel(file))


@needs_the_extra
@pytest.mark.parametrize("labels", [("LABEL_0", "LABEL_1", "LABEL_2"), ("contradiction",) * 3, ("contradiction",)])
def test_labels_that_do_not_name_one_contradiction_are_refused(tmp_path: Path, labels: tuple[str, ...]) -> None:
    problem = problem_of(EntailmentModel(write_entailment_model(tmp_path, labels=labels, graph=entailment_graph())))
    assert 'as in labels = ["contradiction", "entailment", "neutral"]' in problem


@needs_the_extra
@pytest.mark.parametrize("config", [None, "{}", "[", '{"id2label": {"1": "contradiction", "2": "neutral"}}'])
def test_without_labels_it_says_how_to_name_them(tmp_path: Path, config: str | None) -> None:
    file = write_entailment_model(tmp_path, labels=None)
    if config is not None:
        (tmp_path / "config.json").write_text(config)
    assert "does not name the outputs of the model (`id2label`)" in problem_of(EntailmentModel(file))
