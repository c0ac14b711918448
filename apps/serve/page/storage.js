/* Conversations in the browser: an IndexedDB with a record for each, and one for what is the same for all. Where there
 * is none (some private windows), they live as long as the page. Also files of conversations, which are not trusted. */

const storage = {
  database: null,
  isKept: true,

  open() {
    return new Promise(resolve => {
      const none = () => {
        this.isKept = false;
        resolve();
      };
      try {
        const asked = indexedDB.open("hearth", 1);
        asked.onupgradeneeded = () => {
          asked.result.createObjectStore("conversations", {keyPath: "id"});
          asked.result.createObjectStore("common");
        };
        asked.onsuccess = () => {
          this.database = asked.result;
          resolve();
        };
        asked.onerror = asked.onblocked = none;
      } catch (error) {
        none();
      }
    });
  },

  /* What use(store) asks for; undefined without a database. */
  ask(name, mode, use) {
    if (!this.database) return Promise.resolve(undefined);
    return new Promise((resolve, reject) => {
      const transaction = this.database.transaction(name, mode),
        asked = use(transaction.objectStore(name));
      transaction.oncomplete = () => resolve(asked.result);
      transaction.onerror = transaction.onabort = () => reject(transaction.error);
    });
  },

  async loadAll() {
    return (await this.ask("conversations", "readonly", s => s.getAll())) || [];
  },
  save(conversation) {
    return this.ask("conversations", "readwrite", s => s.put(conversation));
  },
  remove(id) {
    return this.ask("conversations", "readwrite", s => s.delete(id));
  },
  async loadCommon(key) {
    return this.ask("common", "readonly", s => s.get(key));
  },
  saveCommon(key, value) {
    return this.ask("common", "readwrite", s => s.put(value, key));
  },
};

/* ---- files ---- */

const FILE_FORMAT = "hearth-conversations";

function exportConversations(conversations, name) {
  const text = JSON.stringify({format: FILE_FORMAT, version: 1, conversations}, null, 1);
  const url = URL.createObjectURL(new Blob([text], {type: "application/json"}));
  make("a", {href: url, download: name + ".json"}).click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

const textOr = (value, other) => (typeof value === "string" ? value : other);
const numberOr = (value, other) => (typeof value === "number" && isFinite(value) ? value : other);

/* A message as this page would have made it, or null. */
function readMessage(given, ids) {
  if (!given || typeof given !== "object" || (given.role !== "user" && given.role !== "assistant")) return null;
  const message = {
    id: ids.get(given.id),
    parent: given.parent === null ? null : ids.get(given.parent),
    role: given.role,
    content: textOr(given.content, ""),
    created: numberOr(given.created, 0),
  };
  if (message.id === undefined || message.parent === undefined) return null;
  if (given.reasoning) message.reasoning = textOr(given.reasoning, "");
  if (given.role === "assistant") {
    message.end = textOr(given.end, "stop");
    message.model = textOr(given.model, "");
    message.figures = {};
    for (const [key, value] of Object.entries(given.figures || {}))
      if (/^[a-zA-Z]{1,20}$/.test(key) && typeof value === "number") message.figures[key] = value;
  }
  return message;
}

/* With ids of its own, so that nothing is replaced. Throws an Error that says what is wrong. */
function readConversation(given, i) {
  const wrong = what => {
    throw new Error("conversation " + (i + 1) + ": " + what);
  };
  if (!given || typeof given !== "object" || !given.messages || typeof given.messages !== "object")
    wrong("there are no messages");
  const ids = new Map(),
    messages = {};
  for (const id of Object.keys(given.messages)) ids.set(id, randomId());
  for (const m of Object.values(given.messages)) {
    const message = readMessage(m, ids);
    if (!message) wrong("a message is not one");
    messages[message.id] = message;
  }
  /* Parents lead to the beginning: a circle would never end. */
  for (const m of Object.values(messages)) {
    let at = m,
      n = 0;
    while (at && at.parent !== null) {
      if (++n > ids.size) wrong("its messages have no order");
      at = messages[at.parent];
    }
  }
  const settings = {};
  for (const s of SETTINGS) {
    const value = given.settings && given.settings[s.name];
    if (typeof value === "number" || typeof value === "string") settings[s.name] = String(value).slice(0, 200);
  }
  const now = Date.now();
  return {
    id: randomId(),
    title: textOr(given.title, "").slice(0, 120),
    created: numberOr(given.created, now),
    updated: numberOr(given.updated, now),
    system: textOr(given.system, ""),
    settings,
    messages,
    leaf: ids.get(given.leaf) || null,
  };
}

function readFileOfConversations(text) {
  let given;
  try {
    given = JSON.parse(text);
  } catch (error) {
    throw new Error("the file is no JSON");
  }
  if (!given || given.format !== FILE_FORMAT || !Array.isArray(given.conversations))
    throw new Error("the file was not exported by this page");
  return given.conversations.map(readConversation);
}
