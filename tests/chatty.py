"""A local agent for tests: notes each request as it came, and answers as it is told to.

    python chatty.py NOTES HOW [VALUE]

`talk N`: N messages, then done. `long N`: for ever, N characters each. `tools N`: says that it used tools N times.
`silent-at N`: at turn N it notes its process id instead of answering, unless it did that before. `silent`: always.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

notes, how, value = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 0
pid = notes.with_suffix(".pid")


def answer(request: Any, **fields: Any) -> None:
    response = {"type": "desktop.local_prompt.response", "request_id": request["request_id"], "status": "ok"}
    print(json.dumps({**response, "confidence": 0.9, **fields}), flush=True)


for line in sys.stdin:
    request = json.loads(line)
    with notes.open("a", encoding="utf-8") as file:
        file.write(line)
    turn = request["turn_index"]
    text = f"turn {turn}: {request['objective']}"
    if how == "silent" or (how == "silent-at" and turn == value and not pid.exists()):
        pid.with_suffix(".new").write_text(str(os.getpid()), encoding="ascii")
        pid.with_suffix(".new").rename(pid)
    elif how == "long":
        answer(request, draft_message=f"{text} ".ljust(value, "x"))
    elif how == "tools":
        answer(request, draft_message=text, metrics={"tool_rounds": value})
    else:
        done = turn > (value if how == "talk" else 3)
        answer(request, draft_message=text, done=done, metrics={"tokens": 10, "tool_rounds": 0})
