"""The instructions of A2A's integration test kit: protobuf messages that say what an agent of a chain does.

They have the wire format of the kit (`protos/instruction.proto` of a2aproject/a2a-itk) and are described here, so that
neither the kit nor a compiler is needed to read them.
"""

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_Field = descriptor_pb2.FieldDescriptorProto

# By message: its fields with their numbers and types; a type that starts with a capital is a message.
_MESSAGES: dict[str, dict[str, tuple[int, str]]] = {
    "Instruction": {
        "call_agent": (1, "CallAgent"),
        "return_response": (2, "ReturnResponse"),
        "steps": (3, "SeriesOfSteps"),
    },
    "CallAgent": {
        "transport": (1, "string"),
        "agent_card_uri": (2, "string"),
        "instruction": (3, "Instruction"),
        "streaming": (4, "bool"),
        "send_message": (5, "SendMessageBehavior"),
        "push_notification": (6, "PushNotificationBehavior"),
        "resubscribe": (7, "ResubscribeBehavior"),
    },
    "ReturnResponse": {"response": (1, "string"), "hold_task": (2, "bool")},
    "SeriesOfSteps": {"instructions": (1, "repeated Instruction"), "response_generator": (2, "int32")},
    "SendMessageBehavior": {},
    "PushNotificationBehavior": {"url": (1, "string")},
    "ResubscribeBehavior": {},
}
_KINDS = {"string": _Field.TYPE_STRING, "bool": _Field.TYPE_BOOL, "int32": _Field.TYPE_INT32}


def _described() -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto(name="remit/itk.proto", package="itk", syntax="proto3")
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, (number, kind) in fields.items():
            *repeated, kind = kind.split()
            added = message.field.add(name=field, number=number, label=_Field.LABEL_OPTIONAL)
            if repeated:
                added.label = _Field.LABEL_REPEATED
            if kind in _KINDS:
                added.type = _KINDS[kind]
            else:
                added.type, added.type_name = _Field.TYPE_MESSAGE, f".itk.{kind}"
    return file


_pool = descriptor_pool.DescriptorPool()
_pool.AddSerializedFile(_described().SerializeToString())

Instruction: Any = message_factory.GetMessageClass(_pool.FindMessageTypeByName("itk.Instruction"))
"""One step of a chain: call an agent, return a text, or carry out several steps."""

MEDIA_TYPE = "application/x-protobuf"
FILE = "instruction.bin"
FINISHED = "task-finished"
"""What ends the text of a task that is held open: its caller need not wait for its end."""


def returning(text: str, *, hold: bool = False) -> Any:
    """Return the instruction to answer with a text; *hold*: the task stays open until it is cancelled."""
    instruction = Instruction()
    instruction.return_response.response = text
    instruction.return_response.hold_task = hold
    return instruction


def calling(
    url: str, then: Any, *, transport: str, says: str, streaming: bool = False, notify: str = "", hold: bool = False
) -> Any:
    """Return the instruction to say a text, and then to have the agent at *url* carry out *then*.

    With *notify* it is told to notify that address; with *hold* its task stays open, and so does this one.
    """
    instruction = Instruction()
    instruction.steps.instructions.append(returning(says, hold=hold))
    call = instruction.steps.instructions.add().call_agent
    call.transport, call.agent_card_uri, call.streaming = transport, url, streaming
    call.instruction.CopyFrom(then)
    if notify:
        call.push_notification.url = notify
    elif hold:
        call.resubscribe.SetInParent()
    else:
        call.send_message.SetInParent()
    return instruction


def holds(instruction: Any) -> bool:
    """Return whether the task of an instruction stays open after its answer, until it is cancelled."""
    if instruction.HasField("steps"):
        return any(holds(each) for each in instruction.steps.instructions)
    return instruction.HasField("return_response") and instruction.return_response.hold_task
