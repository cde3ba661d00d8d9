"""Clusters as people write them, each with what must be understood.

The forms are those of public scripts, tutorials and manuals, which `form` names; hosts, numbers and
sentences are our own.
"""

from __future__ import annotations

from dataclasses import field

from launcher.cluster.addresses import SshDestination
from launcher.cluster.shorthand import ListedTask, Understood
from launcher.frozen import frozen


@frozen
class Text:
    """One text. It is understood as `jobs` or `hosts`, or it is refused."""

    form: str
    """Whose form it has."""
    text: str
    jobs: str = ""
    """`ps=tf1:2222 worker=tf2#2200:auto`, in the order of the text; an SSH port follows #."""
    hosts: str = ""
    """`tf1*4 me@tf2*1`: logins with their slots."""
    refused: str = ""
    """Part of the sentence of a refusal."""
    said: tuple[str, ...] = field(default=())
    """Parts of the sentence that says what was understood, or left out."""


def shown_task(task: ListedTask) -> str:
    return f"{shown_login(task.login, '#')}:{task.port or 'auto'}"


def shown_login(login: SshDestination, sign: str) -> str:
    user = f"{login.user}@" if login.user else ""
    return f"{user}{login.host}{f'{sign}{login.port}' if login.port else ''}"


def shown(understood: Understood) -> str:
    """What was understood, as the table of texts writes it."""
    if understood.jobs:
        return " ".join(
            f"{job}={','.join(map(shown_task, tasks))}" for job, tasks in understood.jobs.items()
        )
    return " ".join(f"{shown_login(h.login, ':')}*{h.slots}" for h in understood.hosts)


PS_2_WORKERS = "ps=tf1:2222 worker=tf2:2222,tf3:2222"
FOUR = "tf1*1 tf2*1 tf3*1 tf4*1"

TEXTS = (
    # TF_CONFIG and ClusterSpec
    Text(
        "TensorFlow's guide: TF_CONFIG",
        '{"cluster": {"worker": ["tf2:2222", "tf3:2222"], "ps": ["tf1:2222"]},'
        ' "task": {"type": "worker", "index": 1}}',
        jobs="worker=tf2:2222,tf3:2222 ps=tf1:2222",
        said=("TF_CONFIG", "1 ps and 2 workers", "ports as given"),
    ),
    Text(
        "a script before an example: assignment of several lines",
        '#!/bin/bash\nexport TF_CONFIG=\'{\n  "cluster": {\n    "ps": ["tf1:2222"], \n'
        '    "worker": ["tf2:2222", "tf3:2222"] \n  }, \n  "environment": "local",\n  "task": {\n'
        '     "type": "ps",\n     "index": 0\n  }\n}\'\n\npython iris.py\n',
        jobs=PS_2_WORKERS,
    ),
    Text(
        "an assignment before a command",
        'TF_CONFIG=\'{"cluster": {"worker": ["tf1:12345", "tf2:12345"]}, '
        '"task": {"type": "worker", "index": 0}}\' python main.py --epochs 3',
        jobs="worker=tf1:12345,tf2:12345",
    ),
    Text(
        "docker run -e",
        'sudo docker run --gpus all -p 2222:2222 -e TF_CONFIG=\'{"cluster": {"worker": '
        '["192.168.7.100:2222", "192.168.7.101:2222"]}, "task": {"type": "worker", "index": 0}}\''
        " --name worker-0  my_app > training_log.txt",
        jobs="worker=192.168.7.100:2222,192.168.7.101:2222",
    ),
    Text(
        "an assignment with escaped quotes",
        'export TF_CONFIG="{\\"cluster\\": {\\"chief\\": [\\"tf1:2222\\"], \\"worker\\": '
        '[\\"tf2:2222\\"]}, \\"task\\": {\\"type\\": \\"chief\\", \\"index\\": 0}}"',
        jobs="chief=tf1:2222 worker=tf2:2222",
    ),
    Text(
        "a Python program: json.dumps",
        "import json\nimport os\n\nos.environ['TF_CONFIG'] = json.dumps({\n    'cluster': {\n"
        '        \'worker\': ["tf1:12345", "tf2:23456"]\n    },\n'
        "    'task': {'type': 'worker', 'index': worker_index}\n})\n\nprint(os.environ)\n",
        jobs="worker=tf1:12345,tf2:23456",
    ),
    Text(
        "a Python program: a dictionary first",
        'tf_config = {\n    "cluster": {"worker": ["10.1.0.17:12345", "10.1.0.18:12345"]},\n'
        '    "task": {"type": "worker", "index": 0},\n}\n\nos.environ["TF_CONFIG"] = '
        "json.dumps(tf_config)",
        jobs="worker=10.1.0.17:12345,10.1.0.18:12345",
    ),
    Text(
        "a program that makes TF_CONFIG: the cluster first",
        "cluster = {'master': ['tf1:2220'],\n           'ps': ['tf2:2222', 'tf2:2221'],\n"
        "           'worker': ['tf3:2223', 'tf4:2224']}\n\nTF_CONFIG = json.dumps(\n"
        "  {'cluster': cluster,\n   'task': {'type': args.task_type, 'index': args.task_index},\n"
        "   'environment': 'cloud'\n  })\n",
        jobs="master=tf1:2220 ps=tf2:2222,tf2:2221 worker=tf3:2223,tf4:2224",
    ),
    Text(
        "tf.train.ClusterSpec",
        'cluster = tf.train.ClusterSpec({"ps": ["tf1:2222"],\n'
        '                                "worker" :["tf2:2223","tf2:2224"]\n'
        "                                })\nserver = tf.train.Server(cluster, "
        "job_name=jobname, task_index=taskindex)",
        jobs="ps=tf1:2222 worker=tf2:2223,tf2:2224",
    ),
    Text(
        "tf.train.ClusterSpec of variables",
        'ps_hosts = [ "tf1:8887" ]\nworker_hosts = [ "tf2:8888", "tf2:8889" ]\n'
        'cluster = tf.train.ClusterSpec({"ps": ps_hosts, "worker": worker_hosts})\n',
        jobs="ps=tf1:8887 worker=tf2:8888,tf2:8889",
    ),
    Text(
        "tf.train.ClusterSpec of variables with other names, and old lines",
        '#  workers = ["gpu-02:2224", "gpu-02:2225"]\n'
        '  parameter_servers = ["tf1:2222","tf1:2223"]\n'
        '  workers = ["tf2:2226", "tf3:2227"]\n\n'
        '  cluster = tf.train.ClusterSpec({"ps":parameter_servers, "worker":workers})\n',
        jobs="ps=tf1:2222,tf1:2223 worker=tf2:2226,tf3:2227",
    ),
    Text(
        "a cluster of a job with a name of its own",
        'cluster_spec = {\n        "local": ["10.7.0.3:2222", "10.7.0.2:2223"]\n    }\n\n'
        'server = tf.distribute.Server(cluster_spec, job_name="local", task_index=1)',
        jobs="local=10.7.0.3:2222,10.7.0.2:2223",
    ),
    Text(
        "as Python prints a dictionary",
        "{'ps': ['tf1:2222'], 'worker': ['tf2:2222', 'tf3:2222']}",
        jobs=PS_2_WORKERS,
    ),
    Text(
        "as TensorFlow prints a ClusterSpec",
        "ClusterSpec({'ps': ['tf1:2222'], 'worker': ['tf2:2222', 'tf3:2222']})",
        jobs=PS_2_WORKERS,
    ),
    Text(
        "a sparse cluster",
        '{"cluster": {"worker": {"1": "tf3:2222", "0": "tf2:2222"}, "ps": ["tf1:2222"]}}',
        jobs="worker=tf2:2222,tf3:2222 ps=tf1:2222",
    ),
    Text(
        "trailing commas and a comment",
        '{\n  "cluster": {\n    "ps": ["tf1:2222"],  # old: "tf9:2222"\n'
        '    "worker": ["tf2:2222", "tf3:2222",],\n  },\n}\n',
        jobs=PS_2_WORKERS,
        said=("#",),
    ),
    Text(
        "the evaluator's own TF_CONFIG",
        '{"cluster": {"chief": ["tf1:2222"], "worker": ["tf2:2222"]},'
        ' "task": {"type": "evaluator", "index": 0}}',
        jobs="chief=tf1:2222 worker=tf2:2222 evaluator=localhost:auto",
    ),
    Text(
        "the same TF_CONFIG for each terminal",
        'TF_CONFIG=\'{"cluster": {"worker": ["tf1:1111", "tf2:1111"]}, "task": {"type": "worker",'
        ' "index": 0}}\' python t.py &\n'
        'TF_CONFIG=\'{"cluster": {"worker": ["tf1:1111", "tf2:1111"]}, "task": {"type": "worker",'
        ' "index": 1}}\' python t.py',
        jobs="worker=tf1:1111,tf2:1111",
    ),
    Text(
        "two clusters in one text",
        'A=\'{"cluster": {"worker": ["tf1:1111"]}}\'\nB=\'{"cluster": {"worker": ["tf2:1111"]}}\'',
        refused="2 different clusters",
    ),
    Text(
        "a TF_CONFIG without a cluster",
        'TF_CONFIG=\'{"task": {"type": "worker", "index": 0}}\'',
        refused="has no cluster",
    ),
    Text(
        "a TF_CONFIG whose end is missing",
        '{"cluster": {"worker": ["tf1:2222", "tf2:2222"]',
        refused="not closed",
    ),
    Text(
        "placeholders of a tutorial",
        'os.environ["TF_CONFIG"] = json.dumps({"cluster": {"worker": ["host1:port", '
        '"host2:port"]}, "task": {"type": "worker", "index": 1}})',
        refused="host1:port",
    ),
    Text(
        "addresses that the program computes",
        "tf_config = {'cluster': {'worker': [sys.argv[1] + ':2222', f'{other}:2222']}}",
        refused="computed",
    ),
    Text(
        "the ClusterDef of a log",
        'job {\n  name: "ps"\n  tasks { key: 0 value: "tf1:2222" }\n}\njob {\n  name: "worker"\n'
        '  tasks { key: 0 value: "tf2:2222" }\n  tasks { key: 1 value: "tf3:2222" }\n}\n',
        jobs=PS_2_WORKERS,
    ),
    Text(
        "grpc_tensorflow_server: --cluster_spec",
        'docker run tensorflow/tf_grpc_server --cluster_spec="worker|tf2:2222;tf3:2222,ps|tf1:2222'
        '" --job_name=worker --task_id=0',
        jobs="worker=tf2:2222,tf3:2222 ps=tf1:2222",
    ),
    Text(
        "--cluster_spec in JSON",
        'python mnist.py --cluster_spec=\'{"ps": ["tf1:2222"], "worker": ["tf2:2222", '
        '"tf3:2222"]}\' --is_worker --job_name=ps --task_index=0',
        jobs=PS_2_WORKERS,
    ),
    # flags and variables
    Text(
        "the flags of TensorFlow's old tutorial, continued lines",
        "python3 tf_distributed.py \\\n     --ps_hosts=tf1:2222 \\\n"
        "     --worker_hosts=tf2:2222,tf3:2222 \\\n     --job_name=worker --task_index=0 \\\n"
        "     --param_path=./param.json\n",
        jobs=PS_2_WORKERS,
    ),
    Text(
        "the same flags for each task",
        "# ps0\npython3 b.py --ps_hosts=tf1:2222 --worker_hosts=tf2:2222,tf3:2222 --job_name=ps "
        "--task_index=0\n\n# worker0\npython3 b.py --ps_hosts=tf1:2222 "
        "--worker_hosts=tf2:2222,tf3:2222 --job_name=worker --task_index=0\n",
        jobs=PS_2_WORKERS,
    ),
    Text(
        "flags in quotes, output redirected",
        "python $SCRATCH/dist.py --batch_size=128 --job_name='ps' --task_index=0 "
        "--ps_hosts='tf1:2222' --worker_hosts='tf2:2222,tf3:2222' > ps_0_${hostname}.out",
        jobs=PS_2_WORKERS,
    ),
    Text(
        "flags with blanks", "--ps_hosts tf1:2222 --worker_hosts tf2:2222, tf3:2222", PS_2_WORKERS
    ),
    Text(
        "flags with hyphens", "--ps-hosts=tf1:2222 --worker-hosts tf2:2222,tf3:2222", PS_2_WORKERS
    ),
    Text(
        "--workers and --ps",
        'train --job worker --workers="tf2:8888,tf3:8888" --ps="tf1:7777" --log_dir /logs',
        jobs="worker=tf2:8888,tf3:8888 ps=tf1:7777",
    ),
    Text(
        "--chief_hosts, --evaluator-host",
        "main.py --chief_hosts=tf1:1 --worker_hosts=tf2:1 --evaluator-host=tf3:1",
        jobs="chief=tf1:1 worker=tf2:1 evaluator=tf3:1",
    ),
    Text(
        "variables of a shell",
        'PS_HOSTS="tf1:2222"\nWORKER_HOSTS="tf2:2222,tf3:2222"\n\npython train.py '
        "--ps_hosts=$PS_HOSTS --worker_hosts=${WORKER_HOSTS} --job_name=ps --task_index=0\n",
        jobs=PS_2_WORKERS,
    ),
    Text(
        "variables of a shell, the old line commented out",
        'PS_HOSTS="tf1:2222"\nWORKER_HOSTS="tf2:2222,tf3:2222"\n#WORKER_HOSTS="tf8:2222"\n',
        jobs=PS_2_WORKERS,
        said=("#",),
    ),
    Text(
        "a variable that is not set here",
        "python train.py --ps_hosts=$PS_HOSTS --worker_hosts=$WORKER_HOSTS --job_name=worker",
        refused="$PS_HOSTS is not set in this text",
    ),
    Text(
        "exported for csh",
        "setenv PS_HOSTS tf1:2222\nsetenv WORKER_HOSTS tf2:2222,tf3:2222",
        jobs=PS_2_WORKERS,
    ),
    Text(
        "a Dockerfile",
        "FROM tensorflow/tensorflow:1.15.5\nENV PS_HOSTS=tf1:2222\nENV WORKER_HOSTS tf2:2222\n"
        'CMD ["python", "train.py"]\n',
        jobs="ps=tf1:2222 worker=tf2:2222",
    ),
    Text(
        "the container of a Kubernetes job",
        "      containers:\n      - name: tf\n        image: tf:1.4\n        env:\n"
        "        - name: PS_HOSTS\n          value: tf1:2222\n        - name: WORKER_HOSTS\n"
        '          value: "tf2:2222,tf3:2222"\n',
        jobs=PS_2_WORKERS,
    ),
    Text(
        "arguments as a list",
        'args: ["--job_name=ps", "--ps_hosts=tf1:2222", "--worker_hosts=tf2:2222,tf3:2222"]',
        jobs=PS_2_WORKERS,
    ),
    Text(
        "subprocess of a Python program",
        'subprocess.Popen(["python", "t.py", "--ps_hosts", "tf1:2222", "--worker_hosts", '
        '"tf2:2222,tf3:2222"])',
        jobs=PS_2_WORKERS,
    ),
    Text(
        "defaults of tf.app.flags",
        'tf.app.flags.DEFINE_string("ps_hosts","tf1:11111",\n                           '
        '"Comma-separated list of hostname:port pairs")\n#,localhost:11113\n'
        'tf.app.flags.DEFINE_string("worker_hosts", "tf2:11112,tf2:11113",\n'
        '                           "Comma-separated list of hostname:port pairs")\n',
        jobs="ps=tf1:11111 worker=tf2:11112,tf2:11113",
    ),
    Text(
        "defaults of argparse",
        'parser.add_argument("--ps_hosts", type=str, default="tf1:2222", help="Comma-separated")\n'
        'parser.add_argument("--worker_hosts", default="tf2:2222,tf3:2222", type=str)\n',
        jobs=PS_2_WORKERS,
    ),
    Text(
        "a Python tuple, a line of it commented out",
        "ps_hosts = (\n    'tf1:2232', \n#    'tf9:2233'\n)\n\nworker_hosts = (\n    'tf2:2222', \n"
        "    'tf2:2223',\n#    'tf9:2224',\n)\n",
        jobs="ps=tf1:2232 worker=tf2:2222,tf2:2223",
    ),
    Text(
        "a Python string that is split",
        "ps_hosts = 'tf1:2222'.split(',')\nworker_hosts = \"tf2:2222,tf3:2222\".split(\",\")\n",
        jobs=PS_2_WORKERS,
    ),
    Text(
        "an array of bash",
        "PS=(tf1:2222)\nWORKERS=(tf2:2222 tf3:2222)\n",
        jobs=PS_2_WORKERS,
    ),
    Text(
        "an array of bash: hosts and users",
        "hosts=(me@10.120.180.212 me@10.120.180.213\n       me@10.120.180.214)\n\n"
        "dir=/home/me/wide_deep\nfor host in ${hosts[@]}\ndo\n"
        '    ssh -p 1046 ${host} "cd ${dir}; nohup python train.py > log 2>&1 &"\ndone\n',
        hosts="me@10.120.180.212:1046*1 me@10.120.180.213:1046*1 me@10.120.180.214:1046*1",
    ),
    Text(
        "a loop of a shell",
        "for h in tf1 tf2 tf3 tf4; do\n  ssh root@$h 'nvidia-smi' &\ndone\nwait\n",
        hosts="root@tf1*1 root@tf2*1 root@tf3*1 root@tf4*1",
    ),
    Text(
        "an empty default",
        'tf.app.flags.DEFINE_string("ps_hosts", "", "Comma-separated list of hostname:port")\n'
        'tf.app.flags.DEFINE_string("worker_hosts", "", "Comma-separated list of hostname:port")',
        refused="no host",
    ),
    Text(
        "numbers of workers are no hosts",
        "python train.py --workers 4 --num_workers=8 --lr 0.1",
        refused="is not a host",
    ),
    Text(
        "jobs on one line",
        "ps=tf1:2222 worker=tf[2-3]:2222",
        jobs=PS_2_WORKERS,
    ),
    Text(
        "a YAML mapping",
        "ps:\n  - tf1:2222\nworker:\n  - tf2:2222\n  - tf3:2222\n",
        jobs=PS_2_WORKERS,
    ),
    Text(
        "a YAML mapping of one line each",
        "ps: [tf1:2222]\nworker: [tf2:2222, tf3:2222]",
        jobs=PS_2_WORKERS,
    ),
    Text(
        "two values of one flag",
        "a.py --ps_hosts=tf1:1 --worker_hosts=tf2:1\na.py --ps_hosts=tf1:1 --worker_hosts=tf3:1",
        refused="two different values",
    ),
    # hostfiles
    Text("Open MPI: slots", "tf1 slots=4\ntf2 slots=4 max_slots=8\n", hosts="tf1*4 tf2*4"),
    Text(
        "Open MPI: blanks around =, max-slots",
        "# This is an example hostfile.  Comments begin with #\n#\ntf1\ntf2 slots = 2\n"
        "tf3 slots=4 max-slots=4\n",
        hosts="tf1*1 tf2*2 tf3*4",
    ),
    Text("Open MPI: only max_slots", "tf1 max_slots=4\ntf2 max_slots=4", hosts="tf1*1 tf2*1"),
    Text(
        "PRRTE: hosts apart by blanks and empty lines",
        "tf1  slots=10\n\n\ntf2\n",
        hosts="tf1*10 tf2*1",
    ),
    Text("a byte order mark, lines of DOS", "\ufefftf1 slots=2\r\ntf2\r\n", hosts="tf1*2 tf2*1"),
    Text("MPICH", "tf1:4      # Run 4 processes on host1\ntf2:2\n", hosts="tf1*4 tf2*2"),
    Text("MPICH: binding", "tf1:4 binding=user:0,1\ntf2:4 ifname=eth1\n", hosts="tf1*4 tf2*4"),
    Text("LAM/MPI", "tf1 cpu=2 user=me\ntf2 cpu=4\n", hosts="me@tf1*2 tf2*4"),
    Text("DeepSpeed", "worker-1 slots=4\nworker-2 slots=4\n", hosts="worker-1*4 worker-2*4"),
    Text("Horovod", "tf1:2,tf2:2,localhost:2", hosts="tf1*2 tf2*2 localhost*2"),
    Text("PBS: a line for each slot", "tf1\ntf1\ntf2\ntf2\n", hosts="tf1*2 tf2*2"),
    Text("PBS: exec_host", "tf1/0*4+tf2/0*4", hosts="tf1*4 tf2*4"),
    Text("PBS: exec_host, each", "tf1/0+tf1/1+tf2/0", hosts="tf1*2 tf2*1"),
    Text(
        "Grid Engine: PE_HOSTFILE",
        "tf1 16 all.q@tf1 UNDEFINED\ntf2 4 all.q@tf2 UNDEFINED\n",
        hosts="tf1*16 tf2*4",
    ),
    Text("LSF: LSB_MCPU_HOSTS", 'LSB_MCPU_HOSTS="tf1 4 tf2 2"', hosts="tf1*4 tf2*2"),
    Text("LSF: LSB_HOSTS", 'LSB_HOSTS="tf1 tf1 tf2"', hosts="tf1*2 tf2*1"),
    Text("Slurm", "tf[1-4]", hosts=FOUR),
    Text(
        "Slurm: the environment of a job",
        "SLURM_JOB_NODELIST=cn[265,297-299]\nSLURM_NNODES=4\n",
        hosts="cn265*1 cn297*1 cn298*1 cn299*1",
    ),
    Text("Slurm: two brackets", "tf[1-2],gpu[08-09]", hosts="tf1*1 tf2*1 gpu08*1 gpu09*1"),
    Text("pssh", "me@tf1:2200\nme@tf2:2200\n", hosts="me@tf1:2200*1 me@tf2:2200*1"),
    Text("pssh: the user behind", "tf1 me\ntf2 me\n", refused="'me'"),
    Text("GNU parallel: --sshloginfile", "8/tf1\n4/me@tf2\n", hosts="tf1*8 me@tf2*4"),
    Text("ssh's URI", "ssh://me@tf1:2200", hosts="me@tf1:2200*1"),
    Text(
        "Ansible",
        "[ps]\ntf1\n\n[workers]\ntf2 ansible_host=10.0.0.2 ansible_user=me\n"
        "tf3 ansible_port=2200\n",
        jobs="ps=tf1:auto worker=me@10.0.0.2:auto,tf3#2200:auto",
    ),
    Text(
        "Ansible in YAML",
        "all:\n  hosts:\n    tf1: {ansible_host: 10.0.0.1, ansible_port: 2200}\n    tf2:\n"
        "    tf3:\n  vars:\n    ansible_user: me\n    http_port: 80\n  children:\n    ps:\n"
        "      hosts:\n        tf1:\n    workers:\n      hosts:\n        tf[2:3]:\n"
        "      vars:\n        ansible_user: you\n",
        jobs="ps=me@10.0.0.1#2200:auto worker=you@tf2:auto,you@tf3:auto",
    ),
    Text(
        "Ansible in YAML: other groups, and groups in groups",
        "---\ngpu:\n  children:\n    left:\n      hosts:\n        tf1:\n    right:\n      hosts:\n"
        "        tf2:\n          ansible_user: you\n  vars:\n    ansible_user: me\nold:\n",
        hosts="me@tf1*1 you@tf2*1",
        said=("an inventory of Ansible",),
    ),
    Text(
        "Ansible in YAML: a host's own user",
        "all:\n  hosts:\n    tf1: {ansible_user: me}\n  children:\n    gpu:\n      hosts:\n"
        "        tf1:\n        tf2:\n      vars: {ansible_user: you}\n",
        hosts="me@tf1*1 you@tf2*1",
    ),
    Text("Ansible: a playbook", "- hosts: web\n  tasks: []\n", refused="'web' is not a host"),
    Text(
        "Ansible in YAML: a template",
        "all:\n  hosts:\n    tf1:\n      ansible_host: \"{{ lookup('env', 'IP') }}\"\n",
        refused="a host name can contain only",
    ),
    Text(
        "Open MPI's rankfile",
        "rank 0=tf1 slot=1:0-2\nrank 1=tf2 slot=0:0,1\nrank 2 = tf1 slot=1-2\n",
        hosts="tf1*2 tf2*1",
        said=("ranks are numbered from host to host", "the cores of ranks are left out"),
    ),
    Text(
        "Open MPI's rankfile: hosts of another file", "rank 0=+n0 slot=0\n", refused="another file"
    ),
    Text(
        "Open MPI's rankfile: a rank is missing", "rank 0=a slot=0\nrank 2=b slot=0", refused="0 to"
    ),
    Text(
        "/etc/hosts",
        "127.0.0.1 localhost\n127.0.1.1\tlaptop\n10.0.0.1\ttf1.lan tf1\n10.0.0.2 tf2 # slow\n\n"
        "::1 ip6-localhost ip6-loopback\nff02::1 ip6-allnodes\n",
        hosts="10.0.0.1*1 10.0.0.2*1",
        said=("an /etc/hosts", "2 hosts, tf1, tf2", "mean each machine itself"),
    ),
    Text(
        "Ansible: other groups",
        "[gpu]\ntf[1:2]\n[gpu:vars]\nansible_user=me\n",
        hosts="me@tf1*1 me@tf2*1",
    ),
    Text(
        "ssh_config",
        "Host tf1\n  HostName 10.0.0.1\n  User me\n  Port 2200\n\nHost tf2\n  HostName 10.0.0.2\n",
        hosts="me@10.0.0.1:2200*1 10.0.0.2*1",
    ),
    Text("IPv6", "[fd00::1]:2\nfd00::2\n", hosts="fd00::1*2 fd00::2*1"),
    Text("IPv6 tasks", "[fd00::1]:2222, [fd00::2]:2222", jobs="worker=fd00::1:2222,fd00::2:2222"),
    Text(
        "ports of tasks",
        "tf1:2222,tf2:2222",
        jobs="worker=tf1:2222,tf2:2222",
        said=("2222 read as the port",),
    ),
    Text("port 22", "tf1:22\ntf2:22", hosts="tf1:22*1 tf2:22*1", said=("22 read as the SSH port",)),
    Text("a list of Markdown", "- tf1\n- tf2\n", hosts="tf1*1 tf2*1"),
    Text("a fence of Markdown", "```\ntf1 slots=2\ntf2 slots=2\n```", hosts="tf1*2 tf2*2"),
    Text("no slots at all", "tf1 slots=0\ntf2 slots=4\n", refused="slots=0"),
    Text("an unknown word", "tf1 slots=2 rack=3\n", refused="rack=3"),
    Text("prose", "please connect to tf1 and tf2", refused="'please'"),
    Text("prose with a colon", "The cluster has two machines: tf1, tf2", refused="'The'"),
    Text("a comment alone", "# tf1\n# tf2\n", refused="no host"),
    # command lines
    Text(
        "mpirun -H",
        "mpirun -np 4 -H tf1:2,tf2:2 -bind-to none -map-by slot -x LD_LIBRARY_PATH python train.py",
        hosts="tf1*2 tf2*2",
    ),
    Text("mpirun --host, each slot", "mpirun --host tf1,tf1,tf2 ./a.out", hosts="tf1*2 tf2*1"),
    Text("mpiexec -hosts", "mpiexec -hosts tf1,tf2 -n 2 ./a.out", hosts="tf1*1 tf2*1"),
    Text(
        "mpirun with a file", "mpirun -machinefile machines -np 4 ./array_sum", refused="machines"
    ),
    Text(
        "horovodrun",
        "horovodrun -np 8 -H tf1:4,tf2:4 python train.py --epochs 9",
        hosts="tf1*4 tf2*4",
    ),
    Text("srun", "srun -N2 -w tf[1-2] --gres=gpu:1 python train.py", hosts="tf1*1 tf2*1"),
    Text("pdsh", "pdsh -w tf[1-3] -l me uptime", hosts="me@tf1*1 me@tf2*1 me@tf3*1"),
    Text("ssh", "ssh root@tf1", hosts="root@tf1*1"),
    Text(
        "ssh with options and a command",
        "ssh -i ~/.ssh/key -p 2200 -o StrictHostKeyChecking=no me@tf1 'nvidia-smi; ls'",
        hosts="me@tf1:2200*1",
        said=("~/.ssh/key",),
    ),
    Text(
        "ssh, the port behind",
        "ssh me@tf1 -p 2200\nssh -l me tf2\n",
        hosts="me@tf1:2200*1 me@tf2*1",
    ),
    Text(
        "torchrun on one of two hosts",
        "torchrun --nnodes=2 --nproc-per-node=4 --node-rank=0 --master-addr=tf1 "
        "--master-port=29500 train.py",
        refused="1 of 2 hosts",
    ),
    Text(
        "torchrun on this machine",
        "torchrun --standalone --nnodes=1 --nproc-per-node=8 -m pkg train",
        hosts="localhost*8",
    ),
    Text(
        "torch.distributed.launch",
        "python -m torch.distributed.launch --nproc_per_node=2 main.py --lr 1",
        hosts="localhost*2",
    ),
    Text(
        "MASTER_ADDR",
        "export MASTER_ADDR=tf1\nexport MASTER_PORT=29500\nexport WORLD_SIZE=2\n",
        refused="MASTER_ADDR names",
    ),
    Text("ray", "ray start --address=tf1:6379", refused="ray"),
    Text(
        "a traceback",
        'Traceback (most recent call last):\n  File "t.py", line 3, in <module>\n',
        refused="'Traceback'",
    ),
    Text("a URL", "http://tf1:8888/tree", refused="http://"),
    Text("a path", "/home/me/hosts.txt", refused="/home/me/hosts.txt"),
    Text("a command that no shell should see", "$(reboot)", refused="$(reboot)"),
    Text(
        "an option of ssh in the place of a host", "-oProxyCommand=reboot", refused="-oProxyCommand"
    ),
    Text("a broken range", "tf[5-1]", refused="ascending"),
    Text("too many", "tf[1-99999]", refused="more than"),
)

TRIED_AFTERWARDS = (
    # Forms that were collected when the parser stood, and tried then.
    Text(
        "an orqa script: host:port as a placeholder",
        'MODEL_DIR=gs://b/m\nTF_CONFIG=\'{"cluster": {"chief": ["host:port"]}, "task": {"type": "evaluator", "index": 0}}\' \\\npython -m x.y --model_dir=$MODEL_DIR',
        refused="host:port",
    ),
    Text(
        "four roles on one machine",
        '# chief\nTF_CONFIG=\'{"cluster": {"chief": ["localhost:2222"], "worker": ["localhost:2223"], "ps": ["localhost:2226"], "evaluator": ["localhost:2227"]}, "task": {"type": "chief", "index": 0}}\' nohup python r.py --config_dir=c > logs/c.log 2>&1 &',
        jobs="chief=localhost:2222 worker=localhost:2223 ps=localhost:2226 evaluator=localhost:2227",
    ),
    Text(
        "os.environ with a string",
        'os.environ["TF_CONFIG"] = \'{"cluster": {"chief": ["tf1:12345"],"worker": ["tf2:12345"]},"task": {"type": "chief","index": "0"}}\'\nstrategy = tf.distribute.MultiWorkerMirroredStrategy()',
        jobs="chief=tf1:12345 worker=tf2:12345",
    ),
    Text(
        "shell pieces inside the JSON",
        'export TF_CONFIG=\'{"cluster": {"chief": ["\'"$chief"\':2222"]}, "task": {"type": "chief", "index": 0}}\'',
        refused="$chief",
    ),
    Text(
        "a ClusterSpec without ports",
        'cluster = tf.train.ClusterSpec({"local": ["172.21.109.1","172.21.109.2"]})',
        jobs="local=172.21.109.1:auto,172.21.109.2:auto",
    ),
    Text(
        "an old ClusterSpec in a comment",
        '#cluster = tf.train.ClusterSpec({"local": ["localhost:2222", "localhost:2223"]})\ncluster = tf.train.ClusterSpec({"DSGraph":["172.17.5.168:2223","172.17.100.219:2223"]})',
        jobs="DSGraph=172.17.5.168:2223,172.17.100.219:2223",
    ),
    Text(
        "two jobs of other names",
        'import tensorflow as tf\ncluster = tf.train.ClusterSpec({"local": ["localhost:2222"],"ml":["localhost:2223"]})\nserver = tf.train.Server(cluster, job_name="local", task_index=0)',
        jobs="local=localhost:2222 ml=localhost:2223",
    ),
    Text(
        "Compose heredoc with TF_CONFIG",
        'services:\n  dis4:\n    container_name: dis\n    environment:\n      TF_CONFIG: \'{"cluster": {"worker": ["10.186.0.6:2222", "10.186.0.7:2222"]}, "task": {"type": "worker", "index": 0}}\'\n    build: .\n',
        jobs="worker=10.186.0.6:2222,10.186.0.7:2222",
    ),
    Text(
        "nvidia-docker with flags",
        'nvidia-docker run -it -p 2222:2222 -v /home/me/x:/root/code tensorflow/tensorflow:1.5.0-gpu  python ./code/t.py --num_epochs=10 --ps_hosts="192.168.0.100:2222"   --worker_hosts="192.168.0.101:2222"   --job_name="ps"   --task_index=0',
        jobs="ps=192.168.0.100:2222 worker=192.168.0.101:2222",
    ),
    Text(
        "worker flags first",
        '   # on the first node\n   python3 train.py --worker_hosts="tf1:2222,tf2:2222" --ps_hosts="tf1:2223,tf2:2223" --job_name=worker --task_index=0',
        jobs="worker=tf1:2222,tf2:2222 ps=tf1:2223,tf2:2223",
    ),
    Text(
        "lower case shell variables",
        'ps_hosts="tf1:2222"\nworker_hosts="tf2:2222,tf3:2222"\ntask_id=$1\npython t.py --ps_hosts="$ps_hosts" --worker_hosts="$worker_hosts" --task=${task_id} --job_name=${job_name}',
        jobs=PS_2_WORKERS,
    ),
    Text(
        "ports in variables",
        'ps_port=2222\nworker_port=2223\npython t.py --ps_hosts="tf1:${ps_port}" --worker_hosts="tf2:${worker_port},tf3:${worker_port}" &',
        jobs="ps=tf1:2222 worker=tf2:2223,tf3:2223",
    ),
    Text(
        "mpirun of the Amazon examples",
        "#! /bin/bash\n/opt/amazon/openmpi/bin/mpirun -np 2 -H \\\n    ip-172-31-88-106:1,ip-172-31-76-23:1 \\\n    -bind-to none -map-by slot \\\n    -x LD_LIBRARY_PATH=/opt/lib:$LD_LIBRARY_PATH \\\n    -tag-output \\\n    -mca pml ob1 \\\n    -mca btl ^openib \\\n    /home/me/bin/python /home/me/basic.py",
        hosts="ip-172-31-88-106*1 ip-172-31-76-23*1",
    ),
    Text(
        "mpirun, a blank lost before the backslash",
        "mpirun -np 2 \\\n    -H 54.202.134.113:1,54.244.60.228:1\\\n    -bind-to none -map-by slot \\\n    -x NCCL_DEBUG=INFO python b.py --do_train",
        hosts="54.202.134.113*1 54.244.60.228*1",
    ),
    Text(
        "horovodrun in a page",
        "    $ horovodrun -np 16 -H server1:4,server2:4,server3:4,server4:4 python train.py",
        hosts="server1*4 server2*4 server3*4 server4*4",
    ),
    Text(
        "mpiexec of Microsoft MPI",
        "mpiexec -n 4 -hosts 4 192.168.0.1 1 192.168.0.2 1 192.168.0.3 1 192.168.0.4 1 a.exe 100",
        hosts="192.168.0.1*1 192.168.0.2*1 192.168.0.3*1 192.168.0.4*1",
    ),
    Text(
        "mpiexec -hosts with names only",
        "mpiexec -n 4 -hosts master,slave ./a.out data.txt",
        hosts="master*1 slave*1",
    ),
    Text(
        "mpirun with -hostfile and no hosts",
        "mpirun -np 8 -hostfile hosts.txt -mca plm_rsh_no_tree_spawn 1 -bind-to socket python t.py",
        refused="hosts.txt",
    ),
    Text(
        "parallel-ssh with a file",
        'parallel-ssh -h hosts.txt -l ubuntu -x "-i /home/pw/key.pem" "tmux kill-server || true"',
        refused="hosts.txt",
    ),
    Text(
        "parallel-ssh -H",
        'parallel-ssh -i -H "tf1 tf2 me@tf3" uptime',
        hosts="tf1*1 tf2*1 me@tf3*1",
    ),
    Text(
        "declare -a",
        '#!/bin/bash\n\ndeclare -a hosts=(h1 h2 h3 h4)\n\nfor h in "${hosts[@]}"; do echo $h; done',
        hosts="h1*1 h2*1 h3*1 h4*1",
    ),
    Text(
        "a loop with ssh and a numbered name",
        'for i in {1..3}; do ssh me@tf$i "hostname"; done',
        hosts="me@tf1*1 me@tf2*1 me@tf3*1",
    ),
    Text(
        "a loop with seq",
        "for i in $(seq 2 3); do\n  ssh node$i nvidia-smi\ndone",
        hosts="node2*1 node3*1",
    ),
    Text(
        "DeepSpeed's include",
        'deepspeed --include="worker-2:0,1@worker-3:2,3" train.py --deepspeed cfg.json',
        hosts="worker-2*2 worker-3*2",
    ),
    Text(
        "accelerate on one of four",
        "accelerate launch --num_machines 4 --machine_rank 0 --main_process_ip 10.0.0.1 --main_process_port 29500 --num_processes 32 t.py",
        refused="1 of 4 hosts",
    ),
    Text(
        "Spark's workers file",
        "# A Spark Worker will be started on each of the machines listed below.\nlocalhost\ntf2\n",
        hosts="localhost*1 tf2*1",
    ),
    Text(
        "Slurm's nodelist with padding",
        "gpu-a[001-003,010]",
        hosts="gpu-a001*1 gpu-a002*1 gpu-a003*1 gpu-a010*1",
    ),
    Text(
        "sbatch's header",
        "#!/bin/bash\n#SBATCH --job-name=x\n#SBATCH --nodelist=tf[1-2]\n#SBATCH --ntasks-per-node=1\nsrun python t.py\n",
        hosts="tf1*1 tf2*1",
    ),
    Text("PBS's -l", "nodes=tf1:ppn=4+tf2:ppn=4", hosts="tf1*4 tf2*4"),
    Text("a table of Markdown", "| host | gpus |\n|---|---|\n| tf1 | 2 |\n", refused="'|'"),
    Text("two hosts and a question", "tf1, tf2?", refused="tf2?"),
    Text("a mail", "me@example.com wrote: run it on tf1", refused="'run'"),
    Text(
        "the output of squeue",
        "  JOBID PARTITION NAME USER ST TIME NODES NODELIST(REASON)\n   8123 gpu train me R 1:02 2 tf[1-2]\n",
        refused="'JOBID'",
    ),
    Text(
        "the prompt and two ssh lines",
        "me@laptop:~$ ssh me@tf1\nme@laptop:~$ ssh me@tf2",
        hosts="me@tf1*1 me@tf2*1",
    ),
    Text("ssh with a jump", "ssh -J bastion -A root@10.0.0.7", hosts="root@10.0.0.7*1"),
    Text("scp is no login", "scp -r code tf1:/srv/", refused=""),
    Text(
        "hosts with ports and blanks",
        "tf1:2222 tf2:2222 tf3:2223",
        jobs="worker=tf1:2222,tf2:2222,tf3:2223",
    ),
    Text(
        "JSON lists by name", '{"ps": "tf1:2222", "worker": "tf2:2222,tf3:2222"}', jobs=PS_2_WORKERS
    ),
    Text(
        "flags of absl with one hyphen",
        "main.py -ps_hosts tf1:2222 -worker_hosts tf2:2222,tf3:2222",
        jobs=PS_2_WORKERS,
    ),
    Text(
        "a Windows set",
        "set PS_HOSTS=tf1:2222\r\nset WORKER_HOSTS=tf2:2222,tf3:2222\r\npython t.py --ps_hosts=%PS_HOSTS% --worker_hosts=%WORKER_HOSTS%",
        jobs=PS_2_WORKERS,
    ),
    Text(
        "PowerShell",
        '$env:PS_HOSTS = "tf1:2222"\n$env:WORKER_HOSTS = "tf2:2222,tf3:2222"',
        jobs=PS_2_WORKERS,
    ),
    Text(
        "a systemd unit",
        '[Service]\nEnvironment="PS_HOSTS=tf1:2222" "WORKER_HOSTS=tf2:2222,tf3:2222"\nExecStart=/usr/bin/python3 t.py\n',
        jobs=PS_2_WORKERS,
    ),
    Text(
        "a dotenv file of another program",
        "DATABASE_URL=postgres://db:5432/x\nREDIS=redis:6379\n",
        refused="",
    ),
)

TRIED_LAST = (
    # Forms of public scripts, READMEs and outputs that were tried after the others.
    Text(
        "a benchmark: one machine by many loopback addresses",
        "python cnn.py --num_gpus=8 \\\n--job_name=worker --ps_hosts=127.0.0.1:5000 \\\n"
        "--worker_hosts=127.0.0.1:5001,127.0.0.2:5002 \\\n--task_index=1\n",
        jobs="ps=localhost:5000 worker=localhost:5001,localhost:5002",
    ),
    Text(
        "a program: lists in capitals",
        "import tensorflow as tf\n\nPS_HOSTS = ['tf1:2222']\nWORKER_HOSTS = ['tf2:2222', 'tf3:2222']"
        "\nSPEC = tf.train.ClusterSpec({'ps': PS_HOSTS, 'worker': WORKER_HOSTS})\n",
        jobs=PS_2_WORKERS,
    ),
    Text(
        "a program: tuples with comments between",
        "ps_hosts = (\n    'tf1:2232', \n#    'tf2:2233'\n)\n\nworker_hosts = (\n    'tf1:2222', \n"
        "    'tf1:2223',\n#    'tf2:2224',\n)\n\nfor idx, ps in enumerate(ps_hosts):\n    print 'x'\n",
        jobs="ps=tf1:2232 worker=tf1:2222,tf1:2223",
        said=("2 lines after # are left out",),
    ),
    Text(
        "a README: the command for each task",
        "## Example\n```bash\n"
        + "".join(
            f"python t.py --ps_hosts=tf1:2225 --worker_hosts=tf2:2225,tf3:2225 --task_index={n} "
            f"--job_name={job}\n"
            for job, n in (("ps", 0), ("worker", 0), ("worker", 1))
        )
        + "```",
        jobs="ps=tf1:2225 worker=tf2:2225,tf3:2225",
    ),
    Text(
        "a script: ssh -p in a loop over an array of two lines",
        "hosts=(me@tf1 me@tf2\n       me@tf3)\nnohup python t.py > l 2>&1 &\ni=1\n"
        'for host in ${hosts[@]}\ndo\n    ssh -p 1046 ${host} "cd ${dir}; nohup python t.py &"\n'
        "    let i+=1\ndone\n",
        hosts="me@tf1:1046*1 me@tf2:1046*1 me@tf3:1046*1",
    ),
    Text(
        "a script: every line is a comment",
        "# ssh me@tf1 'python t.py'\n# # x\n",
        refused="no host",
    ),
    Text(
        "a flag with a comma of another script",
        'os.system("python k.py --ps_hosts=tf1:2225 --worker_hosts=tf1:2226\uff0ctf2 --task_index=0")',
        refused="is not a list of hosts of worker",
    ),
    Text(
        "a flag with a gap to fill in",
        "python t.py --ps_hosts=tf1:2222 --worker_hosts=<worker ips> --job_name=ps",
        refused="'<worker' is not a list of hosts of worker",
    ),
    Text(
        "a flag with dots",
        "python t.py --ps_hosts tf1:2222 --worker_hosts ...",
        refused="'...' is not a list of hosts of worker",
    ),
    Text(
        "a flag with a file",
        "python t.py --ps_hosts=tf1:2222 --worker_hosts=@hosts.txt",
        refused="'@hosts.txt' is not a list",
    ),
    Text(
        "a flag filled by Python",
        "cmd = f'python t.py --ps_hosts=tf1:2222 --worker_hosts={workers}'",
        refused="'{workers}' is not a list",
    ),
    Text(
        "flags that are defined empty, and a call",
        "DEFINE_string('ps_hosts', '', 'list')\nDEFINE_string('worker_hosts', '', 'list')\n"
        "python t.py --ps_hosts=tf1:2222 --worker_hosts=tf2:2222,tf3:2222",
        jobs=PS_2_WORKERS,
    ),
    Text(
        "Python's % with lists from elsewhere",
        "run('python nn.py --ps_hosts=%s --worker_hosts=%s' % (PS, WORKERS))",
        refused="ps_hosts names no host",
    ),
    Text(
        "a container of Kubernetes: flags in a list",
        'containers:\n- name: ps\n  command: ["python", "t.py", "--ps_hosts=ps-0.ps.svc:2222", '
        '"--worker_hosts=w-0.w.svc:2222,w-1.w.svc:2222", "--job_name=ps"]\n  ports:\n'
        "  - containerPort: 2222\n",
        jobs="ps=ps-0.ps.svc:2222 worker=w-0.w.svc:2222,w-1.w.svc:2222",
    ),
    Text(
        "TF_CONFIG with escaped quotes, and what echo prints",
        '$ export TF_CONFIG="{\\"cluster\\": {\\"worker\\": [\\"tf1:12345\\", \\"tf2:23456\\"]}, '
        '\\"task\\": {\\"type\\": \\"worker\\", \\"index\\": 0}}"\n$ echo $TF_CONFIG\n'
        '{"cluster": {"worker": ["tf1:12345", "tf2:23456"]}, "task": {"type": "worker", "index": 0}}',
        jobs="worker=tf1:12345,tf2:23456",
    ),
    Text(
        "TF_CONFIG from another variable",
        "TF_CONFIG=$JOB_CONFIG trainer $FLAGS",
        refused="TF_CONFIG",
    ),
    Text(
        "ClusterSpec: jobs of other names",
        "cluster = tf.train.ClusterSpec({\n    'curr': [\n        'localhost:3333'\n    ],\n"
        "    'best': [\n        'localhost:3335'\n    ]\n})\n",
        jobs="curr=localhost:3333 best=localhost:3335",
    ),
    Text(
        "ClusterSpec: computed hosts",
        "tab = []\nfor host in hosts:\n    tab.append(str(host)+':2222')\n"
        "cluster = tf.train.ClusterSpec({'worker': tab})\n",
    ),
    Text(
        "horovodrun: -hostfile with one hyphen",
        "cd ~ && mkdir -p c && horovodrun -np 16 -hostfile /home/me/ib -p $PORT python k.py",
        refused="reads the hosts from /home/me/ib",
    ),
    Text(
        "horovodrun: a script finds the hosts",
        "horovodrun -np 1 --host-discovery-script ./found.sh python t.py",
        refused="horovodrun asks ./found.sh for its hosts",
    ),
    Text(
        "mpirun: many options",
        "mpirun -np 16 -H tf1:4,tf2:4,tf3:4,tf4:4 -bind-to none -map-by slot -x NCCL_DEBUG=INFO "
        "-mca pml ob1 -mca btl ^openib python t.py",
        hosts="tf1*4 tf2*4 tf3*4 tf4*4",
    ),
    Text(
        "a hostfile in a here-document",
        "cat > /opt/hosts <<EOF\ntf1 slots=1\ntf2 slots=1\nEOF\ndeepspeed --hostfile=/opt/hosts t.py",
        refused="deepspeed reads the hosts from /opt/hosts",
    ),
    Text(
        "srun torchrun with computed hosts",
        "export MASTER_ADDR=$(scontrol show hostnames $SLURM_NODELIST | head -n 1)\n"
        "srun torchrun --nnodes=$SLURM_NNODES --rdzv_endpoint=$MASTER_ADDR:29500 t.py",
        refused="MASTER_ADDR names the first host alone",
    ),
    Text(
        "pdsh: a range behind a digit", "pdsh -w tf0[1-2] /home/me/clean.sh", hosts="tf01*1 tf02*1"
    ),
    Text(
        "pdsh: a file", 'pdsh -w ^all_nodes "$CMD" >> "$OUT"', refused="'^all_nodes' is not a host"
    ),
    Text(
        "a table of Markdown with a hostfile",
        "| `hostfile` | `tf1 slots=8`, `tf2 slots=8` |\n| port | `tf1` / `45661` |\n",
    ),
    Text(
        "terraform output", 'worker_ips = [\n  "tf1",\n  "tf2",\n]', jobs="worker=tf1:auto,tf2:auto"
    ),
    Text(
        "Ray's cluster file",
        "cluster_name: x\nprovider:\n    type: local\n    head_ip: tf1\n    worker_ips: [tf2, tf3]\n",
        refused="a cluster file of Ray",
    ),
    Text("accelerate's settings", "machine_rank: 0\nmain_process_ip: tf1\nnum_machines: 2\n"),
    Text(
        "getent hosts",
        "10.0.0.1  tf1.lan tf1\n10.0.0.2  tf2.lan tf2",
        hosts="10.0.0.1*1 10.0.0.2*1",
    ),
    Text(
        "/etc/hosts of a container",
        "127.0.0.1\tlocalhost\nfe00::0\tip6-localnet\nff00::0\tip6-mcastprefix\n10.0.0.3\t3f2a9c1b7d10\n",
        hosts="10.0.0.3*1",
    ),
    Text(
        "/etc/hosts without hosts",
        "127.0.0.1 localhost\n::1 localhost\n",
        refused="each machine itself",
    ),
    Text(
        "known_hosts",
        "tf1 ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ\n",
        refused="'ssh-ed25519' is not a host",
    ),
    Text("md5sum", "d41d8cd98f00b204e9800998ecf8427e  train1\n", refused="is not a host"),
    Text("du", "4.0K data1\n12M data2\n", refused="'4.0K' is not a host"),
    Text("hosts and sizes", "tf1 80G\ntf2 40G\n", refused="'80G' is not a host"),
    Text("hosts and GPUs", "tf1 8xA100\ntf2 8xH100\n", refused="'8xA100' is not a host"),
    Text(
        "hosts and days", "tf1 2026-01-01\ntf2 2026-01-02\n", refused="'2026-01-01' is not a host"
    ),
    Text("hosts and versions", "tf1 v1.28.2\n", refused="'v1.28.2' is not a host"),
    Text(
        "ip neigh",
        "10.0.0.2 dev eth0 lladdr 00:11:22:33:44:55 REACHABLE\n",
        refused="'dev' is not a host",
    ),
)
