"""A client of Dask: squares are computed by the workers of the cluster."""

from dask.distributed import Client


def square(number: int) -> int:
    return number * number


with Client() as client:  # the cluster is DASK_SCHEDULER_ADDRESS
    print("workers", len(client.scheduler_info()["workers"]))
    print("sum of squares", sum(client.gather(client.map(square, range(10)))))
