/** DATABASE_URL as libpq has it: several hosts, and which of their servers will do. A URL of JavaScript has one host alone. */

const TARGETS = ['any', 'primary', 'read-write'] as const;

/** `primary`: no standby. `read-write`: one that takes writes by default. */
export type SessionTarget = (typeof TARGETS)[number];

export interface DatabaseHosts {
  /** One for each host, in their order, without the target. */
  readonly urls: readonly string[];
  readonly target: SessionTarget;
}

const AUTHORITY = /^(postgres(?:ql)?:\/\/)([^/?#]*@)?([^/?#]*)(.*)$/is;

const FORM = 'must look like postgres://user:password@host:port/database, or have several hosts (host:port,host:port)';

/** Without a target one of several hosts has to be the primary. Throws where it is no such URL. */
export function parseDatabaseUrl(url: string): DatabaseHosts {
  const [, scheme, login = '', hosts = '', rest = ''] = AUTHORITY.exec(url) ?? [];
  if (scheme === undefined) throw new Error(FORM);
  const hostPorts = hosts.split(',');
  const { isNamed, target, path } = takeTarget(rest, hostPorts.length);
  const urls = hostPorts.map((hostPort) => `${scheme}${login}${hostPort}${path}`);
  if (!urls.every((each) => URL.canParse(each)) || (hostPorts.length > 1 && hostPorts.includes('')))
    throw new Error(FORM);
  return { urls: isNamed || urls.length > 1 ? urls : [url], target };
}

/** The hosts and ports, without the login, for messages. */
export function hostPortsOf(url: string): string {
  const [, , , hosts = ''] = AUTHORITY.exec(url) ?? [];
  return hosts
    .split(',')
    .map((host) => (/:\d+$/.test(host) ? host : `${host}:5432`))
    .join(' or ');
}

function takeTarget(rest: string, hosts: number): { isNamed: boolean; target: SessionTarget; path: string } {
  const question = rest.indexOf('?');
  const parameters = question < 0 ? [] : rest.slice(question + 1).split('&');
  const [targetParameter] = parameters.filter((each) => each.startsWith('target_session_attrs='));
  if (targetParameter === undefined) return { isNamed: false, target: hosts > 1 ? 'primary' : 'any', path: rest };
  const name = decodeURIComponent(targetParameter.slice(targetParameter.indexOf('=') + 1));
  const target = TARGETS.find((each) => each === name);
  if (!target) throw new Error(`target_session_attrs must be one of ${TARGETS.join(', ')}, not "${name}"`);
  const others = parameters.filter((each) => each !== targetParameter);
  const path = rest.slice(0, question) + (others.length > 0 ? `?${others.join('&')}` : '');
  return { isNamed: true, target, path };
}
