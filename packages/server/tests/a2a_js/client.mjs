// Asks an agent with the JavaScript SDK, as the JSON on the command line says, and prints what it hears, line by line.
import { randomUUID } from "node:crypto";
import {
  ListTasksResponse, Role, StreamResponse, Task, verifyAgentCardSignature,
} from "@a2a-js/sdk";
import { ClientFactory, JsonRpcTransportFactory, RestTransportFactory } from "@a2a-js/sdk/client";

const { url, binding, token, steps, keys } = JSON.parse(process.argv[2]);

const told = (kind, value) => console.log(JSON.stringify({ [kind]: value }));
const authorized = (address, init = {}) =>
  fetch(address, { ...init, headers: { ...init.headers, authorization: `Bearer ${token}` } });
const Factory = binding === "JSONRPC" ? JsonRpcTransportFactory : RestTransportFactory;
const client = await new ClientFactory({
  transports: [new Factory({ fetchImpl: authorized })],
  preferredTransports: [binding],
}).createFromUrl(`${url}/`); // without the slash it would look beside the agent

let task = "";
const named = (text) => ({
  tenant: "",
  message: {
    messageId: randomUUID(),
    contextId: "",
    taskId: text.startsWith("+") ? task : "",
    role: Role.ROLE_USER,
    parts: [{ content: { $case: "text", value: text.replace(/^\+/, "") }, filename: "", mediaType: "" }],
    extensions: [],
    referenceTaskIds: [],
  },
  configuration: { acceptedOutputModes: [], returnImmediately: text === "sleep" && binding !== "" },
});

for (const [what, text] of steps) {
  try {
    if (what === "send") {
      const result = await client.sendMessage(named(text));
      task = result.id;
      told("task", Task.toJSON(result));
    } else if (what === "stream") {
      for await (const event of client.sendMessageStream(named(text))) {
        const plain = StreamResponse.toJSON(event);
        task = plain.task?.id ?? task;
        told("event", plain);
        if (text === "sleep") break;
      }
    } else if (what === "get") {
      told("task", Task.toJSON(await client.getTask({ id: text || task, tenant: "" })));
    } else if (what === "list") {
      const listed = await client.listTasks({ tenant: "", contextId: "", status: 0, pageToken: "" });
      told("list", ListTasksResponse.toJSON(listed));
    } else if (what === "cancel") {
      told("task", Task.toJSON(await client.cancelTask({ id: task, tenant: "" })));
    } else if (what === "subscribe") {
      for await (const event of client.resubscribeTask({ id: task, tenant: "" })) {
        told("event", StreamResponse.toJSON(event));
        break;
      }
    } else if (what === "verify") {
      // As it was sent: the SDK forgets the security schemes of a card that it has parsed before.
      const card = await (await fetch(`${url}/.well-known/agent-card.json`)).json();
      await verifyAgentCardSignature(async () => keys)(card);
      told("verified", card.name);
    }
  } catch (error) {
    told("error", { name: error.name, message: String(error.message) });
  }
}
