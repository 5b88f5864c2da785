/** An answer in memory, as those who reply with it see it. */
export interface KeptAnswer {
  /** Not borrowed; null if it may have changed. */
  readonly body: Buffer | null;
}
