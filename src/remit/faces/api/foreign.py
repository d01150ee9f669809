"""`/dialects/{name}`: clients that speak another envelope than ours work unchanged."""

from remit.dialects import NAMES, find
from remit.dialects.exchange import Foreign
from remit.faces.api.bodies import Headers, Receive, Scope, Send, headers_of, read_as, read_json, send_bytes
from remit.faces.api.delegations import Delegations
from remit.faces.api.refusals import note
from remit.policy.reception import Sender, peer_name
from remit.policy.session_names import told
from remit.policy.weight import is_light_response
from remit.protocol.codec import malformed
from remit.protocol.envelope import NOBODY, VERSION, Request, Response
from remit.protocol.errors import Code, Fault, Problem, RemitError, fault
from remit.protocol.lifecycle import Status
from remit.protocol.submission import Submission
from remit.runtime.aside import SMALL_BODY, aside

# Where each dialect says for whom is asked: what its client reads has to name that place, not ours.
_USER_AT = {
    "employee": "$.user_id",
    "librarian": "$.context.remit.user",
    "contract": "$.context.user_id",
    "subagent": "$.remit.user",
}


# The documents that limit fan-out and cycles: agents elsewhere have no other guard of these than this hub.
_COUNTED = frozenset({"employee"})


class ForeignTongues:
    """Delegations in other dialects: translated on the way in and on the way out, and nothing else."""

    def __init__(self, delegations: Delegations) -> None:
        self._delegations = delegations

    async def speak(self, scope: Scope, receive: Receive, send: Send) -> None:
        """`POST /dialects/{name}`, and what the documents call that address."""
        name: str = scope["path_params"]["name"]
        if name not in NAMES:
            known = ", ".join(NAMES)
            raise RemitError(fault(Code.NOT_FOUND, f"there is no dialect `{name[:100]}`; there are: {known}"))
        dialect, headers = find(name), headers_of(scope)
        # Where an envelope does not say whom it is for, the address does: `/dialects/librarian/<name>`.
        target = scope["path_params"].get("rest", "") if name == "librarian" else ""
        asked = Foreign(headers=headers, target=target)
        sent = None
        try:
            sender = await self._delegations.sender(scope, headers)
            asked = Foreign(headers=headers, target=target, body=await read_json(headers, receive))
            sent = await read_as(lambda _: dialect.submission(asked), asked.body)
            response = await self._ended(sent, sender, headers, receive, counted=name in _COUNTED)
            response = told(response, peer_name(sender))
        except RemitError as error:
            note(scope, headers, error.fault)
            response = _refused(sent, _placed(name, error.fault))
            if sent is None and len(asked.body) > SMALL_BODY:
                asked = Foreign(headers=headers, target=target)  # it was not read, and is not to be for the answer
        if is_light_response(response) and len(asked.body) <= SMALL_BODY:
            reply = dialect.reply(response, asked)
        else:
            reply = await aside.run(dialect.reply, response, asked)
        await _send_reply(reply, asked, send)

    async def _ended(
        self, sent: Submission, sender: Sender, headers: Headers, receive: Receive, *, counted: bool
    ) -> Response:
        request = await self._delegations.received(sent, sender, headers)
        try:
            return await self._end(request, receive, anew=sent.id is None, counted=counted)
        finally:
            if counted:
                await self._delegations.hub.counted(request)

    async def _end(self, request: Request, receive: Receive, *, anew: bool, counted: bool) -> Response:
        asked = self._delegations
        going = await asked.begin(request, counted=counted)
        if isinstance(going, Response):
            return going
        # None of the dialects knows of something that waits for a person: they wait, too.
        end = await asked.end_of(going, going.run, receive, anew=anew, questions=False)
        if not isinstance(end, Response):
            why = "this server goes down before it has ended; send the same again"
            raise RemitError(fault(Code.OUTCOME_UNKNOWN, why))
        return end


async def _send_reply(reply: Foreign, asked: Foreign, send: Send) -> None:
    headers = {"content-type": "application/json", **reply.headers}
    if not asked.body:
        headers["connection"] = "close"  # nobody has read it, or will
    pairs = tuple((name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items())
    await send_bytes(send, reply.status, reply.body, pairs)


def _placed(dialect: str, why: Fault) -> Fault:
    """Return a fault with the user's place as the dialect has it."""
    if [each.path for each in why.problems] != ["$.user"]:
        return why
    return malformed((Problem(_USER_AT[dialect], why.problems[0].message),))


def _refused(sent: Submission | None, why: Fault) -> Response:
    return Response(
        version=VERSION,
        id=(sent.id if sent is not None else None) or NOBODY,
        target=NOBODY if sent is None else sent.target,
        status=Status.REFUSED,
        fault=why,
    )
