// An agent on the JavaScript SDK's server, in both bindings. With `relay` it asks another agent, by A2A in turn.
import { randomUUID } from "node:crypto";
import express from "express";
import { Role, TaskState } from "@a2a-js/sdk";
import { ClientFactory, JsonRpcTransportFactory, RestTransportFactory } from "@a2a-js/sdk/client";
import { AgentEvent, DefaultRequestHandler, InMemoryTaskStore } from "@a2a-js/sdk/server";
import { UserBuilder, agentCardHandler, jsonRpcHandler, restHandler } from "@a2a-js/sdk/server/express";

const { binding, streaming, relay } = JSON.parse(process.argv[2]);
const text = (value) => ({ content: { $case: "text", value }, filename: "", mediaType: "" });

class Executor {
  stopped = new Map();

  async execute(context, bus) {
    const { taskId, contextId, userMessage, task } = context;
    const asked = userMessage.parts.map((part) => (part.content.$case === "text" ? part.content.value : "")).join("\n");
    const message = (value) => ({
      messageId: randomUUID(), contextId, taskId, role: Role.ROLE_AGENT, parts: [text(value)],
      extensions: [], referenceTaskIds: [],
    });
    const stands = (state, value) =>
      bus.publish(AgentEvent.statusUpdate({
        taskId, contextId,
        status: { state, message: value ? message(value) : undefined, timestamp: new Date().toISOString() },
      }));
    bus.publish(AgentEvent.task(task ?? {
      id: taskId, contextId, status: { state: TaskState.TASK_STATE_SUBMITTED, timestamp: new Date().toISOString() },
      artifacts: [], history: [userMessage],
    }));
    stands(TaskState.TASK_STATE_WORKING, "thinking");
    if (asked === "ask") {
      stands(TaskState.TASK_STATE_INPUT_REQUIRED, "Which month?");
    } else if (asked === "sleep") {
      await new Promise((resolve) => this.stopped.set(taskId, resolve));
      console.log("stopped");
      stands(TaskState.TASK_STATE_CANCELED);
    } else {
      const pieces = relay ? [await this.relayed(asked)] : [asked, " and", " done"];
      pieces.forEach((piece, number) =>
        bus.publish(AgentEvent.artifactUpdate({
          taskId, contextId, append: number > 0, lastChunk: number === pieces.length - 1,
          artifact: { artifactId: "a", name: "", description: "", parts: [text(piece)], extensions: [] },
        })));
      stands(TaskState.TASK_STATE_COMPLETED);
    }
    bus.finished();
  }

  async relayed(asked) {
    const authorized = (address, init = {}) =>
      fetch(address, { ...init, headers: { ...init.headers, authorization: `Bearer ${relay.token}` } });
    const Factory = relay.binding === "JSONRPC" ? JsonRpcTransportFactory : RestTransportFactory;
    const client = await new ClientFactory({
      transports: [new Factory({ fetchImpl: authorized })], preferredTransports: [relay.binding],
    }).createFromUrl(`${relay.url}/`);
    const result = await client.sendMessage({
      tenant: "",
      message: {
        messageId: randomUUID(), contextId: "", taskId: "", role: Role.ROLE_USER, parts: [text(asked)],
        extensions: [], referenceTaskIds: [],
      },
    });
    return `js(${result.artifacts[0].parts.map((part) => part.content.value).join("")})`;
  }

  async cancelTask(taskId) {
    this.stopped.get(taskId)?.();
  }
}

const app = express();
const server = app.listen(0, "127.0.0.1", () => {
  const url = `http://127.0.0.1:${server.address().port}`;
  const card = {
    name: "js", description: "An agent of the JavaScript SDK.", version: "1",
    supportedInterfaces: [{
      url: `${url}${binding === "JSONRPC" ? "/rpc" : "/rest"}`, protocolBinding: binding, protocolVersion: "1.0", tenant: "",
    }],
    capabilities: { streaming, pushNotifications: false, extensions: [] },
    securitySchemes: {}, securityRequirements: [],
    defaultInputModes: ["text/plain"], defaultOutputModes: ["text/plain"],
    skills: [{ id: "s", name: "s", description: "s", tags: ["s"], examples: [], inputModes: [], outputModes: [],
               securityRequirements: [] }],
    signatures: [],
  };
  const requestHandler = new DefaultRequestHandler(card, new InMemoryTaskStore(), new Executor());
  const userBuilder = UserBuilder.noAuthentication;
  app.use("/.well-known/agent-card.json", agentCardHandler({ agentCardProvider: requestHandler }));
  app.use("/rpc", jsonRpcHandler({ requestHandler, userBuilder }));
  app.use("/rest", restHandler({ requestHandler, userBuilder }));
  console.log(url);
});
process.stdin.on("end", () => process.exit(0)).resume();
