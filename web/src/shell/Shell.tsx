// The frame around every view: navigation, theme, and who is signed in.

import * as Menu from "@radix-ui/react-dropdown-menu";
import {
  Bot,
  CircleUser,
  Coins,
  FileClock,
  GitFork,
  Inbox,
  type LucideIcon,
  MessagesSquare,
  MonitorSmartphone,
  ScrollText,
  ShieldCheck,
} from "lucide-react";
import { type ReactNode, useEffect } from "react";
import { Link, useLocation } from "wouter";
import { signOut } from "@/api/client";
import { useConsole } from "@/api/console";
import { useAnnounce } from "@/look/announce";
import { type Theme, useTheme } from "@/look/theme";
import { texts } from "@/texts";
import { usePendingCount } from "@/views/approvals/count";
import { useWaitingCount } from "@/views/chat/unread";
import "./shell.css";

type ViewName = keyof typeof texts.shell.views;

const OPERATE: [ViewName, LucideIcon][] = [
  ["runs", GitFork],
  ["approvals", Inbox],
  ["agents", Bot],
  ["spend", Coins],
  ["sessions", ScrollText],
  ["audit", FileClock],
  ["policy", ShieldCheck],
];
const TALK: [ViewName, LucideIcon][] = [
  ["chat", MessagesSquare],
  ["devices", MonitorSmartphone],
];

export function Shell({ children }: { children: ReactNode }) {
  const { views } = useConsole();
  const [place] = useLocation();
  const operator = views.includes("operator");
  const chat = views.includes("chat");
  const counts: Partial<Record<ViewName, number>> = { approvals: usePendingCount(), chat: useWaitingCount() };
  const group = (label: string, entries: [ViewName, LucideIcon][]) => (
    <div className="shell-group">
      <span className="label">{label}</span>
      {entries.map(([name, Icon]) => {
        const here = place === `/${name}` || place.startsWith(`/${name}/`);
        const waiting = counts[name] ?? 0;
        return (
          <Link key={name} href={`/${name}`} className="shell-link" aria-current={here ? "page" : undefined}>
            <Icon aria-hidden />
            {texts.shell.views[name]}
            {waiting ? (
              <span className="count">
                <span aria-hidden>{waiting}</span>
                <span className="unseen">{texts.shell.pending(waiting)}</span>
              </span>
            ) : null}
          </Link>
        );
      })}
    </div>
  );
  return (
    <div className="shell">
      <a className="shell-skip button" href="#content">
        {texts.shell.skip}
      </a>
      <nav className="shell-nav" aria-label={texts.shell.navigation}>
        <Link href="/" className="shell-brand" aria-label={texts.shell.brand}>
          <img src="/icon.svg" alt="" />
          <span>{texts.shell.brand}</span>
        </Link>
        {chat ? group(texts.shell.talk, TALK) : null}
        {operator ? group(texts.shell.operate, OPERATE) : null}
        <Foot />
      </nav>
      <main className="shell-main" id="content" tabIndex={-1}>
        {children}
      </main>
    </div>
  );
}

function Foot() {
  const { who, team, views } = useConsole();
  const [theme, choose] = useTheme();
  const { fail } = useAnnounce();
  const leave = async () => {
    try {
      await signOut();
      location.assign("/");
    } catch (error) {
      fail(error);
    }
  };
  return (
    <div className="shell-foot">
      <Menu.Root modal={false}>
        <Menu.Trigger className="button plain" aria-label={texts.shell.signedInAs(who.name)}>
          <CircleUser size={16} aria-hidden />
          <span className="who one-line">{team ? `${who.name} · ${team}` : who.name}</span>
        </Menu.Trigger>
        <Menu.Portal>
          <Menu.Content className="menu" align="start" sideOffset={4} collisionPadding={8}>
            <Menu.Label className="label">{texts.shell.theme}</Menu.Label>
            <Menu.RadioGroup value={theme} onValueChange={(value) => choose(value as Theme)}>
              {(Object.keys(texts.shell.themes) as Theme[]).map((name) => (
                <Menu.RadioItem key={name} value={name} className="item">
                  <Menu.ItemIndicator>✓</Menu.ItemIndicator>
                  {texts.shell.themes[name]}
                </Menu.RadioItem>
              ))}
            </Menu.RadioGroup>
            <Menu.Separator />
            <Menu.Item className="item" asChild>
              <a href={views.includes("operator") ? "/docs" : "/docs/shared"}>{texts.shell.api}</a>
            </Menu.Item>
            <Menu.Item className="item" onSelect={leave}>
              {texts.shell.signOut}
            </Menu.Item>
          </Menu.Content>
        </Menu.Portal>
      </Menu.Root>
    </div>
  );
}

/** The head of a view: its title, which is the tab's title too, and what stands beside it. */
export function ViewHead({ title, children }: { title: string; children?: ReactNode }) {
  const waiting = usePendingCount() + useWaitingCount();
  useEffect(() => {
    const full = `${title} · ${texts.shell.brand}`;
    document.title = waiting ? texts.shell.pendingTitle(waiting, full) : full;
  }, [title, waiting]);
  return (
    <header className="view-head">
      <h1>{title}</h1>
      {children ? <div className="aside">{children}</div> : null}
    </header>
  );
}
