"""What README says of results is on the page of results, to the digits that README gives."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]

NUMBER = re.compile(
    r"(?<![\w.,-])\d{1,3}(?:,\d{3})+(?![\d,])|(?<![\w,-])\d*\.\d+|(?<![\w.,-])\d+(?![\w.,]*\d|\w)"
)


def section(name: str) -> str:
    found = re.search(rf"^## {name}\n(.*?)^## ", (ROOT / "README.md").read_text(), re.M | re.S)
    assert found
    return re.sub(r"\]\([^)]*\)|`[^`]*`", "", found[1])


def test_every_number_of_the_readme_is_on_the_page_of_results() -> None:
    page = NUMBER.findall((ROOT / "docs" / "results.md").read_text())
    values = [float(each.replace(",", "")) for each in page]
    said = NUMBER.findall(section("Does it work\\?"))
    assert len(said) > 5
    for each in said:
        value, digits = float(each.replace(",", "")), len(each.partition(".")[2])
        assert any(round(other, digits) == value for other in values), f"README says {each}"
