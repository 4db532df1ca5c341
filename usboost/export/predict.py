"""Answer the rows of a CSV by the model in this folder: python predict.py rows.csv answers.csv"""

import csv
import json
import re
import sys
from contextlib import suppress
from datetime import datetime
from itertools import chain, islice
from pathlib import Path
from unicodedata import decimal, normalize
from zoneinfo import ZoneInfo

import numpy as np
import onnxruntime
from PIL import Image, ImageOps


def seconds(text, about):
    """Return a date as seconds since 1970, UTC; NaN where there is none."""
    for form in about["forms"]:
        with suppress(ValueError):
            moment = datetime.strptime(text, form)
            return (moment if moment.tzinfo else moment.replace(tzinfo=ZoneInfo(about["zone"]))).timestamp()
    return np.nan


def pixels(path, size):
    """Return an image's pixels, upright and on white."""
    with Image.open(path) as opened:
        opened.draft(None, (2 * size, 2 * size))
        found = ImageOps.exif_transpose(opened)
    if found.mode.startswith("I"):  # 16 bits
        found = Image.fromarray(((np.asarray(found, np.int64) * 255 + 32767) // 65535).astype(np.uint8))
    white = Image.new("RGBA", found.size, "white")
    return np.asarray(Image.alpha_composite(white, found.convert("RGBA")).convert("RGB"))


def value(text, about, table):
    """Return a value as the model takes it: in one spelling, by the card's patterns."""
    if about["kind"] == "image":
        path = table.parent / text
        return pixels(path, about["size"]) if path.is_file() else np.zeros((0, 0, 3), np.uint8)
    digits = "".join(str(decimal(each, each)) for each in text)  # of any script
    text = normalize("NFC", text) if about["kind"] == "category" else digits
    for pattern, instead in about["rewrite"]:
        text = re.sub(pattern, instead, text)
    if about["kind"] == "date":
        return seconds(text, about)
    return text if about["kind"] == "category" else float(text or "nan") / about["divide_by"]


def main(table, out):
    """Read the rows, some at a time, and write an answer for each; refuse what has no columns for it."""
    card = json.loads(Path(__file__).with_name("card.json").read_text(encoding="utf-8"))
    session = onnxruntime.InferenceSession(Path(__file__).with_name("model.onnx"))
    with table.open(encoding="utf-8-sig", newline="") as source, out.open("w", newline="") as target:
        head, writer = source.readline(), csv.writer(target)
        rows = csv.DictReader(chain([head], source), delimiter=max(",;\t|", key=head.count))
        if lacking := [name for name in card["columns"] if name not in (rows.fieldnames or ())]:
            sys.exit(f"error: {table}: column {lacking[0]!r} is missing; all are {[*card['columns']]}")
        writer.writerow(card["answers"])
        has_images = any(each["kind"] == "image" for each in card["columns"].values())
        while some := list(islice(rows, 1 if has_images else 1000)):
            inputs = {}
            for name, about in card["columns"].items():
                inputs[name] = np.array([value((row[name] or "").strip(), about, table) for row in some])
                if about.get("required") and np.isnan(inputs[name]).any():
                    sys.exit(f"error: a row has no number in column {name!r}, which the model needs")
            for row in np.column_stack(session.run(None, inputs)).tolist():
                code = np.argmax(row) if card["threshold"] is None else int(row[1] >= card["threshold"])
                writer.writerow([card["classes"][code], *row] if card["classes"] else row)


if __name__ == "__main__":
    try:
        main(*map(Path, sys.argv[1:])) if len(sys.argv) == 3 else sys.exit(__doc__)
    except UnicodeDecodeError:
        sys.exit(f"error: {sys.argv[1]} is no CSV in UTF-8; save it as one")
