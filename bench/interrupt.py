#!/usr/bin/env python3
"""How long each command goes on after Ctrl-C: from the signal to the end of the process, in milliseconds.

    bench/interrupt.py [--hearth build/hearth] [--repeat 3] MODEL.gguf [COMMAND...]

Each command is interrupted after 0.1 to 3 seconds. Prints one Markdown table: median and largest of all samples, and
how many commands had ended by themselves before. MODEL should take seconds to read, for example of
`hearth synth llama-1b --type q4_0`. 300 ms is the aim, on a machine with nothing else to do; timings decide no test."""
import argparse
import os
import signal
import statistics
import subprocess
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
AFTER = [0.1, 0.4, 0.9, 1.7, 3.0]


def commands(model, folder):
    out = os.path.join(folder, "out")
    text = os.path.join(folder, "text.txt")
    short = os.path.join(folder, "short.txt")
    ids = os.path.join(folder, "ids")
    with open(os.path.join(HERE, "..", "tests", "data", "text", "english.txt"), encoding="utf-8") as f:
        words = f.read()
    with open(text, "w", encoding="utf-8") as f:
        f.write(words[:60000])
    with open(short, "w", encoding="utf-8") as f:
        f.write(words[:12000])
    with open(ids, "w", encoding="utf-8") as f:
        f.write(" ".join(str(3 + i % 900) for i in range(1500)))
    large = os.path.join(folder, "large.txt")
    with open(large, "w", encoding="utf-8") as f:
        f.write(words * 60)
    small = os.path.join(HERE, "..", "models", "storyteller-q8_0.gguf")
    return {
        "run, reading": ["run", model, "-p", "a"],
        "run, a long prompt": ["run", model, "-f", short, "-c", "16384", "-n", "1"],
        "run, a plan": ["run", model, "-p", "a", "--gpu", "null", "--placement", "plan", "--vram", "200M"],
        "chat": ["chat", small, "--template", "chatml"],
        "logits": ["logits", model, "--ids", ids, "-o", out, "--force"],
        "perplexity": ["perplexity", model, "-f", text],
        "compare": ["compare", model, "-f", text, "--kv", "q8_0"],
        "profile": ["profile", model, "-f", text, "-o", out, "--force"],
        "profile, a long text": ["profile", model, "-f", large, "-o", out, "--force"],
        "study": ["study", model, "-f", text, "-o", out, "--force"],
        "thresholds": ["thresholds", model, "-f", text, "-o", out, "--force"],
        "predictors": ["predictors", small, "-f", text, "-o", out, "--force"],
        "pack": ["pack", model, "-o", out, "--force"],
        "synth": ["synth", "llama-1b", out, "--type", "q4_k", "--force"],
        "bench": ["bench", model],
        "doctor": ["doctor", model, "--gpu", "null", "--again"],
        "plan": ["plan", model, "--gpu", "null", "--vram", "200M"],
        "list": ["list"],
        "tokenize": ["tokenize", model, "-f", large],
        "inspect": ["inspect", model, "--check"],
    }


def sample(hearth, words, after, folder):
    """Milliseconds, or None where the command ended before."""
    environment = {**os.environ, "HEARTH_CACHE": "", "HEARTH_MODELS": os.path.join(folder, "models")}
    process = subprocess.Popen([hearth, *words], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL, env=environment)
    try:
        process.wait(after)
        return None
    except subprocess.TimeoutExpired:
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        process.wait(60)
        return (time.monotonic() - began) * 1e3


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hearth", default=os.path.join(HERE, "..", "build", "hearth"))
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("model")
    parser.add_argument("commands", nargs="*")
    args = parser.parse_args()
    print("| command | median | largest | ended before |\n|---|---:|---:|---:|")
    with tempfile.TemporaryDirectory() as folder:
        os.mkdir(os.path.join(folder, "models"))
        os.symlink(os.path.abspath(args.model), os.path.join(folder, "models", "model.gguf"))
        for name, words in commands(os.path.abspath(args.model), folder).items():
            if args.commands and name.split(",")[0] not in args.commands:
                continue
            times = [sample(args.hearth, words, after, folder) for after in AFTER for _ in range(args.repeat)]
            seen = [t for t in times if t is not None]
            shown = f"{statistics.median(seen):.0f} | {max(seen):.0f}" if seen else "- | -"
            print(f"| {name} | {shown} | {len(times) - len(seen)} of {len(times)} |", flush=True)


if __name__ == "__main__":
    main()
