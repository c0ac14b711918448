"""Whether two builds of hearth give the same logits, to the bit: what every change of how layers are computed must keep.

    python3 bench/same_bits.py OLD NEW FOLDER...       (OLD and NEW: programs; FOLDER: NAME.gguf with NAME.ids, as
                                                        build/data/golden/arch, which make tests/data/make.py writes)

Each model is computed with 1, 7 and 64 of its ids (repeated where there are fewer), at each level of this CPU, with one
and two threads, in memory, with the least --ram, and by the null device. Where a run fails, both must say the same, apart
from sizes. Writes a line for each model that differs, the number of comparisons, and a hash of all logits of NEW, which
is the same on every machine that has the levels. Exit status 1: something differs.

JOBS: runs at a time (2). LEVELS: others than generic, avx2 and avx512. Two cores of Zen 5 take about 20 minutes for the 99 golden models.
"""
import concurrent.futures
import glob
import hashlib
import itertools
import os
import re
import subprocess
import sys
import tempfile

JOBS = int(os.environ.get("JOBS", "2"))
LEVELS = os.environ.get("LEVELS", "generic avx2 avx512").split()
COUNTS, THREADS, HOMES = (1, 7, 64), (1, 2), ("memory", "ram", "null")
MARGIN = 4 << 20  # what a process takes by itself differs by some pages
LEAST = re.compile(r"needs at least .*?\((\d+) bytes\)")


def call(program, model, ids, out, level, threads, *options):
    """(0, hash) or (status, what was said without sizes and names), and what was said."""
    done = subprocess.run([program, "logits", model, "--ids", ids, "-o", out, "--force", "--kv", "f32", "-t", str(threads), *options],
                          env={**os.environ, "HEARTH_CPU": level}, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                          stderr=subprocess.PIPE, text=True, timeout=600)
    if done.returncode:
        said = (done.stderr.strip().split("\n") or [""])[-1]
        return (done.returncode, re.sub(r"[\d.]+ ?[KMG]?i?B?(?: bytes?)?", "N", said.replace(out, "OUT"))), said
    with open(out, "rb") as f:
        return (0, hashlib.sha256(f.read()).hexdigest()), ""


def answer(program, model, ids, out, level, threads, home):
    if home == "null":
        return call(program, model, ids, out, level, threads, "--gpu", "null", "--placement", "even")[0]
    if home == "memory":
        return call(program, model, ids, out, level, threads, "--gpu", "none")[0]
    first, said = call(program, model, ids, out, level, threads, "--gpu", "none", "--ram", "1")
    least = LEAST.search(said)
    enough = str(int(least[1]) + MARGIN) if least else ""
    return call(program, model, ids, out, level, threads, "--gpu", "none", "--ram", enough)[0] if least else first


def compare(model, folder, programs):
    """[(case, old, new)] of a model."""
    with open(model.removesuffix(".gguf") + ".ids", encoding="utf-8") as f:
        given = re.split(r"[\s,]+", f.read().strip())
    found = []
    for n in COUNTS:
        ids = os.path.join(folder, f"{os.path.basename(model)}.{n}.ids")
        with open(ids, "w", encoding="utf-8") as f:
            f.write(" ".join(itertools.islice(itertools.cycle(given), n)))
        for level, threads, home in itertools.product(LEVELS, THREADS, HOMES):
            old, new = (answer(p, model, ids, ids + ".out", level, threads, home) for p in programs)
            found.append((f"{os.path.basename(model)} {n} ids, {level}, {threads} threads, {home}", old, new))
    return found


def main(old, new, *folders):
    models = sorted(path for folder in folders for path in glob.glob(os.path.join(folder, "*.gguf"))
                    if os.path.exists(path.removesuffix(".gguf") + ".ids"))
    if not models:
        sys.exit("no NAME.gguf with NAME.ids in " + " ".join(folders))
    whole, n, n_failed, wrong = hashlib.sha256(), 0, 0, []
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(JOBS) as pool:
        for found in pool.map(lambda model: compare(model, folder, (old, new)), models):
            for case, before, after in found:
                n += 1
                n_failed += after[0] != 0
                whole.update(f"{case} {after}\n".encode())
                if before != after:
                    wrong.append(case)
                    print(f"{case}: {before} and {after}", flush=True)
    print(f"{len(models)} models, {n} comparisons, {n_failed} of them of refusals: {len(wrong)} differ; sha256 of all {whole.hexdigest()}")
    return 1 if wrong else 0


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
