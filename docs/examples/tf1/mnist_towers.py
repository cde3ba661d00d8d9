# Towers: one process, a copy of the network on each device, gradients averaged on the CPU.
import os
import tensorflow as tf
from tensorflow.examples.tutorials.mnist import input_data

import mnist_inference

BATCH_SIZE = 100
REGULARIZATION_RATE = 0.0001

FLAGS = tf.app.flags.FLAGS
tf.app.flags.DEFINE_integer('num_gpus', 2, 'how many towers')
tf.app.flags.DEFINE_string('data_dir', 'MNIST_data', 'where the four files are')
tf.app.flags.DEFINE_string('log_dir', None, 'where the model is saved')
tf.app.flags.DEFINE_integer('training_steps', 100, 'steps')


def get_input(images, labels):
    image, label = tf.train.slice_input_producer([images, labels], shuffle=True)
    min_after_dequeue = 1000
    return tf.train.shuffle_batch(
        [image, label], batch_size=BATCH_SIZE,
        capacity=min_after_dequeue + 3 * BATCH_SIZE, min_after_dequeue=min_after_dequeue)


def get_loss(x, y_, regularizer, scope, reuse_variables=None):
    with tf.variable_scope(tf.get_variable_scope(), reuse=reuse_variables):
        y = mnist_inference.inference(x, regularizer)
    cross_entropy = tf.reduce_mean(
        tf.nn.sparse_softmax_cross_entropy_with_logits(logits=y, labels=y_))
    return cross_entropy + tf.add_n(tf.get_collection('losses', scope))


def average_gradients(tower_grads):
    average_grads = []
    for grad_and_vars in zip(*tower_grads):
        grads = [tf.expand_dims(g, 0) for g, _ in grad_and_vars]
        grad = tf.reduce_mean(tf.concat(grads, 0), 0)
        average_grads.append((grad, grad_and_vars[0][1]))
    return average_grads


def main(argv=None):
    mnist = input_data.read_data_sets(FLAGS.data_dir)
    with tf.Graph().as_default(), tf.device('/cpu:0'):
        x, y_ = get_input(mnist.train.images, mnist.train.labels.astype('int64'))
        regularizer = tf.contrib.layers.l2_regularizer(REGULARIZATION_RATE)
        global_step = tf.get_variable(
            'global_step', [], initializer=tf.constant_initializer(0), trainable=False)
        opt = tf.train.GradientDescentOptimizer(0.1)
        tower_grads = []
        reuse_variables = False
        for i in range(FLAGS.num_gpus):
            with tf.device('/gpu:%d' % i):
                with tf.name_scope('GPU_%d' % i) as scope:
                    cur_loss = get_loss(x, y_, regularizer, scope, reuse_variables)
                    reuse_variables = True
                    grads = opt.compute_gradients(cur_loss)
                    tower_grads.append(grads)
        grads = average_gradients(tower_grads)
        for grad, var in grads:
            tf.summary.histogram('gradients_on_average/%s' % var.op.name, grad)
        apply_gradient_op = opt.apply_gradients(grads, global_step=global_step)
        variable_averages = tf.train.ExponentialMovingAverage(0.99, global_step)
        variables_averages_op = variable_averages.apply(tf.trainable_variables())
        train_op = tf.group(apply_gradient_op, variables_averages_op)
        saver = tf.train.Saver(tf.all_variables())
        summary_op = tf.summary.merge_all()
        init = tf.initialize_all_variables()
        with tf.Session(config=tf.ConfigProto(allow_soft_placement=True)) as sess:
            init.run()
            coord = tf.train.Coordinator()
            threads = tf.train.start_queue_runners(sess=sess, coord=coord)
            for step in range(FLAGS.training_steps + 1):
                _, loss_value = sess.run([train_op, cur_loss])
                if step % 20 == 0:
                    sess.run(summary_op)
                    print('step %d, loss = %.2f' % (step, loss_value))
            if FLAGS.log_dir:
                tf.gfile.MakeDirs(FLAGS.log_dir)
                saver.save(sess, os.path.join(FLAGS.log_dir, 'model'), global_step=step)
            coord.request_stop()
            coord.join(threads)


if __name__ == '__main__':
    tf.app.run()
