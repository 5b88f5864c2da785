/** The available peers, and how they are started together. */
import type { Report } from '../environment.js';
import { connectDirectus } from './directus.js';
import { PEERS, type Peer, type PeerId, type PeerOptions, type StartPeer } from './peer.js';
import { startPostGraphile } from './postgraphile.js';
import { startPostgrest } from './postgrest.js';

const STARTS: Readonly<Record<PeerId, StartPeer>> = {
  postgraphile: startPostGraphile,
  postgrest: startPostgrest,
  directus: connectDirectus,
};

export async function startPeers(options: PeerOptions, report: Report): Promise<readonly Peer[]> {
  const started: Peer[] = [];
  for (const [id, title] of Object.entries(PEERS) as [PeerId, string][]) {
    try {
      const peer = await STARTS[id](options);
      if (peer !== null) started.push(peer);
      report(peer === null ? `${title}: not there, its column stays empty` : `${title} ${peer.version}: started`);
    } catch (error) {
      await stopPeers(started);
      throw error;
    }
  }
  return started;
}

export async function stopPeers(peers: readonly Peer[]): Promise<void> {
  await Promise.all(peers.map((peer) => peer.stop()));
}
