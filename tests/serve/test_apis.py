"""What the APIs of conversations answer: chat completions with functions, Responses, Messages, Ollama's chat; in each the
same answer whole and as a stream, in the order of events that its clients expect. Called by CTest with the program's
path."""

import array
import base64
import contextlib
import json
import math
import os
import re
import threading

from server import CHATML, MODEL, TOOLS, Server, case, chat_model, check, events_of, joined_calls, lines_of, run_all, scratch, until

CITY = {"type": "object", "properties": {"city": {"enum": ["Bern", "Paris", "Rome"]}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
        "required": ["city", "days"], "additionalProperties": False}
FUNCTIONS = [{"type": "function", "function": {"name": "weather", "description": "of a city", "parameters": CITY}},
             {"type": "function", "function": {"name": "now"}}]
ASK = [{"role": "user", "content": "How warm is it?"}]


def model_with(template, name):
    with open(MODEL, "rb") as f:
        return scratch(name, chat_model.with_template(f.read(), template))


def good_arguments(text):
    arguments = json.loads(text)
    check(arguments["city"] in ("Bern", "Paris", "Rome") and 1 <= arguments["days"] <= 9 and len(arguments) == 2, text)
    return arguments


@case
def an_answer_is_calls_or_json_of_a_schema():
    schema = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 99}}, "required": ["n"], "additionalProperties": False}
    flat = [{"type": "function", **f["function"]} for f in FUNCTIONS]
    blocks = [{"name": f["function"]["name"], "input_schema": f["function"].get("parameters", {"type": "object"})} for f in FUNCTIONS]

    def chat(s, ask):
        answer = s.post("/v1/chat/completions", {**ask, "messages": ASK, "tools": FUNCTIONS, "parallel_tool_calls": False,
                                                 "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}}).json()
        message = answer["choices"][0]["message"]
        return [c["function"]["arguments"] for c in message.get("tool_calls", ())], message["content"]

    def anything(s, ask):
        choice = s.post("/v1/chat/completions", {**ask, "messages": ASK, "tools": FUNCTIONS, "parallel_tool_calls": False,
                                                 "response_format": {"type": "json_object"}}).json()["choices"][0]
        message = choice["message"]
        if choice["finish_reason"] == "length":  # a text of any length may be inside
            return None, None
        return [c["function"]["arguments"] for c in message.get("tool_calls", ())], message["content"] and '{"n": %d}' % len(json.loads(message["content"]))

    def responses(s, ask):
        answer = s.post("/v1/responses", {**ask, "max_output_tokens": ask["max_tokens"], "input": "Hi", "tools": flat, "parallel_tool_calls": False,
                                          "text": {"format": {"type": "json_schema", "name": "x", "schema": schema}}}).json()
        return ([i["arguments"] for i in answer["output"] if i["type"] == "function_call"],
                "".join(i["content"][0]["text"] for i in answer["output"] if i["type"] == "message"))

    def messages(s, ask):
        answer = s.post("/v1/messages", {**ask, "messages": ASK, "tools": blocks, "tool_choice": {"type": "auto", "disable_parallel_tool_use": True},
                                         "output_config": {"format": {"type": "json_schema", "schema": schema}}}).json()
        return ([json.dumps(b["input"]) for b in answer["content"] if b["type"] == "tool_use"],
                "".join(b["text"] for b in answer["content"] if b["type"] == "text"))

    with Server("-t", "1", model=model_with(TOOLS, "tools.gguf")) as s:
        for way in chat, anything, responses, messages:
            kinds = set()
            for seed in range(40):
                calls, text = way(s, {"max_tokens": 300, "seed": seed, "temperature": 1.0})
                if calls is None:
                    continue
                kinds.add(bool(calls))
                check(bool(calls) != bool(text), way.__name__, calls, text)
                check(calls and all(isinstance(json.loads(a), dict) for a in calls) or 0 <= json.loads(text)["n"] <= 99, way.__name__, calls, text)
                if len(kinds) == 2:
                    break
            check(kinds == {True, False}, way.__name__, kinds)
        bad_schema = {"type": "json_schema", "name": "x", "json_schema": {"schema": {"not": {"type": "null"}}}, "schema": {"not": {"type": "null"}}}
        for path, more, param in (("/v1/chat/completions", {"messages": ASK, "tools": FUNCTIONS, "response_format": bad_schema}, "response_format"),
                                  ("/v1/responses", {"input": "Hi", "tools": flat, "text": {"format": bad_schema}}, "text.format")):
            answer = s.post(path, more)
            check(answer.status == 400 and answer.error()["param"] == param and "JSON schema: #/not" in answer.error()["message"], answer.raw)
        answer = s.post("/v1/chat/completions", {"messages": ASK, "tools": FUNCTIONS, "grammar": 'root ::= "a"'})
        check(answer.status == 400 and answer.error()["param"] == "grammar", answer.raw)


@case
def what_a_schema_of_a_tool_asks_beyond_is_left_to_the_client():
    """Unless the function is strict. What zod writes for records says nothing."""
    parameters = {"type": "object", "properties": {"vars": {"type": "object", "additionalProperties": {"type": "string"}}}, "required": ["vars"]}
    with Server("-t", "1", model=model_with(TOOLS, "tools.gguf")) as s:
        for names, strict, status in (({"type": "string"}, True, 200), ({"pattern": "^x"}, True, 400), ({"pattern": "^x"}, False, 200), ({"pattern": "^x"}, None, 200)):
            parameters["properties"]["vars"]["propertyNames"] = names
            tools = [*FUNCTIONS, {"type": "function", "function": {"name": "record", "strict": strict, "parameters": parameters}}]
            for choice in "required", {"type": "function", "function": {"name": "record"}}:
                answer = s.post("/v1/chat/completions", {"messages": ASK, "tools": tools, "tool_choice": choice, "max_tokens": 3, "seed": 1})
                check(answer.status == status, names, strict, choice, answer.raw)
                warned = answer.json().get("warnings")
                if status == 400:
                    check("propertyNames is not supported" in answer.error()["message"], answer.raw)
                elif "pattern" in names:
                    check(len(warned) == 1 and warned[0].endswith("properties/vars/propertyNames: the keyword propertyNames is not supported"), warned)
                else:
                    check(warned is None, warned)
        prompts = {s.post("/apply-template", {"messages": ASK, "tools": [{"type": "function", "function": {"name": "f", "strict": strict}}]}).json()["prompt"]
                   for strict in (True, False, None)}
        check(len(prompts) == 1, prompts)


@case
def responses_go_on_with_what_is_stored():
    """By previous_response_id and by references, the same as with the full input; of one's own key, until it is deleted."""
    keys = scratch("keys", b"alice\nbob\n")
    os.chmod(keys, 0o600)
    alice, bob = ["x-api-key: alice"], ["x-api-key: bob"]
    ask = {"max_output_tokens": 12, "seed": 1, "temperature": 1.0, "instructions": "You are a dog."}
    more = [{"type": "message", "role": "user", "content": "And then?"}]
    with Server("-t", "1", "--api-key-file", keys, model=model_with(TOOLS, "tools.gguf")) as s:
        def post(body, headers=alice):
            return s.post("/v1/responses", body, headers)

        def same(one, other):
            check([i["content"][0]["text"] for i in one["output"]] == [i["content"][0]["text"] for i in other["output"]], one, other)
            check(one["usage"]["input_tokens"] == other["usage"]["input_tokens"], one["usage"], other["usage"])

        first = post({**ask, "input": "Once upon a time"}).json()
        check(first["store"] is True and first["previous_response_id"] is None, first)
        full = [{"role": "user", "content": "Once upon a time"}, *first["output"], *more]
        whole = post({**ask, "input": full}).json()
        second = post({**ask, "input": more, "previous_response_id": first["id"]}).json()
        same(second, whole)
        check(second["previous_response_id"] == first["id"], second)
        for kind in "item_reference", None:
            named = post({**ask, "input": [full[0], *({"type": kind, "id": i["id"]} for i in first["output"]), *more]}).json()
            same(named, whole)
        streamed = [e for _, e in events_of(post({**ask, "input": "And?", "previous_response_id": second["id"], "stream": True}))][-1]["response"]
        third = post({**ask, "input": [*full, *second["output"], {"role": "user", "content": "And?"}]}).json()
        same(streamed, third)
        after = post({**ask, "input": "Why?", "previous_response_id": streamed["id"], "store": False}).json()
        check(after["store"] is False and after["usage"]["input_tokens"] > third["usage"]["input_tokens"], after)
        n = s.post("/v1/responses/input_tokens", {"instructions": ask["instructions"], "input": more, "previous_response_id": first["id"]}, alice).json()
        check(n["input_tokens"] == second["usage"]["input_tokens"], n, second["usage"])
        for body, headers, param in (({"previous_response_id": after["id"], "input": "a"}, alice, "previous_response_id"),
                                     ({"previous_response_id": first["id"], "input": "a"}, bob, "previous_response_id"),
                                     ({"input": [{"type": "item_reference", "id": first["output"][0]["id"]}]}, bob, "input[0].id"),
                                     ({"input": [{"type": "item_reference", "id": ""}]}, alice, "input[0].id"),
                                     ({"input": [{"type": "item_reference", "id": after["output"][0]["id"]}]}, alice, "input[0].id")):
            answer = post({**ask, **body}, headers)
            check(answer.status == 404 and answer.error()["param"] == param and "send the full input" in answer.error()["message"], answer.raw)
        check(s.get("/v1/responses/" + first["id"], alice).json() == first, first)
        path = "/v1/responses/" + first["id"]
        for method, headers, status in (("GET", bob, 404), ("GET", [], 401), ("DELETE", bob, 404), ("DELETE", alice, 200), ("DELETE", alice, 404), ("GET", alice, 404)):
            answer = s.ask(method, path, headers=headers)
            check(answer.status == status, method, headers, answer.raw)
            check(status != 200 or answer.json() == {"id": first["id"], "object": "response", "deleted": True}, answer.raw)
        same(post({**ask, "input": more, "previous_response_id": second["id"], "seed": 2}).json(),
             post({**ask, "input": [*full, *second["output"], *more], "seed": 2}).json())  # what it shared is still there
    with Server("-t", "1", "--responses-store", "0", model=model_with(TOOLS, "tools.gguf")) as s:
        answer = s.post("/v1/responses", {"input": "a", "max_output_tokens": 1}).json()
        check(s.post("/v1/responses", {"input": "a", "previous_response_id": answer["id"]}).status == 404, "nothing is stored")


@case
def paths_of_llama_cpp_continue_texts_and_fill_gaps():
    before, behind, mark, place = 300, 301, 302, 303
    path = scratch("gaps.gguf")
    keys = {"fim_pre": before, "fim_suf": behind, "fim_mid": mark, "fim_sep": place}
    with open(MODEL, "rb") as f, open(path, "wb") as to:
        to.write(chat_model.with_template(f.read(), CHATML, more=[(f"tokenizer.ggml.{k}_token_id", v) for k, v in keys.items()]))
    with Server("-t", "1", model=path) as s:
        ask = {"prompt": "Once upon a time", "n_predict": 12, "seed": 4, "temperature": 0.9}
        whole = s.post("/completion", ask).json()
        other = s.post("/v1/completions", {**ask, "max_tokens": 12}).json()
        check(whole["content"] == other["choices"][0]["text"] and whole["content"], whole, other)
        check((whole["stop"], whole["stop_type"], whole["stopping_word"], whole["tokens_predicted"]) == (True, "limit", "", 12), whole)
        check(whole["tokens_evaluated"] == other["usage"]["prompt_tokens"] and whole["prompt"] == ask["prompt"] and whole["timings"]["predicted_n"] == 12, whole)
        check(whole["generation_settings"]["n_predict"] == 12 and whole["generation_settings"]["seed"] == 4, whole)
        events = [e for _, e in events_of(s.post("/completion", {**ask, "stream": True}))]
        check("".join(e["content"] for e in events) == whole["content"] and [e["stop"] for e in events] == [False] * (len(events) - 1) + [True], events)
        check(events[-1]["stop_type"] == "limit" and events[-1]["tokens_predicted"] == 12, events[-1])
        word = whole["content"].split()[2]
        stopped = s.post("/completion", {**ask, "stop": [word]}).json()
        check((stopped["stop_type"], stopped["stopping_word"]) == ("word", word) and whole["content"].startswith(stopped["content"]), stopped)
        two = s.post("/completion", {**ask, "prompt": ["Once upon a time", [1, 2, 3]]}).json()
        check([t["index"] for t in two] == [0, 1] and two[0]["content"] == whole["content"] and "prompt" not in two[1], two)
        probs = s.post("/completion", {**ask, "n_probs": 2}).json()["completion_probabilities"]
        check(len(probs) == 12 and len(probs[0]["top_logprobs"]) == 2, probs)

        def ids(text, **more):
            return s.post("/tokenize", {"content": text, **more}).json()["tokens"]

        # ids of the answer, and the three other forms of a prompt
        told = s.post("/completion", {**ask, "return_tokens": True}).json()["tokens"]
        check(s.post("/detokenize", {"tokens": told}).json()["content"] == whole["content"] and len(told) == 12 and whole["tokens"] == [], told, whole)
        check([p["id"] for p in probs] == told and probs[0]["top_logprobs"][0]["id"] >= 0, probs, told)
        check([t for e in events for t in e["tokens"]] == told and events[0]["tokens"] == told[:1], events, told)
        time = whole["timings"]
        check(abs(time["predicted_per_token_ms"] * 11 / time["predicted_ms"] - 1) < 1e-4 and abs(time["prompt_per_token_ms"] * time["prompt_n"] / time["prompt_ms"] - 1) < 1e-4, time)
        again = s.post("/completion", {**ask, "prompt": [{"prompt_string": ask["prompt"], "multimodal_data": []}, ask["prompt"]]}).json()
        check([a["content"] for a in again] == [whole["content"]] * 2, again, whole)
        for mixed, same in (["The", 20, " dog"], [*ids("The", add_special=True), 20, *ids(" dog")]), ([20, "The"], [20, *ids("The")]):
            a, b = (s.post("/completion", {**ask, "prompt": prompt}).json() for prompt in (mixed, same))
            check(a["content"] == b["content"] and a["tokens_evaluated"] == len(same), mixed, a, b)
        cut = s.post("/completion", {**ask, "n_predict": -1, "ignore_eos": True}).json()
        check(cut["truncated"] and not whole["truncated"] and cut["stop_type"] == "limit", cut)
        last = s.post("/completion", {**ask, "n_predict": cut["tokens_predicted"], "ignore_eos": True}).json()
        check(not last["truncated"] and last["content"] == cut["content"], last, cut)

        first = s.post("/tokenize", {"content": "", "add_special": True}).json()["tokens"][:1]
        gap = {**ask, "prompt": "was", "input_prefix": "The dog ", "input_suffix": " a cat."}
        expected = [*first, before, *ids("The dog "), *ids("was"), behind, *ids(" a cat."), mark]
        extra = [place, *ids("a.txt"), *ids("\n"), *ids("A bird"), place, *ids("filename\n")]
        for more, prompt in (({}, expected), ({"input_extra": [{"filename": "a.txt", "text": "A bird"}]}, [*first, *extra, *expected[1:]]),
                             ({"prompt": None, "input_prefix": None, "input_suffix": ""}, [*first, before, behind, mark])):
            filled = s.post("/infill", {**gap, **more}).json()
            same = s.post("/completion", {**ask, "prompt": prompt}).json()
            check(filled["content"] == same["content"] and filled["tokens_evaluated"] == len(prompt), more, filled, same)
        # as llama.vim and llama.vscode ask; their sampler for gaps is left out
        editor = {**gap, "id_slot": 0, "n_indent": 4, "top_k": 1, "top_p": 0.9, "samplers": ["top_k", "top_p", "infill"], "cache_prompt": True,
                  "t_max_prompt_ms": 500, "t_max_predict_ms": 100000, "response_fields": ["content", "timings/prompt_n"]}
        filled = s.post("/infill", editor)
        check(filled.status == 200 and filled.json()["content"] == s.post("/infill", {**gap, "temperature": 0}).json()["content"], filled.raw)
        lines = {"prompt": "Once", "n_predict": 40, "temperature": 0, "grammar": 'root ::= [a-z]* "\\n" [a-z]* "\\n" [a-z]*'}
        for ms, n_line in (-1, None), (0, None), (10**6, None):
            check(s.post("/completion", {**lines, "t_max_predict_ms": ms}).json()["content"] == s.post("/completion", lines).json()["content"], ms)
        rows = {"prompt": "Once", "n_predict": 200, "temperature": 0, "grammar": 'root ::= ("abcdefgh" "\\n"){12}'}
        late, whole = (s.post("/completion", {**rows, **more}).json() for more in ({"t_max_predict_ms": 1}, {}))
        check(late["stop_type"] == "limit" and late["content"].endswith("h\n") and whole["content"].startswith(late["content"]) and
              len(late["content"]) < len(whole["content"]), late, whole)
        for ms in 0.5, -2, "1":
            check(s.post("/completion", {**lines, "t_max_predict_ms": ms}).error()["param"] == "t_max_predict_ms", ms)
        for path, body, param in (("/infill", {**gap, "input_extra": [{"filename": "x"}]}, "input_extra[0].text"), ("/infill", {**gap, "input_prefix": 3}, "input_prefix"),
                                  ("/completion", {**ask, "return_tokens": 1}, "return_tokens"), ("/completion", {**ask, "n_predict": -3}, "n_predict"),
                                  ("/completion", {"n_predict": 1}, "prompt")):
            answer = s.post(path, body)
            check(answer.status == 400 and answer.error()["param"] == param, path, body, answer.raw)
    with Server("-t", "1") as s:
        answer = s.post("/infill", {"input_prefix": "a"})
        check(answer.status == 400 and "no tokens for a gap" in answer.error()["message"], answer.raw)


@case
def functions_are_called_where_they_must_be():
    with Server("-t", "1", model=model_with(TOOLS, "tools.gguf")) as s:
        one = {"messages": ASK, "max_tokens": 200, "tools": FUNCTIONS, "parallel_tool_calls": False, "temperature": 1.0}
        for seed in range(20):
            ask = {**one, "seed": seed, "tool_choice": {"type": "function", "function": {"name": "weather"}}}
            choice = s.post("/v1/chat/completions", ask).json()["choices"][0]
            check(choice["finish_reason"] == "tool_calls" and choice["message"]["content"] is None, choice)
            call, = choice["message"]["tool_calls"]
            check(re.fullmatch("[A-Za-z0-9]{9}", call["id"]) and call["type"] == "function", call)
            check(call["function"]["name"] == "weather", call)
            good_arguments(call["function"]["arguments"])
            events = [e for _, e in events_of(s.post("/v1/chat/completions", {**ask, "stream": True}))[:-1]]
            deltas = [e["choices"][0]["delta"] for e in events]
            streamed, = joined_calls(deltas)
            check(streamed["arguments"] == call["function"]["arguments"] and streamed["name"] == "weather", streamed, call)
            check(deltas[0] == {"role": "assistant", "content": ""}, deltas)
            check(events[-1]["choices"][0]["finish_reason"] == "tool_calls", events[-1])
        names = set()
        for seed in range(10):
            calls = s.post("/v1/chat/completions", {**one, "seed": seed, "tool_choice": "required"}).json()["choices"][0]["message"]["tool_calls"]
            names.add(calls[0]["function"]["name"])
            check(len(calls) == 1, calls)
        check(names == {"weather", "now"}, names)
        none = s.post("/v1/chat/completions", {**one, "seed": 1, "tool_choice": "none"}).json()["choices"][0]["message"]
        check(none["content"] and "tool_calls" not in none, none)
        text = s.post("/v1/chat/completions", {**one, "seed": 1, "max_tokens": 20}).json()["choices"][0]["message"]
        check(text["content"], text)


@case
def functions_have_any_name():
    with Server("-t", "1", model=model_with(TOOLS, "tools.gguf")) as s:
        def called(name, **more):
            ask = {"messages": ASK, "max_tokens": 200, "seed": 1, "tool_choice": "required", "parallel_tool_calls": False,
                   "tools": [{"type": "function", "function": {"name": name, "parameters": CITY}}], **more}
            return s.post("/v1/chat/completions", ask)
        for name in ("a b", "gr\u00f6\u00dfe", "mcp:server.tool/x", "mcp__plugin_github__create_pull_request-" * 2):
            call, = called(name).json()["choices"][0]["message"]["tool_calls"]
            check(call["function"]["name"] == name, call, name)
            good_arguments(call["function"]["arguments"])
        for name in ("", "\u00e9" * 129, "a\nb", 'a"', "a<b", "a\0"):
            check(called(name).status == 400, name)


@case
def what_is_cut_of_a_call_that_must_be_is_no_text():
    with Server("-t", "1", model=model_with(TOOLS, "tools.gguf")) as s:
        one = {"messages": ASK, "tools": FUNCTIONS, "seed": 1, "temperature": 1.0}
        n_without = 0
        for n in range(1, 40, 2):
            ask = {**one, "max_tokens": n, "tool_choice": "required"}
            choice = s.post("/v1/chat/completions", ask).json()["choices"][0]
            calls = choice["message"].get("tool_calls", [])
            n_without += not calls
            check(not choice["message"]["content"] and (calls or choice["finish_reason"] == "length"), n, choice)
            events = [e for _, e in events_of(s.post("/v1/chat/completions", {**ask, "stream": True}))[:-1]]
            deltas = [e["choices"][0]["delta"] for e in events]
            check(not any(d.get("content") for d in deltas) and len(joined_calls(deltas)) == len(calls), n, events)
            check(events[-1]["choices"][0]["finish_reason"] == choice["finish_reason"], n, events)
        check(2 < n_without < 20, n_without)
        tools = [{"name": "now", "input_schema": {"type": "object"}}]
        message = s.post("/v1/messages", {"max_tokens": 3, "messages": ASK, "tools": tools, "tool_choice": {"type": "any"}}).json()
        check(message["content"] == [] and message["stop_reason"] == "max_tokens", message)
        flat = {"input": "a", "tools": [{"type": "function", "name": "now"}], "tool_choice": "required", "max_output_tokens": 3}
        check(s.post("/v1/responses", flat).json()["output"] == [], "responses")
        last = check_response_events(events_of(s.post("/v1/responses", {**flat, "stream": True})))
        check(last["output"] == [] and last["status"] == "incomplete", last)
        # Where text is allowed, what may begin a call is text if nothing follows.
        bias = {str(s.post("/tokenize", {"content": "a<"}).json()["tokens"][-1]): 100}
        text = s.post("/v1/chat/completions", {**one, "max_tokens": 1, "logit_bias": bias}).json()["choices"][0]["message"]
        check(text["content"] == "<", text)


@case
def calls_stand_in_the_next_prompt_as_they_were_written():
    with Server("-t", "1", model=model_with(TOOLS, "tools.gguf")) as s:
        ask = {"messages": ASK, "max_tokens": 200, "tools": FUNCTIONS, "tool_choice": {"type": "function", "function": {"name": "weather"}}, "seed": 3}
        answer = s.post("/v1/chat/completions", ask).json()
        message = answer["choices"][0]["message"]
        call = message["tool_calls"][0]
        more = [*ASK, message, {"role": "tool", "tool_call_id": call["id"], "content": "12 degrees"}]
        prompt = s.post("/apply-template", {"messages": more, "tools": FUNCTIONS}).json()["prompt"]
        check(f'"arguments": {call["function"]["arguments"]}}}\n</tool_call><|im_end|>\n<|im_start|>tool\n12 degrees{call["id"]}' in prompt, prompt)
        next_one = s.post("/v1/chat/completions", {**ask, "messages": more, "tool_choice": "auto", "max_tokens": 5}).json()
        cached = next_one["usage"]["prompt_tokens_details"]["cached_tokens"]
        check(cached >= answer["usage"]["prompt_tokens"], next_one["usage"], answer["usage"])
        # A template that shows no functions is told of them in words.
    with Server("-t", "1", model=model_with(CHATML, "plain.gguf")) as s:
        prompt = s.post("/apply-template", {"messages": more, "tools": FUNCTIONS}).json()["prompt"]
        check('"name": "weather"' in prompt and "<tool_response>\n12 degrees\n</tool_response>" in prompt, prompt)
        answer = s.post("/v1/chat/completions", {**ask, "messages": ASK, "tools": FUNCTIONS[:1]})
        check(answer.status == 200, answer.raw)
        called = answer.json()["choices"][0]
        history = [*ASK, {"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": "weather", "input": {"city": "Bern", "days": 1}}]},
                   {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": "12 degrees"}]}]
        answer = s.post("/v1/messages", {"model": "x", "max_tokens": 3, "messages": history})
        check(answer.status == 200, answer.raw)
        good_arguments(called["message"]["tool_calls"][0]["function"]["arguments"])


@case
def reasoning_is_told_apart():
    with Server("-t", "1", model=model_with(TOOLS + "{# </think> #}", "thinks.gguf")) as s:
        ask = {"messages": ASK, "max_tokens": 60, "grammar": 'root ::= "<think>\\nWell.\\n</think>\\n\\nYes" [a-z]*', "seed": 1}
        whole = s.post("/v1/chat/completions", ask).json()
        message = whole["choices"][0]["message"]
        check(message["reasoning_content"] == "Well." and message["content"].startswith("Yes"), message)
        check(0 < whole["usage"]["completion_tokens_details"]["reasoning_tokens"] < whole["usage"]["completion_tokens"], whole["usage"])
        deltas = [e["choices"][0]["delta"] for _, e in events_of(s.post("/v1/chat/completions", {**ask, "stream": True}))[:-1]]
        check("".join(d.get("reasoning_content", "") for d in deltas) == "Well.", deltas)
        check("".join(d.get("content", "") for d in deltas) == message["content"], deltas)
        # Begun by the prompt: the grammar holds behind its end, which the model never writes.
        begun = s.post("/v1/chat/completions", {**ask, "chat_template_kwargs": {"enable_thinking": True}}).json()["choices"][0]
        check(begun["message"]["content"] == "" and begun["message"]["reasoning_content"], begun)
        back = s.post("/apply-template", {"messages": [*ASK, message, *ASK]}).json()["prompt"]
        check("<think>Well.</think>Yes" in back, back)
        thinking = {"model": "x", "max_tokens": 10, "messages": ASK, "thinking": {"type": "enabled", "budget_tokens": 1024}}
        block, = s.post("/v1/messages", thinking).json()["content"]
        check(block["type"] == "thinking" and block["thinking"], block)
        events = [e for _, e in events_of(s.post("/v1/messages", {**thinking, "stream": True}))]
        check([e["delta"]["type"] for e in events if e["type"] == "content_block_delta"][-1] == "signature_delta", events)
        item, = s.post("/v1/responses", {"input": "a", "max_output_tokens": 10, "chat_template_kwargs": {"enable_thinking": True}}).json()["output"]
        check(item["type"] == "reasoning" and item["content"][0]["text"], item)
        lines = lines_of(s.post("/api/chat", {"model": "x", "messages": ASK, "think": True, "options": {"num_predict": 8}}))
        check(lines[0]["message"]["thinking"] and lines[-1]["done"], lines)


@case
def an_answer_goes_on():
    with Server("-t", "1", model=model_with(TOOLS, "tools.gguf")) as s:
        ask = {"messages": [*ASK, {"role": "assistant", "content": "It is"}], "max_tokens": 8, "temperature": 0}
        prompt = s.post("/apply-template", {"messages": ASK}).json()["prompt"]
        ids = s.post("/tokenize", {"content": prompt, "add_special": True}).json()["tokens"] + s.post("/tokenize", {"content": "It is"}).json()["tokens"]
        direct = s.post("/v1/completions", {"prompt": ids, "max_tokens": 8, "temperature": 0}).json()
        answer = s.post("/v1/chat/completions", ask).json()
        check(answer["usage"]["prompt_tokens"] == len(ids), answer["usage"], len(ids))
        check(answer["choices"][0]["message"]["content"] == direct["choices"][0]["text"], answer, direct)


@case
def a_text_that_goes_on_keeps_its_first_space():
    hi, begun = {"role": "user", "content": "hi"}, {"role": "assistant", "content": "Once upon a"}
    with Server("-t", "1", model=model_with(TOOLS, "tools.gguf")) as s:
        more = {"messages": [hi, begun], "max_tokens": 1, "temperature": 0}
        check(s.post("/v1/chat/completions", more).json()["choices"][0]["message"]["content"] == " time", "chat")
        deltas = [e["choices"][0]["delta"] for _, e in events_of(s.post("/v1/chat/completions", {**more, "stream": True}))[:-1]]
        check("".join(d.get("content", "") for d in deltas) == " time", deltas)
        check(s.post("/v1/messages", more).json()["content"][0]["text"] == " time", "messages")
        blocks = [hi, {**begun, "content": [{"type": "text", "text": "Once upon a"}]}]
        check(s.post("/v1/messages", {**more, "messages": blocks}).json()["content"][0]["text"] == " time", "blocks")
        item, = s.post("/v1/responses", {"input": [hi, begun], "max_output_tokens": 1, "temperature": 0}).json()["output"]
        check(item["content"][0]["text"] == " time", item)
        ollama = {"stream": False, "options": {"num_predict": 1, "temperature": 0}}
        check(s.post("/api/chat", {**ollama, "messages": [hi, begun]}).json()["message"]["content"] == " time", "Ollama")
        raw = s.post("/api/generate", {**ollama, "prompt": "Once", "raw": True}).json()["response"]
        check(raw == s.post("/v1/completions", {"prompt": "Once", "max_tokens": 1, "temperature": 0}).json()["choices"][0]["text"] == " upon", raw)
        # Where an answer begins, the space that the vocabulary puts before a text is no part of it.
        bias = {str(s.post("/tokenize", {"content": "time"}).json()["tokens"][0]): 100}
        new = {**more, "logit_bias": bias, "continue_final_message": False}
        check(s.post("/v1/chat/completions", new).json()["choices"][0]["message"]["content"] == "time", "a new answer")


@case
def an_answer_goes_on_only_where_it_may():
    with Server("-t", "1", model=model_with(TOOLS, "tools.gguf")) as s:
        messages = [*ASK, {"role": "assistant", "content": "It is"}]

        def count(**more):
            return s.post("/v1/chat/completions", {"messages": messages, "max_tokens": 1, **more}).json()["usage"]["prompt_tokens"]
        usual, new, ended = count(), count(continue_final_message=False), count(add_generation_prompt=False)
        check(count(add_generation_prompt=False, continue_final_message=True) == usual == count(add_generation_prompt=None), usual)
        check(count(add_generation_prompt=True) == new > ended > usual, new, ended, usual)
        both = s.post("/v1/chat/completions", {"messages": messages, "add_generation_prompt": True, "continue_final_message": True})
        check(both.status == 400 and both.json()["error"]["param"] == "continue_final_message", both.raw)
        # The text that is shown is the one that is read.
        begun = "<|im_start|>user\n" + ASK[0]["content"] + "<|im_end|>\n<|im_start|>assistant\nIt is"
        for more, end in (({}, ""), ({"continue_final_message": True}, ""), ({"add_generation_prompt": True}, "<|im_end|>\n<|im_start|>assistant\n"),
                          ({"continue_final_message": False}, "<|im_end|>\n<|im_start|>assistant\n"), ({"add_generation_prompt": False}, "<|im_end|>\n")):
            prompt = s.post("/apply-template", {"messages": messages, **more}).json()["prompt"]
            check(prompt == begun + end, more, prompt)
        for more, param in (({"continue_final_message": True, "add_generation_prompt": True}, "continue_final_message"),
                            ({"chat_template_kwargs": {"enable_thinking": True}}, "messages")):
            answer = s.post("/apply-template", {"messages": messages, **more})
            check(answer.status == 400 and answer.error()["param"] == param, answer.raw)
            check(s.post("/v1/chat/completions", {"messages": messages, **more}).json() == answer.json(), answer.raw)


@case
def tokens_of_a_prompt_are_counted():
    with Server("-t", "1", model=model_with(TOOLS, "tools.gguf")) as s:
        ask = {"messages": ASK, "tools": FUNCTIONS, "reasoning_effort": "none"}
        for path in ("/v1/chat/completions", "/chat/completions"):
            counted = s.post(path + "/input_tokens", ask).json()
            n = s.post(path, {**ask, "max_tokens": 1}).json()["usage"]["prompt_tokens"]
            check(counted == {"object": "response.input_tokens", "input_tokens": n}, counted, n)
        ask = {"input": "A dog", "instructions": "Be brief.", "tools": [{"type": "web_search"}, {"type": "function", "name": "now"}]}
        for path in ("/v1/responses", "/responses"):
            counted = s.post(path + "/input_tokens", ask).json()
            n = s.post(path, {**ask, "max_output_tokens": 1}).json()["usage"]["input_tokens"]
            check(counted == {"object": "response.input_tokens", "input_tokens": n}, counted, n)
        for path, body, param in (("/v1/chat/completions", {"messages": []}, "messages"), ("/v1/responses", {"conversation": "a"}, "conversation"),
                                  ("/v1/responses", {"reasoning": {"effort": 1}}, "reasoning.effort"), ("/v1/chat/completions", {"messages": ASK, "tools": [{}]}, "tools[0].function")):
            answer = s.post(path + "/input_tokens", body)
            check(answer.status == 400 and answer.json()["error"]["param"] == param, answer.raw)


def check_progress(seen, n_prompt, n_cached):
    check(seen[0]["processed"] == seen[0]["cache"] == n_cached and seen[-1]["processed"] == n_prompt, seen)
    check(all(a["processed"] < b["processed"] for a, b in zip(seen, seen[1:])), seen)
    check({p["total"] for p in seen} == {n_prompt} and all(p["time_ms"] >= 0 for p in seen), seen)


@case
def streams_tell_how_far_the_prompt_is():
    with Server("-t", "1", "-c", "2048", model=model_with(TOOLS, "tools.gguf")) as s:
        more = {"max_tokens": 5, "max_output_tokens": 5, "stream": True, "return_progress": True, "timings_per_token": True, "temperature": 0,
                "stream_options": {"include_usage": True}}
        long = [{"role": "user", "content": "A dog and a cat. " * 40}]
        for i in range(2):
            events = [e for _, e in events_of(s.post("/v1/chat/completions", {**more, "messages": long}))][:-1]
            n = events[-1]["usage"]["prompt_tokens"]
            seen = [e["prompt_progress"] for e in events if "prompt_progress" in e]
            check(n > 256 and (len(seen) > 2 or i), n, seen)
            check_progress(seen, n, events[-1]["usage"]["prompt_tokens_details"]["cached_tokens"])
            timed = [e["timings"]["predicted_n"] for e in events if "timings" in e]
            check(timed == sorted(timed) and timed[0] == 1 and timed[-1] == 5 and "timings" in events[-1] and "timings" not in events[0], events)
            check("delta" in next(e for e in events if "prompt_progress" in e)["choices"][0], events)
        events = [e for _, e in events_of(s.post("/v1/completions", {**more, "prompt": ["A dog. " * 60, "A cat."]}))][:-1]
        for i in (0, 1):
            seen = [e["prompt_progress"] for e in events if "prompt_progress" in e and e["choices"][0]["index"] == i]
            check_progress(seen, seen[0]["total"], 1)  # the token at the beginning
        events = [e for _, e in events_of(s.post("/v1/responses", {**more, "input": "A bird. " * 60}))]
        seen = [e["prompt_progress"] for e in events if "prompt_progress" in e]
        check_progress(seen, events[-1]["response"]["usage"]["input_tokens"], events[-1]["response"]["usage"]["input_tokens_details"]["cached_tokens"])
        check({e["type"] for e in events if "prompt_progress" in e} == {"response.in_progress"}, events)
        check(all("timings" in e for e in events if e["type"].endswith("text.delta")) and events[-1]["timings"]["predicted_n"] == 5, events)
        check([e["sequence_number"] for e in events] == list(range(len(events))), events)
        plain = [e for _, e in events_of(s.post("/v1/chat/completions", {**more, "messages": long, "return_progress": False, "timings_per_token": None}))][:-1]
        check(not any("prompt_progress" in e for e in plain) and [i for i, e in enumerate(plain) if "timings" in e] == [len(plain) - 2, len(plain) - 1], plain)


@case
def choices_and_prompts_are_independent():
    with Server("-t", "1", model=model_with(TOOLS, "tools.gguf")) as s:
        ask = {"prompt": ["Once upon a time", [1, 2, 3], "The dog"], "n": 2, "max_tokens": 12, "seed": 5, "temperature": 1.0, "logprobs": 1}
        whole = s.post("/v1/completions", ask).json()
        check([c["index"] for c in whole["choices"]] == list(range(6)), whole)
        for i, c in enumerate(whole["choices"]):
            alone = s.post("/v1/completions", {**ask, "prompt": [ask["prompt"][i // 2]], "n": 1, "seed": 5 + i % 2}).json()["choices"][0]
            check(alone["text"] == c["text"] and alone["logprobs"] == c["logprobs"], i, alone, c)
        texts = [""] * 6
        events = [e for _, e in events_of(s.post("/v1/completions", {**ask, "stream": True, "logprobs": None}))[:-1]]
        for c in (c for e in events for c in e["choices"]):
            texts[c["index"]] += c["text"]
        check(texts == [c["text"] for c in whole["choices"]], texts, whole)
        check(sum(c["finish_reason"] is not None for e in events for c in e["choices"]) == 6, events)
        usage = whole["usage"]
        check(usage["completion_tokens"] == 72 and usage["total_tokens"] == usage["prompt_tokens"] + 72, usage)
        chat = s.post("/v1/chat/completions", {"messages": ASK, "n": 3, "max_tokens": 5, "temperature": 0}).json()["choices"]
        check(len(chat) == 3 and len({c["message"]["content"] for c in chat}) == 1, chat)
        cut = s.post("/v1/completions", {**ask, "prompt": ["a", "dog " * 100000]})
        check(cut.status == 400 and cut.error()["code"] == "context_length_exceeded", cut.raw)
        check(s.get("/slots").json() == [], "all have ended")


# ---- Responses -------------------------------------------------------------------------------------------------


def check_response_events(events):
    """The order of a stream of Responses; returns its last object."""
    check([e["sequence_number"] for _, e in events] == list(range(len(events))), events)
    check(all(name == e["type"] for name, e in events), events)
    types = [e["type"].removeprefix("response.") for _, e in events]
    check(types[:2] == ["created", "in_progress"] and types[-1] in ("completed", "incomplete"), types)
    open_item, added, texts = None, 0, {}
    for _, e in events[2:-1]:
        kind = e["type"].removeprefix("response.")
        if kind == "output_item.added":
            check(open_item is None and e["output_index"] == added, e)
            open_item, added = e["item"]["id"], added + 1
        elif kind == "output_item.done":
            check(e["item"]["id"] == open_item and e["item"]["status"] in ("completed", "incomplete"), e)
            open_item = None
        else:
            check(e["item_id"] == open_item and e["output_index"] == added - 1, e)
        if kind.endswith(".delta"):
            texts[open_item] = texts.get(open_item, "") + e["delta"]
        if kind.endswith("text.done") or kind.endswith("arguments.done"):
            check(texts.get(open_item, "") == e.get("text", e.get("arguments")), e)
    check(open_item is None, events)
    last = events[-1][1]["response"]
    check([i["item"] for _, i in events if i["type"] == "response.output_item.done"] == last["output"], last)
    check(all(i["status"] == "completed" for i in last["output"][:-1]), last)
    check(all(i["status"] == last["status"] for i in last["output"][-1:]), last)
    return last


@case
def responses_have_items():
    with Server("-t", "1", model=model_with(TOOLS, "tools.gguf")) as s:
        ask = {"model": "any", "input": "A dog", "instructions": "Be brief.", "max_output_tokens": 12, "seed": 4, "temperature": 1.0, "store": True,
               "metadata": {"a": "b"}, "include": ["reasoning.encrypted_content"], "prompt_cache_key": "k"}
        whole = s.post("/v1/responses", ask).json()
        check(whole["object"] == "response" and whole["status"] == "incomplete" and whole["incomplete_details"]["reason"] == "max_output_tokens", whole)
        check([i["status"] for i in whole["output"]] == ["incomplete"], whole)
        check(whole["metadata"] == {"a": "b"} and whole["instructions"] == "Be brief." and whole["store"] is True, whole)
        streamed = check_response_events(events_of(s.post("/v1/responses", {**ask, "stream": True})))
        check(streamed["output"][0]["content"][0]["text"] == whole["output"][0]["content"][0]["text"], streamed, whole)
        flat = [{"type": "function", "name": f["function"]["name"], "parameters": f["function"].get("parameters"), "strict": True} for f in FUNCTIONS]
        call_ask = {"input": [{"role": "user", "content": [{"type": "input_text", "text": "How warm?"}]}], "tools": [*flat, {"type": "web_search"}],
                    "tool_choice": {"type": "function", "name": "weather"}, "seed": 2, "parallel_tool_calls": False}
        done = s.post("/v1/responses", call_ask).json()
        item, = done["output"]
        check(done["status"] == item["status"] == "completed" and item["type"] == "function_call" and item["name"] == "weather", done)
        check(len(done["tools"]) == 2 and done["usage"]["total_tokens"] == done["usage"]["input_tokens"] + done["usage"]["output_tokens"], done)
        good_arguments(item["arguments"])
        last = check_response_events(events_of(s.post("/v1/responses", {**call_ask, "stream": True})))
        check(last["output"][0]["arguments"] == item["arguments"], last, item)
        history = [*call_ask["input"], {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]}, item,
                   {"type": "function_call_output", "call_id": item["call_id"], "output": "12"}]
        again = s.post("/v1/responses", {**call_ask, "input": history, "tool_choice": "auto", "max_output_tokens": 4}).json()
        check("usage" in again, again)
        check(again["usage"]["input_tokens"] > done["usage"]["input_tokens"], again)
        shaped = {**ask, "max_output_tokens": 200, "text": {"format": {"type": "json_schema", "name": "x", "schema": CITY}}}
        good_arguments(s.post("/v1/responses", shaped).json()["output"][0]["content"][0]["text"])
        probe = s.post("/v1/responses", {"input": [], "max_output_tokens": 1}).json()
        check(probe["usage"]["output_tokens"] == 1, probe)
        probs = s.post("/v1/responses", {**ask, "top_logprobs": 2}).json()["output"][0]["content"][0]["logprobs"]
        check(len(probs) == 12 and len(probs[0]["top_logprobs"]) == 2, probs)
        for more, param, words in (({"conversation": "c"}, "conversation", "the full input"), ({"background": True}, "background", "send the full input"),
                                   ({"input": [{"type": "item_reference"}]}, "input[0].id", "missing"),
                                   ({"input": [{"role": "king", "content": "a"}]}, "input[0].role", "one of"), ({"input": 3}, "input", "a whole number"),
                                   ({"input": None}, "input", "nothing"), ({"max_output_tokens": -2}, "max_output_tokens", "-1"),
                                   ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]}, "input[0].content[0].type", "text alone"),
                                   ({"text": {"format": {"type": "x"}}}, "text.format.type", "json_schema"),
                                   ({"text": {"format": {"type": "json_schema"}}}, "text.format.schema", "missing"), ({"reasoning": {"effort": "much"}}, "reasoning.effort", "none"),
                                   ({"input": [{"type": "function_call", "call_id": "a", "arguments": "x"}]}, "input[0].name", "missing")):
            answer = s.post("/v1/responses", {**ask, **more})
            check(answer.status == 400 and answer.error()["param"] == param and words in answer.error()["message"], more, answer.raw)


# ---- Messages ---------------------------------------------------------------------------------------------------


@case
def responses_say_what_was_asked():
    model = model_with(TOOLS, "tools.gguf")
    with Server("-t", "1", model=model) as s:
        ask = {"input": "A dog", "max_output_tokens": 1}
        usual = s.post("/v1/responses", ask).json()
        check(usual["text"] == {"format": {"type": "text"}, "verbosity": "medium"} and usual["reasoning"] == {"effort": None, "summary": None}, usual)
        given = s.post("/v1/responses", {**ask, "text": {"verbosity": "low"}, "reasoning": {"effort": "low"}}).json()
        check(given["text"] == {"format": {"type": "text"}, "verbosity": "low"} and given["reasoning"] == {"effort": "low", "summary": None}, given)
    late = {"input": "A dog", "stream": True, "seed": 1, "text": {"format": {"type": "json_schema", "name": "long", "schema": {
        "type": "array", "items": {"type": "integer"}, "minItems": 3000, "maxItems": 3000}}}}
    for limit in "0.01", "0.1", "1":  # within the first one a slow machine does not begin the stream
        with Server("-t", "1", "--max-request-seconds", limit, model=model) as s:
            answer = s.post("/v1/responses", late)
        if answer.status == 200:
            break
    events = events_of(answer)
    name, last = events[-1]  # an error is the last event of a stream
    check(name == last["type"] == "error" and last["sequence_number"] == len(events) - 1, events[-2:])
    check(last["error"]["type"] == "timeout_error" and set(last["error"]) == {"message", "type", "param", "code"}, last)


@case
def messages_have_blocks():
    with Server("-t", "1", model=model_with(TOOLS, "tools.gguf")) as s:
        ask = {"model": "claude", "max_tokens": 12, "messages": ASK, "system": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
               "temperature": 0}
        whole = s.post("/v1/messages", ask).json()
        check(whole["type"] == "message" and whole["stop_reason"] == "max_tokens" and whole["content"][0]["type"] == "text", whole)
        n = s.post("/v1/messages/count_tokens", {k: v for k, v in ask.items() if k != "max_tokens"}).json()["input_tokens"]
        usage = whole["usage"]
        check(n == usage["input_tokens"] + usage["cache_read_input_tokens"] and usage["output_tokens"] == 12, n, usage)
        events = events_of(s.post("/v1/messages", {**ask, "stream": True}))
        check(all(name == e["type"] for name, e in events), events)
        types = [e["type"] for _, e in events]
        check(types[:2] == ["message_start", "content_block_start"] and types[-3:] == ["content_block_stop", "message_delta", "message_stop"], types)
        text = "".join(e["delta"]["text"] for _, e in events if e["type"] == "content_block_delta")
        check(text == whole["content"][0]["text"], text, whole)
        stop = text[3:6]
        stopped = s.post("/v1/messages", {**ask, "stop_sequences": [stop]}).json()
        check(stopped["stop_reason"] == "stop_sequence" and stopped["stop_sequence"] == stop and stopped["content"][0]["text"] == text[:text.index(stop)], stopped)
        tools = [{"name": "weather", "description": "of a city", "input_schema": CITY}, {"type": "web_search_20250305", "name": "web_search"}]
        call_ask = {**ask, "max_tokens": 200, "tools": tools, "tool_choice": {"type": "tool", "name": "weather"}}
        called = s.post("/v1/messages", call_ask).json()
        block, = called["content"]
        check(called["stop_reason"] == "tool_use" and block["type"] == "tool_use" and block["name"] == "weather", called)
        good_arguments(json.dumps(block["input"]))
        events = [e for _, e in events_of(s.post("/v1/messages", {**call_ask, "stream": True}))]
        parts = "".join(e["delta"]["partial_json"] for e in events if e["type"] == "content_block_delta")
        check(json.loads(parts) == block["input"] and events[1]["content_block"]["input"] == {}, events)
        history = [*ASK, {"role": "assistant", "content": [{"type": "text", "text": "I look."}, block]},
                   {"role": "user", "content": [{"type": "tool_result", "tool_use_id": block["id"], "content": [{"type": "text", "text": "12"}]},
                                                {"type": "text", "text": "And now?"}]}]
        answer = s.post("/v1/messages", {**ask, "messages": history, "tools": tools})
        check(answer.status == 200, answer.raw)
        schema = {"type": "object", "properties": {"n": {"type": "integer", "maximum": 99}}, "required": ["n"], "additionalProperties": False}
        for more, param in (({"output_format": {"type": "json_schema"}}, "output_format.schema"),
                            ({"output_format": {"type": "json_schema", "schema": {**schema, "not": {"const": 1}}}}, "output_format"),
                            ({"output_config": {"format": {"type": "json_schema"}}}, "output_config.format.schema"),
                            ({"output_config": {"format": {"type": "text/x"}}}, "output_config.format.type")):
            answer = s.post("/v1/messages", {**ask, **more})
            check(answer.status == 400 and answer.json()["error"]["param"] == param, more, answer.raw)
        for more in {"output_format": {"type": "json_schema", "schema": schema}}, {"output_config": {"format": {"type": "json_schema", "schema": schema}}}:
            block, = s.post("/v1/messages", {**ask, **more, "max_tokens": 100}).json()["content"]
            check(abs(json.loads(block["text"])["n"]) < 10**19, block)
        check(s.post("/v1/messages", {**ask, "output_config": {"effort": "low"}, "output_format": None}).status == 200, "no format")
        # A line that changes with each request does not cost the cache.
        billed = [s.post("/v1/messages", {**ask, "system": f"x-anthropic-billing-header: cch={i};\n\nYou are a dog."}).json()["usage"] for i in range(2)]
        check(billed[1]["input_tokens"] == 1, billed)
        blocks = [{"type": "text", "text": text} for text in ("x-anthropic-billing-header: cch=2;", "You are ", "a dog.")]
        billed = s.post("/v1/messages", {**ask, "system": blocks}).json()["usage"]
        check(billed["input_tokens"] == 1, billed)
        for more, param, words in (({"max_tokens": None}, "max_tokens", "missing"), ({"messages": []}, "messages", "1 to 4096"),
                                   ({"messages": [{"role": "king", "content": "a"}]}, "messages[0].role", "user or assistant"),
                                   ({"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]}, "content[0].type", "image"),
                                   ({"tool_choice": {"type": "any"}}, "tool_choice", "no functions"), ({"tools": [{"name": "a<b"}]}, "tools[0].name", "characters"),
                                   ({"tools": tools, "tool_choice": {"type": "tool", "name": "x"}}, "tool_choice", "no function 'x'")):
            answer = s.post("/v1/messages", {**ask, **more})
            error = answer.json()
            check(answer.status == 400 and error["type"] == "error" and error["error"]["type"] == "invalid_request_error", more, answer.raw)
            check(param in error["error"]["message"] and words in error["error"]["message"], more, error)


# ---- Ollama -----------------------------------------------------------------------------------------------------


@case
def ollama_has_lines():
    with Server("-t", "1", model=model_with(TOOLS, "tools.gguf")) as s:
        ask = {"model": "tools", "messages": ASK, "options": {"num_predict": 10, "seed": 3, "temperature": 1.0}, "keep_alive": "5m"}
        lines = lines_of(s.post("/api/chat", ask))
        check(all(not x["done"] for x in lines[:-1]) and lines[-1]["done"] and lines[-1]["done_reason"] == "length", lines)
        whole = s.post("/api/chat", {**ask, "stream": False}).json()
        check("".join(x["message"]["content"] for x in lines) == whole["message"]["content"] and whole["eval_count"] == 10, lines, whole)
        called = s.post("/api/chat", {**ask, "stream": False, "options": {"num_predict": 200, "seed": 1}, "format": CITY}).json()
        good_arguments(called["message"]["content"])
        check(json.loads(s.post("/api/chat", {**ask, "stream": False, "format": "json", "options": {"num_predict": 300, "seed": 1, "temperature": 0}}).json()
                         ["message"]["content"] or "{}") is not None, "json")
        history = [*ASK, {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "weather", "arguments": {"city": "Bern", "days": 1}}}]},
                   {"role": "tool", "tool_name": "weather", "content": "12"}]
        check(lines_of(s.post("/api/chat", {**ask, "messages": history, "tools": FUNCTIONS}))[-1]["done"], "with a result")
        plain = {"model": "tools", "prompt": "A dog", "system": "Be brief.", "options": {"num_predict": 6, "temperature": 0}}
        lines = lines_of(s.post("/api/generate", plain))
        check("".join(x["response"] for x in lines) == s.post("/api/generate", {**plain, "stream": False}).json()["response"], lines)
        raw = s.post("/api/generate", {**plain, "raw": True, "stream": False}).json()
        check(raw["prompt_eval_count"] < lines[-1]["prompt_eval_count"], raw, lines[-1])
        check(s.post("/api/generate", {"model": "tools"}).json()["done_reason"] == "load", "an empty prompt")
        check(s.post("/api/chat", {"model": "tools", "messages": []}).json()["done_reason"] == "load", "no messages")
        for path, more in (("/api/chat", {"messages": [{"role": "x", "content": "a"}]}), ("/api/chat", {"messages": ASK, "format": "xml"}),
                           ("/api/chat", {"messages": ASK, "options": {"temperature": 9}}), ("/api/generate", {"prompt": "a", "suffix": "b"}),
                           ("/api/generate", {"prompt": "a", "images": ["x"]}), ("/api/chat", {"messages": [{**ASK[0], "images": ["x"]}]})):
            answer = s.post(path, {"model": "tools", **more})
            check(answer.status == 400 and set(answer.json()) == {"error"}, path, more, answer.raw)
        check("messages[0].images: are not supported by this server" in answer.json()["error"], answer.raw)
        check(s.post("/api/chat", {**ask, "messages": [{**ASK[0], "images": []}]}).status == 200, "no images")


@case
def clients_of_ollama_find_what_they_ask_for():
    with Server("-t", "1", model=model_with(TOOLS, "tools.gguf")) as s:
        version = s.get("/api/version").json()
        check(tuple(map(int, version["version"].split("."))) >= (0, 13, 4) and version["hearth"], version)
        model, = s.get("/api/ps").json()["models"]
        check(model["name"] == "tools" and model["context_length"] == 512 and model["details"]["format"] == "gguf" and model["size"] > 0, model)
        vector = s.post("/api/embeddings", {"model": "tools", "prompt": "a b"}).json()["embedding"]
        check(vector == s.post("/api/embed", {"model": "tools", "input": "a b"}).json()["embeddings"][0], vector)
        check(s.post("/api/embeddings", {"model": "tools", "input": "a"}).status == 400 and s.get("/v1/models/tools:latest").json()["id"] == "tools", "names")
        ask = {"model": "tools", "messages": ASK, "logprobs": True, "top_logprobs": 2, "options": {"num_predict": 5, "seed": 3}}
        whole = s.post("/api/chat", {**ask, "stream": False}).json()
        check(len(whole["logprobs"]) == 5 and all(len(t["top_logprobs"]) == 2 and t["logprob"] <= 0 for t in whole["logprobs"]), whole)
        parts = [t for line in lines_of(s.post("/api/chat", ask)) for t in line.get("logprobs", [])]
        check(parts == whole["logprobs"], parts, whole["logprobs"])
        generate = s.post("/api/generate", {"model": "tools", "prompt": "a", "stream": False, "logprobs": True, "options": {"num_predict": 2}}).json()
        check(len(generate["logprobs"]) == 2 and "top_logprobs" not in generate["logprobs"][0] or generate["logprobs"][0]["top_logprobs"] == [], generate)


@case
def a_model_leaves_when_a_client_of_ollama_asks_for_it():
    with Server("-t", "1", model=model_with(TOOLS, "tools.gguf")) as s:
        text = s.post("/api/chat", {"model": "tools", "messages": ASK, "stream": False, "options": {"num_predict": 5, "seed": 3}}).json()["message"]
        for body, path in (({"messages": [], "keep_alive": 0}, "/api/chat"), ({"keep_alive": "0s"}, "/api/generate"), ({"prompt": "", "keep_alive": 0.0}, "/api/generate")):
            check(s.post(path, {"model": "tools", "stream": False, **body}).json()["done_reason"] == "unload", body)
            s.wait_for("has left the memory")
            s.lines.clear()
            check(s.get("/api/ps").json()["models"] == [] and s.get("/health").status == 200, "none is loaded")
            check(s.get("/api/tags").json()["models"][0]["name"] == "tools", "it is served")
            again = s.post("/api/chat", {"model": "tools", "messages": ASK, "stream": False, "options": {"num_predict": 5, "seed": 3}, "keep_alive": "0.5h"})
            check(again.json()["message"] == text and len(s.get("/api/ps").json()["models"]) == 1, again.raw)
        check(s.post("/api/chat", {"model": "tools", "messages": [], "keep_alive": -1}).json()["done_reason"] == "load", "for ever")
        check(s.post("/api/chat", {"model": "tools", "messages": [], "keep_alive": {}}).status == 400, "no time")


@case
def programs_may_leave_the_type_out_and_pages_may_not():
    body = json.dumps({"model": "tools", "prompt": "a", "stream": False, "options": {"num_predict": 1}}).encode()
    with Server("-t", "1", model=model_with(TOOLS, "tools.gguf")) as s:
        form = "Content-Type: application/x-www-form-urlencoded"
        for path, header, status in (("/api/generate", form, 200), ("/api/generate", "content-type:\0", 200), ("/api/generate", "Content-Type: text/plain", 415),
                                     ("/v1/completions", form, 415), ("/v1/completions", "content-type:\0", 415)):
            answer = s.post(path, body, [header])
            check(answer.status == status, path, header, answer.raw)
        for page in ("Origin: http://localhost", "Sec-Fetch-Site: cross-site", "Sec-Fetch-Site: none"):
            check(s.post("/api/generate", body, [form, page]).status in (403, 415), page)
        check(s.post("/api/generate", body, [form], host="evil.example").status == 403, "another host")


@case
def texts_become_vectors():
    with Server("-t", "1") as s:
        ask = {"model": "m", "input": ["Once upon a time there was a dog.", "A dog"]}
        whole = s.post("/v1/embeddings", ask).json()
        vectors = [d["embedding"] for d in whole["data"]]
        check([d["index"] for d in whole["data"]] == [0, 1] and len(vectors[0]) == len(vectors[1]), whole)
        check(all(abs(sum(x * x for x in v) - 1) < 1e-5 for v in vectors) and vectors[0] != vectors[1], vectors)
        check(whole["usage"]["prompt_tokens"] == whole["usage"]["total_tokens"] > 0, whole["usage"])
        coded = s.post("/v1/embeddings", {**ask, "encoding_format": "base64"}).json()["data"]
        for v, d in zip(vectors, coded):
            check(array.array("f", base64.b64decode(d["embedding"])) == array.array("f", v), v, d)
        few = s.post("/v1/embeddings", {**ask, "dimensions": 8}).json()["data"][0]["embedding"]
        length = math.sqrt(sum(x * x for x in vectors[0][:8]))
        check(len(few) == 8 and all(abs(a - b / length) < 1e-6 for a, b in zip(few, vectors[0])), few)
        ids = s.post("/tokenize", {"content": "A dog", "add_special": True}).json()["tokens"]
        check(s.post("/v1/embeddings", {**ask, "input": ids}).json()["data"][0]["embedding"] == vectors[1], "ids")
        check(s.post("/api/embed", ask).json()["embeddings"] == vectors, "Ollama")
        check(s.post("/embedding", {"content": ask["input"]}).json() == [{"index": i, "embedding": [v]} for i, v in enumerate(vectors)], "llama.cpp")
        check(s.post("/embedding", {"content": []}).error()["param"] == "content", "no text")
        for more, param in (({"input": []}, "input"), ({"input": None}, "input"), ({"encoding_format": "x"}, "encoding_format"), ({"dimensions": 0}, "dimensions"),
                            ({"dimensions": 100000}, "dimensions"), ({"input": "dog " * 100000}, "input")):
            answer = s.post("/v1/embeddings", {**ask, **more})
            check(answer.status == 400 and answer.error()["param"] == param, more, answer.raw)


@case
def texts_of_ollama_are_cut_at_the_context():
    """Unless truncate is false; the token that ends texts stays. The APIs of OpenAI refuse them."""
    for ends in False, True:
        with Server("-t", "1", "-c", "12", "--override-kv", f"tokenizer.ggml.add_eos_token=bool:{str(ends).lower()}") as s:
            text = "Once upon a time there was a dog and a cat and a bird."
            ids = s.post("/tokenize", {"content": text, "add_special": True}).json()["tokens"]
            short = ids[:11] + ids[-1:] if ends else ids[:12]
            same = [d["embedding"] for d in s.post("/v1/embeddings", {"input": [short, "A dog"]}).json()["data"]]
            cut = s.post("/api/embed", {"input": [text, "A dog"]}).json()
            check(len(ids) > 14 and cut["embeddings"] == same and (ids[-1] == 2) == ends, ends, ids, cut)
            check(s.post("/api/embeddings", {"prompt": text}).json()["embedding"] == same[0], "the older form")
            for path_of, more in ("/api/embed", {"truncate": False}), ("/v1/embeddings", {}), ("/v1/embeddings", {"truncate": True}):
                whole = s.post(path_of, {"input": ["A dog", text], **more})
                check(whole.status == 400 and f"[1] has {len(ids)} tokens; the context has 12".encode() in whole.raw, path_of, more, whole.raw)


@case
def truncation_drops_the_oldest_turns():
    """As few as fit, never the system's text or the last question; without it the request is refused."""
    with Server("-t", "1", "-c", "128", model=model_with(CHATML, "chatml.gguf")) as s:
        turns = [[{"role": "user", "content": f"Question {i}, please?"}, {"role": "assistant", "content": f"It is number {i}."}] for i in range(12)]
        head, last = [{"role": "system", "content": "A dog answers."}], [{"role": "user", "content": "And then?"}]
        ask = {"max_output_tokens": 8, "seed": 3, "temperature": 1.0, "store": False}

        def answer(messages, **more):
            return s.post("/v1/responses", {**ask, "input": messages, **more})

        def rest(n):
            return [*head, *(m for turn in turns[n:] for m in turn), *last]

        plain = answer(rest(0))
        check(plain.status == 400 and plain.error()["code"] == "context_length_exceeded", plain.raw)
        check(answer(rest(0), truncation="disabled").status == 400 and answer(rest(0), truncation="x").error()["param"] == "truncation", "words")
        counts = [s.post("/v1/responses/input_tokens", {"input": rest(n)}).json()["input_tokens"] for n in range(13)]
        fewest = min(n for n in range(13) if counts[n] + 8 <= 128)
        cut, same = answer(rest(0), truncation="auto").json(), answer(rest(fewest)).json()
        check(1 < fewest < 12 and cut["usage"]["input_tokens"] == counts[fewest] and cut["truncation"] == "auto", counts, cut)
        check(cut["output"][0]["content"] == same["output"][0]["content"], cut, same)
        short = answer(rest(fewest), truncation="auto").json()
        check(short["usage"]["input_tokens"] == counts[fewest] and short["truncation"] == "auto", short)
        tight = answer(rest(0), truncation="auto", max_output_tokens=None).json()
        fewest = min(n for n in range(13) if counts[n] + 16 <= 128)
        check(tight["usage"]["input_tokens"] == counts[fewest], tight, counts)
        long = [*head, *turns[0], {"role": "user", "content": "dog " * 200}]
        for messages in long, long[-1:]:
            check(answer(messages, truncation="auto").error()["code"] == "context_length_exceeded", messages)


@case
def embeddings_count_as_requests_and_few_have_memory():
    """Those that wait have no cache yet: 24 contexts of 2,048 tokens would be some 190 MiB here."""
    body = json.dumps({"model": "m", "input": [[5 + (i + k) % 200 for k in range(500)] for i in range(100)]}).encode()
    ask = b"POST /v1/embeddings HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    with Server("-t", "1", "-c", "2048", "--parallel", "4", "--max-waiting", "20") as s:
        check(s.post("/v1/embeddings", {"model": "m", "input": "a b"}).status == 200, "alone")
        before = s.resident()
        with contextlib.ExitStack() as clients:
            for _ in range(24):
                clients.enter_context(s.connect()).sendall(ask)
            until(lambda: len(s.get("/slots").json()) == 24)
            late = s.post("/v1/embeddings", {"model": "m", "input": "a b"})
            check(late.status == 429 and late.headers["retry-after"] and b"24 requests run or wait" in late.raw, late.raw)
            check(s.post("/v1/completions", {"prompt": "a"}).status == 429, "generations count with them")
            if not os.environ.get("HEARTH_SANITIZED"):
                check(s.resident() - before < 120 << 20, before, s.resident())
        until(lambda: s.post("/v1/embeddings", {"model": "m", "input": "a b"}).status == 200)


@case
def vectors_are_pooled_as_the_file_says():
    vectors = {}
    for pooling in 0, 1, 2, 3, 4:
        path = scratch(f"pooling-{pooling}.gguf")
        with open(MODEL, "rb") as f, open(path, "wb") as to:
            to.write(chat_model.with_template(f.read(), CHATML, more=[("llama.pooling_type", pooling)]))
        with Server("-t", "1", model=path) as s:
            answer = s.post("/v1/embeddings", {"model": "m", "input": ["A dog", "Once upon a time"]})
            if pooling == 4:
                check(answer.status == 400 and b"this model has no embeddings: " in answer.raw and b"(rank)" in answer.raw, answer.raw)
            else:
                vectors[pooling] = [d["embedding"] for d in answer.json()["data"]]
    check(vectors[0] == vectors[3] and vectors[1] != vectors[2] != vectors[3] != vectors[1], vectors)


@case
def embeddings_with_a_gpu_are_refused_with_the_reason():
    with Server("-t", "1", "--gpu", "null") as s:
        for path in "/v1/embeddings", "/api/embed":
            answer = s.post(path, {"model": "m", "input": "A dog"})
            check(answer.status == 400 and b"not computed with a GPU" in answer.raw, path, answer.raw)


@case
def many_of_all_kinds_at_once_get_what_they_get_alone():
    asks = [("/v1/chat/completions", {"messages": ASK, "n": 2, "max_tokens": 20}), ("/v1/completions", {"prompt": ["a", "b"], "max_tokens": 20}),
            ("/v1/responses", {"input": "A dog", "max_output_tokens": 20}), ("/v1/messages", {"messages": ASK, "max_tokens": 20, "temperature": 0}),
            ("/api/chat", {"messages": ASK, "stream": False, "options": {"num_predict": 20, "seed": 9}}),
            ("/v1/chat/completions", {"messages": ASK, "tools": FUNCTIONS, "tool_choice": "required", "max_tokens": 60})]
    asks = [(path, {"seed": 9, **body}) for path, body in asks] * 3

    def text_of(path, body):
        drop = {"id", "created", "created_at", "completed_at", "timings", "usage", "total_duration", "prompt_eval_duration", "eval_duration", "call_id"}

        def clean(v):
            if isinstance(v, dict):
                return {k: clean(x) for k, x in v.items() if k not in drop}
            return [clean(x) for x in v] if isinstance(v, list) else v
        answer = s.post(path, body)
        check(answer.status == 200, answer.raw)
        return clean(answer.json())
    with Server("-t", "1", model=model_with(TOOLS, "tools.gguf")) as s:
        alone = [text_of(*a) for a in asks]
        got = [None] * len(asks)

        def run(i):
            got[i] = text_of(*asks[i])
        threads = [threading.Thread(target=run, args=(i,)) for i in range(len(asks))]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        for a, g, ask in zip(alone, got, asks):
            check(a == g, ask, a, g)


if __name__ == "__main__":
    run_all(__file__)
