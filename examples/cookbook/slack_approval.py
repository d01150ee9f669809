"""Ask in a Slack channel before money is paid: the question has two buttons, and a signed click answers it."""

import asyncio
import hmac
import json
import os
import time
from urllib.parse import parse_qs

from aiohttp import request, test_utils, web

from remit import Brief, Decision, Hub, InboxApprover, Question, view_of
from remit_cli import Rule, guard_of
from remit_testing import MemoryStore
from scripted import scripted_channel, slack_signature

SECRET = b"the signing secret of your Slack app"
MOST, MOST_BLOCKS = 3_000, 50  # what Slack takes: characters of a section, and blocks of a message
store = MemoryStore()  # with a store on disk the question outlives a restart


def plain(text: str) -> dict[str, str]:
    return {"type": "plain_text", "text": text}


async def ask_slack(question: Question) -> Decision:
    await store.put(question)  # before anybody can click
    shown = f"{question.text}\n{view_of(question).text()}"
    parts = [plain(shown[at : at + MOST]) for at in range(0, len(shown), MOST)]
    if len(parts) < MOST_BLOCKS:  # else nobody in Slack would see all of it, and `remit pending` shows it
        button = {"type": "button", "value": question.id}
        buttons = [button | {"action_id": word, "text": plain(word)} for word in ("approve", "reject")]
        blocks = [*({"type": "section", "text": each} for each in parts), {"type": "actions", "elements": buttons}]
        async with request("POST", os.environ["SLACK_WEBHOOK"], json={"blocks": blocks}, raise_for_status=True):
            pass
    return await InboxApprover(store)(question)


async def clicked(post: web.BaseRequest) -> web.Response:
    body, sent = await post.read(), post.headers["X-Slack-Request-Timestamp"]
    is_signed = hmac.compare_digest(slack_signature(SECRET, sent, body), post.headers["X-Slack-Signature"])
    if not is_signed or abs(time.time() - int(sent)) > 300:
        raise web.HTTPForbidden
    payload = json.loads(parse_qs(body.decode())["payload"][0])
    (click,) = payload["actions"]
    await hub.decide(click["value"], agreed=click["action_id"] == "approve", by=payload["user"]["username"])
    return web.Response()


hub = Hub(store=store, guards=[guard_of([Rule(then="ask", to="cashier", say="Pay this?")])], approver=ask_slack)


@hub.agent("cashier")
async def cashier(brief: Brief) -> str:
    return f"paid {brief.input}"


async def main() -> None:
    async with test_utils.RawTestServer(clicked) as server, hub:
        with scripted_channel('with "5 euros"', SECRET, str(server.make_url("/"))) as url:
            os.environ["SLACK_WEBHOOK"] = url
            for amount in ("5 euros", "5000 euros"):
                response = await hub.ask("cashier", user="ada", input=amount)
                print(response.fault.message if response.fault else response.result)


asyncio.run(main())
