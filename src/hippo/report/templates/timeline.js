// The timeline of a played step and of a played schedule: a canvas of rows over one axis of time, zoomed by dragging, by
// buttons and by keys. `picture` says what is drawn: `ticks` in all, `span` of them in the unit of the axis, `label(value,
// step)` of its marks, `most` operations in a row, `acts` of further buttons, and
//   layout(view): lays the rows out, returns [gutter, height];  paint(colours, hatch): the rows;  at(x, y): what is there.
// step.js and schedule.js define hippoTimeline with it; page.js calls that for every [data-timeline].
function hippoRows(root, picture) {
  "use strict";
  const canvas = root.querySelector("canvas"), thumb = root.querySelector(".tl-scroll i"), pen = canvas.getContext("2d");
  const total = picture.ticks, narrowest = total / 50000, AXIS = 24;
  const v = { pen, from: 0, to: total, hover: null, marks: 0, width: 0, gutter: 0, height: 0, top: AXIS };
  let drag = null, grip = null;

  v.x = t => v.gutter + (t - v.from) / (v.to - v.from) * (v.width - v.gutter);
  v.timeAt = px => v.from + (px - v.gutter) / (v.width - v.gutter) * (v.to - v.from);
  v.colour = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  v.font = size => size + "px " + getComputedStyle(document.body).fontFamily;
  const NAMES = ["k0", "k1", "k2", "k3", "k4", "ink", "muted", "rule", "idle", "hatch", "surface", "accent", "sunken", "bad"];
  const palette = () => Object.fromEntries(NAMES.map(name => [name, v.colour("--" + name)]));
  v.sums = steps => { const found = new Float64Array(steps.length); let at = 0; steps.forEach((step, i) => { found[i] = at += step; }); return found; };
  v.spans = (gap, length) => { // of operations told as the gap before and the length
    const n = gap.length, start = new Float64Array(n), end = new Float64Array(n);
    let time = 0;
    for (let i = 0; i < n; i++) { start[i] = time += gap[i]; end[i] = time += length[i]; }
    return { start, end };
  };
  v.firstAfter = (ends, time) => {
    let low = 0, high = ends.length;
    while (low < high) { const mid = (low + high) >> 1; if (ends[mid] <= time) low = mid + 1; else high = mid; }
    return low;
  };
  v.ink = hex => { // black or white, whichever stands out on the colour
    const [r, g, b] = [1, 3, 5].map(i => parseInt(hex.slice(i, i + 2), 16) / 255).map(s => s <= 0.03928 ? s / 12.92 : ((s + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.19 ? "#101216" : "#ffffff";
  };
  v.hatching = (ground, ink, wide, falling) => {
    const tile = document.createElement("canvas"); tile.width = tile.height = 6;
    const t = tile.getContext("2d"); t.fillStyle = ground; t.fillRect(0, 0, 6, 6);
    t.strokeStyle = ink; t.lineWidth = wide; t.beginPath();
    if (falling) { t.moveTo(-1, -1); t.lineTo(7, 7); t.moveTo(-1, 5); t.lineTo(1, 7); t.moveTo(5, -1); t.lineTo(7, 1); }
    else { t.moveTo(-1, 7); t.lineTo(7, -1); }
    t.stroke();
    return pen.createPattern(tile, "repeat");
  };
  v.clipped = (top, h, act) => { pen.save(); pen.beginPath(); pen.rect(v.gutter, top, v.width - v.gutter, h); pen.clip(); act(); pen.globalAlpha = 1; pen.restore(); };
  // Operations first to last of a row; too fine to draw one by one, every pixel column shows the share of each kind, stacked;
  // what is left is idle. `one(i, left, width)` draws one; `mixed[i]` (if any) has the ticks of each kind in a block.
  v.operations = (rank, top, h, c, one) => {
    const first = v.firstAfter(rank.end, v.from), perTick = (v.width - v.gutter) / (v.to - v.from), mixed = rank.mixed || [];
    let last = first;
    while (last < rank.start.length && rank.start[last] < v.to) last++;
    v.marks += last - first;
    const dense = last > first && (rank.end[last - 1] - rank.start[first]) * perTick / (last - first) < 4;
    if (!dense && !mixed.length) {
      for (let i = first; i < last; i++) one(i, v.x(rank.start[i]), Math.max((rank.end[i] - rank.start[i]) * perTick, 0.75));
      return;
    }
    const columns = Math.ceil(v.width - v.gutter), perColumn = columns / (v.to - v.from), filled = [0, 1, 2, 3, 4].map(() => new Float32Array(columns));
    const spread = (bins, a, b, weight) => {
      for (let px = Math.max(0, Math.floor(a)); px <= Math.min(columns - 1, Math.floor(b)); px++) bins[px] += Math.max(0, Math.min(b, px + 1) - Math.max(a, px)) * weight;
    };
    for (let i = first; i < last; i++) {
      const a = (rank.start[i] - v.from) * perColumn, b = (rank.end[i] - v.from) * perColumn, span = rank.end[i] - rank.start[i] || 1;
      if (mixed.length) mixed[i].forEach((ticks, kind) => { if (ticks) spread(filled[kind], a, b, ticks / span); });
      else spread(filled[+rank.kind[i]], a, b, 1);
    }
    for (let px = 0; px < columns; px++) {
      let y = top + h;
      filled.forEach((bins, kind) => {
        const part = Math.min(bins[px], 1) * h;
        if (part > 0.02) { pen.fillStyle = c["k" + kind]; pen.fillRect(v.gutter + px, y - part, 1, part); y -= part; }
      });
    }
  };
  v.numbered = (text, left, top, w, h, ink) => { // a micro-batch on its operation, where there is room
    pen.font = v.font(10.5);
    if (h < 12 || pen.measureText(text).width + 5 >= w) return;
    pen.fillStyle = ink; pen.textBaseline = "middle"; pen.fillText(text, Math.max(left, v.gutter) + 3, top + h / 2 + 0.5);
  };

  function measure() {
    v.width = Math.max(260, canvas.parentElement.clientWidth); pen.font = v.font(12);
    [v.gutter, v.height] = picture.layout(v);
    const scale = window.devicePixelRatio || 1;
    canvas.width = Math.round(v.width * scale); canvas.height = Math.round(v.height * scale);
    canvas.style.height = v.height + "px";
    pen.setTransform(scale, 0, 0, scale, 0, 0);
  }
  v.draw = () => {
    const c = palette(); v.marks = 0;
    pen.clearRect(0, 0, v.width, v.height);
    axis(c);
    picture.paint(c, v.hatching(c.idle, c.hatch, 1));
    if (drag && drag.moved) {
      const left = Math.min(drag.x0, drag.x1), right = Math.max(drag.x0, drag.x1);
      pen.globalAlpha = 0.18; pen.fillStyle = c.accent; pen.fillRect(left, AXIS, right - left, v.height - AXIS); pen.globalAlpha = 1;
    }
    thumb.style.left = v.from / total * 100 + "%"; thumb.style.width = (v.to - v.from) / total * 100 + "%";
    root.dataset.marks = v.marks;
  };
  function axis(c) { // round marks; `span` is the whole in the unit of the axis
    const inUnits = t => t / total * picture.span, raw = inUnits(v.to - v.from) / Math.max(2, (v.width - v.gutter) / 110), power = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 5, 10].map(f => f * power).find(each => each >= raw * 0.999);
    pen.font = v.font(11); pen.textBaseline = "alphabetic"; pen.fillStyle = c.muted; pen.strokeStyle = c.rule; pen.lineWidth = 1;
    for (let i = Math.ceil(inUnits(v.from) / step - 1e-9); i * step <= inUnits(v.to) + step * 1e-6; i++) {
      const at = Math.round(v.x(i * step / picture.span * total)) + 0.5, text = picture.label(i * step, step), w = pen.measureText(text).width;
      pen.beginPath(); pen.moveTo(at, AXIS - 6); pen.lineTo(at, v.height); pen.stroke();
      pen.fillText(text, Math.max(v.gutter, Math.min(at - w / 2, v.width - w - 1)), AXIS - 10);
    }
  }

  function view(a, b) {
    const span = Math.min(total, Math.max(narrowest, b - a));
    v.from = Math.max(0, Math.min(a, total - span)); v.to = v.from + span; v.draw();
  }
  const zoom = factor => { const mid = (v.from + v.to) / 2, half = (v.to - v.from) / 2 * factor; view(mid - half, mid + half); };
  // How much of it the start and the end show: as now where it is zoomed in, else some fifty operations of a rank.
  const near = () => v.to - v.from < total * 0.9 ? v.to - v.from : total * Math.min(0.5, 50 / picture.most);
  const pan = share => view(v.from + (v.to - v.from) * share, v.to + (v.to - v.from) * share);
  const place = event => { const box = canvas.getBoundingClientRect(); return [event.clientX - box.left, event.clientY - box.top]; };
  canvas.addEventListener("pointerdown", e => { const [px] = place(e); if (px >= v.gutter && e.pointerType !== "touch") drag = { x0: px, x1: px, moved: false }; });
  canvas.addEventListener("pointermove", e => {
    const [px, py] = place(e);
    if (drag) { drag.x1 = Math.max(v.gutter, Math.min(px, v.width)); drag.moved = Math.abs(drag.x1 - drag.x0) > 4; v.draw(); return; }
    const found = picture.at(px, py), changed = (found ? found.mb : -1) !== (v.hover ? v.hover.mb : -1);
    v.hover = found; hippoTip(found && found.text, e.clientX, e.clientY);
    if (changed) v.draw();
  });
  window.addEventListener("pointerup", () => {
    if (!drag) return;
    const { x0, x1, moved } = drag; drag = null;
    if (moved) view(v.timeAt(Math.min(x0, x1)), v.timeAt(Math.max(x0, x1))); else v.draw();
  });
  canvas.addEventListener("pointerleave", () => { v.hover = null; hippoTip(null); v.draw(); });
  canvas.addEventListener("dblclick", () => view(0, total));
  canvas.addEventListener("keydown", e => {
    const act = { ArrowLeft: () => pan(-0.2), ArrowRight: () => pan(0.2), "+": () => zoom(0.5), "=": () => zoom(0.5), "-": () => zoom(2), "0": () => view(0, total), Home: () => view(0, v.to - v.from), End: () => view(total - (v.to - v.from), total) }[e.key];
    if (act) { act(); e.preventDefault(); }
  });
  root.querySelectorAll("[data-do]").forEach(button => button.addEventListener("click", () => {
    ({ in: () => zoom(0.5), out: () => zoom(2), all: () => view(0, total), start: () => view(0, near()), end: () => view(total - near(), total), ...picture.acts })[button.dataset.do](button);
  }));
  thumb.addEventListener("pointerdown", e => { grip = { x: e.clientX, from: v.from }; thumb.setPointerCapture(e.pointerId); });
  thumb.addEventListener("pointermove", e => { if (grip) { const at = grip.from + (e.clientX - grip.x) / thumb.parentElement.clientWidth * total; view(at, at + v.to - v.from); } });
  thumb.addEventListener("pointerup", () => { grip = null; });
  const again = () => { measure(); v.draw(); };
  window.addEventListener("resize", again);
  document.addEventListener("hippo-theme", v.draw);
  window.addEventListener("beforeprint", again); window.addEventListener("afterprint", again);
  again();
  return v;
}
