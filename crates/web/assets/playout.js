// When pictures and sound are due here, and the way of a picture from its message to the canvas.

import { pictureCodec, refusal, withoutKeys, withoutSets } from "./codecs.js";

// The share of pictures, and of sound, for which the others wait, and of how many ms.
const NEARLY_ALL = { picture: 0.95, sound: 0.98 };
const MEMORY = 4000;
// What the first picture waits for, ms.
const FIRST_WAIT = 15;
// The first pictures of a decoder, which say nothing about the others.
const WARMING_UP = 8;
// How much shorter the wait becomes with each that was ready: a share of what is too much, and with sound, which has to follow
// without a gap, at most so many ms, unless it is too much by more than what is worth a gap.
const SHORTER = 0.1;
const SHORTER_WITH_SOUND = 0.06;
const WORTH_A_GAP = 30;
// Sound that is ready later than the pictures may stay behind them by so much, ms: less than is noticed (EBU R 37: 60 ms).
const LAG = 55;
// What is missing is waited for until so long before its time, ms.
const LEAST_LEFT = 6;
// A picture later than this is left out if a newer one is there, ms.
const MAX_LATE = 100;
// One that is painted this much after its time counts as late, ms.
const LATE = 25;
// Pictures are decoded this long before their time, ms: a decoder has few buffers.
const AHEAD = 250;
const MAX_READY = 12;
// Half of the interval of a screen, ms.
const HALF_FRAME = 8;
// A step of the stream's clock that is no jitter, ms.
const JUMP = 2000;
// Pictures that wait to be decoded.
const MAX_PENDING = 2000;
const SPAN = 10000;
const NOTHING = new Uint8Array();
// A key picture that does not come for so long is missed, ms: encoders make one every 10 s at the least where nobody asks.
export const NO_KEY = 15000;

// The extreme of the last 5 to 10 s.
class Extreme {
  constructor(pick) {
    this.pick = pick;
    this.clear();
  }
  clear() {
    this.now = this.before = null;
    this.since = 0;
  }
  note(value, at) {
    if (at - this.since > SPAN / 2) {
      this.before = this.now;
      this.now = null;
      this.since = at;
    }
    this.now = this.now === null ? value : this.pick(this.now, value);
  }
  get value() {
    if (this.now === null) return this.before;
    return this.before === null ? this.now : this.pick(this.now, this.before);
  }
}

// Times here of the stream's clock. The receiver's clock is compared by the messages that came fastest; that tells each
// picture's latency. When a picture is shown is told by those before it: so long after its time by the stream's clock
// that nearly all of the last seconds were decoded by then.
export class Clock {
  constructor() {
    this.offset = new Extreme(Math.min);
    this.hasSound = false;
    this.forget();
  }
  // Another session begins, maybe with a receiver that was started anew.
  forget() {
    this.offset.clear();
    this.timeline = null;
    this.clear();
  }
  clear() {
    // What is waited for until pictures or sound have told it.
    this.first = null;
    this.behind = { picture: null, sound: null };
    this.samples = { picture: [], sound: [] };
    this.wait = { picture: null, sound: null };
  }
  // A message of the receiver.
  heard(sent, arrived) {
    this.offset.note(arrived - sent, arrived);
  }
  // Whether a frame is of a timeline that is over: messages overtake each other.
  isOver(frame) {
    const back = this.timeline === null ? 0 : (this.timeline - frame.timeline) & 0xff;
    return back > 0 && back < 128;
  }
  // A picture or a frame of sound; true if the stream's clock begins anew.
  note(frame, arrived) {
    const kind = frame.isSound ? "sound" : "picture";
    const behind = frame.due - frame.shown;
    const known = this.behind[kind];
    const isAnew = this.timeline !== null
      && (frame.timeline !== this.timeline || (known !== null && Math.abs(behind - known) > JUMP));
    if (isAnew) this.clear();
    this.timeline = frame.timeline;
    this.behind[kind] = behind;
    this.first ??= arrived - frame.shown + FIRST_WAIT;
    if (!frame.isSound) this.wait.picture ??= arrived - frame.shown + FIRST_WAIT;
    return isAnew;
  }
  // What is shown at `shown` by the stream's clock was ready at a time of `performance.now()`.
  ready(kind, shown, now) {
    const samples = this.samples[kind];
    samples.push({ now, value: now - shown });
    while (samples.length > 0 && now - samples[0].now > MEMORY) samples.shift();
    const sorted = samples.map((one) => one.value).sort((one, other) => one - other);
    const wanted = sorted[Math.floor((sorted.length - 1) * NEARLY_ALL[kind])];
    const wait = this.wait[kind];
    // Longer at once, shorter slowly.
    const most = this.hasSound && wait - wanted < WORTH_A_GAP ? SHORTER_WITH_SOUND : Infinity;
    this.wait[kind] = wait === null || wanted > wait ? wanted : wait - Math.min((wait - wanted) * SHORTER, most);
  }
  // When what is due at a time of the receiver's clock is due here, ms of `performance.now()`.
  here(due) {
    return due + (this.offset.value ?? 0);
  }
  // When what is shown at `shown` by the stream's clock is to be seen here.
  at(shown) {
    const { picture, sound } = this.wait;
    if (this.hasSound && sound !== null) return shown + Math.max(picture ?? sound, sound - LAG);
    return shown + (picture ?? this.first ?? 0);
  }
  // When it is to be heard.
  heardAt(shown) {
    const { picture, sound } = this.wait;
    const first = this.first ?? 0;
    return shown + Math.max(picture ?? sound ?? first, sound ?? picture ?? first);
  }
}

export class Pictures {
  constructor(canvas, clock, onProblem) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d", { alpha: false, desynchronized: true });
    this.clock = clock;
    this.onProblem = onProblem;
    this.latency = null;
    this.figures = { painted: 0, late: 0, dropped: 0, tainted: 0 };
    // The last ones painted: when, and with what latency, ms.
    this.history = [];
    this.decoder = null;
    // The codec that the browser lacks.
    this.refused = null;
    this.restart();
    const draw = () => {
      this.draw();
      requestAnimationFrame(draw);
    };
    requestAnimationFrame(draw);
    setInterval(() => this.feed(), 10);
  }

  // Begins anew, at a key picture.
  restart() {
    this.pending = [];
    for (const one of this.ready ?? []) one.frame.close();
    this.ready = [];
    this.meta = new Map();
    this.last = null;
    this.isTainted = false;
    this.needsKey = true;
    // When the last one given to the decoder could have been, had it not been held back.
    this.free = 0;
    // Since when there are pictures and no key picture among them.
    this.searching = null;
    this.name = null;
    if (this.decoder && this.decoder.state !== "closed") this.decoder.close();
    this.decoder = null;
  }

  take(picture) {
    if (pictureCodec(picture.coding, NOTHING) === undefined) {
      this.onProblem(refusal(picture.coding, false, undefined));
      return;
    }
    if (this.last !== null && picture.number <= this.last) {
      this.figures.dropped += 1;
      return;
    }
    let at = this.pending.length;
    while (at > 0 && this.pending[at - 1].number > picture.number) at -= 1;
    this.pending.splice(at, 0, { ...picture, came: performance.now() });
    if (this.pending.length > MAX_PENDING) this.skip();
    this.feed();
  }

  // Too much waits: goes on at the last key picture.
  skip() {
    const key = this.pending.findLastIndex((picture) => picture.isKey);
    const count = key > 0 ? key : this.pending.length;
    this.figures.dropped += count;
    this.pending.splice(0, count);
    this.needsKey = true;
  }

  // Gives the decoder what follows, in order. What is missing is waited for until it would be too late.
  feed() {
    const now = performance.now();
    // Nothing is painted now.
    if (document.hidden && this.ready.length > 1) this.dropReady(this.ready.length - 1);
    if (this.needsKey && !this.findKey(now)) return;
    while (this.pending.length > 0) {
      const next = this.pending[0];
      const due = this.clock.at(next.shown);
      if (!next.isCatchUp && due - now > AHEAD) return;
      if (this.ready.length >= MAX_READY || (this.decoder?.decodeQueueSize ?? 0) > 60) return;
      const follows = this.last === null || next.isKey || next.previous <= this.last;
      if (!follows && due - now > LEAST_LEFT) return;
      this.pending.shift();
      if (!follows) this.isTainted = true;
      this.last = next.number;
      this.free = Math.max(this.free, next.came);
      this.decode(next, now - this.free);
    }
  }

  // Whether a key picture is at the front; what is before it is left out, and so is what waits for one in vain.
  findKey(now) {
    let count = this.pending.findIndex((picture) => picture.isKey);
    const isFound = count >= 0;
    if (isFound || this.pending.length === 0) {
      if (isFound) this.searching = null;
    } else {
      this.searching ??= now;
      if (now - this.searching > NO_KEY) this.onProblem(withoutKeys(this.pending[0].coding, NO_KEY / 1000));
    }
    if (!isFound) count = this.pending.findLastIndex((picture) => now - this.clock.at(picture.shown) > SPAN) + 1;
    this.figures.dropped += this.pending.splice(0, count).filter((picture) => !picture.isCatchUp).length;
    return isFound;
  }

  // Decodes a picture that was held back for so long.
  decode(picture, held) {
    if (picture.isDamaged || (this.needsKey && !picture.isKey)) {
      if (!picture.isCatchUp) this.figures.dropped += 1;
      if (!picture.isDisposable) this.isTainted = true;
      return;
    }
    if (picture.isKey) {
      this.isTainted = false;
      if (!this.configure(picture)) return;
    }
    const timestamp = Math.round(picture.shown * 1000);
    const { due, isCatchUp, shown } = picture;
    this.meta.set(timestamp, { due, isCatchUp, shown, held, isTainted: this.isTainted });
    if (this.meta.size > 200) this.meta.delete(this.meta.keys().next().value);
    const type = picture.isKey ? "key" : "delta";
    try {
      this.decoder.decode(new EncodedVideoChunk({ type, timestamp, data: picture.data }));
    } catch {
      this.fail();
    }
  }

  // True if the decoder is ready for this key picture.
  configure(picture) {
    const codec = pictureCodec(picture.coding, picture.data);
    if (codec !== null && codec === this.refused) {
      this.onProblem(refusal(picture.coding, false, codec));
      return false;
    }
    const name = codec ?? this.name;
    if (name === null) {
      this.onProblem(withoutSets(picture.coding));
      return false;
    }
    // Whatever it was, decoding begins.
    if (this.needsKey) this.onProblem(null);
    if (this.decoder === null || this.decoder.state !== "configured" || name !== this.name) {
      if (this.decoder && this.decoder.state !== "closed") this.decoder.close();
      this.decoder = new VideoDecoder({
        output: (frame) => this.decoded(frame),
        error: () => this.fail(),
      });
      this.outputs = 0;
      const config = { codec: name, optimizeForLatency: true };
      this.name = name;
      VideoDecoder.isConfigSupported(config).then(({ supported }) => {
        if (supported) return;
        this.refused = name;
        this.onProblem(refusal(picture.coding, false, name));
      });
      this.decoder.configure(config);
    }
    this.needsKey = false;
    return true;
  }

  // The decoder has failed: it begins anew at the next key picture.
  fail() {
    if (this.decoder && this.decoder.state !== "closed") this.decoder.close();
    this.decoder = null;
    this.needsKey = true;
  }

  decoded(frame) {
    const meta = this.meta.get(frame.timestamp);
    this.meta.delete(frame.timestamp);
    if (!meta || meta.isCatchUp) {
      frame.close();
      return;
    }
    this.outputs += 1;
    // What holds pictures back is the wait itself: it is told by when they could have been ready.
    if (this.outputs > WARMING_UP) this.clock.ready("picture", meta.shown, performance.now() - meta.held);
    let at = this.ready.length;
    while (at > 0 && this.ready[at - 1].meta.shown > meta.shown) at -= 1;
    this.ready.splice(at, 0, { frame, meta });
    if (document.hidden) this.dropReady(this.ready.length - 1);
  }

  dropReady(count) {
    for (const { frame } of this.ready.splice(0, count)) {
      frame.close();
      this.figures.dropped += 1;
    }
  }

  // Paints the picture whose time has come.
  draw() {
    const now = performance.now();
    const isDue = (one) => this.clock.at(one.meta.shown) <= now + HALF_FRAME;
    const isTooLate = (one) => now - this.clock.at(one.meta.shown) > MAX_LATE;
    while (this.ready.length > 1 && isDue(this.ready[1]) && isTooLate(this.ready[0])) this.dropReady(1);
    if (this.ready.length === 0 || !isDue(this.ready[0])) return;
    const { frame, meta } = this.ready.shift();
    if (this.canvas.width !== frame.displayWidth || this.canvas.height !== frame.displayHeight) {
      this.canvas.width = frame.displayWidth;
      this.canvas.height = frame.displayHeight;
    }
    this.context.drawImage(frame, 0, 0, this.canvas.width, this.canvas.height);
    frame.close();
    this.figures.painted += 1;
    if (now - this.clock.at(meta.shown) > LATE) this.figures.late += 1;
    if (meta.isTainted) this.figures.tainted += 1;
    const latency = now - this.clock.here(meta.due) + (this.latency ?? 0);
    this.history.push({ at: now, latency });
    if (this.history.length > 3000) this.history.splice(0, 1000);
    this.feed();
  }
}
