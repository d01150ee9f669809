// This device, the ones that it knows, and what each may do.

import { useQuery, useQueryClient } from "@tanstack/react-query";
import { Link2 } from "lucide-react";
import { useState } from "react";
import { Link } from "wouter";
import { act, ApiError, get } from "@/api/client";
import type { components } from "@/api/shared";
import { useAnnounce } from "@/look/announce";
import type { Tone } from "@/look/format";
import { Badge, CopyButton, Empty, Loading, State, Switch, Time, Trouble } from "@/look/parts";
import { ViewHead } from "@/shell/Shell";
import { texts } from "@/texts";
import { Presence } from "@/views/chat/parts";
import { type Connection, type Device, type Profile, useShared } from "@/views/chat/store";
import { PairingDialog } from "@/views/pairing/PairingDialog";
import "./devices.css";

type Schemas = components["schemas"];
type Status = Schemas["SharedStatus"];
type Policy = Schemas["DevicePolicy"];

export default function DevicesView() {
  const [pairing, setPairing] = useState(false);
  const epoch = useShared((state) => state.epoch);
  const ready = useShared((state) => state.ready);
  const devices = useShared((state) => state.devices);
  const profiles = useShared((state) => state.profiles);
  const status = useQuery({
    queryKey: ["shared", "status", epoch],
    queryFn: () => get<Status>("/v1/shared/status"),
  });
  const policies = useQuery({
    queryKey: ["shared", "policies", epoch],
    queryFn: () => get<Schemas["DevicePolicies"]>("/v1/shared/policies"),
    placeholderData: (before) => before,
    // Grants that a terminal changes are not on the stream.
    refetchInterval: 5_000,
  });
  const others = [...devices.values()].sort((one, other) => one.name.localeCompare(other.name));
  const words = texts.devices;
  const missing = policies.error instanceof ApiError && policies.error.status === 404;
  return (
    <>
      <ViewHead title={texts.shell.views.devices}>
        <button type="button" className="button main" onClick={() => setPairing(true)}>
          <Link2 size={14} aria-hidden />
          {words.pair}
        </button>
      </ViewHead>
      {status.error ? <Trouble error={status.error} again={() => void status.refetch()} /> : null}
      {policies.error && !missing ? (
        <Trouble error={policies.error} again={() => void policies.refetch()} />
      ) : null}
      {status.data ? <ThisDevice status={status.data} /> : status.isPending ? <Loading rows={3} /> : null}
      <h2>{words.others}</h2>
      {ready ? null : <Loading rows={4} />}
      {ready && others.length === 0 ? (
        <Empty title={words.none} command={words.command}>
          <p>{words.noneAdvice}</p>
        </Empty>
      ) : null}
      <div className="devices">
        {others.map((device) => (
          <DeviceCard
            key={device.id}
            device={device}
            policy={policies.data?.policies.find((each) => each.device === device.id)}
            shared={status.data?.shared ?? []}
            profiles={[...profiles.values()]}
          />
        ))}
      </div>
      {missing && others.length > 0 ? <p className="soft">{words.noPolicies}</p> : null}
      {pairing ? (
        <PairingDialog
          agents={(status.data?.shared ?? []).map(({ name }) => name)}
          profiles={[...profiles.keys()]}
          onClose={() => setPairing(false)}
        />
      ) : null}
    </>
  );
}

const TONES: Record<Connection["state"], Tone> = {
  connecting: "busy",
  connected: "good",
  silent: "warn",
  waiting: "warn",
  ended: "bad",
};

function ThisDevice({ status }: { status: Status }) {
  const told = useShared((state) => state.connection);
  const connection = told ?? status.connection;
  const words = texts.devices;
  return (
    <section className="card" aria-label={words.thisDevice}>
      <div className="head">
        <h2>{status.name}</h2>
        <span className="soft">{words.thisDevice}</span>
      </div>
      <dl className="body facts">
        <dt>{words.gateway}</dt>
        <dd>
          {connection ? (
            <>
              <State
                state={connection.state}
                word={words.connection[connection.state]}
                tone={TONES[connection.state]}
              />{" "}
              <span className="soft">
                <Time at={connection.since_ms} past />
              </span>{" "}
              {connection.why}
            </>
          ) : (
            words.unknown
          )}
        </dd>
        <dt>{words.id}</dt>
        <dd>
          <code>{status.device}</code> <CopyButton text={status.device} />
        </dd>
        <dt>{words.sharedHere}</dt>
        <dd>
          {status.shared.length === 0 ? (
            <>
              {words.nothingShared} <span className="soft">{words.shareHint}</span>
            </>
          ) : (
            <ul>
              {status.shared.map(({ name, description, devices }) => (
                <li key={name}>
                  <strong>{name}</strong> {description}{" "}
                  <span className="soft">{words.allowedDevices(devices.length)}</span>
                </li>
              ))}
            </ul>
          )}
        </dd>
      </dl>
    </section>
  );
}

interface CardProps {
  device: Device;
  policy: Policy | undefined;
  shared: Status["shared"];
  profiles: Profile[];
}

function DeviceCard({ device, policy, shared, profiles }: CardProps) {
  const words = texts.devices;
  return (
    <section className="card" aria-label={device.name}>
      <div className="head">
        <h3>{device.name}</h3>
        <Presence device={device} />
        <span className="devices-marks">
          {device.own ? <Badge>{words.own}</Badge> : null}
          {device.revoked ? <Badge tone="bad">{words.revoked}</Badge> : null}
          {device.revoked_there ? <Badge tone="bad">{words.revokedThere}</Badge> : null}
          <Badge tone={device.verified ? "good" : "warn"}>
            {device.verified ? words.verified : words.unverified}
          </Badge>
        </span>
      </div>
      <div className="body stack">
        <h4 className="label">{words.shares}</h4>
        <Offers device={device} />
        {device.revoked ? (
          <p className="soft">{words.revokedAll}</p>
        ) : policy ? (
          <Switches device={device} policy={policy} shared={shared} profiles={profiles} />
        ) : null}
      </div>
    </section>
  );
}

function Offers({ device }: { device: Device }) {
  const words = texts.devices;
  if (device.offers === null) return <p className="soft">{words.sharesUnknown}</p>;
  if (device.offers.length === 0) return <p className="soft">{words.sharesNothing}</p>;
  return (
    <ul className="devices-offers">
      {device.offers.map(({ name, description }) => (
        <li key={name}>
          <span>
            <strong>{name}</strong> {description}
          </span>
          <Link
            className="button"
            href={`/chat/new?device=${encodeURIComponent(device.id)}&agent=${encodeURIComponent(name)}`}
          >
            {words.chat}
            <span className="unseen"> {name}</span>
          </Link>
        </li>
      ))}
    </ul>
  );
}

/** What a device may ask here and which profiles may ask it: each grant is a switch. */
function Switches({ device, policy, shared, profiles }: CardProps & { policy: Policy }) {
  const queries = useQueryClient();
  const { fail } = useAnnounce();
  const [busy, setBusy] = useState(false);
  const words = texts.devices;
  if (policy.own) return <p className="soft">{words.ownAll}</p>;
  const put = async (agents: readonly string[], granted: readonly string[]) => {
    setBusy(true);
    try {
      await act("PUT", `/v1/shared/policies/${encodeURIComponent(device.id)}`, { agents, profiles: granted });
      await queries.invalidateQueries({ queryKey: ["shared"] });
    } catch (error) {
      fail(error);
    }
    setBusy(false);
  };
  const changed = (all: readonly string[], name: string, on: boolean) =>
    on ? [...all, name] : all.filter((each) => each !== name);
  return (
    <>
      <h4 className="label">{words.mayAsk}</h4>
      {shared.length === 0 ? <p className="soft">{words.noAgents}</p> : null}
      {shared.map(({ name, devices }) => (
        <Grant
          key={name}
          label={words.agentSwitch(name, device.name)}
          granted={policy.agents.includes(name)}
          holds={devices.includes(device.id)}
          busy={busy}
          onChange={(on) => void put(changed(policy.agents, name, on), policy.profiles)}
        />
      ))}
      <h4 className="label">{words.askedBy}</h4>
      {profiles.length === 0 ? <p className="soft">{words.noProfiles}</p> : null}
      {profiles.map(({ id, devices }) => (
        <Grant
          key={id}
          label={words.profileSwitch(id, device.name)}
          granted={policy.profiles.includes(id)}
          holds={devices.includes(device.id)}
          busy={busy}
          onChange={(on) => void put(policy.agents, changed(policy.profiles, id, on))}
        />
      ))}
    </>
  );
}

function Grant({
  label,
  granted,
  holds,
  busy,
  onChange,
}: {
  label: string;
  granted: boolean;
  /** Whether it may, by a grant or by the team file, which a switch does not change. */
  holds: boolean;
  busy: boolean;
  onChange: (on: boolean) => void;
}) {
  const byFile = holds && !granted;
  return (
    <div className="devices-grant">
      <Switch checked={granted || byFile} onChange={onChange} label={label} disabled={busy || byFile} />
      {byFile ? <span className="soft">{texts.devices.byTeamFile}</span> : null}
    </div>
  );
}
