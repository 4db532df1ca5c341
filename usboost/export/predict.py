"""Answer the rows of a CSV by the model in this folder: python predict.py rows.csv answers.csv"""

import csv
import json
import re
import sys
from base64 import b64decode
from contextlib import suppress
from datetime import datetime
from io import BytesIO, StringIO
from itertools import islice
from pathlib import Path, PureWindowsPath
from unicodedata import decimal, normalize
from zoneinfo import ZoneInfo

import numpy as np
import onnxruntime
from PIL import Image

csv.field_size_limit((1 << 31) - 1)  # an image in a cell is long
# what undoes an EXIF orientation, from 2 on
TURNED = dict(enumerate(map(Image.Transpose, (0, 3, 1, 5, 4, 6, 2)), 2))


def pixels(text, folder, about):
    """Return an image's pixels, upright and on white. `text`: its path in the folder, or itself in base64."""
    source = folder / text
    if data := re.match("(?i)data:[^,]*;base64,", text):
        source = BytesIO(b64decode("".join(text[data.end() :].split()), validate=True))
    elif (path := PureWindowsPath(text)).anchor or ".." in path.parts:
        raise ValueError("a path out of the folder")
    elif not source.exists():  # a path as Windows writes it
        source = folder / text.replace("\\", "/")
    with Image.open(source, formats=about["formats"]) as opened:
        if opened.width * opened.height > (Image.MAX_IMAGE_PIXELS or np.inf):
            raise ValueError("too many pixels")
        opened.draft(None, (2 * about["size"], 2 * about["size"]))
        opened.load()
        turn = None
        with suppress(Exception):  # the pixels behind broken EXIF are intact
            turn = TURNED.get(opened.getexif().get(274, 1))
        image = opened if turn is None else opened.transpose(turn)
    if image.mode == "F" or (image.mode, opened.format) == ("I", "TIFF"):
        raise ValueError("the white of 32 bits is not known")
    if image.mode.startswith("I"):  # 16 bits, or 12 in a TIFF, where 0 may be white
        tags, values = getattr(opened, "tag_v2", {}), np.asarray(image, np.int64)
        most = 4095 if tags.get(258, (16,))[0] == 12 else 65535
        grey = (values * 255 + most // 2) // most
        grey = 255 - grey if tags.get(262) == 0 else grey
        grey[values == opened.info.get("transparency")] = 255
        image = Image.fromarray(grey.astype(np.uint8))
    white = Image.new("RGBA", image.size, "white")
    return np.asarray(Image.alpha_composite(white, image.convert("RGBA")).convert("RGB"))


def value(text, about, table):
    """Return a value as the model takes it: in one spelling, by the card's patterns; a date in seconds."""
    if about["kind"] == "image":
        with suppress(Exception):  # a broken file can make Pillow raise nearly anything
            return pixels(text, table.parent, about)
        if text:
            sys.stderr.write(f"{text[:200]} is no image that can be read, and counts as missing\n")
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

    def fits(mark):
        names = next(csv.reader(StringIO(text, newline=""), delimiter=mark), [])
        return {*card["columns"]} <= {*names}, len(names)

    rows = csv.DictReader(StringIO(text, newline=""), delimiter=max(",;\t|", key=fits))
    if wrong := [name for name in card["columns"] if (rows.fieldnames or []).count(name) != 1]:
        sys.exit(f"error: {table}: column {wrong[0]!r} is missing or twice there; all: {[*card['columns']]}")
    (writer := csv.writer(answers := StringIO(newline=""))).writerow(card["answers"])
    said = set()  # columns of which a value was named
    while some := list(islice(rows, card["rows_at_once"])):
        if any(None in row or None in row.values() for row in some):
            sys.exit(f"error: {table}: a row up to line {rows.line_num} has too few or too many cells")
        inputs = {}
        for name, about in card["columns"].items():
            distinct = dict.fromkeys(row[name].strip() for row in some)
            values = {text: value(text, about, table) for text in distinct}
            inputs[name] = np.array([values[row[name].strip()] for row in some])
            for text, read in values.items() if about["kind"] != "image" else ():
                known = read in about["values"] if "values" in about else read == read
                groups = about["kind"] == "number" and re.fullmatch(r"\D*[1-9]\d?\d?[.,]\d{3}", text)
                odd = abs(read) * about["divide_by"] >= 1000 if known and groups else not known
                if odd and text not in card["missing"] and (name, known) not in said:
                    read = read if known else "nothing that the model knows"
                    sys.stderr.write(f"column {name!r}: {text[:200]!r} is read as {read}\n")
                    said.add((name, known))
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
