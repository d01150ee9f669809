"""The chat view in a real browser, with a real gateway and two devices: S12, and each of its manners."""

import json
from pathlib import Path

from playwright.async_api import Browser, Locator, Page, expect

from chats import console_world
from console_pages import usable_in_both_looks, violations
from devices import sealer
from pairing import meeting_at, owner_of
from remit import Brief
from remit_relay.bridge.ports import Choice, Draft, PermissionRequest, PromptRequest
from remit_relay.pairing.client import join_pairing
from remit_relay.pairing.code import read_code
from remit_relay.session.moves import SessionState
from remit_relay.session.profile import FileRules, ProfileLimits


def dock(page: Page) -> Locator:
    return page.get_by_role("region", name="Controls")


def said(page: Page) -> Locator:
    """What was said, each message and each rejected draft."""
    return page.get_by_role("log", name="Messages").get_by_role("article")


async def press(page: Page, name: str) -> None:
    await dock(page).get_by_role("button", name=name, exact=True).click()


async def test_drafts_are_edited_rejected_and_sent_by_themselves_and_each_says_so(tmp_path: Path, page: Page) -> None:
    """Semi-auto: the rules ask, the person edits with a word diff, rejects with a reason, or is not asked."""

    def unsure(request: PromptRequest) -> Draft:
        sure = {1: 0.9, 2: 0.2, 3: 0.9}[request.turn_index]
        wanted = request.turn_index == 2 and request.history and request.history[-1].role == "user"
        text = f"Question {request.turn_index} about the orders API"
        return Draft(text=text, confidence=0.9 if wanted else sure, tokens=40, done=request.turn_index > 2)

    async with console_world(tmp_path, unsure) as world:
        await world.sign_in(page)
        await world.begin(page, "Review the orders API", "Semi-auto")
        await expect(dock(page).get_by_text("Nothing was sent to this device before.")).to_be_visible()
        await expect(page).to_have_title("(1) Chat · Remit")
        await press(page, "Edit")
        await dock(page).get_by_role("textbox", name="Edit the draft").fill("Question 1 about the open orders API")
        await expect(dock(page).get_by_role("insertion")).to_have_text("open ")
        await expect(dock(page).get_by_text("1 added, 0 removed")).to_be_visible()
        await usable_in_both_looks(page)
        await press(page, "Approve edited")

        await expect(dock(page).get_by_text("low_confidence")).to_be_visible()
        await press(page, "Reject")
        await dock(page).get_by_role("textbox", name="What should the agent do instead?").fill("Be sure first.")
        await press(page, "Reject")
        await expect(page.get_by_text("Objective met").first).to_be_visible()
        await expect(page).to_have_title("Chat · Remit")
        first, reply, rejected, auto, _ = await said(page).all()
        for shown, texts in (
            (first, ("Local agent", "edited", "by you", "first_contact", "open orders", "answered")),
            (reply, ("Remote agent", "helper", "heard: Question 1 about the open orders API")),
            (rejected, ("Local agent", "rejected", "low_confidence", "Reason: Be sure first.")),
            (auto, ("Local agent", "auto-sent", "Question 2")),
        ):
            for text in texts:
                await expect(shown).to_contain_text(text)
        await first.get_by_role("button", name="Show changes").click()
        await expect(first.get_by_role("insertion")).to_have_text("open ")
        markdown = await _exported(page, "As Markdown")
        assert "## Local agent, mine (edited)" in markdown
        assert "Reason: Be sure first." in markdown
        document = json.loads(await _exported(page, "As JSON"))
        assert [each["label"] for each in document["entries"]] == ["edited", None, "rejected", "auto_sent", None]


async def _exported(page: Page, how: str) -> str:
    await page.get_by_role("button", name="Export").click()
    async with page.expect_download() as saving:
        await page.get_by_role("menuitem", name=how).click()
    return (await (await saving.value).path()).read_text(encoding="utf-8")


async def test_a_run_goes_on_by_itself_until_its_limit_and_the_banner_says_what_can_be_done(
    tmp_path: Path, page: Page
) -> None:
    async with console_world(tmp_path, limits=ProfileLimits(max_turns=2)) as world:
        await world.sign_in(page)
        await world.begin(page, "Count the orders", "Full-auto")
        banner = dock(page).get_by_role("alert")
        await expect(banner).to_contain_text("Limit of turns reached.")
        await expect(banner).to_contain_text("The run has ended at its limit of 2 turns.")
        await expect(banner).to_contain_text("raise limits.max_turns of the profile")
        await expect(dock(page).get_by_role("meter", name="Turns")).to_have_attribute("aria-valuetext", "2 of 2")
        await expect(said(page)).to_have_count(4)
        await usable_in_both_looks(page)
        await banner.get_by_role("link", name="New with this objective").click()
        await expect(page.get_by_role("textbox", name="Objective")).to_have_value("Count the orders")
        await expect(page.get_by_role("radio", name="Full-auto")).to_be_checked()
        lines = page.get_by_role("complementary", name="Conversations").get_by_role("listitem")
        await page.get_by_role("searchbox", name="Search in conversations").fill("nothing like it")
        await expect(page.get_by_text("No conversation found.")).to_be_visible()
        await page.get_by_role("searchbox", name="Search in conversations").fill("QUESTION 2")
        await expect(lines).to_contain_text(["Count the orders"])


async def test_everything_can_be_done_with_the_keyboard_alone(tmp_path: Path, page: Page) -> None:
    """Start, approve, edit, pause, resume, take over, write, hand back, redirect and stop."""
    async with console_world(tmp_path) as world:
        await world.sign_in(page)
        keys = page.keyboard
        await page.get_by_role("textbox", name="Objective").focus()
        await keys.type("Review the API")
        await keys.press("Control+Enter")
        await expect(dock(page).get_by_text("Draft for turn 1")).to_be_visible()
        await keys.press("e")
        await expect(dock(page).get_by_role("textbox", name="Edit the draft")).to_be_focused()
        await keys.press("Control+a")
        await keys.type("My own question")
        await keys.press("Control+Enter")
        await expect(dock(page).get_by_text("Draft for turn 2")).to_be_visible()
        await expect(said(page).first).to_contain_text("My own question")
        await keys.press("p")
        await expect(dock(page).get_by_text("Paused: nothing is sent until you resume.")).to_be_visible()
        await expect(dock(page).get_by_role("button", name="Approve")).to_be_disabled()
        await keys.press("p")
        await expect(dock(page).get_by_role("button", name="Approve")).to_be_enabled()
        await keys.press("a")
        await expect(dock(page).get_by_role("button", name="Approve")).to_be_focused()
        await keys.press("Control+Enter")
        await expect(dock(page).get_by_text("Draft for turn 3")).to_be_visible()
        world.local.gate.clear()
        await keys.press("o")
        await expect(page.get_by_role("textbox", name="Objective")).to_be_focused()
        await keys.press("End")
        await keys.type(", and its errors")
        await keys.press("Control+Enter")
        await expect(page.get_by_text("Your agent is writing").first).to_be_visible()
        (run,) = world.sides.host.runs
        run = await world.sides.until(run, SessionState.WAITING_LOCAL)
        assert run.objective == "Review the API, and its errors"
        world.changes.writes(run.id, run.prompt or "", lambda: "Half a draft ")
        await expect(page.get_by_text("Half a draft")).to_be_visible()
        await keys.press("t")
        await expect(page.get_by_text("Not finished: you stopped it.")).to_be_visible()
        await keys.press("d")
        await keys.type("I write this myself")
        await keys.press("Control+Enter")
        await expect(said(page).nth(4)).to_contain_text("I write this myself")
        await expect(said(page).nth(4)).to_contain_text("yours")
        await expect(said(page).nth(5)).to_contain_text("heard: I write this myself")
        world.local.gate.set()
        await dock(page).get_by_role("button", name="Hand back").press("Enter")
        await expect(dock(page).get_by_text("Draft for turn 4")).to_be_visible()
        sent: list[str] = []
        page.on("request", lambda each: sent.append(each.url) if each.url.endswith("/reject") else None)
        await keys.press("x")
        await keys.type("no, wrong account")
        await keys.press("Enter")
        await expect(dock(page).get_by_text("Ctrl+Enter Reject")).to_be_visible()
        await keys.press("Escape")
        assert sent == []
        await keys.press("?")
        await expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
        await keys.press("Escape")
        await dock(page).get_by_role("button", name="Stop").press("Enter")
        await page.get_by_role("dialog").get_by_role("button", name="Stop").press("Enter")
        await expect(dock(page).get_by_role("alert")).to_contain_text("You stopped this conversation.")
        await expect(dock(page).get_by_text("Draft that was not sent")).to_be_visible()


async def test_a_plain_chat_is_seen_in_two_browsers_and_outlives_its_server(
    tmp_path: Path, page: Page, browser: Browser
) -> None:
    async def answer(brief: Brief) -> str:
        return "\n".join(f"line {number} of the answer" for number in range(60))

    text = FileRules(types=("text/*",))
    async with console_world(tmp_path, answer=answer, files=text, shared={"files": text}) as world:
        await world.sign_in(page)
        await page.get_by_role("switch", name="Use my agent").click()
        await page.get_by_role("textbox", name="First message").fill("Are orders kept for ever?")
        await page.get_by_role("button", name="Start").click()
        await expect(said(page)).to_have_count(2)
        assert world.local.prompts == []
        await expect(said(page).last).to_be_in_viewport()

        other = await (await browser.new_context(viewport={"width": 390, "height": 844})).new_page()
        await other.goto(world.links.new())
        await other.get_by_role("complementary").get_by_role("link", name="Chat without an objective").click()
        await expect(said(other)).to_have_count(2)
        await said(page).first.hover()
        await page.mouse.wheel(0, -5_000)
        await expect(page.get_by_role("button", name="Newest")).to_be_visible()
        await other.get_by_label("Attach a file").set_input_files(
            {"name": "orders.txt", "mimeType": "text/plain", "buffer": b"one\n"}
        )
        await expect(dock(page).get_by_role("button", name="Download orders.txt")).to_be_visible()
        assert [each.via for each in world.sides.noted if each.event == "Attach"] == ["console"]
        await other.get_by_role("textbox", name="Your message").fill("These ones")
        await press(other, "Send")
        await expect(page.get_by_role("button", name="2 new")).to_be_visible()
        await expect(said(page).nth(2).get_by_role("button", name="Download orders.txt")).to_be_attached()
        await page.get_by_role("button", name="2 new").click()
        await expect(said(page).last).to_be_in_viewport()

        # Nothing that was typed is lost when the server goes and comes back as a new process.
        await page.get_by_role("textbox", name="Your message").fill("I was writing this")
        await world.restart()
        await expect(page.get_by_text("Connection to the device lost.")).to_be_hidden()
        await page.get_by_role("switch", name="Use my agent").click()
        await page.get_by_role("textbox", name="Objective").fill("Find out how long orders are kept")
        await page.get_by_role("button", name="Set objective").click()
        await page.get_by_role("switch", name="Use my agent").click()
        for each in (page, other):
            await expect(dock(each).get_by_text("Draft for turn 3")).to_be_visible()
        await press(other, "Edit")
        await other.get_by_role("textbox", name="Edit the draft").fill("My version of it")
        await press(page, "Take over")
        await expect(other.get_by_text("What you typed was not sent:")).to_be_visible()
        await expect(other.get_by_text("My version of it")).to_be_visible()
        await expect(page.get_by_role("textbox", name="Your message")).to_have_value("I was writing this")
        assert await violations(other) == []
        await other.context.close()


async def test_a_permission_is_asked_for_and_a_failure_says_what_can_be_done(tmp_path: Path, page: Page) -> None:
    async with console_world(tmp_path) as world:
        choices = (
            Choice(id="once", name="Allow once", kind="allow_once"),
            Choice(id="never", name="Reject", kind="reject_once"),
        )
        world.local.wants = PermissionRequest(
            id="q", session_id="", title="Run make clean", kind="execute", details="make clean", choices=choices
        )
        await world.sign_in(page)
        await world.begin(page)
        question = dock(page).get_by_role("alert", name="Permission")
        await expect(question).to_contain_text("Run make clean")
        await expect(page).to_have_title("(1) Chat · Remit")
        assert await violations(page) == []
        await question.get_by_role("button", name="Allow once").click()
        await expect(dock(page).get_by_text("Draft for turn 1")).to_be_visible()
        assert world.local.permitted == ["once"]
        await world.sides.ours.do(world.sides.anna.peers.revoke, world.sides.bob.device.id)
        await press(page, "Approve")
        banner = dock(page).get_by_role("alert")
        await expect(banner).to_contain_text("this device has revoked bob")
        await expect(banner).to_contain_text("Resume tries again; or take over, or stop.")


async def test_devices_are_paired_and_what_each_may_do_is_switched(tmp_path: Path, page: Page) -> None:
    async with console_world(tmp_path) as world:
        await world.sign_in(page)
        await page.get_by_role("link", name="Devices").click()
        bob = page.get_by_role("region", name="bob")
        await expect(bob).to_contain_text("Knows the API of the shop.")
        await expect(page.get_by_role("region", name="This device")).to_contain_text("Connected")
        await bob.get_by_role("switch", name="bob may ask expert").click()
        await expect(bob.get_by_role("switch", name="bob may ask expert")).to_be_checked()
        peer = await world.sides.ours.do(world.sides.anna.peers.get, world.sides.bob.device.id)
        assert peer is not None
        assert peer.agents == {"expert"}
        await usable_in_both_looks(page)

        await page.get_by_role("button", name="Pair a device").click()
        await page.get_by_role("textbox", name="Code of the other device").fill("not a code")
        await page.get_by_role("button", name="Join").click()
        await expect(page.get_by_role("dialog").get_by_role("alert")).to_be_visible()
        await page.get_by_role("switch", name="expert", exact=True).click()
        await page.get_by_role("button", name="Show a code").click()
        await expect(page.get_by_role("img", name="QR code with the link to pair")).to_be_visible()
        assert await violations(page) == []
        code = await page.get_by_role("dialog").get_by_role("strong").inner_text()
        carl = sealer(tmp_path, "carl")
        joined = await join_pairing(meeting_at(world.gateway), owner_of(carl), read_code(code).code)
        await expect(page.get_by_role("dialog")).to_contain_text("Paired with carl.")
        await expect(page.get_by_role("dialog")).to_contain_text(joined.words)
        await page.get_by_role("button", name="Done").click()
        carls = page.get_by_role("region", name="carl")
        await expect(carls.get_by_role("switch", name="carl may ask expert")).to_be_checked()
        await expect(carls).to_contain_text("Verified")
        await bob.get_by_role("link", name="Chat helper").click()
        await expect(page.get_by_role("textbox", name="Objective")).to_be_visible()
