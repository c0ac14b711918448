"""--stats live at a terminal: the figures stand below the text and leave no trace in it. A small terminal emulator
shows what a person sees. Called by CTest with the program's path. Python 3, standard library only."""

import codecs
import fcntl
import json
import os
import re
import select
import signal
import struct
import subprocess
import termios
import time
import unicodedata

from program import HEARTH, MODEL, TIMEOUT, cases, case, check, good, bad, scratch, data, tiny_model

BARS = "▁▂▃▄▅▆▇█"
FIGURES = re.compile(r"^\d+\.\d tokens/s")
DRAWN = b"\x1b[?7l"  # each time that the line is drawn
# Thousands of tokens a second.
LONG = ["run", MODEL, "--greedy", "--ignore-eos", "-p", "Once upon a time", "--gpu", "none", "-t", "1", "-c", "6000"]


class Screen:
    """A terminal like xterm: rows that scroll into `past`, wrapping of the character after a full row, moves that
    forget it, the sequences that the program uses. Others are an error."""

    def __init__(self, rows=24, columns=80):
        self.rows, self.columns = rows, columns
        self.past, self.cells = [], [[" "] * columns for _ in range(rows)]
        self.row = self.column = 0
        self.full = False  # the next character wraps
        self.wraps = True
        self.saved = (0, 0, False)
        self.rest = ""
        self.decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def lines(self):
        return ["".join(row).rstrip() for row in self.past + self.cells]

    def text(self):
        return "\n".join(self.lines()).rstrip("\n")

    def index(self):
        self.full = False
        if self.row < self.rows - 1:
            self.row += 1
            return
        self.past.append(self.cells.pop(0))
        self.cells.append([" "] * self.columns)

    def put(self, c):
        width = 2 if unicodedata.east_asian_width(c) in "WF" else 1
        if self.full or (width == 2 and self.column == self.columns - 1):
            self.index()
            self.column = 0
        self.cells[self.row][self.column] = c
        if width == 2:
            self.cells[self.row][self.column + 1] = ""
        self.column += width
        if self.column >= self.columns:
            self.column, self.full = self.columns - 1, self.wraps

    def erase_below(self):
        self.cells[self.row][self.column:] = [" "] * (self.columns - self.column)
        for row in range(self.row + 1, self.rows):
            self.cells[row] = [" "] * self.columns

    def escape(self, sequence):
        if sequence == "\x1bD":
            self.index()
        elif sequence == "\x1b7":
            self.saved = (self.row, self.column, self.full)
        elif sequence == "\x1b8":
            self.row, self.column, self.full = self.saved
        elif sequence == "\x1b[A":
            self.row, self.full = max(self.row - 1, 0), False
        elif sequence == "\x1b[J":
            self.erase_below()
        elif sequence in ("\x1b[?7l", "\x1b[?7h"):
            self.wraps = sequence.endswith("h")
        else:
            check(sequence in ("\x1b[2m", "\x1b[m"), "an unknown sequence", repr(sequence))

    def feed(self, data):
        text = self.rest + self.decoder.decode(data)
        while text:
            found = re.match(r"\x1b(?:[D78]|\[\??\d*[A-Za-z])", text)
            if text[0] == "\x1b" and not found and len(text) < 8:
                break  # the rest of it comes
            if found:
                self.escape(found[0])
                text = text[len(found[0]):]
                continue
            c, text = text[0], text[1:]
            if c == "\n":
                self.index()
            elif c == "\r":
                self.column, self.full = 0, False
            else:
                check(unicodedata.category(c) != "Cc", "a control character", repr(c))
                self.put(c)
        self.rest = text


def set_size(fd, rows, columns):
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


class Run:
    """The program on a terminal: all bytes, the screen, and the rows of figures that were seen."""

    def __init__(self, *args, rows=24, columns=80, term="xterm", stdout=None):
        self.outer, inner = cases.open_terminal()
        set_size(inner, rows, columns)
        self.screen, self.bytes, self.figures = Screen(rows, columns), b"", []
        self.process = subprocess.Popen([HEARTH, *args], stdin=subprocess.DEVNULL, stdout=stdout or inner, stderr=inner,
                                        env={**os.environ, "TERM": term, "LC_ALL": "C.UTF-8"})
        os.close(inner)

    def read(self, seconds=0.2):
        """False: the program has closed the terminal."""
        if not select.select([self.outer], [], [], seconds)[0]:
            return True
        try:
            piece = os.read(self.outer, 65536)
        except OSError:
            return False
        self.bytes += piece
        for part in re.split(rb"(?<=\x1b8)", piece):  # what is seen after each drawing
            self.screen.feed(part)
            self.figures += [l for l in self.screen.lines() if FIGURES.match(l)] if part.endswith(b"\x1b8") else []
        return True

    def wait_for_figures(self, n=1):
        end = time.monotonic() + TIMEOUT
        while self.bytes.count(DRAWN) < n:
            check(self.read() and time.monotonic() < end, "no figures came", self.bytes[-2000:])

    def end(self, status=0):
        while self.read():
            pass
        os.close(self.outer)
        check(self.process.wait(timeout=TIMEOUT) == status, self.process.returncode, self.bytes[-2000:])
        return self

    def text(self):
        """What is seen at the end between the line at the start and the figures at the end."""
        shown = self.screen.text()
        check(not any(FIGURES.match(line) for line in self.screen.lines()), "figures are left", shown)
        return shown


def wrapped(text, columns):
    """Rows of a terminal."""
    return [line[i:i + columns] for line in text.split("\n") for i in range(0, max(len(line), 1), columns)]


def check_text(run, text, columns):
    """The terminal shows the text, from the first row after the notes to the first note after it."""
    rows = [row.rstrip() for row in wrapped(text.rstrip("\n"), columns)]
    lines = run.text().split("\n")
    first = next(i for i, line in enumerate(lines) if line.startswith(text[:10]))
    check(lines[first:first + len(rows)] == rows, "another text", "\n".join(lines), "\n".join(rows))
    check(lines[first + len(rows)].startswith("hearth: "), lines[first + len(rows):])


def long_text(n):
    return good(*LONG, "-n", str(n)).stdout.decode()


def streamed(model, prompt="Once upon a time"):
    """Words of a run whose weights come from a slow simulated disk: some tokens a second on any machine."""
    words = ["run", model, "-p", prompt, "-c", "256", "-t", "1", "--greedy", "--ignore-eos", "--gpu", "none"]
    refused = bad(1, "needs at least", *words, "--ram", "1M")
    return [*words, "--ram", str(int(re.search(r"\((\d+) bytes\)", refused)[1]) + (2 << 20)), "--io", "sim:sd"]


@case
def figures_stand_below_the_text_and_leave_no_trace():
    words = [*streamed(data("models/storyteller-drelu/storyteller-drelu-f32.gguf")), "-n", "30"]
    text = good(*words[:-6], "-n", "30").stdout.decode()
    for rows, columns in [(24, 80), (5, 37)]:
        start = time.monotonic()
        run = Run(*words, "--stats", "live", rows=rows, columns=columns).end()
        seconds = time.monotonic() - start
        check_text(run, text, columns)
        drawn = run.bytes.count(DRAWN)
        check(2 <= drawn <= 4 * seconds + 4, drawn, "times in", seconds)
        check(run.figures and all(len(line) < columns for line in run.figures), columns, run.figures)
        form = r"\d+\.\d tokens/s  hits \d+\.\d %"
        form += r" [" + BARS + r" ]{6}  \d+ MiB/s  stalls \d+/s, \d+ %" if columns == 80 else r".*"
        check(re.fullmatch(form, run.figures[-1]), run.figures[-1])
        check("storage, for each generated token: " in "".join(run.text().split("\n")), run.text())


@case
def a_narrow_terminal_has_one_bar_for_several_layers():
    words = streamed(scratch("deep.gguf", tiny_model(n_layer=40)), prompt="a")
    for columns, n_bar in [(120, 40), (70, None)]:
        run = Run(*words, "-n", "4", "--stats", "live", columns=columns).end()
        found = re.search(r" % ([" + BARS + r"]+)  \d+ MiB/s  stalls \d+/s, \d+ %$", run.figures[-1])
        check(found and len(run.figures[-1]) < columns, columns, run.figures[-1])
        check(len(found[1]) == n_bar if n_bar else 4 <= len(found[1]) < 40, columns, found[1])


@case
def figures_of_sparse_models_tell_live_neurons():
    text = long_text(5000)
    run = Run(*LONG, "-n", "5000", "--stats=live", columns=100).end()
    check_text(run, text, 100)
    for line in run.figures:
        check(re.fullmatch(r"\d+\.\d tokens/s  live \d+\.\d % [" + BARS + "]{6}", line), line)
    seconds = float(re.search(r"generated 5000 in (\d+\.\d+) s", "".join(run.text().split("\n")))[1])
    check(run.figures or seconds < 1, seconds)


@case
def the_text_on_stdout_is_untouched():
    text = long_text(3000)
    with open(scratch("text"), "wb") as f:
        run = Run(*LONG, "-n", "3000", "--stats", "live", stdout=f).end()
    with open(scratch("text"), "rb") as f:
        check(f.read().decode() == text, "another text")
    notes = "".join(run.text().split("\n"))
    check(" M parameters, " in notes and "live neurons by layer" in notes and text[:20] not in notes, notes)


@case
def a_terminal_that_changes_its_size_gets_its_text():
    run = Run(*LONG, "-n", "5000", "--stats", "live")
    for columns in (120, 40, 21, 10, 200, 80):
        run.wait_for_figures(run.bytes.count(DRAWN) + (columns != 200))  # there are none on 10 columns
        set_size(run.outer, 24, columns)
    run.process.send_signal(signal.SIGINT)
    run.end(130)
    shown = re.sub(rb"\x1b7.*?\x1b8|\x1b\[2?m|\x1b\[J|\x1bD|\x1b\[A", b"", run.bytes, flags=re.S).replace(b"\r", b"").decode()
    begin = shown.index("Once upon a time")
    text = shown[begin:shown.index("hearth: ", begin)].replace("^C", "")
    check(long_text(5000).startswith(text.rstrip("\n")) and len(text) > 100, text[-300:])


@case
def an_interrupt_and_a_second_one_leave_nothing_below():
    for n_signal in (1, 2):
        run = Run(*LONG[:-1], "100000", "--stats", "live")
        run.wait_for_figures()
        while not FIGURES.match(run.screen.lines()[-1] or run.screen.text().split("\n")[-1]):
            check(run.read(), "it ended")
        for i in range(n_signal):
            run.process.send_signal(signal.SIGINT)
            time.sleep(0.15 * (n_signal - 1 - i))  # within 0.1 s it counts as one
        run.end(130)
        check(run.screen.wraps, "wrapping stays off")
        run.text()


@case
def without_a_terminal_that_moves_its_cursor_figures_come_at_the_end():
    words = [*LONG, "-n", "300", "--stats", "live"]
    text = long_text(300)
    for term in ("dumb", ""):
        run = Run(*words, term=term).end()
        check(b"\x1b" not in run.bytes, term, run.bytes[:500])
        check_text(run, text, 80)
    done = good(*words)
    check(b"\x1b" not in done.stderr and b"live neurons by layer" in done.stderr, done.stderr)
    check(done.stdout.decode() == text, "stdout")
    check(len(json.loads(good(*words, "--json").stdout)["live_share"]) == 6, "--json")


@case
def progress_fits_on_a_narrow_terminal():
    text = scratch("long", b"Once upon a time there was a cat. " * 20000)
    for columns in (20, 50, 100):
        run = Run("perplexity", MODEL, "-f", text, "-t", "1", columns=columns)
        end = time.monotonic() + TIMEOUT
        while run.bytes.count(b" %") < 3 + (b" 0/" in run.bytes):
            check(run.read() and time.monotonic() < end, "no progress came", run.bytes[-2000:])
        run.process.send_signal(signal.SIGINT)
        run.end(130)
        lines = [line for line in re.split(rb"[\r\n]+", run.bytes) if re.search(rb"\d %", line)]
        check(all(len(line) < columns for line in lines), columns, lines)
        # A line before the first chunk is done cannot tell the time left, so the last line is looked at.
        check((b"[" in lines[-1]) == (columns == 100) and (b"s left" in lines[-1]) == (columns > 20), columns, lines)


@case
def warnings_stand_between_the_text_and_the_figures():
    text = b"name = slow\nvram_bytes = 1G\nbandwidth = 1e14\npcie_up = 1e12\npcie_down = 1e12\npcie_latency_us = 0\n" \
           b"dispatch_us = 0\nsubmit_us = 20000\nwake_us = 0\nflops = 1e15\njitter = 0\nseed = 1\nclock = real\n"
    card = "sim:" + scratch("lost.sim", text + b"fault = 200:device\n")
    words = ["run", MODEL, "--greedy", "--ignore-eos", "-p", "Once upon a time", "-n", "200", "-c", "256"]
    words += ["--gpu", card]
    run = Run(*words, "--stats", "live").end()
    lines = run.text().split("\n")
    check(sum(line.startswith("hearth: warning: ") for line in lines) == 1 and run.figures, lines)
    check("tokens/s" in run.figures[-1], run.figures)


if __name__ == "__main__":
    cases.run_cases(__file__)
