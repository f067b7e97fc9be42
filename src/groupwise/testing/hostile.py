"""Hostile completions: a reward that reads them may neither raise, hang, execute nor print them."""

from __future__ import annotations

MARK = "executed_by_a_reward"
"""The file that a text creates in the working directory if a reader executes the text."""

CODE = f"__import__('os').system('touch {MARK}')"
_MEGABYTES = 10_000_000

SHORT: dict[str, str] = {
    "nothing": "",
    "spaces": " \t\r\n ",
    "code": CODE,
    "code in a list": f"[{CODE}]",
    "code in a tag": f"<answer>{CODE}</answer>",
    "code in brackets": f"\\boxed{{{CODE}}}",
    "code among digits": f"19 - 9 + 3 if {CODE} else 0",
    "code by attributes": "().__class__.__base__.__subclasses__()",
    "code as a lambda": f"(lambda: {CODE})()",
    "code in a string of sympy's": f"sympify('{CODE.replace(chr(39), chr(34))}')",
    "code after a line": f"19-9+3\n{CODE}",
    "f-string": f'f"{{{CODE}}}"',
    "print": "print('executed_by_a_reward' * 9)",
    "tower": "9**9**9**9",
    "tower in brackets": "((((9**99)**99)**99)**99)**99",
    "power": "879474**93367753",
    "tower in LaTeX": "$9^{9^{9^{9}}}$",
    "factorials": "$(((99999)!)!)!$",
    "factorial": "99999999!",
    "shift": "1<<10**12",
    "repeated list": "[0]*10**12",
    "repeated string": "'a'*10**12",
    "range": "list(range(10**12))",
    "large exponent": "1e999999999",
    "larger exponent": "1e999999999999999999999",
    "infinite": "1e999",
    "nan": "nan",
    "inf": "-inf",
    "NaN in JSON": "[NaN, Infinity]",
    "5000 digits": "9" * 5000,
    "5000 digits in an answer": f"<think>.</think><answer>{'9' * 5000}</answer>",
    "5000 digits in JSON": f"[[{'9' * 5000}]]",
    "digits of others": "٣٤٥ ²³ ௧",
    "deep brackets": "(" * 5000 + "1" + ")" * 5000,
    "deep lists": "[" * 5000 + "]" * 5000,
    "deep objects": '{"a":' * 5000 + "1" + "}" * 5000,
    "deep signs": "-" * 5000 + "1",
    "deep negation": "¬" * 5000 + "P",
    "deep fractions": "$" + "\\frac{1}{" * 500 + "2" + "}" * 500 + "$",
    "deep roots": "$" + "\\sqrt{" * 500 + "2" + "}" * 500 + "$",
    "sum": "$\\sum_{i=1}^{10^{12}} \\frac{1}{i^{i}}$",
    "integral": "$\\int_0^1 x^{x^{x^x}} dx$",
    "binomial": "$\\binom{10^{9}}{5*10^{8}}$",
    "many turns": "U99999999999 D" + "9" * 30,
    "many moves": "UDLR" * 50_000,
    "NUL": "4\x00$\x00$",
    "surrogates": "\ud800 4 \udfff",
    "bidirectional": "\u202e4\u2066\u200f",
    "combining marks": "4" + "\u0301" * 5000,
    "other numbers": "½ ⅓ Ⅳ 四",
    "formats": "%s%n%1000000000d {0} {0.__class__} {:>1000000000}",
    "unclosed tags": "<think>" * 2000 + "<answer>" * 2000,
    "nested tags": "<answer>" * 2000 + "4" + "</answer>" * 2000,
    "nested repetition": "a" * 60 + "!",
    "alternation": "ab" * 60,
    "words": "score " * 3000,
    "name and spaces": "score" + " " * 50_000 + "!",
    "claims": "Al is a knight " * 2000,
    "an object": '{"a": {"b": [1, {"c": null}]}}',
    "not the object": '[{"a": 1}, null, true, -1, "x", 1.5]',
    "commas": "," * 5000,
    "equations": "A=1,B=" + "9" * 5000,
}
LONG: dict[str, str] = {
    "10 MB of one letter": "a" * _MEGABYTES,
    "10 MB of digits": "9" * _MEGABYTES,
    "10 MB of words": (
        "The number is 4, a-b'c_9 <answer>(1+x)**2</answer> \u00e9 [1, 2] $x$ is a knight. " * (_MEGABYTES // 80)
    ),
    "10 MB of letters and digits": "a1" * (_MEGABYTES // 2),
    "10 MB of brackets": "(" * _MEGABYTES,
    "10 MB of a sum": "$" + "1+" * (_MEGABYTES // 2) + "1$",
    "10 MB of spaces": "Al" + " " * _MEGABYTES,
    "10 MB of lines": "4\n" * (_MEGABYTES // 2),
    "10 MB of opening tags": "<answer>" * (_MEGABYTES // 8),
    "10 MB of JSON": "[" + "[1]," * (_MEGABYTES // 4) + "1]",
}
TEXTS = {**SHORT, **LONG}
