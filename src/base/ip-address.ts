/** Internet addresses as texts. */

const BYTE = '(?:25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)';
const IPV4 = new RegExp(`^${BYTE}(?:\\.${BYTE}){3}$`);
const GROUP = /^[0-9a-f]{1,4}$/i;
const GROUPS = 8;

/** The version of the address, or 0 if the text is none. Addresses have no zone. */
export function ipVersion(text: string): 0 | 4 | 6 {
  if (IPV4.test(text)) return 4;
  const [before = '', after, ...rest] = text.split('::');
  if (rest.length > 0 || !text.includes(':')) return 0;
  const counts = [countGroups(before, after === undefined), countGroups(after ?? '', true)];
  if (counts.includes(-1)) return 0;
  const groups = counts.reduce((sum, count) => sum + count, 0);
  return (after === undefined ? groups === GROUPS : groups < GROUPS) ? 6 : 0;
}

/** The number of groups, of which the last may be an IPv4 address, which counts as two; -1 if the text has anything else. */
function countGroups(text: string, isLast: boolean): number {
  if (text === '') return 0;
  const groups = text.split(':');
  const endsWithIpv4 = isLast && IPV4.test(groups.at(-1) ?? '');
  if (endsWithIpv4) groups.pop();
  return groups.every((group) => GROUP.test(group)) ? groups.length + (endsWithIpv4 ? 2 : 0) : -1;
}
