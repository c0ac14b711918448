"""A plugin of pytest for the tests of llama.cpp's server: those of things that Hearth does not offer are skipped with the
reason that not_offered.tsv gives, and models are not fetched before the first test.

not_offered.tsv has a pattern of test ids (as fnmatch has them, [ and ] as themselves) and a reason in each line. Every
line must belong to a test, or the run fails.
"""
import fnmatch
import json
import os
import sys
import types

import pytest

TABLE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "not_offered.tsv")


def stand_in(name, attribute):
    """Where a client of Python is absent, its tests are skipped, not the whole file."""
    try:
        __import__(name)
    except ModuleNotFoundError:
        def absent(*_, **__):
            pytest.skip(f"the package {name} of Python is absent")
        module = types.ModuleType(name)
        setattr(module, attribute, absent)
        sys.modules[name] = module


stand_in("openai", "OpenAI")
stand_in("wget", "download")


def read_table():
    with open(TABLE, encoding="utf-8") as f:
        return [line.rstrip("\n").split("\t") for line in f if line.strip() and not line.startswith("#")]


def pytest_collection_modifyitems(items):
    import utils
    utils.ServerPreset.load_all = staticmethod(lambda: None)
    unused = dict(read_table())
    table = list(unused.items())
    for item in items:
        name = item.nodeid.removeprefix("unit/")
        for pattern, reason in table:
            if fnmatch.fnmatchcase(name, pattern.replace("[", "[[]")):
                unused.pop(pattern, None)
                item.add_marker(pytest.mark.skip(reason=reason))
                break
        else:
            if item.get_closest_marker("slow") and not utils.is_slow_test_allowed():
                item.add_marker(pytest.mark.skip(reason="needs a model of gigabytes"))
    assert not unused or os.environ.get("HEARTH_PEERS_SOME"), f"not_offered.tsv: no test is any of {list(unused)}"


def pytest_runtest_logreport(report):
    """A line for each test: verdict, name, reason."""
    path = os.environ.get("HEARTH_PEERS_RESULTS")
    if not path or (report.when != "call" and report.passed) or (report.when == "teardown" and report.skipped):
        return
    verdict = "ok" if report.passed else "skip" if report.skipped else "FAIL"
    reason = report.longrepr[2].removeprefix("Skipped: ") if report.skipped else ""
    if report.failed:
        reason = str(report.longrepr).strip().split("\n")[-1][:300]
    with open(path, "a", encoding="utf-8") as f:
        print(json.dumps([verdict, report.nodeid.removeprefix("unit/"), reason]), file=f)
