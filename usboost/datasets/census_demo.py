"""A small stand-in for the Census-Income files: their format and columns, invented people.

The label follows a fixed rule with noise, `positive_probability`: smooth effects of numbers, effects
of categories, and products of columns, over some thirty columns, so that any cut into two views
leaves part of the signal in each and some of it between them. It does not describe real people.
"""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from usboost.datasets.census import CLASSES, COLUMNS, FILES
from usboost.datasets.store import LABEL
from usboost.errors import UsboostError
from usboost.files import write_atomically

DUPLICATES = 0.016
"""Share of the training lines that repeat an earlier one, about that of the real file."""

UNSEEN = 0.01
"""Share of the test lines that get a category which no training line has."""

NIU = "Not in universe"
USA = "United-States"

# Share of the people, and effect on the label, of each value of a column.
_SHARES: dict[str, dict[str, tuple[float, float]]] = {
    "class_of_worker": {
        "Private": (68, 0.0),
        "Self-employed-not incorporated": (9, -0.6),
        "Local government": (8, 0.3),
        "State government": (6, 0.5),
        "Self-employed-incorporated": (5, 1.6),
        "Federal government": (4, 1.2),
    },
    "education": {
        "7th and 8th grade": (8, -1.4),
        "10th grade": (9, -1.0),
        "High school graduate": (36, -0.4),
        "Some college but no degree": (20, 0.1),
        "Associates degree-occup /vocational": (6, 0.4),
        "Bachelors degree(BA AB BS)": (14, 1.1),
        "Masters degree(MA MS MEng MEd MSW MBA)": (5, 1.6),
        "Doctorate degree(PhD EdD)": (2, 2.2),
    },
    "enroll_in_edu_inst_last_wk": {NIU: (90, 0.1), "College or university": (10, -1.0)},
    "marital_stat": {
        "Married-civilian spouse present": (50, 0.5),
        "Never married": (28, -0.8),
        "Divorced": (12, 0.0),
        "Widowed": (7, -0.4),
        "Separated": (3, -0.3),
    },
    "race": {
        "White": (80, 0.0),
        "Black": (11, 0.0),
        "Asian or Pacific Islander": (5, 0.0),
        "Other": (3, 0.0),
        "Amer Indian Aleut or Eskimo": (1, 0.0),
    },
    "hispanic_origin": {"All other": (88, 0.0), "Mexican-American": (8, 0.0), "NA": (4, 0.0)},
    "sex": {"Female": (52, -0.4), "Male": (48, 0.4)},
    "member_of_a_labor_union": {NIU: (70, 0.0), "No": (22, -0.3), "Yes": (8, 0.9)},
    "reason_for_unemployment": {NIU: (94, 0.1), "Other job loser": (3, -1.2), "Re-entrant": (3, -1.0)},
    "full_or_part_time_employment_stat": {
        "Full-time schedules": (55, 0.5),
        "Children or Armed Forces": (30, 0.0),
        "PT for non-econ reasons usually FT": (10, -1.2),
        "Unemployed full-time": (5, -1.5),
    },
    "tax_filer_stat": {
        "Joint both under 65": (46, 0.4),
        "Single": (30, 0.0),
        "Nonfiler": (14, -1.5),
        "Head of household": (10, 0.3),
    },
    "detailed_household_and_family_stat": {
        "Householder": (46, 0.6),
        "Spouse of householder": (30, 0.1),
        "Nonfamily householder": (14, 0.0),
        "Child 18+ never marr Not in a subfamily": (7, -1.5),
        "Secondary individual": (3, -0.6),
    },
    "family_members_under_18": {
        NIU: (88, 0.0),
        "Both parents present": (9, 0.3),
        "Mother only present": (3, -0.5),
    },
    "citizenship": {
        "Native- Born in the United States": (86, 0.1),
        "Foreign born- Not a citizen of U S": (9, -0.7),
        "Foreign born- U S citizen by naturalization": (5, 0.3),
    },
    "own_business_or_self_employed": {"0": (84, 0.0), "2": (12, 0.5), "1": (4, 1.4)},
    "fill_inc_questionnaire_for_veterans_admin": {NIU: (97, 0.0), "No": (2, 0.3), "Yes": (1, -0.5)},
    "veterans_benefits": {"2": (80, 0.0), "0": (15, -0.8), "1": (5, 0.6)},
    "year": {"94": (50, 0.0), "95": (50, 0.0)},
}

# The sectors, with their detailed codes and effect.
_INDUSTRIES = {
    "Retail trade": (range(33, 34), -0.8),
    "Manufacturing-durable goods": (range(5, 15), 0.5),
    "Manufacturing-nondurable goods": (range(19, 28), 0.3),
    "Education": (range(43, 44), -0.2),
    "Finance insurance and real estate": (range(34, 36), 1.0),
    "Construction": (range(4, 5), 0.1),
    "Business and repair services": (range(36, 38), 0.2),
    "Medical except hospital": (range(41, 43), 0.4),
    "Public administration": (range(46, 51), 0.6),
    "Agriculture": (range(1, 3), -1.2),
}
_OCCUPATIONS = {
    "Adm support including clerical": (range(22, 27), -0.4),
    "Professional specialty": (range(4, 13), 1.1),
    "Executive admin and managerial": (range(1, 4), 1.3),
    "Other service": (range(28, 33), -1.2),
    "Sales": (range(16, 21), 0.2),
    "Precision production craft & repair": (range(33, 36), 0.1),
    "Machine operators assmblrs & inspctrs": (range(36, 38), -0.6),
    "Technicians and related support": (range(13, 16), 0.7),
    "Farming forestry and fishing": (range(43, 46), -1.0),
}
_STATES = {"South": ("Florida", "Texas"), "West": ("California", "Utah"), "Midwest": ("Ohio", "Iowa")}
_COUNTRIES = (USA, "Mexico", "Germany", "Philippines", "Cuba", "Canada", "?")
_NEVER_SEEN = {
    "state_of_previous_residence": "Idaho",
    "country_of_birth_father": "Panama",
    "country_of_birth_mother": "Panama",
    "detailed_household_and_family_stat": "Child <18 spouse of subfamily RP",
}

# Centre and slope of the score's link to the label: 15 % positive, and a Bayes F1 of about 0.75.
_CENTRE = 7.3
_SLOPE = 1.3


def write_demo(folder: Path, *, rows_train: int, rows_test: int, seed: int) -> None:
    """Write ``census-income.data.gz`` and ``census-income.test.gz`` as the real ones are laid out.

    Raises UsboostError if fewer than 100 rows are asked for.

    Parameters
    ----------
    folder : where the two files go; it is made if need be.
    rows_train, rows_test : lines of each file, at least 100; of the training lines a share of
        `DUPLICATES` repeats others.
    seed : draws the people; equal arguments give equal bytes.
    """
    if min(rows_train, rows_test) < 100:
        raise UsboostError(f"rows_train and rows_test must be at least 100, not {rows_train} and {rows_test}")
    rng = np.random.default_rng(seed)
    repeats = round(rows_train * DUPLICATES)
    people = draw(rows_train - repeats, rng)
    lines = _lines(people, rng)
    again = rng.integers(len(lines), size=repeats)
    lines = [*lines, *(lines[i] for i in again)]
    order = rng.permutation(len(lines))

    others = draw(rows_test, rng)
    lines_test = _lines(others, rng, unseen=True)

    for file, text in zip(FILES, ([lines[i] for i in order], lines_test), strict=True):
        content = gzip.compress(("\n".join(text) + "\n").encode(), mtime=0)
        write_atomically(Path(folder) / file.name, content)


def draw(n: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Draw n people: for each feature an array of shape (n,), int64 or strings."""
    people: dict[str, np.ndarray] = {}
    for name, values in _SHARES.items():
        share = np.array([s for s, _ in values.values()], dtype=float)
        people[name] = rng.choice(np.array(list(values)), size=n, p=share / share.sum())
    for kind, sectors in (("industry", _INDUSTRIES), ("occupation", _OCCUPATIONS)):
        sector = rng.integers(len(sectors), size=n)
        codes = [np.array(codes) for codes, _ in sectors.values()]
        pick = rng.random(n)
        people[f"major_{kind}_code"] = np.array(list(sectors))[sector]
        people[f"detailed_{kind}_recode"] = np.array(
            [codes[s][int(u * len(codes[s]))] for s, u in zip(sector, pick, strict=True)]
        )

    def some(share: float, median: float, most: int) -> np.ndarray:
        """Zero for most people, else log-normal amounts, as money in the census is."""
        amount = np.exp(rng.normal(np.log(median), 0.8, n)).astype(np.int64) + 1
        return np.where(rng.random(n) < share, np.minimum(amount, most), 0)

    people["age"] = np.clip(rng.normal(44, 17, n), 16, 90).astype(np.int64)
    people["wage_per_hour"] = some(0.3, 900, 9999)
    people["capital_gains"] = some(0.15, 5000, 99999)
    people["capital_losses"] = some(0.12, 1700, 4608)
    people["dividends_from_stocks"] = some(0.3, 800, 99999)
    people["num_persons_worked_for_employer"] = rng.integers(0, 7, n)
    people["weeks_worked_in_year"] = np.where(rng.random(n) < 0.5, 52, rng.integers(0, 53, n))

    household = people["detailed_household_and_family_stat"]
    summary = {"Secondary individual": "Nonrelative of householder", "Nonfamily householder": "Householder"}
    summary["Child 18+ never marr Not in a subfamily"] = "Child 18 or older"
    people["detailed_household_summary_in_household"] = np.array([summary.get(h, h) for h in household])

    surveyed, moved = people["year"] == "94", rng.random(n) < 0.3
    region = np.array(list(_STATES))[rng.integers(len(_STATES), size=n)]
    state = np.array([_STATES[r][k] for r, k in zip(region, rng.integers(2, size=n), strict=True)])
    state = np.where(rng.random(n) < 0.05, "?", state)
    people["region_of_previous_residence"] = np.where(moved, region, NIU)
    people["state_of_previous_residence"] = np.where(moved, state, NIU)
    for name, where in (
        ("migration_code_change_in_msa", "MSA to MSA"),
        ("migration_code_change_in_reg", "Same county"),
        ("migration_code_move_within_reg", "Different county same state"),
    ):
        people[name] = np.where(surveyed, np.where(moved, where, "Nonmover"), "?")
    sunbelt = np.where(np.isin(region, ("South", "West")), "Yes", "No")
    people["migration_prev_res_in_sunbelt"] = np.where(surveyed, np.where(moved, sunbelt, NIU), "?")
    stayed = np.where(moved, "No", "Yes")
    people["live_in_this_house_1_year_ago"] = np.where(surveyed, stayed, "Not in universe under 1 year old")

    native = people["citizenship"] == "Native- Born in the United States"
    for who, abroad in (("father", 0.15), ("mother", 0.15), ("self", 0.0)):
        foreign = ~native | (rng.random(n) < abroad)
        country = np.array(_COUNTRIES[1:])[rng.integers(len(_COUNTRIES) - 1, size=n)]
        people[f"country_of_birth_{who}"] = np.where(foreign, country, USA)
    return people


def positive_probability(people: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return P(label = 1 | features), of shape (n,), for people as `draw` makes them.

    The score behind it sums the effects of single columns and of pairs of columns.
    """
    effects = {name: {value: e for value, (_, e) in values.items()} for name, values in _SHARES.items()}
    effects["major_industry_code"] = {value: e for value, (_, e) in _INDUSTRIES.items()}
    effects["major_occupation_code"] = {value: e for value, (_, e) in _OCCUPATIONS.items()}
    of = {name: np.array([values[v] for v in people[name]]) for name, values in effects.items()}

    age = np.exp(-(((people["age"] - 48) / 14.0) ** 2))
    weeks = people["weeks_worked_in_year"] / 52.0
    size = people["num_persons_worked_for_employer"] / 6.0
    wage, gains, losses, dividends = (
        np.log1p(people[name]) / np.log1p(typical)
        for name, typical in (
            ("wage_per_hour", 900),
            ("capital_gains", 5000),
            ("capital_losses", 1700),
            ("dividends_from_stocks", 800),
        )
    )
    male, joint = people["sex"] == "Male", people["tax_filer_stat"] == "Joint both under 65"
    south, early = people["region_of_previous_residence"] == "South", people["year"] == "94"
    service = people["detailed_industry_recode"] % 2 == 0
    alone = sum(of.values()) + 1.6 * age + 1.2 * weeks + 0.8 * size
    alone = alone + 0.8 * wage + 2.0 * gains + 1.2 * losses + 1.4 * dividends
    score = (
        alone
        + 1.2 * of["education"] * (age - 0.5)
        + 1.2 * of["major_occupation_code"] * (weeks - 0.5)
        + 1.6 * gains * joint
        + 1.2 * dividends * (age - 0.5)
        + 0.8 * np.where(male == (of["marital_stat"] > 0), 1.0, -1.0)
        + 0.8 * np.where(service == (size > 0.5), 1.0, -1.0)
        + 1.0 * wage * of["member_of_a_labor_union"]
        + 0.8 * np.where(early & south, 1.0, 0.0)
    )
    return 1 / (1 + np.exp(-_SLOPE * (score - _CENTRE)))


def _lines(people: dict[str, np.ndarray], rng: np.random.Generator, *, unseen: bool = False) -> list[str]:
    """Write the people as lines of the raw format, with labels drawn by the rule."""
    n = len(people["age"])
    label = np.where(rng.random(n) < positive_probability(people), CLASSES[1], CLASSES[0])
    if unseen:
        # After the labels: an unknown category is independent of them.
        people = dict(people)
        for name, value in _NEVER_SEEN.items():
            people[name] = np.where(rng.random(n) < UNSEEN / len(_NEVER_SEEN), value, people[name])
    columns = {
        **people,
        "weight": np.array([f"{w:.2f}" for w in rng.gamma(3.0, 580.0, n) + 38]),
        LABEL: label,
    }
    return [", ".join(map(str, row)) for row in zip(*(columns[name] for name in COLUMNS), strict=True)]
