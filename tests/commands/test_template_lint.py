"""What the checks of a chat template say of templates with one fault each, and of known ones."""

import pytest
from tokenizers.processors import TemplateProcessing

from whet.commands.model_info import TemplateCheck, lint_template
from whet.testing.tiny import tiny_tokenizer
from whet.text.tokenizer import Tokenizer

GOOD = (
    "{{ bos_token }}{% for m in messages %}{{ '[' + m.role + ']' + m.content + eos_token }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '[assistant]' }}{% endif %}"
)


def lint(template: str | None, tokenizer: Tokenizer | None = None) -> dict[str, TemplateCheck]:
    """Lint a template; of a check with several findings, the first counts."""
    tokenizer = tokenizer or tiny_tokenizer()
    named = Tokenizer(tokenizer._core, {**tokenizer.settings, "bos_token": "<pad>"}, template)
    return {finding.check: finding for finding in reversed(lint_template(named))}


def test_nothing_is_said_against_a_good_template() -> None:
    assert {check: finding.mark for check, finding in lint(GOOD).items()} == dict.fromkeys(
        (
            "special tokens",
            "bos",
            "thoughts",
            "stop token",
            "prefix",
            "generation prompt",
            "renders",
        ),
        "ok",
    )


THINKS = "m.content.split('</think>')[-1]"


@pytest.mark.parametrize(
    ("template", "check", "mark", "words"),
    [
        (None, "template", "fault", "there is none: set one with --set"),
        ("{{ eos_token }}", "renders", "fault", "the user's message is not in the prompt"),
        ("{{ messages[7].content + 'x' }}", "renders", "fault", "refuses these messages"),
        (
            GOOD.replace("in messages", "in messages if m.role != 'system'"),
            "renders",
            "note",
            "system messages are dropped",
        ),
        (
            GOOD.replace("'[assistant]'", "'[assistant]<think>'"),
            "generation prompt",
            "note",
            "but in a finished conversation the response follows",
        ),
        (
            GOOD.replace("+ m.content +", "+ (m.content if loop.last else '...') +"),
            "prefix",
            "note",
            "a longer conversation rewrites earlier turns",
        ),
        (
            GOOD.replace("+ eos_token", ""),
            "stop token",
            "note",
            "which holds no special token; whet adds eos_token",
        ),
        (
            GOOD.replace("+ eos_token", "+ '<unk>'"),
            "stop token",
            "note",
            "ends with <unk>, which is not among the eos tokens",
        ),
        (
            GOOD.replace("+ m.content +", f"+ {THINKS} +"),
            "thoughts",
            "note",
            "thoughts are dropped in the last turn and dropped in earlier ones",
        ),
        (
            GOOD.replace("+ m.content +", f"+ (m.content if loop.last else {THINKS}) +"),
            "thoughts",
            "ok",
            "thoughts are kept in the last turn and dropped in earlier ones",
        ),
        (GOOD.replace("{{ bos", "{{ bos_token + bos"), "bos", "fault", "with <pad> twice"),
        (
            GOOD.replace("'[assistant]'", "'<|im_start|>assistant'"),
            "special tokens",
            "fault",
            "<|im_start|>: no token of this tokenizer, so read as text",
        ),
    ],
)
def test_a_fault_is_named(template: str | None, check: str, mark: str, words: str) -> None:
    finding = lint(template)[check]
    assert finding.mark == mark and words in finding.sentence


def test_a_bos_that_the_tokenizer_adds_too_is_noted() -> None:
    tokenizer = tiny_tokenizer()
    pad = tokenizer.id("<pad>")
    tokenizer._core.post_processor = TemplateProcessing(
        single="<pad> $A", special_tokens=[("<pad>", pad)]
    )
    finding = lint(GOOD, tokenizer)["bos"]
    assert finding.mark == "note" and "the tokenizer adds it too" in finding.sentence


def test_a_model_that_never_stops_is_a_fault() -> None:
    tokenizer = tiny_tokenizer()
    settings = {key: text for key, text in tokenizer.settings.items() if key != "eos_token"}
    bare = Tokenizer(tokenizer._core, settings, GOOD.replace("+ eos_token", ""))
    finding = next(one for one in lint_template(bare) if one.check == "stop token")
    assert finding.mark == "fault"
