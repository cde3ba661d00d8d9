# A program for TensorFlow 1.4, as its users wrote them: nothing here knows of TensorFlow 2 or tfmux.
import time
import tensorflow as tf
from tensorflow.examples.tutorials.mnist import input_data

import mnist_inference

BATCH_SIZE = 100
LEARNING_RATE_BASE = 0.2
LEARNING_RATE_DECAY = 0.99
REGULARIZATION_RATE = 0.0001

FLAGS = tf.app.flags.FLAGS
tf.app.flags.DEFINE_string('job_name', 'worker', ' "ps" or "worker" ')
tf.app.flags.DEFINE_string('ps_hosts', 'localhost:2222', 'comma-separated ps hosts')
tf.app.flags.DEFINE_string('worker_hosts', 'localhost:2223', 'comma-separated worker hosts')
tf.app.flags.DEFINE_integer('task_id', 0, 'index of this task')
tf.app.flags.DEFINE_string('data_dir', 'MNIST_data', 'where the four files are')
tf.app.flags.DEFINE_string('log_dir', None, 'where the chief saves')
tf.app.flags.DEFINE_integer('training_steps', 400, 'global steps')
tf.app.flags.DEFINE_boolean('sync', False, 'SyncReplicasOptimizer')


def build_model(x, y_, num_workers, is_chief):
    regularizer = tf.contrib.layers.l2_regularizer(REGULARIZATION_RATE)
    y = mnist_inference.inference(x, regularizer)
    global_step = tf.contrib.framework.get_or_create_global_step()
    cross_entropy = tf.nn.sparse_softmax_cross_entropy_with_logits(
        logits=y, labels=tf.argmax(y_, 1))
    loss = tf.reduce_mean(cross_entropy) + tf.add_n(tf.get_collection('losses'))
    learning_rate = tf.train.exponential_decay(
        LEARNING_RATE_BASE, global_step, 60000 / BATCH_SIZE, LEARNING_RATE_DECAY)
    opt = tf.train.GradientDescentOptimizer(learning_rate)
    hooks = []
    if FLAGS.sync:
        opt = tf.train.SyncReplicasOptimizer(
            opt, replicas_to_aggregate=num_workers, total_num_replicas=num_workers)
        hooks.append(opt.make_session_run_hook(is_chief))
    train_op = opt.minimize(loss, global_step=global_step)
    return global_step, loss, train_op, hooks


def main(argv=None):
    ps_hosts = FLAGS.ps_hosts.split(',')
    worker_hosts = FLAGS.worker_hosts.split(',')
    cluster = tf.train.ClusterSpec({'ps': ps_hosts, 'worker': worker_hosts})
    server = tf.train.Server(cluster, job_name=FLAGS.job_name, task_index=FLAGS.task_id)
    if FLAGS.job_name == 'ps':
        with tf.device('/cpu:0'):
            server.join()

    is_chief = (FLAGS.task_id == 0)
    mnist = input_data.read_data_sets(FLAGS.data_dir, one_hot=True)
    device_setter = tf.train.replica_device_setter(
        worker_device='/job:worker/task:%d' % FLAGS.task_id, cluster=cluster)

    with tf.device(device_setter):
        x = tf.placeholder(tf.float32, [None, mnist_inference.INPUT_NODE], name='x-input')
        y_ = tf.placeholder(tf.float32, [None, mnist_inference.OUTPUT_NODE], name='y-input')
        global_step, loss, train_op, hooks = build_model(x, y_, len(worker_hosts), is_chief)

        hooks.append(tf.train.StopAtStepHook(last_step=FLAGS.training_steps))
        sess_config = tf.ConfigProto(
            allow_soft_placement=True, log_device_placement=False,
            device_filters=['/job:ps', '/job:worker/task:%d' % FLAGS.task_id])

        with tf.train.MonitoredTrainingSession(
                master=server.target, is_chief=is_chief, checkpoint_dir=FLAGS.log_dir,
                hooks=hooks, save_checkpoint_secs=60, config=sess_config) as mon_sess:
            print('session started.')
            step = 0
            start_time = time.time()
            while not mon_sess.should_stop():
                xs, ys = mnist.train.next_batch(BATCH_SIZE)
                _, loss_value, global_step_value = mon_sess.run(
                    [train_op, loss, global_step], feed_dict={x: xs, y_: ys})
                if step > 0 and step % 20 == 0:
                    duration = time.time() - start_time
                    print('After %d training steps (%d global steps), loss on training batch is %g. '
                          '(%.3f sec/batch)' % (step, global_step_value, loss_value,
                                                duration / global_step_value))
                step += 1


if __name__ == '__main__':
    tf.app.run()
