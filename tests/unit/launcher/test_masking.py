"""What is masked as a secret, and what stays: the table of shapes, names, values, real logs."""

from __future__ import annotations

import base64
import json
import shlex
from pathlib import Path
from urllib.parse import quote

import pytest

from launcher.masking import (
    Shape,
    is_secret_name,
    mask,
    masked_json,
    masked_variables,
    masked_words,
    shapes,
)
from launcher.secret_values import MASK, SecretValues

LOGS = Path(__file__).parents[2] / "support"
MEGABYTE = 1 << 20


@pytest.mark.parametrize("shape", shapes(), ids=lambda shape: shape.name)
def test_each_shape_masks_its_example_and_leaves_what_resembles_it(shape: Shape) -> None:
    """Given a row of the table, then its example is masked, alone and in a line, and what is hidden
    is not masked twice; the other text stays as it is."""
    once = mask(f"x {shape.example} y")
    assert MASK in once and "horse" not in once and "hunter" not in once, once
    assert mask(once) == once
    assert mask(shape.other) == shape.other


@pytest.mark.parametrize("shape", shapes(), ids=lambda shape: shape.name)
def test_no_text_holds_a_shape_up(shape: Shape) -> None:
    """Given a megabyte of what a shape begins with and never ends, then each expression is RE2's,
    which has no backtracking, and comes to its end. (A hung one would be this test's time-out.)"""
    begin = shape.example.encode()[: max(4, len(shape.example) // 2)]
    text = begin * (MEGABYTE // 8 // len(begin))
    assert type(shape.pattern).__module__.startswith(("re2", "_re2"))
    assert sum(1 for _ in shape.pattern.finditer(text)) <= len(text)


@pytest.mark.parametrize("name", ["figure_logs.txt", "tensorflow_errors.txt"])
def test_real_logs_stay_as_they_are(name: str) -> None:
    """Given two thousand lines of logs of public trainings, then nothing in them is masked."""
    for line in (LOGS / name).read_text().splitlines():
        assert mask(line) == line


@pytest.mark.parametrize(
    "line",
    [
        "step 10 key=value sort_key: loss cache_key=abc primary key: id",
        "tokens/s 1200, num_tokens=3000, max_new_tokens: 12, tokenizer: bert-base",
        "eos_token='</s>' pad_token=\"[PAD]\" token_id: 3 mask_token=<mask> image_token: <image>",
        "HEAD is now at 0123456789abcdef0123456789abcdef01234567 Mask secrets",
        "wandb: run mnist at commit 0123456789abcdef0123456789abcdef01234567",
        "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
        "run 123e4567-e89b-12d3-a456-426614174000 of mnist-async-20261120-183002-7f3a",
        "Saving epoch=12-step=34000-val_loss=0.12.ckpt and model-00001-of-00003.safetensors",
        '{"token": "hello", "logprob": -0.1, "key": "abc12345"}',
        "KeyError: 'image'; Missing key(s) in state_dict: \"a.b\"; AuthError: token: the",
        "pass: 3/10, PASS: TestStep/iteration_12, auth: none, password: None, pin_memory=True",
        "login(token=token, api_key=self.api_key, password=getpass.getpass())",
        "secret = os.environ['X']; --tls-key server.pem --key-file k --tls-key FILE",
        "srun -p gpu -N 2; ssh -p 40022 tf1; docker run -p 8080:80; mkdir -p out/v10; cp -p a b",
        "mAP@0.5: 0.43, acc@1 0.9, pass@k 0.3; http://tf1:6006/?darkMode=true#scalars",
        "ssh-ed25519 SHA256:016XyIROpeAk/ImS4TJnpfgZLet99Ag6wARW3gn8Rdo was accepted",
        "=" * 80,
        "/data/" + "imagenet/train/" * 8,
        "author: anna",
    ],
)
def test_what_is_no_secret_stays(line: str) -> None:
    """Given a line with hashes of commits, ids, names of checkpoints, words of trainings and of
    programs that only resemble secrets, then it stays as it is."""
    assert mask(line) == line


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("--wandb-key horse --lr 0.1", "--lr 0.1"),
        ("--wandb-key=horse --lr 0.1", "--lr 0.1"),
        ("--wandb_key 'horse battery' --lr 0.1", "--lr 0.1"),
        ("WANDB_API_KEY=horse python train.py", "python train.py"),
        ("AccountName=me;AccountKey=horse==;EndpointSuffix=core", ";EndpointSuffix=core"),
        ("aws_secret_access_key = horse/K7MDENG+x\nregion = eu", "region = eu"),
        ('{"clientSecret": "horse", "lr": 0.1}', '"lr": 0.1'),
        ("{'hf_token': 'horse', 'lr': 0.1}", "'lr': 0.1"),
        ("os.environ['MY_TOKEN'] = 'horse'", "os.environ['MY_TOKEN'] = '"),
        ("env: - name: DB_PASSWORD value: x DB_PASSWORD: horse", "DB_PASSWORD: "),
        ("https://x.invalid/y?access_token=horse&page=2", "&page=2"),
        ("wget --header 'X-Api-Key: horse' https://x.invalid", "https://x.invalid"),
        ("git clone https://horse@github.com/me/repo.git", "@github.com/me/repo.git"),
        ("postgresql://me:horse@db/x", "@db/x"),
        ("ssh -o ProxyCommand='sshpass -p horse ssh gate nc tf1 22'", "ssh gate nc tf1 22"),
        ("token=\x1b[31mhorse\x1b[0m", "token="),
        ("passphrase: horse", "passphrase: "),
        ('{"token": "horse123", "id": 7}', '"id": 7'),
    ],
)
def test_names_and_options_hide_their_values(text: str, left: str) -> None:
    """Given an option, a variable, a key of JSON, YAML or Python, a part of an address or a header
    with a secret's name, then its value is masked, and what is beside it stays."""
    masked = mask(text)
    assert "horse" not in masked and MASK in masked and left in masked, masked


def test_names_of_secrets() -> None:
    """Given names of variables and options, then those of secrets are known by their words."""
    secret = "WANDB_API_KEY HF_TOKEN GITHUB_TOKEN password db_password_prod clientSecret PGPASSWORD"
    secret += " AWS_SECRET_ACCESS_KEY TOKEN_2 account-key SSH_PRIVATE_KEY APIKEY AccountKey MY_PAT"
    other = "PWD_FILE TOKENIZERS_PARALLELISM CUDA_VISIBLE_DEVICES token_type_ids num_tokens monitor"
    other += " SECRET_NAME password_file eos_token cache_key KEYS path keyboard passing author"
    assert [name for name in secret.split() if not is_secret_name(name)] == []
    assert [name for name in other.split() if is_secret_name(name)] == []


def test_words_of_a_command_and_variables_are_masked_one_by_one() -> None:
    """Given a command as words and its variables, then as many words come back, whatever they hold,
    and JSON keeps its form."""
    words = ["curl", "-H", "Authorization: Bearer horse1234", "--token", "a 'horse\n", "", "x=1"]
    masked = masked_words(words)
    assert len(masked) == len(words) and "horse" not in " ".join(masked)
    assert masked[0] == "curl" and masked[-2:] == ["", "x=1"]
    assert masked_words(["a", "'"]) == ["a", "'"]
    env = {"HF_TOKEN": "horse", "LR": "0.1", "TOKEN_FILE": "/x", "URL": "http://me:horse@x/"}
    kept = {"HF_TOKEN": MASK, "LR": "0.1", "TOKEN_FILE": "/x", "URL": f"http://{MASK}@x/"}
    assert masked_variables(env) == kept
    assert masked_json({"a": [1, None, "token=horse"], "api_key": "horse", "n": {"key": "x"}}) == {
        "a": [1, None, f"token={MASK}"],
        "api_key": MASK,
        "n": {"key": "x"},
    }


VALUE = 'pa55-wörd/with "q\'"+x'


@pytest.mark.parametrize(
    "written",
    [
        VALUE,
        json.dumps(VALUE)[1:-1],
        json.dumps(VALUE, ensure_ascii=False)[1:-1],
        repr(VALUE)[1:-1],
        shlex.quote(VALUE),
        quote(VALUE),
        quote(VALUE, safe=""),
        VALUE.encode().hex(),
        VALUE[:-3] + "…",
        VALUE[:9],
    ],
)
def test_a_value_is_masked_in_the_forms_that_programs_write(written: str) -> None:
    """Given a known value as it is, in JSON, in quotes of a shell or of Python, in an address, in
    hex, or cut at the end of a line, then nothing of it is left."""
    masked = SecretValues({"X": VALUE}).mask(f"before {written}")
    assert masked.rstrip("…'\"") == f"before {MASK}" or masked.endswith(f"'{MASK}'"), masked


@pytest.mark.parametrize("user", ["u", "us", "use"])
def test_a_value_is_masked_in_base64_behind_other_bytes(user: str) -> None:
    """Given a value behind an account in base64, as a request has it, then nothing of it
    is left but what shares a row of four characters with the account."""
    coded = base64.b64encode(f"{user}:{VALUE}".encode()).decode()
    alone = base64.b64encode(VALUE.encode()).decode()
    masked = SecretValues({"X": VALUE}).mask(f"Basic {coded}")
    assert MASK in masked and len(masked.replace(MASK, "")) <= len("Basic ") + 8
    assert alone[4:12] not in masked


def test_a_value_of_several_lines_and_short_ones() -> None:
    """Given a value of several lines, then each of its long lines is masked where it stands alone;
    one of a few characters is named, and the numbers of a log stay."""
    key = "-----BEGIN X-----\nfirst row of it\nsecond row of it\nab\n-----END X-----\n"
    values = SecretValues({"KEY": key, "ONE": "1", "ABC": "abc", "GONE": None, "NONE": ""})
    masked = values.mask(f"read {key} and then: second row of it, step 1 of 11, abc ab")
    assert "row of it" not in masked and masked.endswith("step 1 of 11, abc ab")
    assert values.short == ["ABC", "NONE", "ONE"] and values.unknown == ["GONE"]
