// The pages of the console by their addresses. Each view is loaded when it is first shown.

import type { ReactNode } from "react";
import { Redirect, Route, Switch } from "wouter";
import { SignedIn, useConsole } from "@/api/console";
import { Loading, Trouble } from "@/look/parts";
import { Failing } from "@/shell/Failing";
import { loaded } from "@/shell/loaded";
import { Shell, ViewHead } from "@/shell/Shell";
import { texts } from "@/texts";
import { SignIn } from "@/views/signin/SignIn";

const RunsView = loaded(() => import("@/views/runs/RunsView"));
const RunView = loaded(() => import("@/views/run/RunView"));
const CompareView = loaded(() => import("@/views/compare/CompareView"));
const WorkflowView = loaded(() => import("@/views/workflow/WorkflowView"));
const ApprovalsView = loaded(() => import("@/views/approvals/ApprovalsView"));
const AgentsView = loaded(() => import("@/views/agents/AgentsView"));
const AgentView = loaded(() => import("@/views/agents/AgentView"));
const SpendView = loaded(() => import("@/views/spend/SpendView"));
const SessionsView = loaded(() => import("@/views/sessions/SessionsView"));
const SessionView = loaded(() => import("@/views/sessions/SessionView"));
const AuditView = loaded(() => import("@/views/audit/AuditView"));
const PolicyView = loaded(() => import("@/views/policy/PolicyView"));
const ChatView = loaded(() => import("@/views/chat/ChatView"));
const DevicesView = loaded(() => import("@/views/devices/DevicesView"));

const around = (child: ReactNode) => <main className="signin">{child}</main>;

export function App() {
  return (
    <SignedIn
      loading={around(<Loading rows={3} />)}
      trouble={(error, again) => around(<Trouble error={error} again={again} />)}
      signIn={(entered) => <SignIn entered={entered} />}
    >
      <Shell>
        <Failing>
          <Views />
        </Failing>
      </Shell>
    </SignedIn>
  );
}

function Views() {
  const { views } = useConsole();
  return (
    <Switch>
      <Route path="/runs" component={RunsView} />
      <Route path="/runs/:run/workflow" component={WorkflowView} />
      <Route path="/runs/:run/d/*" component={RunView} />
      <Route path="/runs/:run" component={RunView} />
      <Route path="/compare/:a/:b" component={CompareView} />
      <Route path="/approvals" component={ApprovalsView} />
      <Route path="/agents" component={AgentsView} />
      <Route path="/agents/:name" component={AgentView} />
      <Route path="/spend" component={SpendView} />
      <Route path="/sessions" component={SessionsView} />
      <Route path="/sessions/:id" component={SessionView} />
      <Route path="/audit" component={AuditView} />
      <Route path="/policy" component={PolicyView} />
      <Route path="/chat" component={ChatView} />
      <Route path="/chat/:run" component={ChatView} />
      <Route path="/devices" component={DevicesView} />
      <Route path="/">
        <Redirect to={views.includes("operator") ? "/runs" : "/chat"} replace />
      </Route>
      <Route>
        <ViewHead title={texts.errors.notFound.title} />
        <p className="soft">{texts.errors.notFound.advice}</p>
      </Route>
    </Switch>
  );
}
