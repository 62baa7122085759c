// What the page decodes: the names of codecs as WebCodecs has them, from the bytes of the stream. What is no such picture or
// frame gives `null`.

// stream_type of MPEG-TS; of private data, pictures are AV1, and sound is Opus.
const H264 = 0x1b;
const HEVC = 0x24;
const ADTS = 0x0f;
const PRIVATE = 0x06;

const PICTURES = new Map([
  [H264, "H.264"], [HEVC, "H.265"], [PRIVATE, "AV1"],
  [0x01, "MPEG-1"], [0x02, "MPEG-2"], [0x10, "MPEG-4 Part 2"], [0x33, "H.266"], [0xea, "VC-1"], [0xd1, "Dirac"],
]);
const SOUNDS = new Map([
  [ADTS, "AAC"], [PRIVATE, "Opus"],
  [0x03, "MPEG layers I to III"], [0x04, "MPEG layers I to III"], [0x11, "AAC in LATM"], [0x81, "AC-3"], [0x87, "E-AC-3"],
]);

// What a codec is called that a stream has.
export function nameOf(coding, isSound) {
  return (isSound ? SOUNDS : PICTURES).get(coding) ?? `of type 0x${coding.toString(16).padStart(2, "0")}`;
}

const hex = (byte) => byte.toString(16).padStart(2, "0");

// The units of an access unit in the byte stream format (H.264 and H.265, annex B).
function* units(bytes) {
  let begin = -1;
  for (let at = 0; at + 2 < bytes.length; at += 1) {
    if (bytes[at] === 0 && bytes[at + 1] === 0 && bytes[at + 2] === 1) {
      if (begin >= 0) yield bytes.subarray(begin, at);
      begin = at + 3;
      at += 2;
    }
  }
  if (begin >= 0) yield bytes.subarray(begin);
}

function h264(bytes) {
  for (const unit of units(bytes)) {
    if ((unit[0] & 0x1f) === 7 && unit.length > 3) return `avc1.${[...unit.subarray(1, 4)].map(hex).join("")}`;
  }
  return null;
}

// The first bytes of a unit without those that prevent start codes.
function unescaped(unit, count) {
  const bytes = [];
  let zeros = 0;
  for (const byte of unit) {
    if (bytes.length === count) break;
    if (zeros >= 2 && byte === 3) {
      zeros = 0;
      continue;
    }
    zeros = byte === 0 ? zeros + 1 : 0;
    bytes.push(byte);
  }
  return bytes;
}

// profile_tier_level of the sequence parameter set (H.265, 7.3.3), written as in ISO/IEC 14496-15, annex E.
function hevc(bytes) {
  for (const unit of units(bytes)) {
    if (((unit[0] >> 1) & 0x3f) !== 33) continue;
    const set = unescaped(unit, 15);
    if (set.length < 15) return null;
    const space = ["", "A", "B", "C"][set[3] >> 6];
    const isHigh = (set[3] & 0x20) !== 0;
    let compatibility = 0;
    for (let bit = 0; bit < 32; bit += 1) {
      if ((set[4 + (bit >> 3)] >> (7 - (bit & 7))) & 1) compatibility += 2 ** bit;
    }
    const constraints = set.slice(8, 14).map((byte) => byte.toString(16).toUpperCase());
    while (constraints.length > 0 && constraints.at(-1) === "0") constraints.pop();
    const parts = [`hev1.${space}${set[3] & 0x1f}`, compatibility.toString(16).toUpperCase(), `${isHigh ? "H" : "L"}${set[14]}`];
    return [...parts, ...constraints].join(".");
  }
  return null;
}

// Bits, the highest of a byte first; beyond the end it throws a RangeError.
class Bits {
  constructor(bytes) {
    this.bytes = bytes;
    this.at = 0;
  }
  read(count) {
    let value = 0;
    for (; count > 0; count -= 1, this.at += 1) {
      if (this.at >> 3 >= this.bytes.length) throw new RangeError("cut");
      value = value * 2 + ((this.bytes[this.at >> 3] >> (7 - (this.at & 7))) & 1);
    }
    return value;
  }
  skip(count) {
    this.at += count;
  }
}

// The payload of the sequence header among OBUs in the low-overhead format (AV1, 5.2); `null` if there is none.
function sequenceHeader(bytes) {
  let at = 0;
  while (at < bytes.length) {
    const kind = (bytes[at] >> 3) & 15;
    at += bytes[at] & 4 ? 2 : 1;
    let size = 0;
    for (let shift = 1; ; shift *= 128) {
      if (at >= bytes.length || shift > 2 ** 28) return null;
      size += (bytes[at] & 0x7f) * shift;
      at += 1;
      if (bytes[at - 1] < 128) break;
    }
    if (kind === 1) return bytes.subarray(at, at + size);
    at += size;
  }
  return null;
}

// The profile, the level and tier of the first operating point, and the depth (AV1, 5.5; ISO BMFF binding, section 5).
function av1(bytes) {
  const header = sequenceHeader(bytes);
  if (header === null) return null;
  const bits = new Bits(header);
  try {
    const profile = bits.read(3);
    bits.skip(1);
    const isReduced = bits.read(1);
    let [level, tier] = [0, 0];
    if (isReduced) {
      level = bits.read(5);
    } else {
      let delayBits = 0;
      if (bits.read(1)) {
        bits.skip(64);
        if (bits.read(1)) {
          let zeros = 0;
          while (bits.read(1) === 0) zeros += 1;
          bits.skip(zeros);
        }
        if (bits.read(1)) {
          delayBits = bits.read(5) + 1;
          bits.skip(42);
        }
      }
      const hasDelay = bits.read(1);
      const points = bits.read(5) + 1;
      for (let point = 0; point < points; point += 1) {
        bits.skip(12);
        const own = bits.read(5);
        const ownTier = own > 7 ? bits.read(1) : 0;
        if (point === 0) [level, tier] = [own, ownTier];
        if (delayBits > 0 && bits.read(1)) bits.skip(2 * delayBits + 1);
        if (hasDelay && bits.read(1)) bits.skip(4);
      }
    }
    const width = bits.read(4);
    const height = bits.read(4);
    bits.skip(width + height + 2);
    if (!isReduced && bits.read(1)) bits.skip(7);
    bits.skip(3);
    if (!isReduced) {
      bits.skip(4);
      const hasOrder = bits.read(1);
      if (hasOrder) bits.skip(2);
      const screen = bits.read(1) ? 2 : bits.read(1);
      if (screen > 0 && !bits.read(1)) bits.skip(1);
      if (hasOrder) bits.skip(3);
    }
    bits.skip(3);
    let depth = bits.read(1) ? 10 : 8;
    if (profile === 2 && depth === 10 && bits.read(1)) depth = 12;
    const two = (number) => String(number).padStart(2, "0");
    return `av01.${profile}.${two(level)}${tier ? "H" : "M"}.${two(depth)}`;
  } catch {
    return null;
  }
}

// The codec of a key picture; `null` if it does not tell, `undefined` if the page knows no such codec, whatever the bytes.
export function pictureCodec(coding, bytes) {
  switch (coding) {
    case H264: return h264(bytes);
    case HEVC: return hevc(bytes);
    case PRIVATE: return av1(bytes);
    default: return undefined;
  }
}

const RATES = [96000, 88200, 64000, 48000, 44100, 32000, 24000, 22050, 16000, 12000, 11025, 8000, 7350];

// What the header of ADTS says (ISO/IEC 13818-7, 6.2).
function adts(bytes) {
  if (bytes.length < 7 || bytes[0] !== 0xff || (bytes[1] & 0xf6) !== 0xf0) return null;
  const sampleRate = RATES[(bytes[2] >> 2) & 15];
  const numberOfChannels = ((bytes[2] & 1) << 2) | (bytes[3] >> 6);
  if (!sampleRate || numberOfChannels === 0) return null;
  return { config: { codec: `mp4a.40.${(bytes[2] >> 6) + 1}`, sampleRate, numberOfChannels }, data: bytes };
}

// Streams, those of two channels among them, and places of the channels of Opus in the order of Vorbis, from three on.
const SURROUND = [
  [2, 1, [0, 2, 1]], [2, 2, [0, 1, 2, 3]], [3, 2, [0, 4, 1, 2, 3]], [4, 2, [0, 4, 1, 2, 3, 5]],
  [4, 3, [0, 4, 1, 2, 3, 5, 6]], [5, 3, [0, 6, 1, 2, 3, 4, 5, 7]],
];

// A byte with the channels, then a packet of Opus.
function opus(bytes) {
  if (bytes.length < 2 || bytes[0] === 0 || bytes[0] > 8) return null;
  const data = bytes.subarray(1);
  const config = { codec: "opus", sampleRate: 48000, numberOfChannels: bytes[0] };
  if (bytes[0] > 2) {
    const [streams, pairs, places] = SURROUND[bytes[0] - 3];
    // The identification header (RFC 7845, 5.1): version 1, no samples to skip, 48 kHz, no gain, mapping family 1.
    const head = [...new TextEncoder().encode("OpusHead"), 1, bytes[0], 0, 0, 0x80, 0xbb, 0, 0, 0, 0, 1];
    config.description = Uint8Array.from([...head, streams, pairs, ...places]);
  }
  return { config, data };
}

// How a frame of sound is decoded: the configuration of the decoder, and what it gets. `null` if it does not tell, `undefined`
// if the page knows no such codec.
export function soundCodec(coding, bytes) {
  switch (coding) {
    case ADTS: return adts(bytes);
    case PRIVATE: return opus(bytes);
    default: return undefined;
  }
}

// Why a frame of sound is of no use that is whole: its stream does not say its channels in a way that is decoded here. `null`
// if it does, or if the bytes are no such frame.
export function unheard(coding, bytes) {
  if (coding === PRIVATE && bytes.length > 1 && (bytes[0] === 0 || bytes[0] > 8)) {
    const which = bytes[0] === 0 ? "Opus in dual mono (two programs, one in each channel)"
      : `Opus with channels that its tables do not name (channel code 0x${hex(bytes[0])})`;
    return silent(which, "Send mono or stereo (ffmpeg: -c:a libopus -ac 2)");
  }
  const isAdts = coding === ADTS && bytes.length >= 7 && bytes[0] === 0xff && (bytes[1] & 0xf6) === 0xf0;
  if (isAdts && (bytes[2] & 1) === 0 && bytes[3] >> 6 === 0) {
    return silent("AAC whose headers do not say its channels (channel configuration 0)", "Send mono or stereo (ffmpeg: -c:a aac -ac 2)");
  }
  return null;
}

const silent = (which, instead) =>
  `The stream's sound is ${which}, which this page does not decode: it is silent. ${instead}, or watch it with a player: ${PLAYER}`;

// What a decoder of pictures needs first, and how encoders are made to repeat it.
const SETS = new Map([
  [H264, ["parameter sets (SPS and PPS)", "ffmpeg: -bsf:v dump_extra; GStreamer: h264parse config-interval=-1"]],
  [HEVC, ["parameter sets (VPS, SPS and PPS)", "ffmpeg: -bsf:v dump_extra; GStreamer: h265parse config-interval=-1"]],
  [PRIVATE, ["a sequence header", "ffmpeg: -bsf:v dump_extra"]],
]);

// What is said of key pictures that do not tell how they are coded.
export function withoutSets(coding) {
  const [sets, how] = SETS.get(coding);
  return `The stream's key pictures are ${nameOf(coding, false)} without ${sets}, which a decoder needs first. `
    + `Let the encoder send them with each key picture (${how}).`;
}

// What is said of a stream of which no key picture comes.
export function withoutKeys(coding, seconds) {
  const sets = coding === PRIVATE ? " with a sequence header" : "";
  return `For ${seconds} s no key picture${sets} has come, and decoding begins at one. `
    + "Let the encoder make one every 2 s (ffmpeg: -g 50; x264enc: key-int-max=50).";
}

// What shows the stream without a browser.
export const PLAYER = "ontempo receive --to - … | ffplay -";

// What is said of a codec that cannot be decoded, and what to do.
export function refusal(coding, isSound, codec) {
  const name = nameOf(coding, isSound);
  const which = codec === undefined ? name : `${name} (${codec})`;
  const who = codec === undefined ? "this page does not decode" : "this browser does not decode";
  const choice = isSound ? [ADTS, PRIVATE] : [H264, PRIVATE, HEVC];
  const others = choice.filter((one) => one !== coding).map((one) => nameOf(one, isSound));
  const encoder = isSound ? (coding === ADTS ? "-c:a libopus" : "-c:a aac") : "-c:v libx264";
  return `The stream's ${isSound ? "sound is" : "pictures are"} ${which}, which ${who}${isSound ? ": it is silent" : ""}. `
    + `Send ${others.join(" or ")} (ffmpeg: ${encoder}), or watch it with a player: ${PLAYER}`;
}
