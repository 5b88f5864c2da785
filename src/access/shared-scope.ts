/** What limits who comes in by a share. */
import type { Caller } from '../sql/parameter.js';

/** An item that a user has opened to others. */
export interface SharedScope {
  readonly id: string;
  readonly collection: string;
  readonly item: string;
  /** Whether the role of the share has every right: then those of the creator alone count. */
  readonly unlimited: boolean;
  /** Nobody sees by a share what the user who made it does not. */
  readonly creator: Caller & { readonly administrator: boolean };
}
