"""hearth run with --json-schema, --json-object, --grammar and --choice, as a user meets them. Called by CTest with the
program's path. Python 3, standard library only."""

import json
import os
import re
import sys

from program import MODEL, SOURCE, cases, case, check, hearth, good, bad, least_ram, scratch, data

sys.path.insert(0, os.path.join(SOURCE, "tests", "support"))
from json_schema import problem  # noqa: E402

PERSON = {"type": "object", "required": ["name", "age"],
          "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer", "minimum": 0, "maximum": 99},
                         "likes": {"type": "array", "items": {"enum": ["cats", "dogs"]}, "maxItems": 3}}}


def text_of(*args):
    done = good("run", "--no-echo", "-q", *args)
    return done.stdout.decode().rstrip("\n")


@case
def json_of_a_schema_is_valid():
    path = scratch("person.json", json.dumps(PERSON).encode())
    for seed in range(6):
        text = text_of("-p", "A person:", "--json-schema", path, "--temperature", "2", "--seed", str(seed))
        check(problem(json.loads(text), PERSON) is None, text, problem(json.loads(text), PERSON))
    one = text_of("-p", "A person:", "-j", json.dumps(PERSON), "--seed", "3")
    for spelling in ("--json-schema", "-jf", "--json-schema-file"):
        check(text_of("-p", "A person:", spelling, path, "--seed", "3") == one, spelling)
    greedy = text_of("-p", "A person:", "-j", path, "--greedy")
    check(problem(json.loads(greedy), PERSON) is None, greedy)


@case
def the_end_says_that_the_text_is_complete():
    result = json.loads(good("run", "-p", "Is it?", "--choice", "yes", "--choice", "no", "--json").stdout)
    check(result["text"] in ("yes", "no") and result["end"] == "complete", result)
    result = json.loads(good("run", "-p", "It is", "--json-object", "-n", "2", "--json").stdout)
    check(result["text"].startswith("{") and result["end"] == "length", result)
    result = json.loads(good("run", "-j", '{"const": 7}', "--json").stdout)
    check(result["text"] == "7" and result["end"] == "complete", result)
    said = good("run", "-p", "It is", "--choice", "red").stderr
    check(b"ended: complete" in said, said)


@case
def grammars_are_texts_or_files():
    grammar = 'root ::= "a" [0-9]{3} "-" ("x" | "y")+ "!"'
    path = scratch("form.gbnf", (grammar + "\n").encode())
    for value in (grammar, path):
        for option in ("--grammar", "--grammar-file"):
            text = text_of("-p", "It is", option, value, "--temperature", "2")
            check(re.fullmatch("a[0-9]{3}-[xy]+!", text), text)
    check(text_of("--grammar", 'root ::= " the end"') == " the end", "the first space is a part of the text")


@case
def penalties_and_bias_revive_nothing():
    for seed in range(4):
        text = text_of("-p", "yes no yes no", "--choice", "maybe", "--choice", "perhaps", "--repeat-penalty", "0.2",
                       "--presence-penalty", "-50", "--logit-bias", "300=80", "--seed", str(seed), "--temperature", "2")
        check(text in ("maybe", "perhaps"), text)


@case
def wrong_constraints_are_refused():
    bad(2, "--json-schema and --choice contradict each other", "run", "-j", "{}", "--choice", "a")
    bad(2, "leave --ignore-eos out", "run", "-j", "{}", "--ignore-eos")
    bad(1, "No such file", "run", "-j", scratch("missing.json"))
    wrong = scratch("wrong.json", b'{"type": "object", "properties": {"a": {"multipleOf": 2}}}')
    bad(1, "wrong.json: JSON schema: #/properties/a/multipleOf: the keyword multipleOf is not supported", "run", "-j",
        wrong)
    bad(1, "JSON schema: no JSON: line 2 column 10", "run", "-j", scratch("broken.json", b'{"type":\n"object",}'))
    bad(1, "grammar: line 1 column 10: there is no rule item", "run", "--grammar", "root ::= item")
    bad(1, "choices: choice 0 is empty", "run", "--choice", "")
    bad(1, "UTF-16", "run", "-j", scratch("wide.json", '{"type": "null"}'.encode("utf-16")))
    bad(2, "hearth run MODEL --json-schema", "chat", MODEL, "--grammar", "x")


@case
def a_limit_of_memory_counts_constraints():
    floats = data("models/storyteller-drelu/storyteller-drelu-f32.gguf")
    words = ["run", floats, "-p", "Is it?", "-c", "64", "--batch", "16", "-t", "1", "--gpu", "none", "--ram"]
    least = int(least_ram(*words[:-1]))
    bad(1, "a constraint of 24", *words, str(least), "--choice", "yes")
    check(text_of(*words[1:], str(least + (40 << 20)), "--choice", "yes") == "yes", "with more")


if __name__ == "__main__":
    cases.run_cases(__file__)
