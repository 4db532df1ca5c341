"""What README and the page of results say is in the tables of the pages below it, where they say."""

import re
from pathlib import Path
from statistics import NormalDist

import pytest

ROOT = Path(__file__).parents[1]
PAGES = ROOT / "docs" / "results"

# a page, the text before a table, the row, the column
IMAGES, EQUAL = "tables-with-images", "Log-loss of fits to all rows"
NONE, SMALL = "tables-without-images", "Larger tables without images"
CENSUS = "median seconds on shared cores"
ALL = "log-loss, all rows"


def equal(*cells: str, column: str) -> list[tuple[str, ...]]:
    """Of equal trials with images: numbers and their rows, as ``.590 linear_trees``."""
    return [(*cell.split(" ", 1), IMAGES, EQUAL, column) for cell in cells]


def census(*cells: str) -> list[tuple[str, ...]]:
    return [(*cell.split(" ", 1), NONE, CENSUS, ALL) for cell in cells]


def small(*cells: str, column: str) -> list[tuple[str, ...]]:
    return [(*cell.split(" ", 1), NONE, SMALL, column) for cell in cells]


LESIONS, PRODUCTS = "skin lesions, with images", "fashion products, with images"
README = {
    (LESIONS, "1,000"): equal(".590 linear_trees", ".583 best", ".611 logistic", column="lesions, 1,000"),
    (LESIONS, "4,785, images tuned"): equal(
        ".427 linear_trees, tuned", ".444 logistic", column="lesions, tuned"
    ),
    (PRODUCTS, "1,000"): equal(".372 linear_trees", ".360 best", ".389 xgboost", column="products, 1,000"),
    (PRODUCTS, "9,504, images tuned"): equal(
        ".218 linear_trees, tuned", ".236 xgboost", column="products, tuned"
    ),
    ("census, no images", "1,000"): small(
        ".143 crossed, the default", ".153 forest", column="census, 1,000 (3)"
    ),
    ("census, no images", "246,175"): census(
        ".1064 crossed, now", ".1060 best, now (two seeds)", ".1059 lgbm, tuned"
    ),
    ("forest cover, no images", "1,000"): small(
        ".703 crossed, the default", ".709 forest", column="covertype, 1,000 (3)"
    ),
}
RESULTS = {
    (LESIONS, "300"): equal(".685 linear_trees", ".703 logistic", ".668 best", column="lesions, 300"),
    (LESIONS, "1,000"): README[LESIONS, "1,000"],
    (LESIONS, "3,000"): equal(".506 linear_trees", ".531 logistic", ".505 best", column="lesions, 3,000"),
    (LESIONS, "4,785"): equal(".493 linear_trees", ".510 logistic", ".488 best", column="lesions, 4,785"),
    (PRODUCTS, "300"): equal(".517 linear_trees", ".536 logistic", ".486 best", column="products, 300"),
    (PRODUCTS, "1,000"): README[PRODUCTS, "1,000"],
    (PRODUCTS, "3,000"): equal(".329 linear_trees", ".315 xgboost", ".291 best", column="products, 3,000"),
    (PRODUCTS, "9,504"): equal(".256 linear_trees", ".254 xgboost", ".236 best", column="products, 9,504"),
    ("census, no images", "246,175"): census(".1059 crossed", ".1059 lgbm, tuned", ".1056 best"),
}
RANGE = re.compile(r"([+−][\d.]+)\\?\*? \(([+−][\d.]+) to ([+−][\d.]+)\)")
NUMBER = re.compile(r"(?<![\w.])\d*\.\d+")


def table(page: Path, before: str) -> list[dict[str, str]]:
    """The rows of the first table after this text, by column."""
    text = page.read_text()
    text = text[text.index(before) :].split("\n|", 1)[1].split("\n\n")[0]
    rows = [
        [cell.strip().replace("`", "") for cell in line.strip("|").split("|")] for line in text.splitlines()
    ]
    return [dict(zip(rows[0], row)) for row in rows[2:]]


def scored(label: str, page: str, before: str, column: str) -> str:
    """The mean in a page's table."""
    (row,) = [row for row in table(PAGES / f"{page}.md", before) if next(iter(row.values())) == label]
    return re.sub(r"[*\\]", "", row[column]).split()[0]


def with_names(rows: list[dict[str, str]]) -> dict[tuple[str, str], dict[str, str]]:
    """By table and number of rows; an empty first cell is the one above."""
    found, name = {}, ""
    for row in rows:
        name = row["table"] or name
        found[name, row["rows"]] = row
    return found


@pytest.mark.parametrize(
    ("page", "said"), [("README.md", README), ("docs/results.md", RESULTS)], ids=["README", "results"]
)
def test_every_number_is_where_it_says(page: str, said: dict[tuple[str, str], list[tuple[str, ...]]]) -> None:
    shown = with_names(table(ROOT / page, "Log-loss on test rows"))
    assert shown.keys() == said.keys()
    for of, cells in said.items():
        for number, *where in cells:
            assert scored(*where) == number, where
        numbers = re.findall(NUMBER, " ".join(RANGE.sub("", cell) for cell in shown[of].values()))
        assert sorted(numbers) == sorted(number for number, *_ in cells), of


def test_no_number_of_the_readme_is_elsewhere() -> None:
    found = re.search(r"^## Does it work\?\n(.*?)^## ", (ROOT / "README.md").read_text(), re.M | re.S)
    assert found
    text = re.sub(r"\]\([^)]*\)|`[^`]*`", "", found[1])
    rows = table(ROOT / "README.md", "Log-loss on test rows")
    assert len(rows) <= 8 and len(rows[0]) <= 5
    in_table = [number for row in rows for cell in row.values() for number in NUMBER.findall(cell)]
    assert sorted(NUMBER.findall(text)) == sorted(in_table)


def test_every_number_of_the_results_is_on_a_page_below() -> None:
    def numbers(text: str) -> set[str]:
        return {number.lstrip("0") for number in NUMBER.findall(re.sub(r"\]\([^)]*\)|`[^`]*`", "", text))}

    below = set().union(*(numbers(page.read_text()) for page in PAGES.glob("*.md")))
    assert numbers(RANGE.sub("", (ROOT / "docs" / "results.md").read_text())) - below == set()


def test_differences_are_those_of_the_scores_that_they_stand_beside() -> None:
    """By some rounding, and by two earlier seeds of `best`; those with a star are of other fits."""
    for row in table(ROOT / "docs" / "results.md", "Log-loss on test rows"):
        default, other, first, best, second = list(row.values())[2:]
        for ours, difference in ((default, first), (best, second)):
            if "*" in difference.replace("**", ""):
                continue
            middle = float(RANGE.search(difference)[1].replace("−", "-"))  # type: ignore[index]
            assert middle == pytest.approx(float(ours) - float(other.split(",")[0]), abs=0.0021), row


def test_bold_differences_are_those_beyond_noise_by_holms_method() -> None:
    """With p of a normal difference whose 95 % interval is the one that is printed."""
    cells = re.findall(r"(\*\*)?" + RANGE.pattern, (ROOT / "docs" / "results.md").read_text())
    assert len(cells) == 18
    found = []
    for bold, *numbers in cells:
        middle, low, high = (float(number.replace("−", "-")) for number in numbers)
        assert low <= middle <= high
        found.append((2 * NormalDist().cdf(-abs(middle) / ((high - low) / 3.92)), bool(bold)))
    still = True
    for k, (p, bold) in enumerate(sorted(found)):
        still = still and p * (len(found) - k) < 0.05
        assert bold == still, p


def test_the_pages_are_short() -> None:
    words = {page: len(page.read_text().split()) for page in [ROOT / "docs/results.md", *PAGES.glob("*.md")]}
    assert sum(words.values()) <= 9000
    assert words[ROOT / "docs/results.md"] <= 1000
