/**
 * Where a request comes from. The address of the socket, unless a proxy that is trusted says for whom it asks: anybody can
 * write a header.
 */
import { LRUCache } from 'lru-cache';
import { StartError } from '../../base/errors.js';
import { addressTest, normalizeAddress } from '../access/addresses.js';
import type { Config } from '../config/config.js';
import type { ServerResponse } from './transport.js';

export interface ClientAddressResolver {
  /** The header that names the client, in lower case; '' if none is trusted. */
  readonly header: string;
  /** `peer` is the other end of the socket (`peerOf`), `forwarded` the value of that header. */
  addressOf(peer: string, forwarded: string): string;
  /** Whether what this peer says of the client is believed. */
  trusts(peer: string): boolean;
}

export function createClientAddressResolver(config: Config): ClientAddressResolver {
  const setting = config.IP_TRUST_PROXY.trim();
  const custom = config.IP_CUSTOM_HEADER;
  if (/^(false|0|no|off|)$/i.test(setting)) {
    if (custom !== null)
      throw new StartError('IP_CUSTOM_HEADER requires IP_TRUST_PROXY: otherwise any client could choose its address');
    return { header: '', addressOf: (peer) => peer, trusts: () => false };
  }
  const trusted = trustOf(setting);
  const trusts = (peer: string): boolean => trusted(peer, 0);
  const header = custom?.toLowerCase() ?? 'x-forwarded-for';
  const addressOf = (peer: string, forwarded: string): string => {
    if (forwarded === '') return peer;
    if (custom !== null) return (trusted(peer, 0) && normalizeAddress(withoutPort(forwarded))) || peer;
    return firstUntrusted(peer, forwarded.split(','), trusted);
  };
  return { header, addressOf, trusts };
}

/** Addresses of sockets by their bytes: to make and parse the text takes several microseconds. */
const peers = new LRUCache<string, string>({ max: 10_000 });

/** The address of the other end of the socket; '' if it has none. */
export function peerOf(response: ServerResponse): string {
  const bytes = Buffer.from(response.getRemoteAddress()).toString('latin1');
  const known = peers.get(bytes);
  if (known !== undefined) return known;
  const address = normalizeAddress(Buffer.from(response.getRemoteAddressAsText()).toString('latin1'));
  if (bytes !== '') peers.set(bytes, address);
  return address;
}

type Trust = (address: string, hops: number) => boolean;

/** From the socket outward: the first address that no trusted proxy speaks for is the client's. */
function firstUntrusted(socket: string, chain: readonly string[], trusted: Trust): string {
  let address = socket;
  for (let hops = 0; hops < chain.length && trusted(address, hops); hops++) {
    const next = normalizeAddress(withoutPort(chain[chain.length - 1 - hops] ?? ''));
    if (next === '') break;
    address = next;
  }
  return address;
}

/** Some proxies send 203.0.113.7:4711 or [2001:db8::1]:4711. */
function withoutPort(text: string): string {
  const match = /^\s*(?:\[([^\]]+)\]|(\d+\.\d+\.\d+\.\d+))(?::\d+)?\s*$/.exec(text);
  return match?.[1] ?? match?.[2] ?? text.trim();
}

const NAMED_NETWORKS: Readonly<Record<string, string>> = {
  loopback: '127.0.0.0/8,::1',
  linklocal: '169.254.0.0/16,fe80::/10',
  uniquelocal: '10.0.0.0/8,172.16.0.0/12,192.168.0.0/16,fc00::/7',
};

function trustOf(setting: string): Trust {
  if (/^(true|yes|on)$/i.test(setting)) return () => true;
  if (/^\d{1,2}$/.test(setting)) return (_, hops) => hops < Number(setting);
  const list = setting.split(',').map((each) => NAMED_NETWORKS[each.trim().toLowerCase()] ?? each);
  const test = addressTest(list.join(','), (entry) => {
    throw new StartError(`IP_TRUST_PROXY: "${entry}" is not an address, network or range`);
  });
  return test;
}
