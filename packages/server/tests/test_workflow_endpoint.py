"""The workflow of a run over HTTP: what was planned, and what has become of each step."""

import asyncio
from typing import Any

from remit import Answer, Brief, Code, Hub, RemitError, Step, Workflow, fault
from remit.policy.reception import Permission, Sender
from remit.protocol.records import PlannedStep, StepPlan
from remit_orchestrator import add_workflow
from serving import ANNA, WEB, client_of, got, posted, serving

READER = Sender(name="reader", permissions=frozenset({Permission.READ}))
BOB = Sender(name="bob-app", users=frozenset({"bob"}))


def add_agents(hub: Hub) -> None:
    tried: list[int] = []

    @hub.agent("worker")
    async def worker(brief: Brief) -> str:
        return f"{brief.objective} done"

    @hub.agent("shaky")
    async def shaky(_: Brief) -> str:
        tried.append(1)
        if len(tried) == 1:
            raise RemitError(fault(Code.DELEGATION_UNAVAILABLE, "not now"))
        return "at last"

    @hub.agent("broken")
    async def broken(_: Brief) -> str:
        raise RemitError(fault(Code.DELEGATION_FAILED, "no"))

    assert worker
    assert shaky
    assert broken


def by_name(graph: Any) -> dict[str, Any]:
    return {step["name"]: step for step in graph["steps"]}


async def test_each_step_is_told_with_its_dependencies_state_and_delegations(hub: Hub) -> None:
    add_agents(hub)
    add_workflow(
        hub,
        Workflow(
            name="trip",
            steps=(
                Step(name="find", agent="worker", title="Looking for trains…"),
                Step(name="price", agent="shaky", input="{find}", attempts=2),
                Step(name="check", agent="broken", after=("find",), optional=True, fallback=("worker",)),
                Step(name="book", agent="worker", input="{price}", when="check.failed"),
                Step(name="lost", agent="broken", after=("find",), optional=True),
                Step(name="tell", agent="worker", after=("lost",)),
            ),
        ),
    )
    async with serving(hub, WEB, READER) as server, client_of(server) as web, client_of(server, "reader") as reader:
        _, answer = await posted(web, {"target": "trip", "user": "anna", "objective": "Go to Bern"})
        run = answer["run"]
        status, told = await got(reader, f"/v1/runs/{run}/workflow")
        assert status == 200
        [graph] = told["workflows"]
        assert (graph["name"], graph["delegation"], graph["agent"], graph["planned"]) == ("trip", run, "trip", True)
        steps = by_name(graph)
        assert list(steps) == ["find", "price", "check", "book", "lost", "tell"]
        assert {name: step["after"] for name, step in steps.items()} == {
            "find": [],
            "price": ["find"],
            "check": ["find"],
            "book": ["price", "check"],
            "lost": ["find"],
            "tell": ["lost"],
        }
        assert {name: step["state"] for name, step in steps.items()} == {
            "find": "success",
            "price": "success",
            "check": "success",
            "book": "skipped",
            "lost": "failed",
            "tell": "success",
        }
        assert (steps["find"]["title"], steps["find"]["agent"]) == ("Looking for trains", "worker")
        tries = [(each["delegation"], each["agent"], each["state"]) for each in steps["price"]["attempts"]]
        assert tries == [(f"{run}.price", "shaky", "failed"), (f"{run}.price~2", "shaky", "success")]
        assert steps["price"]["attempts"][0]["code"] == "DELEGATION_UNAVAILABLE"
        assert [each["agent"] for each in steps["check"]["attempts"]] == ["broken", "worker"]
        assert (steps["check"]["agent"], steps["check"]["fallback"]) == ("worker", ["worker"])
        assert steps["book"]["why"] == "its condition does not hold: check.failed"
        assert (steps["book"]["when"], steps["book"]["attempts"]) == ("check.failed", [])
        assert (steps["lost"]["optional"], steps["lost"]["why"]) == (True, "no")


async def test_a_workflow_in_progress_says_what_is_running_and_what_is_to_come(hub: Hub) -> None:
    add_agents(hub)
    begun, go_on = asyncio.Event(), asyncio.Event()

    @hub.agent("slow")
    async def slow(_: Brief) -> str:
        begun.set()
        await go_on.wait()
        return "done"

    assert slow
    steps = (
        Step(name="never", agent="worker", when="input.wanted == true"),
        Step(name="first", agent="slow", after=("never",)),
        Step(name="then", agent="worker", input="{first}"),
    )
    add_workflow(hub, Workflow(name="trip", steps=steps))
    async with serving(hub, WEB, READER) as server, client_of(server) as web, client_of(server, "reader") as reader:
        _, handle = await posted(
            web, {"target": "trip", "user": "anna", "objective": "Go", "id": "r-1"}, Prefer="respond-async"
        )
        await begun.wait()
        await hub.store.flush()
        _, told = await got(reader, f"/v1/runs/{handle['run']}/workflow")
        [graph] = told["workflows"]
        steps_now = by_name(graph)
        assert {name: step["state"] for name, step in steps_now.items()} == {
            "never": "skipped",
            "first": "running",
            "then": "planned",
        }
        assert steps_now["never"]["why"] == "its condition does not hold: input.wanted == true"
        assert graph["state"] == "waiting"
        go_on.set()
        await hub.store.wait(handle["run"])
        _, told = await got(reader, f"/v1/runs/{handle['run']}/workflow")
        assert [step["state"] for step in told["workflows"][0]["steps"]] == ["skipped", "success", "success"]


async def test_a_step_that_the_workflow_never_reached_is_not_done(hub: Hub) -> None:
    add_agents(hub)
    add_workflow(
        hub,
        Workflow(
            name="trip", steps=(Step(name="first", agent="broken"), Step(name="then", agent="worker", input="{first}"))
        ),
    )
    async with serving(hub, WEB, READER) as server, client_of(server) as web, client_of(server, "reader") as reader:
        _, answer = await posted(web, {"target": "trip", "user": "anna", "objective": "Go"})
        assert answer["status"] == "failed"
        _, told = await got(reader, f"/v1/runs/{answer['run']}/workflow")
        steps = by_name(told["workflows"][0])
        assert (steps["first"]["state"], steps["first"]["why"]) == ("failed", "no")
        assert (steps["then"]["state"], steps["then"]["attempts"]) == ("not done", [])


async def test_workflows_within_workflows_and_plans_of_other_agents_are_told(hub: Hub) -> None:
    add_agents(hub)

    @hub.agent("planner", may_call=["worker"])
    async def planner(brief: Brief) -> Answer:
        plan = StepPlan(
            steps=(PlannedStep(name="one", title=f"Mail {brief.input}"), PlannedStep(name="two", after=("one",)))
        )
        brief.progress("Planned", plan=plan)
        return Answer((await brief.delegate("worker", objective="do it", step="one")).result)

    assert planner
    add_workflow(hub, Workflow(name="inner", steps=(Step(name="deep", agent="worker"),)))
    steps = (Step(name="outer", agent="inner"), Step(name="plan", agent="planner", input="bob@example.org"))
    add_workflow(hub, Workflow(name="trip", steps=steps))
    async with serving(hub, WEB, READER) as server, client_of(server) as web, client_of(server, "reader") as reader:
        _, answer = await posted(web, {"target": "trip", "user": "anna", "objective": "Go"})
        run = answer["run"]
        _, told = await got(reader, f"/v1/runs/{run}/workflow")
        graphs = {graph["delegation"]: graph for graph in told["workflows"]}
        assert told["workflows"][0]["delegation"] == run
        assert graphs.keys() == {run, f"{run}.outer", f"{run}.plan"}
        assert [step["name"] for step in graphs[f"{run}.outer"]["steps"]] == ["deep"]
        planned = by_name(graphs[f"{run}.plan"])
        assert (planned["one"]["state"], planned["two"]["state"]) == ("success", "not done")
        assert "bob" not in str(told)
        assert planned["one"]["title"].startswith("Mail [EMAIL:")


async def test_a_run_without_a_workflow_has_none_and_others_runs_are_not_shown(hub: Hub) -> None:
    add_agents(hub)
    add_workflow(hub, Workflow(name="idle", steps=(Step(name="never", agent="worker", when="input.wanted == true"),)))
    async with (
        serving(hub, WEB, ANNA, BOB) as server,
        client_of(server) as web,
        client_of(server, ANNA.name) as anna,
        client_of(server, BOB.name) as bob,
    ):
        _, answer = await posted(web, {"target": "worker", "user": "anna", "objective": "Go"})
        path = f"/v1/runs/{answer['run']}/workflow"
        assert await got(anna, path) == (200, {"run": answer["run"], "workflows": []})
        assert (await got(bob, path))[0] == 404
        assert (await got(anna, "/v1/runs/absent/workflow"))[0] == 404
        # Where no step began, the answer alone tells of them.
        _, answer = await posted(web, {"target": "idle", "user": "anna", "objective": "Go"})
        _, told = await got(anna, f"/v1/runs/{answer['run']}/workflow")
        [graph] = told["workflows"]
        assert (graph["planned"], [step["state"] for step in graph["steps"]]) == (False, ["skipped"])
