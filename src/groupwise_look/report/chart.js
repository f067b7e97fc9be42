"use strict";
/* Line and fan charts of a few hundred points, as SVG. All charts share one cursor: a place looked at in one is marked in all. */

const SVG = "http://www.w3.org/2000/svg";

/** An element with attributes and children; strings become text, never markup. */
function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value === true ? "" : value);
  element.append(...children);
  return element;
}

function draw(tag, attributes = {}, text = null) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (text !== null) element.textContent = text;
  return element;
}

/** Calls `work` once, when the element comes near the window. */
const whenNear = (() => {
  const waiting = new Map();
  const observer = new IntersectionObserver((entries) => {
    for (const entry of entries) if (entry.isIntersecting) run(entry.target);
  }, { rootMargin: "400px" });
  function run(element) {
    const work = waiting.get(element);
    waiting.delete(element);
    observer.unobserve(element);
    if (work) work();
  }
  addEventListener("beforeprint", () => [...waiting.keys()].forEach(run));
  return (element, work) => { waiting.set(element, work); observer.observe(element); };
})();

/** A number as people write it: four digits that count. */
function say(value) {
  if (value === null || value === undefined) return "–";
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e6)) return Number(value.toPrecision(3)).toExponential().replace("e+", "e").replaceAll("-", "−");
  return Number(value.toPrecision(4)).toLocaleString("en", { maximumFractionDigits: 6 }).replace("-", "−");
}

const count = (value) => value.toLocaleString("en");

/** Round numbers between two values. */
function ticks(low, high, about) {
  const raw = (high - low) / about, power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map((each) => each * power).find((each) => each >= raw);
  const found = [];
  for (let place = Math.ceil(low / step - 1e-9); place * step <= high + step * 1e-9; place++) found.push(Number((place * step).toPrecision(12)));
  return found;
}

function logTicks(low, high) {
  const found = [], first = Math.ceil(Math.log10(low) - 1e-9), last = Math.floor(Math.log10(high) + 1e-9);
  const stride = Math.max(1, Math.ceil((last - first + 1) / 5));
  for (let power = first; power <= last; power += stride) found.push(10 ** power);
  return found.length > 1 ? found : [low, high];
}

class Chart {
  /** `data`: one chart of the page. `shared`: names of variants, which of them are hidden, the view, the cursor. */
  constructor(data, shared, tall = false) {
    Object.assign(this, { data, shared, height: tall ? 250 : 176, log: false, drawn: false });
    this.plot = make("div", { class: "plot" });
    const caption = make("figcaption", {}, make("span", { class: "title" }, data.title), data.says ? make("span", { class: "quiet" }, data.says) : make("code", {}, data.metric));
    if (data.kind === "line" && this.spansDecades()) {
      const button = make("button", { type: "button", class: "log", "aria-pressed": "false", title: "Logarithmic axis" }, "log");
      button.addEventListener("click", () => { this.log = !this.log; button.setAttribute("aria-pressed", String(this.log)); this.redraw(); });
      caption.append(button);
    }
    this.element = make("figure", { class: "chart" }, caption, this.plot);
    this.plot.style.height = `${this.height}px`;
    whenNear(this.element, () => { this.drawn = true; this.redraw(); });
  }

  /** What is drawn, prepared once for each drawing. */
  get series() { return (this.prepared ??= this.shared.view.prepare(this.data.series.filter((series) => !this.shared.hidden.has(series.variant)), this.data.metric.startsWith("eval/"))); }

  columns(series) {
    if (this.data.kind === "fan") return series.quantiles;
    return ["low", "high", "run_low", "run_high", "mean"].filter((name) => series[name]).map((name) => series[name]);
  }

  spansDecades() {
    let low = Infinity, high = -Infinity;
    for (const series of this.data.series) for (const column of this.columns(series)) for (const value of column) if (value !== null) {
      low = Math.min(low, value);
      high = Math.max(high, value);
    }
    // Shares and scores between 0 and 1 are read as they are.
    return low > 0 && high / low > 30 && (high > 1 || high < 0.1);
  }

  redraw() {
    if (!this.drawn) return;
    this.prepared = null;
    const view = this.shared.view, axis = AXES[view.axis];
    const width = Math.max(220, this.plot.clientWidth), height = this.height;
    const box = { left: 50, right: width - 10, top: 8, bottom: height - 20 };
    const svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, width, height, tabindex: 0, role: "img", "aria-label": this.summary() });
    this.plot.replaceChildren(svg);
    this.svg = svg;
    let low = Infinity, high = -Infinity, first = Infinity, last = -Infinity;
    for (const series of this.series) {
      for (const column of this.columns(series)) for (const value of column) if (value !== null) {
        low = Math.min(low, value);
        high = Math.max(high, value);
      }
      first = Math.min(first, series.at[0]);
      last = Math.max(last, series.at[series.at.length - 1]);
    }
    for (const mark of this.data.marks || []) if (!this.shared.hidden.has(mark.variant)) { low = Math.min(low, mark.value); high = Math.max(high, mark.value); }
    if (low > high) {
      svg.append(draw("text", { x: width / 2, y: height / 2, class: "axis middle" }, this.data.series.length ? "no variant is shown" : "nothing was recorded"));
      this.x = null;
      return;
    }
    if (!this.log && low > 0 && low < 0.35 * high) low = 0;
    if (low === high) { low = low === 0 ? 0 : low - Math.abs(low) * 0.1; high = high === 0 ? 1 : high + Math.abs(high) * 0.1; }
    if (first === last) { first -= 1; last += 1; }
    const marks = this.log ? logTicks(low, high) : ticks(low, high, height > 200 ? 5 : 4);
    if (!this.log) { const room = (high - low) * 0.04; low = Math.min(marks[0], low === 0 ? 0 : low - room); high = Math.max(marks[marks.length - 1], high + room); }
    const scale = this.log ? Math.log10 : (value) => value;
    const [bottom, top] = [scale(low), scale(high)];
    const x = (place) => box.left + ((place - first) / (last - first)) * (box.right - box.left);
    const y = (value) => box.bottom - ((scale(value) - bottom) / (top - bottom || 1)) * (box.bottom - box.top);
    Object.assign(this, { x, y, box, first, last });
    for (const value of marks) {
      svg.append(draw("line", { x1: box.left, x2: box.right, y1: y(value), y2: y(value), class: "grid" }));
      svg.append(draw("text", { x: box.left - 6, y: y(value) + 3.5, class: "axis end" }, say(value)));
    }
    for (const place of ticks(first, last, width > 420 ? 6 : 4)) if (view.axis !== "step" || Number.isInteger(place)) {
      const late = x(place) > box.right - 14;
      svg.append(draw("text", { x: late ? width - 2 : x(place), y: height - 5, class: late ? "axis end" : "axis middle" }, axis.mark(place)));
    }
    // Names of neighbouring stages stand above each other where side by side they would overlap.
    let taken = -Infinity, lift = 0;
    for (const stage of view.stages) {
      const place = view.place(stage.variant, stage.step);
      if (this.shared.hidden.has(stage.variant) || place <= first || place >= last) continue;
      svg.append(draw("line", { x1: x(place), x2: x(place), y1: box.top, y2: box.bottom, class: "stage" }));
      if (this.height <= 200) continue;
      const late = x(place) > box.right - 90, wide = 7 * stage.name.length;
      lift = x(place) - (late ? wide : 0) < taken ? lift + 13 : 0;
      taken = Math.max(taken, x(place) + (late ? 0 : wide));
      svg.append(draw("text", { x: x(place) + (late ? -4 : 4), y: box.bottom - 5 - lift, class: `axis ${late ? "end" : ""}` }, stage.name));
    }
    // Names of controls that lie close together stand above each other; they come lowest first.
    let above = Infinity;
    for (const mark of this.data.marks || []) if (!this.shared.hidden.has(mark.variant)) {
      above = Math.min(y(mark.value) - 4, above - 12);
      svg.append(draw("line", { x1: box.left, x2: box.right, y1: y(mark.value), y2: y(mark.value), class: `baseline s${mark.variant % 8}` }));
      svg.append(draw("text", { x: box.right - 2, y: above, class: "axis end" }, mark.name));
    }
    for (const series of this.series) this.data.kind === "fan" ? this.fan(series) : this.line(series);
    this.line_at = draw("line", { y1: box.top, y2: box.bottom, class: "cursor", visibility: "hidden" });
    this.dots = draw("g");
    svg.append(this.line_at, this.dots);
    svg.addEventListener("pointermove", (event) => this.point(event));
    svg.addEventListener("pointerleave", () => this.shared.look(null));
    svg.addEventListener("blur", () => this.shared.look(null));
    svg.addEventListener("keydown", (event) => this.key(event));
    if (this.shared.place !== null) this.mark(this.shared.place);
  }

  path(at, values) {
    let text = "", pen = false;
    for (let place = 0; place < at.length; place++) {
      if (values[place] === null || (this.log && values[place] <= 0)) { pen = false; continue; }
      text += `${pen ? "L" : "M"}${this.x(at[place]).toFixed(1)} ${this.y(values[place]).toFixed(1)}`;
      pen = true;
    }
    return text;
  }

  area(series, low, high, kind) {
    const places = series.at.map((_, place) => place).filter((place) => low[place] !== null && high[place] !== null);
    const pick = (column) => places.map((place) => column[place]);
    const up = this.path(pick(series.at), pick(high)), down = this.path(pick(series.at).reverse(), pick(low).reverse());
    if (places.length === 1) {
      const [at, from, to] = [this.x(series.at[places[0]]), this.y(high[places[0]]), this.y(low[places[0]])];
      this.svg.append(draw("rect", { x: at - 6, width: 12, y: from, height: Math.max(0, to - from), class: `${kind} s${series.variant % 8}` }));
    }
    if (places.length > 1) this.svg.append(draw("path", { d: `${up}L${down.slice(1)}Z`, class: `${kind} s${series.variant % 8}` }));
  }

  line(series) {
    if (series.low) this.area(series, series.low, series.high, "extremes");
    if (series.run_low) this.area(series, series.run_low, series.run_high, "seeds");
    const dash = ["", "dash-1", "dash-2"][Math.floor(series.variant / 8) % 3];
    if (series.smooth) this.svg.append(draw("path", { d: this.path(series.at, series.mean), class: `raw s${series.variant % 8}` }));
    this.svg.append(draw("path", { d: this.path(series.at, series.smooth || series.mean), class: `mean s${series.variant % 8} ${dash}` }));
    if (series.at.length <= 24) for (let place = 0; place < series.at.length; place++) if (series.mean[place] !== null) {
      this.svg.append(draw("circle", { cx: this.x(series.at[place]), cy: this.y(series.mean[place]), r: 2.6, class: `dot s${series.variant % 8}` }));
    }
  }

  fan(series) {
    const columns = series.quantiles, middle = (columns.length - 1) / 2;
    for (let place = 0; place < middle; place++) this.area(series, columns[place], columns[columns.length - 1 - place], "seeds");
    this.svg.append(draw("path", { d: this.path(series.at, columns[middle]), class: `mean s${series.variant % 8}` }));
    if (series.at.length === 1) this.svg.append(draw("circle", { cx: this.x(series.at[0]), cy: this.y(columns[middle][0]), r: 3, class: `dot s${series.variant % 8}` }));
  }

  /** The index of the point of a series that lies nearest to a place on the axis. */
  nearest(series, place) {
    let best = 0;
    series.at.forEach((value, index) => { if (Math.abs(value - place) < Math.abs(series.at[best] - place)) best = index; });
    return best;
  }

  point(event) {
    if (!this.x) return;
    const bounds = this.svg.getBoundingClientRect();
    const wanted = this.first + ((event.clientX - bounds.left - this.box.left) / (this.box.right - this.box.left)) * (this.last - this.first);
    this.choose(wanted);
  }

  choose(wanted) {
    const places = this.series.map((series) => series.at[this.nearest(series, wanted)]);
    if (!places.length) return;
    this.shared.look(places.reduce((best, place) => (Math.abs(place - wanted) < Math.abs(best - wanted) ? place : best)), this);
  }

  key(event) {
    const all = [...new Set(this.series.flatMap((series) => series.at))].sort((one, other) => one - other);
    if (!all.length) return;
    const now = this.shared.place === null ? -1 : all.reduce((best, value, index) => (Math.abs(value - this.shared.place) < Math.abs(all[best] - this.shared.place) ? index : best), 0);
    const to = { ArrowRight: Math.min(now + 1, all.length - 1), ArrowLeft: Math.max(now - 1, 0), Home: 0, End: all.length - 1 }[event.key];
    if (event.key === "Escape") this.shared.look(null);
    if (to === undefined) return;
    event.preventDefault();
    this.shared.look(all[to], this);
  }

  /** Shows the cursor at a place of the axis, or takes it away. */
  mark(place) {
    if (!this.drawn || !this.x) return;
    const inside = place !== null && place >= this.first && place <= this.last;
    this.line_at.setAttribute("visibility", inside ? "visible" : "hidden");
    this.dots.replaceChildren();
    if (!inside) return;
    this.line_at.setAttribute("x1", this.x(place));
    this.line_at.setAttribute("x2", this.x(place));
    for (const series of this.series) {
      const point = this.nearest(series, place), value = this.data.kind === "fan" ? series.quantiles[(series.quantiles.length - 1) / 2][point] : (series.smooth || series.mean)[point];
      if (value !== null && !(this.log && value <= 0)) this.dots.append(draw("circle", { cx: this.x(series.at[point]), cy: this.y(value), r: 3.2, class: `dot s${series.variant % 8}` }));
    }
  }

  /** What is known at a place of the axis, variant by variant. */
  rows(place) {
    return this.series.map((series) => {
      const point = this.nearest(series, place), name = this.shared.names[series.variant];
      const step = this.shared.view.axis === "step" ? "" : `step ${count(series.step[point])}`;
      if (this.data.kind === "fan") {
        const more = [`${say(series.quantiles[0][point])} to ${say(series.quantiles[series.quantiles.length - 1][point])}`, step].filter(Boolean).join(", ");
        return { variant: series.variant, name, value: say(series.quantiles[(series.quantiles.length - 1) / 2][point]), more };
      }
      const low = (series.low || series.run_low || [])[point], high = (series.high || series.run_high || [])[point];
      const runs = series.run_low ? `${series.num_runs[point]} seed${series.num_runs[point] === 1 ? "" : "s"}` : "";
      const smooth = series.smooth ? `smoothed ${say(series.smooth[point])}` : "";
      const more = [low !== undefined && low !== high ? `${say(low)} to ${say(high)}` : "", smooth, runs, step].filter(Boolean).join(", ");
      return { variant: series.variant, name, value: say(series.mean[point]), more };
    });
  }

  summary() {
    const parts = this.series.map((series) => {
      const column = this.data.kind === "fan" ? series.quantiles[(series.quantiles.length - 1) / 2] : series.mean, end = column.length - 1;
      return `${this.shared.names[series.variant]}: ${say(column[0])} at step ${series.step[0]}, ${say(column[end])} at step ${series.step[end]}`;
    });
    return `${this.data.title}. ${parts.join("; ")}. Arrow keys read it step by step.`;
  }
}
