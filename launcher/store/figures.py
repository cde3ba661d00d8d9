"""Figures in a line of a log: the global step, the total of steps and the loss.

One line is read by evidence. `figures_of` knows how the field's programs print their progress; what
a line says of data, downloads and evaluation, of epochs, ranks, dates and versions is no progress
of a training, and a wrong figure is worse than none. A step or a bar that could be any program's is
`weak`: it counts in a task that has shown that it trains. Which of a task's forms counts when it
prints several is decided in `metric_lines`, over many lines.

A line is the text that a terminal shows, without escape sequences, in bytes. All expressions are
RE2's: a line may hold anything.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from itertools import islice
from typing import Any

import re2

from ..frozen import frozen


class FormRank(IntEnum):
    """How much a form of lines tells. A task's figures are those of its best form."""

    ASIDE = -1
    """A line that is about something else than the training: data, a download, an evaluation. Its
    figures say only that the task works."""
    LOSS = 0
    """A loss, of an unknown step."""
    EPOCHS = 1
    """A bar that counts epochs."""
    BAR = 2
    """A bar without a loss."""
    STEP = 3
    """A step that is called so, without a loss."""
    SUMMARY = 4
    """A step with its loss, and with that of an evaluation: programs sum up so now and then."""
    BOTH = 5
    """A step with its loss."""


@frozen
class Figures:
    """Figures of one line. Lines of the same `form` are one after the other of one progress."""

    form: str
    rank: FormRank
    step: int | None = None
    total: int | None = None
    loss: float | None = None
    unsure: bool = False
    """The number may be that of a rank or a host: a step is what grows."""
    weak: bool = False
    """Nothing in the line says that it is about a training: it counts in a task that has told so
    elsewhere."""


_OPTIONS = re2.Options()
_OPTIONS.encoding = re2.Options.Encoding.LATIN1
_OPTIONS.log_errors = False


class _Expression:
    """An expression over the bytes of a line, compiled when a line is first looked at: no launch
    waits for it. Its library looks names of groups up at each use."""

    def __init__(self, source: str) -> None:
        self._source = source

    @cached_property
    def _compiled(self) -> Any:
        return re2.compile(self._source.encode(), _OPTIONS)

    @cached_property
    def groups(self) -> dict[str, int]:
        """The numbers of the groups by their names."""
        return {name.decode(): at for name, at in self._compiled.groupindex.items()}

    def search(self, line: bytes, start: int = 0) -> _Hit | None:
        match = self._compiled.search(line, start)
        return None if match is None else _Hit(match, self.groups)

    def all(self, line: bytes) -> Iterator[_Hit]:
        for match in islice(self._compiled.finditer(line), _MOST_MATCHES):
            yield _Hit(match, self.groups)


@dataclass(frozen=True, slots=True)
class _Hit:
    """A place in a line."""

    match: Any
    groups: Mapping[str, int]

    def __getitem__(self, group: str) -> bytes:
        """The text of a group; empty where it took no part."""
        return self.match.group(self.groups[group]) or b""

    def span(self, group: str) -> tuple[int, int]:
        span: tuple[int, int] = self.match.span(self.groups[group])
        return span

    def count(self, group: str) -> int | None:
        text = self[group] if group in self.groups else b""
        if text[-1:] in (b"k", b"M"):  # tqdm with `unit_scale`
            return round(float(text[:-1]) * (1e3 if text.endswith(b"k") else 1e6))
        return int(text.replace(b",", b"")) if text else None


_MOST_MATCHES = 16
"""Matches of one expression that are looked at in a line."""

_INT = r"\d{1,3}(?:,\d{3})+|\d{1,15}"
_STEP = rf"(?P<step>{_INT})"
_TOTAL = rf"(?P<total>{_INT})"
_OF = rf"\s*/\s*{_TOTAL}"
_OF_WORDS = rf"\s*(?:/|(?:out )?of )\s*{_TOTAL}"
_NUMBER = r"[-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?|nan|NaN|NAN)"
_END = r"(?:\.0+)?(?:[^\w.,/%-]|[.,-](?:\D|$)|$)"
"""Behind a count: neither the rest of a number or a date nor a unit."""
_LINE = r"(?:\xe2\x94\x81|\xe2\x94\x80|\xe2\x95\xb8|\xe2\x95\xba)"
"""The lines of bars of Keras, rich and Ultralytics, whole and half, as bytes of UTF-8."""
_SCALED = r"\d{1,4}(?:\.\d+)?"
_NAMES = (
    r"steps?|iters?|iterations?|itrs?|it|batch|batches|batch_?i(?:d|dx|ndex)|mini-?batch|updates?"
)
_TRAIN = r"train(?:ing|er)?|learning"

LIKELY = re2.compile(
    rb"(?i)loss|cost|entropy|step|iter|itr|batch|update|epoch|learn|%\||it \[|/\d+ \[|images/sec"
    rb"|\xe2\x94[\x80\x81]",
    _OPTIONS,
)
"""What stands in each line that has figures: most logs have none."""

_FORMS = (
    # After 300 training steps (912 global steps), …    Done: 1370 training steps (2001 global …
    ("ours", rf"\b(?:After|Done:) \d+ training steps \({_STEP} global steps?\)"),
    # Worker 0: training step 12 done (global step: 23)    global_step=10,    "global_step": 10
    # 'global_step/max_steps': '10/120'
    (
        "global",
        r"(?i)\bglobal[ _/]?steps?(?:/max_steps)?[\"']?\)?\s*[:=]?\s*[\"']?"
        rf"{_STEP}(?:{_OF})?{_END}",
    ),
    # num_updates=100    nupdates: 100    Ep. 1 : Up. 100 :
    (
        "updates",
        rf"(?i)(?:\b(?:train_)?num_?updates|\bnupdates|: Up\.)[\"']?\s*[:=]?\s*[\"']?{_STEP}{_END}",
    ),
    # "current_steps": 120, "total_steps": 1000
    (
        "current",
        rf"(?i)\bcur(?:rent)?_(?:step|iter)\w*[\"']?\s*[:=]\s*{_STEP}"
        rf"(?:,\s*[\"']?(?:total|max)_\w+[\"']?\s*[:=]\s*{_TOTAL})?{_END}",
    ),
    # 37%|███▋      | 37/100 [00:03<00:06, 9.9it/s, loss=0.21]    %|███ | 37/100 00:29
    ("bar", rf"\| *{_STEP}/{_TOTAL} \["),
    ("bar", rf"%\|[^|]*\| *{_STEP}/{_TOTAL}(?: \d|\s*$)"),
    ("bar", rf"\[ *{_STEP}/{_TOTAL} \d+:\d\d(?::\d\d)? ?< ?\d"),
    ("bar", rf"% +{_STEP}/{_TOTAL} \[\d+:\d\d"),
    ("bar", r"(?:^|[\s:|])(?P<step>\d{1,15})it \[\d+:\d\d"),
    # 12%|█▏        | 1.20k/10.0k [12:34<1:32:10, 1.59it/s]
    (
        "bar",
        rf"\| *(?P<step>{_SCALED}[kM])/(?P<total>{_SCALED}[kM]) \[[^\]]* (?:[\d.]+it/s|[\d.]+s/it)",
    ),
    # 12/100 ━━━━━ 0s 12ms/step - loss: 0.31    12/100 [==>...] - ETA: 1s    100/100 - 1s - loss: …
    ("keras", rf"^\s*(?:step )?{_STEP}/(?:{_TOTAL}|Unknown)\s+(?:\[[=>.]*\]|{_LINE}|- \d)"),
    ("keras", rf"^\s*{_STEP}/Unknown\s+\d+s "),
    # Epoch 0/4 ━━━━━━━ 37/100 0:00:03
    ("rich", rf"{_LINE}\s+(?:\d+% +)?{_STEP}/{_TOTAL}(?:\s|$)"),
    # [3/25][10/1583] Loss_D: …    Train: [12/300][120/1251]
    ("pair", rf"\[\d+/\d+\]\s*\[\s*{_STEP}{_OF}\]"),
    ("pair", rf"^\[batch={_STEP}{_OF}\]"),
    # Train Epoch: 1 [640/60000 (1%)]    Epoch: [0][ 10/5005]    Epoch(train) [1][ 50/7330]
    ("epoch", rf"(?i)\bepoch\S*\s*:?\s*\[?\s*\d+(?:/\d+)?\]?,?:?\s*[\[(]\s*{_STEP}{_OF}[\s\]()]"),
    # epoch 001: 100 / 1234 loss=11.2    Epoch 1 | 200/2000 | 1.21 it/sec
    ("epoch", rf"(?i)\bepoch\s+\d+(?::| \|)\s+{_STEP}{_OF}\s"),
    # loss: 2.31  [   64/60000]
    ("epoch", rf"\bloss: {_NUMBER}\s+\[\s*{_STEP}{_OF}\]"),
    # Train: 0 [ 50/1251 ( 4%)]    Iter(train) [ 50/90000]    [Train](1200/24000)
    (
        "train",
        r"(?i)\b(?:train|iter)\S*\s*:?\s*(?:\d+(?:/\d+)?\s(?:\([^()]*\) )?|\[\d+\])?\s*"
        rf"[\[(]\s*{_STEP}{_OF}[\s\](,)]",
    ),
    # | epoch 1 | 200/ 2983 batches |
    ("batches", rf"(?i)(?:^|[\s|]){_STEP}{_OF}\s+(?:batches|iterations|steps|it)\b"),
    # [1,  2000] loss: 2.153    120 | loss 2.5 | lr 3e-4
    ("tutorial", rf"^\[\d+, +{_STEP}\] loss: "),
    ("tutorial", rf"^\s*{_STEP} \| loss "),
    # 100 iter, 0 epoch / 100 epochs    3epoch:train:376-750batch: loss=2.3
    ("chainer", rf"^\s*{_STEP} iter, \d+ epoch / \d+ epochs"),
    ("espnet", rf"epoch:train:\d+-{_STEP}batch: "),
    # 43587/50000: episode: 588, duration: 0.930s
    ("tutorial", rf"^\s*{_STEP}{_OF}: episode: "),
    # 120:	learn: 0.5	total: 1.2s	remaining: 8.7s
    ("boosting", rf"^{_STEP}:\s+learn: "),
    # 10	images/sec: 123.4 +/- 0.5 (jitter = 1.2)	7.832
    ("images", rf"^\s*{_STEP}\s+images/sec: \S+ \+/-"),
    # 100: 2.345678, 2.4 avg loss, 0.001 rate
    ("darknet", rf"^\s*{_STEP}: {_NUMBER}, {_NUMBER} avg"),
    # Downloading: 37%|███▋      | 3.1M/9.9M [00:03<00:06, 1.2MB/s]
    ("percent", r"(?P<step>\d{1,3})%\|"),
    # |    total_timesteps      | 2048        |    timesteps_total: 4000
    ("timesteps", rf"^\s*\|\s+total_timesteps\s+\|\s+{_STEP}\s+\|"),
    ("timesteps", rf"^\s*timesteps_total: {_STEP}\s*$"),
    # step 500    Iteration 12,    iter: 20/500    Step [100/600]    Minibatch[ 101- 200]
    (
        "named",
        rf"(?i)(?:^|[^\w./-])(?:(?P<train>{_TRAIN})[ _/])?(?P<name>{_NAMES})[\"']?"
        r"(?P<sign>\s*(?:[:=#\[(]|\xef\xbc\x9a|\.\.\. \()|\s)\s*[\"'\[(]?\s*(?:\d+ ?- *)?"
        rf"{_STEP}(?:{_OF_WORDS})?{_END}",
    ),
    # [2000/300000] Train loss: 0.12    [0: 20/1000] train loss: 1.2    12/120 (epoch 0), loss = 3.1
    ("first", rf"^\s*[\[(]?(?:\d+: ?)?{_STEP}{_OF}[\])]?[ ,:]+[^\d\s]"),
    # [10] learning_rate=0.1, loss=2.3    [10]	train-logloss:0.31: a step, or a rank
    ("indexed", rf"(?:^|[\]\s])\[{_STEP}(?: \| [\d.:]+)?\]\s+[\w/'. -]{{1,60}}[:=]\s*{_NUMBER}"),
)
"""How programs say a step; where a line has several, the first of these counts."""
_BARS = ("bar", "keras", "rich")
_SURE = frozenset(
    "ours global epoch boosting images darknet timesteps tutorial chainer espnet".split()
)
"""Forms that nothing but a training has."""
_IN_EPOCH = ("epoch", "train", "pair", "batches")
_EXPRESSIONS = [_Expression(source) for _, source in _FORMS]
_NAMED = _EXPRESSIONS[[form for form, _ in _FORMS].index("named")]
_ANY = re2.Set.SearchSet(_OPTIONS)
for _, _source in _FORMS:
    _ANY.Add(_source.encode())
_ANY.Compile()
_WHOLE = {b"step": 0, b"upda": 1, b"iter": 2, b"itr": 2}
"""Order of names where a line has several; what is left counts in an epoch."""

_LOSS = _Expression(
    r"(?i)(?P<name>(?:\b(?:train(?:ing)?|lm|avg|average|mean|total|val|valid|validation|eval|test"
    r"|dev|best|final|initial|min|student|teacher|(?:mini-?)?batch|epoch|step|running|current|reconstruction)"
    r"[. ]{1,2}){0,2}[\w./'-]{0,40}(?:loss|cost|entropy)[\w./'-]{0,40})"
    r"(?P<more> (?:scale|value|ppl|on training batch|train|val|this|at))?"
    r"(?P<of> ?\([A-Za-z][\w -]{0,20}\))?"
    r"(?:[\"'], |[\"']?\s*(?:is\b)?(?:[:=(|]|\s-+>|\xef\xbc\x9a)?)\s*[\"'\[(]{0,2}"
    r"(?:tensor\(|array\(|np\.float(?:32|64)\()?\s*"
    rf"(?P<loss>{_NUMBER})(?P<after>(?: at step| is\b|,\d| +[\d.]|[^\w.]|\.(?:\D|$)|$))"
)
_LOSSES = (b"loss", b"cost", b"entropy")
_OTHER_LOSSES = (b"scale", b"ppl", b"val", b"at", b"this")
_LETTERS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_"
_DIGITS = b"0123456789"
_COUNTERS = frozenset(
    b"step steps iter iters iteration iterations itr it batch batches epoch epochs update updates"
    b" train training global round rank worker task gpu node".split()
)
"""What a number before a loss may count."""
_CONNECTING = frozenset(b"and with the has gives is at done completed now its".split())
_AVERAGE = _Expression(rf"(?P<loss>{_NUMBER}) avg(?: loss)?,")
_WHOSE = (
    r"(?:train(?:ing|er)?|tr|lm|av[gre]\.?|average|mean|total|global|overall|step|epoch"
    r"|(?:mini-?)?batch|running|moving|smoothed|reduced|current|cur|metrics|losses)"
)
_AT_STEP = _Expression(
    rf"(?i)(?:^|[^\w ] *|  |\b(?P<whose>(?:{_WHOSE} ){{1,3}}))(?:loss|cost) (?:\([^()]*\) )?"
    rf"(?:at|after|in|for|of) (?:[@a-z]{{0,12}}[ #]{{0,2}}\d+(?:/\d+)?[, ]{{0,2}}){{1,3}} *[:=] *"
    rf"(?P<loss>{_NUMBER})(?:\s|$)"
)
"""A loss behind the step that it is of: `loss at step 12: 0.3`, `Cost after iteration 9: 0.6`."""
_SOURCE = _Expression(r"^ {4}.*\bloss = ")
"""A line of a program, as tracebacks quote it."""
_RESULT = _Expression(r"^ +(?:\w+ = |\"\w+\": )[^ ]+$")
"""A line of the results of an evaluation, as Estimator lists them, or of a file of JSON."""
_WHOLE_LOSS = _Expression(r"^\D*\d+(?:\D\D|\D?$)")
"""A whole number where a loss stands alone: games have such."""
_JITTER = _Expression(rf"\(jitter = [^)]*\)\s+(?P<loss>{_NUMBER})")
_EXACT = frozenset((b"loss", b"loss value", b"loss on training batch"))
_GOOD = _Expression(
    rf"^(?:{_WHOSE}[ _./-]{{1,2}}){{0,4}}loss(?:[ _/.-](?:{_WHOSE}|avg\w*|value|loss)){{0,3}}$"
)
_FAIR = _Expression(
    r"^(?:train(?:ing)?[-_./' s]*)?(?:\w*log_?loss|cross[-_ ]?entropy(?:[-_ ]?loss)?|ce[-_]?loss"
    r"|cost|mlm[-_]loss|nll[-_]?loss|mse[-_]?loss|crossentropyloss)$"
)

_EPOCH = _Expression(r"^Epoch \d+/\d+\s*$|^\s+Epoch\s+(?i:GPU_)?(?i:mem)\s")
_ASIDE = _Expression(
    r"(?i)(?:\b|_)(?:val|valid|validat\w*|eval|evaluat\w*|test)\b"
    r"|\b(?:evals|cv|testing|sanity|predict\w*"
    r"|infer|inference|dev|vis|map[\d@]*|val_(?:iter|step|epoch)|restor\w*|resum\w*"
    r"|start\w* (?:training )?(?:from|at)|sav(?:ing|ed)|checkpoint\w*|best"
    r"|loss for final step|wandb"
    # what bars and lines say of data
    r"|download\w*|filter\w*|tokeni[sz]\w*|load\w*|shuffl\w*|cach\w*|extract\w*|(?:pre)?process\w*"
    r"|prepar\w*|compil\w*|upload\w*|fetch\w*|build\w*|unpack\w*|pull\w*|warm-?up|deduplicat\w*)\b"
)
"""Words before the figures of a line that is not about the training itself."""
_EVALUATED = _Expression(r"(?i)\b(?:val|valid\w*|eval|test)[ _-]loss\b")
_OF_EPOCHS = _Expression(r"(?i)\bepochs?\W*\d{1,3}%\|")
_DOING = _Expression(r"(?i)(?:^|[^\w])(?P<word>[a-z]+ing)\b")
_TRAINING = (b"training", b"learning", b"tuning", b"fitting", b"optimizing", b"optimising")
"""What a bar without a loss says that the program does: all else is done to data."""
_BYTES = _Expression(r"\d ?[kMGT]?i?B(?:/s|\b)")
_MORE = _Expression(
    r"(?i)\b(?:lr|learning[ _-]rate|acc|accuracy|ppl|eta|time|speed|grad(?:ient)?[ _-]?norm|epoch"
    r"|tps|mfu|ips|skipped|reward|return|samples|tokens?)\b|/s\b|/sec\b|\bsec\b"
    r"|[:=] ?[-+]?\d+\.\d+\b.*[:=] ?[-+]?\d+\.\d"
    r"|\w:[\d./]+\w* +\w+:[\d.]+\w* +\w+:\d"
)
"""Figures beside a step, which a sentence does not have."""
_ONE_OF_SEVERAL = (
    r"\b(?:loss_\w+|\w+_loss|(?:policy|value|actor|critic|kl|[dg]|gen\w*|disc\w*|cls|class\w*|reg\w*"
    r"|bbox|box|mask|rec\w*|adv\w*|aux\w*|style|content|triplet|contrastive) loss)"
    r"[\"']?\s*[:=]\s*[-+]?\d+\.\d"
)
_PART = _Expression(rf"(?i){_ONE_OF_SEVERAL}")
"""One loss of several, which a line of settings does not have."""
_TRAINS = _Expression(
    r"(?i)(?:^|[^\w=/.-])(?:train(?:ing|er)?|(?:pre-?|fine-?)?(?:train|tun)ing)(?:\b|[\d_])"
    r"|\bepochs?(?:\W{0,4}\d{1,6}(?:\D|$)|\W{0,2}\d{1,3}%\||:?$)"
    r"|\b(?:lr|learning[ _-]rate|grad(?:ient)?[ _-]?norm)\b"
    rf"|\b(?:acc|accuracy|top-?[15]|ppl|perplexity|mfu)\W{{1,3}}\d+\.\d|{_ONE_OF_SEVERAL}"
)
"""Words that show that a line is about a training."""
_RATES = _Expression(r"(?i)\b(?:images?|imgs?|examples?|samples|tokens|words)(?:/|_per_)s(?:ec)?\b")
_COSTS = _Expression(r"(?i)\b(?:mini-?batch|pass|up\.) |\biter(?:ation)?s?\W{1,3}\d+, cost\s?[:=]")
"""Words beside which a cost is that of a training, and no price."""
_UNIT = _Expression(
    r"^\s?(?:%|\$|\xe2\x82\xac|\.\.|(?:dBm?|m?s|[kM]?W|[kKMG]i?B|kg|USD|EUR|per)\b)"
)
"""Units behind a number that is no loss of a training."""
_COLUMN = _Expression(r"^\s*\|\s*[-+]?\d")
"""A further column of a table: its numbers are those of parts."""
_OTHER_TRADES = _Expression(
    r"(?i)\b(?:profit|pnl|wins?|draws?|gains?|trades|packets?|jitter|rx|price)\b"
)
"""Words beside which a loss is one of money, games or networks."""
_IDEOGRAPH = _Expression(r"[\xe3-\xe9][\x80-\xbf]{2}\s*$")
_CHINESE_TRAINING = b"\xe8\xae\xad\xe7\xbb\x83"
"""The word for training, in UTF-8."""
_NUMBER_OF_EPOCH = _Expression(r"(?i)\bepoch\W{0,3}(?P<epoch>\d{1,9})\b")
_TIME = _Expression(r"^\W?\s*\d\d?:\d\d\b")
_IN_EPOCH_NOW = _Expression(r"(?i)\bepoch\W{0,3}\d+(?:/\d+)?\W{1,4}$")
_EPISODE = _Expression(r"(?i)\bepisode\W{0,3}\d")
"""Steps that are told beside it are its own."""
_OTHER_STEPS = _Expression(
    r"(?i)\b(?:accum\w*|warm-?up|max|num|of|per|every|each|fps|episode|eval|av[eg]\w*|mean)[ _-]$"
)
"""Words before `step` in settings."""
_PREFIX = _Expression(
    r"^(?:\[\d+,\d+\]<std(?:out|err)>:|\[(?:default|rank)\d+\]:|\([^() ]+ (?:pid|ip)=[^()]*\)) ?"
)
"""What mpirun, torchrun and Ray write before each line."""


def is_epoch(line: bytes) -> bool:
    """An epoch begins: Keras says so before the bars of `fit`, not before one of `evaluate`, and
    YOLO before its bars."""
    return _EPOCH.search(line) is not None


def figures_of(line: bytes) -> Figures | None:
    """Reads one line; None where it has no figures."""
    if line[:1] in b"[(" and (prefix := _PREFIX.search(line)) is not None:
        line = line[len(prefix.match.group()) :]
    if line[:1] == b" " and _RESULT.search(line) is not None:
        return None
    loss, loss_at = None, len(line)
    lower = line.lower()
    if any(name in lower for name in _LOSSES):
        loss, loss_at = _loss_of(line)
        if loss is None and (found := _AT_STEP.search(line)) is not None:
            loss, loss_at = _number(found), found.match.start()
    for number in sorted(_ANY.Match(line) or ()):
        form = _FORMS[number][0]
        if form == "named":
            found = _best_named(line, loss is not None)
        else:
            found = _EXPRESSIONS[number].search(line)
        if found is None or (form in ("indexed", "first") and loss is None):
            continue
        if form == "first" and _is_epochs(line, found):
            continue
        if form == "images":
            loss = _number(_JITTER.search(line))
        elif form == "darknet":
            loss = _number(_AVERAGE.search(line))
        return _checked(line, form, found, loss, loss_at)
    if loss is None or _SOURCE.search(line) or _WHOLE_LOSS.search(line[loss_at:]):
        return None
    if _ASIDE.search(line[:loss_at]):
        return Figures("loss aside", FormRank.ASIDE)
    return Figures("loss", FormRank.LOSS, loss=loss)


def _is_epochs(line: bytes, found: _Hit) -> bool:
    """The count that a line begins with is that of epochs (`3/10 * Epoch 3`), or a date."""
    rest = line[found.span("total")[1] :]
    epoch = _NUMBER_OF_EPOCH.search(line)
    return _TIME.search(rest) is not None or (
        epoch is not None and epoch.count("epoch") == found.count("step")
    )


def _best_named(line: bytes, has_loss: bool) -> _Hit | None:
    """A step by its name: one of the training before one of an epoch. Without a loss it must look
    like a figure beside others: `Step 1: unpack the data` is a sentence."""
    best: tuple[int, _Hit] | None = None
    found, tries = _NAMED.search(line), 0
    while found is not None and tries < _MOST_MATCHES:
        name = found["name"].lower()
        signed = found["sign"].strip() != b""
        counted = bool(signed or found["total"])
        before = line[: found.span("name")[0]]
        if has_loss:
            fits = not name.endswith(b"s") or (counted and not _EPISODE.search(line))
        elif name.startswith(b"batch") and signed and _PART.search(line) is not None:
            fits = True
        elif name.endswith(b"s") or (name.startswith(b"batch") and not found["total"]):
            fits = _IN_EPOCH_NOW.search(before) is not None and _MORE.search(line) is not None
        else:
            tells = not before.strip() and _TRAINS.search(line) is not None
            fits = (counted or tells) and (bool(found["train"]) or _MORE.search(line) is not None)
            fits |= not before.strip() and not line[found.match.end() :].strip()
        fits = fits and _OTHER_STEPS.search(before) is None
        place = _WHOLE.get(name[:4], len(_WHOLE))
        if fits and (best is None or place < best[0]):
            best = (place, found)
        # What ends one may begin the next.
        found, tries = _NAMED.search(line, found.span("step")[1]), tries + 1
    return None if best is None else best[1]


def _checked(
    line: bytes, form: str, found: _Hit, loss: float | None, loss_at: int
) -> Figures | None:
    """The figures of a line whose step was found."""
    first, end = found.span("step")
    step, total = found.count("step"), found.count("total")
    if step is None or (total is not None and step > total) or total == 0:
        return None
    aside = form == "percent" or (form in _BARS and _BYTES.search(line[end:]) is not None)
    before = line[: min(first, loss_at)]
    aside |= form != "ours" and _ASIDE.search(before) is not None
    if form in _BARS and loss is None:
        aside |= any(hit["word"].lower() not in _TRAINING for hit in _DOING.all(before))
    if aside:
        rank, loss = FormRank.ASIDE, None
    elif form in _BARS and _OF_EPOCHS.search(before):
        rank = FormRank.EPOCHS
    elif loss is not None:
        rank = FormRank.SUMMARY if _EVALUATED.search(line) else FormRank.BOTH
    else:
        rank = FormRank.BAR if form in (*_BARS, *_IN_EPOCH) else FormRank.STEP
    sure = loss is not None or form in _SURE or _TRAINS.search(line) is not None
    sure |= form == "named" and _RATES.search(line) is not None
    if form == "bar":  # bars of one program differ by what stands before them
        name = line[:first].partition(b"%|")[0][:80].decode(errors="replace")
        form = f"bar {re.sub(r'[0-9.% ]+', ' ', name).strip()} of {total}"
    elif form == "keras":  # an evaluation has another number of batches
        form = f"keras of {total}"
    elif form == "named":
        form = found["name"].lower().decode()
    if aside:
        form += " aside"
    return Figures(form, rank, step, total, loss, form == "indexed", not sure)


def _loss_of(line: bytes) -> tuple[float | None, int]:
    """The loss that a line names, and where; that of the training where it names several."""
    best: tuple[int, float, int] | None = None
    for found in _LOSS.all(line):
        at = found.span("name")[0]
        name = found["name"].lower().strip(b" .'\"/-")
        more = found["more"].strip().lower()
        if more in _OTHER_LOSSES or found["after"] in (b" at step", b" is"):
            continue
        if (of := found["of"]) and _ASIDE.search(of) is not None:
            continue
        if line[at - 1 : at] in (b"?", b"&"):
            continue
        if found["loss"].isdigit() and found["after"][-1:].isdigit():
            continue  # `loss 2,5`, or `loss 120 0.625`
        if found["name"].startswith(b"--"):
            continue
        if name.startswith((b"avg", b"average")) and b"ccuracy" in line[:at]:
            continue  # `Accuracy: 44.8%, Avg loss: 2.1`, of a test set
        if more and more != b"value":
            name += b" " + more
        if name in _EXACT:
            if not _is_plain(line, at):
                continue
            merit = 0
        elif _GOOD.search(name):
            merit = 1
        elif _FAIR.search(name) or (b"train" in name and _FAIR.search(name.rpartition(b"/")[2])):
            merit = 2
        else:
            continue
        if b"cost" in name and not (_TRAINS.search(line) or _COSTS.search(line)):
            continue
        after = line[found.span("loss")[1] :]
        if _UNIT.search(after) is not None:
            continue
        if line.startswith(b"|") and _COLUMN.search(after) is not None:
            continue
        if best is None and _OTHER_TRADES.search(line) is not None:
            break
        if best is None or merit < best[0]:
            best = (merit, float(found["loss"]), at)
    return (None, len(line)) if best is None else (best[1], best[2])


def _is_plain(line: bytes, at: int) -> bool:
    """No word before `loss` says which of several losses it is (`policy loss`, `D loss`)."""
    before = line[max(0, at - 40) : at]
    if before.rstrip(b" ")[-1:] >= b"\x80" and _IDEOGRAPH.search(before) is not None:
        return _CHINESE_TRAINING in before
    if not before.endswith(b" ") or before.endswith(b"  "):
        return True
    text = before[:-1]
    if text[-1:].isdigit():  # `Content 1 loss`, and no `Epoch 1 loss`
        word = _last_word(text.rstrip(_DIGITS).rstrip(b"# "))
        return not word or word.lower() in _COUNTERS
    word = _last_word(text)
    return not word or (word.isupper() and len(word) > 1) or word.lower() in _CONNECTING


def _last_word(text: bytes) -> bytes:
    """The word of letters that a text ends with."""
    rest = text.rstrip(_LETTERS)
    if rest[-1:].isdigit() or rest.endswith(b"."):
        return b""
    return text[len(rest) :]


def _number(found: _Hit | None) -> float | None:
    return None if found is None else float(found["loss"])
