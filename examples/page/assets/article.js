// One of both pages: its text, its pictures, and how much of them is shown.

// Bytes before the runs of what is painted, and of a run; crates' docs of `Paint` have the fields.
const HEAD = 8;
const RUN = 10;

// What is painted, of a message of bytes.
export function parse(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const runs = [];
  let at = HEAD;
  for (let left = view.getUint16(6); left > 0; left -= 1, at += RUN) {
    const [from, x, y, width, height] = [0, 2, 4, 6, 8].map((place) => view.getUint16(at + place));
    runs.push({ from, x, y, width, height });
  }
  const lane = view.getUint8(1);
  return { lane, isFinal: view.getUint8(2) === 1, picture: view.getUint16(4), runs, jpeg: bytes.subarray(at) };
}

export class Article {
  constructor(name) {
    this.name = name;
    this.element = document.getElementById(name);
    this.begin(performance.now());
  }

  begin(now) {
    this.begun = now;
    this.element.replaceChildren();
    this.pictures = [];
    this.pixels = 0;
    this.shown = 0;
    this.sharp = 0;
    // Time since the beginning and pixels shown, of each painting; and pixels that stay as they are.
    this.curve = [];
    this.sharpCurve = [];
    this.whole = null;
    this.failed = 0;
    // Whatever was begun before is not painted any more.
    this.load = {};
  }

  describe(page) {
    const title = document.createElement("h3");
    title.textContent = page.title;
    const text = document.createElement("p");
    text.textContent = page.text;
    this.element.append(title, text);
    for (const { alt, width, height } of page.pictures) {
      const canvas = document.createElement("canvas");
      Object.assign(canvas, { width, height });
      canvas.setAttribute("role", "img");
      canvas.setAttribute("aria-label", alt);
      this.element.append(canvas);
      this.pictures.push({ canvas, last: Promise.resolve(), isShown: false });
      this.pixels += width * height;
    }
  }

  // Decodes a piece, and paints it: pieces of a picture one after the other, as scans refine each other.
  paint({ picture: number, isFinal, runs, jpeg }) {
    const picture = this.pictures[number];
    const { load } = this;
    const decoded = createImageBitmap(new Blob([jpeg], { type: "image/jpeg" }));
    decoded.catch(() => {});
    picture.last = picture.last.then(async () => {
      try {
        const bitmap = await decoded;
        if (load !== this.load) return;
        const context = picture.canvas.getContext("2d", { willReadFrequently: true });
        let pixels = 0;
        for (const { from, x, y, width, height } of runs) {
          context.drawImage(bitmap, from, 0, width, height, x, y, width, height);
          pixels += width * height;
        }
        bitmap.close();
        this.count(picture, pixels, isFinal);
      } catch {
        this.failed += 1;
      }
    });
  }

  count(picture, pixels, isFinal) {
    const now = performance.now() - this.begun;
    const isScan = pixels === picture.canvas.width * picture.canvas.height;
    // Of a progressive picture the first scan shows something of all pixels, and the last all of them.
    if (!isScan || !picture.isShown) this.shown += pixels;
    picture.isShown ||= isScan;
    this.curve.push([now, this.shown]);
    if (isFinal) {
      this.sharp += pixels;
      this.sharpCurve.push([now, this.sharp]);
    }
  }

  isPainted() {
    return this.pixels > 0 && this.sharp === this.pixels;
  }

  // Milliseconds until a share of the pixels was shown.
  timeTo(share) {
    const found = this.curve.find(([, pixels]) => pixels >= share * this.pixels);
    return this.pixels > 0 && found ? found[0] : null;
  }

  times() {
    const sharp = this.isPainted() ? this.sharpCurve.at(-1)[0] : null;
    return { 50: this.timeTo(0.5), 90: this.timeTo(0.9), 100: this.timeTo(1), sharp };
  }
}
