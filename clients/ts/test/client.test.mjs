// Run by packages/server/tests/client/test_ts_client.py, which serves the agents that are asked here.

import assert from "node:assert/strict";
import { createServer } from "node:http";
import { test } from "node:test";
import { outcomeOf, RemitClient, RemitError } from "../src/index.ts";

const { REMIT_URL: url } = process.env;
const web = new RemitClient(url, { token: "web" });
const ops = new RemitClient(url, { token: "ops" });

const refused = (code) => (error) => {
    assert.ok(error instanceof RemitError, String(error));
    assert.equal(error.code, code);
    return true;
};

test("an agent answers, and its run is found", async () => {
    const answer = await web.ask("writer", "a poem", { user: "anna" });
    assert.equal(answer.status, "success");
    assert.equal(answer.result, "wrote a poem");
    assert.deepEqual(await web.look(answer.run), answer);
    assert.deepEqual(await web.wait(answer.run), answer);
    assert.ok((await web.agents()).some((each) => each.name === "writer"));
    assert.equal((await web.agent("writer")).description, "Writes.");
    assert.ok((await web.runs({ user: "anna", limit: 100 })).runs.some((each) => each.run === answer.run));
    assert.equal((await web.run(answer.run)).delegations[0].target, "writer");
    const talks = await web.sessions({ user: "anna" });
    assert.ok((await web.session(talks.sessions[0].session)).messages.length >= 1);
});

test("what fails is an outcome, and what is refused is an error", async () => {
    const failed = await web.ask("failing", "", { user: "anna" });
    assert.equal(failed.fault.code, "DELEGATION_FAILED");
    await assert.rejects(web.ask("nobody", "", { user: "anna" }), refused("AGENT_NOT_FOUND"));
    await assert.rejects(web.run("none"), refused("NOT_FOUND"));
    await assert.rejects(new RemitClient(url, { token: "wrong" }).agents(), refused("UNAUTHENTICATED"));
});

test("events are read to the outcome, and from a number on", async () => {
    const seen = [];
    for await (const event of web.stream("writer", "a song", { user: "anna" })) seen.push(event);
    assert.equal(outcomeOf(seen.at(-1)).result, "wrote a song");
    assert.ok(seen.some((event) => event.kind === "progress" && event.body.text === "thinking"));
    const stored = seen.filter((event) => event.number !== undefined);
    const again = [];
    for await (const event of web.events(stored[0].run, { after: stored[0].number })) again.push(event);
    assert.deepEqual(again, stored.slice(1));
    for await (const event of ops.allEvents({ run: stored[0].run, kinds: "result" }, { after: 0 })) {
        assert.equal(outcomeOf(event).result, "wrote a song");
        break;
    }
});

test("a run is cancelled and repeated", async () => {
    const begun = await web.begin("slow", "", { user: "anna" });
    assert.equal(begun.state, "running");
    assert.equal((await ops.cancelRun(begun.run, { reason: "enough" })).outcome, "cancelled");
    assert.equal((await web.wait(begun.run)).fault.code, "CANCELLED");
    assert.equal((await ops.resumeRun(begun.run)).outcome, "over");
    const retried = await ops.retryRun(begun.run);
    assert.equal(retried.outcome, "retried");
    assert.equal((await web.cancel(retried.run)).run, retried.run);
});

test("ask waits for a person, and another client answers", async () => {
    const asked = web.ask("cashier", "pay", { user: "anna" });
    let waiting = [];
    while (waiting.length === 0) waiting = (await ops.approvals()).waiting;
    const [question] = waiting;
    assert.equal((await ops.approval(question.id)).state, "waiting");
    assert.equal((await ops.reveal(question.id)).view.sentence, question.sentence);
    assert.equal((await ops.answer(question, true, { by: "Carla" })).agreed, true);
    assert.equal((await asked).result, "paid pay");
    await assert.rejects(ops.answer(question, true), refused("STATE_CONFLICT"));
});

test("a lost answer is asked for again with the same id, and what cannot be repeated is not", async () => {
    const bodies = [];
    const lossy = createServer((request, response) => {
        let body = "";
        request.on("data", (part) => (body += part));
        request.on("end", () => {
            bodies.push(body);
            if (bodies.length < 3) return request.socket.destroy();
            response.setHeader("content-type", "application/json");
            response.end(JSON.stringify({ run: "r", status: "success", id: "x" }));
        });
    });
    await new Promise((done) => lossy.listen(0, "127.0.0.1", done));
    const there = new RemitClient(`http://127.0.0.1:${lossy.address().port}/`);
    assert.equal((await there.ask("writer", "x", { user: "anna" })).run, "r");
    assert.equal(bodies.length, 3);
    assert.equal(new Set(bodies).size, 1);
    bodies.length = 0;
    await assert.rejects(there.retryRun("r"), refused("DELEGATION_UNAVAILABLE"));
    assert.equal(bodies.length, 1);
    lossy.close();
    lossy.closeAllConnections();
    await assert.rejects(there.retryRun("r"), refused("DELEGATION_UNAVAILABLE"));
});

test("a server that does not answer is given up on", async () => {
    const silent = createServer(() => undefined);
    await new Promise((done) => silent.listen(0, "127.0.0.1", done));
    const there = new RemitClient(`http://127.0.0.1:${silent.address().port}`, { timeoutMs: 10 });
    await assert.rejects(there.agents(), refused("TIMEOUT"));
    silent.close();
    silent.closeAllConnections();
});
