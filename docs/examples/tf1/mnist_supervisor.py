# The same cluster by tf.train.Supervisor, which came before MonitoredTrainingSession.
import tensorflow as tf
import tensorflow.contrib.layers as layers
from tensorflow.examples.tutorials.mnist import input_data

flags = tf.app.flags
flags.DEFINE_string('data_dir', 'MNIST_data', 'where the four files are')
flags.DEFINE_string('ps_hosts', 'localhost:2222', 'comma-separated ps hosts')
flags.DEFINE_string('worker_hosts', 'localhost:2223', 'comma-separated worker hosts')
flags.DEFINE_string('job_name', None, 'job name: worker or ps')
flags.DEFINE_integer('task_index', None, 'index of this task')
flags.DEFINE_integer('train_steps', 200, 'global steps')
FLAGS = flags.FLAGS


def main(unused_argv):
    mnist = input_data.read_data_sets(FLAGS.data_dir, one_hot=True)
    cluster = tf.train.ClusterSpec(
        {'ps': FLAGS.ps_hosts.split(','), 'worker': FLAGS.worker_hosts.split(',')})
    server = tf.train.Server(cluster, job_name=FLAGS.job_name, task_index=FLAGS.task_index)
    if FLAGS.job_name == 'ps':
        server.join()
    is_chief = (FLAGS.task_index == 0)
    with tf.device(tf.train.replica_device_setter(
            worker_device='/job:worker/task:%d' % FLAGS.task_index, cluster=cluster)):
        global_step = tf.Variable(0, name='global_step', trainable=False)
        w = tf.get_variable('w', [784, 10], initializer=layers.xavier_initializer())
        b = tf.Variable(tf.zeros([10]), name='b')
        x = tf.placeholder(tf.float32, [None, 784])
        y_ = tf.placeholder(tf.float32, [None, 10])
        y = tf.nn.softmax(tf.nn.xw_plus_b(x, w, b))
        cross_entropy = -tf.reduce_sum(y_ * tf.log(tf.clip_by_value(y, 1e-10, 1.0)))
        train_step = tf.train.AdamOptimizer(0.01).minimize(cross_entropy, global_step=global_step)
        sv = tf.train.Supervisor(
            is_chief=is_chief, init_op=tf.global_variables_initializer(),
            recovery_wait_secs=1, global_step=global_step)
        sess_config = tf.ConfigProto(
            device_filters=['/job:ps', '/job:worker/task:%d' % FLAGS.task_index])
        with sv.prepare_or_wait_for_session(server.target, config=sess_config) as sess:
            print('Worker %d: Session initialization complete.' % FLAGS.task_index)
            local_step = 0
            while True:
                batch_xs, batch_ys = mnist.train.next_batch(100)
                _, step = sess.run([train_step, global_step], {x: batch_xs, y_: batch_ys})
                local_step += 1
                if local_step % 20 == 0:
                    print('Worker %d: training step %d done (global step: %d)' % (
                        FLAGS.task_index, local_step, step))
                if step >= FLAGS.train_steps:
                    break
            feed = {x: mnist.validation.images, y_: mnist.validation.labels}
            print('After %d training step(s), validation cross entropy = %g' % (
                FLAGS.train_steps, sess.run(cross_entropy, feed_dict=feed)))


if __name__ == '__main__':
    tf.app.run()
