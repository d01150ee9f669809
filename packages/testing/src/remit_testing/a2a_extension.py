"""Says which rules of the A2A extension `urn:remit:delegation:v1` an agent keeps, by asking it over HTTP.

    python -m remit_testing.a2a_extension https://travel.example/a2a/trains --token TOKEN

It needs nothing of Remit's own: any implementation can be checked, and none is compared with another. docs/reference/
a2a-extension.md has the rules.
"""

import argparse
import json
import os
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal, NamedTuple, cast
from urllib.parse import quote
from uuid import uuid4

EXTENSION = "urn:remit:delegation:v1"
CARD = "/.well-known/agent-card.json"

Content = dict[str, Any]
"""An object of JSON."""

AS_SERVER = {
    "card": "The card names the extension.",
    "answers": "A request within its remit is done.",
    "echo": "A reply to a client that activates the extension names it in `A2A-Extensions`.",
    "inactive": "A client that does not activate the extension gets none of its content.",
    "usage": "The outcome has the usage: `prompt` and `completion`, as texts of digits.",
    "unknown": "An unknown field is ignored.",
    "numbers": "An amount may be a number, too.",
    "invalid": "An amount that is no whole number of 0 or more is refused.",
    "tokens": "A request that is larger than its tokens is not done.",
    "money": "A request that costs money is not done with a `cost` of 0.",
    "depth": "A request below `maxDepth` is not done.",
    "time": "A request is over soon after its `timeMs`.",
}
"""What an agent is checked for that is asked."""

AS_CLIENT = {
    "activates": "A call of another agent activates the extension, and has its content.",
    "user": "The user stays the same.",
    "narrows tokens": "The callee gets no more tokens than its caller has.",
    "narrows time": "The callee gets no more time than its caller has.",
    "narrows money": "The callee gets no more money than its caller has, and a limit stays one.",
    "narrows context": "The callee is shown no more of the conversation than its caller.",
    "narrows depth": "`depth` is one more, and `maxDepth` no higher.",
    "narrows tools": "`tools` has nothing that its caller may not use.",
    "narrows priority": "`priority` is no higher.",
    "chain": "`chain` is that of the caller, and then one name: that of the caller.",
    "trace": "The trace of `traceparent` stays the same.",
    "counts": "The usage of a caller has that of its callees in it.",
    "delegation": "With `mayDelegate` false nobody is asked.",
    "targets": "With an empty list of `targets` nobody is asked.",
    "deepest": "At `maxDepth` nobody is asked.",
    "conditions": "Conditions on the arguments of a tool are passed on, or nobody is asked.",
    "loop": "An agent that is in the `chain` already is not asked again.",
}
"""What an agent is checked for that asks others."""

RULES = AS_SERVER | AS_CLIENT

# What the kit's own agent says that it has spent.
SPENT = {"prompt": "70", "completion": "30"}
# An answer takes its way, and a machine may be busy.
SLACK_S = 5.0
PATIENCE_S = 120.0
_ABOVE = "check/planner"
_BINDINGS = ("JSONRPC", "HTTP+JSON")
_INTERNAL = -32603
_OVER = ("COMPLETED", "FAILED", "CANCELED", "REJECTED", "INPUT_REQUIRED")


class CheckedRule(NamedTuple):
    """A rule, and whether the agent keeps it."""

    rule: str
    verdict: Literal["kept", "broken", "not checked"]
    why: str = ""
    """What was seen, or what is needed to check it."""

    def __str__(self) -> str:
        return f"{self.verdict:12} {self.rule:16} {RULES[self.rule]}{f' ({self.why})' if self.why else ''}"


class Reply(NamedTuple):
    """What an agent answered."""

    active: bool
    """Whether it named the extension in its headers."""
    state: str
    """The state of the task without `TASK_STATE_`; empty if there is none."""
    outcome: Content
    """The content of the extension."""
    error: str
    took_s: float

    @property
    def done(self) -> bool:
        return self.state in ("COMPLETED", "INPUT_REQUIRED")

    @property
    def refused(self) -> bool:
        """Whether it was not done on purpose: a server that fails refuses nothing."""
        failed = self.error.startswith("HTTP 5") or f" {_INTERNAL}:" in self.error
        return not self.done and not failed and bool(self.error or self.state)

    @property
    def usage(self) -> Content:
        return _object(self.outcome.get("usage"))

    def __str__(self) -> str:
        return self.error or f"it ended as {self.state or 'nothing'} after {self.took_s:.1f} s"


class AgentUnderTest:
    """An A2A agent, asked over the first of its interfaces that is JSON-RPC or HTTP+JSON, or over *binding*."""

    def __init__(self, url: str, token: str = "", binding: str = "") -> None:
        self._headers = {"A2A-Version": "1.0", "Content-Type": "application/json"}
        if token:
            self._headers["Authorization"] = f"Bearer {token}"
        base = url.rstrip("/").removesuffix(CARD)
        _, _, self.card = self._fetch(f"{base}{CARD}")
        interfaces = [_object(each) for each in _list(self.card.get("supportedInterfaces"))]
        wanted = (binding,) if binding else _BINDINGS
        usable = [each for each in interfaces if each.get("protocolBinding") in wanted]
        if not usable:
            raise SystemExit(f"{base}: its card names no interface of {' or '.join(wanted)}")
        self._at, self._is_rpc = str(usable[0]["url"]), usable[0]["protocolBinding"] == "JSONRPC"

    @property
    def entry(self) -> Content | None:
        """The extension in its card."""
        listed = _list(_object(self.card.get("capabilities")).get("extensions"))
        return next((each for each in map(_object, listed) if each.get("uri") == EXTENSION), None)

    def ask(self, text: str, content: Content, *, active: bool = True, trace: str = "") -> Reply:
        """Send a message with content of the extension, and wait until its task has ended."""
        began_s = time.monotonic()
        headers = {"traceparent": trace} if trace else {}
        message: Content = {"messageId": uuid4().hex, "role": "ROLE_USER", "parts": [{"text": text}]}
        message["metadata"] = {EXTENSION: content}
        if active:
            headers["A2A-Extensions"] = EXTENSION
            message["extensions"] = [EXTENSION]
        named, body, error = self._call("SendMessage", "/message:send", {"message": message}, headers)
        task = _as_task(body["message"]) if "message" in body else _object(body.get("task"))
        while "id" in task and _state(task) not in _OVER and time.monotonic() - began_s < PATIENCE_S:
            time.sleep(0.1)
            path = f"/tasks/{quote(str(task['id']), safe='')}"
            _, task, error = self._call("GetTask", path, {"id": task["id"]}, headers)
        took_s = time.monotonic() - began_s
        return Reply(active=named, state=_state(task), outcome=_outcome(task), error=error, took_s=took_s)

    def _call(self, method: str, path: str, params: Content, headers: dict[str, str]) -> tuple[bool, Content, str]:
        """Return whether the reply names the extension, its body, and the error in it."""
        if self._is_rpc:
            body: Content | None = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
            named, status, value = self._fetch(self._at, body, headers)
            error = _object(value.get("error"))
            failed = bool(error) or status >= 400
            return named, _object(value.get("result")), _words(status, error) if failed else ""
        body = params if method == "SendMessage" else None
        named, status, value = self._fetch(f"{self._at}{path}", body, headers)
        if status < 400:
            return named, value, ""
        return named, {}, _words(status, _object(value.get("error")) or value)

    def _fetch(
        self, url: str, body: Content | None = None, headers: dict[str, str] | None = None
    ) -> tuple[bool, int, Content]:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(url, data=data, headers={**self._headers, **(headers or {})})
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_S) as reply:
                status, named, raw = reply.status, reply.headers.get("A2A-Extensions", ""), reply.read()
        except urllib.error.HTTPError as error:
            with error:
                status, named, raw = error.code, error.headers.get("A2A-Extensions", ""), error.read()
        except OSError as error:
            raise SystemExit(f"{url}: {error}") from error
        try:
            value: object = json.loads(raw)
        except ValueError:
            value = None
        return EXTENSION in named, status, _object(value)


def _as_task(message: Content) -> Content:
    """Return an answer without a task as one."""
    return {"status": {"state": "TASK_STATE_COMPLETED", "message": message}}


def _state(task: Content) -> str:
    return str(_object(task.get("status")).get("state", "")).removeprefix("TASK_STATE_")


def _outcome(task: Content) -> Content:
    """Return the content of the extension: at an artifact, or at the status message."""
    holders = [*_list(task.get("artifacts")), _object(task.get("status")).get("message")]
    contents = (_object(_object(_object(each).get("metadata")).get(EXTENSION)) for each in holders)
    return next((each for each in contents if each), Content())


def _object(value: object) -> Content:
    """Return a value that should be an object; an empty one if it is not."""
    return cast("Content", value) if isinstance(value, dict) else Content()


def _list(value: object) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []


def _words(status: int, error: Content) -> str:
    return f"HTTP {status}, {error.get('code', 'no code')}: {str(error.get('message', ''))[:200]}"


class CalledAgent:
    """An A2A agent of the kit, which the agent under test calls: it answers, and keeps what it was sent."""

    def __init__(self, host: str = "127.0.0.1", port: int = 0) -> None:
        self.calls: list[tuple[dict[str, str], Content]] = []
        """The headers of each call, and its message."""
        calls = self.calls

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._reply(_card(f"http://{self.headers['Host']}"))

            def do_POST(self) -> None:
                call = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                message = call["params"]["message"]
                calls.append(({name.lower(): value for name, value in self.headers.items()}, message))
                self._reply({"jsonrpc": "2.0", "id": call["id"], "result": {"task": _answer(message)}})

            def _reply(self, value: Content) -> None:
                body = json.dumps(value).encode()
                self.send_response(200)
                for name, text in (("Content-Type", "application/json"), ("A2A-Extensions", EXTENSION)):
                    self.send_header(name, text)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None: ...

        self._server = ThreadingHTTPServer((host, port), Handler)
        self.url = f"http://{host}:{self._server.server_port}"

    @contextmanager
    def listening(self) -> Generator["CalledAgent"]:
        """Serve it while the block runs."""
        thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            self._server.server_close()
            thread.join()


def _card(url: str) -> Content:
    return {
        "name": "called",
        "description": "An agent that the agent under test calls.",
        "version": "1",
        "supportedInterfaces": [{"url": url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}],
        "capabilities": {"streaming": False, "extensions": [{"uri": EXTENSION}]},
        "defaultInputModes": ["text/plain"],
        "defaultOutputModes": ["text/plain"],
        "skills": [{"id": "called", "name": "called", "description": "Answers.", "tags": ["check"]}],
    }


def _answer(message: Content) -> Content:
    artifact = {
        "artifactId": "result",
        "name": "result",
        "parts": [{"text": "called"}],
        "extensions": [EXTENSION],
        "metadata": {EXTENSION: {"usage": SPENT}},
    }
    context = message.get("contextId") or uuid4().hex
    status = {"state": "TASK_STATE_COMPLETED"}
    return {"id": uuid4().hex, "contextId": context, "status": status, "artifacts": [artifact]}


class Checks:
    """The checks of one agent."""

    def __init__(self, agent: AgentUnderTest, *, user: str, task: str, slow: str, calls: str) -> None:
        self._agent = agent
        self._base: Content = {"user": user, "depth": "1", "maxDepth": "4", "chain": [_ABOVE]}
        self._base |= {"tokens": "20000", "timeMs": "60000", "contextTokens": "500"}
        self._task, self._slow, self._calls = task, slow, calls

    def all(self, called: CalledAgent | None) -> Iterator[CheckedRule]:
        """Yield the findings, one after another."""
        yield from self._as_server()
        if called is None or not self._calls:
            needs = "needs a text on which it calls the agent of this kit: --calls TEXT --port PORT"
            yield from (CheckedRule(rule, "not checked", needs) for rule in AS_CLIENT)
            return
        yield from self._as_client(called)

    def _ask(self, text: str, **changes: object) -> Reply:
        return self._agent.ask(text, {**self._base, **changes})

    # ── as a server ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _as_server(self) -> Iterator[CheckedRule]:
        entry = self._agent.entry
        yield _checked("card", entry is not None, "`capabilities.extensions` lacks it")
        reply = self._ask(self._task)
        yield _checked("answers", reply.done, reply)
        yield _checked("echo", reply.active, "its headers lack it")
        plain = self._agent.ask(self._task, self._base, active=False)
        yield _checked("inactive", not plain.active and not plain.outcome, "its reply has it")
        counts = [reply.usage.get(each) for each in ("prompt", "completion")]
        yield _checked("usage", all(isinstance(each, str) and each.isdecimal() for each in counts), f"it has {counts}")
        yield from self._of_fields()
        yield from self._of_limits(reply)

    def _of_fields(self) -> Iterator[CheckedRule]:
        unknown = self._ask(self._task, ofALaterVersion={"a": [1]})
        yield _checked("unknown", unknown.done, unknown)
        numbers = self._ask(self._task, tokens=20_000, depth=1)
        yield _checked("numbers", numbers.done, numbers)
        invalid = [self._ask(self._task, tokens=wrong) for wrong in ("-1", "many", 0.5)]
        accepted = [each for each in invalid if not (each.error and each.refused)]
        yield _checked("invalid", not accepted, accepted[0] if accepted else "")

    def _of_limits(self, usual: Reply) -> Iterator[CheckedRule]:
        large = self._ask(f"{self._task} {'and again ' * 500}", tokens="1")
        yield _checked("tokens", large.refused, large)
        if _amount(usual.usage, "cost"):
            free = self._ask(self._task, cost="0")
            yield _checked("money", free.refused, free)
        else:
            yield CheckedRule("money", "not checked", "its usage has no cost")
        deep = self._ask(self._task, depth="5", maxDepth="4")
        yield _checked("depth", deep.refused, deep)
        if not self._slow:
            yield CheckedRule("time", "not checked", "needs a text on which it works for a minute: --slow TEXT")
            return
        late = self._ask(self._slow, timeMs="500")
        yield _checked("time", late.refused and late.took_s < 0.5 + SLACK_S, late)

    # ── as a client ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _as_client(self, called: CalledAgent) -> Iterator[CheckedRule]:
        trace = f"00-{uuid4().hex}-{uuid4().hex[:16]}-01"
        sent = {**self._base, "cost": "1000000", "tools": ["look"], "priority": "LOW"}
        reply = self._agent.ask(self._calls, sent, trace=trace)
        if not called.calls:
            why = f"it did not call the agent of this kit at {called.url}: {reply}"
            yield CheckedRule("activates", "broken", why)
            yield from (CheckedRule(rule, "not checked", why) for rule in AS_CLIENT if rule != "activates")
            return
        headers, message = called.calls[0]
        got = _object(_object(message.get("metadata")).get(EXTENSION))
        yield _checked("activates", EXTENSION in headers.get("a2a-extensions", "") and bool(got), "it has none")
        yield from _narrowed(sent, got)
        traced = headers.get("traceparent", "")
        yield _checked("trace", traced.split("-")[1:2] == trace.split("-")[1:2], f"{traced or 'none'} of {trace}")
        spent, below = ([int(each.get(name, 0)) for name in SPENT] for each in (_amounts(reply.usage), SPENT))
        yield _checked("counts", all(own >= other for own, other in zip(spent, below, strict=True)), f"it has {spent}")
        yield from self._of_refusals(called, got)

    def _of_refusals(self, called: CalledAgent, got: Content) -> Iterator[CheckedRule]:
        around: dict[str, Content] = {
            "delegation": {"mayDelegate": False},
            "targets": {"targets": []},
            "deepest": {"depth": "4", "maxDepth": "4"},
        }
        for rule, changes in around.items():
            before = len(called.calls)
            reply = self._ask(self._calls, **changes)
            sent = len(called.calls) - before
            yield _checked(rule, not sent, f"it called the agent of this kit {sent} times, and {reply}")
        yield self._of_conditions(called)
        before = len(called.calls)
        reply = self._ask(self._calls, chain=got.get("chain") or [], depth=got.get("depth") or "2")
        sent = len(called.calls) - before
        yield _checked("loop", not sent and reply.refused, f"it called the agent of this kit {sent} times, and {reply}")

    def _of_conditions(self, called: CalledAgent) -> CheckedRule:
        before, terms = len(called.calls), {"amount": "<= 100"}
        self._ask(self._calls, tools={"look": terms})
        sent = [_object(_object(message.get("metadata")).get(EXTENSION)) for _, message in called.calls[before:]]
        passed: list[object] = [each.get("tools") for each in sent]
        return _checked("conditions", all(_keeps(each, terms) for each in passed), f"its callee got {passed}")


def _keeps(tools: object, terms: Content) -> bool:
    """Return whether the use of `look` is bound by *terms*, and perhaps by others: several sets hold together."""
    sets = _object(tools).items()
    return tools == [] or (
        bool(sets) and all(name == "look" and terms in (_list(each) or [each]) for name, each in sets)
    )


def _narrowed(sent: Content, got: Content) -> Iterator[CheckedRule]:
    """Yield whether the content that a callee got allows nothing more than that of its caller."""
    yield _checked("user", got.get("user") == sent["user"], f"{got.get('user')} for {sent['user']}")
    limits = {"tokens": "tokens", "time": "timeMs", "money": "cost", "context": "contextTokens"}
    for rule, field in limits.items():
        amount, most = _amount(got, field), _amount(sent, field)
        within = amount is not None and most is not None and amount <= most
        yield _checked(f"narrows {rule}", within, f"`{field}`: {amount} of {most}")
    depth, deepest = _amount(got, "depth"), _amount(got, "maxDepth")
    kept = depth == int(sent["depth"]) + 1 and deepest is not None and deepest <= int(sent["maxDepth"])
    yield _checked("narrows depth", kept, f"depth {depth} of {deepest}, from {sent['depth']} of {sent['maxDepth']}")
    tools: object = got.get("tools")
    names = list(_object(got.get("tools"))) or _list(got.get("tools"))
    kept = isinstance(tools, list | dict) and all(each in sent["tools"] for each in names)
    yield _checked("narrows tools", kept, f"it has {tools}")
    yield _checked("narrows priority", got.get("priority") == "LOW", f"{got.get('priority')} for LOW")
    chain = _list(got.get("chain"))
    yield _checked("chain", chain[:-1] == sent["chain"], f"{chain} after {sent['chain']}")


def _amounts(content: Content) -> Content:
    return {name: _amount(content, name) or 0 for name in content}


def _amount(content: Content, field: str) -> int | None:
    """Return an amount, written as a text of digits or as a number; None if there is none."""
    value = content.get(field)
    if isinstance(value, str) and value.isdecimal():
        return int(value)
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) and value >= 0 else None


def _checked(rule: str, kept: bool, why: object) -> CheckedRule:
    return CheckedRule(rule, "kept") if kept else CheckedRule(rule, "broken", str(why))


def check(
    url: str,
    *,
    token: str = "",
    user: str = "checker",
    task: str = "Say hello.",
    slow: str = "",
    calls: str = "",
    called: CalledAgent | None = None,
    binding: str = "",
    tell: Callable[[CheckedRule], object] = lambda _: None,
) -> list[CheckedRule]:
    """Return what is found about the agent at *url*, rule by rule; *tell* gets each finding at once.

    On *task* it answers, on *slow* it works for long, on *calls* it asks the agent *called*, which is listening.
    """
    findings: list[CheckedRule] = []
    for finding in Checks(AgentUnderTest(url, token, binding), user=user, task=task, slow=slow, calls=calls).all(
        called
    ):
        tell(finding)
        findings.append(finding)
    return findings


def main(arguments: Sequence[str] | None = None) -> int:
    """Check the agent that the command line names; return 1 if it breaks a rule."""
    parser = argparse.ArgumentParser("python -m remit_testing.a2a_extension", description=f"Check {EXTENSION}.")
    parser.add_argument("url", help="address of the agent, or of its card")
    parser.add_argument("--token", default=os.environ.get("A2A_TOKEN", ""), help="its bearer token ($A2A_TOKEN)")
    parser.add_argument("--binding", default="", choices=_BINDINGS, help="binding to ask over")
    parser.add_argument("--user", default="checker", help="user to ask for")
    parser.add_argument("--task", default="Say hello.", help="text that it answers")
    parser.add_argument("--slow", default="", help="text on which it works for a minute")
    parser.add_argument("--calls", default="", help="text on which it calls the agent of this kit")
    parser.add_argument("--host", default="127.0.0.1", help="address at which the agent of this kit listens")
    parser.add_argument("--port", type=int, default=0, help="port of the agent of this kit")
    given = parser.parse_args(arguments)
    with CalledAgent(given.host, given.port).listening() as called:
        findings = check(
            given.url,
            token=given.token,
            user=given.user,
            task=given.task,
            slow=given.slow,
            calls=given.calls,
            called=called if given.calls else None,
            binding=given.binding,
            tell=lambda each: print(each, flush=True),  # noqa: T201 - its answer
        )
    verdicts = [each.verdict for each in findings]
    print(f"{verdicts.count('kept')} kept, {verdicts.count('broken')} broken, "  # noqa: T201
          f"{verdicts.count('not checked')} not checked")  # fmt: skip
    return 1 if "broken" in verdicts else 0


if __name__ == "__main__":
    sys.exit(main())
