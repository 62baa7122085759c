// Sound in step with the pictures: decoded, and scheduled by the same clock.

import { refusal, soundCodec, unheard } from "./codecs.js";

// Frames of sound are waited for until this long before their time, ms.
const WAIT = 40;
// The first frames of a decoder, which say nothing about the others.
const WARMING_UP = 20;
// Frames that are being decoded.
const MAX_DECODING = 100;
// Sound is scheduled at least this long before it plays, ms.
const SPARE = 4;
// Sound follows the clock in one piece, unless it is further away from it than this, s.
const MAX_DRIFT = 0.03;

export class Sound {
  constructor(clock, onSilence) {
    this.clock = clock;
    // Called with why there is none.
    this.onSilence = onSilence;
    this.context = null;
    this.figures = { played: 0, dropped: 0, resynced: 0 };
    // How much later than its picture sound is heard, ms, of the last frames.
    this.drifts = [];
    this.isThere = false;
    // The configuration that the browser lacks.
    this.refused = null;
    this.restart();
    setInterval(() => this.feed(), 15);
  }

  restart() {
    this.pending = [];
    this.last = null;
    // As of pictures, and how long each frame that is being decoded was held back.
    this.free = 0;
    this.held = [];
    this.next = null;
    this.key = null;
    if (this.decoder && this.decoder.state !== "closed") this.decoder.close();
    this.decoder = null;
  }

  get isOn() {
    return this.context !== null && this.context.state === "running";
  }

  // Begins to play; browsers allow it after a click.
  async turnOn() {
    this.context ??= new AudioContext({ latencyHint: "interactive" });
    await this.context.resume();
    this.clock.hasSound = this.isOn;
  }

  async turnOff() {
    await this.context?.suspend();
    this.clock.hasSound = false;
    this.restart();
  }

  take(frame) {
    this.isThere = true;
    if (!this.isOn || frame.isDamaged) return;
    if (this.last !== null && frame.number <= this.last) return;
    let at = this.pending.length;
    while (at > 0 && this.pending[at - 1].number > frame.number) at -= 1;
    this.pending.splice(at, 0, { ...frame, came: performance.now() });
    if (this.pending.length > 500) this.pending.splice(0, 250);
    this.feed();
  }

  feed() {
    while (this.isOn && this.pending.length > 0) {
      const next = this.pending[0];
      const now = performance.now();
      const left = this.clock.heardAt(next.shown) - now;
      const follows = this.last === null || next.previous <= this.last;
      if (left > 400 || (!follows && left > WAIT)) return;
      this.pending.shift();
      this.last = next.number;
      this.free = Math.max(this.free, next.came);
      this.held.push({ shown: next.shown, held: now - this.free });
      if (this.held.length > MAX_DECODING) this.held.shift();
      this.decode(next);
    }
  }

  decode(frame) {
    const told = soundCodec(frame.coding, frame.data);
    if (told === undefined) this.onSilence(refusal(frame.coding, true, undefined));
    if (!told) {
      const why = unheard(frame.coding, frame.data);
      if (why !== null) this.onSilence(why);
      return;
    }
    const { config, data } = told;
    const key = `${config.codec} ${config.sampleRate} ${config.numberOfChannels}`;
    if (key === this.refused) {
      this.onSilence(refusal(frame.coding, true, config.codec));
      return;
    }
    if (this.decoder === null || this.decoder.state !== "configured" || key !== this.key) {
      if (this.decoder && this.decoder.state !== "closed") this.decoder.close();
      this.decoder = new AudioDecoder({
        output: (data) => this.play(data),
        error: () => { this.decoder = null; },
      });
      this.key = key;
      this.outputs = 0;
      AudioDecoder.isConfigSupported(config).then(({ supported }) => {
        if (supported) return;
        this.refused = key;
        this.onSilence(refusal(frame.coding, true, config.codec));
      });
      this.decoder.configure(config);
    }
    const timestamp = Math.round(frame.shown * 1000);
    try {
      this.decoder.decode(new EncodedAudioChunk({ type: "key", timestamp, data }));
    } catch {
      this.decoder = null;
    }
  }

  // When what plays at a time of the context's clock is heard.
  contextTime(at) {
    const { contextTime, performanceTime } = this.context.getOutputTimestamp();
    if (performanceTime > 0) return contextTime + (at - performanceTime) / 1000;
    return this.context.currentTime + (at - performance.now()) / 1000 - (this.context.outputLatency || 0);
  }

  play(data) {
    const { numberOfFrames, numberOfChannels, sampleRate, timestamp } = data;
    // Heard at the earliest, if it is scheduled now.
    const now = performance.now();
    const earliest = now + (this.context.currentTime - this.contextTime(now)) * 1000 + SPARE;
    const shown = timestamp / 1000;
    // Of the frame that it is of: decoders round times.
    while (this.held.length > 1 && this.held[1].shown < shown + 1) this.held.shift();
    const held = this.held[0]?.held ?? 0;
    this.outputs += 1;
    if (this.outputs > WARMING_UP) this.clock.ready("sound", shown, earliest - held);
    const wanted = this.contextTime(this.clock.heardAt(shown));
    if (!this.isOn || wanted < this.context.currentTime) {
      this.figures.dropped += 1;
      this.next = null;
      data.close();
      return;
    }
    const buffer = this.context.createBuffer(numberOfChannels, numberOfFrames, sampleRate);
    for (let channel = 0; channel < numberOfChannels; channel += 1) {
      data.copyTo(buffer.getChannelData(channel), { planeIndex: channel, format: "f32-planar" });
    }
    data.close();
    const drift = this.next === null ? null : this.next - wanted;
    const isApart = drift === null || Math.abs(drift) > MAX_DRIFT;
    if (isApart && drift !== null) this.figures.resynced += 1;
    const start = isApart ? wanted : this.next;
    const behind = this.clock.heardAt(0) - this.clock.at(0);
    this.drifts.push((start - wanted) * 1000 + behind);
    if (this.drifts.length > 500) this.drifts.splice(0, 250);
    const source = this.context.createBufferSource();
    source.buffer = buffer;
    // Two clocks drift apart: a little faster or slower, which is not heard.
    const rate = isApart || Math.abs(drift) < 0.005 ? 1 : drift > 0 ? 1.004 : 0.996;
    source.playbackRate.value = rate;
    source.connect(this.context.destination);
    source.start(start);
    this.next = start + numberOfFrames / sampleRate / rate;
    this.figures.played += 1;
  }
}
