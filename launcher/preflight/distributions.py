"""Packages that bring modules of another name, as package indexes call them."""

from __future__ import annotations

from collections.abc import Sequence

_DISTRIBUTIONS = {
    "absl": "absl-py",
    "ale_py": "ale-py",
    "attr": "attrs",
    "bs4": "beautifulsoup4",
    "cv2": "opencv-python-headless",
    "Crypto": "pycryptodome",
    "dateutil": "python-dateutil",
    "dotenv": "python-dotenv",
    "faiss": "faiss-cpu",
    "fitz": "PyMuPDF",
    "git": "GitPython",
    "gi": "PyGObject",
    "google": "protobuf",
    "hydra": "hydra-core",
    "igraph": "python-igraph",
    "imblearn": "imbalanced-learn",
    "IPython": "ipython",
    "jose": "python-jose",
    "jwt": "PyJWT",
    "keras_cv": "keras-cv",
    "keras_tuner": "keras-tuner",
    "Levenshtein": "python-Levenshtein",
    "magic": "python-magic",
    "mpl_toolkits": "matplotlib",
    "MySQLdb": "mysqlclient",
    "OpenSSL": "pyOpenSSL",
    "PIL": "pillow",
    "pkg_resources": "setuptools",
    "psycopg2": "psycopg2-binary",
    "pydantic_settings": "pydantic-settings",
    "pytorch_lightning": "pytorch-lightning",
    "re2": "google-re2",
    "ruamel": "ruamel.yaml",
    "sentence_transformers": "sentence-transformers",
    "serial": "pyserial",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "skopt": "scikit-optimize",
    "slugify": "python-slugify",
    "socks": "PySocks",
    "tensorflow_addons": "tensorflow-addons",
    "tensorflow_datasets": "tensorflow-datasets",
    "tensorflow_hub": "tensorflow-hub",
    "tensorflow_probability": "tensorflow-probability",
    "tensorflow_text": "tensorflow-text",
    "tf_keras": "tf-keras",
    "tf_slim": "tf-slim",
    "torch_geometric": "torch-geometric",
    "torch_scatter": "torch-scatter",
    "usb": "pyusb",
    "websocket": "websocket-client",
    "win32api": "pywin32",
    "wx": "wxPython",
    "Xlib": "python-xlib",
    "yaml": "pyyaml",
    "zmq": "pyzmq",
}
_SAME = frozenset(
    "accelerate aiohttp boto3 click datasets deepspeed einops fastapi fire flax gym gymnasium "
    "h5py horovod imageio jax jinja2 joblib keras librosa lightgbm lightning matplotlib mlflow "
    "mpi4py nltk numba numpy omegaconf onnx onnxruntime optax optuna orbax pandas peft plotly "
    "polars psutil pyarrow pycocotools pydantic pytest ray regex requests rich safetensors "
    "scipy seaborn sentencepiece six spacy sympy tabulate tensorboard tensorboardX tensorflow "
    "tf2onnx tflearn tiktoken timm tokenizers torch torchaudio torchmetrics torchvision tqdm "
    "transformers triton typer wandb xgboost".split()
)
"""Modules whose packages have their names."""
REMOVED = {
    "asynchat": 12,
    "asyncore": 12,
    "cgi": 13,
    "crypt": 13,
    "distutils": 12,
    "imghdr": 13,
    "imp": 12,
    "pipes": 13,
    "smtpd": 12,
    "sndhdr": 13,
    "telnetlib": 13,
}
"""Modules of the standard library, with the Python 3 that has them no more."""
_BY_SETUPTOOLS = ("distutils", "pkg_resources")


def advice(python: str, modules: Sequence[str]) -> str:
    """Writes how to install modules; a package's name that is not known is said to be a guess."""
    packages = [package_of(name) for name in modules]
    sure = all(name in _SAME or name in _DISTRIBUTIONS for name in modules)
    text = f"run {python} -m pip install {' '.join(dict.fromkeys(packages))}"
    return text if sure else f"{text} (a guess by the module's name)"


def package_of(module: str) -> str:
    """The package that brings a module: by the table, else of the same name."""
    return "setuptools" if module in _BY_SETUPTOOLS else _DISTRIBUTIONS.get(module, module)
