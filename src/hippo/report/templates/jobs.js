// The job under the pointer is lit up wherever it lies.
document.addEventListener("pointerover", e => {
  const mark = e.target.closest("[data-job]"), job = mark && mark.dataset.job;
  document.querySelectorAll("svg.chart").forEach(svg => {
    const all = svg.querySelectorAll("[data-job]");
    if (!all.length) return;
    svg.classList.toggle("lit", Boolean(mark));
    all.forEach(each => each.classList.toggle("on", each.dataset.job === job));
  });
});
