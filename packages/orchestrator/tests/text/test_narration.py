"""What a user reads: one answer, in plain language, and nothing about who works for whom."""

import re
from collections.abc import Collection

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from labelled_cases import cases
from remit.protocol.errors import Code, Problem, fault
from remit.protocol.lifecycle import Status
from remit.words.components import Conflict, Findings, ReportedValue
from remit.words.failures import reason
from remit.words.names import unified, without_names
from remit_orchestrator.text.conflicts import find
from remit_orchestrator.text.narration import Narrative, NarrativeSection, narrate, progress_phrase, section_of
from samples import a_response

COSTS = NarrativeSection(
    "ANL", {"npv": 24156.72, "departure": "9:40"}, 0.9, "Costs", warnings=("The figures are of 2023.",)
)
ROUTE = NarrativeSection("DOC", "The client departs at 10:40.", 0.4, "Route")
RISKS = NarrativeSection("RSK", title="Risks", failure=fault(Code.TIMEOUT, "RSK took longer than 30000 ms"))
BOOKING = NarrativeSection("BKG", title="Booking", skipped="the risks are not known.")
NAMES = ["ANL", "DOC", "RSK", "BKG", "ANL_NPV"]


def test_several_components_are_one_answer() -> None:
    """K9: logical order, one terminology, a confidence for each component, conflicts shown; K8: a unified answer."""
    sections = [COSTS, ROUTE, RISKS, BOOKING]
    narrative = narrate(
        sections, find(sections), glossary={"client": "customer", "npv": "net present value"}, forbidden=NAMES
    )
    assert narrative == Narrative(
        text="""\
## Costs

- Net present value: 24156.72
- Departure: 9:40

Confidence: high.
Note: The figures are of 2023.

## Route

The customer departs at 10:40.

Confidence: low.

## What is missing

- Risks: not done; it took too long. It can be tried again.
- Booking: not begun, because the risks are not known.""",
        complete=False,
    )


def conflict(preferred: object = None, question: str | None = None) -> Findings:
    values = (ReportedValue("9:40", ("ANL",)), ReportedValue("10:40", ("DOC",)))
    departure = Conflict(path="train.departure", severity="high", values=values, preferred=preferred, question=question)
    return Findings(conflicts=(departure,), agreement=0.5)


def test_a_conflict_is_shown_with_the_source_that_is_preferred_and_why() -> None:
    """K9: conflicts shown, the more confident source preferred."""
    text = narrate([COSTS, ROUTE], conflict("9:40"), forbidden=NAMES).text
    assert (
        "## Where the results differ\n\n"
        "- Train departure: 9:40 (Costs, confidence high) or 10:40 (Route, confidence low). "
        "9:40 is preferred, because that source is the more certain." in text
    )


def test_where_no_source_is_more_certain_the_user_is_asked() -> None:
    """K9: the user asked where it matters."""
    conflicts, glossary = conflict(question="Does the client leave at 9:40?"), {"client": "customer"}
    narrative = narrate([COSTS, ROUTE], conflicts, glossary=glossary)
    assert "Neither is the more certain." in narrative.text
    assert narrative.text.endswith("## What you need to decide\n\n- Does the customer leave at 9:40?")
    assert narrative.questions == ("Does the customer leave at 9:40?",)


def test_of_several_opinions_each_is_told() -> None:
    values = (ReportedValue("The fee is 5 dollars", ("a",)), ReportedValue(7, ("b", "?")), ReportedValue((8, 9), ()))
    findings = Findings(conflicts=(Conflict(path="", severity="high", values=values),))
    text = narrate([NarrativeSection("a", "A", None, "One"), NarrativeSection("b", "B", 0.1, "Two")], findings).text
    assert (
        "- The answer: “The fee is 5 dollars” (One, confidence not stated) or 7 (Two, confidence speculative) or 8, 9. "
        "None is more certain than the others." in text
    )


def test_of_many_conflicts_the_gravest_are_told_and_how_many_more_there_are() -> None:
    """K9: conflicts are not hidden."""
    sections = [
        NarrativeSection(name, {f"n{place}": place * more + 1 for place in range(15)})
        for name, more in (("a", 1), ("b", 9))
    ]
    narrative = narrate(sections, find(sections))
    assert len(narrative.questions) == 14
    assert narrative.text.count("\n- … and 4 more that weigh less.") == 2


def test_one_component_needs_no_heading() -> None:
    assert narrate([ROUTE]) == Narrative(text="The client departs at 10:40.\n\nConfidence: low.")


def test_a_step_without_a_title_is_a_part() -> None:
    assert narrate([NarrativeSection("a", "A"), NarrativeSection("b", "B")]).text.startswith(
        "## Part 1\n\nA\n\nConfidence: not stated."
    )


def test_if_nothing_could_be_done_that_is_said() -> None:
    """K8: partial failure still yields a unified answer; so does a whole one."""
    text = narrate([RISKS]).text
    assert text.startswith("None of this could be done.\n\n## What is missing\n\n- Risks: not done; it took too long.")


def test_what_was_finished_before_a_time_out_is_told_and_what_was_not() -> None:
    """K10: a timed-out one returns what was finished and what was not."""
    late = a_response(
        target="RSK",
        status=Status.TIMEOUT,
        result="Two risks were found.",
        unfinished=("the third region",),
        fault=fault(Code.TIMEOUT, "after 30000 ms"),
    )
    assert narrate([section_of("Risks", late)]).text == (
        "Two risks were found.\n\nConfidence: not stated.\n\n## What is missing\n\n"
        "- Risks: not finished; it took too long. It can be tried again.\n- Risks: without the third region."
    )


def test_a_section_holds_what_came_of_a_step() -> None:
    done = a_response(target="tag", result="A", confidence=0.5, warnings=("old",), unfinished=("rest",))
    assert section_of("Tags", done) == NarrativeSection("tag", "A", 0.5, "Tags", missing=("rest",), warnings=("old",))
    failed = section_of("Tags", a_response(status=Status.FAILED, result=None))
    assert failed.failure is not None
    assert reason(failed.failure) == "something went wrong on the way."


def test_a_section_that_is_a_narrative_itself_is_told_as_it_is() -> None:
    """K8: of a workflow within another."""
    inner = "Two risks.\n\nConfidence: low.\n\n## What is missing\n\n- Third: not done; it took too long."
    section = NarrativeSection("inner", inner, 0.3, "Risks", missing=("Third",), whole=True)
    assert narrate([section]) == Narrative(text=inner)
    assert narrate([section, COSTS], forbidden=NAMES).text.startswith(f"## Risks\n\n{inner}\n\n## Costs")


def test_details_that_are_missing_or_not_right_are_named() -> None:
    """K10: in the words of the fields, and not of the schema."""
    problems = (Problem("$.account", "is required"), Problem("$.payments[0].dueDate", "x"), Problem("$.account", "y"))
    missing = fault(Code.DATA_MISSING_REQUIRED_INPUT, "the input of FILE lacks account", problems=problems[:1])
    wrong = fault(Code.INPUT_VALIDATION_FAILED, "the input does not fit FILE", problems=problems)
    assert reason(missing) == "something that it needs to know was not said: account."
    assert reason(wrong).endswith("not complete or not right: account, payments 0 due date.")
    assert reason(fault(Code.INPUT_VALIDATION_FAILED, "")).endswith("not complete or not right.")


def test_a_text_that_tells_all_as_one_stands_in_the_place_of_the_parts() -> None:
    """K9: conflicts and gaps are told, whatever a model made of the results."""
    text = narrate([COSTS, ROUTE, RISKS], conflict("9:40"), forbidden=NAMES, blend=" All in all it pays off. ").text
    assert text.startswith(
        "All in all it pays off.\n\n## How sure this is\n\n- Costs: high\n- Route: low\n\n"
        "## Please note\n\n- The figures are of 2023.\n\n## Where the results differ"
    )
    assert "24156.72" not in text
    assert "## What is missing" in text


# ── reasons ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("code", Code)
def test_why_something_failed_is_said_without_codes(code: Code) -> None:
    """K10: what failed, in plain language; K6: without codes."""
    sentence = reason(fault(code, "ANL_NPV failed"))
    assert sentence.endswith(".")
    assert re.search(r"[A-Z]{2}|_|agent|delegat|token", sentence) is None


@pytest.mark.parametrize(
    ("wait", "ending"),
    [(None, "again."), (200, "in 1 second."), (30_000, "in 30 seconds."), (120_000, "in about 2 minutes.")],
)
def test_when_it_can_be_tried_again_is_said(wait: int | None, ending: str) -> None:
    """K10: the caller may retry."""
    assert reason(fault(Code.RATE_LIMITED, "", retry_after_ms=wait)).endswith(ending)


# ── one terminology ───────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The client pays. Client data. CLIENT", "The customer pays. Customer data. CUSTOMER"),
        ("clients, subclient, client-side, client's", "clients, subclient, customer-side, customer's"),
        (
            "NPV is 5, and the NPV counts.\n- NPV",
            "Net present value is 5, and the net present value counts.\n- Net present value",
        ),
        ("a business  partner and a partner", "a supplier and a partner"),
        (
            "see https://example.org/client or client@example.org or `client`",
            "see https://example.org/client or client@example.org or `client`",
        ),
        ("mail [CLIENT:bcdfghjklmnp] to the client", "mail [CLIENT:bcdfghjklmnp] to the customer"),
        ("a use case and a case", "a use case and a use case"),
    ],
)
def test_each_variant_gives_way_to_the_one_term(text: str, expected: str) -> None:
    """K9: one terminology."""
    glossary = {
        "client": "customer",
        "NPV": "net present value",
        "business partner": "supplier",
        "case": "use case",
        " ": "x",
    }
    assert unified(text, glossary) == expected


def test_terms_that_change_places_do_so_once() -> None:
    assert unified("left and right", {"left": "right", "right": "left"}) == "right and left"
    assert [unified("as it is", {}), unified("as it is", {"it": ""})] == ["as it is", "as  is"]


# ── no names ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # What the document calls inappropriate.
        ("Routing to ANL agent for NPV calculation...", ""),
        ("CST handoff complete, initiating DOC workflow...", ""),
        ("Agent capability ANL_MONTECARLO invoked...", ""),
        ("First. Routing to ANL now.\nThe NPV is 5.", "First. The NPV is 5."),
        # What it calls appropriate.
        ("Let me analyze the financial implications of these scenarios...",) * 2,
        ("The route is long. A handover takes a day.",) * 2,
        ("Delegated to ANL, which found 5 risks.", "Delegated to the analysis, which found 5 risks."),
        ("According to the ANL agent, it pays.", "According to the analysis, it pays."),
        (
            "ANL's figures. The “ANL” says so; agent CST agrees.",
            "The analysis's figures. The analysis says so; the analysis agrees.",
        ),
        ("It used ANL_NPV and anl_montecarlo.", "It used the analysis and the analysis."),
        ("CANLIS and ANLs stay",) * 2,
        ("The doc says so, and Doc too.",) * 2,
        ("[ANL:bcdfghjklmnp] stays, ANL does not", "[ANL:bcdfghjklmnp] stays, the analysis does not"),
        ("prime  boss says so", "The analysis says so"),
        ("ask @tag", "ask the analysis"),
    ],
)
def test_names_of_agents_and_capabilities_never_show(text: str, expected: str) -> None:
    """K6: agent codes and capability codes never show."""
    assert without_names(text, ["ANL", "DOC", "CST", "ANL_NPV", "Prime Boss", "@tag", " "]) == expected


def test_a_name_can_have_words_of_its_own() -> None:
    """K6: plain language about the analysis."""
    own_names = {"ANL": "the financial analysis", "DOC": "ANL"}
    assert without_names("ANL and CST say so.", own_names) == "The financial analysis and CST say so."
    # What it is told to say is a name too, and so nobody is told it.
    assert without_names("We asked DOC.", own_names) == "We asked •."


def test_words_that_are_names_themselves_stand_in_for_none() -> None:
    assert without_names("The ANL agent says so", ["ANL", "agent"]) == "The analysis says so"
    assert without_names("ANL says so", ["ANL", "analysis"]) == "This part says so"
    assert without_names("ANL says so", ["ANL", "analysis", "part", "step"]) == "• says so"
    assert without_names("ANL of it's", ["ANL", "analysis of", "s"]) == "• of it•"


def appears(name: str, text: str) -> bool:
    name = " ".join(name.split())
    before = r"(?<!\w)" if re.match(r"\w", name) else ""
    after = r"(?![^\W_])" if name[-1].isalnum() else ""
    # Capital letters alone are a code: in another case they are a word.
    flags = re.NOFLAG if name.isascii() and name.isalpha() and name.isupper() else re.IGNORECASE
    return re.search(before + r"\s+".join(map(re.escape, name.split())) + after, text, flags) is not None


names = st.text(min_size=1, max_size=6) | st.sampled_from(
    ["ANL", "the", "a", "s", "analysis", "the analysis of", "tag-ai", "ANL_NPV", "this part", "…", "•", "İn", "ſk"]
)
words = names | st.sampled_from(["agent", "'s", "the", ".", "\n", "Routing to", "_X", "5"])
texts = st.lists(words, max_size=10).map(" ".join) | st.lists(words, max_size=10).map("".join)


@given(texts, st.sets(names.filter(str.strip), max_size=4))
def test_no_forbidden_name_appears_whatever_the_text(text: str, forbidden: Collection[str]) -> None:
    """K6: agent codes and capability codes never show."""
    cleaned = without_names(text, forbidden)
    assert not any(appears(name, cleaned) for name in forbidden)
    assert without_names(cleaned, forbidden) == cleaned


@given(st.lists(st.tuples(names, texts, texts), max_size=3), texts)
def test_no_forbidden_name_appears_in_an_answer(parts: list[tuple[str, str, str]], blend: str) -> None:
    """K6: agent codes and capability codes never show."""
    sections = [NarrativeSection(name, result, 0.5, title) for name, result, title in parts]
    forbidden = {name for name, _, _ in parts if name.strip()}
    narrative = narrate(sections, find(sections), forbidden=forbidden, blend=blend)
    assert not any(appears(name, each) for name in forbidden for each in (narrative.text, *narrative.questions))


# ── while it runs ─────────────────────────────────────────────────────────────────────────────────────────────────────

PHRASES = {"ANL_NPV": "Working out the financial side…", "DOC_GENERATE": "Routing to DOC now"}


@pytest.mark.parametrize(
    ("capability", "description", "phrase"),
    [
        *cases("narration", "while_a_step_runs_the_user_reads_what_is_being_done"),
        ("ANL_IRR", "a" * 100, f"Working on {'a' * 80}…"),
        ("ANL_IRR", "long " * 30, f"Working on {'long ' * 15}long…"),
        (None, "", "Working on it…"),
    ],
)
def test_while_a_step_runs_the_user_reads_what_is_being_done(
    capability: str | None, description: str, phrase: str
) -> None:
    """K6: what the user sees of a hand-off is plain language about the analysis."""
    assert progress_phrase(capability, PHRASES, description, forbidden=["ANL", "DOC"]) == phrase


def test_a_code_that_is_a_word_hides_where_it_is_a_code_and_not_where_it_is_a_word() -> None:
    """K6: plain language, and no code."""
    assert progress_phrase("PIZZA", {}, "Order a pizza") == "Let me order a pizza…"
    assert progress_phrase("PIZZA", {"PIZZA": "Calling the pizza place"}) == "Calling the pizza place…"
    assert progress_phrase("PIZZA", {}, "Order by PIZZA") == "Let me order by the analysis…"


@pytest.mark.parametrize("name", ["gallery", "Gallery"])
def test_a_title_keeps_the_plain_word_that_is_also_the_name_of_its_workflow(name: str) -> None:
    assert progress_phrase(name, {}, "Check the gallery") == "Let me check the gallery…"
    assert progress_phrase(name, {name: "Hanging the gallery"}) == "Hanging the gallery…"
    assert progress_phrase("the_gallery", {}, "Check the_gallery") == "Let me check the analysis…"


@given(texts, names.filter(str.strip))
def test_no_capability_shows_while_it_runs(description: str, capability: str) -> None:
    """K6: agent codes and capability codes never show."""
    assume(not capability.isalpha() or (capability.isupper() and capability in description))
    phrase = progress_phrase(capability, {}, description)
    frame = {"let", "me", "working", "on", "it", "let me", "working on", "working on it", "…"}
    assert capability.strip().lower() in frame or not appears(capability, phrase.rstrip("…"))
