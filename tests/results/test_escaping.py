"""Escaping of run folders' text for Markdown and LaTeX."""

import html
import re

from hypothesis import example, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from results.escaping import code, in_latex, in_markdown, markdown_table, one_line

MARKDOWN = MarkdownIt("commonmark").enable(["table", "strikethrough"])
# Characters with a meaning in Markdown, HTML and LaTeX, often adjacent
ANY_TEXT = st.text(st.sampled_from("ab1 \t\n=+-@#*_`~|\\<>&$%{}[]()!:/.\"'^é|\u202e\x1b"), max_size=24)
HOSTILE = "<script>alert(1)</script> [x](javascript:y) ![z](//w) | `a` **b** $x^$ ~~c~~ \\"


def shown(markdown: str) -> tuple[str, set[str]]:
    """The plain text of the rendered Markdown, and the names of its tags."""
    page = MARKDOWN.render(markdown)
    tags = set(re.findall(r"<(\w+)", page))
    return html.unescape(re.sub(r"<[^>]*>", "", page)).strip(), tags


@settings(max_examples=300, deadline=None)
@given(ANY_TEXT)
@example(HOSTILE)
@example("[a]: http://b")
@example("1) a")
@example("- a")
@example("===")
@example("a ##")
def test_markdown_shows_the_text_and_makes_nothing_of_it(text: str) -> None:
    words = one_line(text)
    for before, tag in (("", "p"), ("## ", "h2"), ("- ", "li")):
        found, tags = shown(f"{before}{in_markdown(text)}")
        assert found == words
        assert tags <= {tag, "ul"}


@settings(max_examples=300, deadline=None)
@given(ANY_TEXT)
@example(HOSTILE)
@example("`")
@example("\\|")
def test_a_table_keeps_its_columns(text: str) -> None:
    words = one_line(text)
    table = markdown_table(["head", text, "x"], [[code(text), text, "end"]], ["---"] * 3)
    page = MARKDOWN.render(table)
    cells = re.findall(r"<t[hd]>(.*)</t[hd]>", page)
    assert [html.unescape(re.sub("</?code>", "", cell)).strip() for cell in cells] == [
        "head",
        words,
        "x",
        words,
        words,
        "end",
    ]
    tags = set(re.findall(r"<(\w+)", page))
    assert tags <= {"table", "thead", "tbody", "tr", "th", "td", "code"}


def test_ordinary_words_stay_readable() -> None:
    for text in (
        "small_lstm, workers 8",
        "hard_threshold, threshold 1e-05",
        "-1.87 [-4.68, +0.94]",
        "1.5 ± 2",
    ):
        assert in_markdown(text) == text
    assert code("top_k, density 0.01") == "`top_k, density 0.01`"
    assert code("a`b") == "``a`b``" and code("`a") == "`` `a ``" and code("") == ""


@settings(max_examples=300, deadline=None)
@given(ANY_TEXT)
@example("[2cm] a")
@example("\\input{/etc/passwd}")
def test_latex_reads_no_command_and_balanced_braces(text: str) -> None:
    tex = in_latex(text)
    known = r"\\(?:textbackslash|textasciitilde|textasciicircum|symbol|pm|geq|\||[&%$#_{}])"
    plain = re.sub(known, "", tex.replace("$^*$", ""))
    assert "\\" not in plain and not re.search(r"[&%#~\[\]](?<!\{.)", re.sub(r"\{[\[\]]\}", "", plain))
    assert plain.count("{") == plain.count("}")
    assert "\n" not in tex and not tex.startswith("[")
