"""Texts that a model draws at temperature 2 parse as JSON and satisfy their schema, for each of the schemas in
schemas.jsonl and some seeds, with HEARTH_LONG 1,000: about seven minutes of a core's time.

    test_walks.py CONSTRAINT_WALK MODEL
"""

import json
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))
from cases import Skip, case, run_cases  # noqa: E402
from json_schema import problem  # noqa: E402

PROGRAM, MODEL = sys.argv[1], sys.argv[2]
SCHEMAS = os.path.join(HERE, "schemas.jsonl")
N_SEED, N_TOKEN = (1000 if os.environ.get("HEARTH_LONG") else 8), 300


@case
def the_validator_sees_what_is_wrong():
    with open(SCHEMAS, encoding="utf-8") as f:
        schemas = [json.loads(line) for line in f]
    wrong = [[], {"name": "x"}, {"d": 1}, [1], [], [1], "pink", {}, "ab", "ab", "1234", "fo", "a", "a@b", "2024-1-01",
             "x", "x", "1.1", "1", 6, 10, {"kind": "circle", "r": 0}, {"id": 5, "ok": True}, {"value": 1},
             {"label": "a", "x": 1}, {}, {"id": 1, "x": 2}, {}, {}, 2, 0, 3, "1", 1.5, 0]
    for value, schema in zip(wrong, schemas):
        assert problem(value, schema), (value, schema)
    assert problem("tab\t\"quote\" \u00e9", schemas[6]) is None
    assert problem([[[0, 1], [1, 1]]], schemas[36]) is None


@case
def texts_drawn_at_temperature_2_satisfy_their_schemas():
    with open(SCHEMAS, encoding="utf-8") as f:
        schemas = [json.loads(line) for line in f]
    assert len(schemas) >= 30
    command = [PROGRAM, MODEL, SCHEMAS, str(N_SEED), str(N_TOKEN)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 0, done.stderr
    complete, texts = [0] * len(schemas), [set() for _ in schemas]
    for line in done.stdout.splitlines():
        index, how, text = line.split(" ") if line.count(" ") == 2 else (*line.split(" "), "")
        if how != "complete":
            continue
        index, text = int(index), bytes.fromhex(text).decode("utf-8")
        wrong = problem(json.loads(text), schemas[index])
        assert not wrong, (wrong, text, schemas[index])
        complete[index] += 1
        texts[index].add(text)
    print("     complete of", N_SEED, "for each schema:", *complete)
    assert all(complete), [schema for schema, n in zip(schemas, complete) if n == 0]
    assert sum(complete) > 0.8 * N_SEED * len(schemas), sum(complete)
    assert sum(len(found) > 1 for found in texts) >= 30, "the texts of a schema are all the same"


if __name__ == "__main__":
    run_cases(__file__)
