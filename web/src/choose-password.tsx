/** The page that the link of an invitation, or of a password reset, leads to: the user chooses a password. */
import type { JSX } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { call, messageOf } from './api';
import { findOut, route, toast } from './state';
import { ErrorBox } from './ui';

export function ChoosePassword(): JSX.Element {
  const { rest, parameters } = route.value;
  const isInvitation = rest[0] !== 'reset';
  // Mails carry the token in the query of the page. Links that an administrator passes on carry it after the #.
  const token = parameters.get('token') ?? new URLSearchParams(location.search).get('token') ?? '';
  const [password, setPassword] = useState('');
  const [repeated, setRepeated] = useState('');
  const [error, setError] = useState<string | null>(token === '' ? 'The link is incomplete.' : null);
  const [busy, setBusy] = useState(false);
  const first = useRef<HTMLInputElement>(null);
  useEffect(() => first.current?.focus(), []);
  const save = async (event: Event): Promise<void> => {
    event.preventDefault();
    if (password !== repeated) return setError('The two passwords differ.');
    setBusy(true);
    setError(null);
    try {
      await call('POST', isInvitation ? '/users/invite/accept' : '/auth/password/reset', {
        body: { token, password },
        own: true,
      });
      // The token is removed from the history of the browser.
      history.replaceState(null, '', `${location.pathname}#/data`);
      dispatchEvent(new HashChangeEvent('hashchange'));
      await findOut();
      toast('The password is set. Log in with it.');
    } catch (failure) {
      setError(messageOf(failure));
      setBusy(false);
    }
  };
  return (
    <main class="login">
      <form onSubmit={save}>
        <h1>
          <img src="explorer/icon.svg" alt="" width="28" height="28" /> Lateral
        </h1>
        <p class="quiet">{isInvitation ? 'Welcome. Choose a password for your account.' : 'Choose a new password.'}</p>
        <label>
          New password
          <input
            type="password"
            ref={first}
            autocomplete="new-password"
            required
            value={password}
            onInput={(event) => setPassword(event.currentTarget.value)}
          />
        </label>
        <label>
          Repeat it
          <input
            type="password"
            autocomplete="new-password"
            required
            value={repeated}
            onInput={(event) => setRepeated(event.currentTarget.value)}
          />
        </label>
        {error && <ErrorBox text={error} />}
        <button type="submit" class="button primary wide" disabled={busy || token === ''}>
          {busy ? 'Saving…' : 'Save the password'}
        </button>
      </form>
    </main>
  );
}
