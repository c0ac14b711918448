"""A hub of a test's own: Hugging Face's interface over HTTP on 127.0.0.1, with a second server for contents, as
the real one has. Faults are put into a list and used up by the requests that they fit.

    with HubServer() as hub:
        hub.add("org/name", {"model-Q4_0.gguf": b"..."})
        hub.faults.append(Fault("content", status=500))
"""

import hashlib
import json
import re
import socket
import threading
import time
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Fault:
    """What is done to a request in place of what is right. kind: revision, tree, resolve or content."""

    def __init__(self, kind, times=1, status=None, headers=None, cut=None, hang=None, body=None, change=None,
                 close=False, no_length=False, no_range=False, slow=None):
        self.kind, self.left = kind, times
        self.status, self.headers = status, headers or {}
        self.cut = cut          # the connection ends behind so many bytes of the body
        self.hang = hang        # nothing comes for so many seconds, behind `cut` bytes
        self.body = body        # in place of the right one
        self.change = change    # a function of the right body
        self.close = close      # without an answer
        self.no_length = no_length
        self.no_range = no_range
        self.slow = slow        # seconds between pieces of 16 KiB


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *ignored):
        pass

    def do_GET(self):
        hub = self.server.hub
        path = urllib.parse.urlsplit(self.path)
        kind, answer = hub.route(self.server is hub.contents, path, self.headers)
        with hub.lock:
            hub.requests.append((kind, self.path, dict(self.headers)))
            fault = next((f for f in hub.faults if f.kind == kind and f.left > 0), Fault(kind))
            fault.left -= 1
        if fault.close:
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        self.answer(fault, *answer)

    def answer(self, fault, status, headers, body):
        headers = dict(headers)
        asked = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        if fault.body is not None:
            body = fault.body
        if fault.change:
            body = fault.change(body)
        if status == 200 and asked and "Ranged" in headers and not fault.no_range:
            start = int(asked.group(1))
            if start >= len(body):
                status, headers["Content-Range"], body = 416, f"bytes */{len(body)}", b""
            else:
                status, headers["Content-Range"] = 206, f"bytes {start}-{len(body) - 1}/{len(body)}"
                body = body[start:]
        headers.pop("Ranged", None)
        if fault.status:
            status, body = fault.status, b"a fault\n"
            headers = {}
        headers.update(fault.headers)
        if not fault.no_length:
            headers.setdefault("Content-Length", str(len(body)))
        else:
            headers["Connection"] = "close"
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.send(fault, body)

    def send(self, fault, body):
        cut = len(body) if fault.cut is None else fault.cut
        try:
            if fault.slow:
                for i in range(0, cut, 16384):
                    self.wfile.write(body[i:min(cut, i + 16384)])
                    time.sleep(fault.slow)
            else:
                self.wfile.write(body[:cut])
            self.wfile.flush()
            if fault.hang:
                self.server.hub.over.wait(fault.hang)
            if fault.cut is not None or fault.hang or fault.no_length:
                self.close_connection = True
                self.connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            self.close_connection = True


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *ignored):  # clients of these tests go away in mid-answer
        pass


class HubServer:
    def __init__(self):
        self.repos, self.blobs, self.faults, self.requests = {}, {}, [], []
        self.lock, self.over = threading.Lock(), threading.Event()
        self.token = None  # that private repositories want
        self.page = 1000   # files on a page
        self.contents_host = "localhost"  # another name than the endpoint's
        self.redirect = None  # in place of the address of contents
        self.main = Server(("127.0.0.1", 0), Handler)
        self.contents = Server(("127.0.0.1", 0), Handler)
        self.main.hub = self.contents.hub = self

    def __enter__(self):
        for server in (self.main, self.contents):
            threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *ignored):
        self.over.set()
        for server in (self.main, self.contents):
            server.shutdown()
            server.server_close()

    @property
    def endpoint(self):
        return f"http://127.0.0.1:{self.main.server_address[1]}"

    def add(self, repo, files, private=False, lfs=True, commit=COMMIT, revisions=("main",)):
        self.repos[repo] = {"files": files, "private": private, "lfs": lfs, "commit": commit, "revisions": revisions}
        for content in files.values():
            self.blobs[hashlib.sha256(content).hexdigest()] = content

    def of_kind(self, kind):
        with self.lock:
            return [r for r in self.requests if r[0] == kind]

    # ---- answers -------------------------------------------------------------------------

    def route(self, is_contents, url, headers):
        path = urllib.parse.unquote(url.path)
        if is_contents:
            content = self.blobs.get(path.rsplit("/", 1)[-1])
            if content is None:
                return "content", (404, {}, b"")
            return "content", (200, {"Ranged": "", "ETag": '"of-the-host"'}, content)
        for kind, pattern in (("revision", r"/api/models/(.+)/revision/(.+)"), ("tree", r"/api/models/(.+)/tree/(.+)"),
                              ("resolve", r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)")):
            found = re.fullmatch(pattern, path)
            if found:
                return kind, self.speak(kind, url, headers, *found.groups())
        return "other", (404, {}, b"")

    def speak(self, kind, url, headers, name, revision, path=None):
        repo = self.repos.get(name)
        has_token = self.token and headers.get("Authorization") == f"Bearer {self.token}"
        if repo is None or (repo["private"] and not has_token):
            return 401, {"X-Error-Code": "RepoNotFound"}, b'{"error":"Invalid username or password."}'
        if revision not in (repo["commit"], *repo["revisions"]):
            return 404, {"X-Error-Code": "RevisionNotFound"}, b'{"error":"Invalid rev id"}'
        if kind == "revision":
            return 200, {}, json.dumps({"id": name, "sha": repo["commit"], "siblings": []}).encode()
        if kind == "tree":
            return self.tree(url, repo)
        content = repo["files"].get(path)
        if content is None:
            return 404, {"X-Error-Code": "EntryNotFound"}, b"Entry not found"
        sha = hashlib.sha256(content).hexdigest()
        where = self.redirect or f"http://{self.contents_host}:{self.contents.server_address[1]}/blobs/{sha}"
        return 302, {"Location": where, "X-Linked-Size": str(len(content)), "X-Linked-ETag": f'"{sha}"',
                     "X-Repo-Commit": repo["commit"], "ETag": '"pointer"'}, b""

    def tree(self, url, repo):
        query = urllib.parse.parse_qs(url.query)
        start = int(query.get("cursor", ["0"])[0])
        entries = [{"type": "directory", "oid": "0" * 40, "size": 0, "path": "folder"},
                   {"type": "file", "oid": "1" * 40, "size": 11, "path": "README.md"}]
        for path, content in repo["files"].items():
            entry = {"type": "file", "oid": hashlib.sha1(content).hexdigest(), "size": len(content), "path": path}
            if repo["lfs"]:
                entry["lfs"] = {"oid": hashlib.sha256(content).hexdigest(), "size": len(content), "pointerSize": 134}
            entries.append(entry)
        headers = {}
        if start + self.page < len(entries):
            next_page = f"{self.endpoint}{url.path}?recursive=true&cursor={start + self.page}"
            headers["Link"] = f'<{next_page}>; rel="next"'
        return 200, headers, json.dumps(entries[start:start + self.page]).encode()
