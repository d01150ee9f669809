// One conversation: its objective on top, what was said, and the dock below. Neither of both scrolls out of sight.

import * as Menu from "@radix-ui/react-dropdown-menu";
import { ArrowLeft, FileDown } from "lucide-react";
import { Link } from "wouter";
import { useAnnounce } from "@/look/announce";
import { useKeys } from "@/look/keys";
import { Loading, State, Switch, Trouble } from "@/look/parts";
import { texts } from "@/texts";
import { type Acting, useActing, useDeviceName, useRun } from "@/views/chat/acts";
import { Dock } from "@/views/chat/Dock";
import { save } from "@/look/save";
import { allEntries, asJson, asMarkdown } from "@/views/chat/export";
import { doing, hasEnded, lineOf, TONES } from "@/views/chat/model";
import { Objective } from "@/views/chat/Objective";
import { ModeChoice, Presence } from "@/views/chat/parts";
import { type KnownRun, type Run, useShared } from "@/views/chat/store";
import { Timeline } from "@/views/chat/Timeline";
import { keepTyped } from "@/views/chat/typed";

export function Conversation({ id }: { id: string }) {
  const { known, error, again } = useRun(id);
  if (known) return <Open known={known} />;
  return (
    <section className="chat-one">{error ? <Trouble error={error} again={again} /> : <Loading />}</section>
  );
}

const focus = (id: string) => document.getElementById(id)?.focus();

function Open({ known }: { known: KnownRun }) {
  const run = known.view;
  const acting = useActing(run);
  const connected = useShared((state) => state.connected);
  const { may } = acting;
  const draft = run.draft;
  useKeys({
    a: () => focus("chat-approve"),
    e: () => (draft && may("approve") ? keepTyped(`draft:${draft.id}`, draft.text) : undefined),
    x: () => (draft && may("reject") ? keepTyped(`reject:${draft.id}`, "") : undefined),
    d: () => focus("chat-waiting"),
    p: () => {
      if (may("pause")) void acting.act("pause");
      else if (may("resume")) void acting.act("resume");
    },
    t: () => {
      if (may("take_over")) void acting.act("take_over");
      else if (may("hand_back")) void acting.act("hand_back");
    },
    o: () => (may("set_objective") ? keepTyped(`objective:${run.id}`, run.objective) : undefined),
  });
  return (
    <section className="chat-one" aria-label={texts.chat.conversation}>
      <Head run={run} acting={acting} />
      {connected ? null : (
        <div className="banner warn chat-lost" role="status">
          {texts.chat.lost}
        </div>
      )}
      <Timeline known={known} />
      <Dock known={known} acting={acting} />
    </section>
  );
}

function Head({ run, acting }: { run: Run; acting: Acting }) {
  const device = useShared(({ devices }) => devices.get(run.device));
  const now = doing(lineOf(run), run.decides);
  const ended = hasEnded(run);
  const words = texts.chat;
  const { say } = useAnnounce();
  const toggle = (on: boolean) => {
    if (on && !run.objective) {
      keepTyped(`objective:${run.id}`, "");
      say(words.needsObjective);
    } else void acting.act(on ? "hand_back" : "take_over");
  };
  const able = run.decides === "agent" ? acting.may("take_over") : acting.may("hand_back") || !run.objective;
  return (
    <header className="chat-head">
      <div className="chat-who">
        <Link href="/chat" className="button plain icon chat-back" aria-label={words.back}>
          <ArrowLeft size={16} aria-hidden />
        </Link>
        <strong>{device?.name ?? run.device}</strong>
        {run.agent ? <span className="soft">{run.agent}</span> : null}
        {device ? <Presence device={device} /> : null}
        <span className="chat-state" role="status">
          <State state={now} word={words.doing[now]} tone={TONES[now]} />
        </span>
        <Export run={run} />
      </div>
      <Objective run={run} acting={acting} />
      <div className="chat-how">
        <Switch
          checked={run.decides === "agent"}
          onChange={toggle}
          label={words.useMyAgent}
          disabled={ended || !able}
        />
        <span className="soft">
          {words.myAgent}: {run.profile}
        </span>
        <ModeChoice
          mode={run.mode}
          name={`mode-${run.id}`}
          onChoose={(mode) => void acting.act("set_mode", { mode })}
          disabled={!acting.may("set_mode")}
        />
      </div>
    </header>
  );
}

function Export({ run }: { run: Run }) {
  const device = useDeviceName(run.device);
  const { fail } = useAnnounce();
  const make = async (kind: "md" | "json") => {
    try {
      const entries = await allEntries(run.id);
      const text = kind === "md" ? asMarkdown(run, entries, device) : asJson(run, entries, device);
      const type = kind === "md" ? "text/markdown" : "application/json";
      save(`conversation-${run.id.slice(0, 12)}.${kind}`, new Blob([text], { type }));
    } catch (error) {
      fail(error);
    }
  };
  return (
    <Menu.Root modal={false}>
      <Menu.Trigger className="button plain">
        <FileDown size={14} aria-hidden />
        <span className="chat-wide">{texts.chat.export}</span>
      </Menu.Trigger>
      <Menu.Portal>
        <Menu.Content className="menu" align="end" sideOffset={4} collisionPadding={8}>
          <Menu.Item className="item" onSelect={() => void make("md")}>
            {texts.chat.exportMarkdown}
          </Menu.Item>
          <Menu.Item className="item" onSelect={() => void make("json")}>
            {texts.chat.exportJson}
          </Menu.Item>
        </Menu.Content>
      </Menu.Portal>
    </Menu.Root>
  );
}
