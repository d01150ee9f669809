"""Files of a hub's envelopes at the relay: an answer to a person may bring some, and a request of a hub brings none."""

import base64

from remit.protocol.envelope import Artifact
from remit.protocol.files import File
from remit.protocol.submission import Submission
from remit_relay.e2e.inbox import Opened
from remit_relay.messages.questions import answered, files_in, submission
from remit_relay.messages.types import QuestionMessage
from remit_relay.session.profile import AttachedFile, ControlEnvelope
from samples import a_response

PICTURE = File(name="a.png", media_type="image/png", data=b"\x89PNG")
LINK = File(name="b.pdf", url="https://example.org/b.pdf")

CONTROL = ControlEnvelope(origin_agent_device_id="d", trace_id="t", hop_count=1, orchestrator_profile_id="p")
BY_HUB = QuestionMessage(
    id="q", session="s", text="Look", control=CONTROL, request=Submission(target="-", objective="x", files=(PICTURE,))
)


def test_files_and_old_artifacts_of_an_answer_are_attached() -> None:
    old = {"raw": base64.b64encode(b"hi").decode(), "mediaType": "text/plain", "filename": "hi.txt"}
    response = a_response(files=(PICTURE, LINK), artifacts=(Artifact(type="file", value=old),))
    assert files_in(response) == (
        AttachedFile(name="a.png", media_type="image/png", data=b"\x89PNG"),
        AttachedFile(name="hi.txt", media_type="text/plain", data=b"hi"),
    )


def test_a_request_of_a_hub_brings_no_files_past_the_rules() -> None:
    opened = Opened(id=1, sender="device", message="m", requester="ann", body=b"")
    taken = submission(opened, BY_HUB, "helper")
    assert (taken.objective, taken.files) == ("x", ())


def test_a_hub_is_told_that_files_are_not_sent() -> None:
    message = answered(BY_HUB, a_response(files=(PICTURE,)))
    assert message.answer is not None
    assert message.answer.files == ()
    assert message.answer.warnings == ("The files of the answer are not sent: hubs that ask a shared agent get none.",)
    plain = answered(BY_HUB, a_response()).answer
    assert plain is not None
    assert plain.warnings == ()
