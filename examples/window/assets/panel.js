// The path as it is set on the page, and the numbers that both pages show.

const LEAST_RATE = 100;
const MOST_RATE = 100000;
const STEPS = 60;

const rateOf = (step) => {
  const rate = LEAST_RATE * (MOST_RATE / LEAST_RATE) ** (step / STEPS);
  return Number(rate.toPrecision(2));
};
const stepOf = (rate) => Math.round(STEPS * Math.log(rate / LEAST_RATE) / Math.log(MOST_RATE / LEAST_RATE));
const shownRate = (rate) => (rate < 1000 ? `${rate} kbit/s` : `${rate / 1000} Mbit/s`);

const FIELDS = [
  { key: "loss_percent", label: "Loss", max: 30, step: 0.5, show: (value) => `${value} %` },
  { key: "round_trip_ms", label: "Round trip", max: 2000, step: 10, show: (value) => `${value} ms` },
  { key: "rate_kbps", label: "Rate", max: STEPS, step: 1, show: shownRate, from: rateOf, to: stepOf },
];

// Fills `form` with a slider for each field; `onChange(impairment)` when one was moved. Returns what sets them.
export function panel(form, onChange) {
  const sliders = FIELDS.map((field) => {
    const label = document.createElement("label");
    const name = document.createElement("span");
    name.textContent = field.label;
    const output = document.createElement("output");
    const slider = document.createElement("input");
    Object.assign(slider, { type: "range", min: 0, max: field.max, step: field.step, id: field.key });
    output.htmlFor = field.key;
    label.append(name, output, slider);
    form.append(label);
    const value = () => (field.from ?? Number)(Number(slider.value));
    slider.addEventListener("input", () => { output.textContent = field.show(value()); });
    slider.addEventListener("change", () => {
      onChange(Object.fromEntries(sliders.map((one) => [one.key, one.value()])));
    });
    const set = (given) => {
      if (document.activeElement === slider && value() === given) return;
      slider.value = (field.to ?? Number)(given);
      output.textContent = field.show(given);
    };
    return { key: field.key, value, set };
  });
  form.addEventListener("submit", (event) => event.preventDefault());
  return (impairment) => sliders.forEach((one) => one.set(impairment[one.key]));
}

// A share of values, `null` without any.
export function quantile(values, share) {
  if (values.length === 0) return null;
  const sorted = Float64Array.from(values).sort();
  return sorted[Math.floor((sorted.length - 1) * share)];
}

export function milliseconds(value) {
  if (value === null || value === undefined) return "–";
  return value < 10000 ? `${Math.round(value)} ms` : `${(value / 1000).toFixed(1)} s`;
}

export function put(id, text) {
  const element = document.getElementById(id);
  if (element.textContent !== text) element.textContent = text;
}

// Prepares a canvas that is as wide as it is shown; its context, with CSS pixels.
export function plot(canvas) {
  const ratio = window.devicePixelRatio || 1;
  const { clientWidth: width, clientHeight: height } = canvas;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  const context = canvas.getContext("2d");
  context.scale(ratio, ratio);
  const colours = getComputedStyle(canvas);
  return { context, width, height, colour: (name) => colours.getPropertyValue(name).trim() };
}

// The SHA-256 of a canvas's pixels, in hexadecimal digits.
export async function hashOf(canvas) {
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", data));
  return Array.from(digest, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
