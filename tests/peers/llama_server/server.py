#!/usr/bin/env python3
"""Starts `hearth serve` by the command line of llama.cpp's llama-server: what its tests have as LLAMA_SERVER_BIN_PATH.

HEARTH is the program, HEARTH_STORIES260K the model of most of those tests (ggml-org/test-model-stories260K), which also
takes the place of the BERT model of those about embeddings. An option of a thing that Hearth does not have is refused
with status 3; one that changes speed alone is left out. HEARTH_PEERS_WORK is a folder for templates and models.
"""
import hashlib
import os
import sys

STORIES = ("ggml-org/test-model-stories260K", "tinyllamas/stories260K.gguf", "bert-bge-small/ggml-model-f16.gguf")
IGNORED = {"--offline", "--jinja", "--no-jinja", "--cont-batching", "--embedding", "--metrics", "--slots", "--no-slots",
           "--no-mmproj", "--no-cache-idle-slots", "--verbose"}
IGNORED_VALUES = {"--batch-size", "--ubatch-size", "--n-gpu-layers", "-fa", "--cache-ram"}
SAME = [(name, name) for name in ("--port", "--alias", "--threads", "--temp", "--seed", "--n-predict", "--reasoning", "--pooling")]
FORMATS = {  # what llama.cpp means by these names
    "chatml": "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
              "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
    "llama3": "{% for m in messages %}<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n{{ m.content | trim }}<|eot_id|>"
              "{% endfor %}{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}",
    "command-r": "{% for m in messages %}<|START_OF_TURN_TOKEN|><|{{ 'CHATBOT' if m.role == 'assistant' else m.role | upper }}"
                 "_TOKEN|>{{ m.content | trim }}<|END_OF_TURN_TOKEN|>{% endfor %}"
                 "{% if add_generation_prompt %}<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>{% endif %}",
}


def refuse(words):
    print(f"hearth does not have this: {words}", file=sys.stderr)
    sys.exit(3)


def read_options(words):
    options, i = {}, 0
    while i < len(words):
        word = words[i]
        if word in IGNORED or word in ("--kv-unified",):
            options[word] = True
            i += 1
        else:
            if i + 1 == len(words):
                refuse(word)
            options[word] = words[i + 1]
            i += 2
    return options


def model_of(options):
    names = options.pop("--hf-repo", None), options.pop("--hf-file", None)
    if "--model" in options or (names[1] or names[0]) not in STORIES:
        refuse(f"the model {options.get('--model') or names}")
    if options.get("--pooling") == "none":
        refuse("vectors of each token")
    return os.environ["HEARTH_STORIES260K"]


def template_of(options):
    """The path of a file with the template."""
    if "--chat-template-file" in options:
        return options.pop("--chat-template-file")
    template = options.pop("--chat-template", "chatml")
    template = FORMATS.get(template, template).encode()
    path = os.path.join(os.environ["HEARTH_PEERS_WORK"], hashlib.sha256(template).hexdigest()[:16] + ".jinja")
    with open(path + ".part", "wb") as f:
        f.write(template)
    os.rename(path + ".part", path)
    return path


def main():
    options = read_options(sys.argv[1:])
    environment = {**os.environ, "HEARTH_API_KEY": options.pop("--api-key", "")}
    command = [os.environ["HEARTH"], "serve", model_of(options), "--gpu", "none", "--template", template_of(options)]
    slots = int(options.pop("--parallel", 4))
    context = int(options.pop("--ctx-size", 512))
    command += ["--parallel", str(slots), "--ctx", str(context if options.pop("--kv-unified", None) else context // slots)]
    for theirs, ours in [*SAME, ("-ctk", "--kv")]:
        if theirs in options:
            command += [ours, options.pop(theirs)]
    host = options.pop("--host", "127.0.0.1")
    if host != "127.0.0.1,::1":  # ours without the option
        command += ["--host", host]
    if options.pop("--reasoning-format", "deepseek") != "deepseek":
        refuse("reasoning that stays in the text for the whole server")
    left = [o for o in options if o not in IGNORED and o not in IGNORED_VALUES]
    if left:
        refuse(", ".join(left))
    os.execve(command[0], command, environment)


if __name__ == "__main__":
    main()
