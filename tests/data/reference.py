"""What the trained models compute, in double precision: greedy texts of storyteller and the perplexities of all three.

Nothing is shared with the engine: the tokenizer below is an own implementation of SentencePiece's BPE.
"""
import heapq
import json
import os

import numpy as np

import gguf
import storyteller
from forward import Model, softmax

HERE = os.path.dirname(os.path.abspath(__file__))
PROMPTS = ["Once upon a time", "Lily and Tom went to the park. They saw", "The little dog was sad because",
           "One day, a boy named Max found a shiny key", '"I am not afraid," said the small bird.']
N_GREEDY = 200
BOS = 1
FILES = {"storyteller-drelu": None, "stories260K": "models/stories260K/stories260K-f32.gguf",
         "babyllama-tok361": "models/babyllama-tok361/babyllama-tok361-f32.gguf"}
FIRST = {256: 60, 512: 30}  # chunks of stories for the short tests, by their positions
# (model, text, positions of a chunk)
PERPLEXITIES = [("storyteller-drelu", "stories", 256), ("storyteller-drelu", "stories", 512),
                ("storyteller-drelu", "english", 256), ("storyteller-drelu", "english", 512),
                ("stories260K", "stories", 256), ("stories260K", "stories", 512), ("stories260K", "english", 256),
                ("stories260K", "english", 512), ("babyllama-tok361", "stories", 256), ("babyllama-tok361", "english", 256)]


def tokenize(file, text):
    """BOS and the text, with a space in front, merged by score; of equal scores the leftmost first."""
    pieces, scores = file.meta("tokenizer.ggml.tokens"), file.meta("tokenizer.ggml.scores")
    ids = {piece: i for i, piece in enumerate(pieces)}
    symbols = list("\u2581" + text.replace(" ", "\u2581"))
    left, right = list(range(-1, len(symbols) - 1)), [*range(1, len(symbols)), -1]
    queue = []

    def offer(a):
        b = right[a] if a >= 0 else -1
        joined = ids.get(symbols[a] + symbols[b]) if b >= 0 else None
        if joined is not None:
            heapq.heappush(queue, (-scores[joined], a, symbols[a], symbols[b]))

    for a in range(len(symbols)):
        offer(a)
    while queue:
        _, a, first, second = heapq.heappop(queue)
        b = right[a]
        if symbols[a] != first or b < 0 or symbols[b] != second:
            continue  # one of the two was merged meanwhile
        symbols[a], symbols[b], right[a] = first + second, "", right[b]
        if right[b] >= 0:
            left[right[b]] = a
        offer(a)
        offer(left[a])
    out = [BOS]
    for symbol in filter(None, symbols):
        out += [ids[symbol]] if symbol in ids else [ids[f"<0x{byte:02X}>"] for byte in symbol.encode()]
    return out


def greedy(model, file, prompt):
    """The object of a prompt in golden.json."""
    prompt_ids = tokenize(file, prompt)
    ids, margins, last = list(prompt_ids), [], None
    for _ in range(N_GREEDY):
        logits = model.forward(ids)[-1]
        last = logits if last is None else last
        second, first = np.sort(logits)[-2:]
        margins.append(first - second)
        ids.append(int(logits.argmax()))
    return {"prompt": prompt, "prompt_ids": prompt_ids, "ids": ids, "min_margin": round(min(margins), 6),
            "prompt_last_logits": [float(f"{x:.9g}") for x in last]}


def perplexity(model, ids, n_ctx):
    """-> chunks, scored tokens, perplexity, its standard error over the text

    Chunks of n_ctx tokens, an incomplete last one dropped, the first token of each replaced by BOS; the second half is
    scored."""
    losses = []
    for at in range(0, len(ids) - n_ctx + 1, n_ctx):
        chunk = [BOS] + ids[at + 1:at + n_ctx]
        p = softmax(model.forward(chunk)[n_ctx // 2:-1])
        losses.append(-np.log(p[np.arange(len(p)), chunk[n_ctx // 2 + 1:]]))
    losses = np.concatenate(losses)
    result = np.exp(losses.mean())
    return len(ids) // n_ctx, losses.size, result, result * losses.std(ddof=1) / np.sqrt(losses.size)


def make():
    files = {name: gguf.read(os.path.join(HERE, path)) if path else storyteller.floats() for name, path in FILES.items()}
    models = {name: Model(file) for name, file in files.items()}
    file, model = files["storyteller-drelu"], models["storyteller-drelu"]
    first, *more = [greedy(model, file, prompt) for prompt in PROMPTS]
    with open(os.path.join(HERE, "models/storyteller-drelu/golden.json"), "w", encoding="utf-8") as f:
        f.write(json.dumps({**first, "more": more}, separators=(",", ":")) + "\n")
    print("smallest margins:", *(story["min_margin"] for story in (first, *more)))
    print("| model | text | N | tokens with BOS | chunks | scored | perplexity | \u00b1 |")
    for name, text, n_ctx in PERPLEXITIES:
        with open(os.path.join(HERE, "text", text + ".txt"), encoding="utf-8", newline="") as f:
            ids = tokenize(files[name], f.read().removesuffix("\n"))
        for n_id in ([n_ctx * FIRST[n_ctx]] if text == "stories" else []) + [len(ids)]:
            n_chunk, n_scored, value, error = perplexity(models[name], ids[:n_id], n_ctx)
            print(f"| {name} | {text} | {n_ctx} | {len(ids):,} | {n_chunk} | {n_scored:,} | {value:.4f} | {error:.4f} |",
                  flush=True)
