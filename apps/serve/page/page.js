/* The page: its state, the list of conversations, settings, and what keys and buttons do. Begins it all. */

const page = {
  conversations: [] /* the newest first */,
  open: null /* the one that is shown */,
  model: "",
  facts: {context: 0, hasTemplate: true, isSynthetic: false, isOneOfSeveral: false},
  run: null /* {conversation, answer, controller, ...} while an answer runs */,
  editing: null /* id of the message that is edited */,
  attached: [] /* {name, text} of files for the next message */,
  settingsOf: null /* whose settings are shown; null: those of new conversations */,
  unfolded: new Set() /* ids of long questions that are shown whole */,
  isReached: false /* the server answers */,
};

/* ---- the list of conversations ---- */

async function keep(conversation) {
  if (!page.conversations.includes(conversation)) return; /* it was deleted */
  try {
    await storage.save(conversation);
  } catch (error) {
    showBanner(
      "storage",
      "The browser could not keep the conversation (" +
        ((error && error.message) || "no room") +
        "). Export it, or delete others.",
      [["Export", () => exportConversations([conversation], "conversation")]],
    );
  }
}

const dayOf = time => {
  const days = Math.round((new Date().setHours(0, 0, 0, 0) - new Date(time).setHours(0, 0, 0, 0)) / 86400000);
  return days <= 0 ? "Today" : days === 1 ? "Yesterday" : days < 8 ? "The last seven days" : "Earlier";
};

function showList() {
  const rows = [],
    wanted = byId("search").value.trim().toLowerCase();
  let day = "";
  page.conversations.sort((a, b) => b.updated - a.updated);
  for (const c of page.conversations) {
    const found = wanted ? findIn(c, wanted) : {};
    if (!found) continue;
    if (dayOf(c.updated) !== day) rows.push(make("li", {class: "day"}, (day = dayOf(c.updated))));
    const isOpen = c === page.open,
      title = titleOf(c);
    rows.push(
      make(
        "li",
        {class: isOpen ? "current" : null},
        make(
          "button",
          {
            type: "button",
            class: "open",
            "aria-current": isOpen ? "true" : null,
            title,
            onclick: () => openConversation(c, found.message),
          },
          title,
          found.around && make("span", {class: "around"}, found.around),
        ),
        make(
          "span",
          {class: "row-tools"},
          iconButton("edit", "Rename: " + title, () => rename(c)),
          iconButton("trash", "Delete: " + title, () => remove(c)),
        ),
      ),
    );
  }
  byId("conversations").replaceChildren(...rows);
  byId("conversations").hidden = rows.length === 0;
  byId("no-conversations").hidden = rows.length > 0;
  byId("no-conversations").textContent = wanted
    ? "No conversation has this text."
    : "What you write is kept in this browser alone.";
}

/* At its end, or at the message with this id. */
function openConversation(conversation, id) {
  page.open = conversation;
  page.editing = null;
  storage.saveCommon("open", conversation ? conversation.id : null).catch(() => {});
  showSide(false);
  if (id && !pathOf(conversation).some(m => m.id === id)) showBranch(conversation, id);
  if (id) page.unfolded.add(id);
  showList();
  showMessages();
  if (id) document.querySelector('[data-id="' + id + '"]').scrollIntoView();
  else scrollToEnd();
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
  if (
    (await ask(
      "Delete this conversation?",
      "“" + titleOf(conversation) + "” will be gone from this browser.",
      "Delete",
    )) === null
  )
    return;
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
    showBanner(
      "import",
      "Imported " + formatCount(read.length) + (read.length === 1 ? " conversation." : " conversations."),
      [["Good", () => hideBanner("import")]],
      true,
    );
  } catch (error) {
    showBanner("import", "Not imported: " + error.message + ".", [["Close", () => hideBanner("import")]]);
  }
}

/* ---- settings ---- */

function openSettings() {
  const from = page.open || page.defaults;
  page.settingsOf = page.open;
  byId("settings-title").textContent = page.open ? "Settings of this conversation" : "Settings of new conversations";
  byId("system").value = from.system;
  byId("system-default").checked = from.system !== "" && from.system === page.defaults.system;
  byId("system-default").parentElement.hidden = !page.open; /* without one it is that of new ones */
  byId("sampling").replaceChildren(
    ...SETTINGS.map(s => {
      const field = make("input", {
        id: "set-" + s.name,
        type: s.isText ? "text" : "number",
        min: s.min,
        max: s.max,
        step: s.step,
        maxlength: s.isText ? 200 : null,
        autocomplete: "off",
        placeholder: s.name === "max_tokens" && !page.facts.hasTemplate ? MAX_CONTINUED : s.otherwise,
      });
      field.value = from.settings[s.name] || "";
      return make("div", null, make("label", {for: field.id}, s.label), field);
    }),
  );
  byId("settings-export").hidden = !page.open;
  byId("settings").showModal();
  showDefaults().catch(() => {}); /* then fields stay empty */
}

/* What the server takes for fields that are empty. Of several models, a loaded one has its own. */
async function showDefaults() {
  const props = await protocol.get("props"),
    own = [...(props.models || []), props].find(m => m.model === page.model);
  for (const [name, value] of Object.entries((own && own.default_generation_settings.params) || {})) {
    const field = byId("set-" + name);
    if (field) field.placeholder = String(value);
  }
}

/* Settings of the open conversation are also those of new ones; its system prompt is if its box is checked. */
async function saveSettings() {
  const settings = {},
    system = byId("system").value;
  for (const s of SETTINGS) {
    const field = byId("set-" + s.name);
    if (field.value !== "" && field.checkValidity()) settings[s.name] = field.value;
  }
  const of = page.settingsOf,
    wasDefault = of && of.system === page.defaults.system,
    isDefault = !of || byId("system-default").checked;
  page.defaults = {settings, system: isDefault ? system : wasDefault ? "" : page.defaults.system};
  if (of) {
    Object.assign(of, {settings: {...settings}, system});
    await keep(of);
  }
  await storage.saveCommon("defaults", page.defaults).catch(() => {});
}

/* ---- the frame ---- */

function showContext() {
  const path = page.open ? pathOf(page.open) : [],
    last = [...path].reverse().find(m => m.figures && m.figures.promptTokens);
  const used = last ? last.figures.promptTokens + (last.figures.tokens || 0) : 0,
    all = formatCount(page.facts.context);
  byId("context").textContent =
    page.facts.context === 0
      ? ""
      : used > 0
        ? formatCount(used) + " of " + all + " tokens"
        : all + " tokens of context";
}

function resizeComposer() {
  const field = byId("composer-text");
  field.style.height = "auto";
  field.style.height = field.scrollHeight + "px";
}

function updateComposer() {
  const button = byId("send"),
    isRunning = Boolean(page.run),
    field = byId("composer-text");
  button.replaceChildren(icon(isRunning ? "stop" : "send"));
  button.classList.toggle("stop", isRunning);
  button.setAttribute("aria-label", isRunning ? "Stop the answer" : "Send");
  button.disabled = !isRunning && (!page.isReached || (field.value.trim() === "" && page.attached.length === 0));
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
  figures.start();
  figures.show();
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
  const isTyping = /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName),
    isOpen = document.querySelector("dialog[open]");
  if (isOpen || event.isComposing) return;
  const code = event.altKey && !event.ctrlKey && !event.metaKey ? event.code : "";
  const last = page.open ? pathOf(page.open).pop() : null;
  if (event.key === "Escape") {
    if (page.run) stop();
    else if (byId("side").classList.contains("shown")) showSide(false);
    else return;
  } else if (code === "KeyN") beginNew();
  else if (code === "KeyE") showEngine(!byId("app").classList.contains("with-engine"));
  else if (code === "KeyR") {
    if (last && last.role === "assistant") again(last);
  } else if (event.key === "/" && !isTyping) byId("composer-text").focus();
  else return;
  event.preventDefault();
}

function onComposerKey(event) {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    if (!page.run) send();
  } else if (event.key === "ArrowUp" && event.target.value === "" && page.open && !page.run) {
    const last = pathOf(page.open)
      .reverse()
      .find(m => m.role === "user");
    if (!last) return;
    event.preventDefault();
    edit(last.id);
  }
}

function listen() {
  const icons = {
    "side-close": "close",
    "side-open": "menu",
    attach: "clip",
    theme: "light",
    "settings-open": "sliders",
    "engine-toggle": "engine",
    "engine-close": "close",
  };
  for (const [id, name] of Object.entries(icons)) byId(id).append(icon(name));
  byId("new-chat").prepend(icon("plus"));
  const on = (id, event, f) => byId(id).addEventListener(event, f);
  on("new-chat", "click", beginNew);
  on("side-open", "click", () => {
    showSide(true);
    byId("new-chat").focus();
  });
  on("side-close", "click", () => {
    showSide(false);
    byId("side-open").focus();
  });
  on("shade", "click", () => showSide(false));
  on("import", "click", () => byId("import-file").click());
  on("import-file", "change", event => {
    if (event.target.files[0]) importFile(event.target.files[0]);
    event.target.value = "";
  });
  on("search", "input", showList);
  on("attach", "click", () => byId("attach-files").click());
  on("attach-files", "change", event => {
    attachFiles([...event.target.files]);
    event.target.value = "";
  });
  on("composer-text", "paste", event => {
    if (event.clipboardData.files.length === 0) return;
    event.preventDefault();
    attachFiles([...event.clipboardData.files]);
  });
  for (const name of ["dragover", "drop"])
    document.addEventListener(name, event => {
      if (!event.dataTransfer.types.includes("Files")) return;
      event.preventDefault(); /* the browser would leave the page */
      if (name === "drop" && !document.querySelector("dialog[open]")) attachFiles([...event.dataTransfer.files]);
    });
  on("export", "click", () => exportConversations(page.conversations, "hearth-conversations"));
  on("shortcuts-open", "click", () => byId("shortcuts").showModal());
  on("settings-open", "click", openSettings);
  on("settings", "close", saveSettings);
  on("settings-export", "click", () => exportConversations([page.open], "conversation"));
  on("engine-toggle", "click", () => showEngine(!byId("app").classList.contains("with-engine")));
  on("engine-close", "click", () => {
    showEngine(false);
    byId("engine-toggle").focus();
  });
  on("theme", "click", () => {
    showTheme(THEMES[(THEMES.indexOf(page.theme) + 1) % 3]);
    storage.saveCommon("theme", page.theme).catch(() => {});
  });
  on("model", "change", event => {
    page.model = event.target.value;
    connect();
  });
  on("composer", "submit", event => {
    event.preventDefault();
    if (page.run) stop();
    else send();
  });
  on("composer-text", "input", () => {
    resizeComposer();
    updateComposer();
  });
  on("composer-text", "keydown", onComposerKey);
  /* No submit buttons: Enter would press them, as the first ones. */
  for (const button of document.querySelectorAll("dialog .cancel"))
    button.addEventListener("click", () => button.closest("dialog").close("cancel"));
  document.addEventListener("keydown", onKey);
  document.addEventListener("visibilitychange", () => figures.start());
  addEventListener("pagehide", () => {
    if (page.run) keep(page.run.conversation);
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => figures.show());
}

async function begin() {
  figures.box = byId("figures");
  figures.wanted = () =>
    page.isReached && (byId("app").classList.contains("with-engine") || Boolean(page.run && !page.run.hasText));
  figures.onUpdate = () => {
    if (page.run && !page.run.hasText) showSoon(page.run);
  };
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
