"use strict";
/* The group browser: prompts on the left, the members of one group on the right, best first; prompts of the evaluation with what was made of them before and after. */

const FILTERS = [
  ["all", "All", () => true],
  ["flat", "Flat", (group) => group.flat],
  ["wrong", "All wrong", (group) => group.wrong],
  ["spread", "Highest spread", (group) => group.spread > 0],
];

const gain = (group) => (group.before === null || group.after === null ? null : group.after - group.before);

const HELD_OUT = [
  ["all", "All", () => true],
  ["better", "Better", (group) => gain(group) > 0],
  ["worse", "Worse", (group) => gain(group) < 0],
  ["same", "As before", (group) => gain(group) === 0],
];

const COLOURS = [
  ["cr", "credit", "how much each token was pushed up or down: advantage times credit"],
  ["lr", "log-ratio", "how far the policy had moved on each token when it was last scored, in nats"],
  ["lp", "surprisal", "minus the log-prob of each token when it was sampled, in nats"],
];

/** Control characters as their pictures, and those that turn the direction of writing as their numbers: nothing is hidden. */
function visible(text) {
  return String(text).replace(/[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g, (char) => `[U+${char.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0")}]`).replace(/[\u0000-\u0008\u000b-\u001f\u007f]/g, (char) => (char === "\u007f" ? "\u2421" : String.fromCharCode(0x2400 + char.charCodeAt(0))));
}

/** A text that somebody's model wrote, kept apart in its direction of writing. */
const foreign = (text, tag = "bdi", attributes = {}) => make(tag, { dir: "auto", ...attributes }, visible(text));

class Browser {
  constructor(root, runs, read) {
    Object.assign(this, { root, runs, read, run: null, filter: "all", words: "", colour: null, shown: [], chosen: null, limit: 200 });
    this.loaded = new Map();
    const first = runs.findIndex((_, place) => this.load(place).groups.length);
    this.build();
    this.open(Math.max(first, 0));
  }

  load(place) {
    if (!this.loaded.has(place)) {
      const data = this.read(place);
      const mean = (values) => (values.length ? values.reduce((sum, value) => sum + value, 0) / values.length : null);
      for (const group of data.groups) {
        const known = group.members.filter((member) => member.r !== null), rewards = known.map((member) => member.r);
        group.best = rewards.length ? Math.max(...rewards) : null;
        group.worst = rewards.length ? Math.min(...rewards) : null;
        group.mean = mean(rewards);
        for (const when of data.held ? ["before", "after"] : []) group[when] = mean(known.filter((member) => member.when === when).map((member) => member.r));
        group.spread = rewards.length ? group.best - group.worst : 0;
      }
      this.loaded.set(place, data);
    }
    return this.loaded.get(place);
  }

  build() {
    this.pick = make("select", { "aria-label": "Run" }, ...this.runs.map((run, place) => make("option", { value: place }, run.name)));
    this.pick.addEventListener("change", () => this.open(Number(this.pick.value)));
    this.search = make("input", { type: "search", placeholder: "Search prompts and texts", "aria-label": "Search prompts and texts", title: "Press / to search" });
    this.search.addEventListener("input", () => { this.words = this.search.value.toLowerCase(); this.list(); });
    this.search.addEventListener("keydown", (event) => { if (event.key === "ArrowDown" || event.key === "Enter") { event.preventDefault(); this.focus(0); } });
    this.segments = make("div", { class: "segments", role: "group", "aria-label": "Which groups" });
    this.note = make("p", { class: "quiet sample" });
    this.items = make("div", { class: "items", role: "listbox", "aria-label": "Groups" });
    this.items.addEventListener("keydown", (event) => this.key(event));
    this.found = make("p", { class: "quiet found", role: "status" });
    this.detail = make("div", { class: "detail", tabindex: -1, "aria-label": "Group" });
    const tools = make("div", { class: "tools" }, ...(this.runs.length > 1 ? [this.pick] : []), this.search, this.segments);
    this.root.replaceChildren(this.note, tools, make("div", { class: "panes" }, make("div", { class: "index" }, this.found, this.items), this.detail));
    addEventListener("keydown", (event) => {
      if (event.key === "/" && !/^(INPUT|SELECT|TEXTAREA)$/.test(document.activeElement.tagName)) { event.preventDefault(); this.search.focus(); }
    });
  }

  open(place) {
    this.run = this.load(place);
    this.pick.value = place;
    const rewards = this.run.groups.flatMap((group) => (group.best === null ? [] : [group.worst, group.best]));
    this.low = rewards.length ? Math.min(...rewards) : 0;
    this.high = rewards.length ? Math.max(...rewards) : 1;
    this.filters = this.run.held ? HELD_OUT : FILTERS;
    if (!this.filters.some(([name]) => name === this.filter)) this.filter = "all";
    this.buttons = new Map(this.filters.map(([name]) => {
      const button = make("button", { type: "button", "data-filter": name });
      button.addEventListener("click", () => { this.filter = name; this.list(); });
      return [name, button];
    }));
    this.segments.replaceChildren(...this.buttons.values());
    this.note.textContent = this.run.held ? this.ofHeldOut(this.run.held) : this.ofGroups();
    if (this.run.pictures_left_out) this.note.textContent += ` ${count(this.run.pictures_left_out)} pictures are left out for size.`;
    this.list();
  }

  ofHeldOut(held) {
    const shown = new Set(this.run.groups.map((group) => group.group)).size, at = (when) => `${when} (step ${count(held[when])})`;
    return `What the model made of ${count(shown)} of ${count(held.recorded)} ${held.prompts}, ${held.after === undefined ? at("before") : `${at("before")} and ${at("after")}`}` +
      `${held.metric ? `, by ${held.metric}` : ""}; of the others the run keeps the rewards alone.` + (held.left ? ` ${count(held.left)} are left out for size.` : "");
  }

  ofGroups() {
    const counts = this.run.counts, left = counts.recorded - counts.shown;
    const strata = Object.entries(counts.strata).map(([name, number]) => `${count(number)} ${name}`).join(", ");
    return `${count(counts.recorded)} groups were recorded in ${count(counts.steps)} of ${count(counts.of_steps)} steps` +
      (counts.whole_from ? ` (all that were written from step ${count(counts.whole_from)} on, and of those before an even choice)` : "") +
      (left > 0 ? `; ${count(counts.shown)} are here, chosen by strata (${strata}), and the other ${count(left)} stay in rollouts/.` : ", and all are here.") +
      ` Of all recorded, ${count(counts.flat)} are flat, ${count(counts.all_wrong)} of them all wrong.`;
  }

  matches(group) {
    if (!this.words) return true;
    if (group.haystack === undefined) {
      const texts = [group.prompt, group.key, ...group.members.flatMap((member) => [member.t, member.k && member.k.join(""), member.m, member.d, member.e])];
      group.haystack = texts.filter(Boolean).map((each) => (typeof each === "string" ? each : JSON.stringify(each))).join("\n").toLowerCase();
    }
    return group.haystack.includes(this.words);
  }

  list() {
    const matching = this.run.groups.filter((group) => this.matches(group));
    for (const [name, label, test] of this.filters) {
      const button = this.buttons.get(name);
      button.replaceChildren(label, make("span", { class: "quiet" }, ` ${count(matching.filter(test).length)}`));
      button.setAttribute("aria-pressed", String(name === this.filter));
    }
    this.shown = matching.filter(this.filters.find(([name]) => name === this.filter)[2]);
    if (this.filter === "spread") this.shown.sort((one, other) => other.spread - one.spread || one.step - other.step);
    this.found.textContent = this.shown.length ? `${count(this.shown.length)} ${this.run.held ? "prompt" : "group"}${this.shown.length === 1 ? "" : "s"}` : `No ${this.run.held ? "prompt" : "group"} matches.`;
    this.limit = 200;
    this.fill();
    if (!this.shown.includes(this.chosen)) this.choose(this.shown.length ? 0 : -1);
    else this.choose(this.shown.indexOf(this.chosen));
  }

  fill() {
    this.items.replaceChildren(...this.shown.slice(0, this.limit).map((group, place) => this.item(group, place)));
    if (this.shown.length > this.limit) {
      const more = make("button", { type: "button", class: "more" }, `Show ${count(Math.min(200, this.shown.length - this.limit))} more`);
      more.addEventListener("click", () => { this.limit += 200; this.fill(); this.choose(this.shown.indexOf(this.chosen), false); });
      this.items.append(more);
    }
  }

  item(group, place) {
    const strip = make("span", { class: "strip", "aria-hidden": "true" });
    const stops = group.members.map((member, index) => `${this.shade(member.r)} ${(100 * index) / group.members.length}% ${(100 * (index + 1)) / group.members.length}%`);
    if (stops.length) strip.style.background = `linear-gradient(to right, ${stops.join(",")})`;
    const text = typeof group.prompt === "string" ? group.prompt : group.prompt.map(([, content]) => content).join(" ");
    const tag = this.run.held ? make("span", { class: `tag ${gain(group) < 0 ? "bad" : ""}` }, [group.before, group.after].filter((value) => value !== null).map(say).join(" → "))
      : group.wrong ? make("span", { class: "tag bad" }, "all wrong") : group.flat ? make("span", { class: "tag" }, "flat") : make("span", { class: "quiet" }, `${say(group.worst)} to ${say(group.best)}`);
    const item = make("div", { class: "item", role: "option", tabindex: -1, "aria-selected": "false" },
      make("span", { class: "where" }, make("b", {}, this.run.held ? visible(group.mode) : `Step ${count(group.step)}`), tag), foreign(text.slice(0, 160) || "(no prompt)", "span", { class: "excerpt" }), strip);
    item.addEventListener("click", () => this.choose(place));
    return item;
  }

  shade(reward) {
    if (reward === null) return "var(--rule)";
    const share = this.high > this.low ? (reward - this.low) / (this.high - this.low) : reward > 0 ? 1 : 0;
    return `color-mix(in oklab, var(--high) ${(100 * share).toFixed(0)}%, var(--low))`;
  }

  choose(place, show = true) {
    for (const item of this.items.querySelectorAll("[aria-selected=true]")) { item.setAttribute("aria-selected", "false"); item.tabIndex = -1; }
    const item = this.items.children[place];
    this.place = place;
    if (item && place >= 0) { item.setAttribute("aria-selected", "true"); item.tabIndex = 0; }
    if (!show) return;
    this.chosen = place >= 0 ? this.shown[place] : null;
    this.show();
  }

  focus(place) {
    if (place < 0 || place >= Math.min(this.shown.length, this.limit)) return;
    this.choose(place);
    const item = this.items.children[place];
    item.focus({ preventScroll: true });
    item.scrollIntoView({ block: "nearest" });
  }

  key(event) {
    const last = Math.min(this.shown.length, this.limit) - 1;
    const to = { ArrowDown: this.place + 1, ArrowUp: this.place - 1, j: this.place + 1, k: this.place - 1, Home: 0, End: last, PageDown: Math.min(last, this.place + 8), PageUp: Math.max(0, this.place - 8) }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    this.focus(to);
  }

  show() {
    const group = this.chosen;
    this.detail.scrollTop = 0;
    if (!group) { this.detail.replaceChildren(make("p", { class: "none" }, "Nothing to show: widen the search or the filter.")); return; }
    const held = this.run.held;
    const facts = held ? [visible(group.mode), `prompt ${group.group}`, ...["before", "after"].filter((when) => group[when] !== null).map((when) => `${when}, step ${count(held[when])}: ${say(group[when])}`)]
      : [`Step ${count(group.step)}`, `group ${group.group}`, `${count(group.members.length)} members`, `mean reward ${say(group.mean)}`, `spread ${say(group.spread)}`,
      ...Object.entries(group.settings || {}).map(([name, value]) => `${name.replaceAll("_", " ")} ${say(value)}`), `here as: ${group.why}`];
    const prompt = typeof group.prompt === "string" ? foreign(group.prompt || "(no prompt)", "div", { class: "prompt" }) : make("div", { class: "prompt" }, this.turns(group.prompt));
    const shared = this.sharedPictures(group);
    this.scale(group);
    this.detail.replaceChildren(
      make("p", { class: "facts" }, ...facts.map((fact) => make("span", {}, visible(fact)))), prompt, ...(shared.length ? [make("div", { class: "pictures" }, ...shared)] : []), this.colours(group),
      make("ol", { class: this.isGallery(group) ? "members gallery" : "members" }, ...group.members.map((member, place) => this.member(group, member, place))));
    if (group.left) this.detail.append(make("p", { class: "quiet" }, `${count(group.left)} members in between are left out.`));
  }

  /** Members that are pictures and nothing else stand side by side. */
  isGallery(group) {
    return group.members.every((member) => member.i && member.t === undefined && !member.k && !member.d && !member.m);
  }

  /** Pictures that all members have in common stand once, beside the prompt. */
  sharedPictures(group) {
    const first = group.members[0].i || {};
    group.common = group.members.length > 1 && !this.run.held ? Object.keys(first).filter((name) => group.members.every((member) => (member.i || {})[name] === first[name])) : [];
    return group.common.map((name) => this.picture(name, first[name]));
  }

  scale(group) {
    group.colours = COLOURS.filter(([field]) => group.members.some((member) => member[field]));
    if (!group.colours.length && group.members.some((member) => member.k)) group.colours = [];
    group.most = {};
    for (const [field] of group.colours) {
      let most = 0;
      for (const member of group.members) for (const value of member[field] || []) if (value !== null) most = Math.max(most, Math.abs(value));
      group.most[field] = most;
    }
  }

  /** Which number colours the tokens. */
  colours(group) {
    if (!group.members.some((member) => member.k)) return "";
    // Without a credit of its own, a token carries its member's advantage.
    const choices = [["none", "nothing", ""], ["cr", "credit", COLOURS[0][2]], ...group.colours.filter(([field]) => field !== "cr")];
    if (!choices.some(([field]) => field === this.colour)) this.colour = "cr";
    const most = this.most(group);
    const legend = make("span", { class: "scale", "aria-hidden": "true" });
    const ends = this.colour === "lp" ? ["0", say(most)] : [say(-most), say(most)];
    if (this.colour !== "none") legend.append(make("i", {}, ends[0]), make("span", { class: this.colour === "lp" ? "ramp one" : "ramp" }), make("i", {}, ends[1]));
    const buttons = choices.map(([field, name, says]) => {
      const button = make("button", { type: "button", "aria-pressed": String(field === this.colour), title: says, "data-colour": field }, name);
      button.addEventListener("click", () => { this.colour = field; this.show(); this.detail.querySelector(`[data-colour=${field}]`).focus(); });
      return button;
    });
    return make("div", { class: "colours" }, make("span", { class: "quiet" }, "Colour tokens by"), make("div", { class: "segments", role: "group", "aria-label": "Colour tokens by" }, ...buttons), legend);
  }

  most(group) {
    if (this.colour === "cr" && !(group.most.cr > 0)) return Math.max(...group.members.map((member) => Math.abs(member.a || 0)));
    if (this.colour === "cr") return Math.max(group.most.cr, ...group.members.filter((member) => !member.cr).map((member) => Math.abs(member.a || 0)));
    return group.most[this.colour] || 0;
  }

  member(group, member, place) {
    const most = Math.max(...group.members.map((each) => Math.abs(each.a || 0))) || 1;
    const bar = make("span", { class: `bar ${member.a < 0 ? "minus" : "plus"}`, "aria-hidden": "true" });
    const fill = make("i");
    fill.style.width = `${(50 * Math.abs(member.a || 0)) / most}%`;
    bar.append(fill);
    const chip = make("span", { class: "chip", "aria-hidden": "true" });
    chip.style.background = this.shade(member.r);
    const head = make("div", { class: "score" }, make("div", { class: "reward" }, chip, make("b", {}, say(member.r)), make("span", { class: "quiet" }, this.run.held ? "score" : "reward")),
      member.when ? make("div", {}, make("span", { class: "tag when" }, member.when)) : make("div", { class: "advantage" }, bar, make("span", {}, `${member.a > 0 ? "+" : ""}${say(member.a)}`), make("span", { class: "quiet" }, "advantage")));
    const facts = make("p", { class: "parts" });
    if (this.run.parts.length > 1 || (this.run.parts.length === 1 && member.p[0] !== member.r)) {
      this.run.parts.forEach((name, index) => { if (member.p[index] !== null) facts.append(make("span", { class: "part" }, foreign(name), make("b", {}, say(member.p[index])))); });
    }
    if (member.n !== undefined) facts.append(make("span", { class: "quiet" }, `${count(member.n)} decision${member.n === 1 ? "" : "s"}`));
    if (member.l) facts.append(make("span", { class: "quiet" }, `mean log-ratio ${say(member.l)}`));
    if (member.x) facts.append(make("span", { class: "tag" }, "cut off"));
    const body = make("div", { class: "body" }, facts);
    const item = make("li", { class: "member", value: place + 1 }, head, body);
    const own = Object.entries(member.i || {}).filter(([name]) => !group.common.includes(name));
    if (own.length) body.append(make("div", { class: "pictures" }, ...own.map(([name, picture]) => this.picture(name, picture))));
    if (member.d) body.append(this.demonstrations(member.d));
    if (member.o !== undefined || member.w !== undefined) body.append(make("p", { class: "answered" }, make("span", { class: "quiet" }, "answered "), foreign(member.o ?? "–", "b"), ...(member.w ? [make("span", { class: "quiet" }, " of right answers "), foreign(member.w)] : [])));
    const plain = this.colour === "none" || !member.k;
    if (!plain) {
      const text = make("div", { class: "text tokens", dir: "auto" });
      text.style.minHeight = "1.6em";
      body.append(text);
      whenNear(text, () => this.tokens(text, group, member));
    } else if (member.m) body.append(this.turns(member.m));
    else if (member.t !== undefined && !member.d) body.append(foreign(member.t || "(empty)", "div", { class: "text" }));
    if (member.e) body.append(make("details", { class: "rest" }, make("summary", {}, "More of this record"), make("dl", {}, ...Object.entries(member.e).flatMap(([name, value]) => [make("dt", {}, foreign(name)), make("dd", {}, foreign(value))]))));
    return item;
  }

  tokens(text, group, member) {
    const most = this.most(group), values = member[this.colour];
    const nodes = member.k.map((token, place) => {
      const decided = !member.lp || member.lp[place] !== null;
      const value = values ? values[place] : this.colour === "cr" && decided ? member.a : null;
      const shown = visible(token), node = make("span", { class: decided ? "token" : "token given" }, shown === "" ? "∅" : shown);
      const says = [];
      if (member.cr || member.a !== null) says.push(["credit", member.cr ? member.cr[place] : decided ? member.a : null]);
      if (member.lr) says.push(["log-ratio", member.lr[place]]);
      if (member.lp) says.push(["log-prob", member.lp[place]]);
      node.title = decided ? says.filter(([, each]) => each !== null).map(([name, each]) => `${name} ${say(each)}`).join(" · ") : "given, no decision";
      if (value !== null && value !== undefined && most > 0) {
        const share = Math.round(55 * Math.min(1, Math.abs(value) / most));
        node.style.background = `color-mix(in srgb, var(${this.colour === "lp" ? "--warm" : value < 0 ? "--minus" : "--plus"}) ${share}%, transparent)`;
      }
      return node;
    });
    // Tokens of a vocabulary without spaces of its own are words that stand side by side.
    const apart = !member.k.some((token) => /^\s|\s$/.test(token)) && member.t && /\s/.test(member.t);
    text.classList.toggle("apart", Boolean(apart));
    text.append(...nodes);
    if (member.more) nodes[member.head - 1].after(make("span", { class: "quiet cut" }, ` … ${count(member.more)} tokens left out … `));
    if (apart) nodes.forEach((node) => node.after(" "));
  }

  turns(turns) {
    return make("div", { class: "turns" }, ...turns.map(([role, content]) => make("div", { class: `turn ${role === "assistant" ? "own" : ""}` }, make("span", { class: "role" }, visible(role)), foreign(content, "div"))));
  }

  demonstrations(shown) {
    return make("ol", { class: "shown" }, ...shown.map((each) => {
      const item = make("li");
      for (const [name, value] of Object.entries(each)) {
        if (typeof value === "number") item.append(this.picture(name, value));
        else if (value !== null && name !== "id") item.append(foreign(value, "span", { class: name === "answer" ? "answer" : "question" }));
      }
      if (each.id !== undefined) item.append(foreign(each.id, "code"));
      return item;
    }));
  }

  picture(name, number) {
    const address = number === null ? null : this.run.pictures[number];
    const image = address ? make("img", { src: address, alt: visible(name) }) : make("span", { class: "missing" }, "not here");
    return make("figure", {}, image, make("figcaption", { class: "quiet" }, visible(name.replaceAll("_", " "))));
  }
}
