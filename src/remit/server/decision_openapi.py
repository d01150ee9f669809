"""The part of the OpenAPI document about decisions: one delegation explained, approvals, and policy."""

from typing import Any

from msgspec import Struct

from remit.documents.api_approvals import (
    AnswerGiven,
    AnswerOutcomes,
    ApprovalAnswer,
    ApprovalDetail,
    ApprovalList,
    SeveralAnswers,
)
from remit.documents.api_delegations import FailureBody
from remit.documents.policy import Guards
from remit.server.delegation_views import DelegationDetail
from remit.server.openapi_parts import Document, body, in_path, look, query_parameter, reply
from remit.server.policy_endpoints import PolicyAnswer, PolicyQuestion, TeamView

DECISION_TYPES: tuple[type[Struct], ...] = (
    DelegationDetail,
    ApprovalList,
    ApprovalDetail,
    ApprovalAnswer,
    SeveralAnswers,
    AnswerGiven,
    AnswerOutcomes,
    PolicyQuestion,
    PolicyAnswer,
    Guards,
    TeamView,
)


def decision_paths(ref: dict[Any, Any]) -> Document:
    """Return the operations, given the reference to the schema of each type."""
    return {**_delegation_paths(ref), **_approval_paths(ref), **_policy_paths(ref)}


def _delegation_paths(ref: dict[Any, Any]) -> Document:
    where = [
        in_path("run", "The run."),
        in_path("path", "The path of the delegation: the id of the run for the first one, `run.2.1` for others."),
    ]
    summary = "One delegation: its remit, what its callee saw, the verdicts, the answer and its records."
    found = reply("The delegation.", ref[DelegationDetail])
    return {
        "/v1/runs/{run}/delegations/{path}": {"get": look("delegation_detail", summary, found, ref, where)},
    }


def _approval_paths(ref: dict[Any, Any]) -> Document:
    question = [in_path("id", "The id of the question.")]
    conflict = {"409": reply("It was answered before, or is about another request by now.", ref[FailureBody])}
    answered = reply("The answer counts.", ref[AnswerGiven])
    outcomes = reply("What became of each answer.", ref[AnswerOutcomes])
    lately = query_parameter("answered", "integer", "Maximum number of questions that were answered lately.")
    several = look("answer_several", "Answer several questions; each has an outcome of its own.", outcomes, ref)
    one = look("answer", "Answer a question.", answered, ref, question)
    return {
        "/v1/approvals": {
            "get": look(
                "approvals",
                "What waits for a person, and what was answered lately.",
                reply("The questions.", ref[ApprovalList]),
                ref,
                [lately],
            ),
            "post": {**several, "requestBody": body(ref[SeveralAnswers])},
        },
        "/v1/approvals/{id}": {
            "get": look("approval", "A question with its request.", reply("It.", ref[ApprovalDetail]), ref, question),
            "post": {
                **one,
                "requestBody": body(ref[ApprovalAnswer]),
                "responses": {**one["responses"], **conflict},
            },
        },
    }


def _policy_paths(ref: dict[Any, Any]) -> Document:
    explained = look(
        "policy_explain",
        "What would happen to a call, optionally with a draft of the team file.",
        reply("The verdict of every guard.", ref[PolicyAnswer]),
        ref,
    )
    return {
        "/v1/policy/explain": {"post": {**explained, "requestBody": body(ref[PolicyQuestion])}},
        "/v1/policy/guards": {
            "get": look("policy_guards", "The guards in order.", reply("The guards.", ref[Guards]), ref)
        },
        "/v1/team": {
            "get": look("team", "The limits and permissions in force.", reply("The team.", ref[TeamView]), ref)
        },
    }
