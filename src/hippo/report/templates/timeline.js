// Draws one played step on a canvas: a row per rank, a row per link, zoom by dragging. `data` is panels/timeline.py's document.
function hippoTimeline(root, data) {
  "use strict";
  const canvas = root.querySelector("canvas"), thumb = root.querySelector(".tl-scroll i");
  const pen = canvas.getContext("2d");
  const ranks = data.ranks.map(unpackRank), links = data.links.map(unpackLink);
  const total = data.ticks, narrowest = total / 50000;
  let from = 0, to = total, hover = null, drag = null, marks = 0;
  let width = 0, gutter = 0, rowH = 0, linkH = 0, linkTop = 0, height = 0, rowTops = [];
  const AXIS = 24, MIXED = 5;

  function unpackRank(rank) {
    const n = rank.gap.length, start = new Float64Array(n), end = new Float64Array(n);
    let time = 0;
    for (let i = 0; i < n; i++) { start[i] = time += rank.gap[i]; end[i] = time += rank.length[i]; }
    return { name: rank.name, short: rank.short, domain: rank.domain, colour: rank.colour, pipeline: rank.pipeline, start, end, kind: rank.kind, mb: rank.micro_batch, mixed: rank.mixed };
  }
  function unpackLink(link) {
    const n = link.start.length, start = new Float64Array(n), end = new Float64Array(n);
    let time = 0, longest = 0;
    for (let i = 0; i < n; i++) { start[i] = time += link.start[i]; end[i] = time + link.length[i]; longest = Math.max(longest, link.length[i]); }
    return { name: link.from + " → " + link.to, from: link.from, to: link.to, start, end, longest, kind: link.kind, mb: link.micro_batch, size: link.mb, every: link.every };
  }
  const x = t => gutter + (t - from) / (to - from) * (width - gutter);
  const timeAt = px => from + (px - gutter) / (width - gutter) * (to - from);
  const colour = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  function palette() {
    const names = ["--k0", "--k1", "--k2", "--k3", "--k4", "--ink", "--muted", "--rule", "--idle", "--hatch", "--surface", "--accent", "--sunken"];
    return Object.fromEntries(names.map(name => [name.slice(2), colour(name)]));
  }
  function seconds(s) {
    const a = Math.abs(s), f = (v, u) => (v >= 100 ? v.toFixed(0) : v >= 10 ? v.toFixed(1) : v.toFixed(2)) + " " + u;
    return a === 0 ? "0 s" : a >= 1 ? f(s, "s") : a >= 1e-3 ? f(s * 1e3, "ms") : f(s * 1e6, "µs");
  }
  const inSeconds = t => t / total * data.step_s;

  function measure() {
    width = Math.max(260, canvas.parentElement.clientWidth);
    pen.font = "12px " + getComputedStyle(document.body).fontFamily;
    const names = ranks.map(r => r.name).concat(links.map(l => l.name));
    const widest = Math.max(...names.map(n => pen.measureText(n).width));
    gutter = Math.round(Math.min(widest + 18, width * (width < 560 ? 0.3 : 0.24)));
    rowH = Math.max(8, Math.min(28, Math.floor(620 / ranks.length)));
    linkH = Math.max(8, Math.min(20, Math.floor(330 / Math.max(1, links.length))));
    let y = AXIS;
    rowTops = ranks.map((rank, i) => {
      if (i > 0 && (rank.domain !== ranks[i - 1].domain || rank.pipeline !== ranks[i - 1].pipeline)) y += rank.pipeline !== ranks[i - 1].pipeline ? 8 : 3;
      const top = y; y += rowH; return top;
    });
    linkTop = y + (links.length ? 22 : 0);
    height = linkTop + links.length * linkH + 4;
    const scale = window.devicePixelRatio || 1;
    canvas.width = Math.round(width * scale); canvas.height = Math.round(height * scale);
    canvas.style.height = height + "px";
    pen.setTransform(scale, 0, 0, scale, 0, 0);
  }

  function draw() {
    const c = palette(); marks = 0;
    pen.clearRect(0, 0, width, height);
    const hatch = hatching(c);
    axis(c);
    ranks.forEach((rank, i) => row(rank, rowTops[i], c, hatch));
    if (links.length) {
      pen.fillStyle = c.muted; pen.font = font(11); pen.textBaseline = "alphabetic";
      pen.fillText("messages between domains", gutter, linkTop - 7);
    }
    links.forEach((link, i) => messages(link, linkTop + i * linkH, c));
    labels(c);
    ranks.forEach((rank, i) => { pen.fillStyle = colour(rank.colour); pen.fillRect(gutter - 5, rowTops[i], 3, rowH - 2); });
    if (drag && drag.moved) {
      const left = Math.min(drag.x0, drag.x1), right = Math.max(drag.x0, drag.x1);
      pen.globalAlpha = 0.18; pen.fillStyle = c.accent; pen.fillRect(left, AXIS, right - left, height - AXIS); pen.globalAlpha = 1;
    }
    thumb.style.left = from / total * 100 + "%"; thumb.style.width = (to - from) / total * 100 + "%";
    root.dataset.marks = marks;
  }
  const font = size => size + "px " + getComputedStyle(document.body).fontFamily;
  function hatching(c) {
    const tile = document.createElement("canvas"); tile.width = tile.height = 6;
    const t = tile.getContext("2d"); t.fillStyle = c.idle; t.fillRect(0, 0, 6, 6);
    t.strokeStyle = c.hatch; t.lineWidth = 1; t.beginPath(); t.moveTo(-1, 7); t.lineTo(7, -1); t.stroke();
    return pen.createPattern(tile, "repeat");
  }
  function axis(c) {
    const span = inSeconds(to - from), raw = span / Math.max(2, (width - gutter) / 110), power = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 5, 10].map(f => f * power).find(v => v >= raw * 0.999);
    pen.font = font(11); pen.textBaseline = "alphabetic"; pen.fillStyle = c.muted; pen.strokeStyle = c.rule; pen.lineWidth = 1;
    for (let v = Math.ceil(inSeconds(from) / step) * step; v <= inSeconds(to) + step * 1e-6; v += step) {
      const at = Math.round(x(v / data.step_s * total)) + 0.5;
      pen.beginPath(); pen.moveTo(at, AXIS - 6); pen.lineTo(at, height); pen.stroke();
      const text = label(v, step), w = pen.measureText(text).width;
      pen.fillText(text, Math.max(gutter, Math.min(at - w / 2, width - w - 1)), AXIS - 10);
    }
  }
  function label(v, step) {
    if (Math.abs(v) < step * 1e-6) return "0 s";
    const unit = step >= 0.1 ? [1, "s"] : step >= 1e-4 ? [1e3, "ms"] : [1e6, "µs"];
    const places = Math.max(0, Math.min(6, -Math.floor(Math.log10(step * unit[0]) + 1e-9)));
    return (v * unit[0]).toFixed(places) + " " + unit[1];
  }
  function firstAfter(ends, time) {
    let low = 0, high = ends.length;
    while (low < high) { const mid = (low + high) >> 1; if (ends[mid] <= time) low = mid + 1; else high = mid; }
    return low;
  }
  function row(rank, top, c, hatch) {
    const h = rowH - 2, perTick = (width - gutter) / (to - from);
    pen.save(); pen.beginPath(); pen.rect(gutter, top, width - gutter, h); pen.clip();
    pen.fillStyle = hatch; pen.fillRect(gutter, top, x(total) - gutter, h);
    const first = firstAfter(rank.end, from);
    let last = first;
    while (last < rank.start.length && rank.start[last] < to) last++;
    const shown = last - first;
    marks += shown;
    const dense = shown > 0 && (rank.end[last - 1] - rank.start[first]) * perTick / shown < 4;
    if (dense || rank.mixed.length) shares(rank, first, last, top, h, c);
    else for (let i = first; i < last; i++) {
      const left = x(rank.start[i]), w = Math.max((rank.end[i] - rank.start[i]) * perTick, 0.75);
      pen.globalAlpha = hover && hover.mb >= 0 && rank.mb[i] !== hover.mb ? 0.35 : 1;
      pen.fillStyle = c["k" + rank.kind[i]];
      pen.fillRect(left, top, Math.max(w - (w > 5 ? 1 : w > 3 ? 0.5 : 0), 0.75), h);
      if (h >= 12 && rank.mb[i] >= 0) {
        const text = String(rank.mb[i]); pen.font = font(10.5);
        if (pen.measureText(text).width + 5 < w) {
          pen.fillStyle = ink(c["k" + rank.kind[i]]); pen.textBaseline = "middle";
          pen.fillText(text, Math.max(left, gutter) + 3, top + h / 2 + 0.5);
        }
      }
    }
    pen.globalAlpha = 1; pen.restore();
  }
  function ink(hex) { // black or white, whichever stands out on the colour
    const [r, g, b] = [1, 3, 5].map(i => parseInt(hex.slice(i, i + 2), 16) / 255).map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.19 ? "#101216" : "#ffffff";
  }
  // Too fine to draw one by one: every pixel column shows the share of each kind, stacked; what is left is idle.
  function shares(rank, first, last, top, h, c) {
    const columns = Math.ceil(width - gutter), perTick = columns / (to - from);
    const filled = [0, 1, 2, 3, 4].map(() => new Float32Array(columns));
    for (let i = first; i < last; i++) {
      const a = (rank.start[i] - from) * perTick, b = (rank.end[i] - from) * perTick;
      if (+rank.kind[i] === MIXED) {
        const parts = rank.mixed[i], span = rank.end[i] - rank.start[i] || 1;
        parts.forEach((ticks, kind) => { if (ticks) spread(filled[kind], a, b, ticks / span); });
      } else spread(filled[+rank.kind[i]], a, b, 1);
    }
    for (let px = 0; px < columns; px++) {
      let y = top + h;
      for (let kind = 0; kind < 5; kind++) {
        const part = Math.min(filled[kind][px], 1) * h;
        if (part > 0.02) { pen.fillStyle = c["k" + kind]; pen.fillRect(gutter + px, y - part, 1, part); y -= part; }
      }
    }
  }
  function spread(bins, a, b, weight) {
    const low = Math.max(0, Math.floor(a)), high = Math.min(bins.length - 1, Math.floor(b));
    for (let px = low; px <= high; px++) bins[px] += Math.max(0, Math.min(b, px + 1) - Math.max(a, px)) * weight;
  }
  function messages(link, top, c) {
    const h = linkH - 3, perTick = (width - gutter) / (to - from);
    pen.save(); pen.beginPath(); pen.rect(gutter, top, width - gutter, h); pen.clip();
    pen.fillStyle = c.sunken; pen.fillRect(gutter, top, x(total) - gutter, h);
    for (let i = firstAfter(link.start, from - link.longest); i < link.start.length && link.start[i] < to; i++) {
      const left = x(link.start[i]), w = Math.max((link.end[i] - link.start[i]) * perTick, 1);
      if (left + w < gutter) continue;
      marks++;
      pen.globalAlpha = hover && hover.mb >= 0 && link.mb[i] !== hover.mb ? 0.2 : 0.8;
      pen.fillStyle = c["k" + link.kind[i]];
      pen.fillRect(left, top, Math.max(w - (w > 4 ? 1 : 0), 0.75), h);
    }
    pen.globalAlpha = 1; pen.restore();
  }
  function labels(c) {
    pen.textBaseline = "middle"; pen.fillStyle = c.ink;
    const write = (text, parts, y, h) => {
      pen.font = font(h >= 12 ? 12 : 9);
      pen.fillText(pen.measureText(text).width > gutter - 12 ? shortened(parts) : text, 0, y + h / 2);
    };
    const every = Math.ceil(11 / rowH);
    ranks.forEach((rank, i) => { if (i % every === 0) write(rank.name, [rank.domain, rank.short.slice(rank.domain.length)], rowTops[i], rowH - 2); });
    const everyLink = Math.ceil(11 / linkH);
    links.forEach((link, i) => { if (i % everyLink === 0) write(link.name, [link.from, " → ", link.to], linkTop + i * linkH, linkH - 3); });
  }

  // Letters are taken from the longest part (a domain's name) until all parts fit; layers and arrows stay.
  function shortened(parts) {
    const cut = parts.slice(), whole = () => pen.measureText(cut.join("")).width <= gutter - 12;
    while (!whole()) {
      const i = cut.reduce((best, part, k) => part.length > cut[best].length ? k : best, 0);
      if (cut[i].length <= 4) break;
      cut[i] = cut[i].slice(0, cut[i].endsWith("…") ? -2 : -1) + "…";
    }
    return cut.join("");
  }

  function at(px, py) {
    const time = timeAt(px);
    if (px < gutter || time > total || time < 0) return null;
    const i = rowTops.findIndex(top => py >= top && py < top + rowH);
    if (i >= 0) {
      const rank = ranks[i], k = firstAfter(rank.end, time);
      if (k < rank.start.length && rank.start[k] <= time) return operation(rank, k);
      const before = k > 0 ? rank.end[k - 1] : 0, after = k < rank.start.length ? rank.start[k] : total;
      return { mb: -1, text: rank.name + "\nIdle for " + seconds(inSeconds(after - before)) };
    }
    const j = Math.floor((py - linkTop) / linkH);
    return j >= 0 && j < links.length ? message(links[j], time) : null;
  }
  const between = (a, b) => seconds(inSeconds(a)) + " to " + seconds(inSeconds(b)) + " (" + seconds(inSeconds(b - a)) + ")";
  function operation(rank, k) {
    const place = rank.name + (ranks[ranks.length - 1].pipeline > 1 ? ", pipeline " + rank.pipeline : "");
    if (+rank.kind[k] === MIXED) {
      const parts = rank.mixed[k].map((ticks, kind) => ticks ? data.kinds[kind] + " " + seconds(inSeconds(ticks)) : "").filter(Boolean);
      return { mb: -1, text: place + "\n" + data.block + " operations from micro-batch " + rank.mb[k] + "\n" + parts.join("\n") + "\n" + between(rank.start[k], rank.end[k]) };
    }
    const what = data.kinds[+rank.kind[k]] + (rank.mb[k] >= 0 ? " of micro-batch " + rank.mb[k] : "");
    return { mb: rank.mb[k], text: place + "\n" + what + "\n" + between(rank.start[k], rank.end[k]) };
  }
  function message(link, time) {
    let found = -1;
    for (let i = firstAfter(link.start, time - link.longest); i < link.start.length && link.start[i] <= time; i++)
      if (link.end[i] >= time) { found = i; break; }
    if (found < 0) return { mb: -1, text: link.name + "\nNothing on its way" };
    const kind = { 0: "Activations", 1: "Gradients of activations", 3: "Gradients to agree on" }[link.kind[found]];
    const which = link.mb[found] >= 0 ? " of micro-batch " + link.mb[found] : "";
    return { mb: link.mb[found], text: link.name + "\n" + kind + which + ", " + link.size[found].toLocaleString("en") + " MB\n" + between(link.start[found], link.end[found]) };
  }

  function view(a, b) {
    const span = Math.min(total, Math.max(narrowest, b - a));
    from = Math.max(0, Math.min(a, total - span)); to = from + span; draw();
  }
  const zoom = factor => { const mid = (from + to) / 2, half = (to - from) / 2 * factor; view(mid - half, mid + half); };
  // How much of the step the start and the end show: as now where it is zoomed in, else some fifty operations of a rank.
  const most = Math.max(1, ...ranks.map(rank => rank.start.length));
  const near = () => to - from < total * 0.9 ? to - from : total * Math.min(0.5, 50 / most / (data.block || 1));
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
    ({ in: () => zoom(0.5), out: () => zoom(2), all: () => view(0, total), start: () => view(0, near()), end: () => view(total - near(), total) })[button.dataset.do]();
  }));
  let grip = null;
  thumb.addEventListener("pointerdown", e => { grip = { x: e.clientX, from }; thumb.setPointerCapture(e.pointerId); });
  thumb.addEventListener("pointermove", e => { if (grip) { const at = grip.from + (e.clientX - grip.x) / thumb.parentElement.clientWidth * total; view(at, at + to - from); } });
  thumb.addEventListener("pointerup", () => { grip = null; });
  const again = () => { measure(); draw(); };
  window.addEventListener("resize", again);
  document.addEventListener("hippo-theme", draw);
  window.addEventListener("beforeprint", again); window.addEventListener("afterprint", again);
  again();
  return { view, marks: () => marks };
}
