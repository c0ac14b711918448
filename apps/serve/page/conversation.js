/* A conversation is a tree of messages: an edited message or another answer is one more child of the same parent, and
 * what is shown is the path from the beginning to a leaf. A record has
 *   {id, title, created, updated, system, settings, messages: {id: message}, leaf}
 * and a message
 *   {id, parent, role, content, created}, of the model also {reasoning, end, model, figures}
 * where end is "stop", "length", "stopped" (by the user), "broken", "failed", or "running". */

/* otherwise: what an empty field means, if /props does not say so. */
const SETTINGS = [
  {name: "temperature", label: "Temperature", min: 0, max: 5, step: "any"},
  {name: "top_p", label: "Top p", min: 0.000001, max: 1, step: "any"},
  {name: "top_k", label: "Top k", min: 0, max: 2147483647, step: 1},
  {name: "min_p", label: "Min p", min: 0, max: 1, step: "any"},
  {name: "repeat_penalty", label: "Repeat penalty", min: 0.001, max: 1000, step: "any"},
  {name: "presence_penalty", label: "Presence penalty", min: -2, max: 2, step: "any"},
  {name: "frequency_penalty", label: "Frequency penalty", min: -2, max: 2, step: "any"},
  {name: "max_tokens", label: "Tokens at most", min: 1, max: 4294967295, step: 1, otherwise: "no limit"},
  {name: "seed", label: "Seed", min: -1, max: 9007199254740991, step: 1, otherwise: "a new one"},
  {name: "stop", label: "Stop at", isText: true, otherwise: "nothing"},
];

const MAX_CONTINUED = 512; /* tokens: without a template nothing else ends a text */

function newConversation(settings, system) {
  const now = Date.now();
  return {
    id: randomId(),
    title: "",
    created: now,
    updated: now,
    system: system || "",
    settings: {...settings},
    messages: {},
    leaf: null,
  };
}

function addMessage(conversation, parent, role, content) {
  const message = {id: randomId(), parent, role, content, created: Date.now()};
  conversation.messages[message.id] = message;
  conversation.leaf = message.id;
  return message;
}

function childrenOf(conversation, parent) {
  return Object.values(conversation.messages)
    .filter(m => m.parent === parent)
    .sort((a, b) => a.created - b.created);
}

/* From the first message to the leaf. */
function pathOf(conversation, leaf = conversation.leaf) {
  const path = [];
  for (let at = conversation.messages[leaf]; at; at = conversation.messages[at.parent]) path.push(at);
  return path.reverse();
}

/* Shows another branch, as far as it was followed last. */
function showBranch(conversation, id) {
  for (let children = childrenOf(conversation, id); children.length > 0; children = childrenOf(conversation, id))
    id = children[children.length - 1].id;
  conversation.leaf = id;
}

function titleOf(conversation) {
  if (conversation.title) return conversation.title;
  const first = pathOf(conversation).find(m => m.role === "user");
  return first
    ? first.content.slice(0, 500).replace(/\s+/g, " ").trim().slice(0, 60) || "Untitled"
    : "New conversation";
}

/* Where a conversation has a text in lower case: {} in its title, {message, around} in a message, or null. */
function findIn(conversation, wanted) {
  if (titleOf(conversation).toLowerCase().includes(wanted)) return {};
  for (const {id, content} of Object.values(conversation.messages)) {
    const at = content.toLowerCase().indexOf(wanted);
    if (at >= 0) return {message: id, around: content.slice(Math.max(0, at - 20), at + 80)};
  }
  return null;
}

function samplingOf(conversation) {
  const sampling = {};
  for (const s of SETTINGS) {
    const text = conversation.settings[s.name];
    if (text === undefined || text === "") continue;
    sampling[s.name] = s.isText ? text : Number(text);
  }
  return sampling;
}

/* The request for an answer after `path`. Its last message may be an unfinished answer, which then goes on: this is
 * what servers understand by a last message of the assistant. Without a chat template the model continues the text. */
function requestFor(conversation, path, model, hasTemplate) {
  const common = {model, stream: true, stream_options: {include_usage: true}, ...samplingOf(conversation)};
  if (!hasTemplate) {
    const parts = path.map(m => (m.role === "user" && m.parent !== null ? "\n" + m.content : m.content));
    if (conversation.system) parts.unshift(conversation.system + "\n");
    return ["v1/completions", {max_tokens: MAX_CONTINUED, ...common, prompt: parts.join("")}];
  }
  const messages = path.filter(m => m.role === "user" || m.content).map(m => ({role: m.role, content: m.content}));
  if (conversation.system.trim()) messages.unshift({role: "system", content: conversation.system});
  return ["v1/chat/completions", {...common, messages}];
}

/* Adds an event of a stream to an answer. True: it has text. */
function takeEvent(answer, event) {
  const choice = event.choices && event.choices[0],
    figures = answer.figures;
  let hasText = false;
  if (choice) {
    const delta = choice.delta || {content: choice.text};
    if (delta.reasoning_content) answer.reasoning = (answer.reasoning || "") + delta.reasoning_content;
    if (delta.content) answer.content += delta.content;
    hasText = Boolean(delta.reasoning_content || delta.content);
    if (choice.finish_reason) answer.end = choice.finish_reason;
  }
  if (event.usage) {
    const cached = event.usage.prompt_tokens_details;
    figures.promptTokens = event.usage.prompt_tokens;
    figures.tokens = event.usage.completion_tokens;
    figures.cachedTokens = cached ? cached.cached_tokens : 0;
  }
  if (event.timings && event.timings.predicted_per_second) figures.perSecond = event.timings.predicted_per_second;
  return hasText;
}
