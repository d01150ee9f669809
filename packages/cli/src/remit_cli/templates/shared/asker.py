"""An example of a local agent: it asks what you want to know, asks once more, and reports what it was told.

Each line that comes in is a request, each line that goes out answers one. It needs no package.
"""

import json
import sys

for line in sys.stdin:
    request = json.loads(line)
    turn, answer = request["turn_index"], request["remote_message"]
    if turn == 1:
        draft = request["objective"]
    elif turn == 2:
        draft = "Thank you. Is there anything else that I should know about it?"
    else:
        draft = f"The other agent said last: {answer}"
    history = request["history"]
    if history and history[-1]["role"] == "user":
        # A draft was rejected: the last line says why.
        draft = f"{draft} ({history[-1]['text'].splitlines()[-1]})"
    response = {
        "type": "desktop.local_prompt.response",
        "request_id": request["request_id"],
        "status": "ok",
        "draft_message": draft,
        "confidence": 0.9,
        "done": turn > 2,
    }
    sys.stdout.write(json.dumps(response) + "\n")
    sys.stdout.flush()
