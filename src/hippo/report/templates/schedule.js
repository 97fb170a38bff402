// Draws a played schedule: a row per rank, its memory below it, messages as slanted lines where a link is slow.
// `data` is report/schedule_html.py's document.
function hippoTimeline(root, data) {
  "use strict";
  const total = data.ticks, chunks = data.chunks, slow = new Map(data.slow.map(link => [link.above, link.name]));
  let v = null, ranks = [], messages = [], longest = false, rowH = 0, memH = 0, gapH = 0, tops = [];

  const unpacked = rank => ({ ...rank, ...v.spans(rank.gap, rank.length), mb: rank.micro_batch, way: new Set(rank.way), at: v.sums(rank.memory_gap), held: rank.memory });
  const sent = all => Array.from(v.sums(all.start), (left, i) => ({ left, right: left + all.length[i], sender: all.sender[i], receiver: all.receiver[i], kind: +all.kind[i], mb: all.micro_batch[i], chunk: all.chunk ? +all.chunk[i] : 0 }));
  const inUnits = t => t / total * data.makespan;
  const told = value => +value.toPrecision(5) + "";
  function label(value, step) {
    const places = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
    return places > 9 ? value.toExponential(1) : value.toFixed(places);
  }

  function layout(view) {
    if (!v) { v = view; ranks = data.ranks.map(unpacked); messages = sent(data.messages); }
    rowH = Math.max(8, Math.min(28, Math.floor(520 / ranks.length)));
    memH = rowH >= 14 ? Math.round(rowH * 0.55) : 4;
    gapH = Math.max(14, Math.min(44, Math.floor(220 / Math.max(1, slow.size))));
    let y = v.top;
    tops = ranks.map((rank, i) => { const top = y; y += rowH + memH + 4 + (slow.has(i) ? gapH : 0); return top; });
    return [Math.round(Math.max(...ranks.map(rank => v.pen.measureText(rank.name).width), v.pen.measureText("delay 5").width) + 16), y + 2];
  }
  function paint(c, hatch) {
    ranks.forEach((rank, i) => { row(rank, tops[i], c, hatch); memory(rank, tops[i] + rowH, c); });
    lines(c); labels(c);
  }
  function row(rank, top, c, hatch) {
    const pen = v.pen;
    v.clipped(top, rowH, () => {
      pen.fillStyle = hatch; pen.fillRect(v.gutter, top, v.x(total) - v.gutter, rowH);
      if (rank.agreeing && rank.agreeing[0] < v.to && rank.agreeing[1] > v.from) { // on the network after the last operation
        pen.fillStyle = v.hatching(c.sunken, c.k4, 1.5, true); pen.fillRect(v.x(rank.agreeing[0]), top, v.x(rank.agreeing[1]) - v.x(rank.agreeing[0]), rowH);
        v.marks++;
      }
      v.operations(rank, top, rowH, c, (i, left, w) => {
        const room = Math.max(w - (w > 5 ? 1 : w > 3 ? 0.5 : 0), 0.75), chunk = rank.chunk ? +rank.chunk[i] : 0;
        const faint = v.hover && v.hover.mb >= 0 ? rank.mb[i] !== v.hover.mb : longest && !rank.way.has(i);
        pen.globalAlpha = faint ? 0.25 : 1;
        pen.fillStyle = c["k" + rank.kind[i]]; pen.fillRect(left, top, room, rowH);
        if (chunk) { pen.globalAlpha *= 0.42 * chunk / (chunks - 1); pen.fillStyle = c.surface; pen.fillRect(left, top, room, rowH); pen.globalAlpha = faint ? 0.25 : 1; }
        v.numbered(rank.mb[i] + "", left, top, w, rowH, chunk ? c.ink : v.ink(c["k" + rank.kind[i]]));
      });
    });
  }
  function memory(rank, top, c) { // filled steps; a line where the limit is
    v.pen.save(); v.pen.beginPath(); v.pen.rect(v.gutter, top, v.width - v.gutter, memH + 1); v.pen.clip();
    v.pen.fillStyle = c.sunken; v.pen.fillRect(v.gutter, top, v.x(total) - v.gutter, memH);
    const y = held => top + memH - held / rank.top * (memH - 1);
    let i = Math.max(0, v.firstAfter(rank.at, v.from) - 1);
    v.pen.beginPath(); v.pen.moveTo(v.x(rank.at[i]), top + memH);
    for (; i < rank.at.length && rank.at[i] < v.to; i++) {
      v.pen.lineTo(v.x(rank.at[i]), y(rank.held[i]));
      v.pen.lineTo(v.x(i + 1 < rank.at.length ? rank.at[i + 1] : total), y(rank.held[i]));
    }
    v.pen.lineTo(Math.min(v.x(total), v.width), top + memH); v.pen.closePath();
    v.pen.fillStyle = c.muted; v.pen.globalAlpha = 0.6; v.pen.fill(); v.pen.globalAlpha = 1;
    if (rank.limit) { v.pen.strokeStyle = c.bad; v.pen.lineWidth = 1; v.pen.beginPath(); v.pen.moveTo(v.gutter, Math.round(y(rank.limit)) + 0.5); v.pen.lineTo(v.x(total), Math.round(y(rank.limit)) + 0.5); v.pen.stroke(); }
    v.pen.restore();
  }
  // Messages over slow links, from the row that sends to the row that receives; of a micro-batch in view, all of them.
  function lines(c) {
    const shown = messages.filter(m => m.right >= v.from && m.left <= v.to && (v.hover && v.hover.mb >= 0 ? m.mb === v.hover.mb : Math.abs(m.sender - m.receiver) === 1 && slow.has(Math.min(m.sender, m.receiver))));
    v.pen.save(); v.pen.beginPath(); v.pen.rect(v.gutter, v.top, v.width - v.gutter, v.height); v.pen.clip();
    const alpha = v.hover && v.hover.mb >= 0 ? 1 : Math.max(0.25, Math.min(0.9, 12 * (v.width - v.gutter) / (shown.length + 1) / 100));
    for (const m of shown) {
      const down = m.sender < m.receiver;
      v.pen.globalAlpha = alpha; v.pen.strokeStyle = c["k" + m.kind]; v.pen.lineWidth = v.hover && v.hover.mb >= 0 ? 1.8 : 1.1;
      v.pen.beginPath(); v.pen.moveTo(v.x(m.left), down ? tops[m.sender] + rowH + memH : tops[m.sender]); v.pen.lineTo(v.x(m.right), down ? tops[m.receiver] : tops[m.receiver] + rowH + memH); v.pen.stroke();
      v.marks++;
    }
    v.pen.globalAlpha = 1; v.pen.restore();
  }
  function labels(c) {
    const every = Math.ceil(11 / (rowH + memH + 4));
    v.pen.textBaseline = "middle";
    ranks.forEach((rank, i) => {
      v.pen.fillStyle = c.ink; v.pen.font = v.font(rowH >= 12 ? 12 : 9);
      if (i % every === 0) v.pen.fillText(rank.name, 0, tops[i] + rowH / 2);
      if (slow.has(i)) { v.pen.fillStyle = c.bad; v.pen.font = v.font(10.5); v.pen.fillText(slow.get(i), 0, tops[i] + rowH + memH + gapH / 2 + 1); }
    });
  }

  function at(px, py) {
    const time = v.timeAt(px);
    if (px < v.gutter || time > total || time < 0) return null;
    const i = tops.findIndex(top => py >= top && py < top + rowH + memH + 2);
    if (i < 0) return null;
    const rank = ranks[i], k = v.firstAfter(rank.end, time);
    const step = v.firstAfter(rank.at, time) - 1, held = "memory " + told(step >= 0 ? rank.held[step] : 0) + (rank.limit ? " of " + told(rank.limit) : "");
    if (rank.agreeing && time >= rank.agreeing[0] && time < rank.agreeing[1]) return { mb: -1, text: rank.name + "\nagreeing gradients\n" + told(inUnits(rank.agreeing[0])) + " to " + told(inUnits(rank.agreeing[1])) + "\n" + held };
    if (k >= rank.start.length || rank.start[k] > time) return { mb: -1, text: rank.name + "\nidle at " + told(inUnits(time)) + "\n" + held };
    const chunk = rank.chunk ? ", chunk " + rank.chunk[k] : "";
    return { mb: rank.mb[k], text: rank.name + "\n" + data.kinds[+rank.kind[k]] + " of micro-batch " + rank.mb[k] + chunk + "\n" + told(inUnits(rank.start[k])) + " to " + told(inUnits(rank.end[k])) + "\n" + held };
  }

  const acts = { way: button => { longest = !longest; button.setAttribute("aria-pressed", longest); v.draw(); } };
  hippoRows(root, { ticks: total, span: data.makespan, label, layout, paint, at, acts, most: Math.max(1, ...data.ranks.map(rank => rank.gap.length)) });
}
