"""Requests of programs without the texts that others wrote, for recordings: keys, structure, lengths, numbers, roles and
kinds stay, names of functions and of their parameters become others of the same length and the same classes of
characters, and each text becomes filler that begins with a number of its own, so that a test can find it in a prompt.
"""
import json
import re
import string

# Members whose texts are words of an API or of JSON schemas, or ids that say nothing.
KEPT = {"type", "role", "status", "model", "effort", "tool_choice", "summary", "include", "keep", "detail", "phase", "ttl", "syntax", "verbosity", "format", "$schema",
        "pattern", "id", "call_id", "tool_call_id", "tool_use_id", "previous_response_id", "truncation", "encoding_format"}
NAMED = {"name", "required", "enum", "const", "default"}  # texts that are names: equal ones stay equal
NAMES = {"properties", "$defs", "definitions", "patternProperties"}  # objects whose keys are names
HEADERS = {"accept", "accept-encoding", "accept-language", "content-type", "anthropic-version", "sec-fetch-mode", "authorization", "user-agent"}
BILLING = "x-anthropic-billing-header: "  # which the server looks for
MARKS = '\n\t\r"\\{}<>'
WIDE = {2: "é", 3: "→", 4: "😀"}


class Anonymous:
    def __init__(self):
        self.names, self.texts = {}, {}

    def name(self, text):
        """Letters count the names; what is no letter stays."""
        if text not in self.names:
            at, out = len(self.names), []
            for c in reversed(text):
                if c in string.ascii_letters:
                    at, digit = divmod(at, 26)
                    c = (string.ascii_uppercase if c.isupper() else string.ascii_lowercase)[digit]
                out.append(c)
            made = "".join(reversed(out))
            self.names[text] = made if made not in self.names.values() else self.filler(text)
        return self.names[text]

    def filler(self, text):
        head = BILLING if text.startswith(BILLING) else ""
        chars = [c if c in MARKS else "x" if c.isascii() else WIDE[len(c.encode())] for c in text[len(head):]]
        out = "".join(chars)
        number = self.texts.setdefault(text, len(self.texts))
        return head + re.sub("xxxxx", f"t{number:04}", out, count=1)

    def arguments(self, text):
        try:
            value = json.loads(text)
        except ValueError:
            return self.filler(text)
        return json.dumps(self.value(value, "", True), ensure_ascii=False, separators=(", ", ": ") if '": ' in text else (",", ":"))

    def value(self, value, key="", named=False):
        """named: the keys of an object are names."""
        if isinstance(value, list):
            return [self.value(v, key, named) for v in value]
        if isinstance(value, dict):
            return {self.name(k) if named else k: self.value(v, "" if named else k, (k in NAMES and not named) or k == "input" and "name" in value)
                    for k, v in value.items()}
        if not isinstance(value, str):
            return value
        if key == "arguments":
            return self.arguments(value)
        if key == "$ref":
            return "/".join(part if part in NAMES or part == "#" else self.name(part) for part in value.split("/"))
        return value if key in KEPT else self.name(value) if key in NAMED else self.filler(value)

    def headers(self, headers):
        return {k.lower(): v if k.lower() in HEADERS else self.name(v) for k, v in headers.items()}

    def request(self, program, path, headers, body):
        """A line of a recording."""
        kept = {"program": program, "path": path, "headers": self.headers(headers), "body": self.value(json.loads(body))}
        return json.dumps(kept, ensure_ascii=False, separators=(",", ":")) + "\n"
