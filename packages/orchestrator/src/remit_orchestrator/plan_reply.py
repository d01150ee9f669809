"""Reads a user's reply to a question about a plan, and continues the plan with it."""

from collections.abc import Mapping
from datetime import date
from typing import cast

from msgspec.structs import replace

from remit.protocol.card import Schema
from remit.protocol.envelope import Json
from remit_orchestrator.conversation import fits
from remit_orchestrator.plan_state import PlanState, with_intent
from remit_orchestrator.text.conditions import rule
from remit_orchestrator.text.field_replies import agrees
from remit_orchestrator.text.replies import chosen, fields


def with_reply(
    state: PlanState, reply: str, expected: Mapping[str, Schema], today: date, *, refused: bool
) -> PlanState | None:
    """Return the plan with what a reply says; None if the reply is about something else.

    *refused*: the reply is a no. *expected* are the fields that the question asked for, *today* the day of the reply.
    """
    asked = state.asked
    match asked["kind"]:
        case "choose":
            return _chosen(state, int(asked["place"]), reply, refused=refused)
        case "fields":
            found = fields(reply, expected, fits, today)
            offered: dict[str, Json] = asked.get("offered", {})
            if offered and agrees(reply):
                found = {**offered, **(found or {})}
            return None if found is None else _filled(state, found, agreed=bool(asked["agrees"]))
        case "condition":
            return _decided(state, str(asked["clause"]), reply, refused=refused)
        case _:
            meant = chosen(reply, [""])
            if meant is None:
                return None
            agreed = replace(state, agreed=True, asked={})
            return with_words(agreed, reply) if meant.more else agreed


def _chosen(state: PlanState, at: int, reply: str, *, refused: bool) -> PlanState | None:
    if refused:
        return with_intent(state, at, None)
    options = state.plan.parts[at].options
    meant = chosen(reply, [each.words for each in options])
    return None if meant is None else with_intent(state, at, options[meant.place].intent)


def _filled(state: PlanState, found: dict[str, Json], *, agreed: bool) -> PlanState:
    given: Json = state.given
    before = cast("dict[str, Json]", given) if isinstance(given, dict) else {}
    return replace(state, given={**before, **found}, agreed=state.agreed or agreed, asked={})


def _decided(state: PlanState, clause: str, reply: str, *, refused: bool) -> PlanState | None:
    meant = chosen(reply, [""])
    # "It is negative" decides it as a result would.
    holds = False if refused else True if meant is not None else rule(clause, reply, clause).holds
    return None if holds is None else replace(state, decided={**state.decided, clause: holds}, asked={})


def with_words(state: PlanState, said: str) -> PlanState:
    """Return a plan with something that the user said besides."""
    context = f"{state.plan.context}\n{said}" if state.plan.context else said
    return replace(state, plan=replace(state.plan, context=context))


def is_option(state: PlanState, code: str) -> bool:
    """Return whether the user was asked to choose what a part means, and this is one of the options."""
    if state.asked["kind"] != "choose":
        return False
    options = state.plan.parts[cast("int", state.asked["place"])].options
    return code in {each.intent.code for each in options}
