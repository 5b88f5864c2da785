/** The login: email and password for a session in a cookie, or a token that stays in the memory of this page. */
import type { JSX, RefObject } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { ApiError, call, messageOf, takeToken } from './api';
import { findOut, me } from './state';
import { ErrorBox } from './ui';

interface SignIn {
  readonly data: readonly { readonly name: string; readonly label: string | null }[];
  readonly disableDefault: boolean;
}

/** The error code that a failed sign-in adds to the URL of this page. */
const reason = new URLSearchParams(location.search).get('reason');

type Way = 'password' | 'token';

interface Typed {
  readonly email: string;
  readonly password: string;
  /** The code of the second factor, or null until the service asks for it. */
  readonly otp: string | null;
  readonly token: string;
}

export function Login(): JSX.Element {
  const [way, setWay] = useState<Way>('password');
  const signIn = useSignIn(() => setWay('token'));
  const [typed, setTyped] = useState<Typed>({ email: '', password: '', otp: null, token: '' });
  const [error, setError] = useState<string | null>(reason && `Signing in failed: ${reason}`);
  const [busy, setBusy] = useState(false);

  const first = useRef<HTMLInputElement>(null);
  useEffect(() => first.current?.focus(), [way]);
  const type = (change: Partial<Typed>): void => setTyped((now) => ({ ...now, ...change }));
  const shared = { first, typed, onType: type };
  const logIn = async (event: Event): Promise<void> => {
    event.preventDefault();
    setBusy(true);
    setError(null);
    try {
      await authenticate(way, typed);
      await findOut();
      if (me.value === null) setError('You are logged in, but your account cannot be read.');
    } catch (failure) {
      if (failure instanceof ApiError && failure.code === 'INVALID_OTP' && typed.otp === null) type({ otp: '' });
      else if (way === 'token' && failure instanceof ApiError && failure.status >= 401 && failure.status < 404)
        setError('This token is not valid.');
      else setError(messageOf(failure));
      if (way === 'token') takeToken(null);
    }
    setBusy(false);
  };

  return (
    <main class="login">
      <form onSubmit={logIn}>
        <h1>
          <img src="explorer/icon.svg" alt="" width="28" height="28" /> Lateral
        </h1>
        <p class="quiet">Log in to see your data, its API and the SQL behind it.</p>
        <div class="tabs" role="tablist">
          {(signIn.disableDefault ? (['token'] as const) : (['password', 'token'] as const)).map((each) => (
            <button type="button" role="tab" aria-selected={way === each} key={each} onClick={() => setWay(each)}>
              {each === 'password' ? 'Password' : 'Token'}
            </button>
          ))}
        </div>
        {way === 'password' ? <PasswordInputs {...shared} /> : <TokenInput {...shared} />}
        {error && <ErrorBox text={error} />}
        <button type="submit" class="button primary wide" disabled={busy}>
          {busy ? 'Logging in…' : 'Log in'}
        </button>
        {signIn.data.map(({ name, label }) => (
          <a class="button wide" key={name} href={signInUrl(name)}>
            Sign in with {label ?? name}
          </a>
        ))}
        <p class="quiet small">
          New here? The first start of the service printed the email and the password of the first administrator.
        </p>
      </form>
    </main>
  );
}

/** The ways to sign in that the service offers. */
function useSignIn(onTokenOnly: () => void): SignIn {
  const [signIn, setSignIn] = useState<SignIn>({ data: [], disableDefault: false });
  useEffect(() => {
    call('GET', '/auth').then(
      ({ text }) => {
        const found = JSON.parse(text) as SignIn;
        setSignIn(found);
        if (found.disableDefault) onTokenOnly();
      },
      () => {},
    );
  }, []);
  return signIn;
}

async function authenticate(way: Way, { email, password, otp, token }: Typed): Promise<void> {
  if (way === 'token') {
    takeToken(token.trim());
    await call('GET', '/users/me?fields=id');
  } else {
    takeToken(null);
    await call('POST', '/auth/login', { body: { email, password, mode: 'session', ...(otp ? { otp } : {}) } });
  }
}

interface InputsProps {
  readonly first: RefObject<HTMLInputElement | null>;
  readonly typed: Typed;
  readonly onType: (change: Partial<Typed>) => void;
}

function PasswordInputs({ first, typed, onType }: InputsProps): JSX.Element {
  return (
    <>
      <label>
        Email
        <input
          type="email"
          ref={first}
          autocomplete="username"
          required
          value={typed.email}
          onInput={(event) => onType({ email: event.currentTarget.value })}
        />
      </label>
      <label>
        Password
        <input
          type="password"
          autocomplete="current-password"
          required
          value={typed.password}
          onInput={(event) => onType({ password: event.currentTarget.value })}
        />
      </label>
      {typed.otp !== null && (
        <label>
          Code of your second factor
          <input
            inputMode="numeric"
            autocomplete="one-time-code"
            value={typed.otp}
            onInput={(event) => onType({ otp: event.currentTarget.value })}
          />
        </label>
      )}
    </>
  );
}

function TokenInput({ first, typed, onType }: InputsProps): JSX.Element {
  return (
    <label>
      Static or access token
      <input
        type="password"
        ref={first}
        autocomplete="off"
        required
        value={typed.token}
        onInput={(event) => onType({ token: event.currentTarget.value })}
      />
      <small class="quiet">Kept in the memory of this page until you reload it.</small>
    </label>
  );
}

/** The provider redirects back to this page. */
function signInUrl(provider: string): string {
  const page = `${location.origin}${location.pathname}`;
  return `auth/login/${provider}?redirect=${encodeURIComponent(page)}`;
}
