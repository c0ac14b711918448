"""Agent programs of npm, each with a task of one line, and the frameworks that agents are made of, against hearth serve
with a strict template; for serving.py.

A model calls the program's own function twice and then greets (tests/data/caller.py), so that the second and third request
hold results. Each program has a home of its own. Its requests pass a proxy that keeps them.
"""
import collections
import http.client
import http.server
import json
import os
import subprocess
import threading

# folder: below that of the suites, for its packages; command, environment and files (below the home): functions of the
# server's address and that folder.
Program = collections.namedtuple("Program", "name packages folder function arguments command environment files")
Request = collections.namedtuple("Request", "method path headers body status")
HERE = os.path.dirname(os.path.abspath(__file__))
TASK = "Say hi to this folder."
HOP = {"connection", "keep-alive", "transfer-encoding", "content-length", "host"}
ECHO = {"command": "echo hi", "description": "greets"}
CALLS_TWICE = ("{% set results = namespace(n=0) %}{% for m in messages %}{% if m.role == 'tool' %}{% set results.n = results.n + 1 %}{% endif %}{% endfor %}"
               "{{ '<|call|>' if tools and results.n < 2 else '<|say|>' }}")
FRAMEWORKS = ["ai@6.0.326", "@ai-sdk/anthropic@3.0.140", "@ai-sdk/openai@3.0.141", "@ai-sdk/openai-compatible@2.0.87", "@openai/agents@0.20.0",
              "openai@6.49.0", "langchain@1.5.14", "@langchain/core@1.4.0", "@langchain/openai@1.5.8", "@langchain/anthropic@1.5.11",
              "llamaindex@0.12.1", "@llamaindex/openai@0.4.22", "zod@4.6.7"]


def agent(name, package, binary, function, arguments, options, environment, files):
    return Program(name, [package], binary, function, arguments,
                   lambda address, folder: [os.path.join(folder, "node_modules", ".bin", binary), *options], environment, files)


def framework(name):
    return Program(name, FRAMEWORKS, "frameworks", "weather", {"city": "Bern", "days": 1},
                   lambda address, folder: ["node", os.path.join(HERE, "frameworks.mjs"), name, address, folder], lambda address: {}, lambda address: {})


def codex(address):
    return {".codex/config.toml": f'model = "caller"\nmodel_provider = "hearth"\napproval_policy = "never"\nsandbox_mode = "danger-full-access"\n'
            f'[model_providers.hearth]\nname = "hearth"\nbase_url = "{address}/v1"\nwire_api = "responses"\n[analytics]\nenabled = false\n'}


def opencode(address):
    provider = {"npm": "@ai-sdk/openai-compatible", "options": {"baseURL": address + "/v1", "apiKey": "any"}, "models": {"caller": {"name": "caller"}}}
    return {".config/opencode/opencode.json": json.dumps({"provider": {"hearth": provider}, "share": "disabled", "autoupdate": False})}


def qwen(address):
    return {".qwen/settings.json": json.dumps({"privacy": {"usageStatisticsEnabled": False}, "telemetry": {"enabled": False},
                                               "general": {"disableAutoUpdate": True}})}


def cline(address):
    chosen = {"provider": "openai-compatible", "apiKey": "any", "model": "caller", "baseUrl": address + "/v1"}
    providers = {"openai-compatible": {"settings": chosen, "updatedAt": "2026-01-01T00:00:00.000Z", "tokenSource": "manual"}}
    return {".cline/data/settings/providers.json": json.dumps({"version": 1, "lastUsedProvider": "openai-compatible", "modes": {}, "providers": providers}),
            ".cline/data/settings/global-settings.json": json.dumps({"telemetryOptOut": True, "autoUpdateEnabled": False})}


PROGRAMS = [
    agent("Claude Code", "@anthropic-ai/claude-code@2.1.197", "claude", "Bash", ECHO, ["-p", TASK, "--model", "caller", "--allowedTools", "Bash"],
          lambda address: {"ANTHROPIC_BASE_URL": address, "ANTHROPIC_AUTH_TOKEN": "any", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"},
          lambda address: {}),
    agent("Codex", "@openai/codex@0.171.0", "codex", "exec_command", {"cmd": "echo hi"}, ["exec", "--skip-git-repo-check", TASK],
          lambda address: {}, codex),
    agent("opencode", "opencode-ai@1.18.33", "opencode", "bash", ECHO, ["run", "-m", "hearth/caller", TASK],
          lambda address: {"OPENCODE_DISABLE_MODELS_FETCH": "1", "OPENCODE_DISABLE_AUTOUPDATE": "1"}, opencode),
    agent("Qwen Code", "@qwen-code/qwen-code@0.15.10", "qwen", "run_shell_command", {**ECHO, "is_background": False},
          ["-y", "--auth-type", "openai", "-m", "caller", TASK],
          lambda address: {"OPENAI_BASE_URL": address + "/v1", "OPENAI_API_KEY": "any", "OPENAI_MODEL": "caller"}, qwen),
    agent("Cline", "cline@3.0.65", "cline", "run_commands", {"commands": ["echo hi"]}, [TASK],
          lambda address: {"CLINE_SESSION_BACKEND_MODE": "local"}, cline),  # otherwise its daemon stays
    *map(framework, ["AI SDK, openai-compatible", "AI SDK, openai", "AI SDK, anthropic", "OpenAI Agents, chat", "OpenAI Agents, responses",
                     "LangChain, openai", "LangChain, responses", "LangChain, anthropic", "LlamaIndex"]),
]


class Handler(http.server.BaseHTTPRequestHandler):
    """Passes a request on, and its answer back as it comes."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def body(self):
        if "chunked" not in self.headers.get("Transfer-Encoding", ""):
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        out = b""
        while n := int(self.rfile.readline().split(b";")[0], 16):
            out += self.rfile.read(n)
            self.rfile.readline()
        self.rfile.readline()
        return out

    def pass_on(self):
        body = self.body()
        headers = {k: v for k, v in self.headers.items() if k.lower() not in HOP}
        onward = http.client.HTTPConnection("127.0.0.1", self.server.to, timeout=600)
        onward.request(self.command, self.path, body or None, headers)
        answer = onward.getresponse()
        with self.server.lock:
            self.server.kept.append(Request(self.command, self.path, headers, body, answer.status))
        self.send_response_only(answer.status)
        for k, v in answer.getheaders():
            if k.lower() not in HOP:
                self.send_header(k, v)
        self.send_header("Connection", "close")
        self.end_headers()
        try:
            while part := answer.read1(65536):
                self.wfile.write(part)
        except OSError:  # the program hung up
            pass
        onward.close()
        self.close_connection = True

    do_GET = do_HEAD = do_POST = do_DELETE = pass_on


class Proxy(http.server.ThreadingHTTPServer):
    """Keeps the requests to the server at a port, for the time of a with statement."""

    daemon_threads = True

    def __init__(self, port):
        super().__init__(("127.0.0.1", 0), Handler)
        self.to, self.kept, self.lock = port, [], threading.Lock()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def address(self):
        return f"http://127.0.0.1:{self.server_port}"


def run(program, folder, port, home):
    """What the program asked, its exit status (None: it did not end), and the end of its output."""
    with Proxy(port) as proxy:
        for path, text in program.files(proxy.address).items():
            os.makedirs(os.path.dirname(os.path.join(home, path)), exist_ok=True)
            with open(os.path.join(home, path), "w", encoding="utf-8") as f:
                f.write(text)
        place = os.path.join(home, "folder")
        os.makedirs(place)
        environment = {"PATH": os.environ["PATH"], "HOME": home, "LANG": "C.UTF-8", "NO_COLOR": "1", "DO_NOT_TRACK": "1",
                       **program.environment(proxy.address)}
        try:
            done = subprocess.run(program.command(proxy.address, folder), cwd=place, env=environment, stdin=subprocess.DEVNULL,
                                  capture_output=True, text=True, errors="replace", timeout=300, check=False)
            return proxy.kept, done.returncode, (done.stdout + done.stderr)[-500:]
        except subprocess.TimeoutExpired:
            return proxy.kept, None, "it did not end"
        finally:
            proxy.shutdown()
