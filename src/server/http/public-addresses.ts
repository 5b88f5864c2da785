/** Which addresses are on the Internet. Requests to URLs that callers name come from inside the network of the service, so they go only there. */
import { lookup as lookupAll } from 'node:dns';
import { isIP, type LookupFunction } from 'node:net';
import { type AddressTest, addressTest, normalizeAddress } from '../access/addresses.js';

/** Addresses that are not reached over the Internet, or are assigned to nobody there (RFC 6890 and its successors). */
const NOT_PUBLIC: AddressTest = addressTest(
  [
    ...['0.0.0.0/8', '10.0.0.0/8', '100.64.0.0/10', '127.0.0.0/8', '169.254.0.0/16', '172.16.0.0/12', '192.0.0.0/24'],
    ...['192.0.2.0/24', '192.88.99.0/24', '192.168.0.0/16', '198.18.0.0/15', '198.51.100.0/24', '203.0.113.0/24'],
    ...['224.0.0.0/4', '240.0.0.0/4'],
  ].join(),
);

/** Only assigned IPv6 addresses are public, without those that hold an IPv4 address. This is a separate list because `BlockList` treats IPv4 addresses as IPv6 addresses. */
const NOT_PUBLIC_6: AddressTest = addressTest(
  ['::/3', '4000::/2', '8000::/1', '2001::/23', '2001:db8::/32', '2002::/16', '3fff::/20'].join(),
);

export function isPublicAddress(text: string): boolean {
  const address = normalizeAddress(text);
  return address !== '' && !(isIP(address) === 4 ? NOT_PUBLIC : NOT_PUBLIC_6)(address);
}

/** Each address of a name must be public. The connection goes to what was checked: a name that resolves to something else later changes nothing. */
export function publicLookup(refused: () => Error): LookupFunction {
  return (host, options, callback) => {
    lookupAll(host, { ...options, all: true }, (error, addresses) => {
      const [first] = addresses ?? [];
      if (error || !first) callback(error ?? new Error('not found'), '', 4);
      else if (!addresses.every(({ address }) => isPublicAddress(address))) callback(refused(), '', 4);
      else if (options.all) callback(null, addresses);
      else callback(null, first.address, first.family);
    });
  };
}

/** Whether the host of a URL may be public: a name is checked when it is resolved. */
export function isPublicHost({ hostname }: URL): boolean {
  const host = hostname.replace(/^\[|\]$/g, '');
  return isIP(host) === 0 ? !/^localhost\.?$|\.localhost\.?$/i.test(host) : isPublicAddress(host);
}
