/** The login: email and password for a session in a cookie, or a token that stays in the memory of this page. */
import type { JSX } from 'preact';
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

export function Login(): JSX.Element {
  const [signIn, setSignIn] = useState<SignIn>({ data: [], disableDefault: false });
  useEffect(() => {
    call('GET', '/auth').then(
      ({ text }) => {
        const found = JSON.parse(text) as SignIn;
        setSignIn(found);
        if (found.disableDefault) setWay('token');
      },
      () => {},
    );
  }, []);
  const [way, setWay] = useState<'password' | 'token'>('password');
  const [email, setEmail] = useState('');
  const [password, setPassword] = useState('');
  const [otp, setOtp] = useState<string | null>(null);
  const [token, setToken] = useState('');
  const [error, setError] = useState<string | null>(reason && `Signing in failed: ${reason}`);
  const [busy, setBusy] = useState(false);

  const first = useRef<HTMLInputElement>(null);
  useEffect(() => first.current?.focus(), [way]);
  const logIn = async (event: Event): Promise<void> => {
    event.preventDefault();
    setBusy(true);
    setError(null);
    try {
      if (way === 'token') {
        takeToken(token.trim());
        await call('GET', '/users/me?fields=id');
      } else {
        takeToken(null);
        await call('POST', '/auth/login', { body: { email, password, mode: 'session', ...(otp ? { otp } : {}) } });
      }
      await findOut();
      if (me.value === null) setError('You are logged in, but your account cannot be read.');
    } catch (failure) {
      if (failure instanceof ApiError && failure.code === 'INVALID_OTP' && otp === null) setOtp('');
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
        {way === 'password' ? (
          <>
            <label>
              Email
              <input
                type="email"
                ref={first}
                autocomplete="username"
                required
                value={email}
                onInput={(event) => setEmail(event.currentTarget.value)}
              />
            </label>
            <label>
              Password
              <input
                type="password"
                autocomplete="current-password"
                required
                value={password}
                onInput={(event) => setPassword(event.currentTarget.value)}
              />
            </label>
            {otp !== null && (
              <label>
                Code of your second factor
                <input
                  inputMode="numeric"
                  autocomplete="one-time-code"
                  value={otp}
                  onInput={(event) => setOtp(event.currentTarget.value)}
                />
              </label>
            )}
          </>
        ) : (
          <label>
            Static or access token
            <input
              type="password"
              ref={first}
              autocomplete="off"
              required
              value={token}
              onInput={(event) => setToken(event.currentTarget.value)}
            />
            <small class="quiet">Kept in the memory of this page until you reload it.</small>
          </label>
        )}
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

/** The provider redirects back to this page. */
function signInUrl(provider: string): string {
  const page = `${location.origin}${location.pathname}`;
  return `auth/login/${provider}?redirect=${encodeURIComponent(page)}`;
}
