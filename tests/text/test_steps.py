"""Steps of a response and the tokens they take up: found by the tokens' own characters, whatever
the vocabulary."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer as Core
from tokenizers import decoders, models, pre_tokenizers, trainers

from whet.answers.final_answer import Span
from whet.text.steps import steps_of, token_ranges
from whet.text.tokenizer import Tokenizer, train_tokenizer


def bytes_tokenizer() -> Tokenizer:
    """Make a byte-level vocabulary without merges: every byte is a token."""
    core = Core(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=256,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    core.train_from_iterator([], trainer)
    return Tokenizer(core, {})


BYTES = bytes_tokenizer()
PIECES = train_tokenizer(["13 - 1 = 12\n12 - 8 = 4\n", "step one\nstep two\n"])


def texts(steps: list[Span]) -> list[str]:
    return [step.text for step in steps]


def test_lines_are_steps_and_blank_ones_are_none() -> None:
    steps = steps_of("\n 1 + 1 = 2 \n\t\n\n2 * 2 = 4", "lines")

    assert texts(steps) == ["1 + 1 = 2", "2 * 2 = 4"]
    assert [(step.start, step.end) for step in steps] == [(2, 11), (16, 25)]


def test_paragraphs_hold_their_lines_together() -> None:
    assert texts(steps_of("one\ntwo\n \nthree\n\n\n", "paragraphs")) == ["one\ntwo", "three"]


def test_tagged_steps_are_those_with_something_in_them() -> None:
    told = "<think><step>a</step> aside <step> </step><step></step><step>b\nc </step></think><answer>d</answer>"

    assert texts(steps_of(told, "tags")) == ["a", "b\nc"]


def test_a_response_without_steps_has_none() -> None:
    for text in ("", " \n\n \n"):
        assert (
            steps_of(text, "lines") == steps_of(text, "paragraphs") == steps_of(text, "tags") == []
        )
    assert steps_of("no tags <step> at all", "tags") == []


def test_a_step_of_several_tokens_takes_up_all_of_them_and_no_newline_beyond() -> None:
    text = "13 - 1 = 12\n12 - 8 = 4\n"
    tokens = PIECES.encode(text)
    # Pieces: "13", " -", " 1", " =", " 12", "\n", then "12", " -", " 8", " =", " 4", "\n".
    assert len(tokens) == 12

    assert token_ranges(steps_of(text, "lines"), PIECES.spans(tokens)) == [(0, 5), (6, 11)]


def test_a_token_that_holds_the_end_of_one_step_and_its_newline_ends_that_step() -> None:
    tokens = PIECES.encode("step one\nstep two\n")

    assert PIECES.pieces(tokens) == ["step one\n", "step two\n"]
    assert token_ranges(steps_of("step one\nstep two\n", "lines"), PIECES.spans(tokens)) == [
        (0, 1),
        (1, 2),
    ]


def test_a_character_of_several_tokens_belongs_to_its_step_whole() -> None:
    text = "é漢\n漢 = x"
    tokens = BYTES.encode(text)
    # Two bytes and three, a newline, three bytes and four more.
    assert len(tokens) == 13

    assert token_ranges(steps_of(text, "lines"), BYTES.spans(tokens)) == [(0, 5), (6, 13)]


def test_a_character_that_was_cut_off_is_part_of_the_text_as_it_was_read() -> None:
    tokens = BYTES.encode("a\n漢")[:-1]
    text = BYTES.decode(tokens)

    [first, second] = token_ranges(steps_of(text, "lines"), BYTES.spans(tokens))

    assert first == (0, 1) and second == (2, len(tokens))


def test_two_steps_in_one_token_share_it() -> None:
    assert token_ranges(steps_of("a\nb", "lines"), [(0, 3)]) == [(0, 1), (0, 1)]


@given(
    st.text(alphabet="ab1\n é漢🙂<>/step", max_size=40),
    st.sampled_from(["lines", "paragraphs", "tags"]),
)
def test_the_tokens_of_a_step_hold_its_text_and_the_last_of_them_its_end(
    text: str, layout: str
) -> None:
    for tokenizer in (BYTES, PIECES):
        tokens = tokenizer.encode(text)
        read, spans = tokenizer.decode(tokens), tokenizer.spans(tokens)
        steps = steps_of(read, layout)  # type: ignore[arg-type]
        for step, (start, end) in zip(steps, token_ranges(steps, spans), strict=True):
            assert 0 <= start < end <= len(tokens)
            assert step.text in read[spans[start][0] : spans[end - 1][1]]
            assert spans[end - 1][0] < step.end <= spans[end - 1][1]
            assert read[step.start : step.end] == step.text
    assert np.all(np.diff([step.start for step in steps_of(text, layout)]) > 0)  # type: ignore[arg-type]
