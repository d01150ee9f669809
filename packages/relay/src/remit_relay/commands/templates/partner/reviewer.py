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
    asked: int = request["turn_index"] - 1
    if asked < len(QUESTIONS):
        draft, done = QUESTIONS[asked], False
    else:
        said = request["remote_message"] or "nothing"
        draft, done = f"{request['objective']}: {asked} questions were asked. The last answer was: {said}", True
    response = {"type": "desktop.local_prompt.response", "request_id": request["request_id"], "status": "ok"}
    response |= {"draft_message": draft, "done": done, "confidence": 0.9, "metrics": {"tool_rounds": 0}}
    sys.stdout.write(json.dumps(response) + "\n")
    sys.stdout.flush()
