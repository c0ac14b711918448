/* The messages of the conversation that is open, what is said below them, and their editors. */

function isScrolledToEnd() {
  const log = byId("log");
  return log.scrollHeight - log.scrollTop - log.clientHeight < 80;
}
function scrollToEnd() {
  byId("log").scrollTop = byId("log").scrollHeight;
}

function showMessages() {
  const box = byId("messages"),
    conversation = page.open,
    path = conversation ? pathOf(conversation) : [];
  box.setAttribute("aria-busy", String(Boolean(page.run && page.run.conversation === conversation)));
  if (path.length === 0) {
    box.replaceChildren(
      make(
        "div",
        {class: "welcome"},
        make("h1", null, "What shall the model do?"),
        make(
          "p",
          null,
          "It runs on this server. Conversations are kept in this browser" +
            (storage.isKept ? "." : ", but this window forgets them when it closes."),
        ),
      ),
    );
    return;
  }
  const isAtEnd = isScrolledToEnd(),
    top = byId("log").scrollTop,
    restore = rememberPlace(box);
  box.replaceChildren(...path.map(m => makeMessage(conversation, m)));
  restore();
  if (isAtEnd) scrollToEnd();
  else byId("log").scrollTop = top;
}

/* What has the focus among the messages, and which reasoning is open. */
function rememberPlace(box) {
  const find = id => box.querySelector('[data-id="' + id + '"]'),
    idOf = element => element.closest("[data-id]").dataset.id;
  const focused = box.contains(document.activeElement) && document.activeElement.closest("[data-id]"),
    label = focused && document.activeElement.getAttribute("aria-label");
  const open = Array.from(box.querySelectorAll("details[open]"), idOf);
  return () => {
    for (const id of open) {
      const details = find(id) && find(id).querySelector("details");
      if (details) details.open = true;
    }
    const message = focused && label && find(idOf(focused));
    const again = message && Array.from(message.querySelectorAll("[aria-label]")).find(e => e.ariaLabel === label);
    if (again) again.focus();
  };
}

function makeMessage(conversation, message) {
  const isUser = message.role === "user",
    run = page.run && page.run.answer === message ? page.run : null;
  const isProse = !isUser && page.facts.hasTemplate;
  const element = make("article", {
    class: "message " + message.role + (isProse ? "" : " plain"),
    "data-id": message.id,
    "aria-label": isUser ? "You" : message.model || "The model",
  });
  if (page.editing === message.id) {
    element.append(makeEditor(conversation, message));
    return element;
  }
  element.append(make("div", {class: isProse ? "text prose" : "text"}), make("div", {class: "facts"}));
  if (isUser) showQuestion(element, conversation, message);
  else showAnswerText(element, message);
  if (run) showRunning(element, run);
  else element.querySelector(".facts").append(...makeFacts(conversation, message));
  return element;
}

/* A long question shows its beginning until it is unfolded. */
function showQuestion(element, conversation, message) {
  const {id, content} = message,
    text = element.firstElementChild,
    isOpen = page.unfolded.has(id);
  const fold = () => {
    if (!page.unfolded.delete(id)) page.unfolded.add(id);
    const made = makeMessage(conversation, message);
    element.replaceWith(made);
    made.querySelector(".fold").focus();
  };
  text.textContent = content;
  if (content.length <= 1200 && content.split("\n", 15).length < 15) return;
  if (!isOpen) text.textContent = content.split("\n", 10).join("\n").slice(0, 1000).trimEnd() + " …";
  const label = isOpen ? "Show less" : "Show all " + formatCount(content.length) + " characters";
  element.lastElementChild.append(
    make("button", {type: "button", class: "text-button fold", "aria-expanded": String(isOpen), onclick: fold}, label),
  );
}

function showAnswerText(element, answer) {
  const text = element.querySelector(".text");
  let details = element.querySelector(".reasoning");
  if (answer.reasoning) {
    if (!details)
      element.prepend(
        (details = make(
          "details",
          {class: "reasoning"},
          make("summary", null, "Reasoning"),
          make("div", {class: "thought"}),
        )),
      );
    details.firstElementChild.textContent =
      "Reasoning, " + formatCount(answer.reasoning.split(/\s+/).length) + " words";
    details.lastElementChild.textContent = answer.reasoning;
  }
  if (text.classList.contains("prose")) showMarkdown(text, answer.content);
  else text.textContent = answer.content;
}

/* What an answer waits for, or how fast it comes. */
function showRunning(element, run) {
  const facts = element.querySelector(".facts"),
    stats = figures.last;
  /* Streams of texts name their answer with the first part of it; a single request is this one. */
  const isSeen = r => r.id === run.id || (!run.id && stats.requests.length === 1);
  const seen = stats && !run.hasText ? stats.requests.find(isSeen) : null;
  const seconds = (performance.now() - run.startedAt) / 1000;
  element.querySelector(".text").classList.toggle("caret", !run.hasText);
  if (run.hasText) {
    const rate = run.n > 1 ? (run.n - 1) / (seconds - run.answer.figures.firstSeconds) : 0;
    facts.replaceChildren(make("span", {class: "say"}, rate > 0 ? rate.toFixed(1) + " tokens/s" : "Writing"));
    return;
  }
  const say = make(
    "span",
    {class: "say"},
    seen && seen.state !== "generating"
      ? describeRequest(seen)
      : figures.isAbsent
        ? "Waiting for the model to be loaded"
        : "Waiting for the first token",
  );
  const share =
    seen && seen.state === "prompt" && seen.prompt_tokens > 0 ? seen.evaluated_tokens / seen.prompt_tokens : 0;
  const bar = share > 0 ? make("div", {class: "progress"}, make("div")) : null;
  if (bar) bar.firstElementChild.style.width = 100 * share + "%";
  facts.replaceChildren(say, ...(bar ? [bar] : []));
}

const END_WORDS = {
  length: "ended at the limit of length",
  stopped: "stopped",
  running: "cut short",
  broken: "cut short",
  failed: "failed",
};

function describeFigures(answer) {
  const f = answer.figures || {},
    words = [];
  if (f.tokens) words.push(formatCount(f.tokens) + (f.tokens === 1 ? " token" : " tokens"));
  if (f.perSecond) words.push(f.perSecond.toFixed(f.perSecond < 99.95 ? 1 : 0) + " tokens/s");
  if (f.firstSeconds !== undefined) words.push("first after " + formatSeconds(f.firstSeconds));
  if (f.cachedTokens)
    words.push(formatCount(f.cachedTokens) + " of " + formatCount(f.promptTokens) + " prompt tokens from the cache");
  return words.join(" · ");
}

function makeFacts(conversation, message) {
  const facts = [],
    tools = make("span", {class: "tools"}),
    isUser = message.role === "user",
    canRun = !page.run;
  if (!isUser) {
    const said = describeFigures(message),
      end = END_WORDS[message.end];
    if (page.facts.isOneOfSeveral && message.model) facts.push(make("span", {class: "say by"}, message.model));
    if (said) facts.push(make("span", {class: "say", title: "seed " + message.figures.seed}, said));
    if (message.problem) facts.push(make("span", {class: "say alarm"}, message.problem));
    else if (end)
      facts.push(
        make("span", {class: message.end === "broken" || message.end === "failed" ? "say alarm" : "say"}, end),
      );
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
  const all = childrenOf(conversation, message.parent),
    i = all.indexOf(message);
  if (all.length < 2) return null;
  const to = (k, name, label) => {
    const button = iconButton(name, label, () => {
      showBranch(conversation, all[k].id);
      keep(conversation);
      showMessages();
      showContext();
    });
    button.disabled = k < 0 || k >= all.length || Boolean(page.run);
    return button;
  };
  return make(
    "span",
    {class: "branch"},
    to(i - 1, "left", "Earlier version"),
    make("span", null, i + 1 + "/" + all.length),
    to(i + 1, "right", "Later version"),
  );
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
  const field = make("textarea", {
      "aria-label": "Edited message",
      rows: Math.min(16, message.content.split("\n").length + 1),
    }),
    isUser = message.role === "user";
  const close = () => {
    page.editing = null;
    showMessages();
    byId("composer-text").focus();
  };
  field.value = message.content;
  const save = () => {
    const text = field.value.trimEnd();
    page.editing = null;
    if (!text || (!isUser && text === message.content)) return close();
    const edited = addMessage(conversation, message.parent, message.role, text);
    if (isUser) return generate();
    Object.assign(edited, {end: "stopped", model: message.model, figures: {}});
    keep(conversation);
    return close();
  };
  field.addEventListener("keydown", event => {
    const sends = isUser && event.key === "Enter" && !event.shiftKey && !event.isComposing;
    if (event.key !== "Escape" && !sends) return;
    event.stopPropagation();
    event.preventDefault();
    if (sends) save();
    else close();
  });
  return make(
    "div",
    {class: "edit"},
    field,
    make(
      "div",
      {class: "row"},
      make("span", {class: "grow"}),
      make("button", {type: "button", class: "quiet-text", onclick: close}, "Cancel"),
      make("button", {type: "button", class: "primary", onclick: save}, isUser ? "Send" : "Save"),
    ),
  );
}
