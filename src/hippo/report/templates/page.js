// Faults go into the document, where a test (and a bug report) can see them.
addEventListener("error", e => { document.documentElement.dataset.fault = e.message; });
addEventListener("securitypolicyviolation", e => { document.documentElement.dataset.fault = e.violatedDirective; });

// Light or dark: the system's choice until the reader makes one; print is always light.
const hippoRoot = document.documentElement, hippoDark = matchMedia("(prefers-color-scheme: dark)");
let hippoChoice = null;
function hippoTheme(name) { hippoRoot.dataset.theme = name; document.dispatchEvent(new Event("hippo-theme")); }
const hippoWanted = () => hippoChoice || (hippoDark.matches ? "dark" : "light");
hippoTheme(hippoWanted());
hippoDark.addEventListener("change", () => hippoTheme(hippoWanted()));
addEventListener("beforeprint", () => hippoTheme("light"));
addEventListener("afterprint", () => hippoTheme(hippoWanted()));

function hippoTip(text, x, y) {
  const tip = document.getElementById("tip");
  tip.classList.toggle("on", Boolean(text));
  if (!text) return;
  tip.textContent = text; // never as markup
  const box = tip.getBoundingClientRect();
  tip.style.left = Math.max(4, Math.min(x + 14, innerWidth - box.width - 8)) + "px";
  tip.style.top = (y + 18 + box.height > innerHeight ? y - box.height - 10 : y + 18) + "px";
}
document.addEventListener("DOMContentLoaded", () => {
  document.getElementById("theme").addEventListener("click", () => {
    hippoChoice = hippoRoot.dataset.theme === "dark" ? "light" : "dark"; hippoTheme(hippoChoice);
  });
  document.addEventListener("pointerover", e => {
    const mark = e.target.closest("[data-tip]");
    if (mark) hippoTip(mark.dataset.tip, e.clientX, e.clientY); else if (e.target.tagName !== "CANVAS") hippoTip(null);
  });
  document.querySelectorAll("[data-timeline]").forEach(root => {
    hippoTimeline(root, JSON.parse(document.getElementById(root.dataset.timeline).textContent));
  });
  document.querySelectorAll(".scroll, .map").forEach(box => { if (box.scrollWidth > box.clientWidth) box.tabIndex = 0; }); // for keyboards
  hippoRoot.dataset.ready = "yes";
});
