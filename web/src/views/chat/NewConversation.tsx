// A new conversation: with one's own agent and an objective, or as a plain chat.

import { type SyntheticEvent, useState } from "react";
import { Link, useLocation, useSearch } from "wouter";
import { act } from "@/api/client";
import { useConsole } from "@/api/console";
import { isSend } from "@/look/keys";
import { Empty, Loading, Switch, Trouble } from "@/look/parts";
import { texts } from "@/texts";
import { pathOf } from "@/views/chat/acts";
import { ModeChoice, Presence } from "@/views/chat/parts";
import { type Device, type Mode, type Profile, type Run, useShared } from "@/views/chat/store";
import { keepTyped, useTyped } from "@/views/chat/typed";

const byName = (one: Device, other: Device) => one.name.localeCompare(other.name);

export function NewConversation() {
  const ready = useShared((state) => state.ready);
  const devices = useShared((state) => state.devices);
  const profiles = useShared((state) => state.profiles);
  const sharing = [...devices.values()].filter((device) => device.shared && !device.revoked).sort(byName);
  if (!ready) {
    return (
      <section className="chat-new">
        <Loading rows={4} />
      </section>
    );
  }
  const words = texts.chat;
  return (
    <section className="chat-new" aria-label={words.newOne}>
      {profiles.size === 0 ? (
        <Empty title={words.noProfile.title} command={words.noProfile.command}>
          <p>{words.noProfile.advice}</p>
        </Empty>
      ) : sharing.length === 0 ? (
        <Empty title={words.noDevice.title}>
          <p>{words.noDevice.advice}</p>
          <Link href="/devices" className="button main">
            {words.noDevice.pair}
          </Link>
        </Empty>
      ) : (
        <NewForm devices={sharing} profiles={[...profiles.values()]} />
      )}
    </section>
  );
}

const mayAsk = (profile: Profile, device: Device) => profile.allowed && profile.devices.includes(device.id);

/** The wished value if it is there, or else the first one. */
function chosen<T>(all: readonly T[], wished: string, name: (each: T) => string, first?: T): T | undefined {
  return all.find((each) => name(each) === wished) ?? first ?? all[0];
}

function NewForm({ devices, profiles }: { devices: Device[]; profiles: Profile[] }) {
  const search = new URLSearchParams(useSearch());
  const from = useShared(({ runs }) => runs.get(search.get("from") ?? ""))?.view;
  const [, go] = useLocation();
  const { who } = useConsole();
  const [useAgent, setUseAgent] = useState(from === undefined || from.objective !== "");
  const [wishedDevice, setDevice] = useState(from?.device ?? search.get("device") ?? "");
  const [wishedAgent, setAgent] = useState(from?.agent ?? search.get("agent") ?? "");
  const [wishedProfile, setProfile] = useState(from?.profile ?? "");
  const [wishedMode, setMode] = useState<Mode | null>(from?.mode ?? null);
  const [typed, setTyped] = useTyped("new");
  const [error, setError] = useState<unknown>(null);
  const [busy, setBusy] = useState(false);
  const device = chosen(devices, wishedDevice, ({ id }) => id);
  if (!device) return null;
  const offers = device.offers ?? [];
  const agent = chosen(offers, wishedAgent, ({ name }) => name);
  const able = profiles.find((each) => mayAsk(each, device));
  const profile = chosen(profiles, wishedProfile, ({ id }) => id, able);
  if (!profile) return null;
  const mode = wishedMode ?? profile.mode;
  const text = typed ?? (useAgent ? (from?.objective ?? "") : "");
  const start = async (event: SyntheticEvent) => {
    event.preventDefault();
    setBusy(true);
    setError(null);
    const said = { profile: profile.id, device: device.id, agent: agent?.name ?? null, mode, by: who.name };
    const how = useAgent ? { objective: text } : { decides: "person" };
    try {
      const run = await act<Run>("POST", "/v1/shared/runs", { ...said, ...how });
      if (!useAgent) await firstMessage(run.id, text, who.name);
      setTyped(null);
      go(`/chat/${run.id}`);
    } catch (failure) {
      setError(failure);
      setBusy(false);
    }
  };
  const words = texts.chat;
  return (
    <form className="card" onSubmit={start}>
      <div className="head">
        <h2>{words.newOne}</h2>
      </div>
      <div className="body stack">
        <Switch checked={useAgent} onChange={setUseAgent} label={words.useMyAgent} />
        <div className="chat-fields">
          <div className="field">
            <label htmlFor="new-device">{words.device}</label>
            <select
              id="new-device"
              className="input"
              value={device.id}
              onChange={(e) => setDevice(e.target.value)}
            >
              {devices.map(({ id, name }) => (
                <option key={id} value={id}>
                  {name}
                </option>
              ))}
            </select>
            <span className="hint">
              <Presence device={device} />
            </span>
          </div>
          <div className="field">
            <label htmlFor="new-agent">{words.agent}</label>
            <select
              id="new-agent"
              className="input"
              value={agent?.name ?? ""}
              onChange={(e) => setAgent(e.target.value)}
              disabled={offers.length < 2}
            >
              {offers.length === 0 ? <option value="">{words.onlyAgent}</option> : null}
              {offers.map(({ name }) => (
                <option key={name} value={name}>
                  {name}
                </option>
              ))}
            </select>
            {agent?.description ? <span className="hint">{agent.description}</span> : null}
          </div>
          <div className="field">
            <label htmlFor="new-profile">{useAgent ? words.myAgent : words.profile}</label>
            <select
              id="new-profile"
              className="input"
              value={profile.id}
              onChange={(e) => setProfile(e.target.value)}
            >
              {profiles.map(({ id }) => (
                <option key={id}>{id}</option>
              ))}
            </select>
            {useAgent ? null : <span className="hint">{words.profileHint}</span>}
          </div>
        </div>
        {mayAsk(profile, device) ? null : (
          <p className="banner warn">
            <span>{words.notAllowed(profile.id, device.name)}</span>
            <Link href="/devices">{words.allow}</Link>
          </p>
        )}
        {useAgent ? <ModeChoice mode={mode} onChoose={setMode} name="new-mode" /> : null}
        <div className="field">
          <label htmlFor="new-text">{useAgent ? words.objective : words.firstMessage}</label>
          <textarea
            id="new-text"
            className="input"
            rows={4}
            value={text}
            maxLength={100_000}
            onChange={(e) => setTyped(e.target.value)}
            onKeyDown={(e) => {
              if (isSend(e)) e.currentTarget.form?.requestSubmit();
            }}
            required
          />
          {useAgent ? <span className="hint">{words.objectiveHint}</span> : null}
        </div>
        {error ? <Trouble error={error} /> : null}
        <div className="chat-acts">
          <button type="submit" className="button main" disabled={busy || !text.trim()}>
            {words.start}
          </button>
        </div>
      </div>
    </form>
  );
}

/** Send the first message of a plain chat; if that fails, the text waits in the new conversation. */
async function firstMessage(run: string, text: string, by: string): Promise<void> {
  try {
    await act("POST", `${pathOf(run)}/say`, { text, by });
  } catch {
    keepTyped(`say:${run}`, text);
  }
}
