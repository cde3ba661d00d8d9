"""Reading of what other programs print; it runs in the reader's process, behind the bulkhead.

looks               the questions, and what an answer is
reader              the process that answers them
line_reading        figures and waiting of single lines
waiting             lines that only say whom a task waits for
evidence            what the tasks of a run say about a failure or a hang
"""
