"""Answer the rows of a CSV by the model in this folder: python predict.py rows.csv answers.csv"""

import csv
import json
import re
import sys
from datetime import UTC, datetime
from functools import cache
from itertools import islice
from pathlib import Path
from unicodedata import normalize
from zoneinfo import ZoneInfo

import numpy as np
import onnxruntime
from PIL import Image, ImageOps

TRUTH = {"true": 1.0, "yes": 1.0, "1": 1.0, "false": 0.0, "no": 0.0, "0": 0.0}
NUMBER = re.compile(r"-?(0|[1-9]\d*)\.\d+|-0|-?[1-9](\.\d+)?e\+\d{2,3}")


def number(text, about):
    """Return a number, written as the column's are; NaN where there is none."""
    for pattern, instead in about["rewrite"]:
        text = re.sub(pattern, instead, text)
    try:
        return float("none" if "_" in text else text) / about["divide_by"]
    except ValueError:
        return {"true": 1.0, "false": 0.0}.get(text.lower(), np.nan)


@cache
def zone(name):
    """Return a time zone by its name, or by its distance from UTC, +02:00 say; UTC by default."""
    if not name:
        return UTC
    return datetime.strptime(name, "%z").tzinfo if name[0] in "+-" else ZoneInfo(name)


def date(text, about):
    """Return a date as seconds since 1970, UTC; NaN where there is none."""
    day, _, clock = re.sub(r"(?<=\d)T", " ", text).partition(" ")
    for form in about["forms"]:
        try:
            found = datetime.strptime(re.sub("[./]", "-", day), form).date()
            moment = datetime.fromisoformat(f"{found}T{clock.replace(' ', '') or '00:00'}")
            # where the model's times have no zone, the clock counts as it is written
            is_own = about["zone"] == "" or moment.tzinfo is None
            return (moment.replace(tzinfo=zone(about["zone"])) if is_own else moment).timestamp()
        except ValueError:
            continue
    return np.nan


def plain(text):
    """Return one spelling of equal values: 3.0 is 3, 2.50 is 2.5, and midnight is its day."""
    text = normalize("NFC", text)
    if NUMBER.fullmatch(text) and len(text) < 18:
        return str(float(text)).removesuffix(".0")
    return re.sub(r"^(\d{4}-\d\d-\d\d)[ T]00:00:00(\.0+)?(Z|\+00:?00)?$", r"\1", text)


@cache
def category(text, values):
    """Return the value that the model knows and a text means, else the text."""
    forms: list = [str, plain]
    if all(value.lower() in TRUTH for value in values):
        forms.append(lambda each: TRUTH.get(each.lower(), each))
    return next((value for form in forms for value in values if form(value) == form(text)), plain(text))


def image(path, size):
    """Return an image's pixels, upright and on white; none where there is no file."""
    if not path.is_file():
        return np.zeros((0, 0, 3), np.uint8)
    with Image.open(path) as opened:
        opened.draft(None, (2 * size, 2 * size))
        found = ImageOps.exif_transpose(opened)
    if found.mode.startswith("I"):  # 16 bits
        found = Image.fromarray(((np.asarray(found, np.int64) * 255 + 32767) // 65535).astype(np.uint8))
    white = Image.new("RGBA", found.size, "white")
    return np.asarray(Image.alpha_composite(white, found.convert("RGBA")).convert("RGB"))


def column(rows, name, about, folder):
    """Return a column of some rows as the model takes it."""
    texts = [(row[name] or "").strip() for row in rows]
    if about["kind"] == "image":
        return np.stack([image(folder / text, about["size"]) for text in texts])
    if about["kind"] == "category":
        return np.array([category(text, tuple(about["values"])) for text in texts], dtype=object)
    found = np.array([(date if about["kind"] == "date" else number)(text, about) for text in texts])
    if about.get("required") and np.isnan(found).any():
        sys.exit(f"error: a row has no number in column {name!r}, which the model needs")
    return found


def main(table, out):
    """Read the rows, some at a time, and write an answer for each; refuse what has no columns for it."""
    card = json.loads(Path(__file__).with_name("card.json").read_text(encoding="utf-8"))
    session = onnxruntime.InferenceSession(Path(__file__).with_name("model.onnx"))
    columns, least, given = card["columns"], card["threshold"], Path(table)
    with given.open(encoding="utf-8-sig", newline="") as source, Path(out).open("w", newline="") as target:
        head = source.readline()
        source.seek(0)
        rows = csv.DictReader(source, delimiter=max(",;\t|", key=head.count))
        if lacking := [name for name in columns if name not in (rows.fieldnames or ())]:
            sys.exit(
                f"error: {table}: column {lacking[0]!r} is missing; the model needs {', '.join(columns)}"
            )
        writer = csv.writer(target)
        writer.writerow(card["answers"])
        while some := list(islice(rows, 1 if card["images"] else 1000)):
            inputs = {name: column(some, name, about, given.parent) for name, about in columns.items()}
            found = np.column_stack(session.run(None, inputs))
            if not card["classes"]:
                writer.writerows(found.tolist())
                continue
            codes = found.argmax(axis=1) if least is None else (found[:, 1] >= least).astype(int)
            writer.writerows([card["classes"][code], *p] for code, p in zip(codes, found.tolist()))


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
