import pytest
from workspace import parse_csv


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("a,b\n1,2\n", [["a", "b"], ["1", "2"]]),
        ("a,b\r\n1,2", [["a", "b"], ["1", "2"]]),
        ('"Doe, Jane",41\n', [["Doe, Jane", "41"]]),
        ('"say ""hi""",x\n', [['say "hi"', "x"]]),
        ('"two\nlines",x\n', [["two\nlines", "x"]]),
        ('"a\r\nb",c\r\n', [["a\r\nb", "c"]]),
        ('a,"",c\n', [["a", "", "c"]]),
        ("a,,c\n", [["a", "", "c"]]),
        ("a,\n", [["a", ""]]),
        ('"naïve café","日本"\n', [["naïve café", "日本"]]),
        ("", []),
    ],
)
def test_rows(text, rows):
    assert parse_csv(text) == rows


@pytest.mark.parametrize(
    ("text", "line"),
    [('a,b\n"c,d\n', "line 2"), ('"x\ny",z\nok,"open', "line 3")],
)
def test_an_unclosed_quote_names_its_line(text, line):
    with pytest.raises(ValueError, match=line):
        parse_csv(text)
