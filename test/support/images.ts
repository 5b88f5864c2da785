/** Images to upload, and transformations of them. */
import sharp from 'sharp';
import { request } from './service.js';

export async function uploadImage(service: { readonly url: string }, content: Buffer, type: string): Promise<string> {
  const head = `--edge\r\nContent-Disposition: form-data; name="file"; filename="a.${type}"\r\nContent-Type: image/${type}\r\n\r\n`;
  const answer = await request(service, 'POST', '/files', {
    headers: { 'content-type': 'multipart/form-data; boundary=edge' },
    body: Buffer.concat([Buffer.from(head), content, Buffer.from('\r\n--edge--\r\n')]),
  });
  const { id, width } = (answer.json as { data: { id: string; width: number } }).data;
  if (!width) throw new Error(`the image was not measured: ${answer.text}`);
  return id;
}

export function noise(side: number): Promise<Buffer> {
  const background = { background: 'red', noise: { type: 'gaussian', sigma: 60 } } as const;
  return sharp({ create: { width: side, height: side, channels: 3, ...background } })
    .jpeg()
    .toBuffer();
}

export function transforms(...operations: readonly unknown[]): string {
  return `transforms=${encodeURIComponent(JSON.stringify(operations))}`;
}
