/* The page: the list of conversations, the messages of the one that is open, and one answer at a time that runs. */

const page = {
  conversations: [],  /* the newest first */
  open: null,         /* the one that is shown */
  model: "",
  facts: {context: 0, hasTemplate: true, isSynthetic: false},
  run: null,          /* {conversation, answer, controller, ...} while an answer runs */
  editing: null,      /* id of the message that is edited */
  isReached: false,   /* the server answers */
};

/* ---- banners ---- */

const banners = {};

/* One for each name. actions: [label, function]. */
function showBanner(name, text, actions = [], isCalm = false) {
  const banner = make("div", {class: isCalm ? "banner calm" : "banner"}, make("p", null, text),
    ...actions.map(([label, f]) => make("button", {type: "button", onclick: f}, label)));
  if (banners[name]) banners[name].replaceWith(banner);
  else byId("banners").append(banner);
  banners[name] = banner;
}

function hideBanner(name) {
  if (banners[name]) banners[name].remove();
  delete banners[name];
}

/* ---- dialogs ---- */

/* Resolves with the text of its field when it is confirmed, else null. value undefined: it has no field. */
function ask(title, text, ok, value) {
  const dialog = byId("ask"), field = byId("ask-value");
  byId("ask-title").textContent = title;
  byId("ask-text").textContent = text;
  byId("ask-ok").textContent = ok;
  field.hidden = byId("ask-label").hidden = value === undefined;
  field.value = value || "";
  dialog.returnValue = "";
  dialog.showModal();
  return new Promise(resolve => dialog.addEventListener("close", () => resolve(dialog.returnValue === "ok" ? field.value : null), {once: true}));
}

let keyAsked = null;

/* True: there is another key to try. */
function askKey() {
  if (keyAsked) return keyAsked;
  const dialog = byId("key-dialog"), field = byId("key");
  byId("key-wrong").hidden = !protocol.key;
  field.value = "";
  dialog.returnValue = "";
  dialog.showModal();
  keyAsked = new Promise(resolve => dialog.addEventListener("close", () => {
    keyAsked = null;
    const isGiven = dialog.returnValue === "ok" && field.value.trim() !== "";
    if (isGiven) protocol.setKey(field.value.trim());
    else showBanner("server", "The server asks for an API key.", [["Enter the key", connect]]);
    resolve(isGiven);
  }, {once: true}));
  return keyAsked;
}

/* ---- the server ---- */

let retryTimer = null, wakeRetry = null;

/* Waits `seconds`, with a banner that counts down, unless the user does not want to wait. */
async function waitWithBanner(text, seconds) {
  const end = Date.now() + seconds * 1000;
  const show = () => {
    const left = Math.max(1, Math.ceil((end - Date.now()) / 1000));
    showBanner("server", text + " Trying again in " + left + (left === 1 ? " second." : " seconds."), [["Try now", () => wakeRetry && wakeRetry()]]);
  };
  show();
  retryTimer = setInterval(show, 1000);
  await new Promise(resolve => { wakeRetry = resolve; setTimeout(resolve, seconds * 1000); });
  clearInterval(retryTimer);
}

let connecting = null;

/* Reads what the server is, again and again until it answers. */
function connect() {
  if (!connecting) connecting = connectNow().finally(() => { connecting = null; });
  return connecting;
}

async function connectNow() {
  for (let seconds = 1;; seconds = Math.min(30, seconds * 2)) {
    try {
      const [models, props] = [await protocol.get("/v1/models"), await protocol.get("/props")];
      showServer(models, props);
      return true;
    } catch (problem) {
      page.isReached = false;
      updateComposer();
      if (problem.kind === "key") {
        if (!(await askKey())) return false;
        seconds = 0.5;
        continue;
      }
      const text = problem.kind === "unreachable" ? "The server cannot be reached. Is hearth serve running?"
        : problem.kind === "loading" ? "The model is still being read." : explain(problem, page.facts);
      await waitWithBanner(text, problem.kind === "loading" ? 1 : seconds);
    }
  }
}

function showServer(models, props) {
  const select = byId("model"), ids = models.data.map(m => m.id);
  page.isReached = true;
  hideBanner("server");
  if (!ids.includes(page.model)) page.model = ids[0] || "";
  select.replaceChildren(...ids.map(id => make("option", {value: id, selected: id === page.model}, id)));
  page.facts = {context: props.n_ctx, hasTemplate: Boolean(props.capabilities && props.capabilities.chat_template), isSynthetic: props.synthetic_weights};
  if (props.synthetic_weights) showBanner("weights", "The weights of this model are random: its text means nothing.", [], true);
  else hideBanner("weights");
  byId("hint").textContent = page.facts.hasTemplate ? "" : "This model has no chat template: it continues your text.";
  document.title = page.model ? page.model + " – Hearth" : "Hearth";
  figures.start();
  updateComposer();
  showContext();
}

/* ---- answers ---- */

/* An answer to the last message of the open conversation; or the end of `answer`, which then goes on. */
async function generate(answer) {
  const conversation = page.open;
  if (page.run || !conversation) return;
  const isMore = Boolean(answer);
  answer = answer || addMessage(conversation, conversation.leaf, "assistant", "");
  Object.assign(answer, {end: "running", model: page.model, figures: {}, problem: undefined});
  const run = page.run = {conversation, answer, isMore, controller: new AbortController(), savedAt: 0};
  showMessages();
  updateComposer();
  scrollToEnd(true);
  figures.start();
  try {
    await runWithRetries(run);
  } catch (problem) {
    endByProblem(run, problem);
  }
  page.run = null;
  if (answer.end === "running") answer.end = "stop";
  conversation.updated = Date.now();
  await keep(conversation);
  showMessages();
  showList();
  updateComposer();
  showContext();
  announce(answer.problem || "The answer is complete.");
}

function endByProblem(run, problem) {
  const {answer} = run;
  if (problem.name === "AbortError") {
    answer.end = "stopped";
    return;
  }
  answer.end = problem.kind === "broken" ? "broken" : "failed";
  answer.problem = problem instanceof Problem ? explain(problem, page.facts) : "The answer of the server cannot be read: " + problem.message;
  if (problem.kind === "broken" || problem.kind === "unreachable") connect();
}

/* Until text has come, a request is repeated when the server was away, busy, or wanted a key. */
async function runWithRetries(run) {
  for (let seconds = 1;; seconds = Math.min(30, seconds * 2)) {
    try {
      await runOnce(run);
      hideBanner("server");
      return;
    } catch (problem) {
      if (problem.name === "AbortError" || run.hasText || run.controller.signal.aborted) throw problem;
      if (problem.kind === "key") {
        if (!(await askKey())) throw problem;
      } else if (problem.kind === "busy") {
        await waitWithBanner("Many requests wait already.", Math.max(problem.seconds, seconds));
      } else if (problem.kind === "unreachable" || problem.kind === "loading" || problem.kind === "broken") {
        page.isReached = false;
        await connect();
      } else {
        throw problem;
      }
      if (run.controller.signal.aborted) throw new DOMException("stopped", "AbortError");
    }
  }
}

async function runOnce(run) {
  const {conversation, answer} = run, path = pathOf(conversation, answer.id);
  if (!run.isMore) path.pop();
  const [where, body] = requestFor(conversation, path, page.model, page.facts.hasTemplate);
  run.startedAt = performance.now();
  run.lastAt = 0;
  run.id = null;
  await protocol.stream(where, body, run.controller.signal, event => {
    run.id = event.id || run.id;
    if (takeEvent(answer, event)) noteToken(run);
    showSoon(run);
  });
}

function noteToken(run) {
  const now = performance.now();
  if (!run.hasText || run.lastAt === 0) {
    run.hasText = true;
    run.answer.figures.firstSeconds = (now - run.startedAt) / 1000;
    figures.addFirst(run.answer.figures.firstSeconds);
  } else {
    figures.addGap((now - run.lastAt) / 1000);
  }
  run.lastAt = now;
  run.n = (run.n || 0) + 1;
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
    const element = document.querySelector('[data-id="' + run.answer.id + '"]'), isAtEnd = isScrolledToEnd();
    if (!element) return;
    showAnswerText(element, run.answer);
    showRunning(element, run);
    if (isAtEnd) scrollToEnd();
  });
}

function stop() { if (page.run) page.run.controller.abort(), wakeRetry && wakeRetry(); }

function send() {
  const field = byId("composer-text"), text = field.value.trim();
  if (!text || page.run || !page.isReached) return;
  if (!page.open) openConversation(newConversation(page.defaults.settings, page.defaults.system));
  addMessage(page.open, page.open.leaf, "user", field.value.replace(/\s+$/, ""));
  field.value = "";
  resizeComposer();
  if (!page.conversations.includes(page.open)) page.conversations.unshift(page.open);
  showList();
  generate();
}

/* Another answer to the same message. */
function again(answer) {
  if (page.run || !page.isReached) return;
  page.open.leaf = answer.parent;
  generate();
}

/* ---- messages ---- */

function isScrolledToEnd() {
  const log = byId("log");
  return log.scrollHeight - log.scrollTop - log.clientHeight < 80;
}
function scrollToEnd() { byId("log").scrollTop = byId("log").scrollHeight; }

function showMessages() {
  const box = byId("messages"), conversation = page.open, path = conversation ? pathOf(conversation) : [];
  box.setAttribute("aria-busy", String(Boolean(page.run && page.run.conversation === conversation)));
  if (path.length === 0) {
    box.replaceChildren(make("div", {class: "welcome"}, make("h1", null, "What shall the model do?"),
      make("p", null, "It runs on this server. Conversations are kept in this browser" + (storage.isKept ? "." : ", but this window forgets them when it closes."))));
    return;
  }
  const isAtEnd = isScrolledToEnd(), top = byId("log").scrollTop;
  box.replaceChildren(...path.map(m => makeMessage(conversation, m)));
  if (isAtEnd) scrollToEnd();
  else byId("log").scrollTop = top;
}

function makeMessage(conversation, message) {
  const isUser = message.role === "user", run = page.run && page.run.answer === message ? page.run : null;
  const isProse = !isUser && page.facts.hasTemplate;
  const element = make("article", {class: "message " + message.role + (isProse ? "" : " plain"), "data-id": message.id, "aria-label": isUser ? "You" : message.model || "The model"});
  if (page.editing === message.id) {
    element.append(makeEditor(conversation, message));
    return element;
  }
  element.append(make("div", {class: isProse ? "text prose" : "text"}), make("div", {class: "facts"}));
  if (isUser) element.firstElementChild.textContent = message.content;
  else showAnswerText(element, message);
  if (run) showRunning(element, run);
  else element.querySelector(".facts").append(...makeFacts(conversation, message));
  return element;
}

function showAnswerText(element, answer) {
  const text = element.querySelector(".text");
  let details = element.querySelector(".reasoning");
  if (answer.reasoning) {
    if (!details) element.prepend(details = make("details", {class: "reasoning"}, make("summary", null, "Reasoning"), make("div", {class: "thought"})));
    details.firstElementChild.textContent = "Reasoning, " + formatCount(answer.reasoning.split(/\s+/).length) + " words";
    details.lastElementChild.textContent = answer.reasoning;
  }
  if (text.classList.contains("prose")) showMarkdown(text, answer.content);
  else text.textContent = answer.content;
}

/* What an answer waits for, or how fast it comes. */
function showRunning(element, run) {
  const facts = element.querySelector(".facts"), stats = figures.last;
  const seen = stats && !run.hasText ? stats.requests.find(r => r.id === run.id) : null;
  const seconds = (performance.now() - run.startedAt) / 1000;
  element.querySelector(".text").classList.toggle("caret", !run.hasText);
  if (run.hasText) {
    const rate = run.n > 1 ? (run.n - 1) / (seconds - run.answer.figures.firstSeconds) : 0;
    facts.replaceChildren(make("span", {class: "say"}, rate > 0 ? rate.toFixed(1) + " tokens/s" : "Writing"));
    return;
  }
  const say = make("span", {class: "say"}, seen && seen.state !== "generating" ? describeRequest(seen) : "Waiting for the first token");
  const share = seen && seen.state === "prompt" && seen.prompt_tokens > 0 ? seen.evaluated_tokens / seen.prompt_tokens : 0;
  const bar = share > 0 ? make("div", {class: "progress"}, make("div")) : null;
  if (bar) bar.firstElementChild.style.width = 100 * share + "%";
  facts.replaceChildren(say, ...(bar ? [bar] : []));
}

const END_WORDS = {length: "ended at the limit of length", stopped: "stopped", running: "cut short", broken: "cut short", failed: "failed"};

function describeFigures(answer) {
  const f = answer.figures || {}, words = [];
  if (f.tokens) words.push(formatCount(f.tokens) + (f.tokens === 1 ? " token" : " tokens"));
  if (f.perSecond) words.push(f.perSecond.toFixed(f.perSecond < 99.95 ? 1 : 0) + " tokens/s");
  if (f.firstSeconds !== undefined) words.push("first after " + formatSeconds(f.firstSeconds));
  if (f.cachedTokens) words.push(formatCount(f.cachedTokens) + " of " + formatCount(f.promptTokens) + " prompt tokens from the cache");
  return words.join(" · ");
}

function makeFacts(conversation, message) {
  const facts = [], tools = make("span", {class: "tools"}), isUser = message.role === "user", canRun = !page.run;
  if (!isUser) {
    const said = describeFigures(message), end = END_WORDS[message.end];
    if (said) facts.push(make("span", {class: "say", title: message.figures.seed !== undefined ? "seed " + message.figures.seed : null}, said));
    if (message.problem) facts.push(make("span", {class: "say alarm"}, message.problem));
    else if (end) facts.push(make("span", {class: message.end === "broken" || message.end === "failed" ? "say alarm" : "say"}, end));
  }
  const branch = makeBranch(conversation, message);
  if (branch) tools.append(branch);
  if (message.content) tools.append(copyButton(isUser ? "Copy the message" : "Copy the answer", () => message.content));
  if (canRun) {
    tools.append(iconButton("edit", isUser ? "Edit and send again" : "Edit the answer", () => edit(message.id)));
    if (!isUser) tools.append(iconButton("again", "Answer once more", () => again(message)));
    const isCut = !isUser && message.end !== "stop" && message.content && conversation.leaf === message.id;
    if (isCut) tools.append(iconButton("continue", "Continue the answer", () => generate(message), "Continue"));
  }
  facts.push(tools);
  return facts;
}

/* Which of several messages at the same place is shown. */
function makeBranch(conversation, message) {
  const all = childrenOf(conversation, message.parent), i = all.indexOf(message);
  if (all.length < 2) return null;
  const to = (k, name, label) => {
    const button = iconButton(name, label, () => { showBranch(conversation, all[k].id); keep(conversation); showMessages(); showContext(); });
    button.disabled = k < 0 || k >= all.length || Boolean(page.run);
    return button;
  };
  return make("span", {class: "branch"}, to(i - 1, "left", "Earlier version"), make("span", null, i + 1 + "/" + all.length), to(i + 1, "right", "Later version"));
}

/* ---- editing ---- */

function edit(id) {
  if (page.run) return;
  page.editing = id;
  showMessages();
  const field = document.querySelector(".edit textarea");
  if (field) field.focus();
}

function makeEditor(conversation, message) {
  const field = make("textarea", {"aria-label": "Edited message", rows: Math.min(16, message.content.split("\n").length + 1)}), isUser = message.role === "user";
  const close = () => { page.editing = null; showMessages(); byId("composer-text").focus(); };
  field.value = message.content;
  const save = () => {
    const text = field.value.replace(/\s+$/, "");
    page.editing = null;
    if (!text || (!isUser && text === message.content)) return close();
    const edited = addMessage(conversation, message.parent, message.role, text);
    if (isUser) return generate();
    Object.assign(edited, {end: "stopped", model: message.model, figures: {}});
    keep(conversation);
    return close();
  };
  field.addEventListener("keydown", event => {
    if (event.key === "Escape") event.stopPropagation(), close();
    else if (event.key === "Enter" && !event.shiftKey && !event.isComposing && isUser) event.preventDefault(), save();
  });
  return make("div", {class: "edit"}, field, make("div", {class: "row"}, make("span", {class: "grow"}),
    make("button", {type: "button", class: "quiet-text", onclick: close}, "Cancel"),
    make("button", {type: "button", class: "primary", onclick: save}, isUser ? "Send" : "Save")));
}

/* ---- the list of conversations ---- */

async function keep(conversation) {
  if (Object.keys(conversation.messages).length === 0) return;
  try {
    await storage.save(conversation);
  } catch (error) {
    showBanner("storage", "The browser could not keep the conversation (" + (error && error.message || "no room") + "). Export it, or delete others.", [["Export", () => exportConversations([conversation], "conversation")]]);
  }
}

const dayOf = time => {
  const days = Math.round((new Date().setHours(0, 0, 0, 0) - new Date(time).setHours(0, 0, 0, 0)) / 86400000);
  return days <= 0 ? "Today" : days === 1 ? "Yesterday" : days < 8 ? "The last seven days" : "Earlier";
};

function showList() {
  const rows = [];
  let day = "";
  page.conversations.sort((a, b) => b.updated - a.updated);
  for (const c of page.conversations) {
    if (dayOf(c.updated) !== day) rows.push(make("li", {class: "day"}, day = dayOf(c.updated)));
    const isOpen = c === page.open, title = titleOf(c);
    rows.push(make("li", {class: isOpen ? "current" : null},
      make("button", {type: "button", class: "open", "aria-current": isOpen ? "true" : null, title, onclick: () => openConversation(c)}, title),
      make("span", {class: "row-tools"}, iconButton("edit", "Rename: " + title, () => rename(c)), iconButton("trash", "Delete: " + title, () => remove(c)))));
  }
  byId("conversations").replaceChildren(...rows);
  byId("conversations").hidden = rows.length === 0;
  byId("no-conversations").hidden = rows.length > 0;
}

function openConversation(conversation) {
  page.open = conversation;
  page.editing = null;
  storage.saveCommon("open", conversation ? conversation.id : null).catch(() => {});
  showSide(false);
  showList();
  showMessages();
  scrollToEnd();
  updateComposer();
  showContext();
}

function beginNew() {
  openConversation(null);
  byId("composer-text").focus();
}

async function rename(conversation) {
  const title = await ask("Rename", "", "Rename", titleOf(conversation));
  if (title === null) return;
  conversation.title = title.trim();
  await keep(conversation);
  showList();
}

async function remove(conversation) {
  if (await ask("Delete this conversation?", "“" + titleOf(conversation) + "” will be gone from this browser.", "Delete") === null) return;
  if (page.run && page.run.conversation === conversation) stop();
  page.conversations = page.conversations.filter(c => c !== conversation);
  await storage.remove(conversation.id);
  if (page.open === conversation) openConversation(null);
  else showList();
}

async function importFile(file) {
  try {
    if (file.size > 64e6) throw new Error("the file is larger than 64 MB");
    const read = readFileOfConversations(await file.text());
    for (const c of read) await storage.save(c);
    page.conversations.push(...read);
    showList();
    showBanner("import", "Imported " + formatCount(read.length) + (read.length === 1 ? " conversation." : " conversations."), [["Good", () => hideBanner("import")]], true);
  } catch (error) {
    showBanner("import", "Not imported: " + error.message + ".", [["Close", () => hideBanner("import")]]);
  }
}

/* ---- settings ---- */

function openSettings() {
  const from = page.open || page.defaults;
  byId("system").value = from.system;
  byId("sampling").replaceChildren(...SETTINGS.map(s => {
    const field = make("input", {id: "set-" + s.name, type: s.isText ? "text" : "number", min: s.min, max: s.max, step: s.step, maxlength: s.isText ? 200 : null, autocomplete: "off"});
    field.value = from.settings[s.name] || "";
    return make("div", null, make("label", {for: field.id}, s.label), field);
  }));
  byId("settings-export").hidden = !page.open;
  byId("settings").showModal();
}

/* Those of the open conversation are also those of new ones. */
async function saveSettings() {
  const settings = {}, system = byId("system").value;
  for (const s of SETTINGS) {
    const field = byId("set-" + s.name);
    if (field.value !== "" && field.checkValidity()) settings[s.name] = field.value;
  }
  page.defaults = {settings, system: page.open ? page.defaults.system : system};
  if (page.open) Object.assign(page.open, {settings: {...settings}, system}), await keep(page.open);
  await storage.saveCommon("defaults", page.defaults).catch(() => {});
}

/* ---- the frame ---- */

function showContext() {
  const path = page.open ? pathOf(page.open) : [], last = [...path].reverse().find(m => m.figures && m.figures.promptTokens);
  const used = last ? last.figures.promptTokens + (last.figures.tokens || 0) : 0, all = formatCount(page.facts.context);
  byId("context").textContent = page.facts.context === 0 ? "" : used > 0 ? formatCount(used) + " of " + all + " tokens" : all + " tokens of context";
}

function resizeComposer() {
  const field = byId("composer-text");
  field.style.height = "auto";
  field.style.height = field.scrollHeight + "px";
}

function updateComposer() {
  const button = byId("send"), isRunning = Boolean(page.run), field = byId("composer-text");
  button.replaceChildren(icon(isRunning ? "stop" : "send"));
  button.classList.toggle("stop", isRunning);
  button.setAttribute("aria-label", isRunning ? "Stop the answer" : "Send");
  button.disabled = !isRunning && (!page.isReached || field.value.trim() === "");
  field.placeholder = page.facts.hasTemplate ? "Write a message" : "Write a beginning";
}

function showSide(isShown) {
  byId("side").classList.toggle("shown", isShown);
  byId("shade").hidden = !isShown;
  byId("side-open").setAttribute("aria-expanded", String(isShown));
}

function showEngine(isShown) {
  byId("app").classList.toggle("with-engine", isShown);
  byId("engine-toggle").setAttribute("aria-expanded", String(isShown));
  if (isShown) figures.start(), figures.show();
  storage.saveCommon("engine", isShown).catch(() => {});
}

const THEMES = ["system", "light", "dark"];

function showTheme(theme) {
  if (theme === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  byId("theme").setAttribute("aria-label", "Colours: " + (theme === "system" ? "as the system" : theme));
  byId("theme").title = byId("theme").getAttribute("aria-label");
  page.theme = theme;
  figures.show();
}

function onKey(event) {
  const isTyping = /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName), isOpen = document.querySelector("dialog[open]");
  if (isOpen || event.isComposing) return;
  const code = event.altKey && !event.ctrlKey && !event.metaKey ? event.code : "";
  const last = page.open ? pathOf(page.open).pop() : null;
  if (event.key === "Escape") {
    if (page.run) stop();
    else if (byId("side").classList.contains("shown")) showSide(false);
    else return;
  } else if (code === "KeyN") beginNew();
  else if (code === "KeyE") showEngine(!byId("app").classList.contains("with-engine"));
  else if (code === "KeyR") { if (last && last.role === "assistant") again(last); }
  else if (event.key === "/" && !isTyping) byId("composer-text").focus();
  else return;
  event.preventDefault();
}

function onComposerKey(event) {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    if (!page.run) send();
  } else if (event.key === "ArrowUp" && event.target.value === "" && page.open && !page.run) {
    const last = pathOf(page.open).reverse().find(m => m.role === "user");
    if (last) event.preventDefault(), edit(last.id);
  }
}

function listen() {
  const icons = {"side-close": "close", "side-open": "menu", "theme": "light", "settings-open": "sliders", "engine-toggle": "engine", "engine-close": "close"};
  for (const [id, name] of Object.entries(icons)) byId(id).append(icon(name));
  byId("new-chat").prepend(icon("plus"));
  const on = (id, event, f) => byId(id).addEventListener(event, f);
  on("new-chat", "click", beginNew);
  on("side-open", "click", () => { showSide(true); byId("new-chat").focus(); });
  on("side-close", "click", () => { showSide(false); byId("side-open").focus(); });
  on("shade", "click", () => showSide(false));
  on("import", "click", () => byId("import-file").click());
  on("import-file", "change", event => { if (event.target.files[0]) importFile(event.target.files[0]); event.target.value = ""; });
  on("export", "click", () => exportConversations(page.conversations, "hearth-conversations"));
  on("shortcuts-open", "click", () => byId("shortcuts").showModal());
  on("settings-open", "click", openSettings);
  on("settings", "close", saveSettings);
  on("settings-export", "click", () => exportConversations([page.open], "conversation"));
  on("engine-toggle", "click", () => showEngine(!byId("app").classList.contains("with-engine")));
  on("engine-close", "click", () => { showEngine(false); byId("engine-toggle").focus(); });
  on("theme", "click", () => { showTheme(THEMES[(THEMES.indexOf(page.theme) + 1) % 3]); storage.saveCommon("theme", page.theme).catch(() => {}); });
  on("model", "change", event => { page.model = event.target.value; connect(); });
  on("composer", "submit", event => { event.preventDefault(); if (page.run) stop(); else send(); });
  on("composer-text", "input", () => { resizeComposer(); updateComposer(); });
  on("composer-text", "keydown", onComposerKey);
  /* No submit buttons: Enter would press them, as the first ones. */
  for (const button of document.querySelectorAll("dialog .cancel")) button.addEventListener("click", () => button.closest("dialog").close("cancel"));
  document.addEventListener("keydown", onKey);
  document.addEventListener("visibilitychange", () => figures.start());
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => figures.show());
}

async function begin() {
  figures.box = byId("figures");
  figures.wanted = () => page.isReached && (byId("app").classList.contains("with-engine") || Boolean(page.run && !page.run.hasText));
  figures.onUpdate = () => { if (page.run && !page.run.hasText) showSoon(page.run); };
  page.defaults = {settings: {}, system: ""};
  listen();
  showTheme("system");
  updateComposer();
  await storage.open();
  try {
    page.conversations = await storage.loadAll();
    page.defaults = (await storage.loadCommon("defaults")) || page.defaults;
    showTheme((await storage.loadCommon("theme")) || "system");
    const wide = matchMedia("(min-width: 75.0625rem)").matches;
    if (wide && (await storage.loadCommon("engine")) === true) showEngine(true);
    const open = await storage.loadCommon("open");
    page.open = page.conversations.find(c => c.id === open) || null;
  } catch (error) {
    storage.isKept = false;
  }
  showList();
  showMessages();
  scrollToEnd();
  byId("composer-text").focus();
  await connect();
  showMessages();
  scrollToEnd();
}

begin();
