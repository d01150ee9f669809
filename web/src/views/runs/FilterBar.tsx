// The fields that the list of runs is searched by, and the filters that are kept under a name.

import * as Menu from "@radix-ui/react-dropdown-menu";
import { Bookmark, SlidersHorizontal, Trash2 } from "lucide-react";
import { type RefObject, useEffect, useRef, useState } from "react";
import { Dialog } from "@/look/parts";
import { texts } from "@/texts";
import {
  areEmpty,
  type Filters,
  filtersIn,
  keepFilters,
  NO_FILTERS,
  queryOf,
  type SavedFilters,
  savedFilters,
  withSaved,
} from "@/views/runs/filters";

const t = texts.runs;
const STATUSES = ["success", "partial", "failed", "timeout", "refused", "cancelled"] as const;
const STATES = ["waiting", "running", "silent", "finished"] as const;
// A person types several characters in this time; each asks the server.
const TYPING_MS = 250;
const NAMES: Record<string, string> = { ...texts.states, ...t.states };

interface Props {
  filters: Filters;
  onFilters: (filters: Filters) => void;
  searchBox: RefObject<HTMLInputElement | null>;
}

export function FilterBar({ filters, onFilters, searchBox }: Props) {
  const [more, setMore] = useState(() => Boolean(filters.code || filters.correlation || filters.state));
  const set = (name: keyof Filters) => (value: string) => onFilters({ ...filters, [name]: value });
  return (
    <search className="runs-filters">
      <Typed
        name="q"
        label={t.search}
        hint={t.searchHint}
        value={filters.q}
        onValue={set("q")}
        box={searchBox}
      />
      <Typed name="user" label={t.user} value={filters.user} onValue={set("user")} />
      <Typed name="agent" label={t.agent} value={filters.agent} onValue={set("agent")} />
      <Choice label={t.status} value={filters.status} all={STATUSES} onValue={set("status")} />
      <Choice
        label={t.since}
        value={filters.since}
        all={Object.keys(t.periods)}
        names={t.periods}
        onValue={set("since")}
      />
      {more ? (
        <>
          <Choice label={t.state} value={filters.state} all={STATES} onValue={set("state")} />
          <Typed
            name="code"
            label={t.code}
            value={filters.code}
            onValue={(code) => set("code")(code.toUpperCase())}
          />
          <Typed
            name="correlation"
            label={t.correlation}
            value={filters.correlation}
            onValue={set("correlation")}
          />
        </>
      ) : null}
      <div className="row acts">
        <button type="button" className="button plain" aria-expanded={more} onClick={() => setMore(!more)}>
          <SlidersHorizontal size={14} aria-hidden />
          {t.more}
        </button>
        {areEmpty(filters) ? null : (
          <button type="button" className="button plain" onClick={() => onFilters(NO_FILTERS)}>
            {t.clear}
          </button>
        )}
        <Saved filters={filters} onFilters={onFilters} />
      </div>
    </search>
  );
}

interface TypedProps {
  name: string;
  label: string;
  hint?: string;
  value: string;
  onValue: (value: string) => void;
  box?: RefObject<HTMLInputElement | null>;
}

/** A field that tells its value when a person stops typing. */
function Typed({ name, label, hint = "", value, onValue, box }: TypedProps) {
  const [typed, setTyped] = useState(value);
  const [told, setTold] = useState(value);
  if (value !== told) {
    // The address changed otherwise: by a saved filter, or by going back.
    setTold(value);
    setTyped(value);
  }
  const tell = useRef(onValue);
  useEffect(() => {
    tell.current = onValue;
  });
  useEffect(() => {
    if (typed.trim() === value) return;
    const timer = setTimeout(() => {
      setTold(typed.trim());
      tell.current(typed.trim());
    }, TYPING_MS);
    return () => clearTimeout(timer);
  }, [typed, value]);
  return (
    <div className={`field ${name}`}>
      <label htmlFor={`filter-${name}`}>{label}</label>
      <input
        id={`filter-${name}`}
        ref={box}
        type="search"
        className="input"
        value={typed}
        placeholder={hint}
        onChange={(event) => setTyped(event.target.value)}
        onKeyDown={(event) => {
          if (event.key === "Escape") event.currentTarget.blur();
        }}
      />
    </div>
  );
}

interface ChoiceProps {
  label: string;
  value: string;
  all: readonly string[];
  names?: Record<string, string>;
  onValue: (value: string) => void;
}

function Choice({ label, value, all, names = NAMES, onValue }: ChoiceProps) {
  // An address may hold several values; they are shown as one more choice.
  const choices = value && !all.includes(value) ? [value, ...all] : all;
  return (
    <div className="field">
      <label htmlFor={`filter-${label}`}>{label}</label>
      <select
        id={`filter-${label}`}
        className="input"
        value={value}
        onChange={(event) => onValue(event.target.value)}
      >
        <option value="">{t.any}</option>
        {choices.map((each) => (
          <option key={each} value={each}>
            {names[each] ?? each}
          </option>
        ))}
      </select>
    </div>
  );
}

function Saved({ filters, onFilters }: { filters: Filters; onFilters: (filters: Filters) => void }) {
  const [list, setList] = useState<SavedFilters[]>(savedFilters);
  const [naming, setNaming] = useState(false);
  const [name, setName] = useState("");
  const change = (after: SavedFilters[]) => {
    keepFilters(after);
    setList(after);
  };
  const save = () => {
    if (!name.trim()) return;
    change(withSaved(list, { name: name.trim().slice(0, 60), query: queryOf(filters) }));
    setNaming(false);
    setName("");
  };
  return (
    <>
      <Menu.Root modal={false}>
        <Menu.Trigger className="button plain">
          <Bookmark size={14} aria-hidden />
          {t.saved}
        </Menu.Trigger>
        <Menu.Portal>
          <Menu.Content className="menu" align="end" sideOffset={4} collisionPadding={8}>
            {list.length === 0 ? <Menu.Label className="item soft">{t.noneSaved}</Menu.Label> : null}
            {list.map((each) => (
              <Menu.Item key={each.name} className="item" onSelect={() => onFilters(filtersIn(each.query))}>
                {each.name}
              </Menu.Item>
            ))}
            {areEmpty(filters) ? null : (
              <>
                <Menu.Separator />
                <Menu.Item className="item" onSelect={() => setNaming(true)}>
                  {t.save}
                </Menu.Item>
              </>
            )}
            {list.length === 0 ? null : <Menu.Separator />}
            {list.map((each) => (
              <Menu.Item
                key={each.name}
                className="item soft"
                onSelect={() => change(list.filter((other) => other.name !== each.name))}
              >
                <Trash2 size={14} aria-hidden />
                {t.remove(each.name)}
              </Menu.Item>
            ))}
          </Menu.Content>
        </Menu.Portal>
      </Menu.Root>
      <Dialog open={naming} onClose={() => setNaming(false)} title={t.saveTitle}>
        <form
          className="stack"
          onSubmit={(event) => {
            event.preventDefault();
            save();
          }}
        >
          <div className="field">
            <label htmlFor="filter-name">{t.saveName}</label>
            <input
              id="filter-name"
              className="input"
              value={name}
              onChange={(event) => setName(event.target.value)}
            />
          </div>
          <div className="acts">
            <button type="button" className="button" onClick={() => setNaming(false)}>
              {texts.common.back}
            </button>
            <button type="submit" className="button main" disabled={!name.trim()}>
              {t.saveYes}
            </button>
          </div>
        </form>
      </Dialog>
    </>
  );
}
