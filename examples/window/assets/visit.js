// A visit: messages both ways over one stream of a WebTransport session.

import { connect } from "./connect.js";

// Codes with which the server closes a session.
const WRONG_TOKEN = 1;
const FULL = 2;
// More than any message has.
const MAX_MESSAGE = 4 << 20;
const LENGTH = 4;
const RETRY_MS = [500, 1000, 2000, 5000];

function framed(message) {
  const text = new TextEncoder().encode(JSON.stringify(message));
  const bytes = new Uint8Array(LENGTH + text.length);
  new DataView(bytes.buffer).setUint32(0, text.length);
  bytes.set(text, LENGTH);
  return bytes;
}

// Takes the messages out of chunks: an object if it is JSON, else its bytes.
class Messages {
  constructor(onMessage) {
    this.onMessage = onMessage;
    this.held = new Uint8Array(0);
  }

  take(chunk) {
    const bytes = new Uint8Array(this.held.length + chunk.length);
    bytes.set(this.held);
    bytes.set(chunk, this.held.length);
    let at = 0;
    while (bytes.length - at >= LENGTH) {
      const length = new DataView(bytes.buffer, at).getUint32(0);
      if (length > MAX_MESSAGE) throw new Error("a message is too long");
      if (bytes.length - at - LENGTH < length) break;
      const message = bytes.slice(at + LENGTH, at + LENGTH + length);
      at += LENGTH + length;
      const isJson = message[0] === 0x7b;
      this.onMessage(isJson ? JSON.parse(new TextDecoder().decode(message)) : message);
    }
    this.held = bytes.slice(at);
  }
}

// One session, until it ends; `onOpen(send, leave)` is called when it is open. Returns the code with which it was closed.
async function session(path, token, onOpen, onMessage) {
  const transport = await connect(path, token);
  const ended = transport.closed.then((info) => info.closeCode ?? 0, (error) => error.streamErrorCode ?? 0);
  await transport.ready;
  const read = async () => {
    const stream = await transport.createBidirectionalStream();
    const writer = stream.writable.getWriter();
    // The server sees the stream with its first byte.
    await writer.write(framed({ do: "come" }));
    const send = (message) => writer.write(framed(message)).catch(() => {});
    onOpen(send, () => transport.close());
    const reader = stream.readable.getReader();
    const messages = new Messages(onMessage);
    for (;;) {
      const { value, done } = await reader.read();
      if (done) break;
      messages.take(value);
    }
  };
  // How a session ends is told by `closed`.
  read().catch(() => {});
  return ended;
}

// Visits again and again, and says on the page what is the matter. `onOpen(send, leave)` begins anew.
export async function visit(path, onOpen, onMessage) {
  const say = (sentence) => {
    document.getElementById("message").textContent = sentence;
  };
  if (!("WebTransport" in window)) {
    say("This browser has no WebTransport, over which this page gets what it shows. Chrome, Edge, Firefox and Safari have it, " +
        "in pages over HTTPS or of this machine.");
    return;
  }
  const token = new URLSearchParams(location.hash.slice(1)).get("token");
  if (!token) {
    say("The link has no token: open the whole link that the program printed.");
    return;
  }
  for (let attempt = 0; ; attempt += 1) {
    let code = 0;
    try {
      say("Connecting …");
      code = await session(path, token, (send, leave) => {
        attempt = 0;
        say("");
        onOpen(send, leave);
      }, onMessage);
    } catch {
      // The server is away, as after a session that was closed.
    }
    if (code === WRONG_TOKEN) {
      say("The token of the link is wrong: open the link that the program printed last.");
      return;
    }
    const why = code === FULL ? "There is no place left for another visitor" : "The connection is lost";
    say(`${why}; trying again …`);
    await new Promise((done) => setTimeout(done, RETRY_MS[Math.min(attempt, RETRY_MS.length - 1)]));
  }
}
