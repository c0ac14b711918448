"""The programs of examples/: compiled as their heads say, without warnings, and what they write, by value. Texts are
compared with those of the package for Python, one session each.

    test_examples.py SOURCE_DIR BUILD_DIR
"""

import glob
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
from cases import Skip, case, run_cases  # noqa: E402

SOURCE, BUILD = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
MODEL = os.path.join(SOURCE, "models", "storyteller-q8_0.gguf")
EXAMPLES = sorted(glob.glob(os.path.join(SOURCE, "examples", "*.c")))
PROMPTS = ["Once upon a time", "The dog", "Once upon a time there was a girl. Ünïcode, too"]
SAMPLING = dict(temperature=0.8, top_k=40, top_p=0.95, seed=7)  # of scheduler.c
WARNINGS = ("-Wall", "-Wextra", "-pedantic", "-Werror", "-I", os.path.join(SOURCE, "include"))

os.environ["HEARTH_LIBRARY"] = os.path.join(BUILD, "libhearth.so.0.1")
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(SOURCE, "bindings", "python"))
import hearth  # noqa: E402


def name_of(path):
    return os.path.basename(path).removesuffix(".c")


def text_of(path):
    with open(path, encoding="utf-8") as f:
        return f.read()


def compile_all():
    """Each by the command of its head, in FOLDER."""
    for path in EXAMPLES:
        command = re.search(r"^ \*     cc (.*) -o (\w+)$", text_of(path), re.M)
        assert command and command.group(2) == name_of(path), f"{path}: no command that compiles it"
        link = command.group(1).replace("$(pkg-config --cflags --libs hearth)", f"-L{BUILD} -Wl,-rpath,{BUILD} -lhearth")
        subprocess.run(["cc", "-std=c17", *WARNINGS, *shlex.split(link), "-o", os.path.join(FOLDER, name_of(path))],
                       cwd=os.path.dirname(path), check=True)


def run(name, *arguments, text="", status=0):
    """stdout and stderr of an example."""
    done = subprocess.run([os.path.join(FOLDER, name), *arguments], input=text, capture_output=True, text=True)
    assert done.returncode == status, (name, arguments, done.returncode, done.stderr)
    return done.stdout, done.stderr


def texts_alone(**options):
    return [prompt + "".join(model.generate(prompt, **options)) for prompt in PROMPTS]


@case
def examples_have_no_warnings():
    compilers = [("cc", "-std=c11"), ("cc", "-std=c17"), ("c++", "-x", "c++", "-std=c++17")]
    missing = [c[0] for c in compilers if not shutil.which(c[0])]
    for compiler in compilers:
        if compiler[0] not in missing:
            subprocess.run([*compiler, *WARNINGS, "-fsyntax-only", *EXAMPLES], check=True)
    if missing:
        raise Skip(f"no {missing[0]} here; as C there are no warnings")


@case
def examples_are_short_and_use_nothing_but_the_header():
    assert {name_of(path) for path in EXAMPLES} >= {"story", "chat", "batch", "scheduler", "embeddings", "json"}
    readme = text_of(os.path.join(SOURCE, "README.md"))
    for path in EXAMPLES:
        text = text_of(path)
        assert 60 <= text.count("\n") <= 150, path
        assert re.findall('#include [<"](hearth.*)[>"]|#include "(.*)"', text) == [("hearth/hearth.h", "")], path
        assert f"]({os.path.relpath(path, SOURCE)})" in readme, f"{path}: README.md does not name it"


@case
def examples_run_as_their_heads_say():
    for path in EXAMPLES:
        commands = re.findall(r"^ \*     \./(.*?)(?:  +#.*)?$", text_of(path), re.M)
        assert commands, f"{path}: no command that runs it"
        for command in commands:
            words = shlex.split(command.replace("model.gguf", MODEL))
            if words == ["chat", MODEL]:  # this model has no template
                assert "tokenizer.chat_template" in run(*words, status=1)[1]
            else:
                out, err = run(*words, text="Hello\n")
                assert out.strip() and not err, (command, out, err)


@case
def story_is_that_of_the_program():
    command = [os.path.join(BUILD, "hearth"), "run", MODEL, "-p", PROMPTS[0], "-n", "40", "--seed", "7"]
    own = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout
    assert run("story", MODEL, PROMPTS[0], "40", "7")[0] == own and len(own) > 80, own


@case
def batch_gives_what_single_sessions_give():
    out, _ = run("batch", MODEL, "25", *PROMPTS)
    assert out == "".join(text + "\n" for text in texts_alone(max_tokens=25)), out
    assert run("batch", MODEL, "0", *PROMPTS)[0] == "".join(prompt + "\n" for prompt in PROMPTS)


@case
def scheduler_gives_what_single_sessions_give():
    out, _ = run("scheduler", MODEL, "25", "7", *PROMPTS)
    expected = texts_alone(max_tokens=25, **SAMPLING)
    assert sorted(out.split("\n")) == sorted("".join(text + "\n" for text in expected).split("\n")), out
    _, err = run("scheduler", MODEL, "5", "7", "word " * 5000, status=1)
    assert err.startswith("scheduler: ") and "10002 tokens" in err, err


@case
def chat_goes_on_with_the_conversation():
    lines = ["Tell me of a dog", "And a cat?", "Oh"]
    for name in ("chatml", "llama2"):  # tokens of an answer are those of its text in the next prompt, or are not
        messages, expected = [], []
        for line in lines:
            messages.append({"role": "user", "content": line})
            answer = "".join(model.chat(name).reply(messages, max_tokens=20))
            messages.append({"role": "assistant", "content": answer})
            expected.append(answer + "\n")
        out, _ = run("chat", MODEL, name, "20", text="\n".join(lines))
        assert out == "".join(expected) and len(out) > 40, (out, expected)


@case
def embeddings_are_compared_by_cosine():
    texts = ["a small dog", "The puppy barked", "They went by train", "a small dog"]
    out, _ = run("embeddings", MODEL, *texts, "The puppy barked")
    rows = [line.split("\t") for line in out.splitlines()]
    assert [text for _, text in rows] == [*texts[1:], "The puppy barked"]
    vectors = [model.embed(text) for text in texts]
    for (cosine, _), vector in zip(rows, vectors[1:]):
        assert abs(float(cosine) - sum(x * y for x, y in zip(vectors[0], vector))) < 2e-6, rows
    assert rows[2][0] == "1.000000" and rows[0] == rows[3] and float(rows[0][0]) < 0.99, rows


@case
def json_satisfies_its_schema():
    literal = re.search(r"schema\[\] =\s*(.*?);\n", text_of(os.path.join(SOURCE, "examples", "json.c")), re.S).group(1)
    schema = "".join(json.loads(part) for part in re.findall(r'"(?:\\.|[^"\\])*"', literal))
    question = re.search(r'question\[\] = ("(?:\\.|[^"\\])*");', text_of(os.path.join(SOURCE, "examples", "json.c"))).group(1)
    for text in ("Lily is five years old. She has a red ball.", "", "Tom, 12: \"blue\""):
        out, _ = run("json", MODEL, text)
        value = json.loads(out)
        assert list(value) == ["name", "age", "colour"] and 1 <= len(value["name"]) <= 20, value
        assert type(value["age"]) is int and 0 <= value["age"] <= 150 and value["colour"] in ("red", "green", "blue"), value
        expected = "".join(model.generate(text + json.loads(question), constraint=model.json_schema(schema)))
        assert out == expected + "\n", (out, expected)


@case
def examples_say_what_is_wrong():
    arguments = {"story": ["a", "3", "1"], "chat": [], "batch": ["3", "a"], "scheduler": ["3", "1", "a"],
                 "embeddings": ["a", "b"], "json": ["a"]}
    for path in EXAMPLES:
        name = name_of(path)
        out, err = run(name, "/nowhere.gguf", *arguments[name], status=1)
        assert (out, err) == ("", f"{name}: /nowhere.gguf: cannot open: No such file or directory\n"), (out, err)
        assert run(name, status=2)[1].startswith(f"usage: {name} MODEL")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as FOLDER, hearth.Model(MODEL) as model:
        compile_all()
        run_cases(__file__)
