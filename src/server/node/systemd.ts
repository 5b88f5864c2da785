/** Where a unit of `Type=notify` has started the service. Node cannot send to such a socket itself. */
import { execFile } from 'node:child_process';

export function notifySystemd(state: '--ready' | '--stopping'): void {
  if (process.env['NOTIFY_SOCKET'] === undefined) return;
  execFile('systemd-notify', [state], (error) => {
    if (error) console.error(`lateral: systemd could not be notified: ${error.message}`);
  });
}
