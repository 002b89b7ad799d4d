"""Words and n-grams as hashes: equal where the words are, and only there."""

from whet.data.clean.word_hashes import HashedWords, hash_ngrams, hash_words, list_words, normalise

TEXTS = [
    "What is 2 + 2?",
    "",
    "x^2-1=0; solve!",
    "数学 很好 abc",
    "naïve Ünïcode, ½ cups",
    "?!",
    "a" * 3000,
]


def ngrams(text: str, n: int) -> list[int]:
    return [int(value) for value in hash_ngrams(hash_words([normalise(text)]), n).hashes]


def test_as_many_words_are_hashed_as_are_listed() -> None:
    texts = [normalise(text) for text in TEXTS]
    assert hash_words(texts).counts.tolist() == [len(list_words(text)) for text in texts]
    assert hash_words(texts).counts.tolist()[:4] == [5, 0, 8, 5]


def test_equal_words_have_equal_hashes_wherever_they_stand() -> None:
    words = hash_words(["one two three", "zero one two three four"])
    assert words.hashes[:3].tolist() == words.hashes[4:7].tolist()
    assert len(set(words.hashes.tolist())) == 5


def test_equal_ngrams_have_equal_hashes_and_none_crosses_two_texts() -> None:
    grams = hash_ngrams(hash_words(["a b c", "b c a b"]), 2)
    ab, bc, bc_again, ca, ab_again = grams.hashes.tolist()
    assert grams.starts.tolist() == [0, 2, 5]
    assert (ab, bc) == (ab_again, bc_again)
    assert len({ab, bc, ca}) == 3


def test_the_order_of_words_counts() -> None:
    assert ngrams("a b", 2) != ngrams("b a", 2)


def test_a_text_shorter_than_its_ngrams_has_none_or_one_of_all_its_words() -> None:
    words = hash_words(["a b", "", "a b c"])
    assert hash_ngrams(words, 3).counts.tolist() == [0, 0, 1]
    assert hash_ngrams(words, 3, is_short_whole=True).counts.tolist() == [1, 0, 1]


def test_case_spaces_and_sentence_signs_make_no_difference_but_those_of_formulas_do() -> None:
    assert ngrams("Find  $X$, please.", 3) == ngrams("find x please", 3)
    assert ngrams("x + 1 = 2", 5) != ngrams("x - 1 = 2", 5)


def test_texts_without_any_word_are_taken() -> None:
    empty: HashedWords = hash_words(["", "?"])
    assert empty.starts.tolist() == [0, 0, 0]
    assert len(hash_ngrams(empty, 3, is_short_whole=True).hashes) == 0
