/** The recorded changes of an item: what each one changed, and a way back to it. */
import type { JSX } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { call, itemsPath, messageOf } from '../../api';
import type { Collection, Model } from '../../model';
import { toast, viewAs } from '../../state';
import { Button, Empty, ErrorBox, FormDialog } from '../../ui';
import type { Row } from '../edits';
import { payloadValue } from '../form';
import { targetOf } from '../item';
import { inZone } from '../moment';
import { type Difference, DifferenceTable, differences } from './difference';

interface Revision {
  readonly id: number | string;
  readonly data: Row | null;
  readonly delta: Row | null;
  readonly activity: {
    readonly action?: string;
    readonly timestamp?: string;
    readonly user?: { readonly id?: string; readonly email?: string } | null;
  } | null;
}

interface RevisionsProps {
  readonly collection: Collection;
  readonly model: Model;
  readonly row: Row;
  readonly itemKey: string;
  readonly reloads: number;
  readonly onRestored: () => void;
}

const PAGE = 20;

export function Revisions(props: RevisionsProps): JSX.Element {
  const { collection, itemKey, reloads } = props;
  const [list, setList] = useState<readonly Revision[] | null>(null);
  const [error, setError] = useState<string | null>(null);
  const [limit, setLimit] = useState(PAGE);
  const [restoring, setRestoring] = useState<Revision | null>(null);
  const load = async (): Promise<void> => {
    const filter = { collection: { _eq: collection.name }, item: { _eq: itemKey }, version: { _null: true } };
    const fields = [
      'id',
      'data',
      'delta',
      'activity.action',
      'activity.timestamp',
      'activity.user.id',
      'activity.user.email',
    ];
    try {
      // One more than is shown: its values are those before the last change of the list.
      const query = { fields, filter, sort: ['-id'], limit: limit + 1 };
      setList((await call<Revision[]>('SEARCH', '/revisions', { body: { query } })).data);
      setError(null);
    } catch (failure) {
      setError(messageOf(failure));
    }
  };
  useEffect(() => void load(), [itemKey, limit, reloads]);
  if (error) return <ErrorBox text={error} onRetry={() => void load()} />;
  if (!list) return <p class="boot">Loading…</p>;
  if (list.length === 0)
    return (
      <Empty title="No revisions yet" icon="refresh">
        Changes through the API appear here. Changes by other programs are not recorded.
      </Empty>
    );
  return (
    <>
      <ol class="revisions">
        {list.slice(0, limit).map((revision, at) => (
          <RevisionEntry
            key={revision.id}
            {...props}
            revision={revision}
            former={list[at + 1] ?? null}
            isLatest={at === 0}
            onRestore={viewAs.value || !collection.isWritable ? null : () => setRestoring(revision)}
          />
        ))}
      </ol>
      {list.length > limit && <Button label="Show older revisions" onClick={() => setLimit(limit + PAGE)} />}
      {restoring && <RestoreDialog {...props} revision={restoring} onClose={() => setRestoring(null)} />}
    </>
  );
}

interface EntryProps extends RevisionsProps {
  readonly revision: Revision;
  /** The one before it. */
  readonly former: Revision | null;
  readonly isLatest: boolean;
  readonly onRestore: (() => void) | null;
}

function RevisionEntry({ collection, revision, former, isLatest, onRestore }: EntryProps): JSX.Element {
  const { action = 'change', timestamp, user } = revision.activity ?? {};
  const changed =
    action === 'create' || !former ? null : differences(former.data ?? {}, revision.delta ?? revision.data ?? {});
  const when = timestamp === undefined ? 'unknown time' : `${inZone(timestamp, 'UTC').slice(0, 19)} UTC`;
  return (
    <li>
      <header>
        <strong>{when}</strong>
        <span>
          {ACTIONS[action] ?? action} by {user?.email ?? user?.id ?? 'nobody who is known'}
        </span>
        <span class="actions">
          {onRestore && !isLatest && <Button label="Restore" icon="undo" onClick={onRestore} />}
          {isLatest && <span class="quiet">latest</span>}
        </span>
      </header>
      {changed === null ? (
        <p class="quiet">
          {action === 'create'
            ? 'The item was created.'
            : `Changed ${Object.keys(revision.delta ?? {}).join(', ')}. The earlier values are unknown.`}
        </p>
      ) : changed.length === 0 ? (
        <p class="quiet">No field of the item changed.</p>
      ) : (
        <DifferenceTable list={changed} collection={collection} before="Before" after="After" />
      )}
    </li>
  );
}

const ACTIONS: Readonly<Record<string, string>> = {
  create: 'Created',
  update: 'Changed',
  delete: 'Deleted',
  version_save: 'Saved to a version',
};

/** The columns of a revision that differ from the item as it is now, and can be written. */
function restorable({ collection, model, row }: RevisionsProps, revision: Revision): Difference[] {
  const now = Object.fromEntries(
    [...collection.fields.values()].map((field) => [
      field.name,
      payloadValue(row[field.name], model, targetOf(field, row)) ?? null,
    ]),
  );
  return differences(now, revision.data ?? {}).filter(({ field: name }) => {
    const field = collection.fields.get(name);
    return field?.column && !field.readonly && !field.isKey;
  });
}

function RestoreDialog(
  props: RevisionsProps & { readonly revision: Revision; readonly onClose: () => void },
): JSX.Element {
  const { collection, itemKey, revision, onClose, onRestored } = props;
  const list = restorable(props, revision);
  const [left, setLeft] = useState<ReadonlySet<string>>(new Set());
  const [error, setError] = useState<string | null>(null);
  const [busy, setBusy] = useState(false);
  const chosen = list.filter(({ field }) => !left.has(field));
  const restore = async (): Promise<void> => {
    setBusy(true);
    try {
      const body = Object.fromEntries(chosen.map(({ field, after }) => [field, after]));
      await call('PATCH', collection.singleton ? itemsPath(collection.name) : itemsPath(collection.name, itemKey), {
        body,
      });
      toast('Revision restored');
      onClose();
      onRestored();
    } catch (failure) {
      setError(messageOf(failure));
      setBusy(false);
    }
  };
  const toggle = (field: string): void => {
    const next = new Set(left);
    if (!next.delete(field)) next.add(field);
    setLeft(next);
  };
  return (
    <FormDialog
      title="Restore this revision?"
      submit="Restore"
      disabled={busy || chosen.length === 0}
      onClose={onClose}
      onSubmit={() => void restore()}
    >
      {error && <ErrorBox text={error} />}
      {list.length === 0 ? (
        <p>The item already has the values of this revision.</p>
      ) : (
        <>
          <p>The chosen fields get the values of the revision. Lists of related items stay as they are.</p>
          <DifferenceTable
            list={list}
            collection={collection}
            before="Now"
            after="Revision"
            lead={({ field }) => (
              <input
                type="checkbox"
                aria-label={`Restore ${field}`}
                checked={!left.has(field)}
                onChange={() => toggle(field)}
              />
            )}
          />
        </>
      )}
    </FormDialog>
  );
}
