"""The JSON of protobuf messages in every form that its writers may choose."""

from typing import Any

import pytest

from remit_server.dialects.a2a.types import GetTask, ListTasks, SendMessage, StreamResponse, Task, plain


@pytest.mark.parametrize(
    ("given", "read"),
    [
        ({"id": "t", "history_length": 3}, {"id": "t", "historyLength": 3}),
        ({"id": "t", "historyLength": "3"}, {"id": "t", "historyLength": 3}),
        ({"id": "t", "historyLength": 3.0}, {"id": "t", "historyLength": 3}),
        ({"id": "t", "historyLength": 3.5}, {"id": "t", "historyLength": 3.5}),
        ({"id": "t", "historyLength": "3x"}, {"id": "t", "historyLength": "3x"}),
        ({"id": "t", "history_length": None, "tenant": None}, {"id": "t"}),
        ({"id": "t", "historyLength": 3, "history_length": None}, {"id": "t", "historyLength": 3}),
        ({"id": "t", "unknown_field": None}, {"id": "t", "unknown_field": None}),
        (["no object"], ["no object"]),
    ],
)
def test_names_numbers_and_null(given: Any, read: Any) -> None:
    assert plain(given, GetTask) == read


def test_enum_values_by_their_numbers() -> None:
    assert plain({"status": 6, "page_size": "10"}, ListTasks) == {"status": "TASK_STATE_INPUT_REQUIRED", "pageSize": 10}
    assert plain({"status": 99}, ListTasks) == {"status": 99}
    assert plain({"status": True}, ListTasks) == {"status": True}
    task = {"id": "t", "status": {"state": 3, "message": {"role": 2, "message_id": "m"}}}
    assert plain({"task": task}, StreamResponse) == {
        "task": {
            "id": "t",
            "status": {"state": "TASK_STATE_COMPLETED", "message": {"role": "ROLE_AGENT", "messageId": "m"}},
        }
    }


def test_what_people_put_into_a_message_stays_as_it_is() -> None:
    part = {
        "data": {"task_id": None, "page_size": "3"},
        "metadata": {"media_type": 1},
        "media_type": "application/json",
    }
    message = {"message_id": "m", "role": 1, "parts": [part], "task_id": "t"}
    given = {"message": message, "metadata": {"history_length": "3"}, "configuration": {"return_immediately": True}}
    assert plain(given, SendMessage) == {
        "message": {
            "messageId": "m",
            "role": "ROLE_USER",
            "taskId": "t",
            "parts": [
                {
                    "data": {"task_id": None, "page_size": "3"},
                    "metadata": {"media_type": 1},
                    "mediaType": "application/json",
                }
            ],
        },
        "metadata": {"history_length": "3"},
        "configuration": {"returnImmediately": True},
    }


def test_a_part_whose_data_is_null_keeps_it() -> None:
    artifact = {"artifact_id": "a", "parts": [{"data": None}, {"text": "x", "raw": None}]}
    given = {"id": "t", "artifacts": [artifact]}
    assert plain(given, Task) == {
        "id": "t",
        "artifacts": [{"artifactId": "a", "parts": [{"data": None}, {"text": "x"}]}],
    }
