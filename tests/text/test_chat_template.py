"""Chat templates are programs from strangers: they end, stay small, reach nothing, and fail in a
sentence."""

import time

import pytest

from whet.errors import DataError
from whet.text.template import Template


def _render(source: str, **variables: str) -> str:
    return Template(source).render(dict(variables))


def test_the_language_is_that_of_transformers() -> None:
    assert _render("{% generation %}{% set a = 1 %}x{% endgeneration %}{{ a }}") == "x"
    assert (
        _render("{% for i in range(9) %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{% endfor %}")
        == "01"
    )
    assert _render("{{ {'a': '<é>'} | tojson }}") == '{"a": "<é>"}'
    assert _render("  {% if true %}\nx\n  {% endif %}\n") == "x\n"
    assert _render("{{ a ~ 1 ~ none }}", a="x") == "x1None"
    assert (
        _render("{% macro f(x) %}[{{ x ~ caller() }}]{% endmacro %}{% call f(3) %}!{% endcall %}")
        == "[3!]"
    )
    assert _render("{{ strftime_now('%d %b %Y') }}") == "26 Jul 2024"
    assert _render("{{ '%s-%5d' % ('a', 7) + 'b' * 3 }}") == "a-    7bbb"
    assert _render("{{ '{:>4}'.format('a') }}") == "   a"


def test_a_large_message_is_no_bomb() -> None:
    text = "x" * 2_000_000

    assert len(_render("{{ a + '!' ~ a | trim }}", a=text)) == 4_000_001


@pytest.mark.parametrize(
    "source",
    [
        "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}",
        "{% for i in range(10 ** 12) %}{% endfor %}",
        "{% macro f(n) %}{{ f(n) }}{{ f(n) }}{% endmacro %}{{ f(1) }}",
        "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
        "{% set n = namespace(s='xx') %}{% for i in range(99) %}{% set n.s = n.s ~ n.s %}{% endfor %}",
        "{% set n = namespace(s='xx') %}{% for i in range(99) %}{% set n.s = n.s + n.s %}{% endfor %}",
        "{{ 'x' * 10 ** 11 }}",
        "{{ 10 ** 11 * 'x' }}",
        "{{ 10 ** 10 ** 10 }}",
        "{{ 'x' | center(10 ** 11) }}",
        "{{ 'x'.ljust(99999999999) }}",
        "{{ '%99999999999d' % 1 }}",
        "{{ '{:>9999999}'.format(1) }}",
        "{{ '{n:>9999999}'.format_map({'n': 1}) }}",
        "{{ '{:>{}}'.format(1, 999999) }}",
        "{{ '%*d' % (99999999999, 1) }}",
        "{{ lipsum(99999) }}",
        *[
            "{% set n = namespace(d='x', e='y') %}{% for i in range(60) %}{% set n.d = "
            + double
            + " %}{% endfor %}"
            + use
            for double in ("[n.d, n.d]", "(n.d, n.d)", "{'a': n.d, 'b': n.d}", "[n.d] * 2")
            for use in ("{{ n.d }}", "{{ n.d | tojson }}", "{{ n.d | string }}", "{{ n.d ~ 1 }}")
        ],
        "{% set n = namespace(d='x') %}{% for i in range(60) %}{% set n.d = dict(a=n.d, b=n.d) %}{% endfor %}{{ n.d }}",
        "{% set n = namespace(d=[1]) %}{% for i in range(60) %}{% set n.d = [[n.d], [n.d]] | map('list') | list %}{% endfor %}{{ '%s' % n.d }}",
        "{% set n = namespace(d={}) %}{% for i in range(60) %}{% set n.d = {'a': n.d.items(), 'b': n.d.values(), 'c': n.d} %}{% endfor %}{{ n.d }}",
        "{% set n = namespace(d=1) %}{% for i in range(60) %}{% set n.d = (n.d, n.d) %}{% endfor %}{{ {n.d: 1} | length }}",
        "{% set s = 'x' * 1000000 %}{% for i in range(1000) %}{{ s }}{% endfor %}",
        "{% set d = range(100000) | list %}{% for i in range(40000) %}{{ d }}{% endfor %}",
        "{{ 'a' | truncate(-5) }}",
    ],
)
def test_a_bomb_is_a_sentence_within_seconds(source: str) -> None:
    start = time.monotonic()

    with pytest.raises(DataError, match="the chat template refuses these messages"):
        _render(source)

    assert time.monotonic() - start < 15


def test_nested_namespaces_are_not_written_out() -> None:
    layers = "".join(f"{{% set n{i + 1} = namespace(a=n{i}, b=n{i}) %}}" for i in range(60))

    assert _render("{% set n0 = namespace() %}" + layers + "{{ n60 }}") == "<Namespace>"


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("{{ raise_exception('no system role') }}", "no system role"),
        ("{{ 1 / 0 }}", "division by zero"),
        ("{{ missing.field }}", "'missing' is undefined"),
        ("{{ ''.__class__.__mro__ }}", "unsafe"),
        ("{{ 'a' + 1 }}", "str"),
        ("{{ [1].append(2) }}", "unsafe"),
    ],
)
def test_a_template_that_fails_says_why(source: str, reason: str) -> None:
    with pytest.raises(DataError, match=f"refuses these messages: .*{reason}"):
        _render(source)


@pytest.mark.parametrize(
    "source", ["{% if %}", "{{ 'a' | nothing }}", "{% generation %}", "{{ " + "(" * 5000]
)
def test_a_template_that_is_none_cannot_be_compiled(source: str) -> None:
    with pytest.raises(DataError, match="does not compile"):
        Template(source)
