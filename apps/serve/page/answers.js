/* Finding the server, again and again until it answers, and one answer at a time from it. */

/* ---- the server ---- */

let wakeRetry = null; /* ends waitWithBanner */

/* Waits `seconds`, with a banner that counts down, unless the user does not want to wait. The count is not read aloud:
 * the banner would be, each second. */
async function waitWithBanner(text, seconds) {
  const end = Date.now() + seconds * 1000;
  const count = make("span", {"aria-hidden": "true"});
  const show = () => {
    const left = Math.max(1, Math.ceil((end - Date.now()) / 1000));
    count.textContent = " Trying again in " + left + (left === 1 ? " second." : " seconds.");
  };
  show();
  showBanner("server", text, [["Try now", () => wakeRetry()]]);
  banners.server.firstElementChild.append(count);
  const timer = setInterval(show, 1000);
  await new Promise(resolve => {
    wakeRetry = resolve;
    setTimeout(resolve, seconds * 1000);
  });
  clearInterval(timer);
}

let connecting = null;

/* Reads what the server is, again and again until it answers. */
function connect() {
  if (!connecting)
    connecting = connectNow().finally(() => {
      connecting = null;
    });
  return connecting;
}

async function connectNow() {
  for (let seconds = 1; ; seconds = Math.min(30, seconds * 2)) {
    try {
      await protocol.get("health");
      showServer((await protocol.get("v1/models")).data);
      return true;
    } catch (problem) {
      page.isReached = false;
      updateComposer();
      if (problem.kind === "key") {
        if (!(await askKey())) return false;
        seconds = 0.5;
        continue;
      }
      const text =
        problem.kind === "unreachable"
          ? "The server cannot be reached. Is hearth serve running?"
          : problem.kind === "loading"
            ? "The model is still being read."
            : explain(problem, page.facts);
      await waitWithBanner(text, problem.kind === "loading" ? 1 : seconds);
    }
  }
}

/* Of several models the page begins with one that is loaded. */
function showServer(models) {
  const wasOneOfSeveral = page.facts.isOneOfSeveral;
  const chosen = models.find(m => m.id === page.model) || models.find(m => m.meta.loaded) || models[0];
  page.isReached = true;
  hideBanner("server");
  page.model = chosen.id;
  byId("model").replaceChildren(
    ...models.map(m => make("option", {value: m.id, selected: m === chosen}, m.id)),
  );
  figures.watch(page.model);
  page.facts = {
    isOneOfSeveral: models.length > 1,
    context: chosen.meta.n_ctx,
    hasTemplate: chosen.meta.chat_template,
    isSynthetic: chosen.meta.synthetic_weights,
  };
  if (page.facts.isSynthetic)
    showBanner("weights", "The weights of this model are random: its text means nothing.", [], true);
  else hideBanner("weights");
  byId("hint").textContent = page.facts.hasTemplate ? "" : "This model has no chat template: it continues your text.";
  document.title = page.model ? page.model + " – Hearth" : "Hearth";
  figures.start();
  updateComposer();
  showContext();
  if (page.facts.isOneOfSeveral !== wasOneOfSeveral && !page.editing) showMessages(); /* which say who wrote them */
}

/* ---- answers ---- */

/* An answer to the last message of the open conversation; or the end of `answer`, which then goes on. */
async function generate(answer) {
  const conversation = page.open;
  if (page.run || !conversation) return;
  const isMore = Boolean(answer);
  answer = answer || addMessage(conversation, conversation.leaf, "assistant", "");
  page.editing = null;
  Object.assign(answer, {end: "running", model: page.model, figures: {}, problem: undefined});
  const run = (page.run = {conversation, answer, isMore, controller: new AbortController(), savedAt: 0});
  keep(conversation);
  showMessages();
  updateComposer();
  scrollToEnd();
  figures.start();
  try {
    await runWithRetries(run);
  } catch (problem) {
    endByProblem(run, problem);
  }
  page.run = null;
  if (!answer.figures.perSecond && run.n > 1)
    answer.figures.perSecond = (run.n - 1) / ((run.lastAt - run.firstAt) / 1000);
  if (answer.end === "running") answer.end = "stop";
  conversation.updated = Date.now();
  await keep(conversation);
  showMessages();
  showList();
  updateComposer();
  showContext();
  const ends = {length: "The answer " + END_WORDS.length + ".", stopped: "The answer was stopped."};
  announce(answer.problem || ends[answer.end] || "The answer is complete.");
}

function endByProblem(run, problem) {
  const {answer} = run;
  if (problem.name === "AbortError") {
    answer.end = "stopped";
    return;
  }
  answer.end = problem.kind === "broken" ? "broken" : "failed";
  answer.problem =
    problem instanceof Problem
      ? explain(problem, page.facts)
      : "The answer of the server cannot be read: " + problem.message;
  if (problem.kind === "broken" || problem.kind === "unreachable") connect();
}

/* Until text has come, a request is repeated when the server was away, busy, or wanted a key. */
async function runWithRetries(run) {
  for (let seconds = 1; ; seconds = Math.min(30, seconds * 2)) {
    try {
      await runOnce(run);
      return;
    } catch (problem) {
      if (problem.name === "AbortError" || run.hasText || run.controller.signal.aborted) throw problem;
      if (problem.kind === "key") {
        if (!(await askKey())) throw problem;
      } else if (problem.kind === "busy") {
        await waitWithBanner("Many requests wait already.", Math.max(problem.seconds, seconds));
      } else if (problem.kind === "unreachable" || problem.kind === "loading" || problem.kind === "broken") {
        page.isReached = false;
        await Promise.race([connect(), whenAborted(run.controller.signal)]);
        if (seconds > 1 && page.isReached) await waitWithBanner("The server ended the request.", seconds);
      } else {
        throw problem;
      }
      if (run.controller.signal.aborted) throw new DOMException("stopped", "AbortError");
    }
  }
}

function whenAborted(signal) {
  return new Promise(resolve => signal.addEventListener("abort", resolve, {once: true}));
}

async function runOnce(run) {
  const {conversation, answer} = run,
    path = pathOf(conversation, answer.id);
  if (!run.isMore) path.pop();
  const [where, body] = requestFor(conversation, path, page.model, page.facts.hasTemplate);
  if (body.seed === undefined || body.seed < 0)
    body.seed = crypto.getRandomValues(new Uint32Array(1))[0]; /* one that is known */
  answer.figures.seed = body.seed;
  run.startedAt = performance.now();
  run.lastAt = 0;
  run.id = null;
  await protocol.stream(where, body, run.controller.signal, event => {
    if (!run.id) hideBanner("server");
    run.id = event.id || run.id;
    if (takeEvent(answer, event)) noteToken(run);
    showSoon(run);
  });
}

function noteToken(run) {
  const now = performance.now();
  if (!run.hasText || run.lastAt === 0) {
    run.hasText = true;
    run.firstAt = now;
    run.n = 0;
    run.answer.figures.firstSeconds = (now - run.startedAt) / 1000;
    figures.addFirst(run.answer.figures.firstSeconds);
  } else {
    figures.addGap((now - run.lastAt) / 1000);
  }
  run.lastAt = now;
  run.n++;
  if (now - run.savedAt > 2000) {
    run.savedAt = now;
    keep(run.conversation);
  }
}

let isFrameAsked = false;

/* The text, at most once a frame. */
function showSoon(run) {
  if (isFrameAsked) return;
  isFrameAsked = true;
  requestAnimationFrame(() => {
    isFrameAsked = false;
    if (page.run !== run || page.open !== run.conversation) return;
    const element = document.querySelector('[data-id="' + run.answer.id + '"]'),
      isAtEnd = isScrolledToEnd();
    if (!element) return;
    showAnswerText(element, run.answer);
    showRunning(element, run);
    if (isAtEnd) scrollToEnd();
  });
}

function stop() {
  if (!page.run) return;
  page.run.controller.abort();
  if (wakeRetry) wakeRetry();
}

function send() {
  const field = byId("composer-text"),
    text = withFiles(field.value.trim() && field.value.trimEnd(), page.attached);
  if (!text || page.run || !page.isReached) return;
  if (!page.open) openConversation(newConversation(page.defaults.settings, page.defaults.system));
  addMessage(page.open, page.open.leaf, "user", text);
  field.value = "";
  page.attached = [];
  showAttached();
  resizeComposer();
  if (!page.conversations.includes(page.open)) page.conversations.unshift(page.open);
  page.open.updated = Date.now();
  showList();
  generate();
}

/* Another answer to the same message. */
function again(answer) {
  if (page.run || !page.isReached) return;
  page.open.leaf = answer.parent;
  generate();
}
