"use strict";
/* The page itself: reads the data it carries, draws the curves, opens the browser when it is reached. */

(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const tip = document.getElementById("tip");
  const charts = [];
  const shared = { names: data.variants, hidden: new Set(), view: new View(data.axes, data.stages), place: null, look };

  /** Every chart marks the place of the axis; the one it was asked in says what is there. */
  function look(place, chart = null) {
    shared.place = place;
    for (const each of charts) each.mark(place);
    if (place === null || !chart) { tip.hidden = true; return; }
    const rows = chart.rows(place);
    tip.replaceChildren(make("b", {}, AXES[shared.view.axis].say(place)), ...rows.map((row) => make("div", {}, make("i", { class: `swatch s${row.variant % 8}` }),
      ...(data.variants.length > 1 ? [foreign(row.name)] : []), make("b", {}, row.value), make("span", { class: "quiet" }, row.more))));
    tip.hidden = false;
    const bounds = chart.svg.getBoundingClientRect(), at = bounds.left + chart.x(place), size = tip.getBoundingClientRect();
    tip.style.left = `${Math.max(6, Math.min(innerWidth - size.width - 6, at + 14 + size.width > innerWidth ? at - size.width - 14 : at + 14))}px`;
    tip.style.top = `${Math.max(6, Math.min(innerHeight - size.height - 6, bounds.top + 8))}px`;
  }

  function curves() {
    const seeds = data.sections.some((section) => section.charts.some((chart) => chart.series.some((series) => series.run_low)));
    const thinned = data.sections.some((section) => section.charts.some((chart) => chart.series.some((series) => series.low)));
    document.getElementById("reading").textContent = "Lines are means" + (seeds ? " over seeds; the band reaches from the lowest to the highest seed" : "") +
      (thinned ? ". Neighbouring steps share a point, and the faint band reaches to their extremes, so no peak is lost" : "") + ". Point at a chart, or move along it with the arrow keys, to read all of them at that place.";
    const home = document.getElementById("sections");
    data.sections.forEach((section, place) => {
      const body = section.folded ? make("details", { class: "folded" }, make("summary", {}, `${section.title} (${section.charts.length})`)) : make("div");
      body.append(make("p", { class: "quiet" }, section.says));
      const lead = place === 0 ? section.charts.slice(0, 2) : [];
      const add = (charts_, name, tall) => {
        if (!charts_.length) return;
        const grid = make("div", { class: name });
        for (const each of charts_) { const chart = new Chart(each, shared, tall); charts.push(chart); grid.append(chart.element); }
        body.append(grid);
      };
      add(lead, "grid lead", true);
      if (section.title === "Time and memory" && data.time.length) body.append(times());
      add(section.charts.slice(lead.length), "grid", false);
      home.append(body);
    });
  }

  function times() {
    const parts = [...new Set(data.time.flatMap((each) => each.parts.map(([name]) => name)))];
    const rows = data.time.map((each) => {
      const bar = make("div", { class: "split", role: "img", "aria-label": each.parts.map(([name, seconds]) => `${name} ${say(seconds)} seconds`).join(", ") });
      for (const [name, seconds] of each.parts) {
        const share = (100 * seconds) / each.seconds, piece = make("span", { class: `f${parts.indexOf(name) % 8}`, title: `${name.replaceAll("_", " ")}: ${say(seconds)} s, ${share.toFixed(1)} %` }, share > 7 ? `${Math.round(share)} %` : "");
        piece.style.width = `${share}%`;
        bar.append(piece);
      }
      return make("div", { class: "of" }, ...(data.variants.length > 1 ? [foreign(data.variants[each.variant], "div", { class: "name" })] : [""].map(() => make("div"))), bar, make("div", { class: "quiet" }, `${say(each.seconds)} s`));
    });
    return make("figure", { class: "chart times" }, make("figcaption", {}, make("span", { class: "title" }, "Where a run's time went"), make("span", { class: "key" }, ...parts.map((name, place) => make("span", {}, make("i", { class: `f${place % 8}` }), name.replaceAll("_", " "))))), make("div", { class: "all" }, ...rows));
  }

  function legend() {
    const home = document.getElementById("legend");
    if (data.variants.length < 2) return;
    home.hidden = false;
    data.variants.forEach((name, place) => {
      const button = make("button", { type: "button", "aria-pressed": "true", title: "Click to hide or show; double-click to show this one alone" }, make("i", { class: `swatch s${place % 8}` }), foreign(name));
      button.addEventListener("click", () => { shared.hidden.has(place) ? shared.hidden.delete(place) : shared.hidden.add(place); update(); });
      button.addEventListener("dblclick", () => { const alone = shared.hidden.size < data.variants.length - 1; shared.hidden = new Set(alone ? data.variants.map((_, each) => each).filter((each) => each !== place) : []); update(); });
      home.append(button);
    });
    const update = () => {
      [...home.children].forEach((button, place) => button.setAttribute("aria-pressed", String(!shared.hidden.has(place))));
      charts.forEach((chart) => chart.redraw());
    };
    update();
  }

  function viewControls() {
    const update = () => { look(null); charts.forEach((chart) => chart.redraw()); };
    document.getElementById("view").append(...shared.view.controls(update));
  }

  function theme() {
    const button = document.getElementById("theme"), choices = ["system", "light", "dark"], marks = { system: "◐", light: "☀", dark: "☾" };
    let now = "system";
    // A page opened from disk may have no storage of its own.
    try { now = localStorage.getItem("groupwise-theme") || now; } catch { /* as the system */ }
    const apply = () => {
      now === "system" ? delete document.documentElement.dataset.theme : (document.documentElement.dataset.theme = now);
      button.textContent = marks[now];
      button.title = button.ariaLabel = `Colours: ${now === "system" ? "as the system" : now}`;
    };
    button.addEventListener("click", () => {
      now = choices[(choices.indexOf(now) + 1) % choices.length];
      try { localStorage.setItem("groupwise-theme", now); } catch { /* forgotten with the page */ }
      apply();
    });
    apply();
  }

  function browser() {
    const home = document.getElementById("browser");
    if (!home) return;
    home.replaceChildren(make("p", { class: "quiet" }, "…"));
    const open = () => {
      if (!shared.browser) shared.browser = new Browser(home, data.browsed, (place) => JSON.parse(document.getElementById(`groups-${place}`).textContent));
    };
    shared.kept && shared.kept.groups ? open() : whenNear(home, open);
    addEventListener("hashchange", () => { if (location.hash === "#groups") open(); });
  }

  if (document.documentElement.dataset.live) live(shared);
  theme();
  curves();
  legend();
  viewControls();
  browser();
  if (shared.kept) {
    // The parts above the reader are as high as they were before he is put back to his place.
    document.querySelectorAll("main details").forEach((fold, place) => { fold.open = shared.kept.open[place] ?? fold.open; });
    history.scrollRestoration = "manual";
    scrollTo(0, shared.kept.top);
  }
  let width = innerWidth;
  addEventListener("resize", () => {
    if (innerWidth === width) return;
    width = innerWidth;
    requestAnimationFrame(() => charts.forEach((chart) => chart.redraw()));
  });
  for (const folded of document.querySelectorAll("details.folded")) folded.addEventListener("toggle", () => charts.forEach((chart) => chart.redraw()));
  document.documentElement.dataset.ready = String(Math.round(performance.now()));
})();
