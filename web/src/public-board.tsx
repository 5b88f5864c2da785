/** A board without a login: shown if the permissions of the public allow it. Otherwise the login is shown. */
import { signal } from '@preact/signals';
import type { ComponentType, JSX } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { call } from './api';
import { route } from './state';
import { Button } from './ui';

type Shown = ComponentType<{ readonly id: string; readonly mayChange: boolean; readonly isPublic: boolean }>;

const wantsLogin = signal(false);

export function PublicBoard({ otherwise }: { readonly otherwise: JSX.Element }): JSX.Element {
  const { page, rest } = route.value;
  const id = page === 'boards' ? (rest[0] ?? '') : '';
  const [board, setBoard] = useState<{ readonly id: string; readonly Shown: Shown | null } | null>(null);
  useEffect(() => {
    if (id === '') return;
    let left = false;
    const find = async (): Promise<Shown | null> => {
      try {
        await call('GET', `/dashboards/${encodeURIComponent(id)}?fields=id`);
        return (await import('./boards/page')).BoardView;
      } catch {
        return null;
      }
    };
    void find().then((Shown) => {
      if (!left) setBoard({ id, Shown });
    });
    return () => {
      left = true;
    };
  }, [id]);
  if (id === '' || wantsLogin.value) return otherwise;
  if (board?.id !== id) return <p class="boot">Loading…</p>;
  const { Shown } = board;
  if (!Shown) return otherwise;
  return (
    <>
      <header class="public-bar">
        <span class="brand">
          <img src="explorer/icon.svg" alt="" width="22" height="22" />
          <span>Lateral</span>
        </span>
        <span class="grow" />
        <Button label="Log in" icon="user" onClick={() => (wantsLogin.value = true)} />
      </header>
      <main id="content" tabIndex={0}>
        <Shown key={id} id={id} mayChange={false} isPublic />
      </main>
    </>
  );
}
