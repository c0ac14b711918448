"""How the server reads requests: hostile ones, limits, deadlines, many connections, and how it stops. Called by CTest
with the program's path."""

import json
import os
import random
import re
import signal
import socket
import threading
import time

from server import Answer, Server, case, check, events_of, n_answers, read_all, read_answer, run_all, until

GET = b"GET /health HTTP/1.1\r\nHost: localhost\r\n"
POST = b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
BODY = b'{"content": "Once upon a time"}'
SECOND = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"  # what a smuggled request looks like


def posted(*headers, body=BODY):
    return POST + b"".join(h + b"\r\n" for h in headers) + b"\r\n" + body


# Each is answered with 400 and a close; none is answered twice.
HOSTILE = {
    "content-length and transfer-encoding":
        posted(b"Content-Length: 5", b"Transfer-Encoding: chunked", body=b"0\r\n\r\n" + SECOND),
    "transfer-encoding and content-length":
        posted(b"Transfer-Encoding: chunked", b"Content-Length: 4", body=b"0\r\n\r\n" + SECOND),
    "content-length twice": posted(b"Content-Length: 3", b"Content-Length: 31"),
    "content-length twice, the same": posted(b"Content-Length: 31", b"Content-Length: 31"),
    "content-length with a sign": posted(b"Content-Length: +31"),
    "content-length below zero": posted(b"Content-Length: -1"),
    "content-length as a list": posted(b"Content-Length: 31, 31"),
    "content-length in hex": posted(b"Content-Length: 0x1f"),
    "content-length of 2^64 + 3": posted(b"Content-Length: 18446744073709551619"),
    "content-length with a space inside": posted(b"Content-Length: 3 1"),
    "transfer-encoding xchunked": posted(b"Transfer-Encoding: xchunked", body=b"0\r\n\r\n" + SECOND),
    "transfer-encoding chunked, identity": posted(b"Transfer-Encoding: chunked, identity", body=b"0\r\n\r\n" + SECOND),
    "transfer-encoding chunked, chunked": posted(b"Transfer-Encoding: chunked, chunked", body=b"0\r\n\r\n" + SECOND),
    "transfer-encoding gzip, chunked with a length":
        posted(b"Transfer-Encoding: gzip, chunked", b"Content-Length: 5", body=b"0\r\n\r\n" + SECOND),
    "transfer-encoding what, chunked": posted(b"Transfer-Encoding: what, chunked", body=b"0\r\n\r\n" + SECOND),
    "transfer-encoding twice": posted(b"Transfer-Encoding: chunked", b"Transfer-Encoding: chunked", body=b"0\r\n\r\n" + SECOND),
    "transfer-encoding that is empty": posted(b"Transfer-Encoding:", b"Content-Length: 31"),
    "transfer-encoding in a trailer":
        posted(b"Transfer-Encoding: chunked", body=b"0\r\nTransfer-Encoding: gzip\r\n\r\n" + SECOND),
    "content-length in a trailer": posted(b"Transfer-Encoding: chunked", body=b"0\r\nContent-Length: 3\r\n\r\n" + SECOND),
    "an extension without a name": posted(b"Transfer-Encoding: chunked", body=b"0;\r\n\r\n" + SECOND),
    "transfer-encoding gzip": posted(b"Transfer-Encoding: gzip", body=b"0\r\n\r\n" + SECOND),
    "a space before the colon": posted(b"Transfer-Encoding : chunked", body=b"0\r\n\r\n" + SECOND),
    "a tab before the colon": posted(b"Content-Length\t: 31"),
    "chunked in HTTP/1.0": posted(b"Transfer-Encoding: chunked", body=b"0\r\n\r\n").replace(b"HTTP/1.1", b"HTTP/1.0"),
    "chunk size 0x3": posted(b"Transfer-Encoding: chunked", body=b"0x3\r\n{}\n\r\n0\r\n\r\n"),
    "chunk size below zero": posted(b"Transfer-Encoding: chunked", body=b"-1\r\n{}\r\n0\r\n\r\n"),
    "chunk size of 17 digits": posted(b"Transfer-Encoding: chunked", body=b"00000000000000002\r\n{}\r\n0\r\n\r\n"),
    "a chunk longer than its size": posted(b"Transfer-Encoding: chunked", body=b"2\r\n{}x\r\n0\r\n\r\n"),
    "a chunk size that ends with LF": posted(b"Transfer-Encoding: chunked", body=b"2\n{}\r\n0\r\n\r\n"),
    "a chunk that ends with CR alone": posted(b"Transfer-Encoding: chunked", body=b"2\r\n{}\rX0\r\n\r\n"),
    "NUL in a value": GET + b"X-A: a\0b\r\n\r\n",
    "CR in a value": GET + b"X-A: a\rb\r\n\r\n",
    "a continued header": GET + b"X-A: a\r\n b\r\n\r\n",
    "LF alone": GET.replace(b"\r\n", b"\n") + b"\n",
    "no host": b"GET /health HTTP/1.1\r\n\r\n",
    "two hosts": GET + b"Host: localhost\r\n\r\n",
    "HTTP/0.9": b"GET /health\r\n\r\n",
    "HTTP/3.7": b"GET /health HTTP/3.7\r\nHost: localhost\r\n\r\n",
    "the preface of HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "a header without a colon": GET + b"X-A\r\n\r\n",
    "a header without a name": GET + b": a\r\n\r\n",
    "a method in lower case": GET.replace(b"GET", b"get") + b"\r\n",
    "a space in the target": GET.replace(b"/health", b"/health /x") + b"\r\n",
    "a control character in the target": GET.replace(b"/health", b"/hea\x01lth") + b"\r\n",
    "bytes above ASCII in the target": GET.replace(b"/health", b"/h\xc3\xa4lth") + b"\r\n",
    "a TLS hello": bytes.fromhex("160301020001000 1fc0303".replace(" ", "")) + bytes(range(64)),
}

# These have statuses of their own.
TOO_LARGE = {
    "transfer-encoding gzip, chunked": (501, posted(b"Transfer-Encoding: gzip, chunked", body=b"0\r\n\r\n" + SECOND)),
    "a compressed body": (415, posted(b"Content-Encoding: gzip", b"Content-Length: 20", body=b"\x1f\x8b" + b"\0" * 18 + SECOND)),
    "a value of 64 KiB": (431, GET + b"X-A: " + b"a" * 65536 + b"\r\n\r\n"),
    "5,000 headers": (431, GET + b"".join(b"X-%d: a\r\n" % i for i in range(5000)) + b"\r\n"),
    "101 headers": (431, GET + b"".join(b"X-%d: a\r\n" % i for i in range(100)) + b"\r\n"),
    "a target of 64 KiB": (414, b"GET /" + b"a" * 65536 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n"),
    "a target of 8 KiB and a byte": (414, b"GET /" + b"a" * 8192 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n"),
    "content-length of 1 GiB": (413, posted(b"Content-Length: 1073741824")),
    "content-length of 2^63": (413, posted(b"Content-Length: 9223372036854775808")),
}


def expect_refusal(data, status, name):
    check(n_answers(data) == 1, name, "answers:", data)
    answer = Answer(data)
    check(answer.status == status and answer.headers["connection"] == "close", name, data)
    check(answer.error()["type"] == "invalid_request_error", name, data)
    check(re.fullmatch("[0-9a-f]{32}", answer.headers.get("x-request-id", "")), name, data)


@case
def targets_have_their_other_forms():
    with Server() as s:
        def ask(line, host=b"localhost"):
            return Answer(s.exchange(line + b" HTTP/1.1\r\nHost: " + host + b"\r\nConnection: close\r\n\r\n"))
        for target in (b"http://localhost/health", b"HTTP://127.0.0.1:1/health", b"https://localhost/health?a=http://b/c"):
            check(ask(b"GET " + target, b"evil.example").status == 200, target)  # the Host counts no more
        for target in b"http://localhost", b"http://localhost?a=1", b"http://localhost?a=/health":
            check(ask(b"GET " + target, b"evil.example").headers["content-type"].startswith("text/html"), "the page", target)
        for target, status in ((b"http://evil.example/health", 403), (b"http:///health", 403), (b"ftp://localhost/health", 400),
                               (b"http://localhost/nothing", 404)):
            check(ask(b"GET " + target).status in (status, 400, 404), target, status)
        answer = ask(b"OPTIONS *")
        check(answer.status == 204 and "POST" in answer.headers["allow"], answer.raw)
        check(ask(b"GET *").status in (400, 404), "of a path alone")
        for coding in (b"identity", b"Identity"):
            body = posted(b"Content-Encoding: " + coding, b"Content-Length: 16", b"Connection: close", body=b'{"content": "a"}')
            check(Answer(s.exchange(body)).status == 200, coding)


@case
def hostile_requests_get_400_and_a_close():
    check(len(HOSTILE) >= 34, len(HOSTILE))
    with Server() as s:
        for name, data in HOSTILE.items():
            expect_refusal(s.exchange(data), 400, name)
        for name, data in HOSTILE.items():
            expect_refusal(s.exchange(data, [data[i:i + 7] for i in range(0, len(data), 7)]), 400, name)
        check(s.get("/health").status == 200, "the server is well")


@case
def what_is_too_large_is_refused_by_its_own_status():
    with Server() as s:
        for name, (status, data) in TOO_LARGE.items():
            expect_refusal(s.exchange(data), status, name)
        fits = b"GET /" + b"a" * 8191 + b" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        check(Answer(s.exchange(fits)).status == 404, "a target of 8 KiB")
        many = GET + b"".join(b"X-%d: a\r\n" % i for i in range(98)) + b"Connection: close\r\n\r\n"
        check(Answer(s.exchange(many)).status == 200, "100 headers")


@case
def random_bytes_are_refused_or_wait():
    draw = random.Random(31)
    with Server("--head-seconds", "0.3") as s:
        for _ in range(50):
            data = draw.randbytes(draw.randrange(1, 400))
            answer = s.exchange(data)
            check(n_answers(answer) == 1 and Answer(answer).status in (400, 408), data, answer)


@case
def requests_may_come_byte_by_byte():
    data = posted(b"Content-Length: 31", b"Connection: close")
    chunked = posted(b"Transfer-Encoding: chunked", b"Connection: close",
                     body=b"f\r\n" + BODY[:15] + b"\r\n10;x=y\r\n" + BODY[15:] + b"\r\n0\r\nX-T: a\r\n\r\n")
    with Server() as s:
        wanted = Answer(s.exchange(data))
        check(wanted.status == 200, wanted.raw)
        for whole in (data, chunked):
            for cut in range(1, len(whole)):
                with s.connect() as c:
                    c.sendall(whole[:cut])
                    c.sendall(whole[cut:])
                    check(Answer(read_all(c)).body == wanted.body, "cut at", cut)
        with s.connect() as c:
            for i in range(len(chunked)):
                c.sendall(chunked[i:i + 1])
            check(Answer(read_all(c)).body == wanted.body, "single bytes")


@case
def connections_are_kept_and_pipelined_requests_answered_in_order():
    with Server() as s, s.connect() as c:
        for i in range(3):
            c.sendall(GET + b"X-Request-Id: a%d\r\n\r\n" % i)
            answer, rest = read_answer(c)
            check(answer.status == 200 and answer.headers["connection"] == "keep-alive" and not rest, answer.raw)
            check(answer.headers["x-request-id"] == f"a{i}", answer.raw)
        requests = b""
        for i in range(20):
            body = json.dumps({"content": "a" * i}).encode()
            requests += POST + b"X-Request-Id: p%d\r\nContent-Length: %d\r\n\r\n" % (i, len(body)) + body
            requests += GET + b"X-Request-Id: g%d\r\n\r\n" % i
        c.sendall(requests)
        rest = b""
        for i in range(20):
            for kind in "pg":
                answer, rest = read_answer(c, rest)
                check(answer.status == 200 and answer.headers["x-request-id"] == f"{kind}{i}", answer.raw)
        c.sendall(GET + b"Connection: close\r\n\r\n" + SECOND)
        check(n_answers(read_all(c)) == 1, "nothing is answered after a close")


@case
def http_1_0_is_answered_and_closed():
    with Server() as s:
        answer = Answer(s.exchange(b"GET /health HTTP/1.0\r\n\r\n"))
        check(answer.status == 200 and answer.headers["connection"] == "close", answer.raw)
        with s.connect() as c:
            c.sendall(b"GET /health HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
            check(read_answer(c)[0].headers["connection"] == "keep-alive", "asked for")


@case
def slow_heads_and_bodies_meet_total_deadlines():
    with Server("--head-seconds", "0.5", "--body-seconds", "0.5", "--idle-seconds", "1") as s:
        for first, rest in ((b"", posted(b"Content-Length: 31")), (posted(b"Content-Length: 31", body=b""), BODY)):
            with s.connect() as c:
                c.sendall(first + rest[:1])
                began = time.monotonic()
                sent = 0
                try:
                    while time.monotonic() - began < 10 and sent < 20:  # a byte comes long before each deadline
                        time.sleep(0.1)
                        sent += 1
                        c.sendall(rest[sent:sent + 1])
                except (BrokenPipeError, ConnectionResetError):
                    pass
                took = time.monotonic() - began
                answer = Answer(read_all(c))
                check(answer.status == 408 and answer.error()["type"] == "timeout_error", answer.raw)
                check(sent < 20, "the connection was still open after", took, "seconds")
        with s.connect() as c:
            began = time.monotonic()
            check(read_all(c) == b"", "an idle connection is closed without words")
            check(0.5 < time.monotonic() - began < 20, "after", time.monotonic() - began)


@case
def clients_that_expect_100_get_it_or_a_refusal():
    with Server("--max-body", "1000") as s:
        with s.connect() as c:
            c.sendall(posted(b"Content-Length: 31", b"Expect: 100-continue", b"Connection: close", body=b""))
            check(c.recv(1000) == b"HTTP/1.1 100 Continue\r\n\r\n", "100")
            c.sendall(BODY)
            check(Answer(read_all(c)).status == 200, "the answer")
        for headers, status in (([b"Content-Length: 1001", b"Expect: 100-continue"], 413),
                                ([b"Content-Length: 31", b"Expect: miracles"], 417)):
            answer = Answer(s.exchange(posted(*headers, body=b"")))
            check(answer.status == status and answer.headers["connection"] == "close", answer.raw)


@case
def bodies_up_to_16_mib_are_taken():
    text = "Once upon a time there was a cat. " * 490000
    body = json.dumps({"content": text}).encode()
    with Server() as s:
        check(16 << 20 < len(body) + (1 << 20) and len(body) <= 16 << 20, len(body))
        answer = s.post("/tokenize", body)
        check(answer.status == 200 and len(answer.json()["tokens"]) > 1000000, answer.raw[:300])
        check(s.post("/tokenize", b" " * (16 << 20) + b"{}").status == 413, "a byte more")
        endless = posted(b"Transfer-Encoding: chunked", body=b"")
        with s.connect() as c:
            c.sendall(endless)
            sent = 0
            try:
                while sent < 40 << 20:
                    c.sendall(b"100000\r\n" + bytes(1 << 20).replace(b"\0", b" ") + b"\r\n")
                    sent += 1 << 20
            except (BrokenPipeError, ConnectionResetError):
                pass
            check(sent < 40 << 20, "an endless body was read")


@case
def clients_that_do_not_read_are_cut_off():
    body = json.dumps({"content": "Once upon a time there was a cat. " * 200000, "with_pieces": True}).encode()
    with Server("--write-seconds", "0.5") as s, s.connect() as c:
        c.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        c.sendall(POST + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        check(re.search(r"POST /tokenize 200 \(not ended\)", s.wait_for("/tokenize")), s.lines)
        check(b"hearth_http_connections 1\n" in s.get("/metrics").body, s.get("/metrics").body)


@case
def thousand_idle_connections_are_cheap():
    with Server() as s:
        kept = []
        for _ in range(20):  # what the first ones need is not theirs
            kept.append(s.connect())
        s.get("/health")
        before = s.resident()
        for _ in range(1000):
            kept.append(s.connect())
            if len(kept) % 100 == 0:
                s.get("/health")
        s.get("/health")
        each = (s.resident() - before) / 1000
        print(f"     {each:.0f} bytes of memory for each idle connection")
        check(b"hearth_http_connections 1021" in s.get("/metrics").body, s.get("/metrics").body)
        if not os.environ.get("HEARTH_SANITIZED"):
            check(each <= 4096, each, "bytes each")
        began = time.monotonic()
        check(s.get("/health").status == 200, "a new request")
        check(time.monotonic() - began < 5, "took", time.monotonic() - began)
        for c in kept:
            c.sendall(SECOND)
        for c in kept:
            check(read_answer(c)[0].status == 200, "each of them is answered")
            c.close()


@case
def over_the_limit_the_oldest_idle_connection_gives_way():
    with Server("--max-connections", "3") as s:
        first, second, third = s.connect(), s.connect(), s.connect()
        for c in (second, third):
            c.sendall(GET)  # their requests have begun
        time.sleep(0.3)
        with s.connect() as c:
            c.sendall(SECOND)
            check(read_answer(c)[0].status == 200, "the new one")
            check(read_all(first) == b"", "the oldest one is closed")
            c.sendall(GET)
            time.sleep(0.3)
            answer = Answer(read_all(s.connect()))  # no other one is idle
            check(answer.status == 503 and answer.error()["type"] == "unavailable_error", answer.raw)
            check("retry-after" in answer.headers, answer.raw)
        for c in (second, third):
            c.sendall(b"\r\n")
            check(read_answer(c)[0].status == 200, "requests that had begun")


@case
def methods_and_paths_have_their_statuses():
    with Server() as s:
        head, get = s.ask("HEAD", "/health"), s.get("/health")
        check(head.status == 200 and head.body == b"", head.raw)
        check(head.headers["content-length"] == str(len(get.body)), head.raw)
        for method, path, status, allow in [
                ("POST", "/health", 405, "GET, HEAD"), ("GET", "/tokenize", 405, "POST"), ("PUT", "/tokenize", 405, "POST"),
                ("OPTIONS", "/tokenize", 405, "POST"), ("TRACE", "/health", 405, "GET, HEAD"),
                ("DELETE", "/v1/models/x", 405, "GET, HEAD"), ("GET", "/nothing", 404, None), ("GET", "/health//", 404, None),
                ("GET", "//health", 404, None), ("GET", "/./health", 404, None), ("GET", "/../etc/passwd", 404, None),
                ("GET", "/..%2f..%2fetc/passwd", 404, None), ("GET", "/%2e%2e/health", 404, None), ("GET", "/health%00", 404, None),
                ("GET", "/health%0", 404, None), ("GET", "/health%zz", 404, None), ("GET", "/%2568ealth", 404, None),
                ("GET", "/index.html", 404, None)]:
            answer = s.ask(method, path)
            check(answer.status == status and answer.headers.get("allow") == allow, method, path, answer.raw)
            check(answer.error()["type"] == ("not_found_error" if status == 404 else "invalid_request_error"), answer.raw)
        for path in ("/", "/?a", "/health?a=b", "/%68ealth", "/health?%00", "/health/", "/v1/models/?a"):
            check(s.get(path).status == 200, path)
        for method in ("CONNECT",):
            answer = Answer(s.exchange(b"CONNECT localhost:80 HTTP/1.1\r\nHost: localhost\r\n\r\n" + SECOND))
            check(answer.status == 404 and n_answers(answer.raw) == 1, method, answer.raw)
        upgrade = s.get("/health", ["Connection: Upgrade", "Upgrade: h2c"])
        check(upgrade.status == 200, upgrade.raw)
        for kind, status in (("text/plain", 415), ("application/x-www-form-urlencoded", 415), ("application/jsonx", 415),
                             ("", 415), ("application/json; charset=utf-8", 200), ("Application/JSON", 200)):
            check(s.post("/tokenize", BODY, [f"Content-Type: {kind}"]).status == status, kind)


@case
def half_closed_connections_get_their_answer():
    with Server() as s:
        for data in (SECOND, posted(b"Content-Length: 31")):
            with s.connect() as c:
                c.sendall(data)
                c.shutdown(socket.SHUT_WR)
                got = re.sub(rb"^HTTP/1.1 102 Processing\r\n\r\n", b"", read_all(c))
                check(Answer(got).status == 200, got)
        with s.connect() as c:
            c.sendall(GET)
            c.shutdown(socket.SHUT_WR)
            check(read_all(c) == b"", "a part of a request")


@case
def clients_that_vanish_leave_nothing():
    draw = random.Random(7)
    with Server() as s:
        check(s.get("/health").status == 200, "it runs")
        n_fd = len(os.listdir(f"/proc/{s.process.pid}/fd"))
        data = posted(b"Content-Length: 31")
        for i in range(1000):
            c = s.connect()
            c.sendall(data[:draw.randrange(len(data) + 1)])
            if i % 3 == 0:  # a reset
                c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            c.close()
        end = time.monotonic() + 60
        while True:
            figures = s.get("/metrics").body.decode()
            idle = "hearth_http_connections 1\n" in figures and "hearth_requests_running 0\n" in figures
            if idle and len(os.listdir(f"/proc/{s.process.pid}/fd")) <= n_fd + 1:
                break
            check(time.monotonic() < end, figures, os.listdir(f"/proc/{s.process.pid}/fd"))
            time.sleep(0.05)
        check(s.get("/slots").json() == [], "no call is left")


@case
def it_stops_when_requests_have_ended():
    for number in (signal.SIGTERM, signal.SIGINT):
        with Server() as s:
            idle, busy = s.connect(), s.connect()
            busy.sendall(posted(b"Content-Length: 31", body=BODY[:10]))
            idle.sendall(SECOND)
            check(read_answer(idle)[0].status == 200, "the idle one")
            time.sleep(0.2)
            s.process.send_signal(number)
            check(read_all(idle) == b"", "idle connections are closed")
            try:
                s.connect()
                check(False, "the server still listens")
            except ConnectionRefusedError:
                pass
            busy.sendall(BODY[10:])
            answer = Answer(read_all(busy))
            check(answer.status == 200 and answer.headers["connection"] == "close", answer.raw)
            check(s.process.wait(60) == 0, "exit status")


@case
def requests_that_do_not_end_in_time_are_told():
    body = {"prompt": "Once", "max_tokens": 100000, "ignore_eos": True, "logprobs": 5}
    with Server("-t", "1", "-c", "8192", "--shutdown-seconds", "0.3") as s:
        answers = [None] * 2

        def ask(k):
            answers[k] = s.post("/v1/completions", {**body, "stream": k == 1})

        threads = [threading.Thread(target=ask, args=(k,)) for k in range(2)]
        for t in threads:
            t.start()
        until(lambda: s.get("/stats").json()["running"] == 2)
        time.sleep(0.5)  # for the first parts of the stream
        began = time.monotonic()
        s.process.send_signal(signal.SIGTERM)
        for t in threads:
            t.join()
        check(s.process.wait(60) == 0 and 0.2 < time.monotonic() - began < 30, time.monotonic() - began)
    whole, stream = answers
    check(whole.status == 503 and whole.error()["message"] == "the server stops", whole.raw)
    *events, last = events_of(stream)
    check(events and last[1]["error"]["message"] == "the server stops", last)


@case
def it_stops_in_bounded_time_and_at_once_by_a_second_signal():
    with Server("--shutdown-seconds", "0.5") as s, s.connect() as c:
        c.sendall(GET)
        time.sleep(0.2)
        began = time.monotonic()
        s.process.send_signal(signal.SIGTERM)
        check(s.process.wait(60) == 0 and 0.4 < time.monotonic() - began < 9, time.monotonic() - began)
    s = Server()
    with s.connect() as c:
        c.sendall(GET)
        time.sleep(0.2)
        s.process.send_signal(signal.SIGTERM)
        time.sleep(0.2)
        s.process.send_signal(signal.SIGTERM)
        check(s.process.wait(10) == 128 + signal.SIGTERM, "exit status")


if __name__ == "__main__":
    run_all(__file__)
