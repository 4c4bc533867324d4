"""Texts: read from tables, folders and lines; words counted as scikit-learn and a plain loop count them."""

import collections
import gzip
import io
import json
import re
import unicodedata

import numpy as np
import pytest
from sklearn.feature_extraction.text import CountVectorizer

import stradask as sd
from stradask import text_counts
from stradask.datasets import read_texts
from stradask.errors import DataError

REVIEWS = ["Clean room, friendly staff!", "The staff was RUDE; the room dirty.", "A clean and quiet room", ""]


def counted(texts):
    return [dict(collections.Counter(re.findall("[a-z]{2,}", text.lower()))) for text in texts]


def as_dicts(X, vocabulary):
    return [{vocabulary[j]: int(X[i, j]) for j in X[i].indices} for i in range(X.shape[0])]


def test_all_words_are_counted():
    X, vocabulary = text_counts(REVIEWS, stop_words=None)
    assert as_dicts(X, vocabulary) == counted(REVIEWS)
    assert X.dtype == np.int32
    assert X.has_sorted_indices
    assert list(vocabulary) == sorted(vocabulary)


def test_limits_are_those_of_scikit_learn():
    rng = np.random.default_rng(0)
    words = np.array([f"w{'abcdefghij'[i // 10]}{'abcdefghij'[i % 10]}" for i in range(100)])
    texts = [" ".join(words[rng.zipf(1.3, 40) % 100]) for _ in range(150)]
    for min_df, max_df in ((3, 0.4), (0.05, 100), (1, 1.0)):
        X, vocabulary = text_counts(texts, min_df=min_df, max_df=max_df)
        other = CountVectorizer(min_df=min_df, max_df=max_df)
        assert (other.fit_transform(texts) != X).nnz == 0
        assert list(vocabulary) == list(other.get_feature_names_out())


def test_what_is_left_out_adds_up():
    texts = ["the cat and the dog", "the dog", "the bird is here", "zebra"] * 30 + ["lynx"]
    made = text_counts(texts)
    everything = text_counts(texts, min_df=1, max_df=1.0, stop_words=None)
    n_words, n_tokens = map(sum, zip(*made.left_out.values(), strict=True))
    assert n_words == len(everything.vocabulary) - len(made.vocabulary)
    assert n_tokens == everything.X.sum() - made.X.sum()
    assert made.vocabulary.tolist() == ["bird", "cat", "dog", "zebra"]
    assert "1 words in fewer than 2 texts (1 tokens)" in repr(made)


def test_english_is_seen_and_other_languages_are_not():
    german = ["der Hund und die Katze schlafen im Haus", "die Katze jagt den Hund im Garten"]
    assert {"hund", "katze", "im"} <= set(text_counts(german).vocabulary)
    english = text_counts(["the dog and the cat don't sleep in the house"])
    assert set(english.vocabulary) == {"dog", "cat", "sleep", "house"}
    assert set(text_counts(german, stop_words=["Hund", "die"]).vocabulary).isdisjoint({"hund", "die"})


def test_scripts_with_signs_stay_whole_and_forms_of_unicode_are_one():
    hindi = "हिन्दी भाषा"
    assert text_counts([hindi, "x y zz"]).vocabulary.tolist() == sorted(["zz", *hindi.split()])
    composed, apart = "café", "cafe\u0301"
    X, vocabulary = text_counts([composed, apart])
    assert vocabulary.tolist() == ["café"]
    assert X.toarray().tolist() == [[1], [1]]


def test_a_model_reads_new_texts_after_load(tmp_path):
    made = text_counts(REVIEWS[:3] * 5)
    lda = sd.LatentDirichletAllocation(2, max_iter=5, random_state=0).fit(made.X, vocabulary=made.vocabulary)
    lda.save(tmp_path / "m.npz")
    again = sd.load(tmp_path / "m.npz")
    new = text_counts(["Quiet room with a view"], vocabulary=again.vocabulary_)
    assert new.vocabulary.tolist() == made.vocabulary.tolist()
    assert as_dicts(*new) == [{"quiet": 1, "room": 1}]
    np.testing.assert_array_equal(again.transform(new.X), lda.transform(new.X))
    assert "room" in str(again.topics())


def test_missing_texts_are_empty_with_a_warning():
    pandas = pytest.importorskip("pandas")
    column = pandas.Series(["aa bb", None, "bb cc", float("nan"), pandas.NA], dtype=object)
    with pytest.warns(UserWarning, match="3 of 5 texts are missing"):
        X, _ = text_counts(column)
    assert X.sum(axis=1).A1.tolist() == [2, 0, 2, 0, 0]


@pytest.mark.parametrize(
    ("texts", "given", "said"),
    [
        ("one text", {}, "texts is one text, 'one text'"),
        ([b"bytes"], {}, "row 0 holds b'bytes', a bytes: decode it first"),
        (["a", 3], {}, "row 1 holds 3, a int"),
        ([], {}, "texts is empty"),
        ({"text": ["a"]}, {}, "texts is a table"),
        (None, {}, "texts is None"),
        (["1 2 3"], {}, "no word is left of 3 (left out: 100.0 % of the tokens; 3 words that are numbers"),
        (["?!"], {}, "hold no word, such as '?!'"),
        ([["aa"], "bb"], {}, "row 1 holds 'bb', a str: others are lists of words"),
        ([["aa"], [3]], {}, "row 1 holds 3, where words are to be str"),
        (["aa"], {"stop_words": ["english", "hotel"]}, 'a list that holds "english", the name of a list'),
        (["aa bb"], {"min_df": 2}, "min_df=2 needs 2"),
        (["aa", "bb"], {"min_df": 2, "max_df": 2}, "no word is left of 2"),
        (["aa"], {"min_df": 0}, "min_df is 0"),
        (["aa"], {"max_df": 1.5}, "max_df is 1.5"),
        (["aa"], {"min_df": True}, "min_df is True"),
        (["aa"], {"stop_words": "french"}, "stop_words is 'french'"),
        (["aa"], {"stop_words": [1]}, "stop_words must be words"),
        (["aa"], {"vocabulary": ["aa", "aa"]}, "all different"),
        (["aa"], {"vocabulary": []}, "all different"),
    ],
)
def test_wrong_input_is_named(texts, given, said):
    with pytest.raises(DataError, match=re.escape(said)):
        text_counts(texts, **given)


def test_words_of_a_vocabulary_and_others():
    made = text_counts(["soup bread soup unheard", "NEW york"], vocabulary=["bread", "soup"])
    assert made.X.toarray().tolist() == [[1, 2], [0, 0]]
    assert made.left_out["not in the vocabulary"] == (3, 3)
    assert text_counts(["", "1"], vocabulary=["bread"]).X.toarray().tolist() == [[0], [0]]
    with pytest.warns(UserWarning, match="1 of 5 words, such as 'new york', are no words"):
        made = text_counts(["new york a1 7 x 8 y the"], vocabulary=["new york", "a1", "new", "7", "x"])
    assert made.X.toarray().tolist() == [[0, 1, 1, 1, 1]]
    assert made.left_out == {
        "that are numbers": (1, 1),
        "of one letter": (1, 1),
        "on the English stop list": (1, 1),
        "not in the vocabulary": (1, 1),
    }


# What is a word -----------------------------------------------------------------------------------------


def test_numbers_and_words_with_digits_are_never_cut():
    text = "1984 was 2nd F16: covid19 in new_york, _so_ v1.2 2.5mm; 3.14 of 1,000,000. x y"
    made = text_counts([text], stop_words=None)
    assert set(made.vocabulary) == {
        *("was", "2nd", "f16", "covid19", "in", "new_york", "so", "v1.2", "2.5mm", "of"),
    }
    assert made.left_out["that are numbers"] == (3, 3)
    assert made.left_out["of one letter"] == (2, 2)
    assert "left out: 33.3 % of the tokens" in repr(made)  # 5 of 15


def test_words_are_those_of_scikit_learn_but_for_numbers():
    rng = np.random.default_rng(0)
    kinds = [
        "the",
        "Grüße",
        "2nd",
        "F16",
        "1984",
        "7",
        "x",
        "a_b",
        "naïve",
        "B2B",
        "don't",
        "(ok)",
        "well-known",
    ]
    texts = [" ".join(rng.choice(kinds, 30)) for _ in range(20)]
    other = CountVectorizer()
    expected = other.fit_transform(texts)
    words = other.get_feature_names_out()
    letters = np.array([any(map(str.isalpha, word)) for word in words])
    made = text_counts(texts, stop_words=None)
    assert made.vocabulary.tolist() == words[letters].tolist()
    assert (expected[:, letters] != made.X).nnz == 0
    assert (expected != text_counts(texts, vocabulary=words).X).nnz == 0  # numbers, too


def test_joiners_stand_inside_of_words_and_soft_hyphens_are_none():
    words = ["می\u200cخواهم", "ශ්\u200dරී", "ພາສາ"]
    assert set(text_counts([" ".join(words)]).vocabulary) == set(words)
    assert text_counts(["Ver\u00adfassung \u200d ok\u200c"]).vocabulary.tolist() == ["ok", "verfassung"]


SEGMENTED = {
    "Chinese": "我 爱 北京 天安门 ， 天安门 上 太阳 升 。 你 呢",
    "Japanese": "日本 語 の 文章 は 単語 の 間 に 空白 が ない 。 インターネット も",
    "Thai": "ภาษา ไทย ไม่ มี ช่องว่าง ระหว่าง คำ ณ ที่ นี้",
    "Lao": "ພາສາ ລາວ ບໍ່ ມີ ຍະຫວ່າງ ລະຫວ່າງ ຄຳ",
    "Khmer": "ភាសា ខ្មែរ មិន មាន ចន្លោះ រវាង ពាក្យ",
    "Burmese": "မြန်မာ ဘာသာ စကား တွင် စာလုံး ကြား နေရာလွတ် မ ရှိ ပါ",
}


@pytest.mark.parametrize("text", SEGMENTED.values(), ids=SEGMENTED)
def test_scripts_without_spaces_are_refused_unless_they_are_cut_into_words(text):
    words = [unicodedata.normalize("NFKC", word) for word in text.split() if word not in "，。"]
    made = text_counts([text] * 3)
    assert made.vocabulary.tolist() == sorted(set(words))
    assert int(made.X.sum()) == 3 * len(words)
    joined = text.replace(" ", "")
    with pytest.raises(DataError, match="clauses of a script without spaces between words: cut the texts"):
        text_counts([joined] * 3)
    with pytest.warns(UserWarning, match="are clauses of a script without spaces"):
        mostly = text_counts([f"{joined} " + "an English text of many words " * 10] * 3, vocabulary=["text"])
    assert mostly.X.toarray().tolist() == [[10]] * 3
    with pytest.warns(UserWarning, match="clauses of a script without spaces"):
        text_counts([f"{joined} " + "an English text of many words " * 10] * 3)
    text_counts([joined] + ["an English text of many words " * 10] * 999, min_df=1)  # too few for a warning


def test_korean_words_of_one_letter_are_words():
    assert set(text_counts(["물 책 나무 x 5"]).vocabulary) == {"물", "책", "나무"}


def test_lists_of_words_are_counted_as_they_are():
    texts = [["New York", "7", "x", "c++"], ["我爱北京天安门天安门", "x", "x"], None]
    with pytest.warns(UserWarning, match="1 of 3 texts are missing"):
        made = text_counts(texts, stop_words=["c++"])
    assert made.vocabulary.tolist() == sorted(["New York", "7", "x", "我爱北京天安门天安门"])
    assert made.X[:, made.vocabulary.tolist().index("x")].toarray().ravel().tolist() == [1, 2, 0]
    assert text_counts(texts[:2], vocabulary=["x", "c++"]).X.toarray().tolist() == [[1, 1], [2, 0]]


def test_stop_words_of_one_letter_are_left_out_of_lists():
    counts = text_counts([["i", "have", "a", "cat"], ["x", "cat"]], stop_words="english")
    assert counts.vocabulary.tolist() == ["cat", "x"]
    assert counts.left_out["on the English stop list"] == (3, 3)
    known = text_counts(["I have a cat"], vocabulary=["cat"]).left_out
    assert known["of one letter"] == (2, 2)
    assert known["on the English stop list"] == (1, 1)


def test_arrays_of_words_are_lists():
    texts = [["aa", "bb"], ["bb"]]
    arrays = [np.array(text) for text in texts]
    np.testing.assert_array_equal(text_counts(arrays).X.toarray(), text_counts(texts).X.toarray())


def test_a_list_of_stop_words_means_these_words():
    texts = ["the hotel was not English, but the hotel doesn't say so"]
    assert set(text_counts(texts, stop_words=["hotel", "ENGLISH"]).vocabulary) == {
        *("the", "was", "not", "but", "doesn", "say", "so"),
    }
    with pytest.warns(UserWarning, match=r"1 of 2, such as \"doesn't\", are cut into pieces"):
        text_counts(texts, stop_words=["hotel", "doesn't"])
    assert "doesn" not in text_counts(texts, stop_words=["doesn't", "doesn"]).vocabulary


# Reading ------------------------------------------------------------------------------------------------


def test_tables(tmp_path):
    rows = 'stars,text\r\n5,"Clean, ""really"" clean\nand quiet"\r\n1,\r\n2,Grün\r\n'
    expected = ['Clean, "really" clean\nand quiet', "", "Grün"]
    (tmp_path / "a.csv").write_bytes(rows.encode())
    (tmp_path / "b.csv.gz").write_bytes(gzip.compress(b"\xef\xbb\xbf" + rows.encode()))
    (tmp_path / "c.csv").write_bytes(rows.encode("utf-16"))
    for name in ("a.csv", "b.csv.gz", "c.csv"):
        found = read_texts(tmp_path / name, "text")
        assert found.texts == expected
        assert found.names.tolist() == ["1", "2", "3"]
    assert read_texts(f"{tmp_path}/a.csv:text").texts == expected
    assert read_texts(tmp_path / "a.csv", 1).texts == expected
    (tmp_path / "d.tsv").write_text("text\tn\na, b\t1\n")
    assert read_texts(tmp_path / "d.tsv", "text").texts == ["a, b"]
    long = "x" * 200_000  # beyond the limit that the csv module begins with
    (tmp_path / "e.csv").write_text(f"text\n{long}\n")
    assert read_texts(tmp_path / "e.csv").texts == [long]


def test_json_lines_and_parquet(tmp_path):
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    records = [{"id": 1, "body": "a b"}, {"id": 2, "body": None}, {"id": 3}]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, records)) + "\n")
    assert read_texts(tmp_path / "a.jsonl", "body").texts == ["a b", "", ""]
    (tmp_path / "b.jsonl").write_text('"one"\n\n"two"\n')
    assert read_texts(tmp_path / "b.jsonl").texts == ["one", "two"]
    pandas.DataFrame(records).to_parquet(tmp_path / "a.parquet")
    assert read_texts(f"{tmp_path}/a.parquet:body").texts == ["a b", "", ""]


def test_separators_are_those_outside_of_quotes(tmp_path):
    (tmp_path / "a.csv").write_text('\n"a, b, c";text\n1;"x, y"\n')
    assert read_texts(tmp_path / "a.csv", "text").texts == ["x, y"]


def test_halves_of_surrogate_pairs_are_replaced(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"t": "a \\ud83d b"}\n')
    (text,) = read_texts(tmp_path / "a.jsonl", "t").texts
    assert text.encode() == b"a ? b"


def test_folders_lines_and_standard_input(tmp_path, monkeypatch):
    (tmp_path / "sub").mkdir()
    (tmp_path / "b.txt").write_text("second")
    (tmp_path / "sub" / "a.txt").write_text("third\nline")
    (tmp_path / ".hidden.txt").write_text("no")
    (tmp_path / "empty.txt").write_text("")
    found = read_texts(tmp_path)
    assert found.names.tolist() == ["b.txt", "empty.txt", "sub/a.txt"]
    assert found.texts == ["second", "", "third\nline"]
    assert text_counts(found).names.tolist() == found.names.tolist()
    lines = read_texts(tmp_path / "sub" / "a.txt")
    assert (lines.texts, lines.names.tolist()) == (["third", "line"], ["1", "2"])
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"x\n\ny\n")))
    assert read_texts("-").names.tolist() == ["1", "3"]


def test_files_of_another_encoding_are_counted(tmp_path):
    for name, encoding in (("a", "utf-8"), ("b", "cp1252"), ("c", "utf-16"), ("d", "cp1252")):
        (tmp_path / f"{name}.txt").write_bytes("Grüße".encode(encoding))
    with pytest.warns(UserWarning, match="2 of 4 files, such as .*b.txt, are not in UTF-8"):
        assert read_texts(tmp_path).texts == ["Grüße"] * 4
    with pytest.warns(UserWarning, match="b.txt is not in UTF-8"):
        assert read_texts(tmp_path / "b.txt").texts == ["Grüße"]
    assert read_texts(tmp_path / "b.txt", encoding="latin-1").texts == ["Grüße"]


@pytest.mark.parametrize(
    ("name", "content", "column", "said"),
    [
        ("a.csv", b"a,b\n1,2\n", None, "say which column"),
        ("a.csv", b"a,b\n1,2\n", "c", "no column 'c'; it has the columns 'a', 'b'"),
        ("a.csv", b"a,a\n1,2\n", "a", "two columns 'a'"),
        ("a.csv", b"a,b\n1,2,3\n", "a", "row 2: 3 cells, but the header has 2"),
        ("a.csv", b'a\n"x\n', "a", "not a table"),
        ("a.csv", b"a\n", "a", "no rows"),
        ("a.jsonl", b"{\n", None, "line 1: not JSON"),
        ("a.jsonl", b"1" * 5000, None, "line 1: not JSON"),
        ("a.jsonl", b'{"a": 1}\n', "a", "line 1: 1 is no text"),
        ("a.jsonl", b'{"a": "x"}\n', "b", "no field 'b' with texts"),
        ("a.parquet", b"PAR", "a", "cannot be read as Parquet"),
        ("a.txt", b"\0\1\2", None, "is not text"),
        ("a.txt", b" \n\n", None, "blank lines"),
        ("a.txt", b"x", "text", "a file of lines, not a table"),
    ],
)
def test_files_that_cannot_be_used_are_named(tmp_path, name, content, column, said):
    if name.endswith("parquet"):
        pytest.importorskip("pyarrow")
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=re.escape(said)):
        read_texts(tmp_path / name, column)


def test_paths_that_cannot_be_used_are_named(tmp_path):
    (tmp_path / "a.doc").write_text("x")
    with pytest.raises(DataError, match=r"has no \.txt files, but 'a\.doc'"):
        read_texts(tmp_path)
    with pytest.raises(DataError, match="cannot be opened"):
        read_texts(tmp_path / "none.txt")
    with pytest.raises(DataError, match="encoding='latin-77' does not fit"):
        read_texts(tmp_path / "a.doc", encoding="latin-77")
    with pytest.raises(DataError, match="give one"):
        read_texts(f"{tmp_path}/a.csv:x", "y")
