"""Writes jinja_cases.jsonl, the table that test_template.c compares with: what Python's
Jinja2 makes of small templates, set up as it is for chat templates.

    make_jinja_cases.py > jinja_cases.jsonl        (needs the module jinja2)

"out" is the text, "fails" stands where Jinja2 refuses. Cases that differ on purpose are
not here but in test_template.c.
"""

import datetime
import json
import sys

import jinja2
import jinja2.sandbox

VARIABLES = {
    "s": "Hello World",
    "u": "é日本🙂x",
    "sp": "  two\n lines \t",
    "n": 7,
    "f": 2.5,
    "t": True,
    "no": False,
    "nil": None,
    "e": "",
    "l": [3, 1, 2],
    "w": ["b", "A", "c", "a"],
    "d": {"b": 1, "a": "x", "items_": [1, 2]},
    "m": [
        {"role": "user", "content": "Hi", "n": 2},
        {"role": "assistant", "content": "Yo", "n": 1},
        {"role": "user", "content": "", "n": 3},
    ],
    "tool": {
        "type": "function",
        "function": {"name": "f", "parameters": {"x": {"type": "integer", "min": -1.5, "é": "\u2028\"\\/\t\x01"}}},
    },
}

# One template per entry. The comments name what is tried.
TEMPLATES = r"""
{{ s }} {{ n }} {{ f }} {{ t }} {{ nil }} {{ missing }}|
{{ l }} {{ w }} {{ d }} {{ (1, 2) }} {{ (1,) }} {{ () }} {{ [] }} {{ {} }}
{{ ["it's", 'say "x"', "both ' and \"", "a\\b\n\t\r\x01\x7f", "é"] }}
{{ 1 + 2 }} {{ 1 - 2 }} {{ 3 * 4 }} {{ 7 / 2 }} {{ 7 // 2 }} {{ -7 // 2 }} {{ 7 % 3 }} {{ -7 % 3 }} {{ 7 % -3 }} {{ 2 ** 10 }}
{{ 1.5 + 2 }} {{ 7.5 // 2 }} {{ -7.5 % 2 }} {{ 1 / 3 }} {{ 1e20 }} {{ 1e16 }} {{ 1e15 }} {{ 1.0 }} {{ 0.0001 }} {{ 0.00001 }} {{ 123456789.125 }} {{ 1e-7 }} {{ 5e-324 }} {{ 1.7976931348623157e308 }} {{ 0.1 + 0.2 }} {{ 100.0 }} {{ 1_000 }} {{ 2.5e3 }}
{{ -n }} {{ +n }} {{ -f }} {{ - -n }} {{ -2 ** 2 }} {{ 2 ** 3 ** 2 }} {{ true + true }} {{ true * 3 }} {{ -true }}
{{ "a" "b" 'c' }} {{ 'a' ~ 1 ~ none ~ true ~ 1.0 ~ [1] }} {{ 'ab' * 3 }} {{ 2 * 'xy' }} {{ 'a' * 0 }} {{ 'a' * -1 }}
{{ [1] + [2] }} {{ [1, 2] * 2 }} {{ (1,) + (2,) }} {{ (1, 2) * 2 }}
{{ 'a\tb\nc\\d\'e\"f\x41\u00e9\U0001F642\101\q' }}
{{ 1 < 2 }} {{ 1 <= 1 }} {{ 2 > 3 }} {{ 2 >= 2 }} {{ 1 == 1.0 }} {{ 1 == true }} {{ 'a' < 'b' }} {{ 'a' != 'b' }} {{ [1, 2] < [1, 3] }} {{ (1,) == (1,) }} {{ [1] == (1,) }} {{ {'a': 1} == {'a': 1.0} }} {{ none == none }} {{ missing == other }} {{ '' == false }} {{ 0 == false }}
{{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ 1 == 1 != 2 }} {{ 3 > 2 > 1 > 0 }}
{{ 'ell' in s }} {{ 'x' in s }} {{ 3 in l }} {{ 9 not in l }} {{ 'a' in d }} {{ '' in s }} {{ 'x' in missing }} {{ not 'a' in d }} {{ 1.0 in l }} {{ ('b', 1) in d.items() }}
{{ true and 1 }} {{ '' and 1 }} {{ 0 or 'x' }} {{ '' or [] }} {{ not '' }} {{ not l }} {{ 1 and 2 and 3 }} {{ 0 or '' or none }} {{ not not 1 }} {{ missing or 'd' }} {{ nil and nil.x }}
{{ 'y' if t else 'n' }} {{ 'y' if no else 'n' }} {{ 'y' if no }}| {{ 1 if no else 2 if no else 3 }} {{ (1 if t) }} {{ 'a' if missing else 'b' }}
{{ s[0] }} {{ s[-1] }} {{ s[1:] }} {{ s[:3] }} {{ s[2:5] }} {{ s[::-1] }} {{ s[::2] }} {{ s[-3:] }} {{ s[:-3] }} {{ s[5:2] }}| {{ s[8:100] }} {{ s[-100:2] }} {{ s[::-2] }} {{ s[3::-1] }} {{ s[:2:-1] }} {{ s[none:2] }}
{{ u[0] }} {{ u[1] }} {{ u[3] }} {{ u[1:3] }} {{ u[::-1] }} {{ u|length }} {{ u|list }}
{{ l[0] }} {{ l[-1] }} {{ l[9] }}| {{ l[1:] }} {{ l[::-1] }} {{ l[:-1] }} {{ l[-2:] }} {{ l[0:0] }} {{ (1, 2, 3)[1:] }} {{ l[5:1:-2] }} {{ l.0 }} {{ m.0.role }} {{ m[-1]['role'] }}
{{ d.b }} {{ d['a'] }} {{ d.missing }}| {{ d['missing'] }}| {{ d.items_ }} {{ d.get('b') }} {{ d.get('z') }} {{ d.get('z', 5) }} {{ nil.x }}| {{ n.x }}| {{ s.x }}| {{ s['x'] }}| {{ d[1] }}|
{{ d.items()|list }} {{ d.keys()|list }} {{ d.values()|list }} {{ d|items|list }} {{ d|list }} {{ d|length }} {{ d|dictsort }} {{ {'b': 2, 'A': 3, 'a': 1}|dictsort }} {{ {'b': 2, 'A': 3, 'a': 1}|dictsort(true) }} {{ {'b': 2, 'a': 1}|dictsort(false, 'value') }} {{ {'b': 2, 'a': 1}|dictsort(reverse=true) }}
{{ {'a': 1, 'b': {'c': [1, 2]}} }} {{ {1: 2, true: 3} }} {{ {'x': 1, 'x': 2} }} {{ {'a': 1,} }} {{ [1, 2,] }} {{ {(1, 2): 3}[(1, 2)] }}
{{ s|upper }} {{ s|lower }} {{ 'hELLO wORLD'|capitalize }} {{ "they're bill's-friends (from) uk"|title }} {{ "they're bill's".title() }} {{ sp|trim }}| {{ 'xxaxx'|trim('x') }} {{ s|replace('l', 'L') }} {{ s|replace('l', 'L', 2) }} {{ 'aaa'|replace('', '-') }} {{ 'abc'.replace('b', '') }} {{ s|reverse }} {{ s|length }} {{ e|length }} {{ s|wordcount }}
{{ 'a\nb\n\nc'|indent }}| {{ 'a\nb\n\nc'|indent(2, true) }}| {{ 'a\n\nb'|indent(2, blank=true) }}| {{ 'a\nb'|indent('> ') }}| {{ 'a\nb\n'|indent(first=true) }}| {{ ''|indent(2, true) }}|
{{ '<a href="x">\'&'|e }} {{ '<'|escape }} {{ s|safe }} {{ 1|string }} {{ none|string }} {{ [1]|string }} {{ 1.5|string }}
{{ '12'|int }} {{ ' -12 '|int }} {{ 'x'|int }} {{ 'x'|int(5) }} {{ 3.9|int }} {{ -3.9|int }} {{ true|int }} {{ '3.7'|int }} {{ none|int }} {{ '1.5'|float }} {{ 'x'|float }} {{ 2|float }} {{ 'x'|float(1.5) }} {{ -3|abs }} {{ -2.5|abs }} {{ '1e3'|float }}
{{ 2.5|round }} {{ 3.5|round }} {{ 2.675|round(1) }} {{ -2.5|round }} {{ 2.1|round(method='ceil') }} {{ 2.9|round(0, 'floor') }} {{ 7|round }} {{ -2.1|round(0, 'floor') }} {{ -2.9|round(method='ceil') }}
{{ missing|default('x') }} {{ e|default('x') }}| {{ e|default('x', true) }} {{ nil|default('x') }} {{ nil|d('x', boolean=true) }} {{ missing|d }}| {{ n|default(1) }} {{ missing.x|default('y') if missing is defined else 'z' }}
{{ l|join }} {{ l|join(', ') }} {{ w|join('-') }} {{ m|join(',', attribute='role') }} {{ []|join(',') }}| {{ 'abc'|join('.') }} {{ ', '.join(w) }} {{ [1, none, 'x']|join('/') }}
{{ l|first }} {{ l|last }} {{ []|first }}| {{ s|first }} {{ s|last }} {{ l|sum }} {{ m|sum(attribute='n') }} {{ l|sum(start=10) }} {{ l|max }} {{ l|min }} {{ w|max }} {{ w|min }} {{ []|max }}| {{ m|max(attribute='n') }}
{{ l|sort }} {{ w|sort }} {{ w|sort(case_sensitive=true) }} {{ l|sort(reverse=true) }} {{ m|sort(attribute='n')|map(attribute='n')|list }} {{ m|sort(attribute='role', reverse=true)|map(attribute='n')|list }} {{ ['b', 'B', 'a']|sort(true) }} {{ w|unique|list }} {{ ['a', 'A', 'b']|unique|list }} {{ ['a', 'A']|unique(true)|list }} {{ m|unique(attribute='role')|map(attribute='n')|list }} {{ [1, 1.0, 2]|unique|list }}
{{ l|list|reverse|list }} {{ l|reverse|list }} {{ s|list }} {{ (1, 2)|list }}
{{ m|map(attribute='content')|list }} {{ w|map('upper')|join }} {{ m|map(attribute='z', default='?')|list }} {{ [' a ', 'b']|map('trim')|list }} {{ [[1, 2], [3]]|map('length')|list }} {{ [[1, 2]]|map(attribute=1)|list }} {{ [{'a': {'b': 5}}]|map(attribute='a.b')|list }} {{ ['ab']|map('replace', 'a', 'c')|list }} {{ [none]|map('default', 'x', true)|list }}
{{ none|select('odd')|list }} {{ none|map('upper')|list }} {{ none|rejectattr('x')|list }} {{ l|select('odd')|list }} {{ l|select('gt', 1)|list }} {{ l|reject('equalto', 2)|list }} {{ [0, 1, '']|select|list }} {{ [0, 1, '']|reject|list }} {{ m|selectattr('role', 'equalto', 'user')|list|length }} {{ m|selectattr('content')|list|length }} {{ m|rejectattr('role', '==', 'user')|map(attribute='content')|list }} {{ m|selectattr('role', 'in', ['assistant'])|list|length }} {{ m|selectattr('z', 'defined')|list }} {{ m|rejectattr('content')|list|length }}
{{ tool|tojson }} {{ tool|tojson(indent=2) }} {{ [1, 'a', none, true, 1.5, 1e20]|tojson }} {{ {}|tojson(indent=2) }} {{ []|tojson }} {{ 'é🙂\u0000\x7f'|tojson(ensure_ascii=true) }} {{ d|tojson(separators=(',', ':')) }} {{ d|tojson(sort_keys=true) }} {{ {1: 2, none: 3, true: 4, 1.5: 5}|tojson }} {{ (1, 2)|tojson }} {{ tool|tojson(false, '--') }} {{ '</script>'|tojson }} {{ [[], {}]|tojson(indent=1) }}
{{ s.split() }} {{ s.split('o') }} {{ s.split('o', 1) }} {{ sp.split() }} {{ 'a,b,,c'.split(',') }} {{ ''.split() }} {{ ''.split(',') }} {{ 'a b  c '.split(none, 1) }} {{ 'a,b,c'.rsplit(',', 1) }} {{ 'a,b,c'.rsplit(',') }} {{ 'a b c'.rsplit() }} {{ 'a,b'.rsplit(',', 5) }} {{ 'a,b,c'.rsplit(',', 0) }} {{ 'a--b'.partition('--') }} {{ 'ab'.partition('x') }} {{ 'a\nb\r\nc\n'.splitlines() }} {{ 'a\nb'.splitlines(true) }} {{ s.split('o')[-1] }} {{ s.split(sep='o', maxsplit=1) }}
{{ sp.strip() }}| {{ sp.lstrip() }}| {{ sp.rstrip() }}| {{ 'xyax'.strip('xy') }} {{ 'xxa'.lstrip('x') }} {{ 'axx'.rstrip('x') }} {{ '\u00a0\u2003a\u3000'.strip() }}| {{ 'éaé'.strip('é') }} {{ 'abc'.strip('') }} {{ '\x1fa'.strip() }}
{{ s.startswith('He') }} {{ s.endswith('ld') }} {{ s.startswith(('x', 'H')) }} {{ s.endswith('') }} {{ s.startswith('Hello World!') }} {{ s.removeprefix('Hello ') }} {{ s.removesuffix('World') }} {{ s.removeprefix('x') }} {{ s.find('o') }} {{ s.find('z') }} {{ u.find('本') }} {{ s.index('W') }} {{ s.count('l') }} {{ s.count('ll') }}
{{ '<{}|{}>'.format('a', 1) }} {{ '{1}{0}{1}'.format('a', 'b') }} {{ '{x}-{y}'.format(x=s, y=[1, 'é']) }} {{ '{{}}'.format() }} {{ '{{{}}}'.format(3) }} {{ '{} {} {} {}'.format(none, true, 1.5, missing) }}| {{ ''.format(1) }}| {{ 'a{}'.format(d) }} {{ '{0.role} {0[content]} {1[0]} {1[2]}'.format(m[0], l) }}
{{ '{:5}|{:<5}|{:>5}|{:^5}|{:*^7}|{:é>4}'.format('ab', 'ab', 'ab', 'ab', 'ab', 'ab') }} {{ '{:.2}|{:6.3}|{:s}|{:05}'.format('日本語', 'abcdef', 'x', 'ab') }} {{ '{!r} {!s} {!r:>6}'.format('a', 'a', 1) }}
{{ '{:d} {:5d} {:<5d}| {:^5}| {:05} {:+} {: } {:x} {:X} {:#x} {:#X} {:o} {:#o} {:b} {:#b}'.format(1, 2, 3, 4, -5, 6, 7, 255, 255, 255, 255, 8, 8, 5, 5) }} {{ '{:,} {:_} {:,.2f} {:,}'.format(1234567, 1234567, 1234567.5, 999) }} {{ '{:#010x} {:=+6} {:0>5} {:x}'.format(255, 7, 3, -255) }} {{ '{:d} {:5}'.format(true, true) }}
{{ '{:.2f} {:8.3f} {:e} {:.1e} {:g} {:.3g} {:%} {:.0%} {:E} {:G}'.format(2.5, -1.5, 12345.678, 0.00012, 1e10, 1234.5, 0.25, 0.5, 1.5, 1e-10) }} {{ '{:f} {:10} {:+.1f} {:f}'.format(3, 2.5, 0.04, 1e20) }} {{ '{:.0f} {:.0f} {:.0f} {:08.2f}'.format(0.5, 1.5, 2.5, -3.14159) }}
{{ '%s' % 'a' }} {{ '%s %s' % ('a', [1]) }} {{ '%d%%' % 5 }} {{ '%5d|%-5d|%05d|%+d|% d' % (1, 2, 3, 4, 5) }} {{ '%.2f %8.3f %e %g' % (2.5, 1.25, 12345.678, 0.5) }} {{ '%x %X %#x %o %#o' % (255, 255, 255, 8, 8) }} {{ '%r %10s %-4s| %.2s' % ('a', 'b', 'c', 'def') }} {{ '%d %i' % (3.9, true) }} {{ 'no' % [] }} {{ '%s' % none }} {{ '%05s' % 'ab' }}
{{ '%s and %s'|format('a', 1) }} {{ 'plain'|format }} {{ '%.1f'|format(2.25) }} {{ 5|format }} {{ "%s - %s"|format(s, u) }}
{{ '<a>'|safe + '<b>' }} {{ '<b>' + '<a>'|safe }} {{ '<a>'|safe ~ '<b>' }} {{ '<a>'|e + '&' }} {{ '<a>'|e|e }} {{ '<a>'|safe|e }} {{ '<a>'|e|forceescape }} {{ ('<a>'|safe)[1:] + '<' }} {{ ('<A>'|safe)|lower + '<' }} {{ ('<a>'|safe).strip() + '"' }} {{ ('<'|safe) * 2 + '<' }} {{ ('<'|safe + '>') + "'" }} {{ ('<{}>'|safe).format('&', 1) }} {{ ('<%s>'|safe) % '&' }} {{ ('<a>'|safe + '<b>'|safe) }} {{ (' <a> '|safe)|trim + '<' }} {{ ('<a> <b>'|safe).split()[1] + '<' }} {{ ('<a>'|safe)|string + '<' }} {{ 1|safe + '<' }}
{{ '12'.isdigit() }} {{ ''.isdigit() }} {{ 'a1'.isalnum() }} {{ 'a1'.isalpha() }} {{ 'ab'.isalpha() }} {{ ' \n'.isspace() }} {{ ''.isspace() }} {{ 'AB1'.isupper() }} {{ 'ab'.islower() }} {{ '1'.isupper() }} {{ 'aB'.islower() }} {{ 'a b'.capitalize() }} {{ 'ABC'.lower() }}
{{ 'x' is defined }} {{ missing is defined }} {{ missing is undefined }} {{ nil is none }} {{ n is number }} {{ t is number }} {{ s is string }} {{ d is mapping }} {{ l is sequence }} {{ s is sequence }} {{ n is sequence }} {{ l is iterable }} {{ n is iterable }} {{ d is iterable }} {{ t is true }} {{ 1 is true }} {{ no is false }} {{ 0 is false }} {{ t is boolean }} {{ n is integer }} {{ t is integer }} {{ f is float }} {{ n is float }} {{ range is callable }} {{ s is callable }} {{ d.missing is defined }} {{ nil is defined }} {{ m[9] is defined }} {{ missing is iterable }} {{ missing is string }} {{ d is sequence }}
{{ n is odd }} {{ n is even }} {{ n is divisibleby 7 }} {{ n is divisibleby(2) }} {{ n is eq 7 }} {{ n is equalto(7.0) }} {{ n is ne 7 }} {{ n is gt 6 }} {{ n is ge 7 }} {{ n is lt 7 }} {{ n is le 7 }} {{ n is greaterthan 1 }} {{ n is lessthan 1 }} {{ 1 is in l }} {{ n is not in l }} {{ 'ABC' is upper }} {{ 'abc' is lower }} {{ n is not none }} {{ n is not string and t }} {{ nil is sameas none }} {{ 1 is sameas true }} {{ n is sameas n }} {{ l is sameas l }} {{ [1] is sameas [1] }} {{ not n is odd }} {{ n is odd or no }}
{% if n > 5 %}a{% elif n > 3 %}b{% else %}c{% endif %}{% if no %}a{% elif n > 3 %}b{% else %}c{% endif %}{% if no %}a{% elif no %}b{% else %}c{% endif %}{% if missing %}a{% endif %}
{% for x in l %}{{ x }}{% if not loop.last %}, {% endif %}{% endfor %}|{% for x in [] %}a{% else %}none{% endfor %}|{% for x in missing %}a{% else %}none{% endfor %}
{% for x in w %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.depth }}{{ loop.depth0 }}{{ loop.previtem is defined }}{{ loop.nextitem|default('-') }} {% endfor %}
{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}{% for k in d %}{{ k }}{% endfor %}{% for c in 'aé🙂' %}[{{ c }}]{% endfor %}{% for (a, b) in [(1, 2), [3, 4]] %}{{ a + b }}{% endfor %}{% for k, v in d|dictsort %}{{ k }}{% endfor %}
{% for x in l if x > 1 %}{{ loop.index }}:{{ x }}/{{ loop.length }} {% endfor %}{% for x in l if x > 9 %}a{% else %}nothing{% endfor %}{% for k, v in d.items() if k != 'a' %}{{ k }}{{ loop.last }}{% endfor %}
{% for x in range(5) %}{% if x == 1 %}{% continue %}{% endif %}{% if x == 3 %}{% break %}{% endif %}{{ x }}{% endfor %}{% for x in [1, 2] %}{% for y in [1, 2, 3] %}{% if y == 2 %}{% break %}{% endif %}{{ x }}{{ y }} {% endfor %}{{ loop.index }}{% endfor %}
{% for x in [1, 2] %}{% for y in [1] %}{{ loop.depth }}{% endfor %}{{ loop.depth }}{% endfor %}{% for x in [1, 2, 2, 3] %}{{ loop.changed(x) }}{{ loop.cycle('a', 'b') }} {% endfor %}
{% set x = 1 %}{% for i in [1, 2] %}{{ x }}{% set x = x + 1 %}{{ x }} {% endfor %}{{ x }}{% if t %}{% set x = 9 %}{% endif %}{{ x }}{% for i in [] %}{% else %}{% set x = 5 %}{% endfor %}{{ x }}
{% set ns = namespace(a=1, b='x') %}{% for i in l %}{% set ns.a = ns.a + i %}{% endfor %}{{ ns.a }}{{ ns.b }}{{ ns.c is defined }}{% set ns.c = [1] %}{{ ns.c }}{% set q = namespace({'k': 2}) %}{{ q.k }}
{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set a, b = b, a %}{{ a }}{{ b }}{% set (c, d2) = 'xy' %}{{ c }}{{ d2 }}{% set z = 1, 2 %}{{ z }}
{% set x %}block {{ n }}{% endset %}{{ x }}|{% set x | upper | trim %} abc {% endset %}{{ x }}|{% filter upper %}abc {{ s }}{% endfilter %}|{% filter replace('a', 'b') | upper %}aaa{% endfilter %}
{% macro f(a, b='B', c=none) %}<{{ a }}{{ b }}{{ c }}>{% endmacro %}{{ f(1) }}{{ f(1, 2) }}{{ f(1, c=3) }}{{ f(b=5, a=4) }}{{ f() }}{{ f('x')|upper }}{{ f(1)|length }}{{ f is callable }}{% set r = f(2) %}{{ r ~ '!' }}
{% macro a(n) %}{{ n }}{% if n > 0 %}{{ a(n - 1) }}{% endif %}{% endmacro %}{{ a(5) }}{% set late = 1 %}{% macro g() %}{{ late }}{% set late = 7 %}{{ late }}{% endmacro %}{% set late = 2 %}{{ g() }}{{ late }}
{% macro render(o, k=0) %}{%- if o is mapping -%}{ {%- for a, b in o|items -%}{{ a }}:{{ render(b, k + 1) }}{{ ',' if not loop.last }}{%- endfor -%} }{%- else -%}{{ o }}@{{ k }}{%- endif -%}{% endmacro %}{{ render({'a': {'b': 1, 'c': 2}, 'd': 3}) }}
a {#- c -#} b {# x #} c {#- y #} d
  {% if t %}  
    x  
  {% endif %}  
y
  {%- if t -%}  
    x  
  {%- endif -%}  
y
  {%+ if t %}x{%+ endif +%}
y{{ n -}}  
z  {{- n }}
{{ n +}}x
a
  {# comment #}
b
   {# c #}   d
x {% if t %}
  line  
{% else %}
{% endif %}
end
{% for i in l %}
  {{ i }}
{% endfor %}

{{ '{{' }} {{ '%}' }} { { }} } {{ {'a': {'b': 1}}['a'] }} {% if '%}' == '%}' %}ok{% endif %}
{{ range(3)|list }} {{ range(1, 4)|list }} {{ range(5, 0, -2)|list }} {{ range(0)|list }} {{ range(3)|length }} {{ range(10)[2] }}
{{ dict(a=1, b=2) }} {{ dict({'a': 1}, b=3) }} {{ [1, 2].index(2) }} {{ [1, 1, 2].count(1) }} {{ (1, 2).index(2) }} {{ {'a': 1}.copy() }}
{{ strftime_now('%d %b %Y') }} {{ strftime_now('%Y-%m-%d %H:%M:%S %A %a %B %j %y %I %p %%') }} {{ strftime_now is defined }}
{{ [1, [2, [3]]] }} {{ [[1, 2], [3]]|sum(start=[]) }} {{ 'a' in ['a', 'b'] and 'x' or 'y' }} {{ ('a' ~ 'b').upper() }} {{ (s|upper)[0] }} {{ s|upper|lower|first }} {{ -1|abs }} {{ m|length - 1 }} {{ (m|length - 1) == 2 }} {{ 'a' + 'b' * 2 }} {{ 'n' ~ n + 1 }}
{{ s.upper().lower().title() }} {{ ' a '.strip().upper() }} {{ 'abc'|replace('b', s)|length }} {{ 'a.b'.split('.')[1] }} {{ s|attr('upper') is callable }} {{ d|attr('keys') is defined }}
{{ undefined_name.x }}
{{ undefined_function() }}
{{ nil + 1 }}
{{ 'a' + 1 }}
{{ 1 / 0 }}
{{ 1 // 0 }}
{{ 1 % 0 }}
{{ missing + 'x' }}
{{ 1 < 'a' }}
{{ l.x.y }}
{{ n() }}
{{ [1, 2]|join(',', 1, 2, 3) }}
{{ s|replace('a') }}
{% for a, b in [(1, 2, 3)] %}{% endfor %}
{% for x in 5 %}{% endfor %}
{% set d.x = 1 %}
{{ missing|tojson }}
{{ raise_exception('stop: ' + s) }}
{{ s.split('') }}
{{ '{' .format(1) }}
{{ '}'.format(1) }}
{{ '{} {}'.format(1) }}
{{ '{} {0}'.format(1) }}
{{ '{x}'.format(y=1) }}
{{ '{2}'.format(1) }}
{{ '{:d}'.format('a') }}
{{ '{:s}'.format(1) }}
{{ '{:5}'.format(none) }}
{{ '{:5}'.format([1]) }}
{{ '{:d}'.format(1.5) }}
{{ '{:.2d}'.format(1) }}
{{ '{:=5}'.format('a') }}
{{ '{:+}'.format('a') }}
{{ '{:5q}'.format(1) }}
{{ '{:.f}'.format(1.0) }}
{{ '{!x}'.format(1) }}
{{ '{0[}'.format(l) }}
{{ '{0.}'.format(d) }}
{{ '{0[a]b}'.format(d) }}
{{ '%d' % 'a' }}
{{ '%s %s' % 'a' }}
{{ '%s' % ('a', 'b') }}
{{ 'a' % 'b' }}
{{ '%' % 1 }}
{{ '%y' % 1 }}
{{ '%x' % 1.5 }}
{{ 1 % 'a' }}
{{ '%s'|format(1, a=2) }}
{{ '<a>'|safe + 1 }}
{{ l[::0] }}
{{ range(1, 5, 0) }}
{{ [].index(1) }}
{{ 'a'.index('b') }}
{{ {'a': 1}['a'](1) }}
{% macro f(a) %}{% endmacro %}{{ f(1, 2) }}
{% macro f(a) %}{% endmacro %}{{ f(b=2) }}
{{ {[1]: 2} }}
{{ 1 in 2 }}
{{ 1 in 'abc' }}
{{ none|length }}
{{ 5|list }}
{{ 'x'|abs }}
{{ s|nosuchfilter }}
{{ s is nosuchtest }}
{% nosuchstatement %}
{{ s
{% if t %}
{{ 'abc }}
{{ (1 }}
{{ 1 + }}
{{ }}
{% if %}x{% endif %}
{% for x %}{% endfor %}
{% endif %}
{% if t %}{% endfor %}
{% if t %}{% else %}{% elif t %}{% endif %}
{# open
{{ a b }}
{% set %}
{% set 1 = 2 %}
{{ 1 ? 2 }}
{% break %}
{{ f(a=1, 2) }}
{{ [1, 2 }}
{% macro f(a %}{% endmacro %}
{% for x in l recursive_ %}{% endfor %}
{{ 'a' if }}
{{ not }}
{% set x = %}
{% filter %}x{% endfilter %}
{% filter nosuchfilter %}x{% endfilter %}
{{ x | }}
{{ x is }}
{{ a. }}
{{ a.'b' }}
"""

# Cases of several lines that belong together, where white space is the point.
BLOCKS = [
    "  {% if t %}  \n    x  \n  {% endif %}  \ny\n",
    "  {%- if t -%}  \n    x  \n  {%- endif -%}  \ny\n\n",
    "a\n  {%+ if t %}x{%+ endif +%}\ny{{ n -}}  \nz  {{- n }}\n",
    "{% if t +%}\nx\n  {%+ endif %}\nb",
    "a\n  {# comment #}\nb\n   {# c #}   d\n{#- e -#}\n f\n{# g +#}\nh",
    "x {% if t %}\n  line  \n{% else %}\n{% endif %}\nend\n",
    "{% for i in l %}\n  {{ i }}\n{% endfor %}\n\n",
    "{% for i in l -%}\n  {{ i }}\n{%- endfor %}",
    "\t{% set a = 1 %}\n\t {{ a }}\n",
    "a\r\n{% if t %}\r\nb\r{% endif %}\r\nc\r\n",
    "{{ n }}\n{{ n }}\n\n",
    "{% if t %}\n\n{% endif %}\n\nx",
    "a {%- if t %} b {%- endif %} c",
    "{%\n if\n t\n%}\nx{% endif %}{{\n n\n}}",
    "  {{ n }}  \n  {% set a = 2 %}  {{ a }}\n",
    "\n\n{% if t %}x{% endif %}",
    "{#- a -#}  \n {{ n }}",
    " \u00a0{% if t %}x{% endif %}\n\u00a0{%- if t %}x{% endif %}",
    "{% macro f() %}\n  body\n{% endmacro %}\n{{ f() }}{{ f() }}",
    "{% set x %}\n  text\n{% endset %}\n[{{ x }}]",
]


def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def raise_exception(message):
    raise jinja2.TemplateError(message)


def environment():
    # The plain sandbox: templates in use call append and pop on their own lists.
    env = jinja2.sandbox.SandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    now = datetime.datetime(2024, 7, 26, 15, 4, 5)
    env.globals["strftime_now"] = now.strftime
    return env


def outcome(template):
    try:
        return {"out": environment().from_string(template).render(**json.loads(json.dumps(VARIABLES)))}
    except Exception as why:  # whatever Jinja2 or Python raises is a refusal
        return {"fails": type(why).__name__}


def main():
    lines = [line for line in TEMPLATES.split("\n") if line.strip()]
    print(json.dumps({"variables": json.dumps(VARIABLES, ensure_ascii=False)}, ensure_ascii=False, separators=(",", ":")))
    for template in lines + BLOCKS:
        case = {"template": template, **outcome(template)}
        print(json.dumps(case, ensure_ascii=False, separators=(",", ":")))


if __name__ == "__main__":
    sys.exit(main())
