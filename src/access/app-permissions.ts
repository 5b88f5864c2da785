/**
 * The permissions of users with `app_access` in addition to their policies: see and change their own account, know the names of their roles
 * and the settings and texts that a screen needs, keep views of their own, comment on what they may read, and read what was sent to
 * them.
 */
import type { PermissionRow } from './permissions.js';

const OWN_FIELDS = [
  'first_name',
  'last_name',
  'email',
  'password',
  'location',
  'title',
  'description',
  'tags',
  'avatar',
  'language',
  'appearance',
  'theme_light',
  'theme_dark',
  'theme_light_overrides',
  'theme_dark_overrides',
  'email_notifications',
  'last_page',
];
const SETTINGS = [
  'id',
  'project_name',
  'project_descriptor',
  'project_url',
  'project_color',
  'public_note',
  'default_language',
  'default_appearance',
  'auth_password_policy',
];

const IS_OWN_PRESET = { user: { _eq: '$CURRENT_USER' } };
const IS_OWN_COMMENT = { user_created: { _eq: '$CURRENT_USER' } };
const IS_RECIPIENT = { recipient: { _eq: '$CURRENT_USER' } };
/** The user's own presets, those of the user's role, and those for everybody. */
const IS_SHOWN_PRESET = {
  _or: [
    IS_OWN_PRESET,
    { user: { _null: true }, role: { _eq: '$CURRENT_ROLE' } },
    { user: { _null: true }, role: { _null: true } },
  ],
};

export const APP_PERMISSIONS: readonly PermissionRow[] = [
  allow('service_users', 'read', { id: { _eq: '$CURRENT_USER' } }, [
    ...OWN_FIELDS,
    'id',
    'status',
    'role',
    'tfa_secret',
    'provider',
    'last_access',
  ]),
  allow('service_users', 'update', { id: { _eq: '$CURRENT_USER' } }, OWN_FIELDS),
  allow('service_roles', 'read', { id: { _in: '$CURRENT_ROLES' } }, ['id', 'name', 'icon', 'description', 'parent']),
  allow('service_settings', 'read', null, SETTINGS),
  allow('service_activity', 'read', { user: { _eq: '$CURRENT_USER' } }, ['*']),
  allow('service_translations', 'read', null, ['*']),
  allow('service_presets', 'read', IS_SHOWN_PRESET, ['*']),
  // Without a user it would be the view of everybody.
  { ...allow('service_presets', 'create', null, ['*']), validation: IS_OWN_PRESET, presets: { user: '$CURRENT_USER' } },
  { ...allow('service_presets', 'update', IS_OWN_PRESET, ['*']), validation: IS_OWN_PRESET },
  allow('service_presets', 'delete', IS_OWN_PRESET, ['*']),
  allow('service_shares', 'read', { user_created: { _eq: '$CURRENT_USER' } }, ['*']),
  allow('service_comments', 'read', IS_OWN_COMMENT, ['*']),
  // On items that they may read (engine/hooks/system-hooks.ts).
  allow('service_comments', 'create', null, ['id', 'collection', 'item', 'comment']),
  allow('service_comments', 'update', IS_OWN_COMMENT, ['comment']),
  allow('service_comments', 'delete', IS_OWN_COMMENT, ['*']),
  allow('service_notifications', 'read', IS_RECIPIENT, ['*']),
  allow('service_notifications', 'update', IS_RECIPIENT, ['status']),
];

function allow(
  collection: string,
  action: string,
  permissions: Record<string, unknown> | null,
  fields: readonly string[],
): PermissionRow {
  return { collection, action, permissions, validation: null, presets: null, fields: fields.join() };
}
