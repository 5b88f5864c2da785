/** Whether a board can be opened without a login: the permissions of the public for the board and for the data of each chart. */
import type { JSX } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { ApiError, call, itemsPath, messageOf, systemCollection } from '../api';
import { toast } from '../state';
import { Button, copyText, Dialog, ErrorBox, Icon } from '../ui';
import type { Board } from './boards';

const AS_PUBLIC = { 'Lateral-View-As': 'public' };

async function isAllowed(request: Promise<unknown>): Promise<boolean> {
  try {
    await request;
    return true;
  } catch (failure) {
    if (failure instanceof ApiError && failure.status >= 400 && failure.status < 500) return false;
    throw failure;
  }
}

interface Checked {
  readonly label: string;
  readonly allowed: boolean;
}

/** Reads as the public would: `Lateral-View-As` of the API. */
async function check({ id, name, panels }: Board): Promise<Checked[]> {
  const path = `/dashboards/${id}?fields=id,name,note,panels.*`;
  const isBoardOpen = await isAllowed(call('GET', path, { headers: AS_PUBLIC, own: true }));
  const charts = panels.map(async ({ title, collection, query }): Promise<Checked> => {
    const allowed = await isAllowed(
      call('SEARCH', itemsPath(collection), { headers: AS_PUBLIC, own: true, body: { query } }),
    );
    return { label: `${title} (${collection})`, allowed };
  });
  return [{ label: `The board "${name}"`, allowed: isBoardOpen }, ...(await Promise.all(charts))];
}

interface PublicPolicy {
  readonly id: string;
}

const PUBLIC = { users: { user: { _null: true }, role: { _null: true } } };

/** Lets the public read this board and its charts, not their data. The first permission creates the policy of the public. */
async function allow(id: string): Promise<void> {
  const { data } = await call<PublicPolicy[]>('SEARCH', '/policies', {
    body: { query: { fields: ['id'], filter: PUBLIC, limit: 1 } },
  });
  const rules = [
    { collection: systemCollection('dashboards'), permissions: { id: { _eq: id } } },
    { collection: systemCollection('panels'), permissions: { dashboard: { _eq: id } } },
  ].map((rule) => ({ ...rule, action: 'read', fields: ['*'] }));
  const [policy] = data;
  if (policy) await call('POST', '/permissions', { body: rules.map((rule) => ({ ...rule, policy: policy.id })) });
  else
    await call('POST', '/policies', {
      body: { name: 'Public', permissions: rules, users: [{ user: null, role: null }] },
    });
}

export function PublicAccess({ board, onClose }: { readonly board: Board; readonly onClose: () => void }): JSX.Element {
  const [checked, setChecked] = useState<readonly Checked[] | null>(null);
  const [error, setError] = useState<string | null>(null);
  const read = async (): Promise<void> => {
    try {
      setChecked(await check(board));
    } catch (failure) {
      setError(messageOf(failure));
    }
  };
  useEffect(() => void read(), []);
  const open = async (): Promise<void> => {
    try {
      await allow(board.id);
      toast('The board can be opened without a login');
      await read();
    } catch (failure) {
      setError(messageOf(failure));
    }
  };
  return (
    <Dialog
      title="Access without login"
      onClose={onClose}
      footer={
        <>
          {checked?.[0]?.allowed === false && <Button label="Allow the board" onClick={() => void open()} />}
          <Button
            label="Copy link"
            icon="link"
            kind="primary"
            onClick={() => void copyText(location.href, 'Link copied')}
          />
        </>
      }
    >
      <div class="form">
        <p>Each chart reads with the permissions of its viewer. The public sees:</p>
        {error && <ErrorBox text={error} />}
        {!checked && !error && <p class="quiet">Asking…</p>}
        <ul class="board-checks">
          {checked?.map(({ label, allowed }) => (
            <li key={label} class={allowed ? 'good' : 'bad'}>
              <Icon name={allowed ? 'check' : 'close'} />
              <span>
                {label}: {allowed ? 'readable' : 'not readable'}
              </span>
            </li>
          ))}
        </ul>
        <p class="quiet">
          To show the data of the charts, allow reading it in the policy of the public, on the page Access.
        </p>
      </div>
    </Dialog>
  );
}
