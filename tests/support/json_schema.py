"""A small validator of JSON schemas: the keywords of docs/constrain.md, and no others.

    problem(value, schema) -> None, or a text that says where the value is wrong

Independent of src/constrain: it looks at values, not at texts, and oneOf means exactly one."""

import re


def is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool)


TYPES = {
    "null": lambda v: v is None,
    "boolean": lambda v: isinstance(v, bool),
    "integer": lambda v: is_number(v) and v == int(v),
    "number": is_number,
    "string": lambda v: isinstance(v, str),
    "array": lambda v: isinstance(v, list),
    "object": lambda v: isinstance(v, dict),
}

FORMATS = {
    "date": r"\d{4}-\d\d-\d\d",
    "time": r"\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)",
    "date-time": r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)",
    "uuid": r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}",
    "email": r"[\w%+.-]+@[\w-]+(\.[\w-]+)+",
    "hostname": r"[\w-]+(\.[\w-]+)*",
    "ipv4": r"\d{1,3}(\.\d{1,3}){3}",
}


def same(a, b):
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    if is_number(a) and is_number(b):
        return a == b
    if type(a) is not type(b):
        return False
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    return a == b


def target(reference, root):
    found = root
    for part in reference[2:].split("/") if len(reference) > 1 else []:
        part = part.replace("~1", "/").replace("~0", "~")
        found = found[int(part)] if isinstance(found, list) else found[part]
    return found


def wrong_number(v, s):
    return any((v < s.get("minimum", v), v > s.get("maximum", v),
                "exclusiveMinimum" in s and v <= s["exclusiveMinimum"],
                "exclusiveMaximum" in s and v >= s["exclusiveMaximum"]))


def wrong_string(v, s):
    if not s.get("minLength", 0) <= len(v) <= s.get("maxLength", len(v)):
        return "length"
    if "pattern" in s and not re.search(s["pattern"], v):
        return "pattern"
    if s.get("format") in FORMATS and not re.fullmatch(FORMATS[s["format"]], v):
        return "format"
    return None


def wrong_array(v, s, root, path):
    if not s.get("minItems", 0) <= len(v) <= s.get("maxItems", len(v)):
        return f"{path}: number of items"
    prefix = s.get("prefixItems", [])
    for i, item in enumerate(v):
        wrong = problem(item, prefix[i] if i < len(prefix) else s.get("items", True), root, f"{path}/{i}")
        if wrong:
            return wrong
    return None


def wrong_object(v, s, root, path):
    if not s.get("minProperties", 0) <= len(v) <= s.get("maxProperties", len(v)):
        return f"{path}: number of members"
    missing = [name for name in s.get("required", []) if name not in v]
    if missing:
        return f"{path}: lacks {missing}"
    for name, item in v.items():
        schema = s.get("properties", {}).get(name, s.get("additionalProperties", True))
        wrong = problem(item, schema, root, f"{path}/{name}")
        if wrong:
            return wrong
    return None


def problem(v, s, root=None, path="#"):
    root = s if root is None else root
    if isinstance(s, bool):
        return None if s else f"{path}: not allowed"
    types = s.get("type", [])
    types = [types] if isinstance(types, str) else types
    if types and not any(TYPES[name](v) for name in types):
        return f"{path}: type of {v!r}"
    if "enum" in s and not any(same(v, one) for one in s["enum"]):
        return f"{path}: {v!r} is not in enum"
    if "const" in s and not same(v, s["const"]):
        return f"{path}: {v!r} is not const"
    if is_number(v) and wrong_number(v, s):
        return f"{path}: {v} is out of range"
    if isinstance(v, str) and wrong_string(v, s):
        return f"{path}: {wrong_string(v, s)} of {v!r}"
    wrong = None
    if isinstance(v, list):
        wrong = wrong_array(v, s, root, path)
    if isinstance(v, dict):
        wrong = wrong_object(v, s, root, path)
    for part in s.get("allOf", []):
        wrong = wrong or problem(v, part, root, path)
    if "$ref" in s:
        wrong = wrong or problem(v, target(s["$ref"], root), root, path)
    if "anyOf" in s and all(problem(v, part, root, path) for part in s["anyOf"]):
        wrong = wrong or f"{path}: none of anyOf"
    if "oneOf" in s and sum(not problem(v, part, root, path) for part in s["oneOf"]) != 1:
        wrong = wrong or f"{path}: not one of oneOf"
    return wrong
