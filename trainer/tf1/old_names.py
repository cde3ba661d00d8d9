"""Names of TensorFlow 0.x with their names in release 1.0, and what to write instead of names that
nothing stands in for. Data only; `old_arguments` has the functions whose arguments changed, too."""

import re

RENAMED = {
    # Numbers and arrays
    "tf.complex_abs": "tf.abs",
    "tf.inv": "tf.reciprocal",
    "tf.list_diff": "tf.setdiff1d",
    "tf.listdiff": "tf.setdiff1d",
    "tf.mul": "tf.multiply",
    "tf.neg": "tf.negative",
    "tf.pack": "tf.stack",
    "tf.select": "tf.where",
    "tf.sub": "tf.subtract",
    "tf.unpack": "tf.unstack",
    # Matrices: one function for one matrix and for a batch of them
    "tf.batch_band_part": "tf.matrix_band_part",
    "tf.batch_cholesky": "tf.cholesky",
    "tf.batch_cholesky_solve": "tf.cholesky_solve",
    "tf.batch_fft": "tf.fft",
    "tf.batch_fft2d": "tf.fft2d",
    "tf.batch_fft3d": "tf.fft3d",
    "tf.batch_ifft": "tf.ifft",
    "tf.batch_ifft2d": "tf.ifft2d",
    "tf.batch_ifft3d": "tf.ifft3d",
    "tf.batch_matmul": "tf.matmul",
    "tf.batch_matrix_band_part": "tf.matrix_band_part",
    "tf.batch_matrix_determinant": "tf.matrix_determinant",
    "tf.batch_matrix_diag": "tf.matrix_diag",
    "tf.batch_matrix_diag_part": "tf.matrix_diag_part",
    "tf.batch_matrix_inverse": "tf.matrix_inverse",
    "tf.batch_matrix_set_diag": "tf.matrix_set_diag",
    "tf.batch_matrix_solve": "tf.matrix_solve",
    "tf.batch_matrix_solve_ls": "tf.matrix_solve_ls",
    "tf.batch_matrix_transpose": "tf.matrix_transpose",
    "tf.batch_matrix_triangular_solve": "tf.matrix_triangular_solve",
    "tf.batch_self_adjoint_eig": "tf.self_adjoint_eig",
    "tf.batch_self_adjoint_eigvals": "tf.self_adjoint_eigvals",
    "tf.batch_set_diag": "tf.matrix_set_diag",
    "tf.batch_svd": "tf.svd",
    # Variables and tables
    "tf.all_variables": "tf.global_variables",
    "tf.initialize_all_tables": "tf.tables_initializer",
    "tf.initialize_all_variables": "tf.global_variables_initializer",
    "tf.initialize_local_variables": "tf.local_variables_initializer",
    "tf.initialize_variables": "tf.variables_initializer",
    # Summaries
    "tf.audio_summary": "tf.summary.audio",
    "tf.contrib.deprecated.histogram_summary": "tf.summary.histogram",
    "tf.contrib.deprecated.scalar_summary": "tf.summary.scalar",
    "tf.histogram_summary": "tf.summary.histogram",
    "tf.image_summary": "tf.summary.image",
    "tf.merge_all_summaries": "tf.summary.merge_all",
    "tf.merge_summary": "tf.summary.merge",
    "tf.scalar_summary": "tf.summary.scalar",
    "tf.train.SummaryWriter": "tf.summary.FileWriter",
    # Images, networks, training
    "tf.image.per_image_whitening": "tf.image.per_image_standardization",
    "tf.image.random_crop": "tf.random_crop",
    "tf.nn.bidirectional_rnn": "tf.nn.static_bidirectional_rnn",
    "tf.nn.deconv2d": "tf.nn.conv2d_transpose",
    "tf.nn.rnn": "tf.nn.static_rnn",
    "tf.nn.state_saving_rnn": "tf.nn.static_state_saving_rnn",
    "tf.train.SyncReplicasOptimizerV2": "tf.train.SyncReplicasOptimizer",
}
"""Names of 0.x, and their names in 1.0."""

_DECODERS = "write the loop over `cell(input, state)` with `tf.nn.raw_rnn`, or use `tf.keras`"
REMEDIES = {
    "tf.estimator": (
        "TensorFlow 2.16 and later have no estimators: run what `model_fn` builds in the loop of a "
        "`tf.train.MonitoredTrainingSession`, or use `tf.keras`"
    ),
    "tf.estimator.train_and_evaluate": (
        "TensorFlow 2.16 and later have no estimators: train in the loop of a "
        "`tf.train.MonitoredTrainingSession`; a task of its own reads its checkpoints, which "
        "`tf.train.checkpoints_iterator` finds, and evaluates them"
    ),
    "tf.keras.estimator": (
        "TensorFlow 2.16 and later have no estimators: call the model's own `fit` and `evaluate`"
    ),
    "tf.contrib.checkpoint": "see `tf.train.Checkpoint`",
    "tf.contrib.cluster_resolver": "see `tf.distribute.cluster_resolver`",
    "tf.contrib.crf": "tensorflow-addons had it, for TensorFlow up to 2.14",
    "tf.contrib.data": "see `tf.data` and `tf.data.experimental`",
    "tf.contrib.distribute": "see `tf.distribute` and `tf.distribute.experimental`",
    "tf.contrib.distributions": "the package tensorflow-probability has them",
    "tf.contrib.eager": "see `tf.GradientTape`, in a program without tf1",
    "tf.contrib.estimator": "TensorFlow 2.16 and later have no estimators",
    "tf.contrib.framework": (
        "see `tf.train.load_checkpoint` for checkpoints, `tf.get_variable` for variables, "
        "`tf.nest` for structures; the package tf-slim has `arg_scope`"
    ),
    "tf.contrib.image": "tensorflow-addons had it, for TensorFlow up to 2.14",
    "tf.contrib.keras": "see `tf.keras`",
    "tf.contrib.layers": (
        "see `tf.layers` and `tf.feature_column`, or write it with `tf.get_variable` and `tf.nn`"
    ),
    "tf.contrib.learn": "write a loop of `tf.train.MonitoredTrainingSession`, or use `tf.keras`",
    "tf.contrib.legacy_seq2seq": _DECODERS,
    "tf.contrib.lookup": (
        "see `tf.lookup`: `tf.lookup.StaticHashTable`, and `tf.lookup.StaticVocabularyTable` for "
        "words that the table does not have"
    ),
    "tf.contrib.losses": "see `tf.losses`, whose functions take the labels before the predictions",
    "tf.contrib.metrics": (
        "see `tf.metrics`, whose functions have no `streaming_` in their names and take the labels "
        "before the predictions"
    ),
    "tf.contrib.nccl": "add up with `tf.add_n`, or see `tf.distribute`",
    "tf.contrib.opt": "`tf.train` has fewer optimizers: see `tf.train.AdamOptimizer`",
    "tf.contrib.rnn": "see `tf.nn.rnn_cell` and `tf.nn.dynamic_rnn`",
    "tf.contrib.seq2seq": _DECODERS,
    "tf.contrib.session_bundle": "see `tf.saved_model`",
    "tf.contrib.slim": "the package tf-slim has it (`import tf_slim as slim`)",
    "tf.contrib.staging": "see `prefetch` of `tf.data.Dataset`",
    "tf.contrib.summary": "see `tf.compat.v2.summary`",
    "tf.contrib.tensorboard": "the package tensorboard has it (`tensorboard.plugins`)",
    "tf.contrib.training": "see `tf.data`; for `HParams` a class of your own, or `argparse`",
    "tf.contrib.util": "see `tf.make_tensor_proto` and `tf.get_static_value`",
    "tf.learn": "see `tf.keras`",
    "tf.models": "see `tf.nn.rnn_cell` and `tf.nn.static_rnn`",
    "tf.nn.seq2seq": _DECODERS,
    "tf.python": "import `tensorflow.python` itself, or use the name in `tf`",
}
"""What to write instead of a name, and of everything below it, that has no stand-in."""


def remedy(path: str) -> str:
    """The remedy of the longest name that begins a path; empty if there is none."""
    words = path.split(".")
    names = (".".join(words[:count]) for count in range(len(words), 0, -1))
    return next((REMEDIES[name] for name in names if name in REMEDIES), "")


HINTS = {
    r"Variable \S+/\w+/? does not exist, .* reuse=tf.AUTO_REUSE in VarScope": (
        "since TensorFlow 1.0 `reuse_variables()` holds for what optimizers and averages make, "
        "too: put the loop over devices into `with tf.variable_scope(tf.get_variable_scope()):`"
    ),
    r"'Operation' object has no attribute '_inputs'": "write `.inputs`",
    r"SparseTensor.__init__\(\) got an unexpected keyword argument 'shape'": "write `dense_shape=`",
}
"""What to write instead, by expressions for the message of an error; all of it where release 1.0
refused what 0.x took."""


def hint(error: BaseException) -> str:
    """The remedy for an error of a program of 0.x; empty if none is known."""
    return next((text for what, text in HINTS.items() if re.search(what, str(error))), "")
