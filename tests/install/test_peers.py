"""bench/peers.py over programs that stand in for other engines: a table comes out whose
targets are judged, and a peer that fails or offers less does not end it.

    test_peers.py SOURCE_DIR BUILD_DIR
"""

import json
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
from cases import Skip, case, run_cases  # noqa: E402

SOURCE, BUILD = sys.argv[1], sys.argv[2]
MODEL = "storyteller-q8_0.gguf"

FAKE = """#!%s
import json, sys
if "--help" in sys.argv:
    print("%s")
elif "bad" in sys.argv:
    sys.exit(1)
else:
    with open(%r, "a") as f:
        f.write(" ".join(sys.argv[1:]) + "\\n")
    lengths = [(key, int(n)) for option, key in [("-p", "n_prompt"), ("-n", "n_gen")]
               for n in sys.argv[sys.argv.index(option) + 1].split(",") if n != "0"]
    print(json.dumps([{"n_prompt": 0, "n_gen": 0, key: n, "avg_ts": %r, "build_commit": "abc", "build_number": 7}
                      for key, n in lengths or [("n_gen", 1)]]))
"""

BATCHED = """#!%s
import sys
assert sys.argv[1] == "-x" and sys.argv[-1] == "1,2"
print("|    PP |     TG |    B |   N_KV |   T_PP s | S_PP t/s |   T_TG s | S_TG t/s |", file=sys.stderr)
print("|-------|--------|------|--------|----------|----------|----------|----------|", file=sys.stderr)
for n, rate in [(1, 4.0), (2, 6.0)]:
    print("|    16 |      8 | %%4d |     24 |      1.0 |     14.6 |      2.9 | %%8.2f |" %% (n, rate), file=sys.stderr)
"""


def table(folder, rows, *peers, options=()):
    path = os.path.join(folder, "table.json")
    with open(path, "w", encoding="utf-8") as f:
        json.dump(rows, f)
    command = [sys.executable, os.path.join(SOURCE, "bench", "peers.py"), "--hearth", os.path.join(BUILD, "hearth"),
               "--table", path, "--models", os.path.join(SOURCE, "models"), "--repeat", "1", "--passes", "1"]
    for p in peers:
        command += ["--peer", p]
    command += [*options, "--batched", "fast=" + os.path.join(folder, "batched") + " -x"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout, {line.split("|")[1].strip(): [c.strip() for c in line.split("|")[1:-1]]
                         for line in done.stdout.splitlines() if line.startswith("| ")}


def fake(folder, name, rate, options):
    path, log = os.path.join(folder, name), os.path.join(folder, name + ".log")
    with open(path, "w", encoding="utf-8") as f:
        f.write(FAKE % (sys.executable, options, log, rate))
    os.chmod(path, 0o755)
    return path, log


def row(name, kind, **more):
    return dict(dict(row=name, model=MODEL, kind=kind, n=8, threads=1), **more)


@case
def targets_are_judged_and_shares_shown():
    if not os.path.exists(os.path.join(BUILD, "hearth")):
        raise Skip("the program is not built")
    with tempfile.TemporaryDirectory(prefix="hearth-test-") as folder:
        slow, slow_log = fake(folder, "slow", 1.0, "-d, --n-depth --no-warmup")
        fast, fast_log = fake(folder, "fast", 1e9, "-gp, -w, --warmup")
        with open(os.path.join(folder, "batched"), "w", encoding="utf-8") as f:
            f.write(BATCHED % sys.executable)
        os.chmod(f.name, 0o755)
        out, rows = table(folder, [
            row("easy", "generate", target={"rate": 1, "ratio": {"slow": 2}}),
            row("hard", "prompt", target={"share": 1000, "ratio": {"absent": 2}}),
            row("other", "generate", depth=64, target={"share_of_row": ["easy", 0.0001]}),
            row("many", "parallel", sequences=2, target={"factor": 0.0001, "ratio": {"absent": 2}}),
            row("start", "load", target={"not_slower": True}),
            row("two", "generate", peers=["fast"]),
            row("missing", "generate", model="none.gguf"),
        ], "slow=" + slow, "fast=" + fast + " -rtr 1", "broken=" + slow + " bad")
        assert rows["work"][2:6] == ["hearth", "slow", "fast", "broken"], rows
        assert rows["easy"][-1] == "met" and rows["hard"][-1] == "missed", rows
        assert rows["other"][-1] == "met", rows
        assert rows["many"][-1] == "not compared" and rows["many"][3] == "-", rows
        assert rows["many"][4].startswith("1.50 (1.50-1.50) times one"), rows
        assert rows["start"][-1] in ("met", "missed") and " s" in rows["start"][2], rows
        assert rows["two"][3] == rows["two"][5] == "-" and "t/s" in rows["two"][4], rows
        assert "none.gguf" in rows["missing"][-1], rows
        assert rows["easy"][5] == "failed" and rows["easy"][3].startswith("1.00 (1.00-1.00) t/s = **"), rows
        assert "GB/s" in rows["easy"][1] and "%" in rows["easy"][2], rows
        missed = 1 + (rows["start"][-1] == "missed")  # who starts sooner is not ours to say
        assert "abc (7)" in out and "%d met, %d missed" % (4 - missed, missed) in out, out
        with open(slow_log, encoding="utf-8") as f:
            calls = f.read()
            assert "-d 64" in calls and "--no-warmup" in calls and "-p 8 -n 8" in calls, calls
        with open(fast_log, encoding="utf-8") as f:
            calls = f.read()
            assert "-gp 64,8" in calls and "-w 0" in calls and calls.startswith("-rtr 1 -m "), calls


@case
def a_device_has_no_limit_and_rows_end_with_the_time():
    if not os.path.exists(os.path.join(BUILD, "hearth")):
        raise Skip("the program is not built")
    with tempfile.TemporaryDirectory(prefix="hearth-test-") as folder:
        path, log = fake(folder, "fast", 1e9, "")
        named = [row(name, "generate", peer_options=["-ncmoe", "24"], options=["--vram", size], target={"ratio": {"fast": 1}})
                 for name, size in (("one", "1G"), ("other", "2G"))]
        _, rows = table(folder, named, "fast=" + path, options=["--gpu", "null"])
        assert [rows[name][1] for name in ("one", "other")] == ["-", "-"], rows
        assert "t/s" in rows["one"][2] and "%" not in rows["one"][2] and rows["one"][-1] == "missed", rows
        with open(log, encoding="utf-8") as f:
            assert "-o json -ncmoe 24 -p 0 -n 8" in f.read()
        _, rows = table(folder, named, "fast=" + path, options=["--gpu", "null", "--seconds", "0"])
        assert rows["one"][-1] == rows["other"][-1] == "no time left", rows


@case
def the_tables_of_the_repository_have_sound_rows():
    for name in ("table.json", "table-models.json", "gpu-table.json"):
        check_table(os.path.join(SOURCE, "bench", name))


def check_table(path):
    with open(path, encoding="utf-8") as f:
        rows = json.load(f)
    names = [r["row"] for r in rows]
    assert len(set(names)) == len(names)
    for i, r in enumerate(rows):
        assert r["kind"] in ("generate", "prompt", "load", "parallel", "busy") and r.get("threads", 1) >= 1, r
        assert set(r["target"]) <= {"share", "rate", "factor", "of_idle", "share_of_row", "ratio", "not_slower"}, r
        if "share_of_row" in r["target"]:
            assert r["target"]["share_of_row"][0] in names[:i], r
        assert set(r["target"].get("ratio", {})) <= set(r.get("peers", r["target"].get("ratio", {}))), r


if __name__ == "__main__":
    run_cases(__file__)
