"""What a model wrote comes back with the next request, whatever it is: conversations never get stuck. In each API,
with templates that write arguments of calls as JSON, add them to texts, or go over their members. Called by CTest with
the program's path."""

import json

from server import CHATML, MODEL, TOOLS, Server, case, chat_model, check, run_all, scratch

ASK = {"role": "user", "content": "go"}
# As models write them: cut by max_tokens, with doubled names, no object, digits that no double has, no JSON at all.
ARGUMENTS = ['{ "path": "Thank your bikes!", "', '{"a": 1, "a": 2}', "[1, 2]", "null", '"x"', "7", '{"n": 18446744073709551615, "m": 1e400}',
             '{"a": "\\u0000\\ud800"}', "path=/tmp", "{'a': 1}", '{"a": ' + "[" * 300, "{}", '{"a": 1}', "\U0001f600\"\\", "a\0b"]
# Each writes what it has of the first call and fails, so that the client sees it; the message's length is limited.
WAYS = {"json": "{{ c.arguments | tojson }}", "text": "{{ '' + c.arguments + '' }}", "printed": "{{ c.arguments }}",
        "members": "{% for k, v in c.arguments|items %}{{ k }}={{ v if v is string else v|tojson }};{% endfor %}"}


def telling(way):
    return ("{%- if tools -%}<tool_call>{%- endif -%}{%- set out = namespace(t='') -%}{%- for m in messages -%}{%- for call in m.tool_calls or [] -%}{%- set c = call.function -%}"
            "{%- set shown -%}" + WAYS[way] + "{%- endset -%}{%- set out.t = out.t ~ '<' ~ c.name ~ ':' ~ shown ~ '>' -%}{%- endfor -%}"
            "{%- endfor -%}{%- if out.t -%}{{ raise_exception(out.t) }}{%- endif -%}x")


def model(template, name):
    with open(MODEL, "rb") as f:
        return scratch(name, chat_model.with_template(f.read(), template))


def shown(answer):
    check(answer.status == 400, answer.raw)
    error = answer.json()["error"]
    return (error if isinstance(error, str) else error["message"]).split("refuses these messages: ", 1)[1]


def chat(arguments):
    return {"messages": [ASK, {"role": "assistant", "content": None, "tool_calls": [
        {"id": "c1", "type": "function", "function": {"name": "f", "arguments": arguments}}]},
        {"role": "tool", "tool_call_id": "c1", "content": "error"}], "max_tokens": 1}


def response(item, **more):
    return {"input": [ASK, {"call_id": "c1", **item}, {"type": "function_call_output", "call_id": "c1", "output": "error"}],
            "max_output_tokens": 1, **more}


def message(value):
    return {"messages": [ASK, {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "f", "input": value}]},
                         {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "error"}]}], "max_tokens": 1}


def as_members(arguments):
    """What a template that goes over members writes."""
    try:
        value = json.loads(arguments, parse_int=lambda d: d, parse_float=lambda d: d) if arguments[:1] == "{" else None
    except ValueError:
        value = None
    if value is None:
        return f"arguments={arguments};"
    return "".join(f"{k}={v};" for k, v in value.items())


@case
def arguments_come_back_as_they_were_written():
    for way in WAYS:
        with Server("-t", "1", model=model(telling(way), f"{way}.gguf")) as s:
            for arguments in ARGUMENTS:
                if "\0" in arguments or len(arguments) > 150:  # no message shows them
                    check(s.post("/v1/chat/completions", chat(arguments)).status == 400, way, arguments)
                    continue
                wanted = f"<f:{as_members(arguments) if way == 'members' else arguments}>"
                wanted = wanted.replace("\\u0000\\ud800", "\0\ufffd") if way == "members" else wanted
                if "\0" not in wanted:
                    found = shown(s.post("/apply-template", chat(arguments)))
                    check(found == wanted, way, found, wanted)
                    item = {"type": "function_call", "name": "f", "arguments": arguments, "status": "incomplete"}
                    check(shown(s.post("/v1/responses", response(item))) == wanted, way, wanted)


@case
def no_arguments_stop_a_conversation():
    for template in (CHATML, TOOLS, TOOLS.replace("| tojson", "")):
        with Server("-t", "1", model=model(template, "m.gguf")) as s:
            for arguments in ARGUMENTS + ["", None, [1], 7, True, {"a": None}]:
                answer = s.post("/v1/chat/completions", chat(arguments))
                check(answer.status == 200, arguments, answer.raw)
                answer = s.post("/api/chat", {"model": "m", "stream": False, **chat(arguments)})
                check(answer.status == 200, arguments, answer.raw)
                answer = s.post("/v1/messages", message(arguments))
                check(answer.status == 200, arguments, answer.raw)
                if isinstance(arguments, str):
                    item = {"type": "function_call", "name": "f", "arguments": arguments}
                    check(s.post("/v1/responses", response(item)).status == 200, arguments)


@case
def arguments_that_are_values_come_back_as_their_json():
    with Server("-t", "1", model=model(telling("text"), "text.gguf")) as s:
        for value, wanted in (({"a": [1, 2.50], "b": {"c": "\u00e9"}}, '{"a": [1, 2.5], "b": {"c": "\u00e9"}}'), ({}, "{}"), (None, "{}"),
                              ("", "{}"), ([1, "x"], '[1, "x"]'), (7, "7"), (False, "false"), ("x", "x")):
            for path, body in (("/apply-template", chat(value)), ("/v1/messages", message(value))):
                found = shown(s.post(path, body)) if path != "/v1/messages" else s.post(path, body).json()["error"]["message"].split(": ", 2)[2]
                check(found == f"<f:{wanted}>", path, found, wanted)
        big = b'{"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": {"a": 1e400, "b": 12345678901234567890}}}]}]}'
        check(shown(s.post("/apply-template", big)) == '<f:{"a": 1e400, "b": 12345678901234567890}>', "digits")


@case
def items_of_other_tools_are_taken():
    calls = [({"type": "custom_tool_call", "name": "patch", "input": "*** Begin\n\"x\""}, '<patch:{"input": "*** Begin\\n\\"x\\""}>'),
             ({"type": "local_shell_call", "status": "completed", "action": {"type": "exec", "command": ["ls"]}},
              '<local_shell:{"action": {"type": "exec", "command": ["ls"]}}>'),
             ({"type": "shell_call", "action": {"commands": ["ls"]}}, '<shell:{"action": {"commands": ["ls"]}}>'),
             ({"type": "apply_patch_call", "operation": {"type": "delete_file"}}, '<apply_patch:{"operation": {"type": "delete_file"}}>'),
             ({"type": "mcp_call", "id": "m", "name": "f", "server_label": "x", "arguments": "{\"a\":1}", "output": "o"}, '<f:{"a":1}>')]
    with Server("-t", "1", model=model(telling("text"), "text.gguf")) as s:
        for item, wanted in calls:
            found = shown(s.post("/v1/responses", response(item)))
            check(found == wanted, found, wanted)
    with Server("-t", "1", model=model(CHATML, "plain.gguf")) as s:
        def count(*items):
            answer = s.post("/v1/responses/input_tokens", {"input": [ASK, *items]})
            check(answer.status == 200, items, answer.raw)
            return answer.json()["input_tokens"]
        plain = count()
        for kind in ("web_search_call", "file_search_call", "code_interpreter_call", "mcp_list_tools", "image_generation_call", "compaction"):
            check(count({"type": kind, "id": "w", "status": "completed", "action": {"type": "search", "query": "x"}}) == plain, kind)
        for kind, output in (("custom_tool_call_output", "done"), ("local_shell_call_output", "{\"a\":1}"), ("computer_call_output", {"type": "x"}),
                             ("shell_call_output", [{"type": "output_text", "text": "a"}])):
            check(count({"type": kind, "call_id": "c1", "output": output}) > plain, kind)
        refused = {"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": "no, I will not do that"}]}
        check(count(refused) == count({"role": "assistant", "content": "no, I will not do that"}) > plain, "refusal")
        check(s.post("/v1/responses", {"input": [ASK, {"type": "nonsense"}]}).status == 400, "unknown items are named")
        body = {"messages": [ASK, {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]}, ASK]}
        check("no<|im_end|>" in s.post("/apply-template", body).json()["prompt"], "refusal")


if __name__ == "__main__":
    run_all(__file__)
