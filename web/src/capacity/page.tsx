/** Capacity: recordings of the traffic, budgets of statements, advice about indexes, and reports of replays. */
import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import { go, href, route } from '../state';
import { AdviceTab } from './advice-tab';
import { BudgetsTab } from './budgets-tab';
import './capacity.css';
import type { Opened } from './recording';
import { RecordingTab } from './recording-tab';
import { ReportTab } from './report-tab';

const TABS = { recording: 'Recording', budgets: 'Budgets', advice: 'Index advice', reports: 'Reports' } as const;

type Tab = keyof typeof TABS;

export function CapacityPage(): JSX.Element {
  const [name = ''] = route.value.rest;
  const tab: Tab = name in TABS ? (name as Tab) : 'recording';
  const [opened, setOpened] = useState<Opened | null>(null);
  return (
    <div class="boards capacity">
      <header class="toolbar">
        <h1>Capacity</h1>
        <div class="tabs" role="tablist">
          {Object.entries(TABS).map(([each, label]) => (
            <button
              key={each}
              type="button"
              role="tab"
              aria-selected={tab === each}
              onClick={() => go(href('capacity', [each]))}
            >
              {label}
            </button>
          ))}
        </div>
      </header>
      <div class="capacity-body">
        {tab === 'recording' && <RecordingTab opened={opened} onOpen={setOpened} />}
        {tab === 'budgets' && <BudgetsTab />}
        {tab === 'advice' && <AdviceTab opened={opened} onOpen={setOpened} />}
        {tab === 'reports' && <ReportTab />}
      </div>
    </div>
  );
}
