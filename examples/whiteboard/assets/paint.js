// Paints objects. Nothing is painted outside an object's bounds, so that those which do not touch may be painted in any order.

export const WIDTH = 800;
export const HEIGHT = 500;

export function paint(context, object, bounds) {
  context.save();
  if (bounds) {
    context.beginPath();
    context.rect(bounds.left, bounds.top, bounds.right - bounds.left, bounds.bottom - bounds.top);
    context.clip();
  }
  context.fillStyle = object.colour ?? "#ffffff";
  if (object.kind === "wipe") {
    context.fillRect(0, 0, WIDTH, HEIGHT);
  } else if (object.kind === "rectangle") {
    const [[x, y], [right, bottom]] = [object.from, object.to];
    context.fillRect(Math.min(x, right), Math.min(y, bottom), Math.abs(right - x), Math.abs(bottom - y));
  } else if (object.kind === "text") {
    context.font = `${object.size}px system-ui, sans-serif`;
    context.textBaseline = "top";
    const [x, y] = object.at;
    context.fillText(object.text, x, y);
  } else {
    const [[x, y], ...others] = object.points;
    context.strokeStyle = object.colour;
    context.lineWidth = object.width;
    context.lineCap = "round";
    context.lineJoin = "round";
    context.beginPath();
    context.moveTo(x, y);
    // A line to where it begins is a dot.
    for (const [nextX, nextY] of others.length > 0 ? others : [[x, y]]) context.lineTo(nextX, nextY);
    context.stroke();
  }
  context.restore();
}
