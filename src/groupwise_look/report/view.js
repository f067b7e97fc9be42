"use strict";
/* What curves are drawn over (steps, seconds, decisions), which stages are folded away, and how far curves are smoothed. */

const AXES = {
  step: { name: "Steps", mark: count, say: (value) => `Step ${count(value)}` },
  seconds: { name: "Time", mark: duration, say: (value) => `After ${duration(value)}` },
  decisions: { name: "Decisions", mark: compact, say: (value) => `After ${compact(value)} decisions` },
};

/** Shares of a curve's points over which an exponential mean reaches; it reaches over three points at least. */
const SMOOTHING = { None: 0, Light: 1 / 20, Strong: 1 / 6 };

function duration(seconds) {
  const [unit, size] = seconds >= 7200 ? ["h", 3600] : seconds >= 600 ? ["min", 60] : ["s", 1];
  return `${Number((seconds / size).toPrecision(3)).toLocaleString("en")} ${unit}`;
}

function compact(value) {
  return value.toLocaleString("en", { notation: "compact", maximumSignificantDigits: 3 });
}

class View {
  /** `axes`: for every variant, steps with the seconds and decisions up to them. `stages`: the first step of each stage. */
  constructor(axes, stages) {
    Object.assign(this, { axes, stages, axis: "step", smoothing: "None" });
    this.stageNames = [...new Set(stages.map((stage) => stage.name))];
    this.folded = new Set(stages.filter((stage) => stage.folded).map((stage) => stage.name));
  }

  get axisNames() { return Object.keys(AXES).filter((name) => this.axes.every((axis) => axis[name])); }

  /** The place of a variant's step on the axis. */
  place(variant, step) {
    if (this.axis === "step") return step;
    const steps = this.axes[variant].step, values = this.axes[variant][this.axis], last = steps.length - 1;
    if (step >= steps[last]) return values[last];
    const next = steps.findIndex((value) => value > step);
    if (next <= 0) return values[0];
    const share = (step - steps[next - 1]) / (steps[next] - steps[next - 1]);
    return values[next - 1] + share * (values[next] - values[next - 1]);
  }

  isFolded(variant, step) {
    let stage = null;
    for (const candidate of this.stages) if (candidate.variant === variant && candidate.step <= step) stage = candidate;
    return stage !== null && this.folded.has(stage.name);
  }

  /** The series of a chart with their places on the axis, without what is folded; a chart that would be empty shows all.
      `evaluated`: what a folded stage ended with is where the next one began, and stays. */
  prepare(allSeries, evaluated) {
    const open = allSeries.map((series) => {
      const folded = series.step.map((step) => this.isFolded(series.variant, step));
      return [...folded.keys()].filter((place) => !folded[place] || (evaluated && folded[place + 1] === false));
    });
    const isEmpty = open.every((places) => !places.length);
    return allSeries.map((series, index) => this.part(series, isEmpty ? [...series.step.keys()] : open[index], evaluated)).filter((series) => series.step.length);
  }

  /** Evaluations are few, and each measures all prompts: they are not smoothed. */
  part(series, places, evaluated) {
    const pick = (column) => places.map((place) => column[place]);
    const part = { variant: series.variant };
    for (const [name, column] of Object.entries(series)) if (Array.isArray(column)) part[name] = name === "quantiles" ? column.map(pick) : pick(column);
    part.at = part.step.map((step) => this.place(series.variant, step));
    if (part.mean && !evaluated && SMOOTHING[this.smoothing]) part.smooth = smoothed(part.mean, Math.max(3, SMOOTHING[this.smoothing] * part.mean.length));
    return part;
  }

  /** What a reader chose, and the choice of a page before this one. */
  get choice() { return { axis: this.axis, smoothing: this.smoothing, folded: [...this.folded] }; }

  restore(choice) {
    if (this.axisNames.includes(choice.axis)) this.axis = choice.axis;
    if (choice.smoothing in SMOOTHING) this.smoothing = choice.smoothing;
    if (Array.isArray(choice.folded)) this.folded = new Set(choice.folded.filter((name) => this.stageNames.includes(name)));
  }

  /** The buttons; `update` draws the charts again. */
  controls(update) {
    const group = (label, names, isPressed, press) => {
      const buttons = names.map(([name, text]) => {
        const button = make("button", { type: "button", "data-choice": name, "aria-pressed": String(isPressed(name)) }, text);
        button.addEventListener("click", () => {
          press(name);
          for (const other of buttons) other.setAttribute("aria-pressed", String(isPressed(other.dataset.choice)));
          update();
        });
        return button;
      });
      return make("span", { class: "choice" }, make("span", { class: "quiet" }, label), make("span", { class: "segments", role: "group", "aria-label": label }, ...buttons));
    };
    const axes = this.axisNames, controls = [];
    if (axes.length > 1) controls.push(group("Over", axes.map((name) => [name, AXES[name].name]), (name) => name === this.axis, (name) => { this.axis = name; }));
    controls.push(group("Smoothing", Object.keys(SMOOTHING).map((name) => [name, name]), (name) => name === this.smoothing, (name) => { this.smoothing = name; }));
    if (this.stageNames.length > 1) controls.push(group("Stages", this.stageNames.map((name) => [name, visible(name)]), (name) => !this.folded.has(name), (name) => { this.folded.has(name) ? this.folded.delete(name) : this.folded.add(name); }));
    return controls;
  }
}

/** An exponential mean over about `reach` points, without a pull to the first value. */
function smoothed(values, reach) {
  const weight = 2 / (reach + 1);
  let sum = 0, total = 0;
  return values.map((value) => {
    if (value === null) return null;
    sum += weight * (value - sum);
    total += weight * (1 - total);
    return sum / total;
  });
}
