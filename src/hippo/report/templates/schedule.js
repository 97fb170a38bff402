// Draws a played schedule on a canvas: a row per rank, its memory below it, messages as slanted lines where a link is
// slow; zoom by dragging. `data` is report/schedule_html.py's document. page.js calls it for every [data-timeline].
function hippoTimeline(root, data) {
  "use strict";
  const canvas = root.querySelector("canvas"), thumb = root.querySelector(".tl-scroll i"), pen = canvas.getContext("2d");
  const total = data.ticks, narrowest = total / 50000, AXIS = 24, chunks = data.chunks;
  const ranks = data.ranks.map(unpacked), messages = sent(data.messages);
  const slow = new Map(data.slow.map(link => [link.above, link.name]));
  let from = 0, to = total, hover = null, drag = null, marks = 0, longest = false;
  let width = 0, gutter = 0, rowH = 0, memH = 0, gapH = 0, height = 0, tops = [];

  function sums(steps) { const found = new Float64Array(steps.length); let at = 0; steps.forEach((step, i) => { found[i] = at += step; }); return found; }
  function unpacked(rank) {
    const n = rank.gap.length, start = new Float64Array(n), end = new Float64Array(n);
    let time = 0;
    for (let i = 0; i < n; i++) { start[i] = time += rank.gap[i]; end[i] = time += rank.length[i]; }
    return { name: rank.name, start, end, kind: rank.kind, chunk: rank.chunk, mb: rank.micro_batch, way: new Set(rank.way), at: sums(rank.memory_gap), held: rank.memory, top: rank.top, limit: rank.limit, agreeing: rank.agreeing };
  }
  function sent(all) {
    const start = sums(all.start);
    return Array.from(start, (left, i) => ({ left, right: left + all.length[i], sender: all.sender[i], receiver: all.receiver[i], kind: +all.kind[i], mb: all.micro_batch[i], chunk: all.chunk ? +all.chunk[i] : 0 }));
  }
  const x = t => gutter + (t - from) / (to - from) * (width - gutter);
  const timeAt = px => from + (px - gutter) / (width - gutter) * (to - from);
  const inUnits = t => t / total * data.makespan;
  const colour = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const palette = () => Object.fromEntries(["k0", "k1", "k2", "k4", "m5", "ink", "muted", "rule", "idle", "hatch", "surface", "accent", "sunken", "bad"].map(name => [name, colour("--" + name)]));
  const font = size => size + "px " + getComputedStyle(document.body).fontFamily;
  const told = v => +v.toPrecision(5) + "";

  function measure() {
    width = Math.max(260, canvas.parentElement.clientWidth); pen.font = font(12);
    gutter = Math.round(Math.max(...ranks.map(rank => pen.measureText(rank.name).width), pen.measureText("delay 5").width) + 16);
    rowH = Math.max(8, Math.min(28, Math.floor(520 / ranks.length)));
    memH = rowH >= 14 ? Math.round(rowH * 0.55) : 4;
    gapH = Math.max(14, Math.min(44, Math.floor(220 / Math.max(1, slow.size))));
    let y = AXIS;
    tops = ranks.map((rank, i) => { const top = y; y += rowH + memH + 4 + (slow.has(i) ? gapH : 0); return top; });
    height = y + 2;
    const scale = window.devicePixelRatio || 1;
    canvas.width = Math.round(width * scale); canvas.height = Math.round(height * scale); canvas.style.height = height + "px";
    pen.setTransform(scale, 0, 0, scale, 0, 0);
  }

  function draw() {
    const c = palette(); marks = 0;
    pen.clearRect(0, 0, width, height);
    const hatch = hatching(c);
    axis(c);
    ranks.forEach((rank, i) => { row(rank, i, c, hatch); memory(rank, tops[i] + rowH, c); });
    lines(c); labels(c);
    if (drag && drag.moved) {
      const left = Math.min(drag.x0, drag.x1), right = Math.max(drag.x0, drag.x1);
      pen.globalAlpha = 0.18; pen.fillStyle = c.accent; pen.fillRect(left, AXIS, right - left, height - AXIS); pen.globalAlpha = 1;
    }
    thumb.style.left = from / total * 100 + "%"; thumb.style.width = (to - from) / total * 100 + "%";
    root.dataset.marks = marks;
  }
  function hatching(c) {
    const tile = document.createElement("canvas"); tile.width = tile.height = 6;
    const t = tile.getContext("2d"); t.fillStyle = c.idle; t.fillRect(0, 0, 6, 6);
    t.strokeStyle = c.hatch; t.lineWidth = 1; t.beginPath(); t.moveTo(-1, 7); t.lineTo(7, -1); t.stroke();
    return pen.createPattern(tile, "repeat");
  }
  function agreeing(c) { // on the network after the last operation: hatched the other way
    const tile = document.createElement("canvas"); tile.width = tile.height = 6;
    const t = tile.getContext("2d"); t.fillStyle = c.sunken; t.fillRect(0, 0, 6, 6);
    t.strokeStyle = c.k4; t.lineWidth = 1.5; t.beginPath(); t.moveTo(-1, -1); t.lineTo(7, 7); t.moveTo(-1, 5); t.lineTo(1, 7); t.moveTo(5, -1); t.lineTo(7, 1); t.stroke();
    return pen.createPattern(tile, "repeat");
  }
  function axis(c) {
    const raw = inUnits(to - from) / Math.max(2, (width - gutter) / 90), power = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 5, 10].map(f => f * power).find(v => v >= raw * 0.999), places = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
    pen.font = font(11); pen.textBaseline = "alphabetic"; pen.fillStyle = c.muted; pen.strokeStyle = c.rule; pen.lineWidth = 1;
    for (let i = Math.ceil(inUnits(from) / step - 1e-9); i * step <= inUnits(to) + step * 1e-6; i++) {
      const at = Math.round(x(i * step / data.makespan * total)) + 0.5, text = places > 9 ? (i * step).toExponential(1) : (i * step).toFixed(places), w = pen.measureText(text).width;
      pen.beginPath(); pen.moveTo(at, AXIS - 6); pen.lineTo(at, height); pen.stroke();
      pen.fillText(text, Math.max(gutter, Math.min(at - w / 2, width - w - 1)), AXIS - 10);
    }
  }
  function firstAfter(ends, time) {
    let low = 0, high = ends.length;
    while (low < high) { const mid = (low + high) >> 1; if (ends[mid] <= time) low = mid + 1; else high = mid; }
    return low;
  }
  function row(rank, index, c, hatch) {
    const top = tops[index], perTick = (width - gutter) / (to - from);
    pen.save(); pen.beginPath(); pen.rect(gutter, top, width - gutter, rowH); pen.clip();
    pen.fillStyle = hatch; pen.fillRect(gutter, top, x(total) - gutter, rowH);
    if (rank.agreeing && rank.agreeing[0] < to && rank.agreeing[1] > from) {
      pen.fillStyle = agreeing(c); pen.fillRect(x(rank.agreeing[0]), top, (rank.agreeing[1] - rank.agreeing[0]) * perTick, rowH);
      marks++;
    }
    const first = firstAfter(rank.end, from);
    let last = first;
    while (last < rank.start.length && rank.start[last] < to) last++;
    marks += last - first;
    const dense = last > first && (rank.end[last - 1] - rank.start[first]) * perTick / (last - first) < 4;
    if (dense) shares(rank, first, last, top, c);
    else for (let i = first; i < last; i++) operation(rank, i, top, perTick, c);
    pen.globalAlpha = 1; pen.restore();
  }
  function operation(rank, i, top, perTick, c) {
    const left = x(rank.start[i]), w = Math.max((rank.end[i] - rank.start[i]) * perTick, 0.75), room = Math.max(w - (w > 5 ? 1 : w > 3 ? 0.5 : 0), 0.75);
    const faint = hover && hover.mb >= 0 ? rank.mb[i] !== hover.mb : longest && !rank.way.has(i);
    pen.globalAlpha = faint ? 0.25 : 1;
    pen.fillStyle = c["k" + rank.kind[i]]; pen.fillRect(left, top, room, rowH);
    const chunk = rank.chunk ? +rank.chunk[i] : 0;
    if (chunk) { pen.globalAlpha *= 0.42 * chunk / (chunks - 1); pen.fillStyle = c.surface; pen.fillRect(left, top, room, rowH); pen.globalAlpha = faint ? 0.25 : 1; }
    if (rowH < 12) return;
    const text = rank.mb[i] + ""; pen.font = font(10.5);
    if (pen.measureText(text).width + 4 < w) {
      pen.fillStyle = chunk ? c.ink : ink(c["k" + rank.kind[i]]); pen.textBaseline = "middle";
      pen.fillText(text, Math.max(left, gutter) + 2.5, top + rowH / 2 + 0.5);
    }
  }
  function ink(hex) { // black or white, whichever stands out on the colour
    const [r, g, b] = [1, 3, 5].map(i => parseInt(hex.slice(i, i + 2), 16) / 255).map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.19 ? "#101216" : "#ffffff";
  }
  // Too fine to draw one by one: every pixel column shows the share of each kind, stacked; what is left is idle.
  function shares(rank, first, last, top, c) {
    const columns = Math.ceil(width - gutter), perTick = columns / (to - from), filled = [0, 1, 2].map(() => new Float32Array(columns));
    for (let i = first; i < last; i++) {
      const a = (rank.start[i] - from) * perTick, b = (rank.end[i] - from) * perTick, bins = filled[+rank.kind[i]];
      for (let px = Math.max(0, Math.floor(a)); px <= Math.min(columns - 1, Math.floor(b)); px++) bins[px] += Math.max(0, Math.min(b, px + 1) - Math.max(a, px));
    }
    for (let px = 0; px < columns; px++) {
      let y = top + rowH;
      for (let kind = 0; kind < 3; kind++) {
        const part = Math.min(filled[kind][px], 1) * rowH;
        if (part > 0.02) { pen.fillStyle = c["k" + kind]; pen.fillRect(gutter + px, y - part, 1, part); y -= part; }
      }
    }
  }
  function memory(rank, top, c) { // filled steps; a line where the limit is
    pen.save(); pen.beginPath(); pen.rect(gutter, top, width - gutter, memH + 1); pen.clip();
    pen.fillStyle = c.sunken; pen.fillRect(gutter, top, x(total) - gutter, memH);
    const y = held => top + memH - held / rank.top * (memH - 1);
    let i = Math.max(0, firstAfter(rank.at, from) - 1);
    pen.beginPath(); pen.moveTo(x(rank.at[i]), top + memH);
    for (; i < rank.at.length && rank.at[i] < to; i++) {
      pen.lineTo(x(rank.at[i]), y(rank.held[i]));
      pen.lineTo(x(i + 1 < rank.at.length ? rank.at[i + 1] : total), y(rank.held[i]));
    }
    pen.lineTo(Math.min(x(total), width), top + memH); pen.closePath();
    pen.fillStyle = c.muted; pen.globalAlpha = 0.6; pen.fill(); pen.globalAlpha = 1;
    if (rank.limit) { pen.strokeStyle = c.bad; pen.lineWidth = 1; pen.beginPath(); pen.moveTo(gutter, Math.round(y(rank.limit)) + 0.5); pen.lineTo(x(total), Math.round(y(rank.limit)) + 0.5); pen.stroke(); }
    pen.restore();
  }
  // Messages over slow links, from the row that sends to the row that receives; of a micro-batch in view, all of them.
  function lines(c) {
    const shown = messages.filter(m => m.right >= from && m.left <= to && (hover && hover.mb >= 0 ? m.mb === hover.mb : Math.abs(m.sender - m.receiver) === 1 && slow.has(Math.min(m.sender, m.receiver))));
    pen.save(); pen.beginPath(); pen.rect(gutter, AXIS, width - gutter, height); pen.clip();
    const alpha = hover && hover.mb >= 0 ? 1 : Math.max(0.25, Math.min(0.9, 12 * (width - gutter) / (shown.length + 1) / 100));
    for (const m of shown) {
      const down = m.sender < m.receiver;
      pen.globalAlpha = alpha; pen.strokeStyle = c["k" + m.kind]; pen.lineWidth = hover && hover.mb >= 0 ? 1.8 : 1.1;
      pen.beginPath(); pen.moveTo(x(m.left), down ? tops[m.sender] + rowH + memH : tops[m.sender]); pen.lineTo(x(m.right), down ? tops[m.receiver] : tops[m.receiver] + rowH + memH); pen.stroke();
      marks++;
    }
    pen.globalAlpha = 1; pen.restore();
  }
  function labels(c) {
    const every = Math.ceil(11 / (rowH + memH + 4));
    pen.textBaseline = "middle";
    ranks.forEach((rank, i) => {
      pen.fillStyle = c.ink; pen.font = font(rowH >= 12 ? 12 : 9);
      if (i % every === 0) pen.fillText(rank.name, 0, tops[i] + rowH / 2);
      if (slow.has(i)) { pen.fillStyle = c.bad; pen.font = font(10.5); pen.fillText(slow.get(i), 0, tops[i] + rowH + memH + gapH / 2 + 1); }
    });
  }

  function at(px, py) {
    const time = timeAt(px);
    if (px < gutter || time > total || time < 0) return null;
    const i = tops.findIndex(top => py >= top && py < top + rowH + memH + 2);
    if (i < 0) return null;
    const rank = ranks[i], k = firstAfter(rank.end, time);
    const step = firstAfter(rank.at, time) - 1, held = "memory " + told(step >= 0 ? rank.held[step] : 0) + (rank.limit ? " of " + told(rank.limit) : "");
    if (rank.agreeing && time >= rank.agreeing[0] && time < rank.agreeing[1]) return { mb: -1, text: rank.name + "\nagreeing gradients\n" + told(inUnits(rank.agreeing[0])) + " to " + told(inUnits(rank.agreeing[1])) + "\n" + held };
    if (k >= rank.start.length || rank.start[k] > time) return { mb: -1, text: rank.name + "\nidle at " + told(inUnits(time)) + "\n" + held };
    const chunk = rank.chunk ? ", chunk " + rank.chunk[k] : "";
    return { mb: rank.mb[k], text: rank.name + "\n" + data.kinds[+rank.kind[k]] + " of micro-batch " + rank.mb[k] + chunk + "\n" + told(inUnits(rank.start[k])) + " to " + told(inUnits(rank.end[k])) + "\n" + held };
  }

  function view(a, b) {
    const span = Math.min(total, Math.max(narrowest, b - a));
    from = Math.max(0, Math.min(a, total - span)); to = from + span; draw();
  }
  const zoom = factor => { const mid = (from + to) / 2, half = (to - from) / 2 * factor; view(mid - half, mid + half); };
  const most = Math.max(1, ...ranks.map(rank => rank.start.length));
  const near = () => to - from < total * 0.9 ? to - from : total * Math.min(0.5, 50 / most);
  const pan = share => view(from + (to - from) * share, to + (to - from) * share);
  const place = event => { const box = canvas.getBoundingClientRect(); return [event.clientX - box.left, event.clientY - box.top]; };
  canvas.addEventListener("pointerdown", e => { const [px] = place(e); if (px >= gutter && e.pointerType !== "touch") drag = { x0: px, x1: px, moved: false }; });
  canvas.addEventListener("pointermove", e => {
    const [px, py] = place(e);
    if (drag) { drag.x1 = Math.max(gutter, Math.min(px, width)); drag.moved = Math.abs(drag.x1 - drag.x0) > 4; draw(); return; }
    const found = at(px, py), changed = (found ? found.mb : -1) !== (hover ? hover.mb : -1);
    hover = found; hippoTip(found && found.text, e.clientX, e.clientY);
    if (changed) draw();
  });
  window.addEventListener("pointerup", () => {
    if (!drag) return;
    const { x0, x1, moved } = drag; drag = null;
    if (moved) view(timeAt(Math.min(x0, x1)), timeAt(Math.max(x0, x1))); else draw();
  });
  canvas.addEventListener("pointerleave", () => { hover = null; hippoTip(null); draw(); });
  canvas.addEventListener("dblclick", () => view(0, total));
  canvas.addEventListener("keydown", e => {
    const act = { ArrowLeft: () => pan(-0.2), ArrowRight: () => pan(0.2), "+": () => zoom(0.5), "=": () => zoom(0.5), "-": () => zoom(2), "0": () => view(0, total), Home: () => view(0, to - from), End: () => view(total - (to - from), total) }[e.key];
    if (act) { act(); e.preventDefault(); }
  });
  root.querySelectorAll("[data-do]").forEach(button => button.addEventListener("click", () => {
    ({ in: () => zoom(0.5), out: () => zoom(2), all: () => view(0, total), start: () => view(0, near()), end: () => view(total - near(), total), way: () => { longest = !longest; button.setAttribute("aria-pressed", longest); draw(); } })[button.dataset.do]();
  }));
  let grip = null;
  thumb.addEventListener("pointerdown", e => { grip = { x: e.clientX, from }; thumb.setPointerCapture(e.pointerId); });
  thumb.addEventListener("pointermove", e => { if (grip) { const left = grip.from + (e.clientX - grip.x) / thumb.parentElement.clientWidth * total; view(left, left + to - from); } });
  thumb.addEventListener("pointerup", () => { grip = null; });
  const again = () => { measure(); draw(); };
  window.addEventListener("resize", again);
  document.addEventListener("hippo-theme", draw);
  window.addEventListener("beforeprint", again); window.addEventListener("afterprint", again);
  again();
}
