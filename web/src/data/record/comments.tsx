/** The comments on an item. Users change and delete their own. */
import type { JSX } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { call, messageOf } from '../../api';
import { Confirm } from '../../forms';
import type { Collection } from '../../model';
import { me, toast, viewAs } from '../../state';
import { Button, ErrorBox } from '../../ui';
import { inZone } from '../moment';

interface Comment {
  readonly id: string;
  readonly comment: string;
  readonly date_created: string;
  readonly user_created: { readonly id: string; readonly email?: string } | string | null;
}

interface CommentsProps {
  readonly collection: Collection;
  readonly itemKey: string;
}

export function Comments({ collection, itemKey }: CommentsProps): JSX.Element {
  const [list, setList] = useState<readonly Comment[] | null>(null);
  const [error, setError] = useState<string | null>(null);
  const [typed, setTyped] = useState('');
  const [editing, setEditing] = useState<{ readonly id: string; readonly text: string } | null>(null);
  const [deleting, setDeleting] = useState<string | null>(null);
  const load = async (): Promise<void> => {
    const filter = { collection: { _eq: collection.name }, item: { _eq: itemKey } };
    const fields = ['id', 'comment', 'date_created', 'user_created.id', 'user_created.email'];
    try {
      const query = { fields, filter, sort: ['date_created'], limit: 500 };
      setList((await call<Comment[]>('SEARCH', '/comments', { body: { query } })).data);
      setError(null);
    } catch (failure) {
      setError(messageOf(failure));
    }
  };
  useEffect(() => void load(), [itemKey]);
  const write = async (method: string, path: string, body?: unknown): Promise<void> => {
    try {
      await call(method, path, body === undefined ? {} : { body });
      setTyped('');
      setEditing(null);
      await load();
    } catch (failure) {
      toast(`Not saved: ${messageOf(failure)}`, 'bad');
    }
  };
  if (error) return <ErrorBox text={error} onRetry={() => void load()} />;
  if (!list) return <p class="boot">Loading…</p>;
  return (
    <div class="comments">
      {list.length === 0 && <p class="quiet">No comments yet.</p>}
      {list.map((each) => (
        <article key={each.id}>
          <header>
            <strong>{authorOf(each)}</strong>
            <small>{inZone(each.date_created, 'UTC').slice(0, 16)} UTC</small>
            {isOwn(each) && !viewAs.value && editing?.id !== each.id && (
              <span class="actions">
                <Button label="Edit" kind="quiet" onClick={() => setEditing({ id: each.id, text: each.comment })} />
                <Button label="Delete" kind="quiet" onClick={() => setDeleting(each.id)} />
              </span>
            )}
          </header>
          {editing?.id === each.id ? (
            <form
              onSubmit={(event) => {
                event.preventDefault();
                void write('PATCH', `/comments/${each.id}`, { comment: editing.text });
              }}
            >
              <textarea
                aria-label="Change the comment"
                rows={3}
                value={editing.text}
                onInput={(event) => setEditing({ id: each.id, text: event.currentTarget.value })}
              />
              <div class="row">
                <button type="submit" class="button primary" disabled={editing.text.trim() === ''}>
                  Save comment
                </button>
                <Button label="Cancel" onClick={() => setEditing(null)} />
              </div>
            </form>
          ) : (
            <p class="comment-text">{each.comment}</p>
          )}
        </article>
      ))}
      {!viewAs.value && (
        <form
          onSubmit={(event) => {
            event.preventDefault();
            void write('POST', '/comments', { collection: collection.name, item: itemKey, comment: typed });
          }}
        >
          <label for="new-comment">New comment</label>
          <textarea id="new-comment" rows={3} value={typed} onInput={(event) => setTyped(event.currentTarget.value)} />
          <button type="submit" class="button primary" disabled={typed.trim() === ''}>
            Comment
          </button>
        </form>
      )}
      {deleting !== null && (
        <Confirm
          title="Delete the comment?"
          submit="Delete comment"
          onClose={() => setDeleting(null)}
          onConfirm={async () => {
            await call('DELETE', `/comments/${deleting}`);
            await load();
            return 'The comment was deleted';
          }}
        >
          <p>A deleted comment cannot be restored.</p>
        </Confirm>
      )}
    </div>
  );
}

function authorOf({ user_created: user }: Comment): string {
  if (user === null) return 'A deleted user';
  return typeof user === 'string' ? user : (user.email ?? user.id);
}

function isOwn({ user_created: user }: Comment): boolean {
  return me.value?.id === (typeof user === 'object' ? user?.id : user);
}
