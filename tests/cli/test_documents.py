"""The commands of README.md and docs/, run as they are printed in a folder that has the files which they name. Tables below
say what stands for what, and what does not run here, and why. Called by CTest with the program's path. Python 3, standard
library only."""

import contextlib
import glob
import os
import re
import shutil
import signal
import subprocess
import tempfile

from program import CACHE, HEARTH, MODEL, SOURCE, TIMEOUT, cases, check, data, good
import chat_model
from hub_server import HubServer

HUB_REPO, HUB_FILE = "bartowski/SmolLM2-360M-Instruct-GGUF", "SmolLM2-360M-Instruct-Q4_K_M.gguf"
CHATML = ("{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
          "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")

# What stands for what in a command.
WORDS = [
    (r"(?<![\w/.-])(?:llama-[17]b|llama3-8b|qwen3-30b-a3b|smallthinker-4b|gpt-oss-20b|qwen35-9b|gemma4-26b-a4b)(?![\w.-])", "stories-15m"),
    (r"\bmodel\.gguf(?=.* --selector predictor)", "predicted.gguf"),
    (r"vulkan:0", "sim:bench/devices/story.sim"),
    (r"(7b4\.gguf .*)rx7600-8gb\.sim", r"\1story.sim"),
    (r"vulkan:1", "null"),
    (r"--depth \d+", "--depth 128"),
    (r"(?=.* --what-if)(.* --vram \w+)", r"\1 --gpu sim:bench/devices/story.sim"),
    (r"(hearth bench .* )-p [1-9][\d,]*", r"\1-p 8"),
    (r"(hearth bench .* )-n \d+", r"\1-n 8"),
    (r"--repeat \d+", "--repeat 1"),
    (r"(hearth bench (?!--limits)(?!.* --repeat).*)", r"\1 --repeat 1"),
    (r"(hearth bench (?!--limits)(?!.* -n ).*)", r"\1 -n 8"),
    (r"(hearth bench (?!--limits)(?!.* (?:-p|--fire|-f) ).*)", r"\1 -p 8"),
    (r"hearth serve\b(?!.* --check)", "hearth serve --port 0"),
]
# What does not run here.
NOT_RUN = [
    (r"make run\b", "builds the program, which CTest has done"),
    (r"sudo make install\b", "root"),
    (r"cc examples/story\.c\b", "an installed library: tests/install/test_examples.py"),
    (r"\./story\b", "the same"),
    (r"mkdir /etc/hearth\b", "root"),
    (r"systemctl\b", "root"),
]
CALL = re.compile(r"    (?:\$ )?((?:for [^;]*; do |HEARTH_\w+=\S.*? |/usr/bin/time -v )?(?:build/)?hearth (?:-|[a-z]+\b).*)")


def commands_of(text):
    """A list for each block: the lines of ```sh, and those of an indented block that call the program."""
    blocks = []
    for fenced, indented in re.findall(r"^```(\w*\n.*?)^```|((?:^    [^\n]*\n)+)", text, re.M | re.S):
        lines = re.sub(r"\\\n *", "", fenced or indented).split("\n")
        if fenced:
            blocks.append([line for line in lines[1:] if line and lines[0] == "sh"])
        else:
            blocks.append([m[1] for m in map(CALL.fullmatch, lines) if m])
    return [block for block in blocks if block]


def pages():
    """{path: its blocks}"""
    found = {}
    for path in ("README.md", *sorted(glob.glob("docs/*.md", root_dir=SOURCE))):
        with open(os.path.join(SOURCE, path), encoding="utf-8") as f:
            found[path] = commands_of(f.read())
    return found


def replaced(command):
    """What runs in its place, without the comment behind it."""
    command = re.sub(r"\s+#.*", "", command)
    for pattern, word in WORDS:
        command = re.sub(pattern, word, command)
    return command


class Folder:
    """Where commands run: files, the program, a hub, and the servers that a block has started."""

    def __init__(self, path, hub):
        self.path, self.servers, self.port = path, [], None
        os.makedirs(os.path.join(path, "build"))
        os.makedirs(os.path.join(path, "FOLDER"))
        os.symlink(HEARTH, os.path.join(path, "build", "hearth"))
        for name in ("bench", "models"):
            os.symlink(os.path.join(SOURCE, name), os.path.join(path, name))
        own = {"HF_HOME": os.path.join(path, "hf"), "HF_ENDPOINT": hub.endpoint, "NO_PROXY": "*", "HEARTH_CACHE": CACHE.name,
               "PATH": os.path.join(path, "build") + ":" + os.environ["PATH"]}
        self.environment = cases.clean_environment(path, **own)

    def start(self, command):
        process = subprocess.Popen(["sh", "-c", command], cwd=self.path, env=self.environment, stdin=subprocess.DEVNULL,
                                   stderr=subprocess.PIPE, text=True, start_new_session=True)
        self.servers.append((command, process))
        said = ""
        while "is ready" not in said:
            line = process.stderr.readline()
            said += line
            self.skip_without(said)
            check(line, command, "ended:", said)
        self.port = re.search(r"listening on http://[^ ,]+:(\d+)", said)[1]

    def skip_without(self, said):
        """A part that this build lacks."""
        if "was built without" in said:
            raise cases.Skip(said.strip().split("\n")[-1])

    def run(self, command):
        if "hearth serve --port 0" in command:
            return self.start(command)
        command = command.replace("localhost:8080", f"localhost:{self.port}").replace("curl ", "curl -sSf ")
        done = subprocess.run(["sh", "-c", command], cwd=self.path, env=self.environment, stdin=subprocess.DEVNULL,
                              timeout=TIMEOUT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        said = done.stdout.decode("utf-8", "replace")
        self.skip_without(said)
        check(done.returncode == 0, command, "exit", done.returncode, said[-1000:])

    def stop(self):
        for command, process in self.servers:
            os.killpg(process.pid, signal.SIGTERM)
            said = process.stderr.read()
            process.wait(TIMEOUT)
            check(process.returncode in (0, -signal.SIGTERM), command, "ended with", process.returncode, said)
        self.servers, self.port = [], None


def make_files(folder):
    """The files that commands name."""
    def put(name, content):
        with open(os.path.join(folder.path, name), "wb") as f:
            f.write(content)

    def copy(name, source):
        shutil.copyfile(os.path.join(folder.path, source), os.path.join(folder.path, name))

    with open(MODEL, "rb") as f:
        model = chat_model.with_template(f.read(), CHATML)
    shutil.copyfile(data("golden/rank/qwen3.gguf"), os.path.join(folder.path, "qwen3-reranker.gguf"))
    for name in ("model.gguf", "MODEL", "small.gguf", "storyteller-q8_0.gguf", "4B.gguf"):
        put(name, model)
    folder.run("hearth run --seed 1 -n 120 > short.txt; hearth run --seed 2 -n 60 > more.txt")
    folder.run("cat short.txt more.txt > longer.txt; for i in 1 2 3 4; do cat longer.txt; done > stories.txt")
    for name in ("long.txt", "program.c"):
        copy(name, "short.txt")
    for name in ("text.txt", "t.txt", "first.txt", "TEXT"):
        copy(name, "stories.txt")
    put("abc.txt", b"abc " * 60)
    put("person.json", b'{"type": "object", "properties": {"age": {"type": "integer", "maximum": 99}}, "required": ["age"]}')
    copy("large.gguf", data("models/storyteller-drelu/storyteller-drelu-f32.gguf"))
    copy("storyteller-drelu-f32.gguf", "large.gguf")
    copy("llama-relu.f16.powerinfer.gguf", data("golden/powerinfer/llama-relu.f16.powerinfer.gguf"))
    copy("mixture.gguf", data("golden/arch/mixtral.gguf"))
    for command in ("quantize large.gguf model-f16.gguf f16", "predictors model-f16.gguf -f stories.txt -o p.gguf --steps 20",
                    "predictors model.gguf -f stories.txt -o q.gguf --steps 20",
                    "pack model.gguf --predictors q.gguf -o predicted.gguf", "pack model.gguf -o packed.gguf",
                    "profile packed.gguf -f stories.txt -o packed.profile", "profile mixture.gguf -f stories.txt -o mixture.trace",
                    "synth stories-15m 8b.gguf"):
        folder.run("hearth " + command)
    for name in ("8bk.gguf", "7bp.gguf", "1b-q4_0.gguf"):
        copy(name, "8b.gguf")


@contextlib.contextmanager
def folders():
    """A function that makes folders with the files, which are links to those of one."""
    with tempfile.TemporaryDirectory(prefix="hearth-test-") as scratch, HubServer() as hub:
        files = Folder(os.path.join(scratch, "files"), hub)
        make_files(files)
        with open(os.path.join(files.path, "model.gguf"), "rb") as f:
            hub.add(HUB_REPO, {HUB_FILE: f.read()})

        def make(name):
            folder = Folder(os.path.join(scratch, name), hub)
            for entry in os.scandir(files.path):
                if entry.is_file(follow_symlinks=False):
                    os.link(entry.path, os.path.join(folder.path, entry.name))
            return folder

        yield make


@cases.case
def blocks_of_commands_are_found():
    text = ("```sh\na b  # c\nhearth run \\\n  -p x\n```\n\n    $ hearth compare a\n    hearth: output\n    x y\n\n"
            "```\nno\n```\n    hearth says so\n")
    found = commands_of(text)
    assert found == [["a b  # c", "hearth run -p x"], ["hearth compare a"], ["hearth says so"]], found
    assert replaced("hearth synth llama-1b FOLDER/llama-1b-x.gguf   # c") == "hearth synth stories-15m FOLDER/llama-1b-x.gguf"


@cases.case
def commands_of_the_documents_run_as_printed():
    found = pages()
    every = [command for blocks in found.values() for block in blocks for command in block]
    check(len(every) > 80, len(every), "commands")
    check(len(NOT_RUN) <= 15, len(NOT_RUN), "commands are not run")
    unused = [p for p, _ in NOT_RUN if not any(re.match(p, c) for c in every)]
    unused += [p for p, _ in WORDS if not any(re.search(p, c) for c in every)]
    check(not unused, "no command has", unused)
    wrong, lacking = [], []
    with folders() as make:
        for path, blocks in found.items():
            folder = make(path.replace("/", "-"))
            for block in blocks:
                try:
                    for command in block:
                        if not any(re.match(pattern, command) for pattern, _ in NOT_RUN):
                            folder.run(replaced(command))
                except AssertionError as e:
                    wrong.append(f"{path}: {e}")
                except cases.Skip as e:
                    lacking.append(str(e))
                finally:
                    folder.stop()
    check(not wrong, "\n  " + "\n  ".join(wrong))
    if lacking:
        raise cases.Skip(lacking[0])


@cases.case
def the_documents_count_the_models_that_lie_on_a_gpu():
    models = glob.glob(os.path.join(os.path.dirname(data("golden/arch/arcee.gguf")), "*.gguf"))
    parts = {"whole": 0, "in part": 0, "nothing": 0}
    for path in models:
        with tempfile.NamedTemporaryFile() as out:
            said = good("logits", path, "--ids", "-", "-o", out.name, "--gpu", "null", "--force", stdin=b"1 2 3").stderr.decode()
        line = next(line for line in said.split("\n") if " M parameters, " in line)
        parts["nothing" if "on the CPU" in line else "in part" if re.search(r"\d of \d+ layers", line) else "whole"] += 1
    for name in ("README.md", "docs/gpu.md"):
        with open(os.path.join(SOURCE, name), encoding="utf-8") as f:
            words = " ".join(f.read().split())
        told = re.search(r"(\d+) golden models.{,80}?, (\d+) lie on a \w+ whole(?:, (\d+) in part)?, and of (\d+) nothing", words)
        check(told, name, "has no such sentence")
        check([int(n or 0) for n in told.groups()] == [len(models), *parts.values()], name, told[0], parts)
    with open(os.path.join(SOURCE, "README.md"), encoding="utf-8") as f:
        check(f"for {len(models) - parts['nothing']} of {len(models)} golden models" in f.read(), "README.md: another sum", parts)


if __name__ == "__main__":
    cases.run_cases(__file__)
