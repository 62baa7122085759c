// The connection to the receiver: its messages, and how it ends.

import { connect } from "./connect.js";

// Bytes of a message's header; docs/browser.md has its fields.
const HEADER = 40;
// More than any picture has.
const MAX_MESSAGE = 16 << 20;
// The receiver says something every second.
const SILENCE_MS = 4000;
// Codes with which the receiver closes a session.
export const WRONG_TOKEN = 1;
export const FULL = 2;

const DOCUMENT = 0;
const SOUND = 2;
const milliseconds = (view, at) => Number(view.getBigInt64(at)) / 1000;

// A message as an object; times are milliseconds of the receiver's clock.
export function parse(bytes) {
  if (bytes.byteLength < HEADER) return null;
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const sent = milliseconds(view, 32);
  const data = bytes.subarray(HEADER);
  if (view.getUint8(0) === DOCUMENT) {
    return { sent, document: JSON.parse(new TextDecoder().decode(data)) };
  }
  const flags = view.getUint8(2);
  return {
    sent, data,
    isSound: view.getUint8(0) === SOUND,
    coding: view.getUint8(1),
    isKey: (flags & 1) !== 0,
    isCatchUp: (flags & 2) !== 0,
    isDisposable: (flags & 4) !== 0,
    isDamaged: (flags & 8) !== 0,
    timeline: view.getUint8(3),
    number: view.getUint32(4),
    previous: view.getUint32(8),
    late: view.getInt32(12) / 1000,
    shown: milliseconds(view, 16),
    due: milliseconds(view, 24),
  };
}

async function readAll(stream) {
  const reader = stream.getReader();
  const chunks = [];
  let length = 0;
  for (;;) {
    const { value, done } = await reader.read();
    if (done) break;
    length += value.byteLength;
    if (length > MAX_MESSAGE) {
      await reader.cancel();
      return null;
    }
    chunks.push(value);
  }
  if (chunks.length === 1) return chunks[0];
  const bytes = new Uint8Array(length);
  let at = 0;
  for (const chunk of chunks) {
    bytes.set(chunk, at);
    at += chunk.byteLength;
  }
  return bytes;
}

// Connects, and calls `onMessage(message, arrivedMs)` for each message until the session ends; the result says how:
// `{ opened, code }`.
export async function watch(token, onMessage) {
  const transport = await connect("/watch", token);
  const ended = transport.closed.then((info) => info.closeCode ?? 0, (error) => error.streamErrorCode ?? 0);
  // What a session that never opened says is that of `ready`.
  await transport.ready;
  let heard = performance.now();
  let isOver = false;
  const guard = setInterval(() => {
    if (performance.now() - heard > SILENCE_MS && !document.hidden) transport.close();
  }, 500);
  const streams = transport.incomingUnidirectionalStreams.getReader();
  const take = async (stream) => {
    try {
      const bytes = await readAll(stream);
      const arrived = performance.now();
      heard = arrived;
      const message = bytes && parse(bytes);
      if (message && !isOver) onMessage(message, arrived, bytes.byteLength);
    } catch {
      // The receiver has given up this message, or the session ends.
    }
  };
  const accept = async () => {
    try {
      for (;;) {
        const { value, done } = await streams.read();
        if (done) return;
        take(value);
      }
    } catch {
      // The session ends, which `closed` tells.
    }
  };
  accept();
  const code = await ended;
  isOver = true;
  clearInterval(guard);
  return code;
}
