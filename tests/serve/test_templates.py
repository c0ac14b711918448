"""Any conversation with any template: templates with the rules of those that people use, and the conversations that
clients send. Every text stands in the prompt, in order and once, and the prompt of a conversation begins that of a
longer one where the template alone gives both. Called by CTest with the program's path."""

import json
import re

from server import MODEL, Server, case, chat_model, check, run_all, scratch
from strict import ALL, SAYS, TEMPLATES, each, refuse


def user(text):
    return {"role": "user", "content": text}


def system(text):
    return {"role": "system", "content": text}


def assistant(text, *calls):
    given = [{"id": f"call_{name}_0123456789abcdef", "type": "function", "function": {"name": name, "arguments": arguments}} for name, arguments in calls]
    return {"role": "assistant", "content": text, **({"tool_calls": given} if calls else {})}


def result(name, text):
    return {"role": "tool", "tool_call_id": f"call_{name}_0123456789abcdef", "content": text}


F = ("look", '{"place": "lima", "n": 12}')
G = ("hear", '{"sound": "bell"}')
CUT = ("look", '{"place": "lima sou')
SHAPES = {
    "a question": [user("alpha")],
    "with a system": [system("sigma"), user("alpha"), assistant("beta"), user("gamma")],
    "the system behind": [user("alpha"), system("sigma")],  # Claude Code's first request
    "the system again": [system("sigma"), user("alpha"), assistant("beta"), system("tau"), user("gamma")],
    "two systems": [system("sigma"), system("tau"), user("alpha")],
    "two of the user": [user("alpha"), user("gamma"), assistant("beta"), user("delta")],
    "the assistant first": [assistant("beta"), user("alpha")],
    "the assistant twice": [user("alpha"), assistant("beta"), assistant("epsilon"), user("gamma")],
    "a call": [system("sigma"), user("alpha"), assistant("", F), result("look", "rho"), assistant("beta"), user("gamma")],
    "two calls": [user("alpha"), assistant("beta", F, G), result("look", "rho"), result("hear", "phi")],
    "a call that was cut": [user("alpha"), assistant(None, CUT), result("look", "rho")],
    "a user who interrupts": [user("alpha"), assistant("", F), result("look", "rho"), user("gamma")],
}


def texts(messages):
    """What must stand in the prompt, in this order; the calls of one answer may stand before or after their results."""
    for m in messages:
        yield from re.findall(r"\w+", m["content"] or "")


@case
def every_text_stands_in_the_prompt_once_and_in_order():
    for name, template in TEMPLATES.items():
        with open(MODEL, "rb") as f:
            path = scratch("m.gguf", chat_model.with_template(f.read(), template))
        with Server("-t", "1", model=path) as s:
            for shape, messages in SHAPES.items():
                answer = s.post("/apply-template", {"messages": messages})
                check(answer.status == 200, name, shape, answer.raw)
                prompt, at = answer.json()["prompt"], 0
                for word in texts(messages):
                    check(prompt.count(word) == 1 and prompt.find(word, at) >= 0, name, shape, word, prompt)
                    at = prompt.find(word, at)
                for m in messages:
                    for call in m.get("tool_calls", []):
                        for word in re.findall(r"[a-z]{3,}", call["function"]["arguments"] + " " + call["function"]["name"]):
                            check(word in prompt, name, shape, word, prompt)
                tools = [{"type": "function", "function": {"name": "look", "description": "omega"}}]
                told = s.post("/apply-template", {"messages": messages, "tools": tools})
                check(told.status == 200 and "omega" in told.json()["prompt"] and "alpha" in told.json()["prompt"], name, shape, told.raw)


@case
def prompts_grow_at_their_end_where_the_template_takes_them():
    for name in ("takes all", "ids of nine letters", "members", "texts", "the system comes first"):
        with open(MODEL, "rb") as f:
            path = scratch("m.gguf", chat_model.with_template(f.read(), TEMPLATES[name]))
        with Server("-t", "1", model=path) as s:
            for shape, messages in SHAPES.items():
                if name == "the system comes first" and any(m["role"] == "system" for m in messages[1:]):
                    continue
                before = ""
                for n in range(1, len(messages) + 1):
                    prompt = s.post("/apply-template", {"messages": messages[:n], "add_generation_prompt": False}).json()["prompt"]
                    check(prompt.startswith(before), name, shape, n, prompt, before)
                    before = prompt


@case
def what_a_template_takes_is_not_changed():
    with open(MODEL, "rb") as f:
        path = scratch("m.gguf", chat_model.with_template(f.read(), TEMPLATES["takes all"]))
    with Server("-t", "1", model=path) as s:
        for messages in SHAPES.values():
            wanted = "".join(f"<|{m['role']}|>{m['content'] or ''}<|end|>"
                             + "".join(f"<tool_call>{c['function']['name']}{c['function']['arguments']}{c['id']}</tool_call>"
                                       for c in m.get("tool_calls", []))
                             + m.get("tool_call_id", "") for m in messages)
            prompt = s.post("/apply-template", {"messages": messages, "add_generation_prompt": False}).json()["prompt"]
            check(prompt == wanted, prompt, wanted)


@case
def what_no_rule_helps_is_refused_in_the_words_of_the_template():
    with open(MODEL, "rb") as f:
        path = scratch("m.gguf", chat_model.with_template(f.read(), each(refuse("'no' in m.content", "never") + ALL)))
    with Server("-t", "1", model=path) as s:
        answer = s.post("/apply-template", {"messages": [user("no"), user("no")]})
        check(answer.status == 400 and "never" in json.dumps(answer.json()), answer.raw)


@case
def calls_are_written_where_a_template_shows_functions_only():
    template = ("{% if tools %}List of tools: [{{ tools | tojson }}]{% endif %}{% for m in messages %}" + SAYS + "{% endfor %}")
    with open(MODEL, "rb") as f:
        path = scratch("m.gguf", chat_model.with_template(f.read(), template))
    with Server("-t", "1", model=path) as s:
        for name, wanted in (("two calls", "beta\n<|tool_call_start|>[look(place='lima', n=12), hear(sound='bell')]<|tool_call_end|><|end|><|tool|>rho"),
                             ("a call that was cut", "<|tool_call_start|>[look(arguments='{\"place\": \"lima sou')]<|tool_call_end|><|end|><|tool|>rho")):
            prompt = s.post("/apply-template", {"messages": SHAPES[name], "add_generation_prompt": False}).json()["prompt"]
            check(wanted in prompt, name, prompt, wanted)


@case
def marks_around_a_text_are_no_part_of_it_without_functions():
    """The story model goes on with the same tokens, which have the marks of a family as texts here."""
    marks = {"{# >>>all recipient #}": ("all\n", "Found"), "{# <|START_ACTION|> <|START_RESPONSE|> #}": ("<|START_RESPONSE|>", "Found<|END_RESPONSE|>")}
    for note, (first, second) in marks.items():
        with open(MODEL, "rb") as f:
            data = chat_model.with_template(f.read(), "{{ messages[-1].content }}" + note, renamed=[("\u2581upon", first), ("\u2581a", second)])
        with Server("-t", "1", model=scratch("m.gguf", data)) as s:
            answer = s.post("/v1/chat/completions", {"messages": [user("Once")], "max_tokens": 2, "temperature": 0}).json()
            check(answer["choices"][0]["message"]["content"] == "Found", note, answer)


@case
def a_second_template_is_of_requests_with_functions():
    tools = [{"type": "function", "function": {"name": "look", "description": "omega"}}]
    own = "[TOOL_CALLS][" + each(ALL)
    for second, wanted in ((own, "[TOOL_CALLS][<|tools|>"), (own + "{% oops %}", "<tool_call>\n{"), ("no functions", "<tool_call>\n{"), (None, "<tool_call>\n{")):
        more = [("tokenizer.chat_template.tool_use", second)] if second else []
        with open(MODEL, "rb") as f:
            path = scratch("m.gguf", chat_model.with_template(f.read(), "first: {% for m in messages %}" + SAYS + "{% endfor %}", more=more))
        with Server("-t", "1", model=path) as s:
            plain = s.post("/apply-template", {"messages": [user("alpha")]}).json()["prompt"]
            told = s.post("/apply-template", {"messages": [user("alpha")], "tools": tools}).json()["prompt"]
            called = s.post("/apply-template", {"messages": SHAPES["a call"]}).json()["prompt"]
            check(plain.startswith("first: ") and wanted in told and "omega" in told, second, plain, told)
            check(called.startswith("[TOOL_CALLS][" if second == own else "first: ") and "lima" in called, second, called)


@case
def a_family_by_name_tells_and_shows_calls_in_its_own_form():
    tools = [{"type": "function", "function": {"name": "look", "description": "omega"}}]
    with Server("-t", "1", "--template", "GLM-4.6", model=MODEL) as s:
        body = {"messages": SHAPES["a call"], "tools": tools}
        usual = s.post("/apply-template", body).json()["prompt"]
        quick = s.post("/apply-template", {**body, "chat_template_kwargs": {"enable_thinking": False}}).json()["prompt"]
        check(usual.startswith("[gMASK]<sop><|system|>\n") and usual.endswith("<|assistant|>"), usual)
        check(quick == usual + "\n<think></think>", quick)
        check("<tool_call>NAME\n<arg_key>KEY</arg_key>" in usual and "omega" in usual, usual)
        check("<tool_call>look\n<arg_key>" in usual and "<|observation|>\n<tool_response>\n" in usual, usual)


if __name__ == "__main__":
    run_all(__file__)
