"""Drives Chromium over its debugging pipe, for test_browser.py: a page, what it loads, and what it complains about. And
a relay that makes a server slow, or unreachable. Python 3, standard library only."""

import base64
import fcntl
import json
import os
import select
import shutil
import socket
import subprocess
import tempfile
import threading
import time

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
OPTIONS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
           "--disable-extensions", "--disable-background-networking", "--disable-component-update", "--disable-sync",
           "--mute-audio", "--force-color-profile=srgb", "--remote-debugging-pipe",
           "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE localhost, EXCLUDE 127.0.0.1")


def find_browser():
    return next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """A browser with one page. `complaints`: errors of its console and its network; `urls`: all that it asked for."""

    def __init__(self, width=1280, height=800, dark=False, reduced=True):
        self.folder = tempfile.mkdtemp(prefix="hearth-browser-")
        to_child, self.write_end = os.pipe()
        self.read_end, from_child = os.pipe()
        high = [fcntl.fcntl(fd, fcntl.F_DUPFD, 20) for fd in (to_child, from_child)]

        def place():  # the browser reads from 3 and writes to 4
            os.dup2(high[0], 3)
            os.dup2(high[1], 4)

        command = [find_browser(), *OPTIONS, "--user-data-dir=" + self.folder, "about:blank"]
        none = subprocess.DEVNULL
        self.process = subprocess.Popen(command, close_fds=False, preexec_fn=place, stdin=none,
                                        stdout=none, stderr=none)
        for fd in (to_child, from_child, *high):
            os.close(fd)
        self.data, self.n, self.session = b"", 0, None
        self.complaints, self.urls, self.change_body, self.answer = [], [], None, None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network", "DOM"):
            self.call(domain + ".enable")
        self.resize(width, height)
        self.choose(dark, reduced)

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        os.close(self.write_end)
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self.read_end)
        shutil.rmtree(self.folder, ignore_errors=True)

    # ---- the protocol ---------------------------------------------------------------

    def send(self, method, **parameters):
        self.n += 1
        message = {"id": self.n, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.write_end, json.dumps(message).encode() + b"\0")
        return self.n

    def _message(self, seconds):
        end = time.monotonic() + seconds
        while b"\0" not in self.data:
            left = end - time.monotonic()
            if left <= 0 or not select.select([self.read_end], [], [], left)[0]:
                return None
            part = os.read(self.read_end, 1 << 20)
            assert part, "the browser ended"
            self.data += part
        message, _, self.data = self.data.partition(b"\0")
        return json.loads(message)

    def call(self, method, **parameters):
        number = self.send(method, **parameters)
        end = time.monotonic() + 60
        while True:
            message = self._message(end - time.monotonic())
            assert message is not None, (method, "was not answered")
            if message.get("id") == number:
                assert "error" not in message, (method, message)
                return message["result"]
            self._note(message)

    def _note(self, message):
        method, p = message.get("method"), message.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(p["exceptionDetails"])[:1000])
        elif method == "Runtime.consoleAPICalled" and p["type"] in ("error", "warning", "assert"):
            self.complaints.append(json.dumps(p["args"])[:1000])
        elif method == "Log.entryAdded" and p["entry"]["level"] in ("error", "warning"):
            self.complaints.append(p["entry"]["text"] + " " + p["entry"].get("url", ""))
        elif method == "Network.requestWillBeSent":
            self.urls.append(p["request"]["url"])
        elif method == "Fetch.requestPaused" and self.answer:
            self.send("Fetch.fulfillRequest", requestId=p["requestId"], responseCode=200,
                      body=base64.b64encode(self.answer.encode()).decode(),
                      responseHeaders=[{"name": "Content-Type", "value": "text/event-stream"}])
        elif method == "Fetch.requestPaused":
            body = p["request"].get("postData", "")
            if body and self.change_body:
                body = json.dumps(self.change_body(json.loads(body)))
            self.send("Fetch.continueRequest", requestId=p["requestId"],
                      postData=base64.b64encode(body.encode()).decode())

    # ---- the page -------------------------------------------------------------------

    def resize(self, width, height):
        self.width, self.height = width, height
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1,
                  mobile=width < 600)

    def choose(self, dark, reduced=True):
        self.call("Emulation.setEmulatedMedia", features=[
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"},
            {"name": "prefers-reduced-motion", "value": "reduce" if reduced else "no-preference"}])

    def open(self, url):
        self.call("Page.navigate", url=url)
        self.wait("document.readyState === 'complete'")

    def text(self, selector):
        return self.run(f"document.querySelector({json.dumps(selector)}).textContent")

    def reload(self):
        self.run("window.isOld = true")
        self.call("Page.reload")
        self.wait("!window.isOld && document.readyState === 'complete'")

    def change_requests(self, change):
        """The bodies of requests for answers are given to a function from now on."""
        self.change_body = change
        self.call("Fetch.enable", patterns=[{"urlPattern": "*/completions"}])

    def answer_requests(self, events):
        """Requests for answers get these events of a stream from now on, and do not reach the server."""
        self.answer = "".join(f"data: {json.dumps(e)}\n\n" for e in events) + "data: [DONE]\n\n"
        self.call("Fetch.enable", patterns=[{"urlPattern": "*/completions"}])

    def run(self, script):
        """The value of an expression in the page; promises are awaited."""
        done = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True, userGesture=True)
        assert "exceptionDetails" not in done, (script, done["exceptionDetails"])
        return done["result"].get("value")

    def wait(self, script, seconds=60):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self.run(script):
                return
            time.sleep(0.02)
        shown = self.run("document.body.innerText")
        raise AssertionError((script, "is not so after", seconds, "s", self.complaints, shown))

    def click(self, selector):
        """With the mouse, so that it must be visible and on top."""
        self.run(f"document.querySelector({json.dumps(selector)}).scrollIntoView({{block: 'nearest'}})")
        at = self.run(f"(() => {{ const r = document.querySelector({json.dumps(selector)}).getBoundingClientRect();"
                      f" return [r.x + r.width / 2, r.y + r.height / 2]; }})()")
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=at[0], y=at[1])
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=at[0], y=at[1], button="left", clickCount=1)

    def type(self, text):
        self.call("Input.insertText", text=text)

    def press(self, key, code=None, modifiers=0, text=None):
        numbers = {"Enter": 13, "Escape": 27, "ArrowUp": 38, "Tab": 9}
        both = {"key": key, "code": code or key, "modifiers": modifiers,
                "windowsVirtualKeyCode": numbers.get(key, ord(key[0].upper()))}
        if key == "Enter":
            text = "\r"
        self.call("Input.dispatchKeyEvent", type="keyDown", **both, **({"text": text} if text else {}))
        self.call("Input.dispatchKeyEvent", type="keyUp", **both)

    def shoot(self, path):
        with open(path, "wb") as f:
            f.write(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))


class Relay:
    """Passes bytes between clients and a port, those of answers in pieces with a pause after each."""

    def __init__(self, target, pause=0.0, size=240):
        self.target, self.pause, self.size = target, pause, size
        self.open = []
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        self.socket.close()

    def point_at(self, target):
        """To another port; connections end."""
        self.target = target
        for s in self.open:
            self._end(s)
        self.open = []

    @staticmethod
    def _end(s):
        try:
            s.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass

    def _accept(self):
        while True:
            try:
                client, _ = self.socket.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(("127.0.0.1", self.target))
            except OSError:
                client.close()
                continue
            self.open += [client, server]
            for one, other, slow in ((client, server, False), (server, client, True)):
                threading.Thread(target=self._pass, args=(one, other, slow), daemon=True).start()

    def _pass(self, source, sink, slow):
        try:
            while True:
                data = source.recv(self.size if slow and self.pause else 65536)
                if not data:
                    break
                sink.sendall(data)
                if slow and self.pause:
                    time.sleep(self.pause)
        except OSError:
            pass
        self._end(source)
        self._end(sink)
