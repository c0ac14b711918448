"""Templates of our own that refuse conversations as those that people use do, a rule each."""

import re

SAYS = "<|{{ m.role }}|>{{ m.content }}<|end|>"
CALLS = "{% for c in m.tool_calls or [] %}<tool_call>{{ c.function.name }}{{ c.function.arguments | tojson }}{{ c.id }}</tool_call>{% endfor %}"
RESULT = "{{ m.tool_call_id or '' }}"
FUNCTIONS = "{% if tools %}<|tools|>{{ tools | tojson }}<tool_call><|end|>{% endif %}"


def each(says, before=""):
    return FUNCTIONS + before + "{% for m in messages %}" + says + "{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"


def refuse(condition, why):
    return "{% if " + condition + " %}{{ raise_exception('" + why + "') }}{% endif %}"


ALL = SAYS + CALLS + RESULT
TEMPLATES = {
    "takes all": each(ALL),
    "the system comes first": each(refuse("m.role == 'system' and not loop.first", "the system comes first") + ALL),
    "no system": each(refuse("m.role == 'system'", "there is no system") + ALL),
    "turns": each(refuse("m.role in ['user', 'assistant'] and not m.tool_calls and (m.role == 'user') == (ns.last == 'user')", "in turns")
                  + "{% if m.role in ['user', 'assistant'] and not m.tool_calls %}{% set ns.last = m.role %}{% endif %}" + ALL,
                  "{% set ns = namespace(last='assistant') %}"),
    "turns, no system, no functions": re.sub("<tool_call>.*</tool_call>", "", each(
        refuse("m.role == 'system' or (m.role == 'user') != (loop.index0 % 2 == 0)", "user and assistant in turns") + SAYS)).replace(FUNCTIONS, ""),
    "ids of nine letters": each(refuse("m.tool_call_id and m.tool_call_id|length != 9", "nine letters") + "{% for c in m.tool_calls or [] %}"
                                + refuse("c.id|length != 9", "nine letters") + "{% endfor %}" + ALL),
    "one call": each(refuse("m.tool_calls and m.tool_calls|length != 1", "one call at once") + ALL),
    "later systems are dropped": each("{% if m.role != 'system' or loop.first %}" + ALL + "{% endif %}"),
    "the user comes first": each(refuse("loop.first and m.role not in ['user', 'system'] or loop.index0 == 1 and m.role == 'assistant' "
                                        "and messages[0].role == 'system'", "the user comes first") + ALL),
    "members": each(SAYS + "{% for c in m.tool_calls or [] %}<tool_call><function={{ c.function.name }}>{% for k, v in c.function.arguments|items %}"
                    "<parameter={{ k }}>{{ v if v is string else v | tojson }}</parameter>{% endfor %}</function></tool_call>{% endfor %}" + RESULT),
    "texts": each(SAYS + "{% for c in m.tool_calls or [] %}{{ '<tool_call>' + c.function.name + ' ' + c.function.arguments + '</tool_call>' }}"
                  "{% endfor %}" + RESULT),
    "all at once": each(refuse("m.role == 'system' and not loop.first", "the system comes first")
                        + refuse("loop.index0 > 0 and messages[loop.index0 - 1].role == m.role and m.role != 'tool'", "one at a time")
                        + refuse("m.role == 'assistant' and (loop.first or messages[loop.index0 - 1].role == 'system')", "the user comes first")
                        + refuse("m.tool_call_id and m.tool_call_id|length != 9", "nine letters") + "{% for c in m.tool_calls or [] %}"
                        + refuse("c.id|length != 9", "nine letters") + "{% endfor %}" + ALL),
    "alone": each(refuse("loop.index0 > 0 and messages[loop.index0 - 1].role == m.role and m.role != 'tool'", "one at a time") + ALL),
}
# Those of five families, and of the rules that their clients meet.
FIVE = ["the system comes first", "no system", "turns, no system, no functions", "ids of nine letters", "all at once"]


def ending(template, end):
    """The template, with that behind what it writes, which is the variable shown."""
    return "{% set shown %}" + template + "{% endset %}{{ shown }}{% if add_generation_prompt %}" + end + "{% endif %}"
