// Draws a replay on a canvas, all parts over one time axis: marks of decisions, the layers that each domain holds, the
// heat of every link, and the work against keeping. `data` is report/watch_html.py's `packed`. page.js calls it.
function hippoTimeline(root, data) {
  "use strict";
  const canvas = root.querySelector("canvas"), pen = canvas.getContext("2d");
  const heat = Uint8Array.from(atob(data.heat), letter => letter.charCodeAt(0)), T = data.epochs, E = data.links.length;
  const MARKS = 30, BANDS = 92, GAP = 16, WORK = 150, AXIS = 26, RIGHT = 12;
  const rowH = E <= 12 ? 22 : E <= 30 ? 16 : E <= 60 ? 11 : 7;
  let width = 0, gutter = 0, height = 0, bandsAt = 0, heatAt = 0, workAt = 0, hover = null;

  const x = epoch => gutter + epoch / T * (width - gutter - RIGHT);
  const epochAt = px => Math.max(0, Math.min(T - 1, Math.floor((px - gutter) / (width - gutter - RIGHT) * T)));
  const colour = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const names = ["ink", "muted", "rule", "surface", "sunken", "accent", "good", "bad", "page", "hatch", "m1", "m2", "m3", "m4", "m5", "h0", "h1", "h2", "h3", "h4", "h5", "h6", ...Array.from({ length: 9 }, (_, i) => "d" + i)];
  const palette = () => Object.fromEntries(names.map(name => [name, colour("--" + name)]));
  const font = (size, weight) => (weight || "") + " " + size + "px " + getComputedStyle(document.body).fontFamily;
  const told = v => +v.toPrecision(3) + "";

  // ------------------------------------------------------------------------------------------------------------ times
  function clock(s) {
    const minutes = Math.round(s / 60), h = Math.floor(minutes / 60), d = Math.floor(h / 24), mm = String(minutes % 60).padStart(2, "0");
    return d ? d + " d " + h % 24 + ":" + mm : h + ":" + mm;
  }
  function ticks(most) {
    const total = T * data.epoch_s, steps = [60, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800, 2592000];
    const step = steps.find(each => total / each <= most) || Math.ceil(total / most / 2592000) * 2592000;
    return Array.from({ length: Math.floor(total / step + 1e-9) + 1 }, (_, i) => i * step);
  }

  // ---------------------------------------------------------------------------------------------------------- colours
  const rgb = text => [1, 3, 5].map(at => parseInt(text.slice(at, at + 2), 16));
  function ramp(c) { // a colour for every per cent of the base
    const stops = [[1, c.h1], [25, c.h2], [72, c.h3], [97, c.h4], [103, c.h4], [130, c.h5], [190, c.h6], [255, c.h6]].map(([at, text]) => [at, rgb(text)]);
    const found = [c.h0];
    for (let level = 1; level < 256; level++) {
      const next = Math.max(1, stops.findIndex(([at]) => at >= level)), [a, from] = stops[next - 1], [b, to] = stops[next], share = (level - a) / (b - a);
      found.push("rgb(" + from.map((part, i) => Math.round(part + (to[i] - part) * share)).join(",") + ")");
    }
    return found;
  }
  function hatching(ink) {
    const tile = document.createElement("canvas"); tile.width = tile.height = 5;
    const t = tile.getContext("2d"); t.strokeStyle = ink; t.lineWidth = 1; t.globalAlpha = 0.75;
    t.beginPath(); t.moveTo(-1, 6); t.lineTo(6, -1); t.stroke();
    return pen.createPattern(tile, "repeat");
  }
  const kinds = c => ({ begun: c.ink, lever: c.m1, stop: c.m3, background: c.m2, cancel: c.m4, kept: c.hatch });

  // ---------------------------------------------------------------------------------------------------------- drawing
  function measure() {
    width = Math.max(320, canvas.parentElement.clientWidth - 40); pen.font = font(12);
    gutter = Math.round(Math.min(width * 0.3, Math.max(...data.links.map(link => pen.measureText(link.name).width), pen.measureText("layers held by").width) + 14));
    bandsAt = MARKS; heatAt = bandsAt + BANDS + GAP + 8; workAt = heatAt + E * rowH + GAP + 20; height = workAt + WORK + AXIS;
    const scale = window.devicePixelRatio || 1;
    canvas.width = Math.round(width * scale); canvas.height = Math.round(height * scale);
    canvas.style.height = height + "px"; canvas.style.width = width + "px";
    pen.setTransform(scale, 0, 0, scale, 0, 0);
  }
  function draw() {
    const c = palette();
    pen.clearRect(0, 0, width, height); pen.textBaseline = "middle";
    grid(c); bands(c); links(c); work(c); marks(c); cross(c);
    root.dataset.marks = data.decisions.length;
  }
  function grid(c) {
    pen.font = font(11.5); pen.textAlign = "center"; pen.lineWidth = 1;
    const found = ticks(Math.max(3, Math.floor((width - gutter) / 74)));
    found.forEach((s, i) => {
      const at = Math.round(x(s / data.epoch_s)) + 0.5;
      pen.strokeStyle = c.rule; pen.beginPath(); pen.moveTo(at, workAt); pen.lineTo(at, workAt + WORK + 5); pen.stroke();
      pen.fillStyle = c.muted; pen.textAlign = i && at > width - 30 ? "right" : "center"; pen.fillText(clock(s), at, workAt + WORK + 16);
    });
  }
  function gutterText(text, y, c, weight) {
    pen.font = font(12, weight); pen.textAlign = "right"; pen.fillStyle = weight ? c.ink : c.muted;
    const fits = words => pen.measureText(words).width <= gutter - 12, ends = text.split(/ ?(?:->|→) ?/);
    let shown = text;
    for (let most = 16; !fits(shown) && most > 2; most--) // of a link both ends are told, each as far as there is room
      shown = ends.length === 2 ? ends.map(end => end.length > most ? end.slice(0, most) + "." : end).join("→") : shown.slice(0, -2) + "…";
    pen.fillText(shown, gutter - 10, y);
  }
  function bands(c) {
    gutterText("layers held by", bandsAt + 10, c); gutterText("domain", bandsAt + 26, c);
    pen.fillStyle = c.sunken; pen.fillRect(gutter, bandsAt, width - gutter - RIGHT, BANDS);
    data.running.forEach(([first, stop, index]) => {
      const plan = data.plans[index], left = x(first), right = x(stop), high = BANDS / plan.lines.length;
      plan.lines.forEach((line, at) => line.forEach(([domain, from, to]) => {
        pen.fillStyle = c["d" + domain % 9];
        pen.fillRect(left, bandsAt + at * high + from / data.layers * (high - 1), right - left + 0.6, (to - from) / data.layers * (high - 1) + 0.4);
      }));
      cuts(plan, left, right, high, c);
    });
    data.halts.forEach(([first, stop]) => { pen.fillStyle = c.bad; pen.fillRect(x(first), bandsAt, Math.max(2, x(stop) - x(first)), BANDS); });
    data.streams.forEach(([first, stop]) => { pen.fillStyle = c.good; pen.fillRect(x(first), bandsAt + BANDS + 2, Math.max(2, x(stop) - x(first)), 4); });
    letters(c);
  }
  function cuts(plan, left, right, high, c) { // a line, and the layer, where domains change
    pen.strokeStyle = c.surface; pen.lineWidth = 1.5;
    plan.lines.forEach((line, at) => line.forEach(([domain, from], i) => {
      if (!i || line[i - 1][0] === domain) return;
      const y = bandsAt + at * high + from / data.layers * (high - 1);
      pen.beginPath(); pen.moveTo(left, y); pen.lineTo(right, y); pen.stroke();
      if (right - left > 46) { pen.font = font(11, "600"); pen.textAlign = "left"; chip(String(from), left + 5, y, c); }
    }));
  }
  function chip(text, left, y, c) {
    const wide = pen.measureText(text).width;
    pen.fillStyle = c.surface; pen.globalAlpha = 0.88; pen.beginPath(); pen.roundRect(left, y - 8, wide + 8, 16, 4); pen.fill(); pen.globalAlpha = 1;
    pen.fillStyle = c.ink; pen.fillText(text, left + 4, y + 0.5);
  }
  function letters(c) { // which plan runs
    pen.font = font(12, "700"); pen.textAlign = "left";
    let free = 0;
    data.running.forEach(([first, stop, index]) => {
      const left = x(first) + 6, wide = pen.measureText(data.plans[index].name).width + 10;
      if (x(stop) - x(first) < wide + 6 || left < free) return;
      chip(data.plans[index].name, x(stop) - wide - 3 > left ? x(stop) - wide - 3 : left, bandsAt + 12, c); free = x(stop);
    });
  }
  function links(c) {
    const colours = ramp(c), hatch = hatching(c.ink), columns = Math.min(T, Math.floor(width - gutter - RIGHT));
    for (let row = 0; row < E; row++) {
      const y = heatAt + row * rowH;
      if (rowH >= 11) gutterText(data.links[row].name, y + rowH / 2, c);
      for (let column = 0; column < columns; column++) { // where epochs share a column, the lowest is shown
        const first = Math.floor(column * T / columns), stop = Math.max(first + 1, Math.floor((column + 1) * T / columns));
        let low = 255; for (let epoch = first; epoch < stop; epoch++) low = Math.min(low, heat[row * T + epoch]);
        pen.fillStyle = colours[low]; pen.fillRect(x(first), y, x(stop) - x(first) + 0.6, rowH - 1.5);
      }
    }
    data.stale.forEach(([row, first, stop]) => { pen.fillStyle = hatch; pen.fillRect(x(first), heatAt + row * rowH, x(stop) - x(first), rowH - 1.5); });
    pen.strokeStyle = c.ink; pen.lineWidth = rowH >= 14 ? 2 : 1.2;
    data.running.forEach(([first, stop, index]) => data.plans[index].uses.forEach(row => {
      const y = heatAt + (row + 1) * rowH - 2.5;
      pen.beginPath(); pen.moveTo(x(first), y); pen.lineTo(x(stop), y); pen.stroke();
    }));
  }
  function work(c) {
    const lines = Object.entries(data.ahead), all = lines.flatMap(([, values]) => values);
    const least = Math.min(0, ...all), most = Math.max(0, ...all), span = (most - least) || 1;
    const y = value => workAt + 12 + (most - value) / span * (WORK - 24);
    levels(least, most).forEach(value => {
      pen.strokeStyle = c.rule; pen.lineWidth = 1; pen.beginPath(); pen.moveTo(gutter, y(value)); pen.lineTo(width - RIGHT, y(value)); pen.stroke();
      gutterText((value > 0 ? "+" : value < 0 ? "−" : "") + told(Math.abs(value)), y(value), c);
    });
    pen.strokeStyle = c.rule; pen.strokeRect(gutter + 0.5, workAt + 0.5, width - gutter - RIGHT - 1, WORK - 1);
    pen.strokeStyle = c.muted; pen.setLineDash([4, 4]); pen.lineWidth = 1; pen.beginPath(); pen.moveTo(gutter, y(0)); pen.lineTo(width - RIGHT, y(0)); pen.stroke(); pen.setLineDash([]);
    let left = 0;
    const beside = (text, ink, weight) => { pen.font = font(12, weight); pen.textAlign = "left"; pen.fillStyle = ink; pen.fillText(text, left, workAt - 9); left += pen.measureText(text).width; };
    beside(width < 560 ? "M tokens: " : "Work against keeping, M tokens: ", c.muted);
    lines.forEach(([name, values], i) => {
      const ink = i ? c.m5 : c.accent;
      pen.strokeStyle = ink; pen.lineWidth = i ? 1.5 : 2.5; pen.lineJoin = "round"; pen.beginPath(); pen.moveTo(x(0), y(0));
      values.forEach((value, epoch) => pen.lineTo(x(epoch + 1), y(value))); pen.stroke();
      const end = values[values.length - 1];
      pen.fillStyle = ink; pen.fillRect(left + 6, workAt - 11, 16, i ? 2 : 3); left += 27;
      beside(name + " " + (end < 0 ? "−" : "+") + told(Math.abs(end)), c.ink, "600");
    });
    if (width < 560) return;
    pen.strokeStyle = c.muted; pen.lineWidth = 1; pen.setLineDash([4, 4]); pen.beginPath(); pen.moveTo(left + 6, workAt - 9.5); pen.lineTo(left + 22, workAt - 9.5); pen.stroke(); pen.setLineDash([]);
    left += 27; beside("keeping", c.muted);
  }
  function levels(least, most) { // round values, five at most
    const span = (most - least) || 1, power = 10 ** Math.floor(Math.log10(span / 4)), step = power * ([1, 2, 5, 10].find(part => span / (part * power) <= 5) || 10);
    return Array.from({ length: Math.floor(most / step + 1e-9) - Math.ceil(least / step - 1e-9) + 1 }, (_, i) => (Math.ceil(least / step - 1e-9) + i) * step);
  }
  function marks(c) {
    const inks = kinds(c);
    data.decisions.forEach(mark => {
      const at = x(mark.epoch), changes = mark.kind !== "kept";
      if (changes) {
        pen.strokeStyle = c.ink; pen.globalAlpha = 0.5; pen.lineWidth = 1; pen.setLineDash(mark.kind === "lever" ? [2, 3] : []);
        pen.beginPath(); pen.moveTo(at, MARKS - 6); pen.lineTo(at, workAt + WORK); pen.stroke(); pen.setLineDash([]); pen.globalAlpha = 1;
      }
      pen.fillStyle = inks[mark.kind]; pen.strokeStyle = c.surface; pen.lineWidth = 1.5; pen.beginPath();
      if (!changes) pen.arc(at, 22, 2.6, 0, 7);
      else if (mark.kind === "lever") { pen.moveTo(at, 7); pen.lineTo(at + 7, 14); pen.lineTo(at, 21); pen.lineTo(at - 7, 14); pen.closePath(); }
      else pen.arc(at, 14, 7, 0, 7);
      pen.fill(); if (changes) pen.stroke();
    });
    gutterText("decisions", 15, c);
  }
  function cross(c) {
    if (!hover) return;
    const at = x(hover.epoch + 0.5);
    pen.strokeStyle = c.ink; pen.globalAlpha = 0.35; pen.lineWidth = 1; pen.beginPath(); pen.moveTo(at, MARKS - 4); pen.lineTo(at, workAt + WORK); pen.stroke(); pen.globalAlpha = 1;
    if (hover.row >= 0) { pen.strokeStyle = c.ink; pen.lineWidth = 1.5; pen.strokeRect(gutter, heatAt + hover.row * rowH - 0.5, width - gutter - RIGHT, rowH); }
  }

  // --------------------------------------------------------------------------------------------------------- pointing
  function near(px, py) { // the decision under the pointer, changes first
    if (py > MARKS + 2) return null;
    const close = data.decisions.filter(mark => Math.abs(x(mark.epoch) - px) <= 8);
    return close.find(mark => mark.kind !== "kept") || close[0] || null;
  }
  function running(epoch) { const found = data.running.find(([first, stop]) => first <= epoch && epoch < stop); return data.plans[found[2]]; }
  function words(px, py) {
    const mark = near(px, py);
    if (mark) return mark.words;
    const epoch = epochAt(px), row = Math.floor((py - heatAt) / rowH), when = clock(epoch * data.epoch_s);
    if (row >= 0 && row < E) {
      const level = heat[row * T + epoch], link = data.links[row];
      const stale = data.stale.some(([which, first, stop]) => which === row && first <= epoch && epoch < stop);
      const carries = level ? told(level / 100 * link.gbps) + " Gbit/s, " + level + " % of its base" : "down";
      return link.name + " at " + when + ": " + carries + (stale ? "\nTelemetry did not arrive." : "");
    }
    const plan = running(epoch);
    if (py < heatAt) return when + ": plan " + plan.name + "\n" + plan.words;
    const lines = Object.entries(data.ahead).map(([name, values]) => name + ": " + (values[epoch] >= 0 ? "+" : "−") + told(Math.abs(values[epoch])) + " M tokens against keeping");
    return when + "\n" + lines.join("\n");
  }
  canvas.addEventListener("pointermove", event => {
    const box = canvas.getBoundingClientRect(), px = event.clientX - box.left, py = event.clientY - box.top;
    if (px < gutter) { leave(); return; }
    const row = Math.floor((py - heatAt) / rowH);
    hover = { epoch: epochAt(px), row: row >= 0 && row < E ? row : -1 };
    canvas.style.cursor = near(px, py) ? "pointer" : "crosshair";
    draw(); hippoTip(words(px, py), event.clientX, event.clientY);
  });
  function leave() { hover = null; hippoTip(null); draw(); }
  canvas.addEventListener("pointerleave", leave);
  canvas.addEventListener("click", event => {
    const box = canvas.getBoundingClientRect(), mark = near(event.clientX - box.left, event.clientY - box.top);
    const line = mark && document.getElementById("decision-" + mark.row);
    if (!line) return;
    if (line.closest("details")) line.closest("details").open = true;
    document.querySelectorAll("tr.here").forEach(each => each.classList.remove("here"));
    line.classList.add("here"); line.scrollIntoView({ block: "center" });
  });
  canvas.addEventListener("keydown", event => { // arrow keys walk through the epochs
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step) return;
    event.preventDefault();
    hover = { epoch: Math.max(0, Math.min(T - 1, (hover ? hover.epoch : -1) + step)), row: -1 };
    draw();
    const box = canvas.getBoundingClientRect(), mark = data.decisions.find(each => each.epoch === hover.epoch);
    hippoTip(mark ? mark.words : words(x(hover.epoch + 0.5), bandsAt + 10), box.left + x(hover.epoch), box.top + bandsAt);
  });
  canvas.addEventListener("blur", leave);
  const redraw = () => { measure(); draw(); };
  new ResizeObserver(redraw).observe(canvas.parentElement);
  document.addEventListener("hippo-theme", draw);
  redraw();
}
