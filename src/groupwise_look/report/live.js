"use strict";
/* A served page asks its server for a newer version, and loads it with what the reader had chosen. */

const ASK_EVERY = 3000, KEPT = "groupwise-view";

function live(shared) {
  const badge = document.getElementById("live"), version = document.documentElement.dataset.live;
  restore();
  status("follows the runs");
  setTimeout(ask, ASK_EVERY);

  function status(text, ...more) { badge.replaceChildren(text, ...more); }

  function restore() {
    try {
      const kept = JSON.parse(sessionStorage.getItem(KEPT) || "null");
      if (!kept) return;
      sessionStorage.removeItem(KEPT);
      shared.view.restore(kept.view);
      for (const place of kept.hidden) if (place < shared.names.length) shared.hidden.add(place);
      shared.kept = kept;
    } catch { /* a page without storage begins anew */ }
  }

  function load() {
    const folds = [...document.querySelectorAll("main details")];
    const kept = { view: shared.view.choice, hidden: [...shared.hidden], open: folds.map((fold) => fold.open), top: scrollY, groups: Boolean(shared.browser) };
    try { sessionStorage.setItem(KEPT, JSON.stringify(kept)); } catch { /* forgotten */ }
    location.reload();
  }

  /** Somebody who reads a group, a chart or a selected text is asked first. */
  const isReading = () => Boolean(document.activeElement && document.activeElement.closest("#groups, figure.chart")) || !getSelection().isCollapsed || shared.place !== null;

  async function ask() {
    let newest = version;
    try {
      const reply = await fetch("version", { cache: "no-store", signal: AbortSignal.timeout(30000) });
      if (!reply.ok) throw new Error(String(reply.status));
      newest = await reply.text();
      status("follows the runs");
    } catch {
      status("the server does not answer; this is how the runs stood");
    }
    if (newest !== version) {
      if (!isReading()) { load(); return; }
      const button = make("button", { type: "button", id: "update" }, "Update");
      button.addEventListener("click", load);
      status("the runs have gone on", button);
    }
    setTimeout(ask, ASK_EVERY);
  }
}
