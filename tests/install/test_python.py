"""The package for Python (bindings/python) over the built library: installed by pip, its structs as the compiler lays them
out, texts, chats, embeddings, constraints, errors, threads, Ctrl-C, types.

    test_python.py SOURCE_DIR BUILD_DIR
"""

import array
import base64
import gc
import hashlib
import importlib.util
import itertools
import json
import logging
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import weakref
import zipfile

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
from cases import Skip, case, run_cases  # noqa: E402

SOURCE, BUILD = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
PACKAGE = os.path.join(SOURCE, "bindings", "python")
LIBRARY = os.path.join(BUILD, "libhearth.so.0.1")
MODEL = os.path.join(SOURCE, "models", "storyteller-q8_0.gguf")
SMALL = os.path.join(SOURCE, "tests", "data", "models", "stories260K", "stories260K-f32.gguf")  # another vocabulary
PROMPT = "Once upon a time"
SAMPLING = dict(temperature=0.8, top_k=40, top_p=0.95, min_p=0.05, seed=7)  # defaults of the program
TEMPLATE = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant:"
USER = {"role": "user", "content": "Tell me of a dog"}

os.environ["HEARTH_LIBRARY"] = LIBRARY
sys.dont_write_bytecode = True  # nothing is written to the sources
sys.path.insert(0, PACKAGE)
import hearth  # noqa: E402


def run(*command, **more):
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **more}
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment, cwd=FOLDER)


def run_python(text, **more):
    done = run(sys.executable, "-c", text, PYTHONPATH=PACKAGE, **more)
    return done.returncode, done.stdout


def error_of(status, function, *arguments, **more):
    """The message of the Error that a call raises."""
    try:
        function(*arguments, **more)
    except hearth.Error as error:
        assert error.status == status, (error.status, str(error))
        assert str(error)
        return str(error)
    raise AssertionError(f"no error, but {status} is expected")


# ---- the package ---------------------------------------------------------------------------------------------------

@case
def pip_installs_it_without_network():
    python = os.path.join(FOLDER, "venv", "bin", "python")
    if not importlib.util.find_spec("ensurepip") or run(sys.executable, "-m", "venv", os.path.dirname(os.path.dirname(python))).returncode:
        raise Skip("no venv for Python here (Debian: python3-venv)")
    copy = os.path.join(FOLDER, "copy")  # pip may write beside what it builds
    shutil.copytree(PACKAGE, copy)
    offline = {"PIP_NO_INDEX": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PYTHONPATH": ""}
    for flags, folder in (((), os.path.join(FOLDER, "venv", "lib")), (("-e",), copy)):
        done = run(python, "-m", "pip", "install", "--force-reinstall", *flags, copy, **offline)
        assert done.returncode == 0, done.stdout
        done = run(python, "-c", "import hearth, importlib.metadata as m; print(hearth.__file__, m.version('hearth'), m.requires('hearth'))",
                   **offline)
        assert done.stdout.startswith(folder) and done.stdout.endswith(f" {hearth.__version__} None\n"), done.stdout


@case
def packages_are_complete_and_the_same_each_time():
    sys.path.insert(0, os.path.join(PACKAGE, "backend"))
    import hearth_build
    made = []
    for name in "ab":
        folder = os.path.join(FOLDER, name)
        os.mkdir(folder)
        files = [hearth_build.build_wheel(folder), hearth_build.build_sdist(folder)]
        with open(os.path.join(folder, files[0]), "rb") as wheel, open(os.path.join(folder, files[1]), "rb") as sdist:
            made.append((files, wheel.read(), sdist.read()))
    assert made[0] == made[1]
    with zipfile.ZipFile(os.path.join(folder, files[0])) as wheel:
        record = [name for name in wheel.namelist() if name.endswith(".dist-info/RECORD")][0]
        rows = dict(row.split(",", 1) for row in wheel.read(record).decode().splitlines())
        assert set(rows) == set(wheel.namelist()) and {"hearth/__init__.py", "hearth/py.typed"} < set(rows), rows
        for path, row in rows.items():
            digest = base64.urlsafe_b64encode(hashlib.sha256(wheel.read(path)).digest()).decode().rstrip("=")
            assert row == ("," if path == record else f"sha256={digest},{len(wheel.read(path))}"), (path, row)


@case
def version_is_that_of_the_library():
    with open(os.path.join(SOURCE, "include", "hearth", "base.h"), encoding="utf-8") as f:
        version = ".".join(re.findall(r"#define HEARTH_VERSION_\w+ (\d+)", f.read()))
    assert hearth.__version__ == version == hearth.version(), (hearth.__version__, version, hearth.version())


@case
def library_that_is_missing_or_another_is_named():
    code, out = run_python("import hearth", HEARTH_LIBRARY="/nowhere/libhearth.so.0.1")
    assert code and "ImportError: HEARTH_LIBRARY: /nowhere/libhearth.so.0.1: " in out, out
    for text, expected in (('const char *hearth_version(void) { return "0.2.0"; }', "libhearth 0.2.0, but this module is for"),
                           ("int other;", "is not libhearth.so.0.1: ")):
        path = os.path.join(FOLDER, "other.so")
        subprocess.run(["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", path], input=text, text=True, check=True)
        code, out = run_python("import hearth", HEARTH_LIBRARY=path)
        assert code and "ImportError: " in out and expected in out and path in out, out


@case
def library_beside_the_package_is_found():
    shutil.copytree(os.path.join(PACKAGE, "hearth"), os.path.join(FOLDER, "beside", "hearth"))
    os.symlink(LIBRARY, os.path.join(FOLDER, "beside", "hearth", "libhearth.so.0.1"))
    done = run(sys.executable, "-c", "import hearth; print(hearth._lib._name)", PYTHONPATH=os.path.join(FOLDER, "beside"),
               HEARTH_LIBRARY="")
    assert done.stdout == os.path.join(FOLDER, "beside", "hearth", "libhearth.so.0.1") + "\n", done.stdout


@case
def types_are_strict():
    if not shutil.which("mypy"):
        raise Skip("no mypy here")
    program = os.path.join(FOLDER, "program.py")
    with open(program, "w", encoding="utf-8") as f:
        f.write("import hearth\nfrom typing import List, Optional\n"
                "def texts(path: str) -> List[str]:\n"
                "    with hearth.Model(path, ram=hearth.RAM_AUTO) as model:\n"
                "        vector: float = model.embed('a')[0]\n"
                "        parts: List[hearth.Part] = list(model.chat('chatml').answer([{'role': 'user', 'content': str(vector)}]))\n"
                "        with model.scheduler(n_kept=hearth.KEPT_NONE) as scheduler:\n"
                "            request: hearth.Request = scheduler.add('a', max_tokens=1)\n"
                "            scheduler.pause(request, False)\n"
                "            progress: Optional[hearth.RequestProgress] = scheduler.progress(request)\n"
                "            stats: hearth.SchedulerStats = scheduler.stats()\n"
                "        return list(model.generate('a', max_tokens=3, stop=['b'])) + [part.text for part in parts]\n"
                "wrong: int = texts('a')\n")
    done = run("mypy", "--strict", "--cache-dir", os.devnull, PACKAGE, program, MYPYPATH=PACKAGE)
    lines = done.stdout.splitlines()
    assert len(lines) == 2 and "program.py:13: error: Incompatible types in assignment" in lines[0], done.stdout


# ---- what it says of the headers --------------------------------------------------------------------------------------

def header():
    folder = os.path.join(SOURCE, "include", "hearth")
    return "".join(re.sub(r"/\*.*?\*/", " ", open(os.path.join(folder, name), encoding="utf-8").read(), flags=re.S)
                   for name in sorted(os.listdir(folder)))


def structs():
    """{name in C: class}"""
    classes = [hearth._Error, hearth._GpuOptions, hearth._Message, hearth._LogitBias, hearth._DraftOptions,
               hearth._DraftStats, hearth._RequestEvent, *hearth._Sized.__subclasses__()]
    return {"hearth" + re.sub("([A-Z])", r"_\1", c.__name__[1:]).lower(): c for c in classes}


@case
def structs_are_laid_out_as_by_the_compiler():
    lines, mine = [], []
    for name, struct in structs().items():
        lines.append(f'printf("{name} %zu\\n", sizeof({name}));')
        mine.append(f"{name} {hearth.ctypes.sizeof(struct)}")
        for field, *_ in struct._fields_:
            at = getattr(struct, field)
            lines.append(f'printf("{name}.{field} %zu %zu\\n", offsetof({name}, {field}), sizeof((({name} *)0)->{field}));')
            mine.append(f"{name}.{field} {at.offset} {at.size}")
    program = os.path.join(FOLDER, "layout")
    subprocess.run(["cc", "-I", os.path.join(SOURCE, "include"), "-x", "c", "-", "-o", program], text=True, check=True,
                   input="#include <hearth/hearth.h>\n#include <stdio.h>\nint main(void) {" + "\n".join(lines) + "}")
    assert len(mine) > 120 and subprocess.check_output([program], text=True).splitlines() == mine


@case
def enumerators_have_the_values_of_the_header():
    for names, kind in ((hearth.STATUS, "status"), (hearth._KV, "kv_type"), (hearth._SELECTORS, "selector"),
                        (hearth._ANSWERS, "answer_kind"), (hearth._CONSTRAINTS, "constraint_kind"),
                        (hearth._ENDS, "constraint_end"), (hearth._STATES, "request_state"),
                        (hearth._METADATA, "metadata_type"), (hearth._SPECIAL, "special_token"),
                        (hearth._DEVICES, "device_kind")):
        body = re.search(r"typedef enum hearth_%s \{(.*?)\}" % kind, header(), re.S).group(1)
        found = re.findall(r"HEARTH_\w+", body)
        assert len(found) == len(names), (kind, found)
        for i, (full, name, value) in enumerate(zip(found, names, re.findall(r"HEARTH_\w+( = \d+)?", body))):
            assert full.lower().endswith("_" + name) and value in ("", f" = {i}"), (full, name, value)


@case
def constants_have_the_values_of_the_header():
    found = dict(re.findall(r"#define HEARTH_(\w+) (UINT\d+_MAX)", header()))
    for name in ("RAM_AUTO", "CTX_TRAINED", "BATCH_NONE", "KEPT_NONE"):
        assert getattr(hearth, name) == {"UINT32_MAX": 2**32 - 1, "UINT64_MAX": 2**64 - 1}[found[name]], name


@case
def attributes_have_the_bits_of_the_header():
    body = re.search(r"typedef enum hearth_token_attributes \{(.*?)\}", header(), re.S).group(1)
    found = [(name.lower(), int(value)) for name, value in re.findall(r"HEARTH_TOKEN_(\w+) = (\d+)", body)]
    assert found == [(name, 1 << i) for i, name in enumerate(hearth._ATTRIBUTES)], found


def letter_of(kind):
    """Of a type in C, as hearth._FUNCTIONS has them; texts that are not terminated count as others."""
    if "*" in kind:
        return "c" if re.match(r"const char \*(?!\*)", kind) else "p"
    base = kind.split()[0]
    return {"void": "v", "size_t": "n", "uint32_t": "u", "unsigned": "u", "uint64_t": "U", "bool": "b",
            "hearth_status": "s"}.get(base, "i")


@case
def functions_have_the_parameters_of_the_header():
    pattern = r"HEARTH_API ([\w ]+?[ *]+)(hearth_\w+)\(([^;]*?)\);"
    found = {name: (result, [" ".join(p.split()) for p in rest.split(",")]) for result, name, rest in re.findall(pattern, header())}
    for name, text in hearth._FUNCTIONS.items():
        result, parameters = found[name]
        mine, *names = text.split()
        if mine[0] == "s":
            assert parameters.pop() == "hearth_error *err", name
        letters = letter_of(result) + "".join(letter_of(p) for p in parameters if p != "void")
        if mine[0] == "i":
            letters = letters.replace("s", "i", 1)  # a status without a message
        assert letters == re.sub("f", "p", mine), (name, mine, letters)
        integers = [re.sub("^int32_t id$", "int32_t token", p).split()[-1] for p in parameters if letter_of(p) in "iuU"]
        assert integers == names, (name, names, integers)


# ---- models, machines and builds -----------------------------------------------------------------------------------------

@case
def a_vocabulary_alone_is_opened():
    with hearth.Model(MODEL, vocab_only=True) as vocabulary:
        assert vocabulary.tokenize(PROMPT) == model.tokenize(PROMPT)
        assert vocabulary.info.n_vocab == model.info.n_vocab and vocabulary.info.weight_bytes == 0
        assert "vocab_only" in error_of("argument", vocabulary.session)


@case
def metadata_are_a_mapping():
    keys = list(model.metadata)
    assert len(keys) == len(model.metadata) > 10 and len(set(keys)) == len(keys)
    assert model.metadata["general.architecture"] == model.info.architecture == "llama"
    assert model.metadata["llama.block_count"] == model.info.n_layer
    assert isinstance(model.metadata["llama.attention.layer_norm_rms_epsilon"], float)
    tokens = model.metadata["tokenizer.ggml.tokens"]
    assert len(tokens) == model.info.n_vocab and tokens[model.bos].encode() == model.token(model.bos).text
    assert "no.such.key" not in model.metadata and "a\0b" not in model.metadata
    assert model.metadata.get("general.architecture\0") is None and model.metadata.get("") is None
    assert all(model.metadata[key] is not None for key in keys)


@case
def tokens_have_texts_and_attributes():
    end = model.token(model.eos)
    assert "control" in end.attributes and "end" in end.attributes, end
    assert model.find_token(end.text) == model.eos == model.special_token("eos") and model.find_token("never such a token") == -1
    ids = model.tokenize(PROMPT)
    assert b"".join(model.token(token).bytes for token in ids[1:]).decode().strip() == PROMPT
    assert model.special_token("bos") == model.bos and "kind" in error_of("argument", model.special_token, "none")
    for token in (-1, model.info.n_vocab):
        assert str(token) in error_of("argument", model.token, token)


@case
def machine_and_build_are_listed():
    levels = hearth.cpu_levels()
    assert levels[-1] == "generic" and model.info.cpu in levels, levels
    with hearth.Model(MODEL, cpu="generic") as generic:
        assert generic.info.cpu == "generic"
    assert "cpu is nonsense" in error_of("argument", hearth.Model, MODEL, cpu="nonsense")
    assert "cache is elsewhere" in error_of("argument", hearth.Model, MODEL, cache="elsewhere")  # model has another one
    assert list(hearth.features()) == ["vulkan", "io_uring", "bpe", "wordpiece"]
    shown = json.loads(subprocess.check_output([os.path.join(BUILD, "hearth"), "devices", "--json"], text=True))["devices"]
    assert [(d.device, d.uuid, d.description, d.memory_bytes) for d in hearth.devices()] == [
        (d["device"], d["uuid"], d["name"], d["memory_bytes"]) for d in shown]


# ---- texts -------------------------------------------------------------------------------------------------------------

@case
def tokens_are_iterated_as_the_program_writes_them():
    command = [os.path.join(BUILD, "hearth"), "run", MODEL, "-p", PROMPT, "-n", "40", "--seed", "7"]
    own = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout
    pieces = list(model.generate(PROMPT, max_tokens=40, **SAMPLING))
    assert len(pieces) > 20 and PROMPT + "".join(pieces) + "\n" == own, (pieces, own)
    ids = model.tokenize(PROMPT)
    assert ids[0] == model.bos and model.detokenize(ids) == PROMPT and not model.is_eog(ids[0]) and model.is_eog(model.eos)
    assert list(model.generate(ids, max_tokens=40, **SAMPLING)) == pieces


@case
def stop_texts_end_a_text_and_are_not_in_it():
    whole = "".join(model.generate(PROMPT, max_tokens=30))
    stop = whole[11:16]  # begins and ends within tokens
    assert "".join(model.generate(PROMPT, max_tokens=30, stop=["never said", stop])) == whole[:whole.index(stop)]
    assert "".join(model.generate(PROMPT, max_tokens=30, stop=whole[:1])) == ""
    assert "".join(model.generate(PROMPT, max_tokens=30, stop=[whole + "?"])) == whole, "what was kept back is given"
    assert "empty" in error_of("argument", model.generate, PROMPT, stop=[""])


@case
def text_ends_with_the_context():
    session = model.session(n_ctx=16)
    text = "".join(session.generate(PROMPT))
    assert session.position == session.n_ctx == 16 and text, session.position
    error_of("context", session.eval, [1])


@case
def sessions_are_copied_saved_and_cut():
    ids = model.tokenize(PROMPT)
    session = model.session()
    assert len(session.logits()) == 0
    session.eval(ids)
    logits = session.logits()
    assert logits.typecode == "f" and len(logits) == model.info.n_vocab and session.tokens == ids
    path = os.path.join(FOLDER, "saved")
    session.save(path)
    other, restored = session.fork(), model.session()
    restored.restore(path)
    other.eval([5, 6])
    assert session.position == len(ids) and other.position == len(ids) + 2
    other.truncate(len(ids) - 1)
    other.eval(ids[-1:])
    assert other.logits() == logits == restored.logits() and other.tokens == restored.tokens == ids
    assert hearth.Sampler(model).sample(logits) == hearth.Sampler(model).sample(session) == logits.index(max(logits))
    sampler = hearth.Sampler(model, temperature=2, seed=3)
    drawn = [sampler.sample(logits) for _ in range(8)]
    clone = sampler.clone()
    assert [sampler.sample(logits) for _ in range(8)] == [clone.sample(logits) for _ in range(8)]
    sampler.reseed(3)
    assert [sampler.sample(logits) for _ in range(8)] == drawn != [clone.sample(logits) for _ in range(8)]
    error_of("io", restored.restore, os.path.join(FOLDER, "nothing"))
    error_of("argument", session.truncate, 1000)


@case
def several_prompts_at_once_give_what_one_gives():
    prompts = [PROMPT, "The dog", "A girl named Lily went"]
    alone = ["".join(model.generate(prompt, max_tokens=20, **SAMPLING)) for prompt in prompts]
    assert model.generate_many(prompts, max_tokens=20, **SAMPLING) == alone
    end = alone[0][len(alone[0]) // 2:][:4]
    for stop in (["nowhere", end], end):
        assert model.generate_many(prompts[:1], max_tokens=20, stop=stop, **SAMPLING) == [alone[0][:alone[0].index(end)]]
    error_of("argument", model.generate_many, prompts, stop=["a\0b"])
    error_of("argument", model.generate, PROMPT, stop=[""])
    pieces, scheduler = [], hearth.Scheduler(model)
    first = scheduler.add(PROMPT, max_tokens=20, on_text=lambda text: pieces.append(text), **SAMPLING)
    second = scheduler.add("The dog", max_tokens=20, on_text=lambda text: False)
    third = scheduler.add("A girl")
    scheduler.step()
    scheduler.cancel(third)
    scheduler.run()
    assert (first.state, first.text, "".join(pieces), len(first.tokens)) == ("length", alone[0], alone[0], 20), first
    assert (second.state, third.state) == ("stopped", "cancelled"), (second, third)
    failed = scheduler.add(PROMPT, on_text=lambda text: 1 / 0)
    scheduler.run()
    assert isinstance(failed.error, ZeroDivisionError), failed
    sessions = [model.session() for _ in prompts]
    batch = hearth.Batch(model)
    for session, prompt in zip(sessions, prompts):
        batch.add(session, model.tokenize(prompt))
    batch.run()
    for session, prompt in zip(sessions, prompts):
        one = model.session()
        one.eval(model.tokenize(prompt))
        assert session.logits() == one.logits()


@case
def schedulers_tell_pause_and_save():
    scheduler = model.scheduler(n_ctx=64, n_running=1)
    scheduler.set_threads(2)
    first, second = scheduler.add(PROMPT, max_tokens=3), scheduler.add("The dog", max_tokens=3)
    assert scheduler.step() and scheduler.stats().n_running == scheduler.stats().n_waiting == 1, scheduler.stats()
    now, later = scheduler.progress(first), scheduler.progress(second)
    assert now.is_running and now.n_prompt == now.n_evaluated == len(model.tokenize(PROMPT)) and now.n_generated == 1, now
    assert not later.is_running and later.n_evaluated == 0, later
    scheduler.pause(second)
    scheduler.run()
    assert (first.state, second.state, second.tokens) == ("length", "token", []) and scheduler.progress(first) is None
    scheduler.pause(second, False)
    scheduler.run()
    assert (second.state, scheduler.stats().n_generated, scheduler.stats().n_kept) == ("length", 6, 2), scheduler.stats()
    folder, done = os.path.join(FOLDER, "kept"), []
    os.mkdir(folder)
    error_of("cancelled", scheduler.save, folder, progress=lambda n, total: False)
    assert scheduler.has_unsaved
    scheduler.save(folder, progress=lambda n, total: done.append((n, total)))
    assert not scheduler.has_unsaved and len(done) > 1 and all(0 <= n < total for n, total in done), done
    again = model.scheduler(n_ctx=64)
    again.restore(folder)
    request = again.add(PROMPT, max_tokens=3)
    again.run()
    assert request.tokens == first.tokens and again.stats().n_cached > 0, again.stats()
    scheduler.save(folder, max_size=0)
    assert os.listdir(folder) == []
    error_of("io", again.restore, os.path.join(FOLDER, "nothing"))


@case
def chats_answer_by_a_template():
    chat = model.chat(template=TEMPLATE)
    assert chat.render([USER]) == "user: Tell me of a dog\nassistant:" and chat.name == "template"
    assert "chatml" in hearth.formats() and "<|im_start|>user\nTell me of a dog" in model.chat("chatml").render([USER])
    answer = "".join(chat.reply([USER], max_tokens=20, **SAMPLING))
    prompt = chat.tokenize([USER])
    assert answer and answer == "".join(model.generate(prompt, max_tokens=20, **SAMPLING)).lstrip(" "), answer
    session = model.session()
    assert "".join(chat.reply([USER], session=session, max_tokens=20, **SAMPLING)) == answer
    more = [USER, {"role": "assistant", "content": answer}, {"role": "user", "content": "And a cat?"}]
    again = "".join(chat.reply(more, session=session, max_tokens=20, **SAMPLING))
    assert again and again == "".join(chat.reply(more, max_tokens=20, **SAMPLING)), "a kept cache changes nothing"
    assert session.tokens[:len(chat.tokenize(more))] == chat.tokenize(more)
    error_of("unsupported", model.chat, "no such format")
    error_of("format", model.chat, template="{% if %}")


@case
def constraints_tell_what_they_leave_out():
    assert model.json_object().notes == []
    note, = model.json_schema({"type": "array", "uniqueItems": True}).notes
    assert note.startswith("#/uniqueItems: uniqueItems is enforced only where"), note


@case
def answers_are_divided():
    rule = model.choices(["<think>so</think>yes"])
    template = TEMPLATE + "{% if false %}<think></think>{{ messages[0].reasoning_content }}{% endif %}"
    parts = list(model.chat(template=template).answer([USER], constraint=rule))
    by_kind = {kind: "".join(p.text for p in parts if p.kind == kind) for kind in ("text", "reasoning")}
    assert by_kind == {"text": "yes", "reasoning": "so"}, parts
    tools = [{"type": "function", "function": {"name": "find", "parameters": {"type": "object"}}}]
    chat = model.chat(template=TEMPLATE + "{% if false %}<tool_call> {{ tools }}{% endif %}")
    rule = model.choices(['So. <tool_call>{"name": "find", "arguments": {"n": [1, 2]}}</tool_call>'])
    parts = list(chat.answer([USER], tools=tools, constraint=rule))
    by_kind = {kind: "".join(p.text for p in parts if p.kind == kind) for kind in ("text", "call", "arguments")}
    assert by_kind["text"].strip() == "So." and by_kind["call"] == "find" and json.loads(by_kind["arguments"]) == {"n": [1, 2]}, parts
    assert "<tool_call>" in "".join(chat.reply([USER], constraint=rule)), "without tools a call is text"
    call = {"role": "assistant", "content": None, "tool_calls": [{"type": "function", "function": {"name": "find", "arguments": "{}"}}]}
    shown = model.chat(template="{{ messages[1].content }}")  # of a template that shows no calls they are text
    assert shown.render([USER, call]) == '<tool_call>\n{"name": "find", "arguments": {}}\n</tool_call>'


@case
def embeddings_are_pooled_rows():
    texts = ["A small dog", "They went to the sea by train"]
    a, b, c = model.embed(texts[0]), model.embed(texts[0]), model.embed(texts[1])
    cosine = sum(x * y for x, y in zip(a, c))
    assert a.tobytes() == b.tobytes() and len(a) == model.info.d_model and abs(math.fsum(x * x for x in a) - 1) < 1e-6
    assert abs(cosine) < 0.999, cosine
    assert [v.tobytes() for v in model.embed_many(texts)] == [a.tobytes(), c.tobytes()] and model.embed_many([]) == []
    rows = model.session().eval_hidden(model.tokenize(texts[0]))
    raw = model.embed(texts[0], pooling="mean", normalize=False)
    assert all(abs(x - math.fsum(column) / len(rows)) < 1e-5 for x, column in zip(raw, zip(*rows)))
    for pooling, row in (("first", rows[0]), ("last", rows[-1]), ("auto", rows[-1])):  # the file says nothing: the last
        assert model.embed(texts[0], pooling=pooling, normalize=False).tobytes() == row.tobytes(), pooling
    few = model.embed(texts[0], n_dim=8)
    assert len(few) == 8 and abs(few[0] * a[1] - few[1] * a[0]) < 1e-6 and abs(math.fsum(x * x for x in few) - 1) < 1e-6
    assert "pooling" in error_of("argument", model.embed, "a", pooling="max")
    assert "texts[0].n_token is 0" in error_of("argument", model.embed, [])


@case
def documents_have_scores_of_rerankers():
    documents, yes, no = ["The sun shines on the sea.", "It rains."], 145, 12  # classes: tests/data/arch.py
    with hearth.Model(os.path.join(BUILD, "data", "golden", "rank", "qwen3.gguf")) as reranker:
        scores = reranker.rerank("What does the sun do?", documents)
        for score, document in zip(scores, documents):
            session = reranker.session()
            session.eval(reranker.tokenize("<|im_start|>system\nYes or no?<|im_end|>\n<|im_start|>user\n<Query>: What does the sun do?\n"
                                           f"<Document>: {document}<|im_end|>\n<|im_start|>assistant\n", parse_special=True))
            logits = session.logits()
            assert abs(score - 1 / (1 + math.exp(logits[no] - logits[yes]))) < 1e-5, (score, document)
        assert abs(scores[0] - scores[1]) > 0.5 and reranker.rerank("a", []) == []
        assert len(reranker.embed("a")) == 2 and len(reranker.embed("a", pooling="last")) == reranker.info.d_model
    assert "has no head" in error_of("unsupported", model.embed, "a", pooling="rank")


@case
def sessions_are_saved_in_memory():
    s, t = model.session(n_ctx=64), model.session(n_ctx=64)
    s.eval(model.tokenize(PROMPT))
    data, path = s.save_bytes(), os.path.join(FOLDER, "saved")
    s.save(path)
    with open(path, "rb") as f:
        assert f.read() == data
    t.restore_bytes(data)
    t.set_threads(2)
    t.eval([5]), s.eval([5])
    assert t.tokens == s.tokens and t.logits().tobytes() == s.logits().tobytes()
    assert "damaged" in error_of("format", t.restore_bytes, data[:-1]) and t.tokens == s.tokens


@case
def constraints_hold():
    schema = {"type": "object", "properties": {"name": {"enum": ["Tom", "Lily"]}, "age": {"type": "integer", "minimum": 1, "maximum": 9}},
              "required": ["name", "age"], "additionalProperties": False}
    rule = model.json_schema(schema)
    for seed in range(4):
        value = json.loads("".join(model.generate(PROMPT, constraint=rule, temperature=1, seed=seed)))
        assert set(value) == {"name", "age"} and value["name"] in ("Tom", "Lily") and 1 <= value["age"] <= 9, value
    assert "".join(model.generate(PROMPT, constraint=model.choices(["red", "green"]))) in ("red", "green")
    assert re.fullmatch("[ab]{3}", "".join(model.generate(PROMPT, constraint=model.grammar("root ::= [ab] [ab] [ab]"))))
    texts = model.generate_many([PROMPT, "The dog"], constraint=rule, temperature=1)
    assert all(set(json.loads(text)) == {"name", "age"} for text in texts), texts
    rule, logits = model.choices(["x"]), array.array("f", bytes(4 * model.info.n_vocab))
    rule.mask(logits)
    assert rule.end == "incomplete" and 0 < sum(x == 0 for x in logits) < len(logits)
    error_of("argument", rule.mask, memoryview(bytes(logits)).cast("f"))
    error_of("argument", rule.mask, array.array("f", [0]))
    error_of("format", model.json_schema, "{")
    error_of("format", model.grammar, "root ::= (")


@case
def errors_have_a_status_and_a_line():
    assert "/nowhere.gguf" in error_of("io", hearth.Model, "/nowhere.gguf")
    assert "temperature" in error_of("argument", hearth.Sampler, model, temperature=-1)
    assert "q9" in error_of("argument", model.session, kv="q9")
    error_of("argument", model.session().eval, [-1])
    error_of("argument", model.session().eval, [2**40])
    error_of("argument", model.generate, PROMPT, max_tokens=-1)
    closed = hearth.Model(MODEL)
    closed.close()
    closed.close()
    try:
        closed.tokenize("a")
    except ValueError as error:
        assert str(error) == "model is closed"
    else:
        raise AssertionError("a closed model was used")
    for progress, expected in ((lambda done, total: False, hearth.Error), (lambda done, total: 1 / 0, ZeroDivisionError)):
        try:
            hearth.Model(MODEL, progress=progress)
        except expected as error:
            assert getattr(error, "status", "cancelled") == "cancelled"
        else:
            raise AssertionError("progress did not end the opening")


@case
def integers_that_do_not_fit_are_refused():
    session, sampler, rule = model.session(n_ctx=64), hearth.Sampler(model), model.choices(["x"])
    scheduler = model.scheduler(n_ctx=64)
    n32, n64 = "0 to 4294967295", "0 to 18446744073709551615"
    i32 = "-2147483648 to 2147483647"
    calls = [("n_ctx", n32, lambda n: model.session(n_ctx=n)), ("n_batch", n32, lambda n: model.session(n_batch=n)),
             ("n_thread", n32, lambda n: model.session(n_thread=n)), ("n_thread", n32, session.set_threads),
             ("n_ctx", n32, lambda n: hearth.Model(MODEL, n_ctx=n)), ("position", n32, session.truncate),
             ("n_tok", n32, lambda n: hearth.Batch(model, n)), ("n_dim", n32, lambda n: model.embed("a", n_dim=n)),
             ("n_kept", n32, lambda n: model.scheduler(n_kept=n)), ("n_thread", n32, scheduler.set_threads),
             ("max_tokens", n32, lambda n: scheduler.add("a", max_tokens=n)),
             ("max_tokens", n32, lambda n: model.generate("a", max_tokens=n)),
             ("max_tokens", n32, lambda n: session.generate("a", max_tokens=n)),
             ("max_tokens", n32, lambda n: model.generate_many(["a"], max_tokens=n)),
             ("ram", n64, lambda n: hearth.Model(MODEL, ram=n)), ("vram", n64, lambda n: hearth.Model(MODEL, vram=n)),
             ("owner", n64, lambda n: scheduler.add("a", owner=n)), ("seed", n64, sampler.reseed),
             ("seed", n64, lambda n: hearth.Sampler(model, seed=n)), ("id", n64, lambda n: scheduler.cancel(hearth.Request(id=n))),
             ("max_size", n64, lambda n: scheduler.save(FOLDER, max_size=n)),
             ("top_k", i32, lambda n: hearth.Sampler(model, top_k=n)), ("token", i32, model.token),
             ("repeat_last_n", i32, lambda n: next(model.generate("a", repeat_last_n=n))), ("token", i32, model.is_eog),
             ("bias", i32, lambda n: hearth.Sampler(model, bias={n: 1})), ("token", i32, lambda n: model.detokenize([n])),
             ("token", i32, sampler.accept), ("token", i32, rule.accept), ("tokens", i32, lambda n: session.eval([1, n])),
             ("tokens", i32, lambda n: model.generate([n])), ("tokens", i32, lambda n: scheduler.add([n])),
             ("tokens", i32, lambda n: model.embed([n])), ("tokens", i32, lambda n: hearth.Batch(model).add(session, [n]))]
    for name, limits, call in calls:
        low, high = map(int, limits.split(" to "))
        for number in (low - 1, high + 1, high + 6):
            expected = f"{name}: {number} is not within {limits}"
            assert error_of("argument", call, number) == expected, expected
    assert session.position == 0 and not scheduler.step()
    trained = model.session(n_ctx=hearth.CTX_TRAINED)
    assert trained.n_ctx == model.info.n_ctx_train
    hearth.Model(MODEL, ram=hearth.RAM_AUTO, vocab_only=True).close()


@case
def a_text_is_no_sequence_of_texts():
    calls = {"choices": model.choices, "texts": model.embed_many, "prompts": model.generate_many,
             "messages": model.chat("chatml").render}
    for name, call in calls.items():
        for text in ("yes", b"yes"):
            assert error_of("argument", call, text).startswith(f"{name}: one {type(text).__name__}, but"), name
    assert "messages: one dict" in error_of("argument", model.chat("chatml").tokenize, USER)
    assert "stop: one bytes" in error_of("argument", model.generate, PROMPT, stop=b"a")
    session = model.session()
    for text in ("abcd", b"abcd"):
        assert "tokenize" in error_of("argument", session.eval, text)
    assert [v.tobytes() for v in model.embed_many(iter(["a"]))] == [model.embed("a").tobytes()]


@case
def texts_do_not_end_at_a_nul():
    for call in (lambda: model.choices(["a\0b"]), lambda: hearth.Model(MODEL + "\0"), lambda: model.chat("chatml\0"),
                 lambda: model.chat("chatml").render([{"role": "user\0", "content": "a"}])):
        assert "has a NUL" in error_of("argument", call)


@case
def what_is_of_another_vocabulary_is_refused():
    small = hearth.Model(SMALL)
    assert small.info.n_vocab < model.info.n_vocab
    session, own = small.session(n_ctx=64), model.session(n_ctx=64)
    session.eval([1])
    own.eval([1])
    for n, sample in ((model.info.n_vocab, lambda: hearth.Sampler(model).sample(session)),
                      (small.info.n_vocab, lambda: hearth.Sampler(small).sample(own))):
        assert f"this one has {n}" in error_of("argument", sample)
    error_of("argument", hearth.Sampler(model).sample, session.logits())
    rule = model.choices(["x"])
    error_of("argument", rule.mask, session.logits())
    for function in (session.generate, small.generate, small.scheduler(n_ctx=64).add):
        assert "another model" in error_of("argument", function, PROMPT, constraint=rule)
    assert "session: " in error_of("argument", model.chat("chatml").answer, [USER], session=session)
    error_of("argument", hearth.Batch(model).add, session, [1])


@case
def warnings_are_logged():
    lines = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append((record.levelname, record.getMessage()))
    logging.getLogger("hearth").addHandler(handler)
    path = os.path.join(FOLDER, "model of 100 %s.gguf")
    with open(MODEL, "rb") as f, open(path, "wb") as to:
        to.write(f.read().replace(b"general.quantization_version", b"general.quantization_versiom"))
    try:
        hearth.Model(path).close()
    finally:
        logging.getLogger("hearth").removeHandler(handler)
    assert lines == [("WARNING", f"{path}: general.quantization_version missing: 2 is taken")], lines


# ---- lifetimes, threads, Ctrl-C ----------------------------------------------------------------------------------------

@case
def objects_close_in_any_order():
    for order in itertools.permutations(range(4)):
        own = hearth.Model(MODEL)
        session, sampler = own.session(n_ctx=64), hearth.Sampler(own)
        scheduler = hearth.Scheduler(own, n_position=256)
        scheduler.add(PROMPT)
        scheduler.step()
        objects = [own, session, sampler, scheduler]
        for i in order[:2]:
            objects[i].close()
        if not {0, 1} & set(order[:2]):
            session.eval([1])
        for i in order[2:]:  # by the end of their references
            objects[i] = None
        del own, session, sampler, scheduler, objects
        gc.collect()
    text = hearth.Model(MODEL).generate(PROMPT, max_tokens=8)
    gc.collect()
    assert "".join(text) == "".join(model.generate(PROMPT, max_tokens=8)), "what generates keeps its model"
    code, out = run_python(f"import hearth\nm = hearth.Model({MODEL!r})\ns = m.session()\nc = m.chat('chatml')\nm.x = s\ns.m = m\n"
                           "g = m.generate('a'); next(g)")
    assert (code, out) == (0, ""), out


@case
def what_is_dropped_unfinished_is_freed():
    class Owner:  # of a model, with a function that the library calls
        def __init__(self, own):
            self.model = hearth.Model(MODEL, progress=self.show)

        def show(self, done, total):
            pass

    def scheduler(own):
        scheduler = hearth.Scheduler(own, n_ctx=64)
        request = scheduler.add(PROMPT, max_tokens=9, on_text=lambda text: scheduler.model is not None)
        assert scheduler.step()
        return scheduler, request

    def first(pieces):
        next(pieces)
        return pieces

    def failed(own):
        try:
            own.session().eval([-1])
        except hearth.Error:
            pass

    uses = [scheduler, Owner, failed, lambda own: scheduler(own)[1], lambda own: first(own.generate(PROMPT)),
            lambda own: own.generate(PROMPT), lambda own: first(own.chat("chatml").answer([USER])),
            lambda own: first(own.chat("chatml").reply([USER], stop="never")), lambda own: own.embed("a"),
            lambda own: own.session().eval_hidden([1]), lambda own: own.scheduler(n_ctx=64).add(PROMPT),
            lambda own: own.metadata]
    for i, use in enumerate(uses):
        n_file, own = len(os.listdir("/proc/self/fd")), hearth.Model(MODEL)
        gone, used = weakref.ref(own), use(own)
        del own, used
        gc.collect()
        assert gone() is None and len(os.listdir("/proc/self/fd")) == n_file, i


@case
def what_is_collected_within_the_library_is_closed_behind_it():
    class Handler(logging.Handler):
        def emit(self, record):
            own = model.session(n_ctx=32)
            del own
            seen.append((len(hearth._closed_late), record.getMessage()))

    seen, handler = [], Handler()
    logging.getLogger("hearth").addHandler(handler)
    try:
        hearth._log_fn(None, 1, b"line")
        assert seen == [(1, "line")] and len(hearth._closed_late) == 1
        model.tokenize("a")
    finally:
        logging.getLogger("hearth").removeHandler(handler)
    assert not hearth._closed_late


@case
def threads_run_at_once():
    expected = "".join(model.generate(PROMPT, max_tokens=30, **SAMPLING))
    texts = []
    threads = [threading.Thread(target=lambda: texts.append("".join(model.generate(PROMPT, max_tokens=30, **SAMPLING))))
               for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert texts == [expected] * 4, texts


LONG = """
import os, signal, sys, threading, time
import hearth
model = hearth.Model(sys.argv[1] if sys.argv[1:] else MODEL)
session = model.session(n_ctx=8192)
session.eval([1, 2, 3])
logits, ids = session.logits(), [5 + i % 1000 for i in range(8000)]

def interrupt():
    while not any(thread.name == "hearth" for thread in threading.enumerate()):
        time.sleep(0.001)
    time.sleep(0.05)
    os.kill(os.getpid(), signal.SIGINT)
"""


@case
def ctrl_c_ends_an_evaluation_and_leaves_the_session():
    code, out = run_python(f"MODEL = {MODEL!r}" + LONG + """
try:
    threading.Thread(target=interrupt).start()
    session.eval(ids)
    print("not interrupted")
except KeyboardInterrupt:
    assert session.position == 3 and session.logits() == logits and not model.cancelled
    session.eval([4])
    print("interrupted at", session.position)
""")
    assert (code, out) == (0, "interrupted at 4\n"), (code, out)


@case
def ctrl_c_while_its_thread_starts_leaves_the_session():
    class Starting(threading.Thread):
        def start(self):
            if order == "before":
                raise KeyboardInterrupt
            if order == "late":
                late.append(super().start)
                raise KeyboardInterrupt
            super().start()
            raise KeyboardInterrupt

    session, ids, late = model.session(n_ctx=2048), [5 + i % 1000 for i in range(2000)], []
    session.eval([1, 2, 3])
    before, threading.Thread = threading.Thread, Starting
    try:
        for order in ("before", "after", "late"):
            try:
                session.eval(ids)
            except KeyboardInterrupt:
                pass
            for start in late:
                start()
            assert session.position == 3 and not model.cancelled
            session.eval([4])
            session.truncate(3)
    finally:
        threading.Thread = before


@case
def ctrl_c_keeps_what_another_thread_cancels():
    begun = threading.Event()

    class Interrupted(threading.Thread):
        def start(self):
            super().start()
            begun.wait()
            raise KeyboardInterrupt

    def call():
        begun.set()
        while not model._cancel.value:
            time.sleep(0.001)
        model.cancelled = True

    before, threading.Thread = threading.Thread, Interrupted
    try:
        hearth._interruptible(model._cancel, call)
        raise AssertionError("it was not interrupted")
    except KeyboardInterrupt:
        assert model.cancelled
    finally:
        threading.Thread, model.cancelled = before, False
    model.session(n_ctx=64).eval([1, 2])


@case
def ctrl_c_ends_a_step_and_leaves_the_requests():
    code, out = run_python(f"MODEL = {MODEL!r}" + LONG + """
scheduler = hearth.Scheduler(model, n_ctx=8192, n_batch=8192)
request = scheduler.add(ids, max_tokens=3)
try:
    threading.Thread(target=interrupt).start()
    scheduler.run()
    print("not interrupted")
except KeyboardInterrupt:
    print(request.state, len(request.tokens))
scheduler.run()
print(request.state, len(request.tokens))
""")
    assert (code, out) == (0, "token 0\nlength 3\n"), (code, out)


@case
def evaluations_are_cancelled_by_another_thread():
    code, out = run_python(f"MODEL = {MODEL!r}" + LONG + """
ticks = []
def cancel():
    for _ in range(5): time.sleep(0.01); ticks.append(1)
    model.cancelled = True
threading.Thread(target=cancel).start()
try:
    session.eval(ids)
except hearth.Error as error:
    print(error.status, len(ticks), session.position)
model.cancelled = False
session.eval([4])
""")
    assert (code, out) == (0, "cancelled 5 3\n"), (code, out)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as FOLDER, hearth.Model(MODEL) as model:
        run_cases(__file__)
