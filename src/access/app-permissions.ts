/**
 * What every user of an application may do in addition to their policies: see and change their own account, and know the names
 * of their roles and the settings that a screen needs. It comes with `app_access`.
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
];

function allow(
  collection: string,
  action: string,
  permissions: Record<string, unknown> | null,
  fields: readonly string[],
): PermissionRow {
  return { collection, action, permissions, validation: null, presets: null, fields: fields.join() };
}
