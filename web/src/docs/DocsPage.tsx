// The whole page: it loads the description of this server, and shows its operations and schemas.

import { useEffect, useMemo, useState } from "react";
import { keyed } from "@/api/client";
import { useTheme } from "@/look/theme";
import { type Description, type Group, groups, matching } from "./model";
import { OperationCard } from "./OperationCard";
import { Prose, SchemaCard } from "./parts";
import { texts } from "./texts";

const HUB = { page: "/docs", document: "/openapi.json" };
const LOCAL = { page: "/docs/shared", document: "/v1/shared/openapi.json" };
const shown = location.pathname === LOCAL.page ? LOCAL : HUB;

type Loaded = { description: Description } | { status: string } | undefined;

async function load(): Promise<Loaded> {
  try {
    const reply = await fetch(shown.document, { credentials: "same-origin", headers: keyed() });
    // A device without a team has no hub, but an API of its own.
    if (reply.status === 404 && shown === HUB) location.replace(LOCAL.page);
    if (!reply.ok) return { status: String(reply.status) };
    return { description: (await reply.json()) as Description };
  } catch {
    return { status: "0" };
  }
}

export function DocsPage() {
  const [loaded, setLoaded] = useState<Loaded>();
  useEffect(() => {
    void load().then(setLoaded);
  }, []);
  if (loaded === undefined) return <main className="docs-note">{texts.loading}</main>;
  if ("status" in loaded) return <Missing status={loaded.status} />;
  return <Description description={loaded.description} />;
}

function Missing({ status }: { status: string }) {
  const signedOut = status === "401";
  return (
    <main className="docs-note">
      <h1>{texts.brand}</h1>
      <p>{signedOut ? texts.signedOut : texts.missing(status)}</p>
      <a className="button" href={signedOut ? "/" : location.pathname}>
        {signedOut ? texts.signIn : texts.tryAgain}
      </a>
    </main>
  );
}

function Description({ description }: { description: Description }) {
  const { info, components, externalDocs } = description;
  const [text, setText] = useState("");
  const all = useMemo(() => groups(description, texts.operations), [description]);
  const found = useMemo(() => matching(all, text), [all, text]);
  const schemas = useMemo(() => components?.schemas ?? {}, [components]);
  useEffect(() => {
    document.title = `${info.title} API`;
    // The element that the address names is there only now.
    document.getElementById(decodeURIComponent(location.hash.slice(1)))?.scrollIntoView();
  }, [info.title]);
  const operations = useMemo(
    () =>
      found.map((group) => (
        <section key={group.name} aria-labelledby={`group-${group.name}`}>
          <h2 id={`group-${group.name}`}>{group.name}</h2>
          <Prose text={group.meaning} />
          {group.entries.map((entry) => (
            <OperationCard key={entry.operation.operationId} entry={entry} schemas={schemas} />
          ))}
        </section>
      )),
    [found, schemas],
  );
  const types = useMemo(
    () =>
      Object.entries(schemas).map(([name, schema]) => <SchemaCard key={name} name={name} schema={schema} />),
    [schemas],
  );
  return (
    <div className="docs">
      <a className="docs-skip button" href="#content">
        {texts.skip}
      </a>
      <nav className="docs-nav" aria-label={texts.operations}>
        <div className="docs-brand">
          <img src="/icon.svg" alt="" />
          <strong>{info.title}</strong>
          <ThemeButton />
        </div>
        <input
          className="input"
          type="search"
          value={text}
          placeholder={texts.search}
          aria-label={texts.search}
          onChange={(event) => setText(event.target.value)}
        />
        <Contents found={found} />
      </nav>
      <main id="content" className="docs-main" tabIndex={-1}>
        <header>
          <h1>{info.title}</h1>
          <p className="soft">
            {texts.version(info.version)} · <a href={shown.document}>{texts.raw}</a>
          </p>
          <Prose text={info.description ?? ""} />
          {externalDocs ? (
            <p>
              <a href={externalDocs.url}>{externalDocs.description ?? externalDocs.url}</a>
            </p>
          ) : null}
        </header>
        {found.length ? operations : <p role="status">{texts.noMatch}</p>}
        {text ? null : (
          <section aria-labelledby="schemas">
            <h2 id="schemas">{texts.schemas}</h2>
            {types}
          </section>
        )}
      </main>
    </div>
  );
}

function Contents({ found }: { found: Group[] }) {
  return (
    <details className="docs-contents" open={window.matchMedia("(min-width: 761px)").matches}>
      <summary>{texts.operations}</summary>
      {found.map((group) => (
        <div key={group.name}>
          <a className="label" href={`#group-${group.name}`}>
            {group.name}
          </a>
          <ul>
            {group.entries.map(({ method, operation }) => (
              <li key={operation.operationId}>
                <a href={`#${operation.operationId}`}>
                  <span className={`docs-method ${method.toLowerCase()}`}>{method}</span>
                  <span>{operation.operationId.replaceAll("_", " ")}</span>
                </a>
              </li>
            ))}
          </ul>
        </div>
      ))}
      <a className="label" href="#schemas">
        {texts.schemas}
      </a>
    </details>
  );
}

function ThemeButton() {
  const [, choose] = useTheme();
  const [dark, setDark] = useState(document.documentElement.dataset["theme"] === "dark");
  const next = dark ? "light" : "dark";
  return (
    <button
      type="button"
      className="button plain icon"
      aria-label={texts.theme(texts.themes[next])}
      onClick={() => {
        choose(next);
        setDark(!dark);
      }}
    >
      <span aria-hidden>{dark ? "☀" : "☾"}</span>
    </button>
  );
}
