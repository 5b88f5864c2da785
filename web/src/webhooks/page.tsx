/** Webhooks: the list, and one webhook with its deliveries. */
import type { ComponentChildren, JSX } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { messageOf } from '../api';
import { DeleteDialog } from '../boards/board-form';
import { go, href, route, toast } from '../state';
import { Button, copyText, Dialog, Empty, ErrorBox, Menu } from '../ui';
import { Deliveries } from './deliveries';
import { WebhookForm } from './form';
import './webhooks.css';
import {
  type Attempt,
  act,
  type Counts,
  changeWebhook,
  countDeliveries,
  deleteWebhook,
  listWebhooks,
  loadWebhook,
  type Webhook,
} from './webhooks';

export function WebhooksPage(): JSX.Element {
  const [id] = route.value.rest;
  // It is shown above both pages, because creating a webhook opens its page.
  const [secret, setSecret] = useState<string | null>(null);
  return (
    <>
      {id === undefined || id === '' ? (
        <WebhookList onSecret={setSecret} />
      ) : (
        <WebhookView key={id} id={id} onSecret={setSecret} />
      )}
      {secret !== null && <SecretDialog secret={secret} onClose={() => setSecret(null)} />}
    </>
  );
}

function SecretDialog({ secret, onClose }: { readonly secret: string; readonly onClose: () => void }): JSX.Element {
  return (
    <Dialog
      title="Secret of the webhook"
      isForm
      onClose={onClose}
      footer={
        <>
          <Button label="Copy the secret" icon="copy" onClick={() => void copyText(secret, 'Secret copied')} />
          <Button label="Done" kind="primary" onClick={onClose} />
        </>
      }
    >
      <div class="form">
        <p>Store it at the receiver, which verifies the signatures with it. It is shown only now.</p>
        <code class="hook-secret">{secret}</code>
      </div>
    </Dialog>
  );
}

interface ListProps {
  readonly onSecret: (secret: string) => void;
}

function WebhookList({ onSecret }: ListProps): JSX.Element {
  const [webhooks, setWebhooks] = useState<readonly Webhook[] | null>(null);
  const [counts, setCounts] = useState<Counts>(new Map());
  const [error, setError] = useState<string | null>(null);
  const [isNew, setNew] = useState(false);
  const read = (): void => {
    Promise.all([listWebhooks(), countDeliveries()]).then(
      ([found, counted]) => {
        setWebhooks(found);
        setCounts(counted);
        setError(null);
      },
      (failure: unknown) => setError(messageOf(failure)),
    );
  };
  useEffect(read, []);
  return (
    <div class="boards">
      <header class="toolbar">
        <h1>Webhooks</h1>
        <span class="grow" />
        <Button label="New webhook" icon="plus" kind="primary" onClick={() => setNew(true)} />
      </header>
      {error && <ErrorBox text={error} onRetry={read} />}
      {!webhooks && !error && <p class="boot">Loading…</p>}
      {webhooks?.length === 0 && (
        <Empty title="There are no webhooks yet" icon="link">
          A webhook posts every committed change of the chosen collections to a URL, changes by plain SQL included.
          Press New webhook to begin.
        </Empty>
      )}
      {webhooks && webhooks.length > 0 && (
        <div class="result-table hook-table" tabIndex={0} role="region" aria-label="Webhooks">
          <table>
            <thead>
              <tr>
                {['Name', 'Status', 'Collections', 'Events', 'URL', 'Pending', 'Dead'].map((name) => (
                  <th key={name} scope="col" class={name === 'Pending' || name === 'Dead' ? 'number' : ''}>
                    {name}
                  </th>
                ))}
              </tr>
            </thead>
            <tbody>
              {webhooks.map((webhook) => (
                <tr key={webhook.id}>
                  <td>
                    <a href={href('webhooks', [webhook.id])}>{webhook.name}</a>
                  </td>
                  <td>
                    <Status webhook={webhook} />
                  </td>
                  <td>{webhook.collections.join(', ')}</td>
                  <td>{webhook.events.join(', ')}</td>
                  <td>{webhook.url}</td>
                  <td class="number">{counts.get(webhook.id)?.pending ?? 0}</td>
                  <td class={`number${counts.get(webhook.id)?.dead ? ' bad' : ''}`}>
                    {counts.get(webhook.id)?.dead ?? 0}
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      {isNew && (
        <WebhookForm
          webhook={null}
          onClose={() => setNew(false)}
          onSaved={(id, secret) => {
            if (secret !== null) onSecret(secret);
            go(href('webhooks', [id]));
          }}
        />
      )}
    </div>
  );
}

function Status({ webhook }: { readonly webhook: Webhook }): JSX.Element {
  const { status, incomplete_since: since } = webhook;
  return (
    <span class="row">
      <span class={`tag ${status === 'active' ? 'live' : status === 'paused' ? 'warm' : 'plain'}`}>
        {status === 'inactive' ? 'off' : status}
      </span>
      {since !== null && <span class="tag warm">incomplete</span>}
    </span>
  );
}

interface ViewProps extends ListProps {
  readonly id: string;
}

type Opened = 'edit' | 'delete' | 'rotate' | null;

/** Runs an action and reports its success with the text, or its error. */
type Run = (action: () => Promise<unknown>, done: string | null) => Promise<void>;

function WebhookView({ id, onSecret }: ViewProps): JSX.Element {
  const [webhook, setWebhook] = useState<Webhook | null>(null);
  const [error, setError] = useState<string | null>(null);
  const [opened, setOpened] = useState<Opened>(null);
  const [attempt, setAttempt] = useState<Attempt | null>(null);
  const [busy, setBusy] = useState(false);
  const [turn, setTurn] = useState(0);
  const read = (): void => {
    loadWebhook(id).then(setWebhook, (failure: unknown) => setError(messageOf(failure)));
  };
  useEffect(read, [id]);
  const run: Run = async (action, done) => {
    setBusy(true);
    try {
      await action();
      if (done !== null) toast(done);
      setError(null);
    } catch (failure) {
      setError(messageOf(failure));
    }
    setBusy(false);
    setTurn((before) => before + 1);
    read();
  };
  if (!webhook)
    return error ? (
      <div class="page-pad">
        <ErrorBox text={error} onRetry={read} />
        <a href={href('webhooks')}>All webhooks</a>
      </div>
    ) : (
      <p class="boot">Loading…</p>
    );
  return (
    <div class="boards">
      <header class="toolbar">
        <nav aria-label="Path">
          <a href={href('webhooks')}>Webhooks</a> /
        </nav>
        <h1>{webhook.name}</h1>
        <Status webhook={webhook} />
        <div class="actions">
          <Commands webhook={webhook} busy={busy} onRun={run} onAttempt={setAttempt} />
          <Button label="Edit" icon="edit" onClick={() => setOpened('edit')} />
          <Menu
            label="More"
            icon="more"
            compact
            entries={[
              { label: 'Rotate the secret', icon: 'key', onClick: () => setOpened('rotate') },
              { label: 'Delete the webhook', icon: 'trash', danger: true, onClick: () => setOpened('delete') },
            ]}
          />
        </div>
      </header>
      <div class="hook-body">
        {error && <ErrorBox text={error} />}
        {webhook.incomplete_since !== null && (
          <ErrorBox
            text={`Changes were missed since ${webhook.incomplete_since}: ${webhook.incomplete_reason ?? 'unknown reason'}. The missed changes will not be sent. Resume removes this warning.`}
          />
        )}
        {attempt && <AttemptBox attempt={attempt} onClose={() => setAttempt(null)} />}
        <Facts webhook={webhook} />
        <Deliveries webhook={webhook.id} turn={turn} />
      </div>
      <Dialogs
        opened={opened}
        webhook={webhook}
        onSecret={onSecret}
        onClose={() => setOpened(null)}
        onSaved={() => {
          toast('Webhook saved');
          read();
        }}
      />
    </div>
  );
}

interface CommandsProps {
  readonly webhook: Webhook;
  readonly busy: boolean;
  readonly onRun: Run;
  readonly onAttempt: (attempt: Attempt) => void;
}

function Commands({ webhook, busy, onRun, onAttempt }: CommandsProps): JSX.Element {
  const { id, status } = webhook;
  return (
    <>
      <Button
        label="Send a test"
        icon="play"
        disabled={busy}
        onClick={() => void onRun(async () => onAttempt(await act<Attempt>(id, 'test')), null)}
      />
      {status === 'active' && (
        <Button
          label="Pause"
          hint="Record changes, and send them later"
          disabled={busy}
          onClick={() => void onRun(() => act(id, 'pause'), 'Paused: changes are recorded and sent later')}
        />
      )}
      {(status === 'paused' || (status === 'active' && webhook.incomplete_since !== null)) && (
        <Button label="Resume" disabled={busy} onClick={() => void onRun(() => act(id, 'resume'), 'Resumed')} />
      )}
      <Button
        label={status === 'inactive' ? 'Turn on' : 'Turn off'}
        hint={status === 'inactive' ? 'Record and send changes' : 'Record no changes'}
        disabled={busy}
        onClick={() =>
          void onRun(
            () => changeWebhook(id, { status: status === 'inactive' ? 'active' : 'inactive' }),
            status === 'inactive' ? 'Turned on' : 'Turned off: changes are not recorded',
          )
        }
      />
    </>
  );
}

interface DialogsProps extends ListProps {
  readonly opened: Opened;
  readonly webhook: Webhook;
  readonly onClose: () => void;
  readonly onSaved: () => void;
}

function Dialogs({ opened, webhook, onSecret, onClose, onSaved }: DialogsProps): JSX.Element | null {
  if (opened === null) return null;
  if (opened === 'edit')
    return (
      <WebhookForm
        webhook={webhook}
        onClose={onClose}
        onSaved={() => {
          onClose();
          onSaved();
        }}
      />
    );
  if (opened === 'rotate')
    return (
      <RotateDialog
        id={webhook.id}
        onClose={onClose}
        onSecret={(secret) => {
          onClose();
          onSecret(secret);
        }}
      />
    );
  return (
    <DeleteDialog
      title="Delete the webhook"
      text={`The webhook "${webhook.name}" and its deliveries will be deleted.`}
      onClose={onClose}
      onDelete={async () => {
        await deleteWebhook(webhook.id);
        go(href('webhooks'));
      }}
    />
  );
}

function AttemptBox({ attempt, onClose }: { readonly attempt: Attempt; readonly onClose: () => void }): JSX.Element {
  const { delivered, status, ms, body, error } = attempt;
  return (
    <section class={`hook-attempt ${delivered ? 'good' : 'bad'}`} aria-label="Test delivery" role="status">
      <strong>
        {delivered ? 'The receiver accepted the test' : 'The test failed'}
        {status === null ? '' : `: status ${status}`} ({ms} ms)
      </strong>
      <Button label="Close the result" icon="close" kind="quiet" compact onClick={onClose} />
      {error !== null && <p>{error}</p>}
      {body !== '' && <pre>{body}</pre>}
    </section>
  );
}

function Facts({ webhook }: { readonly webhook: Webhook }): JSX.Element {
  const { url, collections, events, filter, fields, headers } = webhook;
  return (
    <dl class="hook-facts">
      <Fact name="URL">{url}</Fact>
      <Fact name="Collections">{collections.join(', ')}</Fact>
      <Fact name="Events">{events.join(', ')}</Fact>
      <Fact name="Filter">{filter === null ? 'all items' : <code>{JSON.stringify(filter)}</code>}</Fact>
      <Fact name="Fields">{fields === null ? 'all' : fields.join(', ')}</Fact>
      <Fact name="Headers">{headers === null ? 'none' : 'not shown'}</Fact>
    </dl>
  );
}

function Fact({ name, children }: { readonly name: string; readonly children: ComponentChildren }): JSX.Element {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}

interface RotateProps extends ListProps {
  readonly id: string;
  readonly onClose: () => void;
}

function RotateDialog({ id, onClose, onSecret }: RotateProps): JSX.Element {
  const [error, setError] = useState<string | null>(null);
  const [busy, setBusy] = useState(false);
  const rotate = async (): Promise<void> => {
    setBusy(true);
    try {
      const { secret } = await act<{ secret: string }>(id, 'rotate');
      onSecret(secret);
    } catch (failure) {
      setError(messageOf(failure));
      setBusy(false);
    }
  };
  return (
    <Dialog
      title="Rotate the secret"
      onClose={onClose}
      footer={
        <>
          <Button label="Cancel" onClick={onClose} />
          <Button label="Rotate" kind="primary" disabled={busy} onClick={() => void rotate()} />
        </>
      }
    >
      {error && <ErrorBox text={error} />}
      <p>The service creates a new secret. For one day, deliveries have the signatures of both secrets.</p>
    </Dialog>
  );
}
