"""Cases for tests that are written in Python: names that say what is promised,
failures as assertions, loud skips, and the same report lines as test.c.

    @case
    def install_has_a_header(): assert ...

    if __name__ == "__main__": run_cases(__file__)
"""

import os
import pty
import re
import resource
import sys
import traceback

NO_TERMINALS = "no terminals can be made here"  # as tests/cli/test_word_wrap.c says it
_cases = []


class Skip(Exception):
    """Raised by a case that cannot run here; its text is the reason."""


def open_terminal():
    """pty.openpty(), or a skip where the machine makes no terminals (no /dev/pts, as in a bare chroot)."""
    try:
        return pty.openpty()
    except OSError:
        raise Skip(NO_TERMINALS) from None


def clean_environment(home, **more):
    """The environment of this process without folders, settings and proxies of the user's: what the program keeps
    by default lies below home, and it keeps no cache."""
    users = r"(HF_|HUGGING|OLLAMA|LLAMA_CACHE|HEARTH_MODELS|HEARTH_HISTORY|XDG_)|.*_proxy$"
    kept = {k: v for k, v in os.environ.items() if not re.match(users, k, re.I)}
    ollama = os.path.join(home, "ollama")  # else a service of the machine's is searched too
    return {**kept, "HOME": home, "HEARTH_CACHE": "", "OLLAMA_MODELS": ollama, **more}


def case(function):
    _cases.append(function)
    return function


def _cpu_seconds():
    """Of this process, and of those that it has waited for."""
    return sum(u.ru_utime + u.ru_stime for u in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)))


def _report(file, verdict, name, reason, seconds):
    print(f"{verdict:<4} {file} {name}{': ' if reason else ''}{reason}", flush=True)
    path = os.environ.get("HEARTH_TEST_REPORT")
    if path:
        with open(path, "a", encoding="utf-8") as f:
            f.write(f"{verdict}\t{file}\t{name}\t{reason}\t{seconds:.2f}\n")


def _verdict_of(function):
    try:
        function()
    except Skip as reason:
        return "skip", " ".join(str(reason).split())
    except Exception:  # any surprise is a failed case; the others still run
        traceback.print_exc()
        return "FAIL", ""
    return "ok", ""


def run_cases(path):
    """Runs all cases, or those whose names hold $HEARTH_CASE, and exits as a test program does: 0, 1, or 77 when all
    were skipped."""
    verdicts = []
    for function in [f for f in _cases if os.environ.get("HEARTH_CASE", "") in f.__name__]:
        start = _cpu_seconds()
        verdict, reason = _verdict_of(function)
        verdicts.append(verdict)
        _report(os.path.basename(path), verdict, function.__name__, reason, _cpu_seconds() - start)
    if "FAIL" in verdicts or not verdicts:
        sys.exit(1)
    sys.exit(0 if "ok" in verdicts else 77)
