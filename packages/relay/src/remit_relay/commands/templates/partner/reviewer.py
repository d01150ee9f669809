"""The local agent of `remit dev`: it asks a few questions, then sums up. Each line is a request or its answer."""

import json
import sys

QUESTIONS = (
    "Which of its endpoints need no login?",
    "What happens to a token when its user is deleted?",
    "Can a token be revoked before it expires?",
)

for line in sys.stdin:
    request = json.loads(line)
    question_count: int = request["turn_index"] - 1
    if question_count < len(QUESTIONS):
        draft, done = QUESTIONS[question_count], False
    else:
        answer = request["remote_message"] or "nothing"
        draft, done = (
            f"{request['objective']}: {question_count} questions were asked. The last answer was: {answer}",
            True,
        )
    response = {"type": "desktop.local_prompt.response", "request_id": request["request_id"], "status": "ok"}
    response |= {"draft_message": draft, "done": done, "confidence": 0.9, "metrics": {"tool_rounds": 0}}
    sys.stdout.write(json.dumps(response) + "\n")
    sys.stdout.flush()
