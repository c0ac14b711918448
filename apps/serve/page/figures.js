/* The panel of the engine: GET /stats once a second while it is open or an answer is awaited. The server gives
 * counters, the panel shows differences; what a model does not have is not shown. Times between tokens are measured
 * here, by what arrives. */

const HISTORY = 120; /* values of a curve */
const HEAT_ROWS = 24;

const figures = {
  last: null /* what the newest answer of /stats says of the model; null: nothing */,
  model: "" /* whose figures they are */,
  isAbsent: false /* the server has the model, not in memory */,
  rates: [] /* {seconds, speed, prompt, readRate, hits} between two answers */,
  heat: [] /* shares by layer, newest first */,
  heatOf: "" /* what they are shares of */,
  firstTimes: [] /* seconds until the first token, of the last answers of this page */,
  gaps: [] /* seconds between tokens */,
  timer: null,
  wanted: () => false /* set by page.js */,
  onUpdate: () => {},

  /* Asks now, and from now on once a second while it is wanted. */
  poll() {
    clearTimeout(this.timer);
    this.timer = null;
    if (document.hidden || !this.wanted()) return;
    this.timer = setTimeout(() => this.poll(), 1000);
    protocol.get("stats").then(
      stats => this.takeOf(stats, page.model),
      () => {},
    );
  },

  /* Asks, unless it does already. */
  start() {
    if (this.timer === null) this.poll();
  },

  /* What was seen of another model tells nothing of this one. */
  watch(model) {
    if (model === this.model) return;
    Object.assign(this, {model, last: null, isAbsent: false});
    Object.assign(this, {rates: [], heat: [], heatOf: "", firstTimes: [], gaps: []});
    this.show();
  },

  /* Of several models others may be in memory. */
  takeOf(stats, model) {
    const own = [...(stats.models || []), stats].find(m => m.model === model);
    this.isAbsent = !own;
    if (own) return this.take(own);
    this.last = null;
    this.onUpdate();
    this.show();
  },

  take(stats) {
    const before = this.last;
    this.last = stats;
    this.onUpdate();
    const seconds = before ? stats.seconds - before.seconds : 0;
    if (seconds > 0) this.addDifference(before, stats, seconds);
    else if (!before) this.addNeurons({}, stats); /* counted since it was watched: not long */
    this.show();
  },

  addDifference(before, now, seconds) {
    const rate = {
      speed: (now.generated_tokens - before.generated_tokens) / seconds,
      prompt: (now.prompt_tokens - before.prompt_tokens) / seconds,
    };
    if (rate.speed < 0) return; /* another process */
    if (now.storage && before.storage) {
      const hits = now.storage.hits - before.storage.hits,
        misses = now.storage.misses - before.storage.misses;
      rate.readRate = (now.storage.read_bytes - before.storage.read_bytes) / seconds;
      rate.hits = hits + misses > 0 ? hits / (hits + misses) : null;
      rate.stalled = (now.storage.stall_seconds - before.storage.stall_seconds) / seconds;
      this.addHeat(
        "parts found in memory",
        now.storage.layers.map(([hit, miss], i) => {
          const [hitBefore, missBefore] = before.storage.layers[i],
            all = hit + miss - hitBefore - missBefore;
          return all > 0 ? (hit - hitBefore) / all : null;
        }),
      );
    } else {
      this.addNeurons(before, now);
    }
    this.rates.push(rate);
    if (this.rates.length > HISTORY) this.rates.shift();
  },

  addNeurons(before, now) {
    if (!now.neurons) return;
    const isNew = !before.neurons || before.neurons.tokens > now.neurons.tokens; /* counting began again */
    const tokens = now.neurons.tokens - (isNew ? 0 : before.neurons.tokens);
    const shares = now.neurons.layers.map((sum, i) => (sum - (isNew ? 0 : before.neurons.layers[i])) / tokens);
    if (tokens > 0) this.addHeat("live neurons", shares);
  },

  addHeat(what, shares) {
    if (what !== this.heatOf) this.heat = [];
    this.heatOf = what;
    if (!shares.some(s => s !== null && s > 0)) return;
    this.heat.unshift(shares);
    if (this.heat.length > HEAT_ROWS) this.heat.pop();
  },

  /* Of an answer of this page. */
  addFirst(seconds) {
    this.firstTimes.push(seconds);
    if (this.firstTimes.length > 40) this.firstTimes.shift();
    this.gaps = [];
  },
  addGap(seconds) {
    this.gaps.push(seconds);
    if (this.gaps.length > HISTORY) this.gaps.shift();
  },

  /* ---- drawing ---- */

  box: null,
  parts: {},

  /* A figure with a heading, made when it is first needed, in this order. */
  part(name, heading, fill) {
    if (!this.parts[name]) {
      const part = (this.parts[name] = {big: make("div", {class: "big"}), say: make("p"), extra: null});
      part.box = make("section", {class: "figure"}, make("h3", null, heading), part.big, part.say);
      if (fill) fill(part);
    }
    return this.parts[name];
  },

  /* Shows or hides figures; order is that of calls. */
  place(part, isShown) {
    part.box.hidden = !isShown;
    if (!part.box.isConnected) this.box.append(part.box);
  },

  show() {
    if (!this.box || !this.box.offsetParent) return;
    if (!this.last) for (const part of Object.values(this.parts)) part.box.hidden = true;
    this.showAbsence();
    if (!this.last) return;
    const s = this.last,
      rate = this.rates[this.rates.length - 1] || {speed: 0, prompt: 0};
    this.showExactness(s);
    this.showSpeed(s, rate);
    this.showHeat();
    this.showStorage(s, rate);
    this.showTimes();
    this.showQueue(s);
    this.showCache(s);
  },

  showAbsence() {
    const part = this.part("absent", "Model");
    part.big.textContent = "Not in memory";
    part.say.textContent = "The first message to " + this.model + " loads it.";
    this.place(part, this.isAbsent);
  },

  showExactness(s) {
    const part = this.part("exact", "Arithmetic");
    part.big.textContent = s.exact ? "Exact" : "Approximate";
    const names = {
      selector: "the selector " + s.selector,
      kv: "a cache of keys and values in Q8_0",
      device: "sums on the device, whose order is its own",
    };
    part.say.textContent = s.exact
      ? "Selector " + s.selector + ": " + s.selector_why + ". Answers have the bits of the whole model."
      : "By " +
        s.approximate.map(n => names[n] || n).join(" and ") +
        ". hearth compare prints what that costs in accuracy.";
    this.place(part, true);
  },

  showSpeed(s, rate) {
    const part = this.part("speed", "Tokens per second", addSpark);
    setBig(
      part,
      rate.speed.toFixed(rate.speed < 99.95 ? 1 : 0),
      rate.prompt >= 1 ? "prompts " + formatCount(Math.round(rate.prompt)) : "",
    );
    part.say.textContent = s.device
      ? s.device.name +
        (s.device.simulated ? " (simulated)" : "") +
        ": " +
        s.device.layers +
        " of " +
        s.n_layer +
        " layers"
      : "";
    drawSpark(
      part.spark,
      this.rates.map(r => r.speed),
      "tokens per second, the last two minutes",
    );
    this.place(part, true);
  },

  showHeat() {
    const part = this.part("heat", "Live neurons by layer", p => {
      p.canvas = make("canvas", {class: "heat", role: "img"});
      p.ends = make("div", {class: "heat-ends", "aria-hidden": "true"}, make("span", null, "layer 0"), make("span"));
      p.box.insertBefore(p.canvas, p.say);
      p.box.insertBefore(p.ends, p.say);
    });
    const newest = this.heat[0];
    this.place(part, Boolean(newest));
    if (!newest) return;
    const known = newest.filter(x => x !== null),
      mean = known.reduce((a, b) => a + b, 0) / known.length,
      most = Math.max(...known),
      isLive = this.heatOf === "live neurons";
    part.box.firstElementChild.textContent = isLive ? "Live neurons by layer" : "Found in memory by layer";
    part.big.hidden = !isLive; /* else the next figure has it */
    setBig(part, formatPercent(mean), "of all neurons");
    part.ends.lastElementChild.textContent = "layer " + (newest.length - 1);
    part.say.textContent = "Most in layer " + newest.indexOf(most) + ": " + formatPercent(most) + ". Newest on top.";
    part.canvas.setAttribute(
      "aria-label",
      "Share of " +
        this.heatOf +
        " in " +
        newest.length +
        " layers: " +
        formatPercent(Math.min(...known)) +
        " to " +
        formatPercent(most),
    );
    drawHeat(part.canvas, this.heat);
  },

  showStorage(s, rate) {
    const hits = this.part("hits", "Found in memory", addSpark),
      reads = this.part("reads", "Read from storage", addSpark);
    this.place(hits, Boolean(s.storage));
    this.place(reads, Boolean(s.storage));
    if (!s.storage) return;
    const all = s.storage.hits + s.storage.misses,
      known = this.rates.map(r => r.hits).filter(h => h !== null && h !== undefined);
    const now = known.length > 0 ? known[known.length - 1] : all > 0 ? s.storage.hits / all : null;
    setBig(hits, now === null ? "–" : formatPercent(now), "of " + formatCount(s.storage.parts) + " parts");
    hits.say.textContent =
      formatBytes(s.storage.cache_bytes) +
      " of memory; guesses that were right: " +
      (s.storage.guesses > 0 ? formatPercent(s.storage.guesses_used / s.storage.guesses) : "none yet") +
      ".";
    drawSpark(hits.spark, known, "share of parts that were in memory");
    setBig(reads, formatBytes(rate.readRate || 0) + "/s", "by " + s.storage.reader);
    reads.say.textContent =
      "Waited for " +
      formatPercent(Math.min(1, rate.stalled || 0)) +
      " of the time; " +
      formatBytes(s.storage.read_bytes) +
      " since the start.";
    drawSpark(
      reads.spark,
      this.rates.map(r => r.readRate || 0),
      "bytes read per second",
    );
  },

  showTimes() {
    const first = this.part("first", "Until the first token", addSpark),
      gap = this.part("gap", "Between tokens", addSpark);
    this.place(first, this.firstTimes.length > 0);
    this.place(gap, this.gaps.length > 1);
    if (this.firstTimes.length > 0) {
      setBig(first, formatSeconds(this.firstTimes[this.firstTimes.length - 1]), "this page's answers");
      drawSpark(first.spark, this.firstTimes, "seconds until the first token, of the last answers");
    }
    if (this.gaps.length < 2) return;
    const sorted = [...this.gaps].sort((a, b) => a - b);
    setBig(gap, formatSeconds(sorted[sorted.length >> 1]), "median");
    gap.say.textContent =
      "Longest of the last " + sorted.length + ": " + formatSeconds(sorted[sorted.length - 1]) + ".";
    drawSpark(gap.spark, this.gaps, "seconds between tokens of the last answer");
  },

  showQueue(s) {
    const part = this.part("queue", "Requests", p => {
      p.list = make("ul", {class: "queue"});
      p.box.append(p.list);
    });
    const waiting = s.requests.filter(r => r.state === "waiting").length;
    const running = s.running + s.waiting - waiting; /* one that begins now is among those that wait */
    setBig(part, formatCount(running), waiting > 0 ? "at work, " + formatCount(waiting) + " waiting" : "at work");
    part.list.replaceChildren(
      ...s.requests
        .filter(r => r.state !== "generating")
        .slice(0, 6)
        .map(r => make("li", null, describeRequest(r))),
    );
    this.place(part, true);
  },

  showCache(s) {
    const part = this.part("cache", "Cache of conversations");
    const asked = s.prompt_tokens + s.cached_tokens;
    setBig(part, formatPercent(s.pages > 0 ? s.pages_used / s.pages : 0), "in use");
    part.say.textContent =
      asked > 0
        ? formatPercent(s.cached_tokens / asked) + " of " + formatCount(asked) + " tokens of prompts were found in it."
        : "Nothing was asked yet.";
    this.place(part, true);
  },
};

function describeRequest(r) {
  if (r.state === "waiting")
    return r.before > 0
      ? "Waiting: " + formatCount(r.before) + (r.before === 1 ? " request" : " requests") + " before it"
      : "Waiting: it is the next one";
  if (r.state === "prompt")
    return "Reading the prompt: " + formatCount(r.evaluated_tokens) + " of " + formatCount(r.prompt_tokens) + " tokens";
  return "Writing";
}

function setBig(part, value, note) {
  part.big.replaceChildren(value, " ", make("small", null, note));
}

function addSpark(part) {
  part.spark = byId("spark").content.firstElementChild.cloneNode(true);
  part.box.insertBefore(part.spark, part.say);
}

/* From zero to the largest value. */
function drawSpark(svg, values, what) {
  svg.toggleAttribute("hidden", values.length < 2);
  const [area, line] = svg.children,
    most = Math.max(...values, 1e-9),
    n = values.length;
  const points = values.map(
    (v, i) => (n > 1 ? (100 * i) / (n - 1) : 100).toFixed(2) + "," + (23 - (22 * Math.max(0, v)) / most).toFixed(2),
  );
  svg.setAttribute("aria-label", what + (n > 0 ? ": largest " + most.toPrecision(3) : ""));
  line.setAttribute("d", n > 1 ? "M" + points.join("L") : "");
  area.setAttribute("d", n > 1 ? "M0,24L" + points.join("L") + "L100,24Z" : "");
}

/* A row for each second, a column for each layer, in the accent's colour to the largest share. */
function drawHeat(canvas, rows) {
  const n = rows[0].length,
    most = Math.max(...rows.flat().filter(x => x !== null), 1e-9);
  canvas.width = n;
  canvas.height = rows.length;
  canvas.style.height = 1 + 0.2 * rows.length + "rem";
  const context = canvas.getContext("2d");
  context.fillStyle = getComputedStyle(canvas).color;
  rows.forEach((row, y) =>
    row.forEach((share, x) => {
      context.globalAlpha = share === null ? 0 : 0.06 + (0.94 * share) / most;
      context.fillRect(x, y, 1, 1);
    }),
  );
}
