"""A local agent in twenty lines: each line that comes in is a request, each line that goes out answers one."""

import json
import sys

QUESTIONS = ["Which of its endpoints need no login?", "What happens to a token when its user is deleted?"]

for line in sys.stdin:
    request = json.loads(line)
    index = request["turn_index"] - 1
    if index < len(QUESTIONS):
        draft, done = f"{request['objective']}: {QUESTIONS[index]}", False
    else:
        draft, done = f"Two things were asked. The last answer: {request['remote_message']}", True
    response = {"type": "desktop.local_prompt.response", "request_id": request["request_id"], "status": "ok"}
    response |= {"draft_message": draft, "done": done, "confidence": 0.9, "metrics": {"tool_rounds": 0}}
    print(json.dumps(response), flush=True)
