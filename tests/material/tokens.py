"""Turns a text into a nanoGPT token file (uint16, no header) with the tokenizer.json of a Hugging Face folder.

Usage: tokens.py FOLDER TEXT OUT [--bytes N]; N limits how much of the text is read."""

import argparse

import numpy
from tokenizers import Tokenizer


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("text")
    parser.add_argument("out")
    parser.add_argument("--bytes", type=int, default=-1)
    args = parser.parse_args()
    with open(args.text, "rb") as f:
        text = f.read(args.bytes).decode("utf-8", errors="ignore")
    tokenizer = Tokenizer.from_file(args.folder + "/tokenizer.json")
    ids = numpy.array(tokenizer.encode(text).ids)
    if ids.max() > 65535:
        raise SystemExit("tokens.py: ids above 65535 do not fit a uint16 file")
    ids.astype(numpy.uint16).tofile(args.out)
    print(f"{len(ids)} tokens in {args.out}")


if __name__ == "__main__":
    main()
