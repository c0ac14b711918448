"""The page as bytes, the figures that it shows, and what is in deploy/. Called by CTest with the program's path; a
browser uses the page in test_browser.py."""

import base64
import hashlib
import html.parser
import json
import os
import re
import shutil
import subprocess
import threading
import time

from server import HEARTH, MODEL, SOURCE, Server, bad, case, cases, check, good, program, read_all, run_all, scratch, until
from page_cases import CODE, GROWING, MARKDOWN
from program import least_ram

PAGE = os.path.join(SOURCE, "apps", "serve", "page")
DEPLOY = os.path.join(SOURCE, "deploy")
FLOATS = program.data("models/storyteller-drelu/storyteller-drelu-f32.gguf")  # with neurons that are not active


class Elements(html.parser.HTMLParser):
    """Elements with their attributes, and the texts of style and script."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.texts, self.inside = [], {"style": [], "script": []}, None
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        self.inside = tag if tag in self.texts else None
        if self.inside:
            self.texts[tag].append("")

    def handle_endtag(self, tag):
        self.inside = None

    def handle_data(self, data):
        if self.inside:
            self.texts[self.inside][-1] += data


def policy_of(answer):
    return {part.split()[0]: part.split()[1:] for part in answer.headers["content-security-policy"].split(";")}


# ---- the page ------------------------------------------------------------------------------------------------------


@case
def the_page_is_one_file_that_allows_itself_alone():
    with Server() as s:
        answer = s.get("/")
        check(answer.status == 200 and answer.headers["content-type"] == "text/html; charset=utf-8", answer.headers)
        check(answer.headers["cache-control"] == "no-cache" and "set-cookie" not in answer.headers, answer.headers)
        check(answer.headers["referrer-policy"] == "no-referrer", answer.headers)
        check(answer.headers["x-content-type-options"] == "nosniff", answer.headers)
        check(10_000 < len(answer.body) < 150_000, len(answer.body))
        page = Elements(answer.body.decode())
        policy = policy_of(answer)
        for tag in ("style", "script"):
            (text,) = page.texts[tag]
            hashed = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
            check(policy[tag + "-src"] == [f"'sha256-{hashed}'"], tag, policy)
        check(policy["default-src"] == ["'none'"] and policy["connect-src"] == ["'self'"], policy)
        check(policy["img-src"] == ["data:"], policy)
        for name in ("base-uri", "form-action", "frame-ancestors"):
            check(policy[name] == ["'none'"], name, policy)
        head = s.ask("HEAD", "/")
        check(head.status == 200 and head.body == b"", head.raw)
        check(head.headers["content-length"] == str(len(answer.body)), head.raw)
        check(head.headers["content-security-policy"] == answer.headers["content-security-policy"], head.raw)
        check(s.post("/", {}).status == 405, "POST")
        check("content-security-policy" not in s.get("/health").headers, "other answers have headers of the page")


@case
def the_page_loads_nothing_and_parses_no_html():
    with Server() as s:
        text = s.get("/").body.decode()
    page = Elements(text)
    for tag, attributes in page.elements:
        for name, value in attributes.items():
            check(name != "style" and not name.startswith("on"), tag, name)
            if name in ("src", "href", "action", "srcset", "data", "poster"):
                check(value.startswith(("#", "data:image/png;base64,")), tag, name, value)
        check(tag not in ("iframe", "object", "embed", "base", "frame"), tag)
    check(not re.search(r"https?://", re.sub(r"\^https\?:\\/\\/", "", text)), "an address")
    check(not re.search(r"url\(|@import", page.texts["style"][0]), "the style loads something")
    script = page.texts["script"][0]
    for word in (r"innerHTML", r"outerHTML", r"insertAdjacentHTML", r"document\.write", r"\beval\b", r"\bFunction\(",
                 r"DOMParser", r"createContextualFragment", r"\bimport\(", r"document\.cookie", r"localStorage",
                 r"setTimeout\(\s*[\"'`]", r"javascript:", r"WebSocket", r"EventSource", r"XMLHttpRequest",
                 r"sendBeacon"):
        check(not re.search(word, script), word)
    labels = {a.get("for") for tag, a in page.elements if tag == "label"}
    for tag, a in page.elements:
        if tag in ("input", "textarea", "select"):
            check(a.get("id") in labels or a.get("aria-label"), "no label", tag, a)
    ids = [a["id"] for _, a in page.elements if "id" in a]
    check(len(ids) == len(set(ids)), "an id twice")
    named = set(re.findall(r'\b(?:byId|on)\("([\w-]+)"[,)]', script))
    check(named <= set(ids) | {"set-"}, "no such element", named - set(ids))


def ask_page(*questions):
    """The values of expressions of the page with their arguments, by Node."""
    node = shutil.which("node")
    if not node:
        raise cases.Skip("there is no node (Debian: nodejs)")
    files = ["elements.js", "formulas.js", "code.js", "markdown.js", "protocol.js", "conversation.js", "attachments.js"]
    done = subprocess.run([node, os.path.join(SOURCE, "tests", "serve", "page_dom.mjs"), PAGE, *files],
                          input=json.dumps(questions), capture_output=True, encoding="utf-8", timeout=600)
    check(done.returncode == 0, done.stderr)
    answers = json.loads(done.stdout)
    for question, answer in zip(questions, answers):
        check("value" in answer, question, answer)
    return answers


@case
def texts_become_elements():
    for (text, expected), answer in zip(MARKDOWN, ask_page(*(["shown", text] for text, _ in MARKDOWN))):
        check(answer["value"] == expected, text, answer["value"], expected)
    asked = [["coloured", text, language] for text, language, _ in CODE]
    for (text, language, expected), answer in zip(CODE, ask_page(*asked)):
        check(answer["value"] == expected, language, text, answer["value"], expected)
    (long,) = ask_page(["(text, n) => colourCode(text.repeat(n), 'c').map(n => n.textContent || n).join('') === text.repeat(n)",
                        'int "a" /* 1 */ ', 2000])
    check(long["value"] is True, "characters are lost")


@case
def the_page_asks_below_its_own_address():
    places = [("/", "https://host/v1/models"), ("/llm/", "https://host/llm/v1/models"),
              ("/llm", "https://host/llm/v1/models"), ("//other/", "https://host//other/v1/models")]
    for (place, expected), answer in zip(places, ask_page(*(["addressBelow", place, "v1/models"] for place, _ in places))):
        check(answer["value"] == expected, place, answer)
    for name in os.listdir(PAGE):
        with open(os.path.join(PAGE, name), encoding="utf-8") as f:
            check(not re.search(r"""["'`]/(v1|stats|health|props)""", f.read()), name, "asks for an absolute path")


@case
def paths_may_begin_with_a_prefix():
    with Server("--api-prefix", "/llm/x") as s:
        for path in ("/", "/v1/models", "/health"):
            check(s.get("/llm/x" + path).body == s.get(path).body, path)
        check(s.get("/llm/x").body == s.get("/").body, "without a slash at the end")
        check(s.get("/llm/v1/models").status == 404 and s.get("/llm/xx/v1/models").status == 404, "another prefix")
        check(s.post("/llm/x/v1/messages", {}).json()["type"] == "error", "the form of errors")
    for wrong in ("llm", "/llm/", "/l m", "/llm?x", "/", "", "/../x", "/a//b", "/./a"):
        bad(2, "as /llm is expected", "serve", MODEL, "--api-prefix", wrong, "--check")
    for wrong in "/v1", "/api":
        bad(2, "it would hide the API's own paths", "serve", MODEL, "--api-prefix", wrong, "--check")


@case
def files_become_blocks_of_the_message():
    cases_of = [
        ("Look", [], "Look"), ("", [["a", "x"]], "File a:\n\n```\nx\n```"),
        ("Look", [["a.py", "x\n"], ["b", "y"]], "Look\n\nFile a.py:\n\n```py\nx\n```\n\nFile b:\n\n```\ny\n```"),
        ("", [["n.md", "```\nx\n`````"]], "File n.md:\n\n``````md\n```\nx\n`````\n``````"),
        ("", [["a.b c", ""]], "File a.b c:\n\n```\n\n```")]
    made = "(text, files) => withFiles(text, files.map(([name, text]) => ({name, text})))"
    for (text, files, expected), answer in zip(cases_of, ask_page(*([made, text, files] for text, files, _ in cases_of))):
        check(answer["value"] == expected, files, answer["value"])
    read = "bytes => readTextFile(new Blob([Uint8Array.from(bytes)])).catch(error => '! ' + error.message)"
    given = [(b"\xef\xbb\xbfa\r\nb\rc", "a\nb\nc"), ("ü".encode(), "ü"), (b"\xff", "! it is no text in UTF-8"),
             (b"a\0b", "! it is no text"), (b"a" * 1000001, "! it is larger than 1.0 MB")]
    for (content, expected), answer in zip(given, ask_page(*([read, list(content)] for content, _ in given))):
        check(answer["value"] == expected, content[:20], answer["value"])


@case
def conversations_are_found_by_their_texts():
    messages = {"a": {"id": "a", "parent": None, "role": "user", "content": "The First question"},
                "b": {"id": "b", "parent": "a", "role": "assistant", "content": "x" * 100 + " ÄPFEL " + "y" * 100}}
    conversation = {"title": "", "messages": messages, "leaf": "b"}
    wanted = [("first", {}), ("äpfel", {"message": "b", "around": "x" * 19 + " ÄPFEL " + "y" * 74}), ("z", None)]
    for (text, expected), answer in zip(wanted, ask_page(*(["findIn", conversation, text] for text, _ in wanted))):
        check(answer["value"] == expected, text, answer["value"])


@case
def no_text_is_shown_slowly():
    asked = [["shownRepeated", piece, max(1, 50000 // len(piece)), end] for piece, end in GROWING]
    for question, answer in zip(asked, ask_page(*asked)):
        check(answer["seconds"] < 20, question, "takes", answer["seconds"], "s")


@case
def the_page_needs_no_key_and_its_figures_do():
    with Server(env={"HEARTH_API_KEY": "sk-page"}) as s:
        check(s.get("/").status == 200, "the page")
        for path in ("/stats", "/props", "/v1/models"):
            check(s.get(path).status == 401, path)
            check(s.get(path, headers=["Authorization: Bearer sk-page"]).status == 200, path)
        check(s.get("/", host="example.org").status == 403, "another host")


# ---- figures -------------------------------------------------------------------------------------------------------

ASK = {"prompt": "Once upon a time", "seed": 3, "max_tokens": 60, "temperature": 1.0}


def settled(s, tokens):
    """The figures after a request: a moment passes between its answer and the next ones."""
    end = time.monotonic() + 30
    while time.monotonic() < end:
        stats = s.get("/stats").json()
        if stats["generated_tokens"] >= tokens and stats["running"] == 0:
            return stats
        time.sleep(0.02)
    check(False, "the figures do not come", stats)


@case
def stats_are_those_of_the_requests():
    with Server("-t", "1") as s:
        first = s.get("/stats").json()
        check(first["generated_tokens"] == 0 and first["requests"] == [] and first["exact"] is True, first)
        check("storage" not in first and "neurons" not in first, first)
        usage = s.post("/v1/completions", ASK).json()["usage"]
        n = usage["completion_tokens"]
        then = settled(s, n)
        check(then["generated_tokens"] >= n and then["prompt_tokens"] == usage["prompt_tokens"], then, usage)
        check(then["seconds"] > first["seconds"] and then["pages_used"] > 0 and then["kept"] == 1, then)
        s.post("/v1/completions", ASK)
        check(settled(s, 2 * n)["cached_tokens"] == usage["prompt_tokens"] - 1, "the cache")
        check("GET /stats" not in "".join(filter(None, s.lines)), "a line for each look")


@case
def live_neurons_are_counted_while_they_are_watched():
    with Server("-t", "1", "--speculate", "0", model=FLOATS) as s:
        layers = s.get("/stats").json()["n_layer"]
        done = []
        thread = threading.Thread(target=lambda: done.append(s.post("/v1/completions", ASK).json()["usage"]))
        thread.start()
        while not done:
            s.get("/stats")
            thread.join(0.5)
        (usage,) = done
        stats = settled(s, usage["completion_tokens"])
    told = good("run", FLOATS, "-p", ASK["prompt"], "-n", "60", "--seed", "3", "--temp", "1", "-q", "--stats",
                "-t", "1", "--speculate", "0")
    line = re.search(r"live neurons by layer, %:((?: [\d.]+)+); mean", told.stderr.decode())
    check(line, told.stderr)
    n = stats["neurons"]["tokens"]
    check(n == usage["total_tokens"] - 1, stats, usage)  # the last token is not evaluated
    shares = [100 * x / stats["neurons"]["tokens"] for x in stats["neurons"]["layers"]]
    check(len(shares) == layers, stats)
    told = [float(x) for x in line[1].split()]
    # It has a token more.
    check(len(told) == layers and all(abs(a - b) < 100 / n for a, b in zip(shares, told)), shares, told)


@case
def requests_show_how_far_they_are():
    """The first one fills its socket, as its client reads nothing, and so stays in the only place."""
    with Server("-t", "1", "-c", "4096", "--parallel", "1", unix=scratch("socket")) as s:
        n = 200
        bodies = [json.dumps({"prompt": [5 + k] * n, "max_tokens": 3800 if k == 0 else 4, "stream": True, "logprobs": 5, "ignore_eos": True}).encode()
                  for k in range(3)]

        def ask(body):
            c = s.connect()
            c.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n"
                      b"Content-Length: %d\r\n\r\n" % len(body) + body)
            return c

        def shown():
            requests = s.get("/stats").json()["requests"]
            for r in requests:
                check(re.fullmatch("cmpl-[0-9a-f]{32}", r["id"]), r)
                check(r["prompt_tokens"] == n and r["evaluated_tokens"] <= n, r)
            return [(r["state"], r["before"]) for r in requests]

        asking = []
        for k, body in enumerate(bodies):
            asking.append(ask(body))
            until(lambda: len(shown()) == k + 1)
        until(lambda: sorted(shown()) == [("generating", 0), ("waiting", 0), ("waiting", 1)])
        first, = (r for r in s.get("/stats").json()["requests"] if r["state"] == "generating")
        check(first["evaluated_tokens"] == n and 0 < first["generated_tokens"] < 3800, first)
        for c in asking:
            check(read_all(c).endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n"), "not whole")
            c.close()
        until(lambda: shown() == [])


@case
def approximate_modes_are_named():
    with Server("--kv", "q8_0") as s:
        stats = s.get("/stats").json()
        check(stats["exact"] is False and stats["approximate"] == ["kv"], stats)


# ---- a limit of time -----------------------------------------------------------------------------------------------


@case
def a_request_ends_at_the_limit_of_time():
    """One runs at a time, and all together take longer than that: the last ones end while they wait, or in between."""
    n = 60
    with Server("-t", "1", "-c", "0", "--parallel", "1", "--max-request-seconds", "0.5") as s:
        long = {"prompt": "Once", "ignore_eos": True, "max_tokens": 100000}
        answers = [None] * n

        def ask(k):
            answers[k] = s.post("/v1/completions", {**long, "seed": k, "stream": k % 2 == 1})

        threads = [threading.Thread(target=ask, args=(k,)) for k in range(n)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        late = [a for k, a in enumerate(answers) if k % 2 == 0 and a.status == 408]
        check(late and all(a.status in (200, 408) for a in answers[::2]), [a.status for a in answers])
        for a in late:
            check(a.error()["type"] == "timeout_error" and "0.5 seconds" in a.error()["message"], a.raw)
            check(a.headers["x-should-retry"] == "false", a.raw)
        check(all(a.status == 200 for a in answers[1::2]), "streams have begun")
        cut = [a for a in answers[1::2] if b"[DONE]" not in a.body]
        check(cut, "no stream was cut")
        for a in cut:
            check(b'"type": "timeout_error"' in a.body and a.body.endswith(b"0\r\n\r\n"), a.raw[-400:])
        check(s.get("/slots").json() == [], "a request is left")
        check(s.post("/v1/completions", {**ASK, "max_tokens": 2}).status == 200, "nothing works any more")


# ---- deploy --------------------------------------------------------------------------------------------------------


def names_in(text):
    """Names of metrics in queries, without the endings of histograms; those of recorded rules have colons."""
    found = re.findall(r"(?<![:\w])hearth_\w+(?!\w*:)", re.sub(r"instance:[\w:]+", "", text))
    return {re.sub(r"_(bucket|sum|count)$", "", name) for name in found}


# Only a model whose weights come from storage has them.
STORED = {"hearth_cluster_hits_total", "hearth_cluster_misses_total", "hearth_store_read_bytes_total",
          "hearth_store_stall_seconds_total"}


def read_deploy(*path):
    with open(os.path.join(DEPLOY, *path), encoding="utf-8") as f:
        return f.read()


@case
def dashboards_and_rules_name_metrics_that_exist():
    with Server() as s:
        served = set(re.findall(r"^# TYPE (\w+) ", s.get("/metrics").body.decode(), re.M))
    rules = read_deploy("prometheus", "hearth.rules.yml")
    expressions = "\n".join(re.findall(r"^ +expr: (?:>-\n)?((?:.*\n)(?: {10}.*\n)*)", rules, re.M))
    check(names_in(expressions) and names_in(expressions) <= served, names_in(expressions) - served)
    recorded = set(re.findall(r"- record: (\S+)", rules))
    check(set(re.findall(r"instance:\w+:\w+", expressions)) <= recorded, "a rule that is not recorded")
    dashboard = json.loads(read_deploy("grafana", "hearth.json"))
    used = names_in(json.dumps([t["expr"] for p in dashboard["panels"] for t in p["targets"]]))
    check(len(used) > 10 and used <= served | STORED and STORED <= used, used - served)
    panels = dashboard["panels"]
    check(len({p["id"] for p in panels}) == len(panels), "an id twice")
    places = [tuple(p["gridPos"][k] for k in "xywh") for p in panels]
    cells = [(x + i, y + j) for x, y, w, h in places for i in range(w) for j in range(h)]
    check(len(cells) == len(set(cells)) and max(x for x, _ in cells) < 24, "panels overlap")


@case
def a_model_from_storage_has_its_metrics():
    options = ("-t", "1", "-c", "32", "--batch", "16", "--gpu", "none")
    least = int(least_ram("serve", FLOATS, "--port", "0", "--check", *options))  # without the batch of requests
    with Server(*options, "--ram", str(least + (8 << 20)), model=FLOATS) as s:
        n = s.post("/v1/completions", {**ASK, "max_tokens": 16}).json()["usage"]["completion_tokens"]
        stats = settled(s, n)
        metrics = dict(re.findall(r"^(hearth_\w+) (\S+)$", s.get("/metrics").body.decode(), re.M))
    storage = stats["storage"]
    check(len(storage["layers"]) == stats["n_layer"] and "neurons" not in stats, stats)
    check(sum(hit for hit, _ in storage["layers"]) == storage["hits"] > 0, storage)
    check(sum(miss for _, miss in storage["layers"]) == storage["misses"], storage)
    check(STORED <= set(metrics), metrics)
    check(float(metrics["hearth_cluster_hits_total"]) == storage["hits"], metrics, storage)
    check(float(metrics["hearth_store_read_bytes_total"]) == storage["read_bytes"] > 0, metrics, storage)


@case
def promtool_accepts_rules_and_metrics():
    promtool = shutil.which("promtool")
    if not promtool:
        raise cases.Skip("there is no promtool (Debian: prometheus)")
    rules = os.path.join(DEPLOY, "prometheus", "hearth.rules.yml")
    done = subprocess.run([promtool, "check", "rules", rules], capture_output=True, text=True)
    check(done.returncode == 0, done.stdout, done.stderr)
    with Server() as s:
        s.post("/v1/completions", ASK)
        metrics = s.get("/metrics").body
    done = subprocess.run([promtool, "check", "metrics"], input=metrics, capture_output=True)
    check(done.returncode == 0 and not done.stderr.strip(), done.stdout, done.stderr)


@case
def systemd_accepts_the_units():
    analyze = shutil.which("systemd-analyze")
    if not analyze:
        raise cases.Skip("there is no systemd-analyze (Debian: systemd)")
    folder = os.path.dirname(scratch("x", b""))
    paths = []
    for name in ("hearth.service", "hearth.socket"):
        text = read_deploy("systemd", name)
        if name.endswith(".service"):
            check("ExecStart=hearth " in text, "not found in /usr/local/bin, too", text)
        paths.append(os.path.join(folder, name))
        with open(paths[-1], "w", encoding="utf-8") as f:
            f.write(text.replace("ExecStart=hearth ", f"ExecStart={HEARTH} "))
    where = {**os.environ, "SYSTEMD_UNIT_PATH": folder + ":"}
    done = subprocess.run([analyze, "verify", "--man=no", *paths], capture_output=True, text=True, env=where)
    mine = [line for line in done.stderr.splitlines() if "hearth" in line]
    check(not mine, done.stderr)
    done = subprocess.run([analyze, "security", "--offline=yes", "--threshold=20", paths[0]], capture_output=True,
                          text=True, env=where)
    check(done.returncode == 0, "exposure above 2.0", done.stdout, done.stderr)
    print("    ", done.stdout.strip().splitlines()[-1])


if __name__ == "__main__":
    run_all(__file__)
