#!/usr/bin/env python3
"""The share of a decoded token that routing, grouping and joining of experts take.

usage: routing.py HEARTH LIBHEARTH_A MODEL [TOKENS [THREADS]]

Samples `hearth bench` with perf (Debian: linux-perf) and sums the functions of src/forward/router.c and experts.c and the
kernels that they call. These are counted wherever they are called, so the share is an upper bound. Samples of the kernel and
of loading are left out. Exit status 1: more than 4 %.
"""
import os
import re
import subprocess
import sys
import tempfile

KERNELS = {"dot_rows", "scale", "add", "softmax", "softmax_of", "sigmoid", "softplus", "rcp", "flush_chain", "write_chain"}
LOADING = {"interleave", "hth_panel_pack", "read_plain", "read_streams", "read_prefetch", "hth_prefix_iter_next"}
LIMIT = 4.0


def functions_of(archive, files):
    listing = subprocess.run(["nm", "-A", archive], capture_output=True, text=True, check=True).stdout
    return {m[2] for m in re.finditer(r":(\S+)\.o:\S* [tT] (\S+)$", listing, re.M) if m[1] in files}


def main():
    if not 4 <= len(sys.argv) <= 6:
        print(__doc__, file=sys.stderr)
        return 2
    hearth, archive, model = sys.argv[1:4]
    tokens, threads = (sys.argv[4:] + ["128", "1"][len(sys.argv) - 4:])[:2]
    own = functions_of(archive, {"router.c", "experts.c"}) | KERNELS
    with tempfile.TemporaryDirectory() as folder:
        data = os.path.join(folder, "perf.data")
        subprocess.run(["perf", "record", "-q", "-F", "500", "-o", data, hearth, "bench", model, "-n", tokens, "-p", "0", "-t",
                        threads, "--repeat", "1"], check=True, stdout=subprocess.DEVNULL)
        report = subprocess.run(["perf", "report", "-q", "-i", data, "--stdio", "--sort", "symbol", "-F", "sample,symbol"],
                                capture_output=True, text=True, check=True).stdout
    total, found = 0, {}
    for n, where, symbol in re.findall(r"^\s*(\d+)\s+\[(.)\]\s+(\S+)", report, re.M):
        if where != "." or symbol in LOADING:
            continue
        total += int(n)
        if symbol in own:
            found[symbol] = found.get(symbol, 0) + int(n)
    if total == 0:
        raise SystemExit("routing.py: perf took no samples")
    share = 100.0 * sum(found.values()) / total
    parts = ", ".join("%s %.2f" % (s, 100.0 * n / total) for s, n in sorted(found.items(), key=lambda x: -x[1])[:8])
    print("routing, grouping and joining: %.2f %% of %d samples (%s)" % (share, total, parts))
    return 1 if share > LIMIT else 0


if __name__ == "__main__":
    sys.exit(main())
