/**
 * Lists of network addresses: what a policy allows and which proxies are trusted. An entry is an address, a network
 * (10.0.0.0/8) or a range (10.0.0.1-10.0.0.9), of either family.
 */
import { BlockList, isIP, SocketAddress } from 'node:net';

export type AddressTest = (address: string) => boolean;

/** An entry that is no address matches nothing: a typo in a policy must not open it. `complain` gets the entry. */
export function addressTest(text: string, complain: (entry: string) => void = () => {}): AddressTest {
  const list = new BlockList();
  for (const entry of text.split(',').map((each) => each.trim())) {
    if (entry !== '' && !add(list, entry)) complain(entry);
  }
  return (address) => {
    const version = isIP(address);
    return version !== 0 && list.check(address, familyOf(version));
  };
}

/** One spelling per address: IPv6 shortened, IPv4 in IPv6 as IPv4. Anything else is ''. */
export function normalizeAddress(text: string): string {
  const version = isIP(text);
  if (version !== 6) return version === 4 ? text : '';
  const [address = ''] = text.split('%', 1);
  const short = new SocketAddress({ address, family: 'ipv6' }).address;
  const mapped = /^::ffff:(?:(\d+\.\d+\.\d+\.\d+)|([0-9a-f]{1,4}):([0-9a-f]{1,4}))$/i.exec(short);
  if (!mapped) return short;
  const [, dotted, high = '', low = ''] = mapped;
  if (dotted !== undefined) return dotted;
  const number = Number.parseInt(high, 16) * 65_536 + Number.parseInt(low, 16);
  return [24, 16, 8, 0].map((shift) => (number >>> shift) & 255).join('.');
}

/** The network that one customer of a provider holds: who has one IPv6 address has 2^64 of them. */
export function networkOf(address: string): string {
  if (isIP(address) !== 6) return address;
  const [head = '', tail = ''] = address.split('::');
  const before = head === '' ? [] : head.split(':');
  const after = tail === '' ? [] : tail.split(':');
  const groups = [...before, ...new Array(Math.max(8 - before.length - after.length, 0)).fill('0'), ...after];
  return groups.slice(0, 4).join(':');
}

function familyOf(version: number): 'ipv4' | 'ipv6' {
  return version === 6 ? 'ipv6' : 'ipv4';
}

function add(list: BlockList, entry: string): boolean {
  const [first = '', last, ...ends] = entry.split('-').map((each) => each.trim());
  const [address = '', bits, ...sizes] = first.split('/');
  const version = isIP(address);
  if (version === 0 || ends.length + sizes.length > 0) return false;
  const family = familyOf(version);
  if (last !== undefined) {
    if (bits !== undefined || isIP(last) !== version) return false;
    try {
      list.addRange(address, last, family);
    } catch {
      // The range ends before it begins.
      return false;
    }
    return true;
  }
  if (bits === undefined) {
    list.addAddress(address, family);
    return true;
  }
  if (!/^\d{1,3}$/.test(bits) || Number(bits) > (version === 6 ? 128 : 32)) return false;
  list.addSubnet(address, Number(bits), family);
  return true;
}
