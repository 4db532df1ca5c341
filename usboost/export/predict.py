"""Answer the rows of a CSV by the model in this folder: python predict.py rows.csv answers.csv"""

import csv
import json
import re
import sys
from contextlib import suppress
from datetime import datetime
from io import StringIO
from itertools import islice
from pathlib import Path
from unicodedata import decimal, normalize
from zoneinfo import ZoneInfo

import numpy as np
import onnxruntime
from PIL import Image, ImageOps


def pixels(path, about):
    """Return an image's pixels, upright and on white."""
    with Image.open(path, formats=about["formats"]) as opened:
        opened.draft(None, (2 * about["size"], 2 * about["size"]))
        image = ImageOps.exif_transpose(opened)
    if image.mode == "F" or (image.mode, opened.format) == ("I", "TIFF"):
        raise ValueError("the white of 32 bits is not known")
    if image.mode.startswith("I"):  # 16 bits
        image = Image.fromarray(((np.asarray(image, np.int64) * 255 + 32767) // 65535).astype(np.uint8))
    white = Image.new("RGBA", image.size, "white")
    return np.asarray(Image.alpha_composite(white, image.convert("RGBA")).convert("RGB"))


def value(text, about, table):
    """Return a value as the model takes it: in one spelling, by the card's patterns; a date in seconds."""
    if about["kind"] == "image":
        with suppress(Exception):  # a broken file can make Pillow raise nearly anything
            return pixels(table.parent / text, about)
        sys.stderr.write(f"{text} is no image that can be read, and counts as missing\n" if text else "")
        return np.zeros((0, 0, 3), np.uint8)
    text = normalize("NFC", text) if "values" in about else "".join(str(decimal(each, each)) for each in text)
    for pattern, instead in about["rewrite"]:
        text = re.sub(pattern, instead, text)
    if about["kind"] != "date":
        return text if "values" in about else float(text or "nan") / about["divide_by"]
    for form in about["forms"]:
        with suppress(ValueError):
            moment = datetime.strptime(text, form)
            return (moment if moment.tzinfo else moment.replace(tzinfo=ZoneInfo(about["zone"]))).timestamp()
    return np.nan  # no date


def main(table, out):
    """Read the rows, some at a time, and write an answer for each; refuse what has no columns for it."""
    card = json.loads(Path(__file__).with_name("card.json").read_text(encoding="utf-8"))
    session = onnxruntime.InferenceSession(Path(__file__).with_name("model.onnx"))
    if out.resolve() == table.resolve():
        sys.exit(f"error: {out} holds the rows; name another file for the answers")
    text = table.read_bytes().decode("utf-8-sig")
    rows = csv.DictReader(StringIO(text, newline=""), delimiter=max(",;\t|", key=text.split("\n")[0].count))
    if wrong := [name for name in card["columns"] if (rows.fieldnames or []).count(name) != 1]:
        sys.exit(f"error: {table}: column {wrong[0]!r} is missing or twice there; all: {[*card['columns']]}")
    (writer := csv.writer(answers := StringIO(newline=""))).writerow(card["answers"])
    while some := list(islice(rows, card["rows_at_once"])):
        if any(None in row or None in row.values() for row in some):
            sys.exit(f"error: {table}: a row up to line {rows.line_num} has too few or too many cells")
        inputs = {}
        for name, about in card["columns"].items():
            values = {text: value(text, about, table) for text in {row[name].strip() for row in some}}
            inputs[name] = np.array([values[row[name].strip()] for row in some])
            if about.get("required") and np.isnan(inputs[name]).any():
                sys.exit(f"error: a row has no number in column {name!r}, which the model needs")
        for row in np.column_stack(session.run(None, inputs)).tolist():
            code = np.argmax(row) if card["threshold"] is None else int(row[1] >= card["threshold"])
            writer.writerow([card["classes"][code], *row] if card["classes"] else row)
    # at last, so that earlier answers stay until all rows have theirs
    out.write_text(answers.getvalue(), encoding="utf-8", newline="")


if __name__ == "__main__":
    try:
        main(*map(Path, sys.argv[1:])) if len(sys.argv) == 3 else sys.exit(__doc__)
    except OSError as error:
        sys.exit(f"error: {error.filename}: {error.strerror}")
    except (csv.Error, ValueError) as error:
        sys.exit(f"error: {sys.argv[1]} is no CSV in UTF-8, or cannot be read: {error}")
