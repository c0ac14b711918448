"""Programs and suites of others, against hearth serve: clients of npm, agents and frameworks for them, openresponses'
compliance tests, llama.cpp's server tests.

    python3 tests/peers/serving.py BUILD WORK      (the last part of make test-peers)

BUILD has hearth. In WORK lie the packages of npm, openresponses and llama.cpp (peers.py puts it there); what is missing
is fetched, and left out by name where that fails. HEARTH_NPM, HEARTH_OPENRESPONSES and HEARTH_LLAMA_CPP name folders
that are used instead. HEARTH_PEERS names one suite: clients, agents, openresponses, llama_server. Each test of a suite is
a case as in tests/support/cases.py. HEARTH_RECORD=1 writes the requests of the clients to tests/data/serve/clients.jsonl,
and the first three and last two of each agent, without the texts of others, to agents.jsonl.xz beside it.
"""
import collections
import json
import lzma
import os
import re
import socket
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
build, work = (os.path.abspath(p) for p in sys.argv[1:3])
sys.argv[1:] = [os.path.join(build, "hearth")]
sys.path[:0] = [os.path.join(ROOT, "tests", "serve")]
sys.dont_write_bytecode = True
import agents  # noqa: E402: the path is set above
import anonymous  # noqa: E402
import strict  # noqa: E402
from server import HEARTH, MODEL, TOOLS, Server, chat_model  # noqa: E402

PACKAGES = ["openai@6.49.0", "@anthropic-ai/sdk@1.14.0", "ollama@0.6.4", "ai@6.0.326", "@ai-sdk/openai-compatible@2.0.87",
            "@ai-sdk/openai@3.0.141", "zod@3.25.76", "tsx@4.23.15"]
OPENRESPONSES = "https://github.com/openresponses/openresponses"
NOT_OFFERED = [("image-input", "images"), ("file-input", "files"),
               ("file-search|offline-web-search", "tools that the server runs"), ("websocket-.*", "WebSockets")]
RECORD = os.path.join(ROOT, "tests", "data", "serve/clients.jsonl")
AGENTS = os.path.join(ROOT, "tests", "data", "serve/agents.jsonl.xz")
counts = collections.Counter()


class Absent(Exception):
    """A suite cannot run here; its text says what is missing."""


def call(*command, **options):
    return subprocess.run([str(c) for c in command], capture_output=True, text=True, check=False, **{"timeout": 1800, **options})


def report(suite, verdict, name, reason=""):
    counts[suite, verdict] += 1
    name, reason = (" ".join(text.split()) for text in (name, reason))
    if verdict != "skip":
        print(f"{verdict:<4} {suite} {name}{': ' if reason else ''}{reason}", flush=True)
    if os.environ.get("HEARTH_TEST_REPORT"):
        with open(os.environ["HEARTH_TEST_REPORT"], "a", encoding="utf-8") as f:
            print(verdict, suite, name, reason, sep="\t", file=f)


def run_suite(name, function):
    if os.environ.get("HEARTH_PEERS", name) != name:
        return
    try:
        function(name)
    except Absent as missing:
        report(name, "skip", "all", str(missing))
        print(f"skip {name}: {missing}")
    n = {verdict: counts[name, verdict] for verdict in ("ok", "FAIL", "skip")}
    print(f"{name}: {n['ok']} passed, {n['FAIL']} failed, {n['skip']} skipped", flush=True)


# ---- clients of npm ------------------------------------------------------------------------------------------------


def npm_folder(packages=PACKAGES, name=""):
    """That in whose node_modules the packages are."""
    wanted = [os.path.join("node_modules", package.rpartition("@")[0]) for package in packages]
    for folder in (os.environ.get("HEARTH_NPM", work), os.path.join(work, name)):
        if all(os.path.isdir(os.path.join(folder, path)) for path in wanted):
            return folder
    os.makedirs(folder, exist_ok=True)
    try:
        done = call("npm", "install", "--no-save", "--no-audit", "--no-fund", "--prefix", folder, *packages, timeout=600)
    except (OSError, subprocess.TimeoutExpired) as e:
        raise Absent(f"node and npm: {e}") from None
    if done.returncode:
        raise Absent("the packages " + ", ".join(packages) + ": " + done.stderr.strip()[-300:])
    return folder


def run_clients(suite):
    folder = npm_folder()
    model = os.path.join(work, "tools.gguf")
    with open(MODEL, "rb") as f, open(model, "wb") as out:
        out.write(chat_model.with_template(f.read(), TOOLS))
    with Server("--gpu", "none", model=model) as s, Server("--gpu", "none", "--max-request-seconds", "0.02", model=model) as late:
        record = [RECORD] if os.environ.get("HEARTH_RECORD") else []
        done = call("node", os.path.join(HERE, "clients.mjs"), f"http://localhost:{s.port}", f"http://localhost:{late.port}", folder, *record)
    for line in done.stdout.splitlines():
        verdict, _, rest = line.partition(" ")
        if verdict in ("ok", "FAIL"):
            report(suite, verdict, rest.strip())
    if not counts[suite, "ok"]:
        report(suite, "FAIL", "clients.mjs", done.stderr[-500:])


# ---- agents --------------------------------------------------------------------------------------------------------


def caller(name, template, end, function, arguments):
    """The path of a model that calls that function where the template ends so (tests/data/caller.py)."""
    base, path = os.path.join(work, "caller.gguf"), os.path.join(work, name + ".gguf")
    made = call("/usr/bin/python3" if os.path.exists("/usr/bin/python3") else sys.executable, os.path.join(ROOT, "tests", "data", "caller.py"), base)
    if made.returncode:
        raise Absent("numpy of Python: " + made.stderr[-300:])
    arguments = json.dumps(arguments)
    half = len(arguments) // 2
    with open(base, "rb") as f, open(path, "wb") as out:
        out.write(chat_model.with_template(f.read(), strict.ending(template, end),
                                           renamed=[("NAME", function), ("ARGUMENTS", arguments[:half]), ("MORE", arguments[half:])]))
    return path


def run_agent(program):
    """The requests of the program, and why it failed, or ""."""
    folder = npm_folder(program.packages, program.folder)
    model = caller("agent", strict.TEMPLATES["all at once"], agents.CALLS_TWICE, program.function, program.arguments)
    with tempfile.TemporaryDirectory(prefix="hearth-peers-") as home, Server("--gpu", "none", "-c", "131072", model=model) as s:
        kept, status, output = agents.run(program, folder, s.port, home)
    refused = [f"{r.method} {r.path}: {r.status}" for r in kept if r.status >= 400]
    few = ["a call and its result are missing"] if len(kept) < 3 else []
    failed = refused + few + ([f"status {status}: {output}"] if status != 0 else [])
    return kept, "; ".join(failed)


def run_agents(suite):
    names, lines = anonymous.Anonymous(), []
    for program in agents.PROGRAMS:
        try:
            kept, failed = run_agent(program)
        except Absent as missing:
            report(suite, "skip", program.name, str(missing))
            print(f"skip {suite} {program.name}: {missing}"[:300])
            continue
        report(suite, "FAIL" if failed else "ok", f"{program.name}, {len(kept)} requests", failed)
        posted = [r for r in kept if r.method == "POST"]
        lines += [names.request(program.name, r.path, r.headers, r.body) for r in posted[:3] + posted[3:][-2:]]
    if os.environ.get("HEARTH_RECORD"):
        with lzma.open(AGENTS, "wt", encoding="utf-8", preset=9) as f:
            f.writelines(lines)


# ---- openresponses -------------------------------------------------------------------------------------------------


def openresponses_folder():
    folder = os.environ.get("HEARTH_OPENRESPONSES") or os.path.join(work, "openresponses")
    if not os.path.exists(os.path.join(folder, "bin", "compliance-test.ts")):
        try:
            call("git", "clone", "-q", "--depth", "1", OPENRESPONSES, folder, timeout=120, env={**os.environ, "GIT_TERMINAL_PROMPT": "0"})
        except subprocess.TimeoutExpired:
            pass
    if not os.path.exists(os.path.join(folder, "bin", "compliance-test.ts")):
        raise Absent(f"{OPENRESPONSES} cannot be fetched; HEARTH_OPENRESPONSES may name a copy")
    return folder


def run_openresponses(suite):
    folder, packages = openresponses_folder(), npm_folder()
    own = os.path.join(folder, "node_modules", ".bin", "tsx")
    tsx = own if os.path.exists(own) else os.path.join(packages, "node_modules", ".bin", "tsx")
    if not os.path.exists(tsx):
        raise Absent("tsx of npm, which runs its TypeScript")
    model = caller("responses", TOOLS, "{{ '<|call|>' if tools and messages[-1].role == 'user' else '<|say|>' }}", "get_weather",
                   {"location": "San Francisco, CA"})
    with Server("--gpu", "none", model=model) as s:
        done = call(tsx, os.path.join(folder, "bin", "compliance-test.ts"), "--base-url", f"http://localhost:{s.port}/v1", "--api-key", "any",
                    "--model", "responses", "--json", cwd=folder)
    try:
        results = json.loads(done.stdout[done.stdout.index("{"):])["results"]
    except (ValueError, KeyError):
        report(suite, "FAIL", "compliance-test.ts", (done.stdout + done.stderr)[-500:])
        return
    for r in results:
        why = [reason for pattern, reason in NOT_OFFERED if re.fullmatch(pattern, r["id"])]
        verdict = {"passed": "ok", "skipped": "skip"}.get(r["status"], "skip" if why else "FAIL")
        report(suite, verdict, r["id"], why[0] if why and verdict == "skip" else "; ".join(r.get("errors") or [])[:500])


# ---- llama.cpp's server --------------------------------------------------------------------------------------------


def python_with_pytest():
    for python in (sys.executable, "/usr/bin/python3"):
        if call(python, "-c", "import pytest, filelock, requests").returncode == 0:
            return python
    raise Absent("pytest, filelock and requests of Python")


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def run_llama_server(suite):
    tests = os.path.join(os.environ.get("HEARTH_LLAMA_CPP") or os.path.join(work, "llama.cpp"), "tools", "server", "tests")
    if not os.path.isdir(tests):
        raise Absent("llama.cpp, which peers.py fetches")
    python = python_with_pytest()
    with tempfile.TemporaryDirectory(prefix="hearth-peers-") as scratch:
        results = os.path.join(scratch, "results")
        environment = {**os.environ, "PORT": str(free_port()), "PYTHONDONTWRITEBYTECODE": "1", "HEARTH": HEARTH, "HEARTH_PEERS_WORK": scratch,
                       "PYTHONPATH": os.path.join(HERE, "llama_server") + os.pathsep + os.environ.get("PYTHONPATH", ""),
                       "HEARTH_STORIES260K": os.path.join(ROOT, "tests", "data", "models", "stories260K", "stories260K-f32.gguf"),
                       "HEARTH_PEERS_RESULTS": results, "LLAMA_SERVER_BIN_PATH": os.path.join(HERE, "llama_server", "server.py")}
        done = call(python, "-m", "pytest", "-p", "hearth_peers", "-p", "no:cacheprovider", "-q", cwd=tests, env=environment)
        lines = []
        if os.path.exists(results):
            with open(results, encoding="utf-8") as f:
                lines = [json.loads(line) for line in f]
    for verdict, name, reason in lines:
        report(suite, verdict, name, reason)
    if not lines or (done.returncode and not counts[suite, "FAIL"]):
        report(suite, "FAIL", "pytest", done.stdout[-1000:])


def main():
    os.makedirs(work, exist_ok=True)
    run_suite("clients", run_clients)
    run_suite("agents", run_agents)
    run_suite("openresponses", run_openresponses)
    run_suite("llama_server", run_llama_server)
    sys.exit(1 if any(verdict == "FAIL" for _, verdict in counts) else 0)


if __name__ == "__main__":
    main()
