"""What README and the page of results say is in the tables of the pages below it, where they say."""

import re
from pathlib import Path
from statistics import NormalDist

import pytest

ROOT = Path(__file__).parents[1]
PAGES = ROOT / "docs" / "results"

# a page, a table's first line before it, the model's row, the column
LESIONS, PRODUCTS, CENSUS = "Lesions, 1,000 rows", "Products, 1,000 rows", "CI-A, 196,294 rows"
ALL, FEW = "log-loss, all rows", "Larger tables without images"
LINEAR = "linear_trees, the best of its trials too"
README = {
    ("skin lesions, with images", "1,000"): [
        (".590", "few-rows", LESIONS, "linear_trees", ALL),
        (".583", "few-rows", LESIONS, "best", ALL),
        (".611", "few-rows", LESIONS, "logistic", ALL),
    ],
    ("skin lesions, with images", "4,785, images tuned"): [
        (".427", "tuned-images", "All lesions, images tuned", "linear_trees, tuned (two seeds)", ALL),
        (".444", "tuned-images", "All lesions, images tuned", "logistic", ALL),
    ],
    ("fashion products, with images", "1,000"): [
        (".372", "few-rows", PRODUCTS, "linear_trees", ALL),
        (".360", "few-rows", PRODUCTS, "best", ALL),
        (".389", "few-rows", PRODUCTS, "xgboost, by folds", ALL),
    ],
    ("fashion products, with images", "9,504, images tuned"): [
        (".218", "tuned-images", "All products, images tuned", "linear_trees, tuned (two seeds)", ALL),
        (".236", "tuned-images", "All products, images tuned", "xgboost, tuned (two seeds)", ALL),
    ],
    ("census, no images", "1,000"): [
        (".143", "small-and-wide", FEW, "crossed, the default", "census, 1,000 (3)"),
        (".153", "small-and-wide", FEW, "forest", "census, 1,000 (3)"),
    ],
    ("census, no images", "246,175"): [
        (".1064", "census", "CI-A, now", "crossed", ALL),
        (".1060", "census", "CI-A, now", "best (two seeds)", ALL),
        (".1059", "census", CENSUS, "lgbm, tuned", ALL),
    ],
    ("forest cover, no images", "1,000"): [
        (".703", "small-and-wide", FEW, "crossed, the default", "covertype, 1,000 (3)"),
        (".709", "small-and-wide", FEW, "forest", "covertype, 1,000 (3)"),
    ],
}
RESULTS = {
    **{of: said for of, said in README.items() if len(said) == 3},
    ("census, no images", "246,175"): [
        (".1059", "census", CENSUS, "crossed", ALL),
        (".1056", "census", CENSUS, "best", ALL),
        (".1059", "census", CENSUS, "lgbm, tuned", ALL),
    ],
    ("skin lesions, with images", "4,785"): [
        (".493", "many-rows", "All lesions", LINEAR, ALL),
        (".488", "many-rows", "All lesions", "best", ALL),
        (".510", "many-rows", "All lesions", "logistic", ALL),
    ],
    ("fashion products, with images", "9,504"): [
        (".256", "many-rows", "All products", "linear_trees", ALL),
        (".236", "many-rows", "All products", "best", ALL),
        (".254", "many-rows", "All products", "xgboost, tuned", ALL),
    ],
    ("skin lesions, with images", "300"): [
        (".685", "few-rows", "empty, none was", "linear_trees", "lesions, 300"),
        (".703", "few-rows", "empty, none was", "logistic", "lesions, 300"),
        (".668", "few-rows", "empty, none was", "best", "lesions, 300"),
    ],
    ("skin lesions, with images", "3,000"): [
        (".506", "many-rows", "Lesions, 3,000 rows", "linear_trees", ALL),
        (".531", "many-rows", "Lesions, 3,000 rows", "logistic", ALL),
        (".505", "many-rows", "Lesions, 3,000 rows", "best", ALL),
    ],
    ("fashion products, with images", "300"): [
        (".517", "few-rows", "empty, none was", "linear_trees", "products, 300"),
        (".536", "few-rows", "empty, none was", "logistic", "products, 300"),
        (".486", "few-rows", "empty, none was", "best", "products, 300"),
    ],
    ("fashion products, with images", "3,000"): [
        (".329", "many-rows", "Products, 3,000 rows", "linear_trees", "log-loss"),
        (".315", "many-rows", "Products, 3,000 rows", "xgboost, tuned", ALL),
        (".291", "many-rows", "Products, 3,000 rows", "best", ALL),
    ],
}
RANGE = re.compile(r"([+−][\d.]+)\\?\*? \(([+−][\d.]+) to ([+−][\d.]+)\)")
NUMBER = re.compile(r"(?<![\w.])\d*\.\d+")


def table(page: Path, before: str) -> list[dict[str, str]]:
    """The rows of the table after this text, by column."""
    text = page.read_text()
    text = text[text.index(before) :].split("\n\n|", 1)[1].split("\n\n")[0]
    rows = [
        [cell.strip().replace("`", "") for cell in line.strip("|").split("|")] for line in text.splitlines()
    ]
    return [dict(zip(rows[0], row)) for row in rows[2:]]


def scored(page: str, before: str, model: str, column: str) -> str:
    """The mean in a page's table; of fits to all rows where it stands in brackets."""
    (row,) = [row for row in table(PAGES / f"{page}.md", before) if row["model"] == model]
    mean, _, of_all_rows = row[column].replace("*", "").partition("(.")
    return f".{of_all_rows.split()[0].rstrip(')')}" if of_all_rows else mean.split()[0]


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
    """All of its scores are in that table."""
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
    assert numbers((ROOT / "docs" / "results.md").read_text()) - below == set()


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
    assert words.pop(ROOT / "docs/results.md") <= 1800
    assert {page.name: count for page, count in words.items() if count > 2500} == {}
