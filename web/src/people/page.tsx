/** People: users, roles, policies, and what each of them may do. */
import type { JSX } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { messageOf } from '../api';
import { href, route } from '../state';
import { ErrorBox } from '../ui';
import './people.css';
import { type Directory, loadDirectory } from './people';
import { PoliciesTab } from './policies';
import { RightsTab } from './rights';
import { RolesTab } from './roles';
import { UsersTab } from './users';

const TABS = [
  ['users', 'Users'],
  ['roles', 'Roles'],
  ['policies', 'Policies'],
  ['rights', 'Rights'],
] as const;

export function PeoplePage(): JSX.Element {
  const [directory, setDirectory] = useState<Directory | null>(null);
  const [error, setError] = useState<string | null>(null);
  const load = async (): Promise<void> => {
    try {
      setDirectory(await loadDirectory());
      setError(null);
    } catch (failure) {
      setError(messageOf(failure));
    }
  };
  useEffect(() => void load(), []);
  if (error) return <ErrorBox text={error} onRetry={() => void load()} />;
  if (!directory) return <p class="boot">Loading…</p>;
  const [named] = route.value.rest;
  const tab = TABS.find(([name]) => name === named)?.[0] ?? 'users';
  const props = { directory, onChanged: load };
  return (
    <div class="people">
      <header class="toolbar people-bar">
        <h1>People</h1>
        <nav class="tabs" aria-label="Parts of People">
          {TABS.map(([name, title]) => (
            <a key={name} href={href('people', [name])} aria-current={tab === name ? 'page' : undefined}>
              {title}
            </a>
          ))}
        </nav>
      </header>
      {tab === 'roles' ? (
        <RolesTab {...props} />
      ) : tab === 'policies' ? (
        <PoliciesTab {...props} />
      ) : tab === 'rights' ? (
        <RightsTab {...props} />
      ) : (
        <UsersTab {...props} />
      )}
    </div>
  );
}
