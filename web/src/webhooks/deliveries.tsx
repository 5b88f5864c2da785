/** The deliveries of a webhook: what was sent, how the receiver answered, and dead ones that can be sent again. */
import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import { messageOf } from '../api';
import { usePolling } from '../polling';
import { toast } from '../state';
import { Button, countOf, Dialog, ErrorBox } from '../ui';
import { act, countDeliveries, type Delivery, type DeliveryStatus, listDeliveries, PAGE } from './webhooks';

const EVERY_MS = 3_000;

const KINDS: readonly (readonly [DeliveryStatus | null, string])[] = [
  [null, 'All'],
  ['pending', 'Pending'],
  ['delivered', 'Delivered'],
  ['dead', 'Dead'],
];

interface DeliveriesProps {
  readonly webhook: string;
  /** Another one reads them again. */
  readonly turn: number;
}

export function Deliveries({ webhook, turn }: DeliveriesProps): JSX.Element {
  const [kind, setKind] = useState<DeliveryStatus | null>(null);
  const [deliveries, setDeliveries] = useState<readonly Delivery[] | null>(null);
  const [counts, setCounts] = useState<Readonly<Partial<Record<DeliveryStatus, number>>>>({});
  const [open, setOpen] = useState<Delivery | null>(null);
  const [asked, setAsked] = useState(0);
  const [error, setError] = usePolling(
    {
      ask: () => Promise.all([listDeliveries(webhook, kind), countDeliveries(webhook)]),
      take: ([found, counted]) => {
        setDeliveries(found);
        setCounts(counted.get(webhook) ?? {});
      },
      everyMs: EVERY_MS,
    },
    [webhook, kind, turn, asked],
  );
  const sendAgain = async (ids: readonly string[] | null): Promise<void> => {
    try {
      const { count } = await act<{ count: number }>(webhook, 'redeliver', ids === null ? {} : { deliveries: ids });
      toast(count === 1 ? 'The delivery will be sent again' : `${count} deliveries will be sent again`);
      setOpen(null);
    } catch (failure) {
      setError(messageOf(failure));
    }
    setAsked((before) => before + 1);
  };
  const dead = counts.dead ?? 0;
  return (
    <section class="hook-deliveries" aria-label="Deliveries">
      <header class="row">
        <h2>Deliveries</h2>
        <div class="tabs" role="tablist">
          {KINDS.map(([name, label]) => (
            <button key={label} type="button" role="tab" aria-selected={kind === name} onClick={() => setKind(name)}>
              {label}
              {name !== null && ` ${(counts[name] ?? 0).toLocaleString('en')}`}
            </button>
          ))}
        </div>
        <span class="grow" />
        {dead > 0 && (
          <Button label="Send all dead deliveries again" icon="refresh" onClick={() => void sendAgain(null)} />
        )}
      </header>
      {error && <ErrorBox text={error} />}
      {deliveries?.length === 0 && (
        <p class="quiet">
          {kind === null
            ? 'No change was sent yet. Each change of the collections appears here.'
            : `No ${kind} deliveries.`}
        </p>
      )}
      {deliveries && deliveries.length > 0 && <Table deliveries={deliveries} onOpen={setOpen} />}
      {deliveries?.length === PAGE && <p class="quiet">The latest {PAGE} are shown.</p>}
      {open && (
        <DeliveryDialog delivery={open} onClose={() => setOpen(null)} onAgain={() => void sendAgain([open.id])} />
      )}
    </section>
  );
}

interface TableProps {
  readonly deliveries: readonly Delivery[];
  readonly onOpen: (delivery: Delivery) => void;
}

function Table({ deliveries, onOpen }: TableProps): JSX.Element {
  return (
    <div class="result-table" tabIndex={0} role="region" aria-label="List of deliveries">
      <table>
        <thead>
          <tr>
            {['Time', 'Status', 'Event', 'Item', 'Attempts', 'Answer'].map((name) => (
              <th key={name} scope="col">
                {name}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {deliveries.map((delivery) => (
            <tr key={delivery.id}>
              <td>
                <button type="button" class="hook-open" onClick={() => onOpen(delivery)}>
                  {moment(delivery.created_at)}
                </button>
              </td>
              <td>
                <span class={`tag ${TAGS[delivery.status]}`}>{delivery.status}</span>
              </td>
              <td>
                {delivery.collection} {delivery.event}
              </td>
              <td>{delivery.item ?? '–'}</td>
              <td>{delivery.attempts}</td>
              <td>{answerOf(delivery)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

const TAGS: Readonly<Record<DeliveryStatus, string>> = { pending: 'plain', delivered: 'live', dead: 'warm' };

function answerOf({
  response_status: status,
  response_ms: ms,
  error,
  next_attempt_at: next,
  ...delivery
}: Delivery): string {
  const answer = [
    ...(status === null ? [] : [String(status)]),
    ...(error === null ? [] : [error]),
    ...(ms === null ? [] : [`${ms} ms`]),
  ].join(', ');
  const isWaiting = delivery.status === 'pending' && delivery.attempts > 0;
  return isWaiting ? `${answer}; next attempt at ${moment(next)}` : answer === '' ? '–' : answer;
}

function moment(text: string): string {
  return new Date(text).toLocaleString('sv-SE');
}

interface DeliveryDialogProps {
  readonly delivery: Delivery;
  readonly onClose: () => void;
  readonly onAgain: () => void;
}

function DeliveryDialog({ delivery, onClose, onAgain }: DeliveryDialogProps): JSX.Element {
  const { collection, event, item, status, attempts, response_body: body, payload } = delivery;
  return (
    <Dialog
      title={`Delivery of ${collection} ${event}`}
      kind="side"
      onClose={onClose}
      footer={
        status !== 'pending' && event !== 'test' && <Button label="Send again" icon="refresh" onClick={onAgain} />
      }
    >
      <div class="form">
        <p>
          {item === null ? '' : `Item ${item}: `}
          {status} after {countOf(attempts, 'attempt')}. {answerOf(delivery)}
        </p>
        <p class="quiet">
          webhook-id <code>{delivery.id}</code>
        </p>
        <h3>Sent</h3>
        <pre class="output" tabIndex={0} role="region" aria-label="Sent">
          {JSON.stringify(payload, null, 2)}
        </pre>
        <h3>Answer</h3>
        {body ? (
          <pre class="output" tabIndex={0} role="region" aria-label="Answer">
            {body}
          </pre>
        ) : (
          <p class="quiet">Empty</p>
        )}
      </div>
    </Dialog>
  );
}
