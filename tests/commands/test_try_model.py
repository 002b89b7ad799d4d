from pathlib import Path

import pytest
import torch
from small import Pipeline, Said, half_written, whet, write

from whet.models.load import load_decoder
from whet.models.transformer import PackedAttention
from whet.text.tokenizer import Tokenizer

VERDICTS = ("correct: ", "wrong: ", "no answer: ")


def test_try_prints_an_answer_and_the_grader_has_a_word_on_it(tiny: Pipeline) -> None:
    said = whet("try", tiny.folder, "4 6 8 1")
    assert said.code == 0, said.err
    assert said.out.strip()
    assert said.err.startswith(VERDICTS)


def test_try_draws_as_many_answers_as_asked_the_first_one_greedy(tiny: Pipeline) -> None:
    one, three = (
        whet("try", tiny.folder, "4 6 8 1"),
        whet("try", tiny.folder, "4 6 8 1", "--samples", 3),
    )
    assert len([line for line in three.err.splitlines() if line.startswith(VERDICTS)]) == 3
    assert three.out.startswith(one.out)


def test_try_gives_the_same_answers_for_the_same_seed(tiny: Pipeline) -> None:
    def answers(seed: int) -> str:
        return whet("try", tiny.folder, "4 6 8 1", "--samples", 4, "--seed", seed).out

    assert answers(1) == answers(1) != answers(2)


@pytest.mark.parametrize("stage", ["03-sft", "05-rl", "03-sft/checkpoints/000040"])
def test_try_takes_a_single_run_or_a_model_folder_too(tiny: Pipeline, stage: str) -> None:
    said = whet("try", tiny.folder / stage, "4 6 8 1")
    assert said.code == 0, said.err
    assert said.out.strip()
    # A bare model belongs to no task, so there is no grader to ask.
    assert said.err.startswith(VERDICTS) == ("checkpoints" not in stage)


def test_what_is_no_hand_is_answered_without_a_verdict(tiny: Pipeline) -> None:
    said = whet("try", tiny.folder, "4 6")
    assert said.code == 0
    assert said.err == ""


def test_characters_the_model_does_not_know_are_named(tiny: Pipeline) -> None:
    said = whet("try", tiny.folder, "4 ½ 8 四 ½")
    assert_sentence(
        said, "the question has characters that the model does not know: '½四'; leave them out"
    )
    assert said.out == ""


def test_a_question_longer_than_the_context_is_refused_with_both_numbers(tiny: Pipeline) -> None:
    said = whet("try", tiny.folder, "7 " * 60)
    assert said.code == 2
    assert (
        "leaves no room for a response in the model's context of 48; ask something shorter"
        in said.last
    )


def test_try_of_a_run_that_is_not_finished_says_so(tiny: Pipeline, tmp_path: Path) -> None:
    folder = tiny.copy(tmp_path / "run")
    (folder / "03-sft" / "summary.json").unlink()
    said = whet("try", folder / "03-sft", "4 6 8 1")
    assert_sentence(
        said, f"{folder / '03-sft'} has no model yet: no training run in it is finished"
    )


def test_an_exported_model_is_loaded_by_transformers_with_equal_logits(
    tiny: Pipeline, tmp_path: Path
) -> None:
    transformers = pytest.importorskip("transformers")
    assert whet("export", tiny.folder, tmp_path / "model").code == 0
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "model").eval()
    ours = load_decoder(tmp_path / "model", dtype=torch.float32, device="cpu")
    their_words = transformers.AutoTokenizer.from_pretrained(tmp_path / "model")
    text = "13 8 6 1\n13 - 1 = 12\n12 - 8 = 4\n6 * 4 = 24<eos>"
    tokens = Tokenizer.load(tmp_path / "model").encode(text, special=True)
    assert their_words(text, add_special_tokens=False)["input_ids"] == tokens.tolist()
    tokens_T = torch.tensor(tokens.tolist())
    with torch.no_grad():
        hidden_TH = ours(
            tokens_T, torch.arange(len(tokens_T)), PackedAttention(torch.tensor([len(tokens_T)]))
        )
        logits_TV, expected_TV = ours.logits(hidden_TH), theirs(tokens_T[None]).logits[0]
    torch.testing.assert_close(logits_TV, expected_TV, atol=1e-4, rtol=0)


def test_an_export_has_the_model_and_nothing_of_its_training(
    tiny: Pipeline, tmp_path: Path
) -> None:
    said = whet("export", tiny.folder, tmp_path / "model")
    assert (
        said.out
        == f"{tmp_path / 'model'} is a Hugging Face folder: config.json, model.safetensors, tokenizer.json\n"
    )
    assert sorted(path.name for path in (tmp_path / "model").iterdir()) == [
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    ]
    assert half_written(tmp_path) == []


def test_an_export_can_go_into_an_empty_folder_or_one_deep_down(
    tiny: Pipeline, tmp_path: Path
) -> None:
    (tmp_path / "empty").mkdir()
    for place in (tmp_path / "empty", tmp_path / "a" / "b" / "c"):
        assert whet("export", tiny.folder / "03-sft", place).code == 0
        assert (place / "model.safetensors").is_file()


def test_an_export_does_not_go_into_a_folder_that_holds_something(
    tiny: Pipeline, tmp_path: Path
) -> None:
    write(tmp_path / "letter.txt", "dear")
    for place in (tmp_path, tmp_path / "letter.txt"):
        assert_sentence(
            whet("export", tiny.folder, place), f"{place} is not empty; give a new folder"
        )
    assert [path.name for path in tmp_path.iterdir()] == ["letter.txt"]


def test_an_export_of_what_holds_no_model_leaves_nothing(tiny: Pipeline, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for place in (tmp_path / "nowhere", tmp_path / "empty", tiny.folder / "01-problems"):
        said = whet("export", place, tmp_path / "out")
        assert said.code == 2
        assert str(place) in said.last
        assert not (tmp_path / "out").exists()


def test_an_export_that_cannot_be_written_leaves_nothing(tiny: Pipeline, tmp_path: Path) -> None:
    write(tmp_path / "file", "in the way")
    said = whet("export", tiny.folder, tmp_path / "file" / "out")
    assert_sentence(
        said,
        (
            f"cannot write {tmp_path}/file/out: a file is where a folder is needed; choose another "
            "--out"
        ),
    )


def assert_sentence(said: Said, sentence: str) -> None:
    assert (said.code, said.err) == (2, f"whet: {sentence}\n")
