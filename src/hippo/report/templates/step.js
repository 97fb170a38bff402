// Draws one played step: a row per rank, a row per link. `data` is panels/timeline.py's document.
function hippoTimeline(root, data) {
  "use strict";
  const total = data.ticks, MIXED = 5;
  let v = null, ranks = [], links = [], rowH = 0, linkH = 0, linkTop = 0, rowTops = [];

  function unpackLink(link) {
    const start = v.sums(link.start), end = start.map((at, i) => at + link.length[i]);
    return { name: link.from + " → " + link.to, from: link.from, to: link.to, start, end, longest: link.length.reduce((most, each) => Math.max(most, each), 0), kind: link.kind, mb: link.micro_batch, size: link.mb, every: link.every };
  }
  function seconds(s) {
    const a = Math.abs(s), f = (w, u) => (w >= 100 ? w.toFixed(0) : w >= 10 ? w.toFixed(1) : w.toFixed(2)) + " " + u;
    return a === 0 ? "0 s" : a >= 1 ? f(s, "s") : a >= 1e-3 ? f(s * 1e3, "ms") : f(s * 1e6, "µs");
  }
  const inSeconds = t => t / total * data.step_s;

  function layout(view) {
    if (!v) {
      v = view;
      ranks = data.ranks.map(rank => ({ ...rank, ...v.spans(rank.gap, rank.length), mb: rank.micro_batch }));
      links = data.links.map(unpackLink);
    }
    const names = ranks.map(r => r.name).concat(links.map(l => l.name));
    const widest = Math.max(...names.map(n => v.pen.measureText(n).width));
    rowH = Math.max(8, Math.min(28, Math.floor(620 / ranks.length)));
    linkH = Math.max(8, Math.min(20, Math.floor(330 / Math.max(1, links.length))));
    let y = v.top;
    rowTops = ranks.map((rank, i) => {
      if (i > 0 && (rank.domain !== ranks[i - 1].domain || rank.pipeline !== ranks[i - 1].pipeline)) y += rank.pipeline !== ranks[i - 1].pipeline ? 8 : 3;
      const top = y; y += rowH; return top;
    });
    linkTop = y + (links.length ? 22 : 0);
    return [Math.round(Math.min(widest + 18, v.width * (v.width < 560 ? 0.3 : 0.24))), linkTop + links.length * linkH + 4];
  }
  function paint(c, hatch) {
    const pen = v.pen;
    ranks.forEach((rank, i) => row(rank, rowTops[i], c, hatch));
    if (links.length) {
      pen.fillStyle = c.muted; pen.font = v.font(11); pen.textBaseline = "alphabetic";
      pen.fillText("messages between domains", v.gutter, linkTop - 7);
    }
    links.forEach((link, i) => messages(link, linkTop + i * linkH, c));
    labels(c);
    ranks.forEach((rank, i) => { pen.fillStyle = v.colour(rank.colour); pen.fillRect(v.gutter - 5, rowTops[i], 3, rowH - 2); });
  }
  function row(rank, top, c, hatch) {
    const h = rowH - 2, pen = v.pen;
    v.clipped(top, h, () => {
      pen.fillStyle = hatch; pen.fillRect(v.gutter, top, v.x(total) - v.gutter, h);
      v.operations(rank, top, h, c, (i, left, w) => {
        pen.globalAlpha = v.hover && v.hover.mb >= 0 && rank.mb[i] !== v.hover.mb ? 0.35 : 1;
        pen.fillStyle = c["k" + rank.kind[i]];
        pen.fillRect(left, top, Math.max(w - (w > 5 ? 1 : w > 3 ? 0.5 : 0), 0.75), h);
        if (rank.mb[i] >= 0) v.numbered(String(rank.mb[i]), left, top, w, h, v.ink(c["k" + rank.kind[i]]));
      });
    });
  }
  function label(value, step) {
    if (Math.abs(value) < step * 1e-6) return "0 s";
    const unit = step >= 0.1 ? [1, "s"] : step >= 1e-4 ? [1e3, "ms"] : [1e6, "µs"];
    const places = Math.max(0, Math.min(6, -Math.floor(Math.log10(step * unit[0]) + 1e-9)));
    return (value * unit[0]).toFixed(places) + " " + unit[1];
  }
  function messages(link, top, c) {
    const h = linkH - 3, perTick = (v.width - v.gutter) / (v.to - v.from);
    v.pen.save(); v.pen.beginPath(); v.pen.rect(v.gutter, top, v.width - v.gutter, h); v.pen.clip();
    v.pen.fillStyle = c.sunken; v.pen.fillRect(v.gutter, top, v.x(total) - v.gutter, h);
    for (let i = v.firstAfter(link.start, v.from - link.longest); i < link.start.length && link.start[i] < v.to; i++) {
      const left = v.x(link.start[i]), w = Math.max((link.end[i] - link.start[i]) * perTick, 1);
      if (left + w < v.gutter) continue;
      v.marks++;
      v.pen.globalAlpha = v.hover && v.hover.mb >= 0 && link.mb[i] !== v.hover.mb ? 0.2 : 0.8;
      v.pen.fillStyle = c["k" + link.kind[i]];
      v.pen.fillRect(left, top, Math.max(w - (w > 4 ? 1 : 0), 0.75), h);
    }
    v.pen.globalAlpha = 1; v.pen.restore();
  }
  function labels(c) {
    v.pen.textBaseline = "middle"; v.pen.fillStyle = c.ink;
    const write = (text, parts, y, h) => {
      v.pen.font = v.font(h >= 12 ? 12 : 9);
      v.pen.fillText(v.pen.measureText(text).width > v.gutter - 12 ? shortened(parts) : text, 0, y + h / 2);
    };
    const every = Math.ceil(11 / rowH);
    ranks.forEach((rank, i) => { if (i % every === 0) write(rank.name, [rank.domain, rank.short.slice(rank.domain.length)], rowTops[i], rowH - 2); });
    const everyLink = Math.ceil(11 / linkH);
    links.forEach((link, i) => { if (i % everyLink === 0) write(link.name, [link.from, " → ", link.to], linkTop + i * linkH, linkH - 3); });
  }

  // Letters are taken from the longest part (a domain's name) until all parts fit; layers and arrows stay.
  function shortened(parts) {
    const cut = parts.slice(), whole = () => v.pen.measureText(cut.join("")).width <= v.gutter - 12;
    while (!whole()) {
      const i = cut.reduce((best, part, k) => part.length > cut[best].length ? k : best, 0);
      if (cut[i].length <= 4) break;
      cut[i] = cut[i].slice(0, cut[i].endsWith("…") ? -2 : -1) + "…";
    }
    return cut.join("");
  }

  function at(px, py) {
    const time = v.timeAt(px);
    if (px < v.gutter || time > total || time < 0) return null;
    const i = rowTops.findIndex(top => py >= top && py < top + rowH);
    if (i >= 0) {
      const rank = ranks[i], k = v.firstAfter(rank.end, time);
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
    for (let i = v.firstAfter(link.start, time - link.longest); i < link.start.length && link.start[i] <= time; i++)
      if (link.end[i] >= time) { found = i; break; }
    if (found < 0) return { mb: -1, text: link.name + "\nNothing on its way" };
    const kind = { 0: "Activations", 1: "Gradients of activations", 3: "Gradients to agree on" }[link.kind[found]];
    const which = link.mb[found] >= 0 ? " of micro-batch " + link.mb[found] : "";
    return { mb: link.mb[found], text: link.name + "\n" + kind + which + ", " + link.size[found].toLocaleString("en") + " MB\n" + between(link.start[found], link.end[found]) };
  }

  hippoRows(root, { ticks: total, span: data.step_s, label, layout, paint, at, acts: {}, most: (data.block || 1) * Math.max(1, ...data.ranks.map(rank => rank.gap.length)) });
}
