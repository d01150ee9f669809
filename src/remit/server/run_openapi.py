"""What the OpenAPI document says about runs: search, delegations, acts, and the stream of all runs."""

from typing import Any

from remit.documents.api_delegations import FailureBody
from remit.documents.api_runs import PublicRunTree, RunAct, RunCancel, RunList, RunResume, RunRetry, RunTable
from remit.documents.run_search import STANDINGS
from remit.protocol.errors import Code
from remit.protocol.lifecycle import Status
from remit.protocol.records import Kind
from remit.server.event_endpoints import FORMS, KINDS
from remit.server.openapi_parts import Document, body, failures, header, in_path, look, query_parameter, reply

RUN_TYPES = (RunList, PublicRunTree, RunTable, RunCancel, RunRetry, RunResume, RunAct)
"""The types that are read and sent."""


def run_paths(ref: dict[Any, Any]) -> Document:
    """Return the operations on runs."""
    run = [in_path("run", "The run.")]
    return {
        "/v1/runs": {
            "get": {
                **look("runs", "Search the runs, newest first.", reply("The runs.", ref[RunList]), ref, _search()),
                "description": "The store selects by user, agent, time and correlation. For the rest at most 2,000 "
                "runs are read for each request: a page may hold few or none, and `next` says where to go on.",
            }
        },
        "/v1/runs/{run}": {
            "get": look("run", "The delegations of a run.", reply("The delegations.", ref[PublicRunTree]), ref, run)
        },
        "/v1/runs/{run}/tree": {
            "get": {
                **look(
                    "tree",
                    "All delegations of a run in columns, or those that changed.",
                    reply("The delegations.", ref[RunTable]),
                    ref,
                    [*run, query_parameter("after", "integer", "Only delegations that changed after this record.")],
                ),
                "description": "Columns are small: ten thousand delegations take some hundred kilobytes with gzip.",
            }
        },
        "/v1/runs/{run}/cancel": {
            "post": _act("cancel_run", "Cancel a run, or one delegation of it and everything below.", RunCancel, ref)
        },
        "/v1/runs/{run}/retry": {
            "post": _act("retry_run", "Repeat a run that did not succeed, as a new run.", RunRetry, ref)
        },
        "/v1/runs/{run}/resume": {
            "post": _act("resume_run", "Resume a run whose process is gone, without waiting.", RunResume, ref)
        },
        "/v1/events": {
            "get": {
                **look("events", "Follow the records of all runs.", _stream(), ref, _follow()),
                "description": "The first event is `ready`. Each record is sent once, in order, whichever process has "
                "committed it. With `form=runs` there is an event `run` for each run that changed, and `gap` if too "
                "many did.",
            }
        },
    }


def _search() -> list[Document]:
    return [
        query_parameter("q", "string", "Only runs with this text in id, objective, answer or error message."),
        query_parameter("user", "string", "Only runs of this user."),
        query_parameter("agent", "string", "Only runs that this agent was asked first."),
        _words("state", "Only runs in one of these states.", STANDINGS),
        _words("status", "Only runs that ended in one of these ways.", tuple(Status)),
        _words("code", "Only runs that ended with one of these error codes.", tuple(Code)),
        query_parameter("correlation", "string", "Only runs with this correlation id."),
        query_parameter("since_ms", "integer", "Only runs that started at this time or later (ms since 1970)."),
        query_parameter("until_ms", "integer", "Only runs that started before this time (ms since 1970)."),
        query_parameter("before", "string", "Only runs that were submitted before this run: `next` of the last page."),
        query_parameter("limit", "integer", "Maximum number of results."),
    ]


def _follow() -> list[Document]:
    return [
        query_parameter("after", "integer", "Begin after this record; without it, with what comes from now on."),
        query_parameter("run", "string", "Only records of this run."),
        _words("kinds", "Only records of these kinds.", KINDS),
        query_parameter("form", "string", "`records`, or `runs` for the runs that changed.")
        | {"schema": {"enum": list(FORMS)}},
        header("Last-Event-ID", "The number of the last event received.", pattern="^[0-9]{1,18}$"),
    ]


def _words(name: str, meaning: str, known: tuple[str, ...]) -> Document:
    """Return a parameter that is a list with commas."""
    word = f"({'|'.join(known)})"
    told = query_parameter(name, "string", f"{meaning} Several are separated by commas.")
    return told | {"schema": {"type": "string", "pattern": f"^({word}(,{word})*)?$"}}


def _stream() -> Document:
    names = [*(str(kind) for kind in Kind if kind is not Kind.DELTA), "ready", "run", "gap"]
    event: Document = {
        "type": "object",
        "properties": {
            "id": {"type": "string", "pattern": "^[0-9]+$", "description": "Number of the record."},
            "event": {"enum": names},
            "data": {"type": "string", "contentMediaType": "application/json"},
        },
    }
    return {"description": "The events.", "content": {"text/event-stream": {"schema": event}}}


def _act(name: str, summary: str, takes: type, ref: dict[Any, Any]) -> Document:
    done, under_way = (reply(meaning, ref[RunAct]) for meaning in ("It is done.", "It is under way."))
    conflict = reply("Not possible in the current state.", ref[FailureBody])
    return {
        "operationId": name,
        "summary": summary,
        "parameters": [in_path("run", "The run.")],
        "requestBody": {**body(ref[takes]), "required": False},
        "responses": {"200": done, "202": under_way, "409": conflict, **failures(ref[FailureBody])},
    }
