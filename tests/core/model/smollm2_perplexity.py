"""The perplexity of a real pretrained model, ours against transformers'. A page of English tells a right model from one
that runs but is wrong: with the rows of q and k in the wrong order it is above 100.
Usage: smollm2_perplexity.py MODEL_LOGITS"""

import math
import os
import sys

import torch
from transformers import LlamaForCausalLM
from tokenizers import Tokenizer

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "material"))
import smollm2
from transformers_logits import Runner

PAGE = """The harbour of the small town lies on the north side of the bay, where a long stone wall keeps out the worst \
of the winter storms. For most of the year the water behind the wall is calm, and in the early morning, before \
the fishing boats return, it is so still that the houses on the far shore seem to stand twice, once upright \
and once upside down. People who come to visit often ask how old the wall is. Nobody knows for certain. The \
church books mention repairs more than three hundred years ago, so it must have been built before that, and \
the oldest stones, which are larger and darker than the others, may have been taken from a castle that once \
stood on the hill.

My grandfather worked on the boats until he was seventy. He used to say that the sea teaches a man to count, \
because everything on it has to be counted: the hours until the tide turns, the barrels of water, the fish in \
the nets, and the days since anyone has seen another sail. When he grew too old for the work he sat on a bench \
at the end of the wall and counted the boats as they came home. If one was missing, he stayed on the bench \
until it arrived, even when it rained. Once he waited a whole night. In the morning the boat came in slowly \
with a broken mast, and all the men on board were safe. They told him that they had seen his lamp from far \
away, and that it had shown them where the wall was.
"""


def perplexity(logits, tokens):
    loss = torch.nn.functional.cross_entropy(logits[0, :-1].double(), tokens[0, 1:])
    return math.exp(loss.item())


def main(program):
    cache = os.environ.get("SHALE_CACHE") or os.path.expanduser("~/.cache/shale")
    folder = smollm2.make(os.path.join(cache, "smollm2-135m"))
    tokens = torch.tensor([Tokenizer.from_file(folder + "/tokenizer.json").encode(PAGE).ids])
    torch.set_num_threads(1)
    with torch.no_grad():
        model = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        theirs = model(tokens).logits
    assert sum(p.numel() for p in model.parameters()) == 134515008
    ours = Runner(program, folder)(tokens)
    a, b = perplexity(ours, tokens), perplexity(theirs, tokens)
    print(f"{tokens.shape[1]} tokens: perplexity {a:.4f}, transformers {b:.4f}, "
          f"logits differ by {(ours - theirs).abs().max():.1e} of {theirs.abs().max():.0f}")
    assert abs(a / b - 1) < 1e-4 and a < 40


if __name__ == "__main__":
    main(sys.argv[1])
