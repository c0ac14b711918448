"""Options and commands as people know them from other programs: nearly all are taken, the others are refused by name,
with what to do instead. Called by CTest with the program's path. Python 3, standard library only."""

import json
import os
import re

import program
from program import MODEL, cases, case, check, hearth, good, bad, scratch, model_bytes
from chat_model import with_template

# Those of llama-cli and llama-server, each with a value.
LLAMA_CLI = """
    -m MODEL | --model MODEL | -p hello | --prompt hello | -f p.txt | --file p.txt | -n 4 | --n-predict 4 |
    --predict 4 | -c 256 | --ctx-size 256 | -t 1 | --threads 1 | -tb 1 | --threads-batch 1 | -b 256 |
    --batch-size 256 | -ub 256 | --ubatch-size 256 | -ngl 99 | --gpu-layers 99 | --n-gpu-layers 99 | -ngl all |
    -fa | -fa on | --flash-attn on | --flash-attn auto | --temp 0.5 | --top-k 40 | --top-p 0.9 | --min-p 0.05 |
    --repeat-penalty 1.1 | --repeat-last-n 64 | --presence-penalty 0.1 | --frequency-penalty 0.1 | --typical 1.0 |
    --seed 1 | -s 1 | --mirostat 2 | --mirostat-lr 0.1 | --xtc-probability 0.1 | --dry-multiplier 0.8 |
    --top-n-sigma 1 | --samplers top_k;temperature | --dynatemp-range 0.5 | --no-mmap | --mmap | --mlock |
    --numa distribute | -i | --interactive | -cnv | --conversation | -no-cnv | -st | --single-turn | -sys hi |
    --system-prompt hi | --system-prompt-file p.txt | -r STOP | --reverse-prompt STOP | -e | --escape |
    --no-escape | --color | --color auto | --jinja | --chat-template chatml | --chat-template-file p.txt |
    --chat-template-kwargs {"a":1} | --reasoning-format none | --reasoning-budget 0 | --grammar root::="a" |
    --grammar-file g.gbnf | -j {} | --json-schema {} | --lora x.gguf | --mmproj x.gguf | --image x.png |
    -hf org/model:Q4_K_M | --hf-repo org/model | --hf-file x.gguf | -ctk q8_0 | --cache-type-k q8_0 | -ctv q8_0 |
    --cache-type-v q8_0 | -nkvo | --no-kv-offload | -sm none | --split-mode none | -ts 1,1 | --tensor-split 1,1 |
    -mg 0 | --main-gpu 0 | -dev none | --device none | --list-devices | -ot exps=CPU | --override-tensor exps=CPU |
    -cmoe | --cpu-moe | -ncmoe 4 | --n-cpu-moe 4 | --rope-scaling yarn | --rope-freq-base 10000 |
    --rope-freq-scale 1 | --yarn-orig-ctx 4096 | --ignore-eos | --no-display-prompt | --no-warmup |
    --verbose-prompt | -v | --verbose | --log-disable | --log-verbosity 1 | --prompt-cache x.bin | --keep 4 |
    --context-shift | --no-context-shift | --simple-io | -md d.gguf | --model-draft d.gguf | --draft-max 8 |
    -ngld 99 | --spec-type ngram-simple | --special | --no-perf | --perf | --version | -h | --help |
    --check-tensors | --override-kv a=int:1 | --swa-full | -C ff | --prio 1 | --poll 0 | --offline | --fit on |
    --no-repack | -bs
"""

LLAMA_SERVER = """
    -m MODEL | --host 0.0.0.0 | --port 8081 | -c 256 | -np 2 | --parallel 2 | -cb | --cont-batching |
    --api-key abc | --api-key-file k.txt | -a name | --alias name | --jinja | --no-jinja | --chat-template chatml |
    --chat-template-file p.txt | --chat-template-kwargs {"enable_thinking":false} | --reasoning-format deepseek |
    --reasoning-budget 0 | --reasoning off | --embedding | --embeddings | --pooling last | --rerank | --metrics |
    --slots | --no-slots | --props | --slot-save-path d | --path d | --no-webui | --no-ui | --ssl-key-file k |
    --ssl-cert-file c | -to 600 | --timeout 600 | --threads-http 2 | --cache-reuse 256 | --cache-ram 100 |
    --no-cache-prompt | --cache-prompt | --warmup | --no-warmup | --lora x | --mmproj x | --spm-infill | -fa on |
    -ngl 99 | -ctk q8_0 | --temp 0.5 | --top-k 40 | --top-p 0.9 | --min-p 0.1 | --seed 1 | -n 10 | --models-dir d |
    --models-max 2 | --no-mmap | --mlock | -hf org/m | -md d.gguf | --spec-type ngram-simple | --log-file x |
    --api-prefix /x | --media-path x | --tools all | --keep 1 | --context-shift | --rope-scaling yarn |
    --sleep-idle-seconds 5 | --kv-unified | -ub 128 | -v | --fim-qwen-1.5b-default
"""

# What is not there, or would let others in.
REFUSED = {
    "run": {"--lora", "--mmproj", "--image", "--context-shift"},
    "serve": {"--api-key", "--ssl-key-file", "--ssl-cert-file", "--lora", "--mmproj", "--spm-infill",
              "--context-shift", "--fim-qwen-1.5b-default"},
}
NEEDS_NETWORK = {"-hf", "--hf-repo", "--hf-file"}
OFFLINE = {"HF_ENDPOINT": "http://127.0.0.1:9", "HF_HUB_CACHE": "/nowhere"}
TEMPLATE = "{% for m in messages %}{{ m.content }}\n{% endfor %}"


def entries(text):
    return [re.split(" +", e.strip(), maxsplit=1) for e in re.split(r"\s\|\s", text.strip())]


def files():
    scratch("model.gguf", with_template(model_bytes(), TEMPLATE))
    scratch("d.gguf", model_bytes())
    scratch("p.txt", b"hello")
    scratch("g.gbnf", b'root ::= "a"')
    scratch("k.txt", b"0123456789abcdef0123456789abcdef\n")
    os.chmod(scratch("k.txt"), 0o600)
    os.mkdir(scratch("d"))
    scratch("d/model.gguf", model_bytes())


def refusals(command, text, *more):
    """The spellings that a command refuses, each with its message."""
    refused = {}
    for words in entries(text):
        words = ["model.gguf" if w == "MODEL" else w for w in words]
        own = {"-m", "--model", "--models-dir"} | NEEDS_NETWORK
        args = [command, *([] if words[0] in own else ["model.gguf"]), *words]
        args += [m for m in more if m.split("=")[0] != words[0] and (m != "-n2" or words[0] not in ("-n", "--n-predict", "--predict"))]
        done = hearth(*args, cwd=scratch(), env=OFFLINE, stdin=b"")
        message = done.stderr.decode().strip().split("\n")[-1]
        check(b"Traceback" not in done.stderr and done.returncode in (0, 1, 2), args, done.stderr)
        check(done.returncode == 2 or words[0] in NEEDS_NETWORK | {"--host"} or done.returncode == 0, args, done.stderr)
        if done.returncode == 2 and words[0] not in NEEDS_NETWORK:
            refused[words[0]] = message
    return refused


@case
def few_options_of_llama_cpp_are_refused():
    files()
    check(len(entries(LLAMA_CLI)) == 141 and len(entries(LLAMA_SERVER)) == 74, "the lists")
    found = {"run": refusals("run", LLAMA_CLI, "-n2"), "serve": refusals("serve", LLAMA_SERVER, "--check", "--port=0")}
    for command, refused in found.items():
        check(set(refused) == REFUSED[command], command, set(refused) ^ REFUSED[command])
        for word, message in refused.items():
            check(message.startswith(f"hearth: {word}: ") and "no such option" not in message, message)
    check(sum(map(len, found.values())) <= 18, found)


@case
def what_is_not_needed_is_one_warning():
    card = ["--jinja", "-ngl", "99", "-fa", "on", "-c", "256", "--temp", "0.7", "--top-k", "20", "--top-p", "0.8", "--min-p", "0",
            "--presence-penalty", "1.5", "--no-context-shift", "-sm", "row", "-n", "8", "-p", "Once", "--seed", "1", "--gpu", "none"]
    done = good("run", MODEL, *card)
    warned = [l for l in done.stderr.decode().split("\n") if "not needed here" in l]
    check(warned == ["hearth: warning: not needed here, and without effect: --jinja, -fa, --no-context-shift, -sm"], done.stderr)
    without = [w for w in card if w not in ("--jinja", "-fa", "on", "--no-context-shift", "-sm", "row")]
    check(good("run", MODEL, *without).stdout == done.stdout, "the text changes")
    check(b"attention always goes block by block" in good("run", MODEL, "-fa", "-n", "1", "-v").stderr, "why")
    bad(2, "--reasoning-format none: reasoning is a field of its own", "serve", MODEL, "--reasoning-format", "none", "--check")


@case
def values_are_taken_as_llama_cpp_writes_them():
    ask = ["-p", "Once", "-n", "24", "--seed", "1", "--temp", "2", "--min-p", "0", "--top-p", "1"]
    for given, same in (["--top-k", "-1"], ["--top-k", "0"]), (["--top-k=-1"], ["--top-k", "0"]), (["-t", "-1"], []), (["-t-1"], []):
        check(good("run", MODEL, *ask, *given).stdout == good("run", MODEL, *ask, *same).stdout, given)
    for given in ["-l", "300+80"], ["--logit-bias", "300+80"], ["-l", "300=80"]:
        check(good("run", MODEL, *ask, *given).stdout == good("run", MODEL, *ask, "--logit-bias", "300=80").stdout != good("run", MODEL, *ask).stdout, given)
    check(good("run", MODEL, *ask, "-l", "300-inf", "-l", "301-9.5").stdout == good("run", MODEL, *ask, "--logit-bias", "300=-inf", "--logit-bias", "301=-9.5").stdout, "-")
    for wrong in "300", "+1", "300+", "x-1":
        bad(2, "expected ID=X", "run", MODEL, "-l", wrong)
    check(good("run", MODEL, *ask, "--top-k", "-1").stdout != good("run", MODEL, *ask).stdout, "40 is the default")
    bad(2, "allowed are -1 to 4194304", "run", MODEL, "--top-k", "-2")
    bad(2, "allowed are 1 to 256", "run", MODEL, "-t", "-2")


@case
def what_is_left_undone_names_what_does_it():
    for command, answer in ("run", b"--session FILE --save-session FILE"), ("chat", b"/save FILE and /load FILE"):
        model = MODEL if command == "run" else scratch("model.gguf", with_template(model_bytes(), TEMPLATE))
        done = good(command, model, "--prompt-cache", "x.bin", "--jinja", "-n", "1", "-p", "Once", *(["-st"] if command == "chat" else []))
        check(b"warning: --prompt-cache has no effect here: " + answer in done.stderr and b"without effect: --jinja\n" in done.stderr, done.stderr)
        check(b"--prompt-cache" not in good(command, model, "-n", "1", "-p", "Once", *(["-st"] if command == "chat" else [])).stderr, "it is said")
    bad(2, "--prompt-cache needs a value", "run", MODEL, "--prompt-cache")
    check(b"without effect: -o" in good("bench", MODEL, "-o", "md", "-p", "8", "-n", "1", "-r", "1").stderr, "a table")
    bad(2, "-o json: --json prints JSON", "bench", MODEL, "-o", "json")


@case
def exact_spellings_of_others_go_before_prefixes():
    bad(2, "--temperature 'x'", "serve", MODEL, "--temp", "x", "--check")
    check(b"without effect: -fmoe, -mla" in good("run", MODEL, "-fmoe", "-mla", "2", "-n", "1").stderr, "-fmoe -mla")
    bad(2, "-mm: Hearth reads text alone", "run", "-mm", "x")
    bad(2, "--api-key: keys are seen", "serve", MODEL, "--api-key", "abc")


@case
def keys_and_values_have_one_type():
    both = good("run", MODEL, "-ctk", "q8_0", "-ctv", "q8_0", "-p", "Once", "-n", "8", "--gpu", "none").stdout
    check(both == good("run", MODEL, "--kv", "q8_0", "-p", "Once", "-n", "8", "--gpu", "none").stdout, "-ctk -ctv")
    bad(2, "--kv is given with two values", "run", MODEL, "-ctk", "q8_0", "-ctv", "f16")


@case
def a_conversation_in_run_is_chat():
    files()
    told = good("chat", "model.gguf", "-p", "Once upon a time", "-n", "8", "--greedy", cwd=scratch()).stdout
    check(len(told) > 10, told)
    for words in (["-cnv"], ["--interactive"], ["-i"], ["--chat-template-kwargs", '{"a": 1}']):
        check(good("run", "model.gguf", *words, "-p", "Once upon a time", "-n", "8", "--greedy", cwd=scratch()).stdout == told, words)
    text = scratch("first.txt", b"Once upon a time\n")
    check(good("chat", "model.gguf", "-f", text, "-n", "8", "--greedy", cwd=scratch()).stdout == told, "-f")
    more = b"And then?\n"
    check(good("chat", "model.gguf", "-p", "Once upon a time", "-n", "8", "--greedy", cwd=scratch(), stdin=more).stdout != told, "on")
    check(good("chat", "model.gguf", "-p", "Once upon a time", "-n", "8", "--greedy", "-st", cwd=scratch(), stdin=more).stdout == told,
          "-st")
    check(good("chat", "model.gguf", "-n", "8", "--greedy", "-st", cwd=scratch(), stdin=b"Once upon a time\n" + more).stdout == told,
          "-st with a pipe")
    by_text = good("chat", "model.gguf", "--system", "Be brief.", "-p", "Once", "-n", "8", "--greedy", cwd=scratch()).stdout
    system = scratch("system.txt", b"Be brief.\n")
    check(good("run", "model.gguf", "-sysf", system, "-p", "Once", "-n", "8", "--greedy", cwd=scratch()).stdout == by_text, "-sysf")


@case
def escapes_are_characters_if_asked():
    def ids(*words):
        return json.loads(good("run", MODEL, "-n", "1", "--json", *words).stdout)["prompt"]

    check(ids("-p", r"a\nb\tc\\d\x41\q", "-e") == "a\nb\tc\\dA\\q", ids("-p", r"a\nb\tc\\d\x41\q", "-e"))
    check(ids("-p", r"a\nb") == r"a\nb" == ids("-p", r"a\nb", "--no-escape"), "without")


@case
def metadata_may_be_given():
    def story(*words):
        return good("run", MODEL, "-p", "Once upon a time", "-n", "24", "--greedy", "--gpu", "none", *words).stdout

    plain = story()
    base = story("--rope-freq-base", "500")
    check(base != plain and base == story("--override-kv", "llama.rope.freq_base=float:500"), base)
    check(base == story("--override-kv", ".rope.freq_base=float:500"), base)
    scaled = story("--rope-scaling", "yarn", "--rope-freq-scale", "0.25", "--yarn-orig-ctx", "16")
    check(scaled != plain and scaled == story("--rope-scaling", "yarn", "--rope-scale", "4", "--yarn-orig-ctx", "16"), scaled)
    check(story("--rope-scaling", "none", "--rope-scale", "4") == plain, "none")
    ids = json.loads(good("run", MODEL, "-n", "1", "-p", "a", "--json", "--override-kv",
                          "tokenizer.ggml.add_bos_token=bool:false").stdout)["prompt_ids"]
    with_bos = json.loads(good("run", MODEL, "-n", "1", "-p", "a", "--json").stdout)["prompt_ids"]
    check([1, *ids] == with_bos, ids, with_bos)
    bad(1, "--override-kv 'a=b': expected KEY=TYPE:VALUE", "run", MODEL, "--override-kv", "a=b")
    bad(2, "--rope-freq-scale and --rope-scale contradict", "run", MODEL, "--rope-scale", "4", "--rope-freq-scale", "4")
    warned = good("run", MODEL, "--override-kv", ".context_length=int:64", "-c", "128", "-n", "1", "-p", "a").stderr
    check(b"was trained for 64" in warned, warned)


@case
def samplers_are_a_list():
    def story(*words):
        return good("run", MODEL, "-p", "Once", "-n", "12", "--seed", "3", "--gpu", "none", *words).stdout

    check(story("--samplers", "top_k;temperature", "--top-k", "5") ==
          story("--top-k", "5", "--top-p", "1", "--min-p", "0"), "a list")
    check(story("--samplers", "top_k;temperature", "--top-k", "1", "--top-p", "0.1") == story("--greedy"), "others are off")
    bad(2, "--samplers 'temperature;top_k': expected some of penalties;dry;", "run", MODEL, "--samplers", "temperature;top_k")


@case
def samplers_are_those_of_the_file():
    def of_file(*keys):
        return [w for k in keys for w in ("--override-kv", "general.sampling." + k)]

    def story(*words):
        return good("run", MODEL, "-p", "Once", "-n", "48", "--seed", "3", "--gpu", "none", *words).stdout

    check(story(*of_file("temp=float:0")) == story("--greedy") != story(), "temp")
    check(story(*of_file("top_k=int:1")) == story("--top-k", "1") == story("--greedy"), "top_k")
    check(story(*of_file("temp=float:0.3", "top_p=float:0.5", "min_p=float:0")) ==
          story("--temp", "0.3", "--top-p", "0.5", "--min-p", "0"), "several")
    check(story(*of_file("temp=float:0"), "--temp", "0.8") == story(), "options go before the file")
    check(story(*of_file("sequence=str:top_k;temperature", "top_k=int:5")) ==
          story("--samplers", "top_k;temperature", "--top-k", "5"), "sequence")
    done = good("run", MODEL, "-n", "1", *of_file("top_p=float:7"))
    check(b"warning: general.sampling.top_p is left out: expected a number from 0 to 1" in done.stderr, done.stderr)


@case
def weights_are_checked_if_asked():
    good("run", MODEL, "-n", "1", "--check-tensors")
    wrong = bytearray(program.tiny_model())
    wrong[-2:] = b"\x00\x7e"  # NaN in F16
    bad(1, "blk.0.ffn_down.weight", "run", scratch("wrong.gguf", bytes(wrong)), "-n", "1", "--check-tensors")


@case
def quantize_takes_what_llama_quantize_does():
    def types(*words):
        out = scratch("out.gguf")
        said = good("quantize", *words[:1], out, *words[1:], "--force").stderr
        shown = json.loads(good("inspect", "--json", "--all", out).stdout)
        return {t["name"]: t["type"].lower() for t in shown["tensors"]}, said

    f16 = scratch("f16.gguf", program.tiny_model())
    by_name, by_number = types(f16, "Q4_K_M"), types(f16, "15", "2")
    check(by_name == by_number and by_name[0]["blk.0.attn_v.weight"] == "q6_k", by_name)
    found, said = types(f16, "Q4_K_M", "--tensor-type", "attn_(v|k)=q8_0", "--token-embedding-type", "f16", "--tensor-type", "ffn=q5_0")
    check(found["blk.0.attn_v.weight"] == found["blk.0.attn_k.weight"] == "q8_0", found)
    check(found["token_embd.weight"] == "f16" and found["blk.0.ffn_up.weight"] == "q5_0", found)
    check(found["blk.0.attn_q.weight"] == "q4_k", found)
    check(b"none of " not in said, said)
    _, said = types(f16, "Q4_K_M", "--tensor-type", ".=q8_0")
    check(said.count(b"none of 8 matrices became Q4_K, as Q4_K_M asks: 8 are Q8_0\n") == 1, said)
    for wrong, word in [("x=q9", "expected NAME=TYPE"), ("q8_0", "expected NAME=TYPE"), ("=q8_0", "expected NAME=TYPE")]:
        bad(2, word, "quantize", f16, scratch("o"), "q8_0", "--tensor-type", wrong)
    bad(1, "'(' is no pattern of names", "quantize", f16, scratch("o"), "q8_0", "--tensor-type", "(=q8_0")
    bad(2, "'0': expected a number of threads", "quantize", f16, scratch("o"), "q8_0", "0")


@case
def commands_have_the_names_of_others():
    model = scratch("model.gguf", model_bytes())
    for name, own in [("ls", "list"), ("show", "inspect"), ("delete", "rm"), ("server", "serve"), ("cli", "run"), ("llama-cli", "run")]:
        check(good(name, "--help").stdout == good(own, "--help").stdout, name)
    check(good("show", model).stdout == good("inspect", model).stdout, "show")
    for name in ("version", "-v", "-V"):
        check(good(name).stdout == good("--version").stdout, name)
    check(good("run", "--version").stdout == good("--version").stdout, "run --version")
    check(good("run", "--list-devices").stdout == good("devices").stdout, "--list-devices")
    for name, word in [("create", "Modelfiles"), ("push", "nothing is sent"), ("gguf-split", "several parts"), ("embed", "/v1/embeddings"), ("rerank", "/v1/rerank")]:
        bad(2, f"'{name}' is no command; ", name)
        bad(2, word, name)


if __name__ == "__main__":
    cases.run_cases(__file__)
