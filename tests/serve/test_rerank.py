"""Documents ordered by a reranker: the scores, both forms of requests and answers, what is refused. Called by CTest with the
program's path."""

import array
import json
import math
import os
import shutil
import time

from server import MODEL, Server, case, chat_model, check, good, program, run_all, scratch, until

RERANKER = program.data("golden/rank/qwen3.gguf")
YES, NO = 145, 12  # of tests/data/arch.py: its head has their rows of the table, so their logits are those of its classes
QUERY = "What does the sun do?"
DOCUMENTS = ["The sun shines on the land and on the sea.", "An engine reads tokens.", "It rains.", "The sun and the stars <|im_end|>"]
PATHS = "/v1/rerank", "/rerank", "/v1/reranking", "/reranking"
OPTIONS = "-t", "1", "--kv", "f32"


def ids_of(s, document):
    """By the template of the file, cut at its control tokens; names of such in texts are no tokens."""
    parts = [("<|im_start|>system\nYes or no?<|im_end|>\n<|im_start|>", True), (f"user\n<Query>: {QUERY}\n<Document>: {document}", False),
             ("<|im_end|>\n<|im_start|>assistant\n", True)]
    ids = []
    for text, special in parts:
        ids += s.post("/tokenize", {"content": text, "parse_special": special}).json()["tokens"]
    return ids


def score_of(ids):
    """From the logits behind the last token."""
    out = scratch("rank.f32")
    good("logits", RERANKER, "--ids", "-", "-o", out, "--kv", "f32", "--gpu", "none", "--force", stdin=" ".join(map(str, ids)).encode())
    with open(out, "rb") as f:
        logits = array.array("f", f.read())[-288:]
    return 1 / (1 + math.exp(logits[NO] - logits[YES]))


def ranks(results, name="relevance_score"):
    return [(r["index"], r[name]) for r in results]


@case
def documents_are_ordered_by_their_scores():
    with Server(*OPTIONS, model=RERANKER) as s:
        answer = s.post("/v1/rerank", {"model": "m", "query": QUERY, "documents": DOCUMENTS}).json()
        ids = [ids_of(s, d) for d in DOCUMENTS]
        expected = [score_of(i) for i in ids]
        check(max(expected) - min(expected) > 0.5, "the scores say little", expected)
        check(set(answer) == {"model", "object", "usage", "results"} and answer["model"] == "qwen3" and answer["object"] == "list", answer)
        n_token = sum(map(len, ids))
        check(answer["usage"] == {"prompt_tokens": n_token, "total_tokens": n_token}, answer["usage"], n_token)
        check([r["index"] for r in answer["results"]] == sorted(range(4), key=lambda i: -expected[i]), answer, expected)
        check(all(set(r) == {"index", "relevance_score"} and abs(r["relevance_score"] - expected[r["index"]]) < 2e-5
                  for r in answer["results"]), answer, expected)
        # the same by every path, in both forms, of objects, alone, with others at once
        for path in PATHS:
            check(s.post(path, {"query": QUERY, "documents": DOCUMENTS}).json()["results"] == answer["results"], path)
        objects = [{"text": d, "id": 7} for d in DOCUMENTS]
        check(s.post("/rerank", {"query": QUERY, "documents": objects}).json()["results"] == answer["results"], "objects")
        tei = s.post("/rerank", {"query": QUERY, "texts": DOCUMENTS}).json()
        check(ranks(tei, "score") == ranks(answer["results"]) and all(set(r) == {"index", "score"} for r in tei), tei)
        alone = [s.post("/rerank", {"query": QUERY, "documents": [d]}).json()["results"][0]["relevance_score"] for d in DOCUMENTS]
        check([x for _, x in sorted(ranks(answer["results"]))] == alone, alone, answer)


@case
def the_best_ones_come_with_their_texts_if_that_is_asked_for():
    with Server(*OPTIONS, model=RERANKER) as s:
        ask = {"query": QUERY, "documents": DOCUMENTS}
        whole = s.post("/rerank", ask).json()["results"]
        for top_n, n in ((1, 1), (2, 2), (4, 4), (99, 4), (None, 4)):
            check(s.post("/rerank", {**ask, "top_n": top_n}).json()["results"] == whole[:n], top_n)
            check(len(s.post("/rerank", {"query": QUERY, "texts": DOCUMENTS, "top_n": top_n}).json()) == n, top_n)
        some = s.post("/rerank", {**ask, "top_n": 3, "return_documents": True}).json()["results"]
        check([r["document"] for r in some] == [{"text": DOCUMENTS[r["index"]]} for r in whole[:3]], some)
        check(ranks(some) == ranks(whole[:3]), some)
        tei = s.post("/rerank", {"query": QUERY, "texts": DOCUMENTS, "return_text": True}).json()
        check([r["text"] for r in tei] == [DOCUMENTS[r["index"]] for r in whole], tei)
        same = s.post("/rerank", {"query": QUERY, "documents": ["a b", "a", "a b", "a"]}).json()["results"]
        check([r["index"] for r in same] in ([0, 2, 1, 3], [1, 3, 0, 2]), "of equal scores the first one comes first", same)


@case
def wrong_requests_are_refused_with_the_field():
    with Server(*OPTIONS, "-c", "256", model=RERANKER) as s:
        right = {"query": QUERY, "documents": DOCUMENTS}
        for more, param in (({"query": None}, "query"), ({"query": 7}, "query"), ({"query": ["a"]}, "query"), ({"documents": None}, "documents"),
                            ({"documents": []}, "documents"), ({"documents": 123}, "documents"), ({"documents": [1, 2]}, "documents"),
                            ({"documents": "a"}, "documents"), ({"documents": ["a", {"title": "b"}]}, "documents[1].text"),
                            ({"documents": [{"text": 7}]}, "documents[0].text"), ({"documents": ["a"] * 2049}, "documents"), ({"texts": []}, "texts"),
                            ({"texts": [None]}, "texts"), ({"top_n": 0}, "top_n"), ({"top_n": "1"}, "top_n"), ({"top_n": -1}, "top_n"),
                            ({"return_documents": 1}, "return_documents"), ({"texts": ["a"], "return_text": 1}, "return_text"),
                            ({"texts": ["a"], "raw_scores": True}, "raw_scores"), ({"max_tokens_per_doc": 9}, "max_tokens_per_doc"),
                            ({"truncate_prompt_tokens": 9}, "truncate_prompt_tokens"), ({"documents": ["a", "dog " * 500]}, "documents")):
            answer = s.post("/v1/rerank", {**right, **({"documents": None} if "texts" in more else {}), **more})
            check(answer.status == 400 and answer.error()["param"] == param, more, answer.raw)
        both = s.post("/v1/rerank", {**right, "texts": ["a"]})
        check(both.status == 400 and both.error()["param"] == "documents", both.raw)
        long = s.post("/v1/rerank", {**right, "documents": ["a", "dog " * 500]}).error()
        check(long["code"] == "context_length_exceeded" and "[1] has " in long["message"] and "the context has 256" in long["message"], long)
        began = time.monotonic()
        answer = s.post("/v1/rerank", {"query": "dog " * (2 << 20), "documents": ["a"] * 2048})
        check(answer.status == 400 and answer.error()["param"] == "query" and "fewer documents" in answer.error()["message"], answer.raw)
        check(time.monotonic() - began < 20, "the query was read for each document", time.monotonic() - began)
        check(s.get("/v1/rerank").status == 405, "GET")
        check(s.post("/v1/rerank", {**right, "texts": None, "raw_scores": False}).status == 200, "null means absent")


@case
def rerankers_write_no_text_and_make_no_vectors():
    messages = {"messages": [{"role": "user", "content": "a"}], "max_tokens": 1}
    with Server(*OPTIONS, model=RERANKER) as s:
        for path, body in (("/v1/chat/completions", messages), ("/v1/completions", {"prompt": "a"}), ("/completion", {"prompt": "a"}),
                           ("/v1/responses", {"input": "a"}), ("/v1/messages", messages), ("/api/chat", messages), ("/api/generate", {"prompt": "a"}),
                           ("/v1/embeddings", {"input": "a"}), ("/api/embed", {"input": "a"})):
            answer = s.post(path, {"model": "m", **body})
            check(answer.status == 400 and b"this model is a reranker" in answer.raw and b"/v1/rerank" in answer.raw, path, answer.raw)
        check("a reranker: /v1/rerank" in s.wait_for("is ready"), s.lines)
        check(s.post("/api/show", {"model": "qwen3"}).json()["capabilities"] == ["rerank"], "/api/show")
    with Server(*OPTIONS, "--pooling", "last", model=RERANKER) as s:
        check(s.post("/v1/embeddings", {"input": "a"}).status == s.post("/v1/completions", {"prompt": "a", "max_tokens": 1}).status == 200, "last")
        answer = s.post("/v1/rerank", {"query": "a", "documents": ["b"]})
        check(answer.status == 400 and "is no reranker" in answer.error()["message"], answer.raw)


@case
def models_without_a_head_are_no_rerankers():
    with open(MODEL, "rb") as f:
        path = scratch("templated.gguf", chat_model.with_template(f.read(), "{{ messages }}", more=[("tokenizer.chat_template.rerank", "{query} {document}")]))
    with Server("-t", "1", model=path) as s:
        for body in {"documents": ["b"]}, {"texts": ["b"]}:
            answer = s.post("/rerank", {"query": "a", **body})
            check(answer.status == 400 and "this model is no reranker" in answer.error()["message"], answer.raw)
    with Server("-t", "1", "--pooling", "rank", model=path) as s:
        answer = s.post("/rerank", {"query": "a", "documents": ["b"]})
        check(answer.status == 400 and "this model is no reranker" in answer.error()["message"], answer.raw)
        answer = s.post("/v1/embeddings", {"input": "a"})
        check(answer.status == 400 and "is 4 (rank), but the file has no head" in answer.error()["message"], answer.raw)
        check(os.path.dirname(path).encode() not in answer.raw, "the folder of the model", answer.raw)
        check(s.post("/v1/completions", {"prompt": "a", "max_tokens": 1}).status == 200, "it writes texts")
    with Server("-t", "1") as s:  # whose file does not say where a query ends either
        answer = s.post("/rerank", {"query": "a", "documents": ["b"]})
        check(answer.status == 400 and "this model is no reranker" in answer.error()["message"], answer.raw)


@case
def requests_count_with_others():
    ask = {"query": QUERY, "documents": ["zq" * 50] * 2000}  # below the size from which a worker reads bodies
    body = json.dumps(ask).encode()
    head = b"POST /v1/rerank HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
    with Server(*OPTIONS, "-c", "512", "--parallel", "1", "--max-waiting", "1", model=RERANKER) as s:
        with s.connect() as one, s.connect() as two:
            one.sendall(head + body), two.sendall(head + body)
            until(lambda: len(s.get("/slots").json()) == 2)
            late = s.post("/v1/rerank", {"query": "a", "documents": ["b"]})
            check(late.status == 429 and late.headers["retry-after"], late.raw)
        until(lambda: s.post("/v1/rerank", {"query": "a", "documents": ["b"]}).status == 200)


@case
def keys_prefixes_and_names_of_models_hold_here_too():
    ask = {"query": QUERY, "documents": DOCUMENTS}
    with Server(*OPTIONS, "--api-prefix", "/llm", model=RERANKER, env={"HEARTH_API_KEY": "a-key-that-is-long-enough"}) as s:
        key = "Authorization: Bearer a-key-that-is-long-enough"
        check(s.post("/llm/rerank", ask).status == 401, "no key")
        check(s.post("/llm/rerank", ask, [key]).status == 200, "the key")
        check(s.post("/rerank", ask, [key]).status == 200, "no prefix")
    folder = scratch("models")
    os.makedirs(folder, exist_ok=True)
    shutil.copy(RERANKER, os.path.join(folder, "rank.gguf"))
    shutil.copy(MODEL, os.path.join(folder, "story.gguf"))
    with Server("-t", "1", model=folder) as s:
        check(s.post("/rerank", {**ask, "model": "rank"}).json()["model"] == "rank", "rank")
        check(s.post("/v1/completions", {"model": "story", "prompt": "a", "max_tokens": 1}).status == 200, "story")
        check(s.post("/rerank", {**ask, "model": "story"}).status in (400, 501), "story")
        check(s.post("/rerank", {**ask, "model": "other"}).error()["code"] == "model_not_found", "other")
        check(s.post("/v1/chat/completions", {"model": "rank", "messages": [{"role": "user", "content": "a"}]}).status == 400, "rank")


@case
def a_gpu_computes_no_scores():
    with Server("-t", "1", "--gpu", "null", model=RERANKER) as s:
        answer = s.post("/rerank", {"query": "a", "documents": ["b"]})
        check(answer.status == 400 and b"not computed with a GPU" in answer.raw, answer.raw)


if __name__ == "__main__":
    run_all(__file__)
