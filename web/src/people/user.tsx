/** One user: account, policies, password, second factor and token. Secrets are never read, only replaced. */
import type { ComponentChildren, JSX } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { call, messageOf } from '../api';
import { Checks, Confirm, SecretDialog, Select, TextInput } from '../forms';
import { href, me, toast, viewWith } from '../state';
import { Button, Dialog, ErrorBox } from '../ui';
import {
  type Directory,
  loadUser,
  makePasswordLink,
  makeToken,
  type NewPerson,
  nameOf,
  type PasswordLink,
  type Person,
  passwordPage,
  policyChanges,
  roleOptions,
  STATUSES,
} from './people';

interface UserProps {
  readonly id: string;
  readonly directory: Directory;
  readonly onClose: () => void;
  readonly onChanged: () => Promise<void>;
}

export function UserDialog({ id, directory, onClose, onChanged }: UserProps): JSX.Element {
  const [person, setPerson] = useState<Person | null>(null);
  const [error, setError] = useState<string | null>(null);
  const load = (): Promise<void> =>
    loadUser(id).then(
      (found) => {
        setPerson(found);
        setError(null);
      },
      (failure: unknown) => setError(messageOf(failure)),
    );
  useEffect(() => void load(), [id]);
  if (!person)
    return (
      <Dialog title="User" kind="side" onClose={onClose}>
        {error ? <ErrorBox text={error} onRetry={() => void load()} /> : <p class="quiet">Loading…</p>}
      </Dialog>
    );
  const changed = async (): Promise<void> => {
    await Promise.all([load(), onChanged()]);
  };
  return <UserForm person={person} directory={directory} onClose={onClose} onChanged={changed} />;
}

interface FormProps extends Omit<UserProps, 'id'> {
  readonly person: Person;
}

interface Draft {
  readonly email: string;
  readonly first_name: string;
  readonly last_name: string;
  readonly status: string;
  readonly role: string;
  readonly policies: readonly string[];
}

function draftOf(person: Person): Draft {
  return {
    email: person.email ?? '',
    first_name: person.first_name ?? '',
    last_name: person.last_name ?? '',
    status: person.status,
    role: person.role ?? '',
    policies: person.policies.map(({ policy }) => policy),
  };
}

/** The changed fields. An empty text is null. */
function changesOf(draft: Draft, person: Person): Record<string, unknown> {
  const before = draftOf(person);
  const names = ['email', 'first_name', 'last_name', 'status', 'role'] as const;
  const changed = names.filter((name) => draft[name] !== before[name]);
  const policies = policyChanges(person.policies, draft.policies);
  return {
    ...Object.fromEntries(changed.map((name) => [name, draft[name] === '' ? null : draft[name]])),
    ...(policies ? { policies } : {}),
  };
}

function UserForm({ person, directory, onClose, onChanged }: FormProps): JSX.Element {
  const [draft, setDraft] = useState(draftOf(person));
  const [error, setError] = useState<string | null>(null);
  const [busy, setBusy] = useState(false);
  const [deleting, setDeleting] = useState(false);
  const set = (part: Partial<Draft>): void => setDraft({ ...draft, ...part });
  const changes = changesOf(draft, person);
  const save = async (): Promise<void> => {
    setBusy(true);
    setError(null);
    try {
      await call('PATCH', `/users/${person.id}?fields=id`, { body: changes });
      toast(`${nameOf(person)} was saved`);
      await onChanged();
      onClose();
    } catch (failure) {
      setError(messageOf(failure));
      setBusy(false);
    }
  };
  return (
    <Dialog
      title={nameOf(person)}
      kind="side"
      isForm
      onClose={onClose}
      footer={
        <>
          <Button label="Delete user" kind="danger" onClick={() => setDeleting(true)} />
          <span class="grow" />
          <Button label="Cancel" onClick={onClose} />
          <Button
            label="Save"
            kind="primary"
            disabled={busy || Object.keys(changes).length === 0}
            onClick={() => void save()}
          />
        </>
      }
    >
      <form
        class="form"
        onSubmit={(event) => {
          event.preventDefault();
          if (!busy && Object.keys(changes).length > 0) void save();
        }}
      >
        {error && <ErrorBox text={error} />}
        <AccountFields draft={draft} onChange={set} directory={directory} />
        <button type="submit" hidden />
      </form>
      <Credentials person={person} onChanged={onChanged} />
      <Links person={person} />
      {deleting && (
        <Confirm
          title={`Delete ${nameOf(person)}?`}
          submit="Delete"
          onClose={() => setDeleting(false)}
          onConfirm={async () => {
            await call('DELETE', `/users/${person.id}`);
            await onChanged();
            onClose();
            return `${nameOf(person)} was deleted`;
          }}
        >
          <p>
            The account, its sessions and its token are deleted. Items that the user created stay. To keep the account
            without access, set its status to suspended instead.
          </p>
        </Confirm>
      )}
    </Dialog>
  );
}

interface FieldsProps {
  readonly draft: Draft;
  readonly onChange: (part: Partial<Draft>) => void;
  readonly directory: Directory;
}

function AccountFields({ draft, onChange, directory }: FieldsProps): JSX.Element {
  return (
    <>
      <TextInput
        id="user-email"
        label="Email"
        type="email"
        value={draft.email}
        onInput={(email) => onChange({ email })}
      />
      <div class="people-two">
        <TextInput
          id="user-first"
          label="First name"
          value={draft.first_name}
          onInput={(first_name) => onChange({ first_name })}
        />
        <TextInput
          id="user-last"
          label="Last name"
          value={draft.last_name}
          onInput={(last_name) => onChange({ last_name })}
        />
      </div>
      <div class="people-two">
        <Select
          id="user-status"
          label="Status"
          value={draft.status}
          options={STATUSES.map((value) => ({ value, label: value }))}
          onChange={(status) => onChange({ status })}
        />
        <Select
          id="user-role"
          label="Role"
          value={draft.role}
          options={roleOptions(directory)}
          onChange={(role) => onChange({ role })}
        />
      </div>
      <Checks
        label="Policies of this user, in addition to those of the role"
        options={directory.policies.map(({ id, name }) => ({ value: id, label: name }))}
        chosen={draft.policies}
        onChange={(policies) => onChange({ policies })}
        empty="There are no policies yet."
      />
    </>
  );
}

function Fact(props: { readonly name: string; readonly state: string; readonly children?: ComponentChildren }) {
  return (
    <div class="fact">
      <div>
        <strong>{props.name}</strong>
        <small>{props.state}</small>
      </div>
      <div class="row">{props.children}</div>
    </div>
  );
}

type Asked = 'token' | 'revoke' | 'factor' | null;

/** The values of credentials never reach the page. */
function Credentials(props: { readonly person: Person; readonly onChanged: () => Promise<void> }): JSX.Element {
  const { person, onChanged } = props;
  const [asked, setAsked] = useState<Asked>(null);
  const [token, setToken] = useState<string | null>(null);
  const [link, setLink] = useState<PasswordLink | null>(null);
  const isExternal = person.provider !== 'default';
  const mayChoose = !isExternal && (person.status === 'active' || person.status === 'invited');
  const act = (work: () => Promise<void>): void =>
    void work().catch((failure: unknown) => toast(messageOf(failure), 'bad'));
  const generate = async (): Promise<void> => {
    const made = makeToken();
    await call('PATCH', `/users/${person.id}?fields=id`, { body: { token: made } });
    setToken(made);
    await onChanged();
  };
  const close = (): void => setAsked(null);
  return (
    <section class="credentials" aria-label="Credentials">
      <h3>Credentials</h3>
      <Fact name="Password" state={passwordState(person)}>
        {mayChoose && (
          <Button
            label={person.status === 'invited' ? 'Invitation link' : 'Reset password'}
            onClick={() => act(async () => setLink(await makePasswordLink(person.id)))}
          />
        )}
      </Fact>
      <Fact name="Second factor" state={person.tfa_secret === null ? 'off' : 'on'}>
        {person.tfa_secret !== null && <Button label="Turn off" onClick={() => setAsked('factor')} />}
      </Fact>
      <Fact name="Static token" state={person.token === null ? 'none' : 'set'}>
        {person.token !== null && <Button label="Revoke token" onClick={() => setAsked('revoke')} />}
        <Button
          label={person.token === null ? 'Generate token' : 'Replace token'}
          onClick={() => (person.token === null ? act(generate) : setAsked('token'))}
        />
      </Fact>
      {asked && (
        <CredentialQuestion asked={asked} person={person} onClose={close} onChanged={onChanged} onToken={generate} />
      )}
      {token && (
        <SecretDialog title="The new token" label="Token" value={token} onClose={() => setToken(null)}>
          <p>Copy the token now. The service stores only its digest, so nobody can read it later.</p>
        </SecretDialog>
      )}
      {link && <LinkDialog person={person} link={link} onClose={() => setLink(null)} />}
    </section>
  );
}

function passwordState({ provider, status }: Person): string {
  if (provider !== 'default') return `signs in with ${provider}`;
  return status === 'invited' ? 'not chosen yet' : 'not shown';
}

interface QuestionProps {
  readonly asked: Exclude<Asked, null>;
  readonly person: Person;
  readonly onClose: () => void;
  readonly onChanged: () => Promise<void>;
  readonly onToken: () => Promise<void>;
}

function CredentialQuestion({ asked, person, onClose, onChanged, onToken }: QuestionProps): JSX.Element {
  if (asked === 'token')
    return (
      <Confirm
        title="Replace the token?"
        submit="Replace"
        onClose={onClose}
        onConfirm={async () => {
          await onToken();
          return 'The token was replaced';
        }}
      >
        <p>Programs that use the current token lose access.</p>
      </Confirm>
    );
  if (asked === 'revoke')
    return (
      <Confirm
        title="Revoke the token?"
        submit="Revoke"
        onClose={onClose}
        onConfirm={async () => {
          await call('PATCH', `/users/${person.id}?fields=id`, { body: { token: null } });
          await onChanged();
          return 'The token was revoked';
        }}
      >
        <p>Programs that use it lose access.</p>
      </Confirm>
    );
  return (
    <Confirm
      title="Turn off the second factor?"
      submit="Turn off"
      onClose={onClose}
      onConfirm={async () => {
        await call('POST', `/users/${person.id}/tfa/disable`);
        await onChanged();
        return 'The second factor is off';
      }}
    >
      <p>The user can then log in with the password alone, and set up a new device.</p>
    </Confirm>
  );
}

function Links({ person }: { readonly person: Person }): JSX.Element {
  const as = `user:${person.id}`;
  return (
    <div class="row people-links">
      <a class="button" href={href('people', ['rights'], { as })}>
        What can this user do?
      </a>
      {person.status === 'active' && person.id !== me.value?.id && (
        <Button
          label="View as this user"
          onClick={() => {
            location.hash = href('data');
            void viewWith({ value: as, label: person.email ?? person.id });
          }}
        />
      )}
    </div>
  );
}

interface LinkProps {
  readonly person: NewPerson;
  readonly link: PasswordLink;
  readonly onClose: () => void;
}

/** The link with which the user chooses a password. */
export function LinkDialog({ person, link, onClose }: LinkProps): JSX.Element {
  const { purpose } = link;
  const isSendable = person.email !== null && (purpose === 'reset' || person.role !== null);
  const send = async (): Promise<void> => {
    const page = passwordPage(purpose);
    try {
      if (purpose === 'invite')
        await call('POST', '/users/invite', { body: { email: person.email, role: person.role, invite_url: page } });
      else await call('POST', '/auth/password/request', { body: { email: person.email, reset_url: page } });
      toast(`The service sent a link to ${person.email}, or logged it if EMAIL_TRANSPORT is not set`);
    } catch (failure) {
      toast(messageOf(failure), 'bad');
    }
  };
  return (
    <SecretDialog
      title={purpose === 'invite' ? 'Invitation' : 'Reset the password'}
      label="Link"
      value={link.url}
      onClose={onClose}
      footer={isSendable && <Button label="Send by email" onClick={() => void send()} />}
    >
      <p>
        Give this link to <strong>{person.email}</strong>, who chooses a password with it. It works once and expires in{' '}
        {link.days === 1 ? '24 hours' : `${link.days} days`}.
        {purpose === 'reset' && ' The current password stays valid until then.'}
      </p>
    </SecretDialog>
  );
}
