"""What the completions offer in bash, zsh and fish, asked as their users do.

    test_completions.py HEARTH
"""

import os
import pty
import re
import select
import shutil
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
from cases import Skip, case, run_cases  # noqa: E402

HEARTH = os.path.abspath(sys.argv[1])
KV = ["f16", "f32", "q8_0"]


def environment():
    home = os.path.join(FOLDER, "home")
    return {"PATH": os.path.dirname(HEARTH) + ":" + os.environ["PATH"], "HOME": home, "XDG_CONFIG_HOME": home,
            "XDG_DATA_HOME": home, "HEARTH_MODELS": os.path.join(FOLDER, "models"), "HEARTH_CACHE": "", "TERM": "dumb",
            "LC_ALL": "C.UTF-8", "OLLAMA_MODELS": home, "LLAMA_CACHE": home, "HF_HUB_CACHE": home}


def need(shell):
    if not shutil.which(shell):
        raise Skip(f"no {shell} here")
    return os.path.join(FOLDER, "hearth." + shell)


def names():
    """The names of models that are to be offered."""
    out = subprocess.run([HEARTH, "list", "--names"], env=environment(), check=True, stdout=subprocess.PIPE, text=True)
    return out.stdout.splitlines()


def bash(*words, then=":"):
    """What bash offers for the last word. then: a command before it is asked."""
    script = (f'set -u; source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); {then}; _hearth; '
              'printf "%s\\n" "${COMPREPLY[@]}"')
    done = subprocess.run(["bash", "-c", script, "bash", need("bash"), *words], env=environment(), cwd=WORK, text=True,
                          capture_output=True)
    assert done.returncode == 0 and not done.stderr, (words, done.stderr)
    return sorted(line for line in done.stdout.splitlines() if line)


def fish(line):
    """What fish offers at the end of a line."""
    done = subprocess.run(["fish", "--no-config", "-c", 'source $argv[1]; complete -C $argv[2]', need("fish"), line],
                          env=environment(), cwd=WORK, text=True, capture_output=True)
    assert done.returncode == 0 and not done.stderr, (line, done.stderr)
    return sorted(offered.split("\t")[0] for offered in done.stdout.splitlines())


def typed(command, setup, keys):
    """Types keys into an interactive shell, whose function `hearth` shows its arguments; returns all that it shows."""
    pid, fd = pty.fork()
    if pid == 0:
        os.chdir(WORK)
        os.execvpe(command[0], command, environment())
    shown = b""

    def read_until(mark, seconds=60):
        nonlocal shown
        end = time.monotonic() + seconds
        while mark not in shown:
            assert select.select([fd], [], [], max(0.0, end - time.monotonic()))[0], (mark, shown)
            shown += os.read(fd, 65536)

    try:
        show = "hearth() { if [ \"$1\" = list ]; then command hearth \"$@\"; else printf '<%s>' \"$@\"; echo; echo 'sho''wn'; fi; }"
        os.write(fd, f"{setup}; {show}; echo 'rea''dy'\n".encode())
        read_until(b"ready")
        shown = b""
        os.write(fd, keys.encode() + b"\n")
        read_until(b"shown")
        return shown.decode(errors="replace")
    finally:
        os.close(fd)
        os.kill(pid, 9)
        os.waitpid(pid, 0)


def typed_in_bash(keys):
    return typed(["bash", "--norc", "--noprofile", "-i"], f"PS1=; source '{need('bash')}'", keys)


def typed_in_zsh(keys):
    folder = os.path.dirname(need("zsh"))
    return typed(["zsh", "-f", "-i"], f"PS1=; COLUMNS=300; fpath=('{folder}/zsh' $fpath); autoload -U compinit; compinit -u -D; "
                 "bindkey '^I' complete-word", keys)


def arguments(shown):
    return re.findall(r"<([^<>]*)>", shown[shown.rindex("\n", 0, shown.index("shown") - 2):])


@case
def bash_offers_values():
    assert bash("hearth", "run", "--kv", "") == KV
    assert bash("hearth", "run", "--kv", "q") == ["q8_0"]
    assert bash("hearth", "run", "--kv", "=", "f") == ["f16", "f32"]
    assert bash("hearth", "run", "x", "--gpu", "") == ["auto", "none"]
    assert bash("hearth", "chat", "--device", "n") == ["none"], "another spelling"
    assert bash("hearth", "run", "--io", "") == ["auto", "mmap", "pread", "uring"]
    assert bash("hearth", "serve", "--selector", "") == ["auto", "dense", "gate", "predictor", "threshold"]
    assert bash("hearth", "run", "-ngl", "") == ["all", "auto"]
    assert "chatml" in bash("hearth", "chat", "--template", "")
    assert "my model.gguf" in bash("hearth", "chat", "--template", ""), "and files"
    assert bash("hearth", "run", "--threads", "") == [] and bash("hearth", "run", "-p", "") == []
    assert "Q4_K_M" in bash("hearth", "quantize", "in", "out", "")


@case
def bash_offers_commands_and_options():
    assert bash("hearth", "qu") == ["quantize"]
    assert bash("hearth", "") == bash("hearth", "", then="unset 'COMP_WORDS[1]'"), "without a second word"
    assert bash("hearth", "--") == ["--completions", "--help", "--man", "--version"]
    assert bash("hearth", "--completions", "") == ["bash", "fish", "zsh"]
    assert bash("hearth", "nonsense", "") == []
    assert "-c" in bash("hearth", "run", "-") and bash("hearth", "run", "--top-") == ["--top-k", "--top-nsigma", "--top-p"]
    assert bash("hearth", "run", "--", "--top-") == [], "an operand"


@case
def bash_offers_names_and_files():
    assert names(), "hearth list has none"
    offered = bash("hearth", "run", "")
    assert set(names()) < set(offered) and "my model.gguf" in offered and "a folder" in offered, offered
    assert bash("hearth", "run", "my") == ["my model.gguf"]
    assert bash("hearth", "run", "my\\ m") == ["my model.gguf"] and bash("hearth", "run", "'my m") == ["my model.gguf"]
    assert "my model.gguf" not in bash("hearth", "rm", "") and set(names()) == set(bash("hearth", "rm", ""))
    assert bash("hearth", "list", "") == [] and bash("hearth", "pull", "") == []
    assert "my model.gguf" in bash("hearth", "run", "--json-schema", "")


@case
def bash_completes_words_with_colons():
    (name,) = [n for n in names() if ":" in n]
    front, back = name.split(":")
    assert bash("hearth", "run", front, ":", back[:1]) == [back], (name, "readline keeps what is before the colon")
    assert bash("hearth", "run", "-m", front, ":", "") == [back]


@case
def bash_completes_as_typed():
    need("bash")
    assert arguments(typed_in_bash("hearth inspect my\t")) == ["inspect", "my model.gguf"]
    assert arguments(typed_in_bash("hearth inspect a\\ f\tde\t")) == ["inspect", "a folder/deep er.gguf"]
    assert arguments(typed_in_bash("hearth run --kv q\t-n 1")) == ["run", "--kv", "q8_0", "-n", "1"]
    (name,) = [n for n in names() if ":" in n]
    assert arguments(typed_in_bash(f"hearth run {name[:name.index(':') + 2]}\t")) == ["run", name]


@case
def fish_offers_values_names_and_files():
    assert fish("hearth run --kv ") == KV and fish("hearth run --gpu ") == ["auto", "none"]
    assert fish("hearth serve --selector p") == ["predictor"]
    assert fish("hearth --") == ["--completions", "--help", "--man", "--version"]
    assert fish("hearth --completions ") == ["bash", "fish", "zsh"]
    assert fish("hearth qu") == ["quantize"]
    offered = fish("hearth run ")
    assert set(names()) < set(offered), offered
    assert any("my" in word and "model.gguf" in word for word in fish("hearth run my")), fish("hearth run my")
    assert set(fish("hearth rm ")) == set(names()) and fish("hearth list ") == []
    assert any("model.gguf" in word for word in fish("hearth run --json-schema my"))
    assert "chatml" in fish("hearth chat --template ch")
    assert "-c" in fish("hearth run -") or "--ctx" in fish("hearth run --c"), fish("hearth run -")


@case
def zsh_offers_values_names_and_files():
    need("zsh")
    listed = typed_in_zsh("hearth run --kv \t")
    assert all(word in listed for word in KV), listed
    assert arguments(typed_in_zsh("hearth run --kv q\t")) == ["run", "--kv", "q8_0"]
    assert arguments(typed_in_zsh("hearth run --selector pr\t--gpu n\t")) == ["run", "--selector", "predictor", "--gpu", "none"]
    assert arguments(typed_in_zsh("hearth inspect my\t")) == ["inspect", "my model.gguf"]
    assert arguments(typed_in_zsh("hearth run --json-schema my\t")) == ["run", "--json-schema", "my model.gguf"]
    assert arguments(typed_in_zsh("hearth run -f my\t")) == ["run", "-f", "my model.gguf"], "a short option"
    assert arguments(typed_in_zsh("hearth --vers\t")) == ["--version"]
    assert arguments(typed_in_zsh("hearth --completions fi\t")) == ["--completions", "fish"]
    assert arguments(typed_in_zsh("hearth quan\t")) == ["quantize"]
    (name,) = [n for n in names() if ":" in n]
    assert arguments(typed_in_zsh(f"hearth run {name[:4]}\t")) == ["run", name]
    assert arguments(typed_in_zsh(f"hearth rm {name[:4]}\t")) == ["rm", name]


def make_folder():
    """Two models of a hub's cache, one with a colon in its name, and files with spaces."""
    for folder in ("home", "models", "zsh", "work/a folder"):
        os.makedirs(os.path.join(FOLDER, folder))
    for path in ("models/small.gguf", "work/my model.gguf", "work/a folder/deep er.gguf"):
        with open(os.path.join(FOLDER, path), "wb") as f:
            f.write(b"GGUF")
    snapshot = os.path.join(FOLDER, "home", "models--Org--Tale-GGUF", "snapshots", "0" * 40)
    os.makedirs(snapshot)
    with open(os.path.join(snapshot, "tale-Q4_K_M.gguf"), "wb") as f:
        f.write(b"GGUF")
    for shell in ("bash", "zsh", "fish"):
        script = subprocess.run([HEARTH, "--completions", shell], check=True, stdout=subprocess.PIPE).stdout
        for path in ["hearth." + shell] + ["zsh/_hearth"] * (shell == "zsh"):
            with open(os.path.join(FOLDER, path), "wb") as f:
                f.write(script)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="hearth-completions-") as FOLDER:
        WORK = os.path.join(FOLDER, "work")
        make_folder()
        run_cases(__file__)
