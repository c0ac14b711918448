/* How the page asks the server: requests with the key, streams of events, and what is wrong in words that say what to
 * do. A Problem has a kind: unreachable, loading, busy, key, refused, broken. */

class Problem extends Error {
  constructor(kind, message, more) {
    super(message);
    Object.assign(this, {kind}, more);
  }
}

/* Below the address of the page, which behind a proxy may have the path /llm/ or /llm. */
function addressOf(path) {
  const {origin, pathname} = location;
  return origin + pathname + (pathname.endsWith("/") ? "" : "/") + path;
}

const KEY_NAME = "key of " + addressOf(""); /* other servers may lie beside this one */

const protocol = {
  key: sessionStorage.getItem(KEY_NAME) || "",

  setKey(key) {
    this.key = key;
    sessionStorage.setItem(KEY_NAME, key);
  },

  headers(more) {
    return {...(this.key ? {Authorization: "Bearer " + this.key} : {}), ...more};
  },

  async fetch(path, options) {
    let answer;
    try {
      answer = await fetch(addressOf(path), {cache: "no-store", credentials: "omit", ...options});
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new Problem("unreachable", "The server cannot be reached.");
    }
    if (answer.ok) return answer;
    let error = {};
    try {
      error = (await answer.json()).error || {};
    } catch (ignored) {
      /* a proxy's page */
    }
    const message = typeof error.message === "string" ? error.message : "status " + answer.status;
    if (answer.status === 401) throw new Problem("key", message);
    if (answer.status === 429)
      throw new Problem("busy", message, {seconds: Number(answer.headers.get("Retry-After")) || 2});
    if (answer.status === 503) throw new Problem("loading", message);
    throw new Problem("refused", message, {status: answer.status, code: error.code, param: error.param});
  },

  async get(path) {
    return (await this.fetch(path, {headers: this.headers()})).json();
  },

  /* Calls onEvent with each object of the stream. Returns when the server says that it is complete. */
  async stream(path, body, signal, onEvent) {
    const answer = await this.fetch(path, {
      method: "POST",
      headers: this.headers({"Content-Type": "application/json"}),
      body: JSON.stringify(body),
      signal,
    });
    const reader = answer.body.getReader(),
      decoder = new TextDecoder();
    let rest = "";
    for (;;) {
      let part;
      try {
        part = await reader.read();
      } catch (error) {
        if (error.name === "AbortError") throw error;
        throw new Problem("broken", "The connection was lost.");
      }
      if (part.done) throw new Problem("broken", "The connection was lost.");
      rest += decoder.decode(part.value, {stream: true});
      const lines = rest.split("\n");
      rest = lines.pop();
      for (const line of lines) {
        if (!line.startsWith("data:")) continue; /* a comment, or the end of an event */
        const data = line.slice(5).trim();
        if (data === "[DONE]") return;
        const event = JSON.parse(data);
        if (event.error) throw new Problem("failed", String(event.error.message));
        onEvent(event);
      }
    }
  },
};

/* What a person can do about it. */
function explain(problem, facts) {
  if (problem.kind === "refused" && problem.code === "context_length_exceeded")
    return (
      "The conversation does not fit into the context of " +
      formatCount(facts.context) +
      " tokens. Begin a new one, edit an earlier message, or serve the model with a larger -c."
    );
  if (problem.kind === "refused" && problem.status === 413)
    return "The conversation is larger than the server takes. Begin a new one, or serve with a larger --max-body.";
  if (problem.kind === "refused" && problem.status === 403)
    return "The server refuses this address: " + problem.message + ".";
  if (problem.kind === "refused" && problem.param)
    return "The server refuses " + problem.param + ": " + problem.message + ". Look at the settings.";
  if (problem.kind === "refused") return "The server refuses that: " + problem.message + ".";
  if (problem.kind === "failed") return "The server ended the answer: " + problem.message + ".";
  if (problem.kind === "broken")
    return "The connection was lost before the answer was complete. Continue it, or answer once more.";
  if (problem.kind === "key") return "The server asks for an API key.";
  return problem.message;
}
