/** The account of the user: the second factor. */
import type { JSX } from 'preact';
import { useEffect, useMemo, useState } from 'preact/hooks';
import { encode } from 'uqr';
import { call, messageOf } from './api';
import { SaveDialog, TextInput } from './forms';
import { me } from './state';
import { Button, copyText, Dialog, ErrorBox } from './ui';

type Step = 'password' | 'code' | 'off' | null;

interface Factor {
  readonly secret: string;
  readonly otpauth_url: string;
}

export function AccountDialog({ onClose }: { readonly onClose: () => void }): JSX.Element {
  /** Null until it is known. */
  const [isOn, setIsOn] = useState<boolean | null>(null);
  const [error, setError] = useState<string | null>(null);
  const [step, setStep] = useState<Step>(null);
  const [factor, setFactor] = useState<Factor | null>(null);
  const load = async (): Promise<void> => {
    try {
      const { data } = await call<{ tfa_secret?: string | null }>('GET', '/users/me?fields=tfa_secret', { own: true });
      setIsOn((data.tfa_secret ?? null) !== null);
    } catch (failure) {
      setError(messageOf(failure));
    }
  };
  useEffect(() => void load(), []);
  const back = (): void => {
    setStep(null);
    setFactor(null);
    void load();
  };
  if (step === 'password')
    return (
      <PasswordForm
        onClose={back}
        onMade={(made) => {
          setFactor(made);
          setStep('code');
        }}
      />
    );
  if (step === 'code' && factor) return <EnableForm factor={factor} onClose={back} />;
  if (step === 'off') return <DisableForm onClose={back} />;
  return (
    <Dialog title="Your account" onClose={onClose} footer={<Button label="Close" onClick={onClose} />}>
      <div class="form account">
        {error && <ErrorBox text={error} onRetry={() => void load()} />}
        <div class="account-fact">
          <div>
            <strong>Email</strong>
            <small>{me.value?.email}</small>
          </div>
        </div>
        <div class="account-fact">
          <div>
            <strong>Second factor</strong>
            <small>
              {isOn === null && 'Loading…'}
              {isOn === false && 'Off. The password alone is enough to log in.'}
              {isOn === true && 'On. Logging in also needs a code of your authenticator app.'}
            </small>
          </div>
          {isOn === false && <Button label="Turn on" kind="primary" onClick={() => setStep('password')} />}
          {isOn === true && <Button label="Turn off" kind="danger" onClick={() => setStep('off')} />}
        </div>
      </div>
    </Dialog>
  );
}

interface StepProps {
  readonly onClose: () => void;
}

function PasswordForm({ onClose, onMade }: StepProps & { readonly onMade: (factor: Factor) => void }): JSX.Element {
  const [password, setPassword] = useState('');
  const [error, setError] = useState<string | null>(null);
  const [busy, setBusy] = useState(false);
  const generate = async (): Promise<void> => {
    setBusy(true);
    setError(null);
    try {
      const { data } = await call<Factor>('POST', '/users/me/tfa/generate', { body: { password } });
      onMade(data);
    } catch (failure) {
      setError(messageOf(failure));
      setBusy(false);
    }
  };
  return (
    <Dialog
      title="Turn on the second factor"
      isForm
      onClose={onClose}
      footer={
        <>
          <Button label="Cancel" onClick={onClose} />
          <Button label="Continue" kind="primary" disabled={busy || password === ''} onClick={() => void generate()} />
        </>
      }
    >
      <form
        class="form"
        onSubmit={(event) => {
          event.preventDefault();
          if (!busy && password !== '') void generate();
        }}
      >
        {error && <ErrorBox text={error} />}
        <p>You need an authenticator app on your phone. First confirm that it is you.</p>
        <div class="field">
          <label for="own-password">Your password</label>
          <input
            id="own-password"
            type="password"
            autocomplete="current-password"
            value={password}
            onInput={(event) => setPassword(event.currentTarget.value)}
          />
        </div>
        <button type="submit" hidden />
      </form>
    </Dialog>
  );
}

function EnableForm({ factor, onClose }: StepProps & { readonly factor: Factor }): JSX.Element {
  const [code, setCode] = useState('');
  return (
    <SaveDialog
      title="Turn on the second factor"
      submit="Turn on"
      disabled={code.trim() === ''}
      onClose={onClose}
      onSave={async () => {
        await call('POST', '/users/me/tfa/enable', { body: { secret: factor.secret, otp: code.trim() } });
        return 'The second factor is on';
      }}
    >
      <ol class="account-steps">
        <li>
          Scan this code with your app, <a href={factor.otpauth_url}>open it in an app on this device</a>, or enter the
          key by hand.
          <QrCode text={factor.otpauth_url} />
          <div class="account-secret">
            <code>{factor.secret.replace(/(.{4})(?=.)/g, '$1 ')}</code>
            <Button label="Copy" icon="copy" onClick={() => void copyText(factor.secret, 'The key was copied')} />
          </div>
        </li>
        <li>Enter the code that the app shows.</li>
      </ol>
      <CodeInput value={code} onInput={setCode} />
    </SaveDialog>
  );
}

/** Black on white in both themes: many apps cannot read a code with inverted colours. */
function QrCode({ text }: { readonly text: string }): JSX.Element {
  const { size, path } = useMemo(() => {
    const { size, data } = encode(text, { ecc: 'M', border: 3 });
    const dots = data.flatMap((row, y) => row.flatMap((isDark, x) => (isDark ? `M${x} ${y}h1v1h-1z` : [])));
    return { size, path: dots.join('') };
  }, [text]);
  return (
    <svg class="account-qr" viewBox={`0 0 ${size} ${size}`} role="img" aria-label="Key to scan">
      <rect width={size} height={size} fill="#fff" />
      <path d={path} fill="#000" shape-rendering="crispEdges" />
    </svg>
  );
}

function DisableForm({ onClose }: StepProps): JSX.Element {
  const [code, setCode] = useState('');
  return (
    <SaveDialog
      title="Turn off the second factor"
      submit="Turn off"
      danger
      disabled={code.trim() === ''}
      onClose={onClose}
      onSave={async () => {
        await call('POST', '/users/me/tfa/disable', { body: { otp: code.trim() } });
        return 'The second factor is off';
      }}
    >
      <p>After this, your password alone is enough to log in.</p>
      <CodeInput value={code} onInput={setCode} />
    </SaveDialog>
  );
}

function CodeInput(props: { readonly value: string; readonly onInput: (text: string) => void }): JSX.Element {
  return <TextInput id="own-code" label="Code" type="numeric" note="Six digits" {...props} />;
}
