"""What README says of results is in the tables of the page of results, where it says."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]

CLAIMS = {
    # a table's heading or first line before it, the model's row, the column: what README says
    ("Lesions (`--label dx", "linear_trees", "log-loss"): ".542",
    ("Products (`--label gender", "linear_trees", "log-loss"): ".271",
    ("Lesions (`--label dx", "lgbm", "log-loss"): ".663",
    ("Products (`--label gender", "lgbm", "log-loss"): ".305",
    ("Lesions (`--label dx", "logistic", "log-loss"): ".565",
    ("Products (`--label gender", "logistic", "log-loss"): ".328",
    ("Lesions, 1,000 rows", "linear_trees", "log-loss, all rows"): ".590",
    ("Products, 1,000 rows", "linear_trees", "log-loss, all rows"): ".372",
    ("Lesions, 1,000 rows", "logistic", "log-loss, all rows"): ".611",
    ("Products, 1,000 rows", "xgboost, by folds", "log-loss, all rows"): ".389",
    ("Lesions, 1,000 rows", "best", "log-loss, all rows"): ".583",
    ("Products, 1,000 rows", "best", "log-loss, all rows"): ".360",
    ("CI-A, 196,294 rows", "crossed", "log-loss, all rows"): ".1059",
    ("CI-A, 196,294 rows", "lgbm, tuned", "log-loss, all rows"): ".1059",
    ("CI-A, 196,294 rows", "best", "log-loss, all rows"): ".1056",
    ("All lesions", "linear_trees, the best of its trials too", "log-loss, all rows"): ".493",
    ("All lesions", "logistic", "log-loss, all rows"): ".510",
    ("All products", "best", "log-loss, all rows"): ".236",
    ("All products", "xgboost, tuned", "log-loss, all rows"): ".254",
    ("Larger tables without images", "crossed, the default", "census, 1,000 (3)"): ".143",
    ("Larger tables without images", "crossed, the default", "covertype, 1,000 (3)"): ".703",
    ("Larger tables without images", "forest", "census, 1,000 (3)"): ".153",
    ("Larger tables without images", "forest", "covertype, 1,000 (3)"): ".709",
}


def cell(before: str, model: str, column: str) -> str:
    """The mean in a table of the page of results."""
    page = (ROOT / "docs" / "results.md").read_text()
    lines = page[page.index(f"\n{before}") :].split("\n\n|", 1)[1].split("\n\n")[0].splitlines()
    rows = [[part.strip(" *`") for part in line.strip().strip("|").split("|")] for line in lines]
    header = rows[0]
    (row,) = [row for row in rows[2:] if row[0].replace("`", "") == model]
    return re.match(r"[\d.]+", row[header.index(column)])[0]  # type: ignore[index]


def test_every_number_of_the_readme_is_where_it_says() -> None:
    for (before, model, column), said in CLAIMS.items():
        digits = len(said) - 1
        assert f"{float(cell(before, model, column)):.{digits}f}".lstrip("0") == said, (before, model)


def test_no_number_of_the_readme_is_of_no_table() -> None:
    found = re.search(r"^## Does it work\?\n(.*?)^## ", (ROOT / "README.md").read_text(), re.M | re.S)
    assert found
    numbers = re.findall(r"(?<![\w.])0?\.\d+", re.sub(r"\]\([^)]*\)|`[^`]*`", "", found[1]))
    assert sorted(numbers) == sorted(CLAIMS.values())
