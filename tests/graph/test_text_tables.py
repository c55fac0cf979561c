"""How text tables are written: what is detected, and what is set."""

from __future__ import annotations

import pytest

from xnq_dist.core.config import load_settings
from xnq_dist.core.errors import InputError
from xnq_dist.core.sections import InputSettings
from xnq_dist.graph.text_tables import sniff

ROWS = "id{0}age{0}town\nu1{0}25{0}Bonn\nu2{0}31{0}Ulm\n"


def sniffed(text, complete=True, **given):
    head = text if isinstance(text, bytes) else text.encode()
    return sniff(head, complete, InputSettings(**given), "t.csv")


@pytest.mark.parametrize("separator", ["\t", ";", "|", ",", " "])
def test_separators_are_detected(separator):
    found = sniffed(ROWS.format(separator))
    assert (found.separator, found.names) == (separator, ("id", "age", "town"))


@pytest.mark.parametrize(
    ("text", "separator"),
    [
        ("a;b;c\nx;1,5;2,5\ny;2,5;3,5\n", ";"),
        ('a,b\n1,"x;y;z"\n2,"x;y"\n', ","),
        ('a,b\n1,"x\ny, z"\n2,"v"\n', ","),
        ("a,b\n1,O'Brien\n2,D'Arcy\n", ","),
        ("a\tb c\tone, two\n1\tx y\tp, q\n", "\t"),
        ("label\nbot\nhuman\n", ","),
        ("a,b\r1,2\r3,4\r", ","),
        ("\ufeffa|b\n1|2\n", "|"),
    ],
)
def test_separators_in_fields_are_text(text, separator):
    assert sniffed(text).separator == separator


def test_a_character_may_be_cut_by_the_end_of_the_head():
    cut = "a,b\n1,ü".encode()[:-1]
    assert sniffed(cut, complete=False).names == ("a", "b")


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-32"])
def test_wide_characters_are_refused(encoding):
    with pytest.raises(InputError, match=r"t.csv is not a text table in UTF-8"):
        sniffed("a,b\n1,München\n".encode(encoding))


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("src,dst\n1,2\n3,4\n", ("src", "dst")),
        ("1,2\n3,4\n", ("column1", "column2")),
        ("1.5,2020-01-01\n2.5,2020-01-02\n", ("column1", "column2")),
        ("src,dst\nann,bob\n", ("src", "dst")),
        ("001,002\n002,003\n", ("column1", "column2")),
        ("id,0,1,2\n1,0.5,0.25,1\n2,1,1,0\n", ("id", "0", "1", "2")),
        ("src , dst\n1 , 2\n", ("src", "dst")),
        ('"","a"\n"1","x"\n"2","y"\n', ("", "a")),
        ("src,dst", ("src", "dst")),
    ],
)
def test_headers_are_detected(text, names):
    assert sniffed(text).names == names


@pytest.mark.parametrize(
    ("values", "decimal"),
    [
        (["1,5", "2"], ","),
        (["0,125", "1"], ","),
        (["1.5", "2"], "."),
        (["1,234", "2,345"], "."),
        (["1,5", "x"], "."),
        (["1,5", "NA"], ","),
    ],
)
def test_decimal_commas_are_detected_where_they_cannot_be_thousands(values, decimal):
    text = "\n".join(["id;x", *(f"u{at};{v}" for at, v in enumerate(values)), ""])
    assert sniffed(text).decimal == decimal


def test_settings_replace_what_is_detected():
    found = sniffed(ROWS.format(","), header=False, decimal=",")
    assert found.names == ("column1", "column2", "column3")
    assert found.decimal == ","


def test_bytes_that_are_not_text_are_refused():
    with pytest.raises(InputError, match=r"t.csv is not a text table .*NUL bytes"):
        sniffed(b"a,b\n1,\x00\x01\n" * 20)


def test_the_dialect_is_one_line():
    text = "id;x\n1;1,5\n2;NA\n"
    assert sniffed(text).text() == ("separator semicolon, header, decimal comma")


@pytest.mark.parametrize(
    ("given", "separator"), [(";", ";"), ("tab", "\t"), ('"\\t"', "\t"), ("space", " ")]
)
def test_separators_are_set(given, separator):
    settings = load_settings(overrides=[f"input.separator={given}"]).input
    assert settings.separator == separator
