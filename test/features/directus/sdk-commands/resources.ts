/** What the SDK makes, reads, changes and deletes by nine commands of one pattern: samples of it, and what the service fills in. */

export type Row = Readonly<Record<string, unknown>>;

export interface Resource {
  /** The commands are named by them: createFolder, updateFoldersBatch. */
  readonly one: string;
  readonly many: string;
  readonly samples: readonly [Row, Row, Row];
  readonly changed: Row;
  readonly filled: Row;
}

/** Keys of rows that the samples refer to. */
export interface Given {
  readonly administrator: string;
  readonly reader: string;
  readonly role: string;
  readonly policy: string;
  readonly dashboard: string;
}

const IS_TIME = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/;
const IS_UUID = /^[0-9a-f-]{36}$/;

export function resourcesOf({ administrator, reader, role, policy, dashboard }: Given): readonly Resource[] {
  const made = { date_created: IS_TIME, user_created: administrator };
  const panel = { dashboard, type: 'metric', position_x: 1, position_y: 1, width: 6, height: 6 };
  const grant = { policy, collection: 'articles', action: 'read', fields: ['*'] };
  const draft = { collection: 'articles', item: '2', key: 'draft' };
  return [
    {
      one: 'Preset',
      many: 'Presets',
      samples: [
        { collection: 'articles', bookmark: 'One', layout_query: { tabular: { sort: ['title'] } } },
        { collection: 'articles', user: reader },
        { collection: 'tags', filter: { name: { _eq: 'x' } } },
      ],
      changed: { search: 'found' },
      filled: { layout: 'tabular', icon: 'bookmark', user: null, role: null },
    },
    {
      one: 'Comment',
      many: 'Comments',
      samples: [
        { collection: 'articles', item: 1, comment: 'First' },
        { collection: 'articles', item: '1', comment: 'Second' },
        { collection: 'tags', item: '404', comment: 'On nothing: administrators may' },
      ],
      changed: { comment: 'Changed' },
      filled: { ...made, item: '1', date_updated: null, user_updated: null },
    },
    {
      one: 'Notification',
      many: 'Notifications',
      samples: [
        { recipient: reader, subject: 'One', message: '**Read** this', collection: 'articles', item: '1' },
        { recipient: reader, subject: 'Two', sender: administrator },
        { recipient: administrator, subject: 'Three' },
      ],
      changed: { status: 'archived' },
      filled: { status: 'inbox', timestamp: IS_TIME, sender: null },
    },
    {
      one: 'Translation',
      many: 'Translations',
      samples: [
        { key: 'save', language: 'de-DE', value: 'Sichern' },
        { key: 'save', language: 'en-US', value: 'Save' },
        { key: 'stop', language: 'de-DE', value: 'Halt' },
      ],
      changed: { value: 'Changed' },
      filled: { id: IS_UUID },
    },
    {
      one: 'Folder',
      many: 'Folders',
      samples: [{ name: 'One' }, { name: 'Two', parent: { name: 'Above' } }, { name: 'Three' }],
      changed: { name: 'Changed' },
      filled: { parent: null, type: 'files' },
    },
    {
      one: 'Dashboard',
      many: 'Dashboards',
      samples: [{ name: 'One' }, { name: 'Two', panels: [{ ...panel, dashboard: undefined }] }, { name: 'Three' }],
      changed: { note: 'Changed' },
      filled: { ...made, icon: 'dashboard', panels: [] },
    },
    {
      one: 'Panel',
      many: 'Panels',
      samples: [{ ...panel, options: { field: 'views' } }, { ...panel, name: 'Two' }, panel],
      changed: { position_x: 20 },
      filled: { ...made, show_header: false },
    },
    {
      one: 'Role',
      many: 'Roles',
      samples: [{ name: 'One' }, { name: 'Two', parent: role }, { name: 'Three' }],
      changed: { description: 'Changed' },
      filled: { id: IS_UUID, icon: 'supervised_user_circle', parent: null, users: [] },
    },
    {
      one: 'Policy',
      many: 'Policies',
      samples: [{ name: 'One' }, { name: 'Two', ip_access: ['10.0.0.1'] }, { name: 'Three', enforce_tfa: true }],
      changed: { description: 'Changed' },
      filled: { id: IS_UUID, icon: 'badge', admin_access: false, app_access: false, enforce_tfa: false },
    },
    {
      one: 'Permission',
      many: 'Permissions',
      samples: [
        { ...grant, permissions: { id: { _lt: 3 } } },
        { ...grant, action: 'update', validation: { title: { _nnull: true } } },
        { ...grant, action: 'create', presets: { views: 0 } },
      ],
      changed: { fields: ['title'] },
      filled: { id: Number, validation: null, presets: null },
    },
    {
      one: 'User',
      many: 'Users',
      samples: [
        { email: 'one@example.com', role },
        { email: 'two@example.com', status: 'draft' },
        { email: 'three@example.com', first_name: 'Three' },
      ],
      changed: { title: 'Changed' },
      filled: { id: IS_UUID, status: 'active', provider: 'default' },
    },
    {
      one: 'Share',
      many: 'Shares',
      samples: [
        { collection: 'articles', item: '1', name: 'One', role },
        { collection: 'articles', item: '2', max_uses: 3 },
        { collection: 'tags', item: '1', date_end: '2999-01-01T00:00:00.000Z' },
      ],
      changed: { name: 'Changed' },
      filled: { ...made, times_used: 0, password: null },
    },
    {
      one: 'ContentVersion',
      many: 'ContentVersions',
      samples: [draft, { ...draft, item: '1', name: 'Of another' }, { ...draft, key: 'second' }],
      changed: { name: 'Changed' },
      filled: { ...made, name: null, delta: null, hash: /^[0-9a-f]{40,}$/ },
    },
  ];
}

/** Keys of items are shown as their columns hold them; related items as their keys. */
export function shownAs({ item, panels: _, ...row }: Row): Row {
  return item === undefined ? row : { ...row, item: String(item) };
}
