"""C6, C8, C18, C19, C26, C29: data too short, uneven, in other formats, from other systems."""
import os
import struct
import unittest

import fixtures
from fixtures import CONFIG, INPUT, TOKENS, put, write_tokens

MODEL = {"model__hf_assets_path": None, "model__flavor": "debugmodel"}  # knows all 256 bytes
HEADER = 256 * 4
WORDS = "One fish, two fish.\nRed fish, blue fish.\n\nThree words and a tab\there.\n"


def llmc(tokens, magic=20240520, version=1, count=None, width=2):
    head = struct.pack("<3i", magic, version, len(tokens) if count is None else count)
    return head.ljust(HEADER, b"\0") + b"".join(t.to_bytes(width, "little") for t in tokens)


class Data(fixtures.Case):
    def tokens(self, n):
        return write_tokens(self.place() + "/tokens.bin", TOKENS[:n])

    def test_C06_fewer_tokens_than_one_sequence(self):
        for n in (0, 1, 16):
            path = self.tokens(n)
            for nproc in (1, 2):
                self.refused(INPUT, path, f"found {n} tokens", "needs 17", nproc=nproc, training__dataset_path=path)

    def test_C06_fewer_sequences_than_a_step_takes_repeat_with_a_warning(self):
        for n, sequences, nproc, micro_batch in ((17, 1, 1, 2), (17, 1, 2, 2), (33, 2, 2, 2), (49, 3, 4, 1)):
            path = self.tokens(n)
            outcome = self.trained(nproc, training__dataset_path=path, training__local_batch_size=micro_batch,
                                   training__steps=2)
            self.hold_warning(outcome, path, f"{sequences} sequence", f"fewer than the {nproc * micro_batch}")

    def test_C06_data_for_validation_is_held_to_the_same(self):
        path = self.tokens(16)
        self.refused(INPUT, path, "found 16 tokens", "needs 17", validation__enable=True, validation__dataset_path=path)

    def test_C08_much_text_and_a_short_limit_of_collectives(self):
        folder = self.place()
        path = put(folder + "/text.txt", (WORDS * (30_000_000 // len(WORDS))))
        before = os.listdir(folder)
        settings = {**MODEL, "training__dataset": "text", "training__dataset_path": path, "training__steps": 2,
                    "training__shuffle": True, "comm__train_timeout_seconds": 5}
        cold, warm = self.trained(**settings), self.trained(**settings)
        n = (os.path.getsize(path) - 1) // 16
        for outcome in (cold, warm):
            self.assertIn(f"{n} sequences of 16 tokens", outcome.out)
        self.assertEqual(self.losses(cold), self.losses(warm))
        self.assertEqual(os.listdir(folder), before, "something was written beside the text")

    def test_C18_a_tail_that_does_not_fill_a_step_is_left_out_by_all(self):
        one_file = self.tokens(5 * 16 + 1)
        outcome = self.trained(training__dataset_path=one_file, training__steps=None, training__epochs=1)
        self.assertEqual([row["tokens"] for row in self.metrics(outcome)], [64])
        self.hold_warning(outcome, "1 sequence", "global batch of 4", "dropped")

    def test_C18_files_of_unequal_length(self):
        folder = self.place()
        write_tokens(folder + "/a.bin", TOKENS[:3 * 16])
        write_tokens(folder + "/b.bin", TOKENS[3 * 16:10 * 16 + 1])
        two = self.trained(training__dataset_path=folder, training__steps=None, training__epochs=1)
        self.assertEqual([row["tokens"] for row in self.metrics(two)], [64, 64])
        one = self.trained(training__dataset_path=self.tokens(10 * 16 + 1), training__steps=None, training__epochs=1)
        self.assertEqual(self.losses(two), self.losses(one))

    def test_C18_no_step_at_all_is_no_success(self):
        path = self.tokens(3 * 16 + 1)
        self.refused(INPUT, path, "3 sequences", "4", training__dataset_path=path, training__steps=None,
                     training__epochs=1)

    def test_C19_a_window_goes_on_in_the_next_epoch(self):
        # 20 sequences, 8 a step: 5 full steps in 2 epochs, the third over the end of the first epoch.
        path = self.tokens(20 * 16 + 1)
        settings = {"training__dataset_path": path, "training__steps": None, "training__epochs": 2,
                    "training__global_batch_size": 8, "precision__options__dtype": "float64"}
        accumulated = self.trained(training__local_batch_size=1, **settings)
        self.assertEqual([row["tokens"] for row in self.metrics(accumulated)], [128] * 5)
        self.assertNotIn("dropped", accumulated.err)
        at_once = self.trained(1, training__local_batch_size=8, **settings)
        self.hold_equal(accumulated, at_once, 1e-11)


class Formats(fixtures.Case):
    def file(self, content, name="tokens.bin"):
        return put(self.place() + "/" + name, content)

    def losses_of(self, path, dataset, **changes):
        return self.losses(self.trained(training__dataset=dataset, training__dataset_path=path, training__steps=2,
                                        **changes))

    def broken(self, content, *words, dataset="llmc"):
        path = self.file(content)
        self.refused(INPUT, path, *words, training__dataset=dataset, training__dataset_path=path)

    def test_C26_both_headers_give_the_same_ids(self):
        tokens = TOKENS[:1000]
        narrow = self.file(llmc(tokens))
        wide = self.file(llmc(tokens, 20240801, 7, width=4))
        plain = self.losses_of(write_tokens(self.place() + "/raw.bin", tokens), "nanogpt")
        for path in (narrow, wide):
            for dataset in ("llmc", "auto"):
                self.assertEqual(self.losses_of(path, dataset), plain)

    def test_C26_headers_that_are_wrong(self):
        tokens = TOKENS[:1000]
        self.broken(llmc(tokens, magic=20240521), "magic 20240521", 20240520, 20240801)
        self.broken(llmc(tokens, version=2), "version 2", "version 1")
        self.broken(llmc(tokens, 20240801, 1, width=4), "version 1", "version 7")
        self.broken(llmc(tokens, count=1001), f"{HEADER + 2000} bytes", f"expected {HEADER + 2002}")
        self.broken(llmc(tokens, count=-1), "3024 bytes", "-1 tokens")
        self.broken(llmc(tokens) + b"\0", f"{HEADER + 2001} bytes", f"expected {HEADER + 2000}")
        self.broken(b"short", "5 bytes", HEADER)

    def test_C26_ids_without_a_header(self):
        self.broken(bytes(2001), "2001 bytes", "even", dataset="nanogpt")
        wide = b"".join(t.to_bytes(4, "little") for t in TOKENS)
        self.broken(wide, "32-bit", "16-bit", dataset="nanogpt")
        self.broken(llmc(TOKENS), "20240520", "llmc", dataset="nanogpt")
        # Pairs of 8-bit ids read as 16-bit ids are no ids of this vocabulary.
        self.broken(bytes(TOKENS[:2000]), "token", "vocabulary of 97", dataset="nanogpt")

    def test_C26_a_pattern_that_matches_nothing(self):
        pattern = self.place() + "/train_*.bin"
        self.refused(INPUT, pattern, "matches no file", training__dataset_path=pattern)
        self.refused(CONFIG, "dataset_path", training__dataset_path="")
        folder = self.place()
        self.refused(INPUT, folder, "no file", training__dataset_path=folder)
        self.refused(INPUT, folder + "/none.bin", "no such file", training__dataset_path=folder + "/none.bin")

    def test_C26_a_shard_without_tokens_is_skipped(self):
        folder = self.place()
        put(folder + "/a.bin", llmc(TOKENS[:600]))
        put(folder + "/b.bin", llmc([]))
        put(folder + "/c.bin", llmc(TOKENS[600:1000]))
        outcome = self.trained(training__dataset="llmc", training__dataset_path=folder + "/*.bin", training__steps=2)
        self.hold_warning(outcome, folder + "/b.bin", "0 tokens", "skipped")
        self.assertIn(f"{999 // 16} sequences", outcome.out)
        self.assertEqual(self.losses(outcome), self.losses_of(self.file(llmc(TOKENS[:1000])), "llmc"))

    def test_C29_text_is_taken_byte_for_byte(self):
        # Marks and carriage returns are tokens too (core/data/README.md): the ids are those of a file of these ids.
        unix = WORDS.encode()
        for text in (unix, unix.replace(b"\n", b"\r\n"), b"\xef\xbb\xbf" + unix, unix.replace(b"\n", b"\r")):
            as_text = self.losses_of(self.file(text, "a.txt"), "text", training__seq_len=8, **MODEL)
            ids = write_tokens(self.place() + "/a.bin", list(text))
            self.assertEqual(as_text, self.losses_of(ids, "nanogpt", training__seq_len=8, **MODEL))

    def test_C29_other_encodings_are_named(self):
        for encoding in ("utf-16", "utf-16-le", "utf-16-be"):
            path = self.file(WORDS.encode(encoding), "a.txt")
            self.refused(INPUT, path, "UTF-16", training__dataset="text", training__dataset_path=path, **MODEL)

    def test_C29_configurations_from_windows(self):
        model = fixtures.write_ll(self.place())
        config = self.config(self.place(), model__hf_assets_path=model, training__steps=2, job__description="a b")
        plain = self.shale(config, 2)
        self.assertEqual(plain.code, 0, plain.err)
        for path in (model + "/config.json", config):
            with open(path, "rb") as f:
                text = f.read()
            put(path, b"\xef\xbb\xbf" + text.replace(b"\n", b"\r\n").replace(b", ", b",\r\n"))
        again = self.shale(config, 2, "--job.overwrite=true")
        self.assertEqual(again.code, 0, again.err)
        printed = self.shale(config, 2, "--print-config")
        self.assertIn('description = "a b"', printed.out)
        with open(again.folder + "/run/config.toml", "rb") as f:
            self.assertNotIn(b"\r", f.read() + printed.out.encode())


if __name__ == "__main__":
    unittest.main(verbosity=2)
