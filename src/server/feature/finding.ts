/** Findings of `lateral doctor`. */
import type { MetadataRow } from '../../compiler/model/catalog-document.js';
import type { Model } from '../../compiler/model/model.js';
import type { ConfigWith } from '../config/config.js';
import type { NoOptions, OptionTable } from '../config/option-kinds.js';
import type { Database } from '../postgres/pools/database.js';

export type CheckStatus = 'ok' | 'note' | 'problem';

export interface Finding {
  readonly section: string;
  readonly status: CheckStatus;
  readonly message: string;
  readonly details: readonly Detail[];
}

export interface Detail {
  readonly name: string;
  readonly message: string;
  /** SQL that solves it, or an example of it. */
  readonly fix?: string;
}

/** A database that `lateral doctor` checks without changing it. */
export interface DiagnosisContext<Options extends OptionTable = NoOptions> {
  readonly config: ConfigWith<Options>;
  readonly database: Database;
  readonly model: Model;
  /** Rows of service_functions. */
  readonly declared: readonly MetadataRow[];
  /** Whether the service's own tables exist. */
  readonly installed: boolean;
}

export function finding(
  section: string,
  status: CheckStatus,
  message: string,
  details: readonly Detail[] = [],
): Finding {
  return { section, status, message, details };
}

/** A finding about details, if there are any. */
export function listed(section: string, status: CheckStatus, message: string, details: readonly Detail[]): Finding[] {
  return details.length === 0 ? [] : [finding(section, status, message, details)];
}

export function count(number: number, one: string, many: string): string {
  return `${number} ${number === 1 ? one : many}`;
}
